"""Step 5 hands over to shooting where collocation has no answer, or a wrong one."""

from dataclasses import replace

import numpy as np
import pytest
from zoo import ZOO

import igpe
from igpe.dynamic import by_shooting
from igpe.dynamic.collocation import Collocation
from igpe.estimates import Estimate
from igpe.least_squares.base import Fit
from igpe.least_squares.gauss_newton import GaussNewton
from igpe.status import Status

CASE = next(c for c in ZOO if c.name == "consecutive")
once = Collocation.estimate_each


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
    assert any("collocation has no answer" in n and "single shooting" in n for n in result.notes)


def test_a_correction_that_ends_above_its_start_is_shot(monkeypatch):
    problem = CASE.problem(0.02, 1)
    right = igpe.estimate(problem)

    def worse(self, problem, starts, *more):
        far = {n: 3.0 * v for n, v in starts[0].items()}
        box = problem.box
        far = box.mapping(box.clip(box.vector(far)))
        return [Estimate(far, 0.1, Status.CONVERGED, "wrong") for _ in starts]

    monkeypatch.setattr(Collocation, "estimate_each", worse)
    stuck = lambda self, residual, x, box: Fit(x, residual(x), Status.STALLED, 0)  # noqa: E731
    monkeypatch.setattr("igpe.dynamic.polish.SEARCH", type("Stuck", (), {"fit": stuck})())
    result = igpe.estimate(problem)
    assert result.objective == pytest.approx(right.objective, rel=1e-8)
    assert any("of a candidate before" in n for n in result.notes)


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
    assert any("finished by single shooting" in n for n in result.notes)


def test_where_nothing_improves_the_values_of_step_4_are_the_result(monkeypatch):
    problem = CASE.problem(0.02, 1)
    monkeypatch.setattr(Collocation, "estimate_each", failing)
    monkeypatch.setattr(by_shooting, "SEARCH", GaussNewton(max_iterations=0))
    monkeypatch.setattr(by_shooting, "_by_multiple", lambda *arguments: None)
    result = igpe.estimate(problem)
    assert result.status is Status.STALLED
    assert result.parameters == pytest.approx(CASE.truth, rel=0.2)
    assert any("need not be an optimum" in n for n in result.notes)
