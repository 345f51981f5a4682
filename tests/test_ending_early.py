"""Ctrl-C and time limits: one mechanism, and what each method returns."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode
from zoo import CASES

import igpe
from igpe import pipeline
from igpe.core import deadline
from igpe.core.status import Status
from igpe.dynamics.collocation import collocation
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.search import complement as step_4
from igpe.dynamics.shooting.chains import Chains
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.single_shooting import PreparedShooting
from igpe.estimation import equally_good, summary, tables
from igpe.planning.design_search import DesignSearch
from igpe.proofs.prover import search
from igpe.solvers.ipopt import CompiledProgram
from igpe.solvers.program import AmplProgram
from igpe.tasks.workers import Item, done
from igpe.uncertainty import adequacy as findings
from igpe.uncertainty.sampling import Posterior

CASE = CASES["consecutive"]
EXCHANGED = replace(CASE, measured=("C",))  # the two rate constants may change places


def press(seconds=0.0):
    """SIGINT from another thread, after so many seconds."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def wait(seconds=10.0):
    """Bytecode to be interrupted in."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def press_here(seconds=10.0):
    """SIGINT in this thread, which need not be heeded."""
    os.kill(os.getpid(), signal.SIGINT)
    wait(seconds)


def test_a_first_press_raises_and_a_second_does_not():
    with deadline.session() as now:
        with pytest.raises(KeyboardInterrupt):
            press_here()
        assert deadline.stopped()
        press_here(0.05)
        with pytest.raises(KeyboardInterrupt):
            deadline.require_going_on()
        with deadline.finishing():
            deadline.require_going_on()
            assert not deadline.stopped()
        assert now.status is Status.INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    deadline.require_going_on()


def test_what_is_deferred_is_raised_at_its_end():
    reached = []

    def section():
        with deadline.deferred():
            press_here(0.05)
            reached.append(deadline.stopped())

    with pytest.raises(KeyboardInterrupt):
        section()
    assert reached == [True]


def test_a_press_during_the_finish_is_remembered_only():
    with deadline.session(), deadline.finishing():
        os.kill(os.getpid(), signal.SIGINT)
        wait(0.05)


def test_other_libraries_come_to_an_end_first():
    """What igpe calls is not left by the exception in its midst, unless it takes long."""
    ended = []

    def elsewhere(seconds):
        os.kill(os.getpid(), signal.SIGINT)
        wait(seconds)
        ended.append(seconds)

    for seconds in (0.05, 10.0):
        with deadline.session(), pytest.raises(KeyboardInterrupt):  # noqa: PT012
            done(elsewhere, Item("", seconds))
            wait(1.0)
    assert ended == [0.05]


class Slow:
    """Garbage that is interrupted while Python, which ignores exceptions there, removes it."""

    def __del__(self):
        press_here()


@pytest.mark.filterwarnings("error")
def test_an_interrupt_that_python_ignores_is_raised_once_more():
    hook = sys.unraisablehook
    with deadline.session():
        Slow()
        with pytest.raises(KeyboardInterrupt):
            wait()
    assert sys.unraisablehook is hook


def test_whoever_is_told_to_stop_is_not_interrupted_later():
    def elsewhere(_):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)
        assert deadline.stopped()

    with deadline.session():
        deadline.NEVER.keeping(elsewhere)(0)
        wait(0.1)


def test_what_a_library_makes_of_an_interrupt_is_one_again():
    def translated():
        try:
            press_here()
        except KeyboardInterrupt:
            raise NotImplementedError from None

    with deadline.session(), pytest.raises(KeyboardInterrupt), deadline.interruptible():
        translated()
    with deadline.session(), pytest.raises(ValueError, match="own"), deadline.interruptible():
        raise ValueError("its own")


def test_a_time_limit_is_a_press_by_the_clock():
    with deadline.session(0.1) as now, pytest.raises(KeyboardInterrupt):
        wait()
    assert now.status is Status.TIME_LIMIT


def test_a_limit_inside_another_call_leaves_that_going():
    with deadline.session() as outer:
        with deadline.session(0.05), pytest.raises(KeyboardInterrupt):
            wait()
        assert not outer.over


def test_threads_have_no_session_of_the_main_one():
    found = []
    with deadline.session():
        thread = threading.Thread(target=lambda: found.append(deadline.in_session()))
        thread.start()
        thread.join()
    assert found == [False]


def test_a_handler_of_the_user_is_left_alone():
    handler = lambda number, frame: None  # noqa: E731
    before = signal.signal(signal.SIGINT, handler)
    try:
        with deadline.session():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def interrupting(monkeypatch, room, name, call):
    """Ctrl-C at the given call of a method; and at none after it."""
    calls, method = [], getattr(room, name)

    def counted(*arguments, **named):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
            wait()
        return method(*arguments, **named)

    monkeypatch.setattr(room, name, counted)
    return calls


START = {n: 2.0 * v for n, v in CASE.truth.items()}
METHODS = [
    (igpe.SingleShooting(), Residuals, 3, START),
    (igpe.IncrementalShooting(), Residuals, 3, START),
    (igpe.MultipleShooting(integrator=LockStep(), rough=LockStep()), Chains, 3, START),
    (igpe.search.MultiStart(trials=8, starts=2), Residuals, 5, {}),
    (igpe.search.MultiStart(trials=8, starts=2), Residuals, 11, {}),
    (igpe.search.MultiStart(trials=8, starts=2), PreparedShooting, 1, {}),
    (igpe.search.IteratedSearch(starts=5, patience=3), Residuals, 10, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "room", "call", "start"), METHODS)
def test_every_method_returns_the_best_so_far(monkeypatch, method, room, call, start):
    problem = CASE.problem(0.02, 1)
    name = "estimate" if room is PreparedShooting else "__call__"
    calls = interrupting(monkeypatch, room, name, call)
    found = method.estimate(problem, start)
    assert len(calls) < call + 30  # it did not go on
    assert found.status is Status.INTERRUPTED
    x = problem.box.vector(found.parameters)
    assert (problem.box.clip(x) == x).all()
    at = igpe.simulate(problem, found.parameters)
    assert np.isfinite(found.objective)
    assert len(at)


def test_multiple_shooting_that_cannot_be_integrated_keeps_its_unknowns(monkeypatch):
    problem = CASE.problem(0.02, 1)
    interrupting(monkeypatch, Chains, "__call__", 5)
    monkeypatch.setattr(Residuals, "__call__", lambda self, x: None)
    method = igpe.MultipleShooting(integrator=LockStep(), rough=LockStep())
    found = method.estimate(problem, START)
    assert (found.status, found.objective) == (Status.INTERRUPTED, np.inf)
    assert found.parameters.keys() == START.keys()
    assert any("unknown" in note for note in found.notes)


def test_collocation_returns_its_start(monkeypatch):
    problem = CASE.problem(0.02, 1)
    interrupting(monkeypatch, collocation, "_solve", 1)
    found = igpe.Collocation().estimate(problem, START)
    assert (found.status, found.parameters) == (Status.INTERRUPTED, START)
    assert np.isfinite(found.objective)


def test_what_step_5_reached_is_not_lost(monkeypatch):
    """Interrupted while the optimum of collocation is refined."""
    problem = CASE.problem(0.02, 1)
    best = igpe.estimate(problem).objective
    interrupting(monkeypatch, pipeline, "refine", 1)
    found = igpe.estimate(problem)
    assert found.status is Status.INTERRUPTED
    assert found.objective == pytest.approx(best, rel=1e-6)
    assert pipeline.CUT_SHORT in found.notes


def test_curves_have_the_measured_times_alone_where_no_time_is_left_for_more(monkeypatch):
    problem = CASE.problem(0.02, 1)
    interrupting(monkeypatch, tables, "fine_grid", 1)
    found = igpe.estimate(problem)
    measured = problem.experiments[0].times
    assert found.points["fitted"].notna().all()
    assert set(measured) <= set(found.curves["time"]) <= {0.0, *measured}


def test_what_shooting_reached_is_not_lost(monkeypatch):
    problem = CASE.problem(0.02, 1)
    best = igpe.estimate(problem).objective

    def shot(problem, residuals, *arguments):
        press_here()

    monkeypatch.setattr(pipeline, "by_shooting", shot)
    found = igpe.estimate(problem)
    assert found.status is Status.INTERRUPTED
    assert found.objective == pytest.approx(best, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "name"),
    [(equally_good, "rise_of"), (equally_good, "other_optima"), (equally_good, "refine")],
)
def test_a_search_for_other_optima_loses_nothing(monkeypatch, room, name):
    problem = EXCHANGED.problem(0.01, 1)
    whole = igpe.estimate(problem)
    assert whole.other_optima
    interrupting(monkeypatch, room, name, 1)
    found = igpe.estimate(problem)
    assert found.objective == pytest.approx(whole.objective, rel=1e-6)
    assert equally_good.INTERRUPTED in found.notes
    assert (found.stopped_by, whole.stopped_by) == (Status.INTERRUPTED, None)
    assert any(a.startswith("Interrupted after step 5") for a in found.actions)
    assert igpe.Result.from_json(found.to_json()).stopped_by is Status.INTERRUPTED


@pytest.mark.parametrize(
    ("room", "name", "note"),
    [(summary, "_rank", summary.NOT_COMPARED), (findings, "adequacy", findings.NO_TIME)],
)
def test_statistics_are_left_out_at_an_interrupt(monkeypatch, room, name, note):
    interrupting(monkeypatch, room, name, 1)
    found = igpe.estimate(CASE.problem(0.02, 1))
    assert found.status is Status.CONVERGED
    assert note in (*found.notes, *found.adequacy.reasons)


def test_what_is_left_out_has_a_limit_after_an_interrupt(monkeypatch):
    """Before an interrupt there is no limit, and none of Ctrl-C remains where there is time."""
    monkeypatch.setattr(deadline, "ENDING", 0.2)
    with deadline.session() as now:
        assert deadline.if_in_time(lambda: wait(0.3) or 1) == 1
        with deadline.finishing():
            press_here(0.01)
            assert deadline.if_in_time(lambda: 2) == 2
            assert deadline.if_in_time(wait) is None
            assert deadline.if_in_time(lambda: 3) is None
        assert now.status is Status.INTERRUPTED


def test_a_proof_that_is_interrupted_before_it_begins_leaves_the_result(monkeypatch):
    pytest.importorskip("numba")
    interrupting(monkeypatch, search.Incumbent, "first", 1)
    found = igpe.estimate(CASE.problem(0.02, 1), certify=True)
    assert found.status is Status.CONVERGED
    assert found.proof is None
    assert "Not proved: the proof was interrupted." in found.actions


def test_certify_names_the_parameters_it_had(monkeypatch):
    pytest.importorskip("numba")
    problem = CASE.problem(0.02, 1)
    interrupting(monkeypatch, search.Incumbent, "first", 1)
    with pytest.raises(KeyboardInterrupt, match="The best parameter values so far: k1 = 1"):
        igpe.certify(problem, CASE.truth)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Numba's files
def test_certify_does_not_go_on_after_its_search(monkeypatch):
    """Ctrl-C while parameters are looked for ends the whole call, not the search alone."""
    pytest.importorskip("numba")
    calls = interrupting(monkeypatch, Residuals, "__call__", 20)
    with suppress(KeyboardInterrupt):  # where enclosing the parameters must be compiled first
        proof = igpe.certify(CASE.problem(0.02, 1))
        assert (proof.status, proof.examined) == (Status.INTERRUPTED, 0)
    assert len(calls) < 50


def test_an_interrupt_without_an_answer_says_so(monkeypatch):
    interrupting(monkeypatch, pipeline, "analyse_any", 1)
    with pytest.raises(KeyboardInterrupt, match="before any result was available"):
        igpe.estimate(CASE.problem(0.02, 1))


@pytest.mark.parametrize("call", [1, 40])
def test_a_comparison_keeps_the_runs_that_ended(monkeypatch, call):
    calls = interrupting(monkeypatch, Residuals, "__call__", call)
    found = igpe.estimation.compare(CASE.problem(0.02, 1), [igpe.SingleShooting()], starts=10)
    assert len(calls) < call + 30
    assert not found.complete
    assert (len(found.runs) > 0) == (call > 1)
    assert "Interrupted" in str(found)


def test_ipopt_stops_after_the_iteration(monkeypatch):
    solved = []
    solve = CompiledProgram.solve

    def pressed(self, *arguments):
        press(0.0).join()
        try:
            return solve(self, *arguments)
        finally:
            solved.append(1)

    monkeypatch.setattr(CompiledProgram, "solve", pressed)
    found = igpe.estimate(CASE.problem(0.02, 1))
    assert found.status is Status.INTERRUPTED
    assert len(solved) <= 1
    assert found.parameters == pytest.approx(CASE.truth, rel=0.2)


@pytest.mark.skipif(os.name != "posix", reason="a script as a program")
def test_a_solver_program_is_ended(tmp_path):
    program = tmp_path / "sleeper"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    program.chmod(0o755)
    m = pyo.ConcreteModel()
    m.x = pyo.Var(initialize=1.0)
    m.o = pyo.Objective(expr=m.x**2)
    timer, began = press(0.5), time.monotonic()
    with deadline.session(), pytest.raises(KeyboardInterrupt):
        AmplProgram(str(program)).solve(m)
    timer.join()
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_a_time_limit_returns_the_best_so_far(monkeypatch):
    monkeypatch.setattr(step_4, "complement", lambda *arguments: wait(60))
    result = igpe.estimate(CASE.problem(0.02, 1), time_limit=3.0)
    assert result.status is result.stopped_by is Status.TIME_LIMIT
    assert result.parameters == pytest.approx(CASE.truth, rel=0.2)
    assert "time limit" in str(result)
    assert igpe.Result.from_json(result.to_json()).status is Status.TIME_LIMIT


def test_a_time_limit_before_anything_says_so():
    with pytest.raises(igpe.errors.EstimationFailed, match=r"time limit of 0\.001 s") as raised:
        igpe.estimate(CASE.problem(), time_limit=1e-3)
    assert raised.value.status is Status.TIME_LIMIT


@pytest.mark.parametrize("wrong", [0, -1.0, "1", float("nan")])
def test_a_time_limit_that_is_none_is_refused(wrong):
    with pytest.raises(igpe.errors.ProblemError, match="time_limit"):
        igpe.estimate(CASE.problem(), time_limit=wrong)


def test_a_design_keeps_the_best_experiment(monkeypatch):
    model = ode({"x": lambda m, t: -m.k * m.x[t]}, k=(0.1, 2.0))

    data = pd.DataFrame({"time": [0.5, 1.0, 2.0], "x": [0.6, 0.37, 0.14]})
    run = igpe.Experiment(data, start={"x": 1.0}, sigma=0.01)
    problem = igpe.Problem(model, parameters=["k"], experiments=run)
    interrupting(monkeypatch, DesignSearch, "_improved", 1)
    plan = igpe.design(
        problem, {"k": 1.0}, free={"x": igpe.planning.Between(0.5, 2.0)}, pool=8, starts=2
    )
    assert "Interrupted" in plan.notes[0]
    assert np.isfinite(plan.after)


@pytest.mark.slow
def test_a_sample_keeps_whole_steps_and_prints_nothing(monkeypatch, capsys):
    pytest.importorskip("emcee")
    problem = CASE.problem(0.02, 1)
    fitted = igpe.Estimate(dict(CASE.truth), 1.0, Status.CONVERGED)
    interrupting(monkeypatch, Posterior, "__call__", 16 * 6 + 5)
    found = igpe.uncertainty.sample(problem, fitted, steps=12, walkers=16)
    steps = found.chains.shape[1] + found.burnt
    assert 2 <= steps < 12
    assert found.notes[0] == f"Interrupted after {steps} steps."
    assert np.isfinite(found.log_density).all()
    assert capsys.readouterr() == ("", "")
