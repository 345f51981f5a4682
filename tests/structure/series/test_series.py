"""Power series over finite fields, against identities and against derivatives by CasADi."""

from fractions import Fraction
from math import factorial

import casadi as ca
import numpy as np
import pytest

from igpe.equations.operations import UnknownOperation
from igpe.structure.series.field import Field, Singular, rational, residue
from igpe.structure.series.graph import Dynamics, series_graph
from igpe.structure.series.power_series import Constants, Evaluation, PowerSeries

PRIMES = [2147483629, 2147483587]
ORDERS = 7


def series(expression, g, seed=0, field=None):
    """Coefficients of an SX expression in a random series g that depends on two unknowns."""
    random = np.random.default_rng(seed)
    field = field or Field(PRIMES, 3, random)
    graph = series_graph(expression, [g], (False,))
    shape = (ORDERS, len(PRIMES), 3)
    given = random.integers(1, min(PRIMES), shape, dtype=np.uint64)
    run = Evaluation(field, graph, Constants(field))
    return [run.compute(k, lambda a, i, k: given[k])[0] for k in range(ORDERS)]


def vanishes(coefficients):
    return not np.stack(coefficients).any()


g = ca.SX.sym("g")


@pytest.mark.parametrize(
    "expression",
    [
        ca.sin(g) ** 2 + ca.cos(g) ** 2 - 1,
        ca.log(ca.exp(g)) - g,
        ca.exp(ca.log(g)) - g,
        ca.exp(2 * g) - ca.exp(g) ** 2,
        ca.exp(-g) * ca.exp(g) - 1,
        ca.cosh(g) ** 2 - ca.sinh(g) ** 2 - 1,
        ca.tan(g) * ca.cos(g) - ca.sin(g),
        g**-3 * g**3 - 1,
        (1 / (1 + g)) * (1 + g) - 1,
    ],
    ids=str,
)
def test_identities_hold_in_all_coefficients_and_derivatives(expression):
    assert vanishes(series(expression, g))


def test_the_identities_above_could_fail():
    assert not vanishes(series(ca.sin(g) ** 2 + ca.cos(g) - 1, g))
    assert not vanishes(series(ca.exp(3 * g) - ca.exp(g) ** 2, g))


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (ca.exp, lambda g, z: z),
        (ca.log, lambda g, z: 1 / g),
        (ca.sqrt, lambda g, z: 0.5 * z / g),
        (lambda g: g**1.7, lambda g, z: 1.7 * z / g),
        (lambda g: ca.power(g, g), lambda g, z: z * (ca.log(g) + 1)),
        (ca.sin, lambda g, z: ca.cos(g)),
        (ca.tanh, lambda g, z: 1 - z**2),
        (ca.atan, lambda g, z: 1 / (1 + g**2)),
        (ca.asinh, lambda g, z: 1 / ca.sqrt(1 + g**2)),
        (ca.asin, lambda g, z: 1 / ca.sqrt(1 - g**2)),
        (ca.atanh, lambda g, z: 1 / (1 - g**2)),
    ],
)
def test_functions_obey_their_differential_equations(function, slope):
    """z' = w g' coefficient by coefficient, in values and in derivatives."""
    both = ca.vertcat(function(g), slope(g, function(g)), g)
    random = np.random.default_rng(1)
    field = Field(PRIMES, 3, random)
    given = random.integers(1, min(PRIMES), (ORDERS, 2, 3), dtype=np.uint64)
    run = Evaluation(field, series_graph(both, [g], (False,)), Constants(field))
    z, w, h = zip(*(run.compute(k, lambda a, i, k: given[k]) for k in range(ORDERS)), strict=True)
    primes = np.array(PRIMES, dtype=np.uint64)[:, None]
    for k in range(1, ORDERS):
        right = sum(
            (field.product(h[j] * np.uint64(j) % primes, w[k - j]) for j in range(1, k + 1)),
            start=np.zeros((2, 3), dtype=np.uint64),
        )
        assert (z[k] * np.uint64(k) % primes == right % primes).all()
    assert (z[0][:, 1:] == w[0][:, :1] * h[0][:, 1:] % primes).all()


def predator(q, x):
    """Slopes with a quotient, and an output of both."""
    prey = q[0] * x[0] - q[1] * x[0] * x[1] / (2 + x[0])
    return ca.vertcat(prey, q[1] * x[0] - q[2] * x[1]), x[0] * x[1]


def test_taylor_coefficients_and_derivatives_are_casadis():
    """Lie derivatives by symbols, at small whole numbers: exact quotients, compared as residues."""
    x, q, none = ca.SX.sym("x", 2), ca.SX.sym("q", 3), ca.SX(0, 1)
    slopes, output = predator(q, x)
    start = ca.vertcat(q[2] + 1, 3)
    d = Dynamics(x, none, q, none, ca.SX.sym("t"), slopes, none, start, output, 0.0, (0, 1, 2))
    field = Field(PRIMES, 4, np.random.default_rng(0))
    point = np.array([[2, 3, 1]] * 2, dtype=np.uint64)
    course = PowerSeries(d, field, Constants(field), point, np.zeros((2, 0), dtype=np.uint64))
    y = output
    for k in range(4):
        found = course.advance()[0]
        at_start = ca.substitute(y, x, start)
        exact = ca.Function("e", [q], [ca.horzcat(at_start, ca.jacobian(at_start, q))])
        for number, ours in zip(np.asarray(exact([2, 3, 1])).ravel(), found.T, strict=True):
            quotient = Fraction(float(number)).limit_denominator(10**6) / factorial(k)
            assert [residue(quotient, p) for p in PRIMES] == ours.tolist()
        y = ca.jtimes(y, x, slopes)


def test_implicit_variables_follow_their_equation():
    """y with y + y**2 = x, x' = -q y: the equation holds in every coefficient and derivative."""
    x, y, q, none = ca.SX.sym("x"), ca.SX.sym("y"), ca.SX.sym("q", 2), ca.SX(0, 1)
    g = y + q[1] * y**2 - x
    d = Dynamics(
        x, y, q, none, ca.SX.sym("t"), -q[0] * y, g, ca.SX(6), ca.vertcat(y, g), 0.0, (0, 1)
    )
    field = Field(PRIMES, 3, np.random.default_rng(0))
    root = np.array([[2], [2]], dtype=np.uint64)
    course = PowerSeries(d, field, Constants(field), np.array([[5, 1]] * 2, dtype=np.uint64), root)
    values = [course.advance() for _ in range(5)]
    assert all(not equation.any() for _, equation in values)
    first = values[0][0]  # dy/dq[1] = -y**2 / (1 + 2 y) = -4/5
    assert first[:, 2].tolist() == [residue(Fraction(-4, 5), p) for p in PRIMES]
    second = values[1][0]  # dy/dt = -q[0] y / (1 + 2 y) = -2
    assert second[:, 0].tolist() == [p - 2 for p in PRIMES]


def test_undefined_places_and_functions_are_refused():
    with pytest.raises(Singular):
        series(1 / (g - g * 1.0 + 0 * g), g)
    with pytest.raises(Singular):
        series(ca.log(0 * g), g)
    with pytest.raises(Singular):
        series(g + ca.inf, g)
    with pytest.raises(UnknownOperation, match="an absolute value"):
        series(ca.fabs(g), g)


def test_floats_mean_the_numbers_they_are_written_as():
    assert rational(0.1) == Fraction(1, 10)
    assert rational(1 / 3) == Fraction(1, 3)
    assert rational(8.314) == Fraction(8314, 1000)
    assert rational(6.02214076e23) == Fraction(602214076 * 10**15)
    assert rational(-0.0) == 0
