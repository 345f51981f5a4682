"""The last digits are taken only where integration and collocation agree."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting import refine
from igpe.dynamics.shooting.residuals import Residuals
from igpe.numerics.least_squares.gauss_newton import GaussNewton, GaussNewtonInBlocks
from igpe.uncertainty.likelihood import likelihood

TIMES = np.linspace(0.1, 3.0, 12)


def decay(times: Iterable[float], bounds: tuple[float | None, float | None] = (None, None)) -> Any:
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x = pyo.Var(m.t, bounds=bounds, initialize=1.0)
    m.dx = dae.DerivativeVar(m.x)
    m.k = pyo.Var(bounds=(0, 10), initialize=1.0)
    m.half = pyo.Var(bounds=(0, 10), initialize=1.0)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.k * m.x[t])
    return m


def problem(model: Any, values: np.ndarray, parameters: list[str]) -> igpe.Problem:
    data = pd.DataFrame({"time": TIMES, "x": values})
    run = igpe.Experiment(data, start={"x": 1.0})
    return igpe.Problem(model, parameters=parameters, experiments=run)


def test_an_unseen_unknown_that_a_constraint_ties_is_not_held() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.tie = pyo.Constraint(expr=m.k == 2 * m.half)
        return m

    result = igpe.estimate(problem(model, np.exp(-TIMES), ["k", "half"]))
    assert result.parameters == pytest.approx({"k": 1.0, "half": 0.5}, rel=1e-4)
    k, half = result.estimates
    assert half.standard_error == pytest.approx(k.standard_error / 2, rel=1e-6)
    assert result.degrees == len(TIMES) - 1


def test_a_constraint_determines_what_the_data_leave_open() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.rate.deactivate()
        m.sum = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -(m.k + m.half) * m.x[t])
        m.tie = pyo.Constraint(expr=m.k == m.half)
        return m

    noisy = np.exp(-TIMES) + 0.01 * np.random.default_rng(1).standard_normal(len(TIMES))
    result = igpe.estimate(problem(model, noisy, ["k", "half"]))
    a, b = result.estimates
    assert a.value == pytest.approx(b.value, rel=1e-5)
    assert (a.remark, b.remark) == ("", "")
    assert 0 < a.standard_error < 0.05


@pytest.mark.parametrize("lowest", [0.3, 0.0])
def test_bounds_of_a_state_are_kept_and_told_where_they_are_active(lowest) -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times, (lowest, None))
        m.half.fix()
        return m

    posed = problem(model, np.exp(-TIMES), ["k"])
    result = igpe.estimate(posed)
    assert bool(result.active) is (lowest > 0)
    if lowest:
        assert math.exp(-result.parameters["k"] * TIMES[-1]) >= 0.3 * (1 - 1e-3)
    else:
        assert result.parameters == pytest.approx({"k": 1.0}, rel=1e-8)
        for seed in (-1, "a"):
            with pytest.raises(igpe.errors.ProblemError, match=f"seed is {seed!r}; estimate needs"):
                igpe.estimate(posed, seed=seed)


def test_a_seed_reaches_every_search() -> None:
    settings = igpe.Settings().seeded(7)
    assert settings.seed == 7
    assert settings.routes.quick.seed == 7
    assert settings.routes.proven.seed == 7


@pytest.mark.parametrize(
    ("many", "sigma", "in_blocks"),
    [(1, 0.1, True), (2, 0.1, False), (1, 0.001, False), (1, None, False)],
)
def test_only_many_unknowns_of_an_explained_fit_may_be_given_up(
    monkeypatch, many, sigma, in_blocks
) -> None:
    """Elsewhere a search goes on as long as it gains anything."""
    monkeypatch.setattr(refine, "MANY", many)
    values = np.exp(-TIMES) + 0.05 * np.random.default_rng(2).standard_normal(len(TIMES))
    run = igpe.Experiment(pd.DataFrame({"time": TIMES, "x": values}), start={"x": 1.0}, sigma=sigma)
    of_decay = igpe.Problem(decay, parameters=["k"], experiments=run)
    residuals, x = Residuals(of_decay, Automatic()), np.array([1.0])
    search = GaussNewton(radius=0.3, max_iterations=7)
    beside = refine.search_beside(of_decay, residuals, x, search)
    assert isinstance(beside, GaussNewtonInBlocks) is in_blocks
    assert (beside.radius, beside.max_iterations) == (0.3, 7)
    asked = []
    monkeypatch.setattr(
        "igpe.uncertainty.likelihood.search_beside",
        lambda problem, residuals, x, search: asked.append(x) or search,
    )
    likelihood(of_decay, {"k": 1.0}, igpe.SingleShooting(), "a test")
    assert asked == [x]
