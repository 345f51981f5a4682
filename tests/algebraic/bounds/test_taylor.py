"""Taylor models against exact fractions: every operation encloses, rounding included."""

from fractions import Fraction

import numpy as np
import pytest
from exactly import escape, offsets, place

from igpe.algebraic.bounds.taylor import Taylor, constant, pairs, peak, variable


class Twin:
    """A Taylor model and the function it encloses."""

    def __init__(self, model, value):
        self.model, self.value = model, value

    def __add__(self, other):
        return Twin(self.model + other.model, lambda s: self.value(s) + other.value(s))

    def __sub__(self, other):
        return Twin(self.model - other.model, lambda s: self.value(s) - other.value(s))

    def __mul__(self, other):
        return Twin(self.model * other.model, lambda s: self.value(s) * other.value(s))

    def __neg__(self):
        return Twin(-self.model, lambda s: -self.value(s))

    def square(self):
        return Twin(self.model.square(), lambda s: self.value(s) ** 2)


def variables(rng, n, decades=12):
    """Variables on boxes of any width and place."""
    found = []
    for j in range(n):
        middle = rng.normal() * 10 ** rng.uniform(-decades, decades)
        width = abs(middle) * 10 ** rng.uniform(-12, 4) * (rng.random() > 0.1)
        low, high = middle - width, middle + width
        model = variable(np.array([low]), np.array([high]), j, n)
        found.append(Twin(model, lambda s, a=low, b=high, j=j: place(a, b, s[j])))
    return found


def number(rng):
    """A constant, of any size."""
    x = float(rng.normal() * 10 ** rng.uniform(-6, 6))
    return Twin(constant(x), lambda _: Fraction(x))


def composed(rng, n, steps):
    """Sums and products of variables and numbers in any order."""
    known = [*variables(rng, n, 3), number(rng)]
    for _ in range(steps):
        a, b = (known[i] for i in rng.integers(0, len(known), 2))
        kind = rng.integers(0, 6)
        known.append((a + b, a - b, a * b, b * a, a.square(), -a)[kind])
    return known


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(15))
def test_every_operation_encloses_exactly(n, seed):
    rng = np.random.default_rng([n, seed])
    points = offsets(n, rng, 4)
    for twin in composed(rng, n, 6):
        assert escape(twin.model.outward(), twin.value, points) <= 0


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(15))
def test_the_range_holds_every_value(n, seed):
    rng = np.random.default_rng([n, seed, 1])
    points = offsets(n, rng, 6)
    for twin in composed(rng, n, 5):
        low, high = (Fraction(float(end[0, 0])) for end in twin.model.range())
        assert all(low <= twin.value(s) <= high for s in points)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_products_of_quadratics_fold_cubic_and_quartic_terms(n):
    """Coefficients of order one and none of rounding: the folding itself is tested."""
    rng = np.random.default_rng(n)
    points = offsets(n, rng, 20)
    for _ in range(8):
        a, b = (_random_quadratic(rng, n) for _ in range(2))
        assert escape((a * b).model.outward(), (a * b).value, points) <= 0
        assert escape(a.square().model.outward(), a.square().value, points) <= 0


def _random_quadratic(rng, n):
    """A polynomial with small integers, some of them zero, known exactly."""
    c, g, t = (rng.integers(-3, 4, size) for size in (1, n, n * (n + 1) // 2))

    def value(s):
        affine = int(c[0]) + sum(int(x) * y for x, y in zip(g, s, strict=True))
        return affine + sum(int(x) * s[i] * s[j] for x, (i, j) in zip(t, pairs(n), strict=True))

    one = (1, 1)
    model = Taylor(
        np.full(one, float(c[0])),
        g.reshape(n, *one) * 1.0,
        t.reshape(-1, *one) * 1.0,
        np.zeros(one),
    )
    return Twin(model, value)


def test_the_folding_is_as_narrow_as_the_chebyshev_polynomials():
    s = variable(np.array([-1.0]), np.array([1.0]), 0, 1)
    cube, fourth = (s.square() * s).outward(), s.square().square().outward()
    assert cube.g[0, 0, 0] == pytest.approx(0.75)
    assert cube.e[0, 0] == pytest.approx(0.25)
    assert (fourth.c[0, 0], fourth.t[0, 0, 0]) == pytest.approx((-0.125, 1.0))
    assert fourth.e[0, 0] == pytest.approx(0.125)


@pytest.mark.parametrize("width", [0.0, 1e-300, 1e-16, 1e-12, 1e-3, 1.0, 1e12])
@pytest.mark.parametrize("middle", [0.0, 1.0, -1e-5, 3e8])
def test_a_variable_covers_its_interval(width, middle):
    low, high = middle - width, middle + width
    f = variable(np.array([low]), np.array([high]), 0, 1)
    points = [(Fraction(k, 8),) for k in range(-8, 9)]
    assert escape(f, lambda s: place(low, high, s[0]), points) <= 0
    below, above = f.range()
    assert below[0, 0] <= low <= high <= above[0, 0]


def test_the_peak_of_a_parabola_against_a_grid():
    rng = np.random.default_rng(0)
    a, t = rng.normal(size=(2, 500))
    t[:50] = 0.0
    s = np.linspace(-1, 1, 2001)[:, None]
    grid = (a * s + t * s * s).max(axis=0)
    most = peak(a, t)
    assert (most >= grid - 1e-14).all()
    assert most == pytest.approx(grid, abs=3e-6)


def test_remainders_of_the_arguments_are_kept():
    """(1 +- 0.5) (2 +- 0.25) holds 0.5 * 1.75 and 1.5 * 2.25."""
    a = Taylor(np.ones((1, 1)), np.zeros((1, 1, 1)), None, np.full((1, 1), 0.5))
    b = Taylor(np.full((1, 1), 2.0), np.zeros((1, 1, 1)), None, np.full((1, 1), 0.25))
    for product in (a * b, a * constant(2.0, 0.25), constant(1.0, 0.5) * b):
        low, high = product.range()
        assert low[0, 0] <= 0.875
        assert high[0, 0] >= 3.375
        assert high[0, 0] == pytest.approx(3.375, rel=0.01)
    low, high = (a - b).range()
    assert (low[0, 0], high[0, 0]) == pytest.approx((-1.75, -0.25))


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_unknown_stays_unknown(bad):
    s = variable(np.array([0.0]), np.array([1.0]), 0, 1)
    unknown = Taylor(np.zeros((1, 1)), np.ones((1, 1, 1)), None, np.full((1, 1), bad))
    zero = constant(0.0)
    with np.errstate(all="ignore"):
        for f in (
            unknown + s,
            s - unknown,
            unknown * s,
            unknown.square(),
            unknown * zero,
            -unknown,
        ):
            assert np.isinf(f.outward().e).all()
        lost = Taylor(np.full((1, 1), np.nan), None, None, np.zeros((1, 1)))
        assert np.isinf((lost + s).outward().e).all()


def test_boxes_and_places_are_independent():
    rng = np.random.default_rng(4)
    low = rng.uniform(0.5, 1, (2, 5))
    high = low + rng.uniform(0, 1, (2, 5))
    known = rng.normal(size=7)
    x, y = (variable(low[j], high[j], j, 2) for j in range(2))
    whole = ((x * constant(known) + y) * x.square()).outward()
    for b in range(5):
        for k in range(7):
            one_x, one_y = (variable(low[j, b : b + 1], high[j, b : b + 1], j, 2) for j in range(2))
            one = ((one_x * constant(known[k]) + one_y) * one_x.square()).outward()
            assert one.c[0, 0] == whole.c[b, k]
            assert one.g[:, 0, 0].tolist() == whole.g[:, b, k].tolist()
            assert one.e[0, 0] == pytest.approx(whole.e[b, k], rel=1e-9)


def test_underflow_of_a_product_is_covered_where_it_is_multiplied_again():
    small = variable(np.array([1e-200]), np.array([2e-200]), 0, 1) * constant(1e-200)
    f = (small * constant(1e300) * constant(1e90)).outward()
    value = Fraction(1e-200) * Fraction(1e300) * Fraction(1e90)
    assert escape(f, lambda s: value * place(1e-200, 2e-200, s[0]), [(Fraction(1),)]) <= 0
