"""CasADi expressions in Taylor models: each operation, and random expressions, are enclosed."""

import casadi as ca
import numpy as np
import pytest

from igpe.algebraic.bounds.separable import Leaf, TaylorGraph, _leaf
from igpe.algebraic.bounds.taylor import pairs, variable
from igpe.equations.operations import UnknownOperation

K, P = ca.SX.sym("k", 2), ca.SX.sym("p", 2)
A, B, X, Y = K[0], K[1], P[0], P[1]

OPERATIONS = {
    "sum": X + A * Y,
    "difference": X - Y,
    "negative": -X * Y,
    "product": X * Y * A,
    "quotient": (X - 2) / (Y + A),
    "share": X / (X + Y),
    "share of three": A / (A + X * B + Y),
    "share of a power": A**Y / (X**Y + A**Y),
    "share of known": A * B / (X + B),
    "one over a sum": 1 / (1 + A / X + B / Y),
    "product with a reciprocal": X * (1 / (A + Y)),
    "reciprocal": 1 / X,
    "twice": 2 * (X + Y),
    "square": (X - Y) ** 2,
    "cube": (X - Y) ** 3,
    "sixth power": (X - Y) ** 6,
    "seventh power": X**7,
    "negative power": (X + Y) ** -2,
    "root": ca.sqrt(X + A),
    "fractional power": (X * Y) ** 1.7,
    "power with a known exponent": X**A,
    "power with a known base": A**Y,
    "power of two": X**Y,
    "exp": ca.exp(-A * X),
    "log": ca.log(X * Y / A),
    "log of a square": ca.log((X - 9) ** 2),
    "log of a power": ca.log(X**Y),
    "tanh": ca.tanh(X - Y),
    "sin": ca.sin(A * X),
    "cos": ca.cos(Y - X),
    "fabs": ca.fabs(X - 2),
    "nested": ca.exp(-X / (1 + ca.log(1 + Y * A))) * ca.sqrt(Y),
    "constant": ca.SX(3.5) + 0 * X,
    "known": A * B,
}


def leaves(low, high, logarithmic):
    """Both variables on one box."""
    return [_leaf(low[None], high[None], j, logarithmic) for j in range(2)]


def misses(expression, known, low, high, *, logarithmic, rng, points=30):
    """By how much values lie outside, relative to size, with 1e-12 for their own rounding."""
    graph = TaylorGraph(expression, K, P)
    (f,) = graph(known, leaves(low, high, logarithmic))
    function = ca.Function("f", [K, P], [expression])
    worst, known_rows = -np.inf, np.isfinite(f.e).mean()
    log_low, log_high = np.log(low), np.log(high)
    for _ in range(points):
        s = np.where(rng.random(2) < 0.4, rng.choice([-1.0, 0.0, 1.0], 2), rng.uniform(-1, 1, 2))
        x = (low + high) / 2 + s * (high - low) / 2
        if logarithmic:
            x = np.exp((log_low + log_high) / 2 + s * (log_high - log_low) / 2)
        value = np.array([float(function(known[:, i], x)) for i in range(known.shape[1])])
        poly = f.c + sum(g * y for g, y in zip(f.g if f.g is not None else [], s, strict=False))
        if f.t is not None:
            poly = poly + sum(t * s[i] * s[j] for t, (i, j) in zip(f.t, pairs(2), strict=True))
        with np.errstate(invalid="ignore"):
            outside = np.abs(value - poly) - f.e - 1e-12 * (np.abs(value) + f.size)
        outside = np.where(np.isfinite(f.e), outside, -1.0)
        worst = max(worst, float(np.max(outside)))
    return worst, known_rows


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_enclosed(name, logarithmic):
    rng = np.random.default_rng(list(OPERATIONS).index(name))
    known = rng.uniform(0.2, 3, (2, 4))
    seen = 0.0
    for width in (0.0, 1e-12, 1e-4, 0.1, 1.0, 1e3):
        low = rng.uniform(0.5, 2.0, 2)
        worst, rows = misses(
            OPERATIONS[name], known, low, low * (1 + width), logarithmic=logarithmic, rng=rng
        )
        assert worst <= 0, width
        seen = max(seen, rows)
    assert seen == 1.0


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions_are_enclosed(seed):
    rng = np.random.default_rng(seed)
    known = rng.uniform(-1, 3, (2, 4))
    expression = _random(rng, 4)
    low = rng.uniform(0.1, 2.0, 2)
    high = low * (1 + 10 ** rng.uniform(-6, 1, 2))
    worst, _ = misses(expression, known, low, high, logarithmic=bool(seed % 2), rng=rng)
    assert not worst > 0


def _random(rng, depth):
    if depth == 0 or rng.random() < 0.1:
        return (A, B, X, Y, X, Y, ca.SX(float(rng.normal())))[rng.integers(0, 7)]
    a, b = _random(rng, depth - 1), _random(rng, depth - 1)
    return (
        lambda: a + b, lambda: a - b, lambda: a * b, lambda: a / b, lambda: a / (a + b),
        lambda: ca.exp(-a), lambda: ca.log(a), lambda: ca.sqrt(a), lambda: a**2, lambda: a**b,
        lambda: ca.tanh(a), lambda: ca.sin(a), lambda: ca.cos(a), lambda: ca.fabs(a),
        lambda: 1 / (1 + a), lambda: a**1.5,
    )[rng.integers(0, 16)]()  # fmt: skip


@pytest.mark.parametrize("function", [ca.sin, ca.cos, lambda x: x - 0.3, ca.tanh, ca.exp])
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0, 2.0])
def test_a_known_base_that_is_zero_or_not(function, value):
    """0 ** p is 0; what is only near zero, or enclosed around it, is not."""
    known, rng = np.array([[value], [1.0]]), np.random.default_rng(0)
    worst, _ = misses(
        function(A) ** Y, known, np.array([1.0, 1.0]), np.array([2.0, 2.0]),
        logarithmic=False, rng=rng,
    )  # fmt: skip
    assert not worst > 0


def test_places_where_known_numbers_leave_it_undefined_are_unknown_and_others_are_not():
    known = np.array([[1.0, 0.0, -1.0, 4.0], [1.0, 1.0, 1.0, 1.0]])
    leaf = [Leaf(variable(np.array([0.5]), np.array([0.6]), j, 2)) for j in range(2)]
    for expression in (ca.log(A) + X, X / A, ca.sqrt(A) * X):
        (f,) = TaylorGraph(expression, K, P)(known, leaf)
        assert np.isinf(f.e[0, 2]) or "/" in str(expression)
        assert np.isinf(f.e[0, 1]) or "sqrt" in str(expression)
        assert np.isfinite(f.e[0, [0, 3]]).all()


def test_a_share_stays_bounded_on_wide_boxes():
    """As written it would be unknown; through logarithms it lies between 0 and 1, and a bit."""
    low, high = np.array([1e-3, 1e-3]), np.array([1e3, 1e3])
    (f,) = TaylorGraph(X / (X + Y), K, P)(np.ones((2, 1)), leaves(low, high, True))
    assert f.size[0, 0] + f.e[0, 0] < 10


@pytest.mark.parametrize(
    "expression",
    [
        ca.fmin(X, Y), ca.if_else(A > 1, X, Y), ca.erf(X), X > Y, ca.sign(X), ca.floor(X),
        ca.atan(X), ca.sinh(X), ca.log1p(X), ca.fmod(X, 2),
    ],
    ids=str,
)  # fmt: skip
def test_an_unknown_operation_is_refused_by_name(expression):
    with pytest.raises(UnknownOperation, match=r"[a-z]"):
        TaylorGraph(expression, K, P)


def test_equal_operations_are_done_once():
    graph = TaylorGraph(ca.vertcat(ca.exp(X) * A, ca.exp(X) * B), K, P)
    assert [n.name for n in graph.nodes].count("EXP") == 1


def test_which_variables_have_a_logarithmic_scale():
    p = ca.SX.sym("p", 5)
    expression = p[0] / (p[1] + A) + p[2] ** p[3] + ca.exp(-p[4] / (1 + ca.exp(p[0])))
    assert TaylorGraph(expression, K, p).logarithmic() == {1, 2}


def test_long_expressions():
    """Hundreds of operations one above the other."""
    total = X
    for i in range(600):
        total = ca.sin(total + A + i)
    with pytest.raises(UnknownOperation, match="nested operations"):
        TaylorGraph(total, K, P)
