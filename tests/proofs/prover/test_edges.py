"""Proofs at the edges: unknown exponents, rates that overflow, and what has no bounds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from one_state import one_state

import igpe
from igpe.proofs import compiled
from igpe.proofs.prover.kernels import tape, taylor
from igpe.proofs.prover.posed import posed
from igpe.proofs.prover.search import proved_objective

TIMES = np.linspace(0.2, 2.0, 8)
NOISE = 0.01 * np.array([1, -1, 1, 1, -1, 0, 1, -1])


def problem(law: Callable[[Any, Any], Any], bounds: dict[str, Any], y: Any) -> igpe.Problem:
    return one_state(law, bounds, (TIMES, y), sigma=0.01)


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
        (lambda m, x: -m.k * x + x / (1 + (1 / (0 * m.k)) ** 1.5), "a quotient by 0"),
    ],
)
def test_what_has_no_bounds_is_named_as_users_name_it(law: Any, word: str) -> None:
    given = problem(law, {"k": (0.1, 3.0)}, np.exp(-TIMES))
    with pytest.raises(igpe.errors.Unsupported, match=word):
        igpe.certify(given, {"k": 1.0})


def with_input(u: Any, law: Callable[..., Any]) -> igpe.Problem:
    """Two experiments, 'off' with the input u and 'on' with 2."""
    bounds = {"k": (0.1, 3.0), "K": (1.5, 3.0)}
    given = problem(lambda m, x: -m.k * x, bounds, np.exp(-TIMES))

    def model(times: Any) -> pyo.ConcreteModel:
        m = given.model(times)
        m.u = pyo.Param(m.t, mutable=True, default=1.0)
        del m.rate_x
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.k * m.x[t] * law(m, m.u[t]))
        return m

    table = pd.DataFrame({"time": TIMES, "x": np.exp(-TIMES)})
    run = igpe.Experiment(table, start={"x": 1.0}, sigma=0.02, inputs={"u": u}, name="off")
    other = igpe.Experiment(table, start={"x": 1.0}, sigma=0.02, inputs={"u": 2.0}, name="on")
    return igpe.Problem(model, parameters=["k", "K"], experiments=[run, other])


@pytest.mark.parametrize(
    ("u", "time"),
    [
        (0.0, "0"),
        (pd.Series([1.0, 0.0], index=[0.0, 2.0]), "2"),
        (pd.Series([1.0, -1.0], index=[0.0, 2.0]), "1"),
    ],
)
def test_a_quotient_by_an_input_that_is_zero_is_named(u: Any, time: str) -> None:
    """The rate 1/(1 + K/u) is 0 there, but K/u has no bounds."""
    given = with_input(u, lambda m, u: 1 / (1 + m.K / u))
    with pytest.raises(igpe.errors.Unsupported, match=rf"'off', K/u divides by 0 at time {time}\."):
        igpe.certify(given, {"k": 1.0, "K": 2.0})


@pytest.mark.parametrize("u", [0.0, pd.Series([2.0, 1.0, 0.0], index=[0.0, 20.0, 30.0])])
def test_a_quotient_by_zero_that_is_never_computed_is_no_obstacle(u: Any) -> None:
    """A condition excludes it, or it comes after the last measurement."""
    given = with_input(u, lambda m, u: pyo.Expr_if(u > 0, 1 / (1 + m.K / u), 0.5))
    assert np.isfinite(proved_objective(posed(given), np.array([1.0, 2.0])))


@pytest.mark.parametrize(
    ("law", "named"),
    [
        (lambda m, x: -m.k * (1 - x) ** m.n - m.k, r"\(1.0 - x\)\*\*n"),
        (lambda m, x: -m.k + m.n * pyo.sqrt(1 - x), r"sqrt\(1.0 - x\)"),
        (lambda m, x: -m.k / (m.n + (1 - x) ** 1.5), r"\(1.0 - x\)\*\*1.5"),
    ],
)
def test_a_root_of_zero_at_the_start_is_named(law: Any, named: str) -> None:
    given = problem(law, {"k": (0.1, 2.0), "n": (1.0, 3.0)}, np.exp(-TIMES))
    with pytest.raises(igpe.errors.Unsupported, match=f"cannot bound {named} at the start"):
        igpe.certify(given, {"k": 0.5, "n": 2.0})


def test_a_root_that_is_zero_neither_at_the_start_nor_later_is_bounded() -> None:
    law = lambda m, x: -m.k * pyo.sqrt(x) * (1 + (1 - x) ** 2)  # noqa: E731
    given = problem(law, {"k": (0.1, 2.0)}, np.exp(-TIMES))
    assert np.isfinite(proved_objective(posed(given), np.array([0.5])))


@pytest.mark.parametrize("kind", [tape.LOG, tape.POWER])
def test_a_remainder_that_overflows_is_infinite(kind: int) -> None:
    """Numba raises ZeroDivisionError for 1e-200 ** -9 if the exponent is an integer."""
    bound = compiled.numba.njit(error_model="numpy")(
        lambda low: taylor._derivative(kind, 0.5, low, 1.0)
    )
    assert bound(1e-200) == np.inf
