"""Enclosures of expressions of time hold all values that are taken."""

import casadi as ca
import numpy as np
import pytest

from igpe.equations.known_times import RULES, Enclosure, Range, point

UNARY = [
    "exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "fabs", "floor", "ceil", "sign", "expm1", "log1p",
]  # fmt: skip
BINARY = [
    ca.plus, ca.minus, ca.times, ca.rdivide, ca.power, ca.fmin, ca.fmax, ca.lt, ca.le, ca.eq,
    ca.ne, ca.logic_and, ca.logic_or, lambda a, b: ca.if_else(a, b, 0),
]  # fmt: skip


def grown(generator, t, size):
    """A random expression of t."""
    pool = [t, *(ca.SX(float(generator.normal())) for _ in range(3)), ca.SX(2.0), ca.SX(-1.0)]
    for _ in range(size):
        one, other = (pool[generator.integers(len(pool))] for _ in range(2))
        if generator.random() < 0.5:
            pool.append(getattr(ca, UNARY[generator.integers(len(UNARY))])(one))
        else:
            pool.append(BINARY[generator.integers(len(BINARY))](one, other))
    return pool[-1]


@pytest.mark.parametrize("seed", range(150))
def test_an_enclosure_holds_all_sampled_values(seed):
    generator = np.random.default_rng(seed)
    t = ca.SX.sym("t")
    function = ca.Function("f", [t], [ca.densify(grown(generator, t, 8))])
    low = generator.normal(size=20) * 10.0 ** generator.integers(-3, 2, size=20)
    high = low + 10.0 ** generator.uniform(-6, 1, size=20) * (generator.random(20) > 0.1)
    (found,) = Enclosure(function)([Range(low, high)])
    for share in (0.0, 0.1, 0.37, 0.5, 0.83, 1.0):
        values = np.asarray(function((low + share * (high - low))[None])).ravel()
        known = ~np.isnan(values)
        assert (np.broadcast_to(found.low, low.shape) <= values)[known].all()
        assert (values <= np.broadcast_to(found.high, low.shape))[known].all()


@pytest.mark.parametrize("name", UNARY)
def test_each_function_has_a_bound_of_its_own(name):
    t = ca.SX.sym("t")
    function = ca.Function("f", [t], [getattr(ca, name)(t)])
    lowest = 1.5 if name == "acosh" else 0.2
    (found,) = Enclosure(function)([Range(np.array([lowest]), np.array([lowest + 0.1]))])
    values = np.asarray(function(np.linspace(lowest, lowest + 0.1, 50)[None]))
    assert np.ptp(values) <= found.high - found.low <= 1.001 * np.ptp(values) + 1e-12


def test_an_operation_without_a_rule_has_no_bound():
    t = ca.SX.sym("t")
    function = ca.Function("f", [t], [ca.erf(t) + 1])
    assert "ERF" not in RULES
    (found,) = Enclosure(function)([point(np.array([0.5]))])
    assert found.low == -np.inf
    assert found.high == np.inf
