"""Univariate functions of Taylor models against 80 digits."""

from fractions import Fraction
from functools import partial

import exactly
import numpy as np
import pytest
from exactly import EXTREMES, escape, finite, offsets, place

from igpe.algebraic.bounds import taylor
from igpe.algebraic.bounds.taylor import Taylor, constant, variable

EXACT = {
    "exp": (taylor.exp, exactly.exp, (-600.0, 600.0)),
    "log": (taylor.log, exactly.log, (1e-12, 1e12)),
    "reciprocal": (taylor.reciprocal, lambda x: 1 / x, (1e-12, 1e12)),
    "negative reciprocal": (taylor.reciprocal, lambda x: 1 / x, (-1e12, -1e-12)),
    "sigmoid": (taylor.sigmoid, exactly.sigmoid, (-60.0, 60.0)),
    "softplus": (taylor.softplus, exactly.softplus, (-60.0, 60.0)),
    "absolute": (taylor.absolute, abs, (-1e3, 1e3)),
    "sine": (taylor.sine, exactly.sin, (-40.0, 40.0)),
    "cosine": (taylor.cosine, exactly.cos, (-40.0, 40.0)),
} | {
    f"power {a}": (
        taylor.power(a),
        lambda x, a=a: exactly.power(x, Fraction(a)),
        (1e-6, 1e6),
    )
    for a in (0.5, 1.5, -0.5, 2.0, 3.7, -4.2, 0.0, 1.0)
}

NAMES = sorted(EXACT)


def interval(rng, low, high):
    """An interval within bounds, of any width; evenly or over orders of magnitude."""
    if rng.random() < 0.5 and low * high > 0:
        sign, ends = np.sign(low), sorted((abs(low), abs(high)))
        middle = sign * np.exp(rng.uniform(*np.log(ends)))
    else:
        middle = rng.uniform(low, high)
    half = abs(middle) * 10 ** rng.uniform(-13, 0.5) * (rng.random() > 0.1)
    return max(middle - half, low), min(middle + half, high)


def _at(exact, low, high, s):
    return exact(place(low, high, s[0]))


def _bent(exact, ends, bend, off, s):
    z = place(*ends, s[0])
    return exact(z + bend * z * s[1] + off)


@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_a_variable_is_enclosed(name):
    function, exact, bounds = EXACT[name]
    rng = np.random.default_rng(NAMES.index(name))
    known = 0
    for _ in range(40):
        low, high = interval(rng, *bounds)
        f = function(variable(np.array([low]), np.array([high]), 0, 1)).outward()
        if finite(f):
            known += 1
            points = [(s,) for s in EXTREMES] + offsets(1, rng, 2)
            value = partial(_at, exact, low, high)
            assert escape(f, value, points) <= 0, (low, high)
    assert known > 20


@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_a_quadratic_with_a_remainder_is_enclosed(name):
    """At every offset and for every value within the argument's remainder."""
    function, exact, bounds = EXACT[name]
    rng = np.random.default_rng([7, NAMES.index(name)])
    for _ in range(10):
        low, high = interval(rng, *bounds)
        x = variable(np.array([low]), np.array([high]), 0, 2)
        y = variable(np.array([-1.0]), np.array([1.0]), 1, 2)
        room = 0.1 * min(low - bounds[0], bounds[1] - high)
        bend = float(rng.uniform(0, room))
        off = float(rng.uniform(0, room))
        argument = x + constant(bend / max(abs(low), abs(high))) * x * y
        argument = argument + constant(0.0, off)
        f = function(argument).outward()
        if not finite(f):
            continue
        for side in (-1, 1):
            ends, more = (low, high), side * Fraction(off)
            value = partial(_bent, exact, ends, Fraction(bend / max(abs(low), abs(high))), more)
            assert escape(f, value, offsets(2, rng, 2)) <= 0, (low, high, bend, off)


@pytest.mark.parametrize("name", NAMES)
def test_the_remainder_is_of_third_order(name):
    """Halving a box divides it by eight, down to rounding: nothing is enclosed too generously."""
    function, _, _ = EXACT[name]
    at = {"negative reciprocal": -2.0}.get(name, 2.2)
    e = [
        function(variable(np.array([at - h]), np.array([at + h]), 0, 1)).outward().e[0, 0]
        for h in (2e-2, 1e-2, 5e-3)
    ]
    if name not in ("absolute", "power 0.0", "power 1.0", "power 2.0"):
        assert e[0] / e[1] == pytest.approx(8, rel=0.2)
        assert e[1] / e[2] == pytest.approx(8, rel=0.2)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_enclosed(name):
    function, exact, bounds = EXACT[name]
    rng = np.random.default_rng([3, NAMES.index(name)])
    for _ in range(20):
        x = float(np.mean(interval(rng, *bounds)))
        f = function(constant(x)).outward()
        assert escape(f, lambda _, x=x: exact(Fraction(x)), [()]) <= 0
        error = 0.3 * abs(x) * 10 ** rng.uniform(-10, 0)
        f = function(constant(x, error)).outward()
        for end in (-1, 1):
            z = Fraction(x) + end * Fraction(error)
            if finite(f) and bounds[0] <= z <= bounds[1]:
                assert escape(f, lambda _, z=z: exact(z), [()]) <= 0


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("log", 0.0, 1.0),
        ("log", -1.0, 1.0),
        ("log", -2.0, -1.0),
        ("reciprocal", 0.0, 1.0),
        ("reciprocal", -1.0, 1.0),
        ("reciprocal", -1.0, 0.0),
        ("power 0.5", -1.0, 1.0),
        ("power -0.5", 0.0, 1.0),
        ("exp", 0.0, 1e4),
        ("exp", -np.inf, np.inf),
        ("log", 1.0, np.inf),
        ("exp", np.nan, 1.0),
    ],
)
def test_where_a_function_is_not_defined_nothing_is_known(name, low, high):
    function, _, _ = EXACT[name]
    with np.errstate(all="ignore"):
        f = function(variable(np.array([low]), np.array([high]), 0, 1)).outward()
    assert np.isinf(f.e).all()


@pytest.mark.parametrize("name", ["sigmoid", "softplus", "sine", "exp", "absolute"])
def test_of_an_unknown_argument_nothing_wrong_is_said(name):
    """sigmoid and sine are bounded whatever the argument; no more than that may be claimed."""
    function, exact, _ = EXACT[name]
    with np.errstate(all="ignore"):
        for c in (0.0, 1.0, np.nan):
            unknown = Taylor(np.full((1, 1), c), None, None, np.full((1, 1), np.inf))
            f = function(unknown).outward()
            if finite(f):
                for x in (-50, 0, 50):
                    assert escape(f, lambda _, x=x: exact(Fraction(x)), [()]) <= 0


def test_what_is_far_out_stays_enclosed():
    for low, high in ((-1000.0, -999.0), (-745.0, -740.0), (690.0, 700.0)):
        for name in ("exp", "sigmoid", "softplus"):
            function, exact, _ = EXACT[name]
            f = function(variable(np.array([low]), np.array([high]), 0, 1)).outward()
            if finite(f):
                points = [(s,) for s in EXTREMES]
                assert escape(f, partial(_at, exact, low, high), points) <= 0


@pytest.mark.parametrize(("name", "derivative"), [("sigmoid", 3), ("softplus", 3), ("exp", 3)])
def test_the_third_derivative_is_bounded(name, derivative):
    """Against divided differences of values with 80 digits, also between the turning points."""
    function, exact, _ = EXACT[name]
    rng = np.random.default_rng(1)
    h = Fraction(1, 10**15)
    for _ in range(15):
        low, high = np.sort(rng.uniform(-8, 8, 2))
        bound = function.third(np.array(low), np.array(high))
        for x in (Fraction(float(z)) for z in np.linspace(low, high, 9)):
            difference = exact(x + 2 * h) - 2 * exact(x + h) + 2 * exact(x - h) - exact(x - 2 * h)
            assert abs(float(difference / (2 * h**derivative))) <= bound * (1 + 1e-9) + 1e-12
