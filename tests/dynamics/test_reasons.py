"""Why an estimate failed reaches the user; what a call gets wrong is said at once."""

import dataclasses

import lotka_volterra_iss as lotka
import numpy as np
import pandas as pd
import pytest
from zoo import CASES

import igpe
from igpe.core.estimates import equivalent_iterations
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator, Refused
from igpe.dynamics.integrators.cut import cut
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting import incremental_shooting
from igpe.numerics.least_squares.gauss_newton import GaussNewton

METHODS = (igpe.IncrementalShooting, igpe.SingleShooting)


@dataclasses.dataclass(frozen=True)
class Missing(Integrator):
    """An integrator whose program is not there; counts its runs."""

    runs: list = dataclasses.field(default_factory=list)

    def prepare(self, ivp, nodes, times):
        pieces = cut(ivp, nodes, times)
        return _Missing(ivp, pieces, "Install a compiler.", Status.NO_SOLVER, self.runs)


@dataclasses.dataclass(frozen=True)
class _Missing(Refused):
    runs: list = ()

    def run(self, starts, q, *, derivatives=True):
        self.runs.append(q)
        return super().run(starts, q, derivatives=derivatives)


@pytest.mark.parametrize("method", METHODS)
def test_a_missing_compiler_is_told_and_tried_once(method):
    integrator = Missing()
    once = method(integrator, restarts=Restarts())
    found = once.estimate(CASES["decay"].problem(), {"k": 1.0})
    assert (found.status, found.objective) == (Status.NO_SOLVER, np.inf)
    assert any(note.endswith("failed: Install a compiler.") for note in found.notes)
    assert len(integrator.runs) == 1


@pytest.mark.parametrize("method", METHODS)
def test_where_nothing_is_left_to_estimate_failure_is_no_success(method):
    problem = CASES["decay"].problem()
    held = problem.fixing(CASES["decay"].truth)
    found = method(Missing()).estimate(held, {})
    assert (found.status, found.objective) == (Status.NO_SOLVER, np.inf)
    assert found.notes[0].endswith("Install a compiler.")
    assert method(igpe.integrators.Sundials()).estimate(held, {}).status is Status.NOTHING_TO_DO


@pytest.mark.parametrize("method", METHODS)
def test_an_integrator_that_refuses_says_why(method):
    case = CASES["dimer"]
    found = method(igpe.integrators.LocalLinearization()).estimate(case.problem(), case.near)
    assert found.status is Status.INTEGRATION_BROKE
    assert any("LocalLinearization cannot integrate" in note for note in found.notes)


def test_a_pole_is_told_with_its_time():
    start = {"k1": -9.0, "k2": 9.0, "k3": 9.0, "k4": -9.0}
    found = igpe.SingleShooting(igpe.integrators.Sundials()).estimate(lotka.problem(66), start)
    assert found.status is Status.INTEGRATION_BROKE
    (note,) = found.notes
    assert note.startswith("The last integration of experiment 1 failed: ")
    again = igpe.SingleShooting(igpe.integrators.Sundials()).estimate(
        lotka.problem(66), lotka.TRUTH
    )
    assert not any("failed" in n for n in again.notes)


LOTKA = lotka.problem(0, bounds=(0, 10))
BAD_STARTS = [
    ({"k1": 1.0}, r"missing for \['k2', 'k3', 'k4'\]"),
    ({**lotka.TRUTH, "k2": np.nan}, "start of 'k2' is nan; .* needs a finite number"),
    ({**lotka.TRUTH, "k2": np.inf}, "start of 'k2' is inf"),
    ({**lotka.TRUTH, "k2": "a"}, "start of 'k2' is 'a'"),
    ([1.0, 2.0], "expected a mapping"),
]


@pytest.mark.parametrize("method", [*METHODS, igpe.search.MultiStart])
@pytest.mark.parametrize(("start", "told"), BAD_STARTS)
def test_a_start_that_is_none_is_refused(method, start, told):
    with pytest.raises(igpe.errors.ProblemError, match=told):
        method().estimate(LOTKA, start)


@pytest.mark.parametrize(
    "intervals", [(np.nan,), (np.nan, 2.0), 5.0, (), ("a",), (np.inf,), (5.0, 2.0), (2.0, 2.0)]
)
def test_intervals_are_checked_where_they_are_given(intervals):
    with pytest.raises(igpe.errors.ProblemError, match="in increasing order"):
        igpe.IncrementalShooting(intervals=intervals)
    assert igpe.IncrementalShooting(intervals=[1, 5]).intervals == (1.0, 5.0)


def test_rows_without_a_number_are_not_integrated():
    """A row at 1000 with nothing measured, for growth that is past all numbers there."""
    t = np.r_[np.linspace(0.1, 1.0, 10), 1e3]
    table = pd.DataFrame({"time": t, "A": np.r_[np.exp(0.7 * t[:10]), np.nan]})
    table.loc[3, "A"] = np.nan
    run = igpe.Experiment(table, start={"A": 1.0}, start_time=0.0, sigma=0.01)
    problem = igpe.Problem(CASES["decay"].builder, parameters={"k": (-5, 5)}, experiments=run)
    for method in METHODS:
        found = method().estimate(problem, {"k": -1.0})
        assert found.parameters["k"] == pytest.approx(-0.7, rel=1e-5)
    trail = igpe.IncrementalShooting().estimate(problem, {"k": -1.0}).trail
    assert [h.until["1"] for h in trail] == pytest.approx([0.1, 0.2, 0.5, 0.9, 1.0])
    assert [h.share for h in trail] == pytest.approx([0.1, 0.2, 0.5, 0.9, 1.0])


def test_early_horizons_are_integrated_roughly_and_never_keep_from_an_answer(monkeypatch):
    case = CASES["decay"]
    exact = igpe.integrators.Sundials(atol=1e-6)
    prepared = igpe.IncrementalShooting(exact).prepare(LOTKA)
    (rough,) = prepared.rough_stages[0].residuals.runs
    assert rough.integrator == dataclasses.replace(exact, rtol=1e-6, max_steps=500)
    assert prepared.rough_stages[-1] is prepared.stages[-1]
    assert prepared.residuals.runs[0].integrator == exact
    monkeypatch.setattr(incremental_shooting, "ROUGH_STEPS", 1)
    found = igpe.IncrementalShooting(exact).estimate(case.problem(), {"k": 1.0})
    assert found.parameters["k"] == pytest.approx(case.truth["k"], rel=1e-4)


def test_work_of_all_starts_is_counted():
    far = {n: 60.0 for n in lotka.TRUTH}
    found = igpe.IncrementalShooting().estimate(lotka.problem(seed=64), far)
    assert found.method.startswith("best of")
    own = equivalent_iterations(found.trail)
    assert own == pytest.approx(sum(h.iterations * h.share for h in found.trail))
    every = sum(h.iterations * h.share for h in (*found.trail, *found.elsewhere))
    assert found.equivalent_iterations == pytest.approx(every)
    assert found.equivalent_iterations > own
    assert f"{own:.3g} for the best start" in igpe.plots.horizon_table(found)


def test_many_starts_keep_the_status_and_the_horizons():
    short = igpe.SingleShooting(search=GaussNewton(max_iterations=1))
    found = igpe.search.MultiStart(short, starts=2).estimate(LOTKA, lotka.PAPER_START)
    assert found.status is Status.ITERATION_LIMIT
    found = igpe.search.MultiStart(igpe.IncrementalShooting(), starts=2).estimate(LOTKA, {})
    assert found.status is Status.BEST_OF_SEVERAL
    assert [h.until["1"] for h in found.trail[:6]] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert found.trail[5].parameters == found.parameters
    assert found.elsewhere  # the other start's
    assert "until" in igpe.plots.horizon_table(found)
