"""Ctrl-C, as a real signal in a process of its own: what is done is kept, and the code is 130."""

import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest
from command_line import CHAIN, ROOT, started

HOOK = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT / "models")!r})
import consecutive, lotka_volterra
from consecutive import problem
{{more}}
import {{module}} as module

calls, function = [], module.{{name}}

def counted(*arguments, **named):
    calls.append(1)
    if len(calls) == {{call}}:
        os.kill(os.getpid(), signal.SIGINT)
    return function(*arguments, **named)

module.{{name}} = counted
"""


def interrupted(folder, command, module, name, call, *, more=""):
    """A command that gets SIGINT when igpe calls one of its functions for the nth time."""
    model = folder / "model.py"
    model.write_text(HOOK.format(module=module, name=name, call=call, more=more))
    words = [command, model, "--json", "answer.json", "--plot", "picture.png"]
    process = started(*words, folder=folder, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    return process.returncode, out, err


@pytest.mark.slow
def test_estimate_keeps_the_best_so_far(tmp_path):
    module = "igpe.dynamics.collocation.collocation"
    code, out, err = interrupted(tmp_path, "estimate", module, "_solve", 2)
    assert code == 130, err
    assert "p1  5.0" in out
    assert "Interrupted. The estimates are the best values found so far." in err
    stored = json.loads((tmp_path / "answer.json").read_text())
    assert (stored["status"], stored["complete"]) == ("INTERRUPTED", False)
    assert (tmp_path / "picture.png").exists()


@pytest.mark.slow
def test_an_interrupt_after_step_5_is_one(tmp_path):
    """The values are an optimum, but the search for others is missing."""
    module = "igpe.estimation.equally_good"
    code, out, err = interrupted(tmp_path, "estimate", module, "_with_other_optima", 1)
    assert code == 130, err
    assert "Interrupted after step 5" in " ".join(out.split())
    assert "Interrupted. The estimates are the best values found so far." in err
    stored = json.loads((tmp_path / "answer.json").read_text())
    assert (stored["status"], stored["complete"]) == ("CONVERGED", False)
    assert stored["stopped_by"] == "INTERRUPTED"


@pytest.mark.slow
def test_profile_keeps_the_finished_ones(tmp_path):
    code, out, err = interrupted(tmp_path, "profile", "igpe.uncertainty.profile", "walk", 3)
    assert code == 130, err
    assert "p1" in out
    assert "Interrupted: there are no profiles for p2." in out
    stored = json.loads((tmp_path / "answer.json").read_text())
    assert [p["name"] for p in stored["profiles"]] == ["p1"]
    assert not stored["complete"]
    assert (tmp_path / "picture.png").exists()


@pytest.mark.slow
def test_design_keeps_the_best_plan(tmp_path):
    more = "from lotka_volterra import design, problem"
    place = "igpe.planning.design_search", "minimize", 1
    code, out, err = interrupted(tmp_path, "design", *place, more=more)
    assert code == 130, err
    assert "plan1: measure x1, x2 at" in out
    assert "Interrupted. The plan is the best one so far." in err
    assert not json.loads((tmp_path / "answer.json").read_text())["complete"]


@pytest.mark.slow
def test_certify_keeps_what_is_proved(tmp_path):
    code, out, err = interrupted(
        tmp_path, "certify", "igpe.proofs.prover.enclosure", "integrate", 2
    )
    assert code == 130, err
    assert "is undecided" in out or "is ruled out" in out
    assert "Interrupted. igpe proved the statement above before it stopped." in err
    stored = json.loads((tmp_path / "answer.json").read_text())
    assert (stored["status"], stored["complete"], stored["closed"]) == ("INTERRUPTED", False, False)
    assert 0 < stored["open_share"] <= 1
    assert stored["remaining"]
    assert (tmp_path / "picture.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "module", "name"),
    [
        ("estimate", "igpe.pipeline", "smooth_measurements"),
        ("profile", "igpe.estimation.equally_good", "_with_other_optima"),
        ("profile", "igpe.uncertainty.profile", "walk"),
    ],
)
def test_where_nothing_is_done_nothing_is_written(tmp_path, command, module, name):
    code, out, err = interrupted(tmp_path, command, module, name, 1)
    assert (code, out) == (130, ""), err
    assert err == "Error: Interrupted.\n"
    assert not (tmp_path / "answer.json").exists()


@pytest.mark.slow
def test_compare_keeps_the_finished_runs(tmp_path):
    """From outside, as the keyboard does it: when the terminal shows that the runs have begun."""
    terminal, theirs = pty.openpty()
    words = ["compare", CHAIN, "--method", "SingleShooting", "--starts", 20000, "--json", "a.json"]
    process = started(*words, folder=tmp_path, stderr=theirs)
    os.close(theirs)
    shown, until = b"", time.monotonic() + 100
    while b"SingleShooting from 20000 starts" not in shown and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 4096)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Interrupted before all runs were finished." in out
    stored = json.loads((tmp_path / "a.json").read_text())
    assert 0 < len(stored["runs"]["start"]) < 20000
    assert not stored["complete"]
    assert stored["table"][0]["runs"] == len(stored["runs"]["start"])
