"""Expressions as sums of products: the same numbers, and the powers and rates one expects."""

import casadi as ca
import numpy as np
import pytest

from igpe.algebraic.bounds.separate import MOST, terms_of

K, P = ca.SX.sym("k", 2), ca.SX.sym("p", 4)
A, T = K[0], K[1]
EXPRESSIONS = {
    "arrhenius": P[0] * ca.exp(-P[1] * T) * A,
    "quotient of arrhenius": P[0] * ca.exp(-P[1] * T) / (P[2] * ca.exp(-P[3] * T)),
    "products out": (P[0] + A) * (P[1] - T) ** 2,
    "over a sum": (P[0] * A - P[1] * P[2]) / (P[2] + T),
    "over a sum with its own": (P[0] * P[2] + A * P[0]) / (1 + P[2] * T),
    "sum of exponents": ca.exp(-P[0] * T + 2 * P[1] + A) * P[2],
    "exponent that is not linear": ca.exp(-P[0] * P[1] * T - P[2] / A),
    "nested exponential": ca.exp(-ca.exp(P[0]) * P[1]),
    "powers": (P[0] * P[1] / P[2]) ** 3 / P[0] ** 2,
    "negative power": (P[0] * ca.exp(P[1])) ** -2,
    "fractional power": (P[0] * P[1]) ** 0.5 + P[2] ** P[3],
    "cancels": P[0] / P[0] * P[1],
    "only known": A * T + 1,
    "inverse": 1 / (P[0] * ca.exp(P[1] * T)),
    "odd": ca.tanh(P[0] * A) * P[1] - ca.fabs(P[2]) / P[1],
    "negative": -(P[0] - 2 * P[1] * ca.exp(-P[2])),
    "known in everything": ca.exp(-P[0] * ca.log(A)) * ca.sqrt(T) ** 3 / (A + T),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_terms_are_the_expression(name):
    rng = np.random.default_rng(1)
    terms = terms_of(EXPRESSIONS[name], K, P)
    both = ca.vertcat(EXPRESSIONS[name], sum((t.expression(P) for t in terms), ca.SX(0)))
    function = ca.Function("f", [K, P], [both])
    for _ in range(20):
        one, other = function(rng.uniform(0.2, 3, 2), rng.uniform(0.2, 3, 4)).full().ravel()
        assert one == pytest.approx(other, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions(seed):
    rng = np.random.default_rng(seed)
    expression = _random(rng, 4)
    terms = terms_of(expression, K, P)
    both = ca.vertcat(expression, sum((t.expression(P) for t in terms), ca.SX(0)))
    function = ca.Function("f", [K, P], [both])
    for _ in range(10):
        one, other = function(rng.uniform(0.5, 2, 2), rng.uniform(0.5, 2, 4)).full().ravel()
        if np.isfinite([one, other]).all():
            assert one == pytest.approx(other, rel=1e-8, abs=1e-8)


def _random(rng, depth):
    if depth == 0:
        return (A, T, *(P[i] for i in range(4)), ca.SX(2.0))[rng.integers(0, 7)]
    a, b = _random(rng, depth - 1), _random(rng, depth - 1)
    return (a + b, a - b, a * b, a * b, a / b, ca.exp(-a), a**2, -a, 1 / a)[rng.integers(0, 9)]


def test_powers_and_rates_come_apart():
    (term,) = terms_of(EXPRESSIONS["quotient of arrhenius"], K, P)
    assert term.powers == {0: 1.0, 2: -1.0}
    assert set(term.rates) == {1, 3}
    rates = ca.Function("r", [K], [term.rates[1], term.rates[3]])([1.0, 2.0])
    assert [float(r) for r in rates] == [-2.0, 2.0]
    (term,) = terms_of(EXPRESSIONS["powers"], K, P)
    assert term.powers == {0: 1.0, 1: 3.0, 2: -3.0}


def test_a_large_product_of_sums_is_left_as_it_is():
    (term,) = terms_of((P[0] + P[1] + A + 1) ** 2 * (P[2] + P[3] + T), K, P)
    assert (term.powers, term.rates) == ({}, {})
    assert MOST < 30
