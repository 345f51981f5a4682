"""Step 5 hands over to shooting where collocation has no answer, or a wrong one."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ode import ode
from zoo import CASES

import igpe
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search import complement
from igpe.dynamics.shooting import refine as by_shooting
from igpe.dynamics.shooting.residuals import Residuals
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton

CASE = CASES["consecutive"]
once = Collocation.estimate_each


class Stuck(GaussNewton):
    """A search that stays where it begins."""

    def fit(self, residual, start, box):
        return Fit(start, residual(start), Status.STALLED, 0)


def failing(self, problem, starts, *more):
    return [Estimate(dict(s), np.inf, Status.FAILED) for s in starts]


def test_what_collocation_cannot_correct_is_shot(monkeypatch):
    problem = CASE.problem(0.02, 1)
    right = igpe.estimate(problem)
    monkeypatch.setattr(Collocation, "estimate_each", failing)
    result = igpe.estimate(problem)
    assert result.status is Status.CONVERGED
    assert result.parameters == pytest.approx(right.parameters, rel=1e-5)
    assert result.objective == pytest.approx(right.objective, rel=1e-8)
    assert any("correction gave no result" in n and "Single shooting" in n for n in result.notes)


def test_a_correction_that_ends_above_its_start_is_shot(monkeypatch):
    problem = CASE.problem(0.02, 1)
    right = igpe.estimate(problem)

    def worse(self, problem, starts, *more):
        far = {n: 3.0 * v for n, v in starts[0].items()}
        box = problem.box
        far = box.mapping(box.clip(box.vector(far)))
        return [Estimate(far, 0.1, Status.CONVERGED, "wrong") for _ in starts]

    monkeypatch.setattr(Collocation, "estimate_each", worse)
    monkeypatch.setattr(by_shooting, "SEARCH", Stuck())
    result = igpe.estimate(problem)
    assert result.objective == pytest.approx(right.objective, rel=1e-8)
    assert any("of an earlier candidate" in n for n in result.notes)


def test_an_optimum_that_integration_refutes_is_finished_by_shooting(monkeypatch):
    problem = CASE.problem(0.02, 1)
    right = igpe.estimate(problem)

    def coarse(self, *arguments):
        found = once(self, *arguments)
        away = [{n: 1.3 * v for n, v in e.parameters.items()} for e in found]
        pairs = zip(found, away, strict=True)
        return [replace(e, parameters=p, objective=0.1 * e.objective) for e, p in pairs]

    monkeypatch.setattr(Collocation, "estimate_each", coarse)
    result = igpe.estimate(problem)
    assert result.objective == pytest.approx(right.objective, rel=1e-8)
    assert any("Single shooting completed" in n for n in result.notes)


def test_where_nothing_improves_the_values_of_step_4_are_the_result(monkeypatch):
    problem = CASE.problem(0.02, 1)
    monkeypatch.setattr(Collocation, "estimate_each", failing)
    monkeypatch.setattr(by_shooting, "CORRECTION_SEARCH", GaussNewton(max_iterations=0))
    monkeypatch.setattr(by_shooting, "_by_multiple", lambda *arguments: None)
    result = igpe.estimate(problem)
    assert result.status is Status.STALLED
    assert result.parameters == pytest.approx(CASE.truth, rel=0.2)
    assert any("may not be an optimum" in n for n in result.notes)


def test_a_long_search_is_done_with_compiled_integrations(monkeypatch):
    problem, count = CASE.problem(0.02, 1), Counter()
    monkeypatch.setattr(by_shooting, "FEW", 2)
    trajectories = Residuals.trajectories

    def counted(self, x, **given):
        count[type(self.integrator)] += 1
        return trajectories(self, x, **given)

    monkeypatch.setattr(Residuals, "trajectories", counted)
    far = Estimate({n: 3.0 * v for n, v in CASE.truth.items()}, np.inf, Status.CONVERGED)
    found = by_shooting.refine(problem, Residuals(problem, Sundials()), far).estimate
    known = igpe.SingleShooting(Sundials()).estimate(problem, CASE.truth)
    assert found.objective == pytest.approx(known.objective, rel=1e-8)
    assert found.parameters == pytest.approx(known.parameters, rel=1e-5)
    assert count[Automatic] > 5


def test_shooting_corrects_what_is_left_when_collocation_has_worked_enough(monkeypatch):
    problem = CASE.problem(0.02, 1)
    starts = [{n: f * v for n, v in CASE.truth.items()} for f in (0.8, 1.0, 1.2)]
    assert len(Collocation(most_work=0.0).estimate_each(problem, starts)) == 1
    monkeypatch.setattr(complement, "WORK", 0.0)
    ends = complement.corrections(problem, starts, [()] * len(starts))
    assert ["collocation" in end.method for end in ends] == [True, False, False]
    assert [end.objective for end in ends] == pytest.approx([ends[0].objective] * 3, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.02, 0.0])
def test_a_state_that_dies_out_over_hundreds_of_decades(spread):
    """Measurements down to 1e-217 and 0: collocation has no answer there."""

    model = ode(
        {"A": lambda m, t: -m.k1 * m.A[t], "B": lambda m, t: m.k1 * m.A[t] - m.k2 * m.B[t]},
        k1=(1e-3, 1e3),
        k2=(1e-3, 1e3),
    )

    times = np.linspace(0, 50, 9)[1:]
    a, b = np.exp(-80.0 * times), 80 / 79.9 * (np.exp(-0.1 * times) - np.exp(-80.0 * times))
    assert 0 < a[0] < 1e-217
    assert a[-1] == 0
    noise = 1 + spread * np.random.default_rng(1).standard_normal((2, 8))
    data = pd.DataFrame({"time": times, "A": noise[0] * a, "B": noise[1] * b})
    run = igpe.Experiment(data, start={"A": 1.0, "B": 0.0})
    problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=run)
    shot = igpe.SingleShooting().estimate(problem, {"k1": 10.0, "k2": 0.3})
    result = igpe.estimate(problem)
    assert result.status is Status.CONVERGED
    assert result.objective == pytest.approx(shot.objective, rel=1e-4, abs=1e-15)
    if not spread:
        assert result.parameters == pytest.approx({"k1": 80.0, "k2": 0.1}, rel=1e-4)
    assert result.parameters["k2"] == pytest.approx(0.1, rel=0.1)
