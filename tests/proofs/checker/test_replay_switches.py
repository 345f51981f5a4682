"""Certificates of models with a switch at a known time; states at rest before or after it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time

import igpe
from igpe.proofs.checker.confirm import value_at
from igpe.proofs.checker.experiments import replays

SWITCH = 0.4
TIMES = np.array([0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0])
SIGMA = 0.02
AFTER = np.maximum(TIMES - SWITCH, 0.0)
BEFORE = TIMES - AFTER


def expr(after: Any, before: Any) -> Callable[[Any, Any], Any]:
    """before until the switch, then after, each a function of m and t."""
    return lambda m, t: pyo.Expr_if(t < SWITCH, before(m, t), after(m, t))


def decay(factor: float) -> Callable[[Any, Any], Any]:
    return lambda m, t: -factor * m.k * m.x[t]


CASES: dict[str, tuple[Any, float, Any, Callable[[float], np.ndarray]]] = {
    "faster": (
        expr(decay(2.0), decay(1.0)), 1.0, None, lambda k: np.exp(-k * (BEFORE + 2 * AFTER))
    ),
    "at rest afterwards": (
        expr(lambda m, t: 0.0, decay(1.0)), 1.0, None, lambda k: np.exp(-k * BEFORE)
    ),
    "at rest before": (expr(decay(1.0), lambda m, t: 0.0), 1.0, None, lambda k: np.exp(-k * AFTER)),
    "at rest by an input": (
        lambda m, t: -m.u[t] * m.k * m.x[t], 1.0, igpe.step_input([0.0, SWITCH], [1.0, 0.0]),
        lambda k: np.exp(-k * BEFORE),
    ),
    "at rest at 0": (
        lambda m, t: pyo.Expr_if(t < SWITCH, 0.0, 1.0) - m.k * m.x[t], 0.0, None,
        lambda k: (1 - np.exp(-k * AFTER)) / k,
    ),
}  # fmt: skip


def measured(case: str) -> np.ndarray:
    return CASES[case][3](1.3) + SIGMA * np.array([0.5, -1.0, 1.0, -0.5, 1.5, -1.0, 0.3])


def problem(case: str) -> igpe.Problem:
    rule, start, table, _ = CASES[case]

    def build(times: object) -> pyo.ConcreteModel:
        m = over_time(times, "x", k={"initialize": 1.0})
        if table is not None:
            m.u = pyo.Var(m.t)
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == rule(m, t))
        return m

    data = pd.DataFrame({"time": TIMES, "x": measured(case)})
    inputs = {} if table is None else {"u": table}
    run = igpe.Experiment(data, start={"x": start}, start_time=0.0, sigma=SIGMA, inputs=inputs)
    return igpe.Problem(build, parameters={"k": (0.2, 3.0)}, experiments=[run])


def objective(case: str, k: float) -> float:
    return float((((CASES[case][3](k) - measured(case)) / SIGMA) ** 2).sum())


@pytest.mark.parametrize("case", CASES)
def test_the_value_at_a_point_is_enclosed(case: str) -> None:
    """A state at rest has a defect of exactly 0; no bound above it was found then."""
    for k in (0.4, 1.234):
        low, high = value_at(replays(problem(case)), np.array([k]))
        assert low <= objective(case, k) * (1 + 1e-9)
        assert high >= objective(case, k) * (1 - 1e-9)
        assert high - low < 1e-7 * high


@pytest.mark.parametrize("case", ["faster", "at rest afterwards", "at rest at 0"])
def test_what_is_certified_is_verified(case: str) -> None:
    given = problem(case)
    proof = igpe.certify(given, gap=1e-2)
    assert proof.closed
    found = igpe.verify(proof, given)
    assert found, str(found)
    least = min(objective(case, k) for k in np.linspace(0.2, 3.0, 5001))
    assert proof.lower_bound <= least <= found.objective[1] * (1 + 1e-3)


def test_a_switch_at_another_time_is_another_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = igpe.certify(problem("faster"), gap=1e-2)
    data = measured("faster")
    assert igpe.verify(proof, problem("faster"))
    monkeypatch.setitem(globals(), "SWITCH", 0.5)
    monkeypatch.setitem(globals(), "measured", lambda _: data)
    found = igpe.verify(proof, problem("faster"))
    assert found.verdict is igpe.proofs.Verdict.REFUTED
    assert "certificate's parameter values, the sum of squares is" in found.regions[0].why
