"""igpe certify and igpe verify: a proof, and whether it is one."""

import json

import pytest
from command_line import BELLMAN, CHAIN, refused, run

from igpe.proofs.checker import confirm


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    path = tmp_path_factory.mktemp("proof") / "proof.json"
    done = run("certify", CHAIN, "--certificate", path, "--gap", 1e-4)
    assert done.exit_code == 0, done.output
    assert "\nNo parameter values within these bounds" in done.stdout
    return path


def test_a_proof_is_verified(proof):
    done = run("verify", proof, CHAIN)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Verified: no parameter values in the box")


@pytest.mark.slow
def test_a_proof_is_checked_with_arb(proof, tmp_path):
    pytest.importorskip("flint", reason="python-flint is not installed: pip install 'igpe[arb]'")
    done = run("verify", proof, CHAIN, "--arb", "--json", tmp_path / "answer.json")
    assert done.exit_code == 0, done.output
    assert "Arb confirms the objective [" in done.stdout.replace("\n", " ")
    stored = json.loads((tmp_path / "answer.json").read_text())["arb"]
    assert stored["is_objective_confirmed"]
    assert stored["confirmed"] > 0
    assert stored["refuted"] == []


def test_a_spoilt_one_is_refuted(proof, tmp_path):
    spoilt = json.loads(proof.read_text())
    spoilt["objective"] *= 0.5
    spoilt["lower_bound"] *= 0.5
    path = tmp_path / "spoilt.json"
    path.write_text(json.dumps(spoilt))
    done = run("verify", path, CHAIN, "--json", tmp_path / "answer.json")
    assert done.exit_code == 1
    assert done.stdout.startswith("Refuted: with the certificate's parameter values, the sum")
    stored = json.loads((tmp_path / "answer.json").read_text())
    assert stored["verdict"] == "refuted"
    assert stored["regions"][0]["why"] in done.stdout


def test_an_interrupted_check_is_one(monkeypatch, proof, tmp_path):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(confirm, "_once", pressed)
    done = run("verify", proof, CHAIN, "--json", tmp_path / "answer.json")
    assert done.exit_code == 130, done.output
    assert "no proof before Ctrl-C" in " ".join(done.stdout.split())
    assert "Interrupted. igpe did not check all boxes." in done.stderr
    assert not json.loads((tmp_path / "answer.json").read_text())["complete"]


def test_without_time_it_is_not_confirmed(proof):
    for option in ("--seconds", "--time-limit"):
        done = run("verify", proof, CHAIN, option, 0)
        assert done.exit_code == 1
        assert done.stdout.startswith("Not confirmed")


def test_what_cannot_be_verified_is_refused(proof, tmp_path):
    refused(run("verify", tmp_path / "nowhere.json", CHAIN), "could not be read")
    refused(run("verify", proof, BELLMAN), "for the box")


def test_certify_begins_at_a_stored_result(tmp_path):
    stored = tmp_path / "result.json"
    assert run("estimate", CHAIN, "--json", stored).exit_code == 0
    done = run("certify", CHAIN, "--result", stored, "--json", "-")
    found = json.loads(done.stdout)
    assert found["closed"]
    assert found["gap"] == 1e-3
    at = {row["name"]: row["value"] for row in found["table"]}
    assert at == pytest.approx(json.loads(stored.read_text())["parameters"], rel=1e-4)


@pytest.mark.parametrize("words", [["--gap", 0], ["--gap", 2], ["--time-limit", -1]])
def test_what_certify_cannot_do_is_refused(words):
    refused(run("certify", CHAIN, *words), str(words[1]))


def test_a_region_is_certified_and_verified(tmp_path):
    path = tmp_path / "region.json"
    done = run("certify", CHAIN, "--region", 0.95, "--certificate", path, "--json", "-")
    stored = json.loads(done.stdout)
    assert {row["name"] for row in stored["intervals"]} == {"p1", "p2"}
    assert stored["level"] == 0.95
    assert "95 % likelihood region" in run("verify", path, CHAIN).stdout
