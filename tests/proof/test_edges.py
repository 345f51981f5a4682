"""Proofs at the edges: unknown exponents, rates that overflow, and what has no bounds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe

TIMES = np.linspace(0.2, 2.0, 8)
NOISE = 0.01 * np.array([1, -1, 1, 1, -1, 0, 1, -1])


def problem(law: Callable[[Any, Any], Any], bounds: dict[str, Any], y: Any) -> igpe.Problem:
    def build(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x = pyo.Var(m.t)
        m.dx = dae.DerivativeVar(m.x)
        for name, ends in bounds.items():
            setattr(m, name, pyo.Var(bounds=ends))
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == law(m, m.x[t]))
        return m

    run = igpe.Experiment(
        pd.DataFrame({"time": TIMES, "x": y}), start={"x": 1.0}, start_time=0.0, sigma=0.01
    )
    return igpe.Problem(build, parameters=list(bounds), experiments=[run])


def test_an_unknown_order_is_proved_and_verified() -> None:
    y = (1 + 0.5 * 0.8 * TIMES) ** -2.0 + NOISE  # of order 1.5
    given = problem(lambda m, x: -m.k * x**m.n, {"k": (0.1, 3.0), "n": (0.5, 3.0)}, y)
    proof = igpe.certify(given, {"k": 0.8, "n": 1.5})
    assert proof.closed
    assert proof.gap <= 1e-3 * (1 + 1e-9)
    assert dict(zip(proof.unknowns, proof.parameters, strict=True)) == pytest.approx(
        {"k": 0.8, "n": 1.5}, rel=0.1
    )


def test_an_exponential_that_overflows_within_the_bounds() -> None:
    given = problem(
        lambda m, x: -pyo.exp(m.a) * x, {"a": (-3.0, 900.0)}, np.exp(-TIMES / 2) + NOISE
    )
    proof = igpe.certify(given, {"a": -0.7})
    assert proof.closed
    assert proof.gap <= 1e-3 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("law", "word"),
    [
        (lambda m, x: -m.k * pyo.Expr_if(x >= 0.5, x, 0.5), "Expr_if"),
        (lambda m, x: -m.k * abs(x), "abs"),
    ],
)
def test_what_has_no_bounds_is_named_as_users_name_it(law: Any, word: str) -> None:
    given = problem(law, {"k": (0.1, 3.0)}, np.exp(-TIMES))
    with pytest.raises(igpe.Unsupported, match=word):
        igpe.certify(given, {"k": 1.0})
