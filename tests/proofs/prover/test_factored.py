"""Rewritten right-hand sides: the same values, in forms that interval arithmetic likes."""

import importlib
from fractions import Fraction
from operator import add, mul, sub, truediv
from typing import Any

import casadi as ca
import numpy as np
import pytest

from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.kernels import tape as codes
from igpe.proofs.prover.kernels.tape import OpTape
from igpe.proofs.prover.posed import TapeSymbols, factored, posed, tape

BETWEEN = {codes.ADD: add, codes.SUB: sub, codes.MUL: mul, codes.DIV: truediv}


def values(given: OpTape, x: Any, p: Any) -> list[Fraction]:
    """Exact values of the results at a point of whole numbers."""
    found: list[Any] = []
    for op, a, b, number in zip(given.op, given.a, given.b, given.number, strict=True):
        if op == codes.STATE:
            value = Fraction(int(x[a]))
        elif op == codes.PARAMETER:
            value = Fraction(int(p[a]))
        elif op in (codes.CONST, codes.TERM):
            value = Fraction(float(number))
        elif op == codes.FRACTION:
            terms = [(found[k], found[given.a[k]]) for k in range(a, a + b)]
            value = sum(w * t for w, t in terms) / sum(t for _, t in terms)
        elif op == codes.NEG:
            value = -found[a]
        elif op == codes.SQUARE:
            value = found[a] ** 2
        else:
            value = BETWEEN[op](found[a], found[b])
        found.append(value)
    return [found[k] for k in given.results]


X, P = ca.SX.sym("x", 3), ca.SX.sym("p", 5)
EXPRESSIONS = {
    "michaelis": -P[0] * X[0] / (P[1] + X[0]),
    "reversible": (P[0] * X[0] - P[2] * X[1]) / (1 + X[0] / P[1] + X[1] / P[3]),
    "logistic": P[0] * X[0] * (1 - X[0] / P[1]) - P[0] * X[0] * X[1],
    "cubic": P[2] * (X[0] - X[0] ** 3 / 3 + X[1]) - (X[0] - P[0]) ** 2,
    "two denominators": P[0] * X[0] / (X[0] + P[1]) * X[1] / (X[1] + P[2]) - X[2] / (P[3] * X[2]),
    "negative": X[0] / (X[0] - 100 * X[1] - P[0]) + 0 * X[2],
    "constant": ca.SX(2.5) + 0 * X[0],
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_are_exactly_the_same(name: str) -> None:
    given = tape(EXPRESSIONS[name], TapeSymbols(X, P, ca.SX(0, 1), ca.SX.sym("t")), range(5))
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, p = rng.integers(1, 50, 3), rng.integers(1, 50, 5)
        assert values(given, x, p) == values(factored(given), x, p)


def test_methanol_has_each_ratio_and_most_parameters_once() -> None:
    problem = importlib.import_module("methanol").problem()
    sharp = posed(problem).experiments[0].sharp
    assert (sharp.op == codes.FRACTION).sum() == 3
    assert not (sharp.op == codes.DIV).any()


def test_large_boxes_are_thrown_away_by_what_decays_at_least() -> None:
    """x1' <= -p1 x1 whatever the ratio is, which no other form of the equations tells."""
    problem = importlib.import_module("methanol").problem()
    dynamic = posed(problem)
    lower, upper = np.array([25.0, 0, 0, 0, 0]), np.full(5, 100.0)
    cut = 0.1
    assert BoxEnclosure(dynamic).examine(lower, upper, cut).bound > cut
    plain = tuple(run._replace(sharp=run.tapes[0]) for run in dynamic.experiments)
    assert BoxEnclosure(dynamic._replace(experiments=plain)).examine(lower, upper, cut).bound < cut
