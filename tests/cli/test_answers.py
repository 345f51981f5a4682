"""Answers as JSON have one shape; igpe convert makes tables, PEtab parameters, reports of them."""

import json
import os
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
from command_line import CHAIN, ROOT, refused, run

import igpe
from igpe.cli.application import _in_lines, answer, typed

PREDATORS = str(ROOT / "models" / "lotka_volterra.py")
AT_OPTIMUM = ["--set", "p1=5", "--set", "p2=1"]


def test_a_terminal_breaks_long_lines_between_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    text = "k1    from the slope of A: equation balance_A (linear)\n\nat 5 %"
    assert _in_lines(text).splitlines() == [
        "k1    from the slope of A:",
        "      equation balance_A",
        "      (linear)",
        "",
        "at 5 %",
    ]


def test_advice_is_what_to_type_in_a_shell():
    advice = [
        "Not proved: run\n   igpe.certify(problem, result).",
        "Run igpe.profile(problem,\nresult) (see igpe.check and result.details).",
        "Write igpe.check(problem, identifiability=True) or igpe.profile(..., method=...).",
    ]
    assert [typed(words, Path("b.py")) for words in advice] == [
        "Not proved: run\n   igpe certify b.py.",
        "Run igpe profile b.py (see igpe check and --report).",
        advice[2],
    ]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with the JSON of every command."""
    folder = tmp_path_factory.mktemp("stored")
    shutil.copy(ROOT / "data" / "consecutive.csv", folder / "my.csv")
    commands = {
        "check": [CHAIN],
        "estimate": [CHAIN],
        "simulate": [CHAIN, *AT_OPTIMUM],
        "profile": [CHAIN, "--name", "p1"],
        "compare": [CHAIN, "--starts", 2, "--method", "SingleShooting", "--method", "Collocation"],
        "design": [PREDATORS],
        "certify": [CHAIN, "--certificate", folder / "proof.json"],
        "verify": [folder / "proof.json", CHAIN],
        "new": [folder / "model.py", "--data", folder / "my.csv"],
        "convert": [folder / "estimate.json", folder / "copy.csv"],
        "report": [folder / "estimate.json", folder / "page.html"],
    }
    for name, words in commands.items():
        done = run(name, *words, "--json", folder / f"{name}.json")
        assert done.exit_code == 0, done.output
        assert done.stdout, "the text is printed too"
    return folder


COMMANDS = (
    "check", "estimate", "simulate", "profile", "compare", "design", "certify", "verify",
    "new", "convert", "report",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_answer_has_the_same_head(stored, command):
    found = json.loads((stored / f"{command}.json").read_text(encoding="utf-8"))
    assert list(found)[:5] == ["command", "igpe", "format", "complete", "notes"]
    form = 2 if command in {"design", "profile"} else 1
    assert (found["command"], found["format"], found["complete"]) == (command, form, True)
    assert isinstance(found["notes"], list)
    assert found["table"]
    assert all(isinstance(row, dict) for row in found["table"])


@pytest.mark.parametrize("command", ["check", "compare", "simulate"])
def test_on_standard_output_there_is_nothing_else(command):
    words = {"simulate": AT_OPTIMUM, "compare": ["--starts", 1, "--method", "SingleShooting"]}
    done = run(command, CHAIN, *words.get(command, []), "--json", "-")
    assert json.loads(done.stdout)["command"] == command


def test_what_was_stored_is_read_by_python(stored):
    assert igpe.Result.from_json(stored / "estimate.json").parameters.keys() == {"p1", "p2"}
    assert igpe.uncertainty.Profiles.from_json(stored / "profile.json").complete
    assert igpe.planning.Plan.from_json(stored / "design.json").experiments


def test_compare_tells_what_each_method_found(stored, tmp_path):
    found = json.loads((stored / "compare.json").read_text())
    assert [m["method"] for m in found["table"]] == ["SingleShooting", "Collocation"]
    assert len(pd.DataFrame(found["runs"])) == 4
    assert found["best"] == pytest.approx(1.186e-6, rel=1e-2)
    picture = tmp_path / "waterfall.png"
    done = run("compare", CHAIN, "--starts", 2, "--method", "SingleShooting", "--plot", picture)
    assert "SingleShooting  2 " in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


ROBUST = """
import sys
sys.path.insert(0, {models!r})
import igpe, consecutive

def problem():
    plain = consecutive.problem()
    run = igpe.Experiment(consecutive.DATA, start={{"x1": 1.0, "x2": 0.0}}, start_time=0.0)
    return igpe.Problem(
        consecutive.model, parameters=["p1", "p2"], experiments=run, loss=igpe.losses.Huber(0.01)
    )
"""


def test_methods_that_cannot_are_left_out_with_a_word(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(ROBUST.format(models=str(ROOT / "models")))
    done = run("compare", path, "--starts", 1)
    assert "MultipleShooting" in done.stdout
    assert "Left out: IncrementalShooting supports only least squares" in done.stdout
    refused(
        run("compare", path, "--method", "Collocation"), "Collocation supports only least squares"
    )


def test_an_unknown_method_is_refused():
    done = run("compare", CHAIN, "--method", "Newton")
    assert done.exit_code == 2
    assert "MultipleShooting" in done.stderr


TABLES = {".csv": pd.read_csv, ".xlsx": pd.read_excel, ".parquet": pd.read_parquet}


@pytest.mark.parametrize("ending", TABLES)
def test_an_answer_as_a_table(stored, tmp_path, ending):
    target = tmp_path / f"estimates{ending}"
    done = run("convert", stored / "estimate.json", target)
    assert done.stdout == f"Written: {target}\n"
    table = TABLES[ending](target).set_index("name")
    assert table.loc["p1", "estimate"] == pytest.approx(5.0035, rel=1e-4)
    assert {"standard_error", "lower", "upper"} <= set(table.columns)


@pytest.mark.parametrize("command", ["check", "simulate", "profile", "compare"])
def test_every_answer_can_be_a_table(stored, tmp_path, command):
    target = tmp_path / "answer.csv"
    assert run("convert", stored / f"{command}.json", target).exit_code == 0
    rows = json.loads((stored / f"{command}.json").read_text())["table"]
    assert list(pd.read_csv(target).columns) == list(rows[0])
    assert len(pd.read_csv(target)) == len(rows)


def test_a_table_in_another_format(tmp_path):
    source, target = tmp_path / "my.csv", tmp_path / "my.xlsx"
    source.write_text("time;A\n0;1,5\n1;0,5\n")
    assert run("convert", source, target).exit_code == 0
    pd.testing.assert_frame_equal(
        pd.read_excel(target), pd.DataFrame({"time": [0, 1], "A": [1.5, 0.5]})
    )


def test_a_report(stored, tmp_path):
    target = tmp_path / "report.html"
    assert run("convert", stored / "estimate.json", target).exit_code == 0
    assert target.read_text(encoding="utf-8") == (stored / "page.html").read_text(encoding="utf-8")


def test_parameters_for_petab(stored, tmp_path):
    target = tmp_path / "parameters.tsv"
    assert run("convert", stored / "estimate.json", target).exit_code == 0
    table = pd.read_csv(target, sep="\t", index_col="parameterId")
    assert table.loc["p2", ["lowerBound", "upperBound", "estimate"]].tolist() == [0, 10, 1]
    assert table.loc["p2", "nominalValue"] == pytest.approx(1.0, rel=1e-4)
    assert set(table["parameterScale"]) == {"lin"}


def test_names_that_petab_does_not_allow_are_changed(stored, tmp_path):
    text = (stored / "estimate.json").read_text(encoding="utf-8").replace('"p2"', '"A(t0)"')
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    assert run("convert", tmp_path / "other.json", tmp_path / "p.tsv").exit_code == 0
    table = pd.read_csv(tmp_path / "p.tsv", sep="\t", index_col="parameterId")
    assert table["parameterName"].to_dict() == {"p1": "p1", "A_t0": "A(t0)"}


def test_estimates_into_the_table_of_a_petab_problem(stored, tmp_path):
    (tmp_path / "problem.yaml").write_text("parameter_file: old.tsv\n")
    (tmp_path / "old.tsv").write_text("parameterId\tnominalValue\tnote\np1\t1\tfast\np2\t1\tslow\n")
    target = tmp_path / "new.tsv"
    words = ["convert", stored / "estimate.json", target, "--petab", tmp_path / "problem.yaml"]
    assert run(*words).exit_code == 0
    table = pd.read_csv(target, sep="\t", index_col="parameterId")
    assert table.loc["p1", "nominalValue"] == pytest.approx(5.0035, rel=1e-4)
    assert table.loc["p1", "note"] == "fast"


def test_ctrl_c_while_files_are_written_loses_none(tmp_path):
    def pressed():
        os.kill(os.getpid(), signal.SIGINT)
        (tmp_path / "page.html").write_text("whole")

    body, page = {"table": []}, (pressed, tmp_path / "page.html")
    answer("estimate", "done", body, tmp_path / "answer.json", page=page)
    assert (tmp_path / "page.html").read_text() == "whole"
    assert json.loads((tmp_path / "answer.json").read_text())["complete"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_cannot_be_converted(stored, tmp_path):
    csv, there = tmp_path / "my.csv", tmp_path / "there.csv"
    csv.write_text("time,A\n0,1\n")
    there.write_text("precious")
    (tmp_path / "any.json").write_text('{"a": 1}')
    result = stored / "estimate.json"
    refused(run("convert", result, there), "already exists", "--force")
    assert there.read_text() == "precious"
    refused(run("convert", csv, tmp_path / "a.html"), "not a stored result", "igpe estimate MODEL")
    refused(
        run("convert", tmp_path / "any.json", tmp_path / "a.csv"), "contains no table", "--json"
    )
    refused(
        run("convert", csv, tmp_path / "a.tsv"), "contains no parameters", "igpe estimate MODEL"
    )
    (tmp_path / "of_petab.json").write_text('{"parameters": {"k": 1}}')
    refused(run("convert", tmp_path / "of_petab.json", tmp_path / "a.tsv"), "--petab problem.yaml")
    refused(run("convert", stored / "nowhere.json", tmp_path / "a.csv"), "could not be read")
    refused(run("convert", result, tmp_path / "a.csv", "--petab", "p.yaml"), "end in .tsv")
    done = run("convert", result, tmp_path / "a.doc")
    assert done.exit_code == 2
    assert ".xlsx" in done.stderr


def test_compare_works_without_bounds(tmp_path):
    path = ROOT / "models" / "bulirsch.py"
    done = run("compare", path, "--starts", 1, "--method", "SingleShooting", "--between", 0, 30)
    assert done.exit_code == 0, done.output
    assert "igpe draws their starts from" in done.stdout
