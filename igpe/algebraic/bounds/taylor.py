"""Taylor models of degree 2: a polynomial and a rigorous remainder, for many boxes and places.

A function of J scaled offsets s in [-1, 1]^J is enclosed by

    f(s)  in  c + sum_j g_j s_j + sum_{i<=j} t_ij s_i s_j  +-  e        for every s.

Arithmetic keeps the enclosure: terms of degree three and four are written as Chebyshev polynomials,
of which the lower ones stay in the polynomial (s^3 = 3/4 s + T3/4, s^4 = s^2 - 1/8 + T4/8) and only
the rest goes into e. Rounding of a coefficient is at most a few units in its last place, which each
operation adds to e; the rounding of e itself is covered once, by `Taylor.outward`.

A row where e is infinite is one of which nothing is known (a division by an interval with zero, the
logarithm of one): infinity and nan stay infinite e through every operation.

Univariate functions. On the range [m - r, m + r] of the argument f, a function h is replaced by the
quadratic through its values at the Chebyshev nodes m and m +- r sqrt(3)/2, which is off by at most

    max |h'''| r^3 / 24

or, where that is smaller, by a constant and half the width of h's range.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import expit

from igpe.core.arrays import FloatArray

UNIT = 2.0**-52  # twice the relative rounding error of one operation
GROWTH = 1 + 1e-9  # more than the rounding of 1e5 operations on non-negative numbers
TINY = 1e-300  # covers underflow


@lru_cache
def pairs(n: int) -> tuple[tuple[int, int], ...]:
    """The index pairs i <= j of quadratic terms, in the order of `Taylor.t`."""
    return tuple((i, j) for i in range(n) for j in range(i, n))


@dataclass(frozen=True)
class Taylor:
    """See the top of the file.

    c  (n_boxes, n_places), or broadcastable to it
    g  (J, n_boxes, n_places), or None: it does not depend on s
    t  (J(J+1)/2, n_boxes, n_places) in the order of `pairs(J)`, or None: affine
    e  (n_boxes, n_places) >= 0
    """

    c: FloatArray
    g: FloatArray | None
    t: FloatArray | None
    e: FloatArray

    @property
    def is_constant(self) -> bool:
        """Return True if the function does not depend on s (its remainder is rounding)."""
        return self.g is None

    @cached_property
    def size(self) -> FloatArray:
        """Bound on |polynomial|, up to rounding that `UNIT` covers."""
        size = np.abs(self.c)
        for part in (self.g, self.t):
            if part is not None:
                for row in part:
                    size = size + np.abs(row)
        return size

    def range(self) -> tuple[FloatArray, FloatArray]:
        """Bounds (lower, upper) on the function; outward."""
        terms = 0 if self.g is None else len(self.g)
        slack = self.e * GROWTH + (8 + 2 * terms**2) * UNIT * self.size + TINY
        if self.g is None:
            return self.c - slack, self.c + slack
        low, high = self.c - slack, self.c + slack
        n = len(self.g)
        for k, (i, j) in enumerate(pairs(n)):
            if i == j:
                t = 0.0 if self.t is None else self.t[k]
                low = low - peak(-self.g[i], -t)
                high = high + peak(self.g[i], t)
            elif self.t is not None:
                low, high = low - np.abs(self.t[k]), high + np.abs(self.t[k])
        return low, high

    def outward(self) -> "Taylor":
        """The same with the rounding of its remainder covered; infinite where anything is nan."""
        e = self.e * GROWTH + TINY
        good = np.isfinite(self.c + e)
        for part in (self.g, self.t):
            if part is not None:
                good = good & np.isfinite(part).all(axis=0)
        return Taylor(self.c, self.g, self.t, np.where(good, e, np.inf))

    def __neg__(self) -> "Taylor":
        return Taylor(-self.c, _scale(self.g, -1.0), _scale(self.t, -1.0), self.e)

    def __add__(self, other: "Taylor") -> "Taylor":
        g, t = _add(self.g, other.g), _add(self.t, other.t)
        f = Taylor(self.c + other.c, g, t, self.e + other.e)
        return replace(f, e=f.e + UNIT * f.size)

    def __sub__(self, other: "Taylor") -> "Taylor":
        return self + -other

    def __mul__(self, other: "Taylor") -> "Taylor":
        if self.g is None:
            return other._times(self)
        if other.g is None:
            return self._times(other)
        return _product(self, other)

    def square(self) -> "Taylor":
        """f * f."""
        return self * self if self.g is None else _product(self, self)

    def quadratic(self, q: tuple[FloatArray, FloatArray, FloatArray], e: FloatArray) -> "Taylor":
        """q0 + q1 f + q2 f^2 +- e, with coefficients (n_boxes, n_places) that are exact."""
        q0, q1, q2 = q
        squared = self.square()
        assert self.g is not None
        assert squared.g is not None
        assert squared.t is not None
        a1, a2 = np.abs(q1), np.abs(q2)
        rounding = 4 * UNIT * (np.abs(q0) + a1 * self.size + a2 * squared.size)
        return Taylor(
            q0 + q1 * self.c + q2 * squared.c,
            q1 * self.g + q2 * squared.g,
            q2 * squared.t if self.t is None else q1 * self.t + q2 * squared.t,
            e + a1 * self.e + a2 * squared.e + rounding,
        )

    def _times(self, other: "Taylor") -> "Taylor":
        """Times a function that does not depend on s."""
        k, mine = other.c, self.size
        e = self.e * np.abs(k) + other.e * (mine + self.e)
        rounding = UNIT * mine * np.abs(k) + TINY
        return Taylor(k * self.c, _scale(self.g, k), _scale(self.t, k), e + rounding)


def constant(value: FloatArray | float, error: FloatArray | float = 0.0) -> Taylor:
    """A number that is known up to an error, (n_places,) or a scalar."""
    c = np.atleast_2d(np.asarray(value, dtype=float))
    return Taylor(c, None, None, np.broadcast_to(np.asarray(error, dtype=float), c.shape))


def variable(lower: FloatArray, upper: FloatArray, index: int, count: int) -> Taylor:
    """The `index`-th of `count` variables, affine in its offset: covers [lower, upper], (n_boxes,).

    A box without width in this direction gives a variable that is constant.
    """
    middle, half = (lower + upper)[:, None] / 2, (upper - lower)[:, None] / 2
    g = np.zeros((count, len(lower), 1))
    g[index] = half
    return Taylor(middle, g, None, 2 * UNIT * (np.abs(middle) + half) + TINY)


def peak(a: FloatArray, t: FloatArray | float) -> FloatArray:
    """Maximum of a s + t s^2 over s in [-1, 1]."""
    inside = (t < 0) & (np.abs(a) < -2 * t)
    below = np.where(inside, -4.0 * t, 1.0)
    return np.asarray(np.where(inside, a * (a / below), np.abs(a) + t))


def _add(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _scale(part: FloatArray | None, factor: FloatArray | float) -> FloatArray | None:
    return None if part is None else part * factor


def _product(a: Taylor, b: Taylor) -> Taylor:
    """Product of two functions of s."""
    assert a.g is not None
    assert b.g is not None
    n = len(a.g)
    c, g = a.c * b.c, a.c * b.g + b.c * a.g
    t = np.stack([
        a.g[i] * b.g[j] + a.g[j] * b.g[i] if i != j else a.g[i] * b.g[i] for i, j in pairs(n)
    ])
    size_a = a.size
    size_b = size_a if a is b else b.size
    e = a.e * size_b + b.e * size_a + a.e * b.e + (4 + 4 * n) * UNIT * size_a * size_b + TINY
    if b.t is not None:
        factor = 2.0 if a is b else 1.0
        t = t + factor * a.c * b.t
        g, e = _cubic(g, e, factor * a.g, b.t)
    if a.t is not None and a is not b:
        t = t + b.c * a.t
        g, e = _cubic(g, e, b.g, a.t)
    if a.t is not None and b.t is not None:
        c, t, e = _quartic(c, t, e, a.t, b.t)
    return Taylor(c, g, t, e)


def _cubic(
    g: FloatArray, e: FloatArray, one: FloatArray, t: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The terms (sum_i one_i s_i)(sum t_jk s_j s_k), folded into degree one and the remainder."""
    n, g = len(one), g.copy()
    position = {pair: k for k, pair in enumerate(pairs(n))}
    for i in range(n):
        pure = one[i] * t[position[i, i]]  # s^3 = 3/4 s + T3/4
        g[i] += 0.75 * pure
        e = e + 0.25 * np.abs(pure)
        for j in range(n):
            if j == i:
                continue
            mixed = one[j] * t[position[i, i]]  # s_i^2 s_j = s_j/2 +- 1/2
            mixed = mixed + one[i] * t[position[min(i, j), max(i, j)]]
            g[j] += 0.5 * mixed
            e = e + 0.5 * np.abs(mixed)
            for k in range(j + 1, n):
                if k != i:
                    e = e + np.abs(one[i] * t[position[j, k]])
    return g, e


def _quartic(
    c: FloatArray, t: FloatArray, e: FloatArray, one: FloatArray, other: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The terms (sum one_ij s_i s_j)(sum other_kl s_k s_l), folded likewise."""
    both = np.abs(one).sum(axis=0) * np.abs(other).sum(axis=0)
    n = int(np.sqrt(2 * len(one)))
    t = t.copy()
    for k, (i, j) in enumerate(pairs(n)):
        if i == j:
            pure = one[k] * other[k]  # s^4 = s^2 - 1/8 + T4/8
            t[k] += pure
            c = c - pure / 8
            both = both - 0.875 * np.abs(pure)
    return c, t, e + np.maximum(both, 0.0)


LIBRARY = 8 * UNIT  # relative error of the elementary functions of NumPy and SciPy, with room
NODE = np.sqrt(0.75)
SIGMOID_TURNS = (-2.2924316695611777, 0.0, 2.2924316695611777)  # where |sigma'''| is largest
SOFTPLUS_TURNS = (-1.3169578969248166, 1.3169578969248166)  # where |sigma''| is largest

Bound = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Univariate:
    """A function and what its enclosure needs, for intervals (lower, upper).

    value  elementwise; nan where the function is not defined
    first  upper bound on |h'|;  third: upper bound on |h'''|; infinite where there is none
    ends   bounds on h, None if it is monotone
    """

    value: Callable[[FloatArray], FloatArray]
    first: Bound
    third: Bound
    ends: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]] | None = None

    def __call__(self, f: Taylor) -> Taylor:
        """h(f); its remainder is infinite where h is not defined on all of f's range."""
        with np.errstate(all="ignore"):
            lower, upper = f.range()
            a, b = (self.ends or self._at_ends)(lower, upper)
            size = np.maximum(np.abs(a), np.abs(b))
            flat = _known(np.abs(b - a) / 2 + LIBRARY * size + TINY)
            middle = (a + b) / 2
            if f.is_constant:
                return self._of_constant(f, middle, flat)
            return self._composed(f, (lower, upper), (middle, size, flat))

    def _of_constant(self, f: Taylor, middle: FloatArray, flat: FloatArray) -> Taylor:
        """h of a number, by its slope or by its range, whichever is narrower."""
        at = self.value(f.c)
        near = self.first(f.c - f.e, f.c + f.e) * f.e * GROWTH + LIBRARY * np.abs(at) + TINY
        better = np.isfinite(at) & (near < flat)
        c = np.where(better, at, np.where(np.isfinite(flat), middle, 0.0))
        return Taylor(c, None, None, np.where(better, near, flat))

    def _at_ends(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.value(lower), self.value(upper)

    def _composed(
        self, f: Taylor, ends: tuple[FloatArray, FloatArray], coarse: tuple[FloatArray, ...]
    ) -> Taylor:
        """Quadratic where it is better than the constant `coarse` (middle, size, half width)."""
        (lower, upper), (middle, size, flat) = ends, coarse
        m, r = (lower + upper) / 2, (upper - lower) / 2 * GROWTH + TINY
        at, below, above = (self.value(m + k * NODE * r) for k in (0, -1, 1))
        # Values are rounded, and so are the nodes where they are taken.
        shaky = LIBRARY * (size + self.first(lower, upper) * (np.abs(m) + r))
        curved = _known((self.third(lower, upper) * r**3 / 24 + 4 * shaky) * GROWTH)
        better = curved < flat
        q0 = np.where(better, at, np.where(np.isfinite(flat), middle, 0.0))
        q1 = np.where(better, (above - below) / (2 * NODE), 0.0)
        q2 = np.where(better, (above + below - 2 * at) * (2 / 3), 0.0)
        e = np.where(better, (f.e + 2 * UNIT * (f.size + np.abs(m))) / r, 0.0)
        v = Taylor((f.c - m) / r, _over(f.g, r), _over(f.t, r), e)
        return v.quadratic((q0, q1, q2), np.where(better, curved, flat))


def _over(part: FloatArray | None, r: FloatArray) -> FloatArray | None:
    return None if part is None else part / r


def _known(e: FloatArray) -> FloatArray:
    return np.where(np.isnan(e), np.inf, e)


def _positive(lower: FloatArray, bound: FloatArray) -> FloatArray:
    return np.where(lower > 0, bound, np.inf)


def _sigmoid_third(z: FloatArray) -> FloatArray:
    p = expit(z) * expit(-z)
    return np.abs(p * (1 - 6 * p))


def _softplus_third(z: FloatArray) -> FloatArray:
    p, q = expit(z), expit(-z)
    return np.abs(p * q * (q - p))


def _largest(f: Callable[[FloatArray], FloatArray], turns: tuple[float, ...]) -> Bound:
    """Largest value of f over an interval: at its ends, or where f turns inside."""

    def bound(lower: FloatArray, upper: FloatArray) -> FloatArray:
        best = np.maximum(f(lower), f(upper))
        for z in turns:
            inside = (lower <= z) & (z <= upper)
            best = np.where(inside, np.maximum(best, f(np.array(z))), best)
        return best * GROWTH

    return bound


def _nonzero(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Smallest magnitude in an interval; 0 if zero is in it."""
    return np.maximum(np.maximum(lower, -upper), 0.0)


def _reciprocal_ends(lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    away = _nonzero(lower, upper) > 0
    return np.where(away, 1 / upper, -np.inf), np.where(away, 1 / lower, np.inf)


exp = Univariate(np.exp, lambda a, b: np.exp(b) * GROWTH, lambda a, b: np.exp(b) * GROWTH)
reciprocal = Univariate(
    lambda x: 1 / x,
    lambda a, b: _nonzero(a, b) ** -2.0 * GROWTH,
    lambda a, b: 6 * _nonzero(a, b) ** -4.0 * GROWTH,
    _reciprocal_ends,
)
log = Univariate(
    lambda x: np.log(np.where(x > 0, x, np.nan)),
    lambda a, b: _positive(a, 1 / a),
    lambda a, b: _positive(a, 2 / a**3 * GROWTH),
)
sigmoid = Univariate(
    expit, lambda a, b: np.full_like(b, 0.25), _largest(_sigmoid_third, SIGMOID_TURNS)
)
softplus = Univariate(
    lambda z: np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z))),
    lambda a, b: np.ones_like(b),
    _largest(_softplus_third, SOFTPLUS_TURNS),
)
absolute = Univariate(
    np.abs,
    lambda a, b: np.ones_like(b),
    lambda a, b: np.where(_nonzero(a, b) > 0, 0.0, np.inf),
    lambda a, b: (_nonzero(a, b), np.maximum(-a, b)),
)
sine = Univariate(
    np.sin,
    lambda a, b: np.ones_like(b),
    lambda a, b: np.ones_like(b),
    lambda a, b: (-np.ones_like(a), np.ones_like(b)),
)
cosine = replace(sine, value=np.cos)


def power(exponent: float) -> Univariate:
    """x ** exponent for positive x and any exponent."""

    def bound(derivative: int) -> Bound:
        left = exponent - derivative
        factor = abs(float(np.prod(exponent - np.arange(derivative))))

        def largest(lower: FloatArray, upper: FloatArray) -> FloatArray:
            x = np.where(lower > 0, lower, np.nan)
            return _positive(lower, factor * np.maximum(x**left, upper**left) * GROWTH)

        return largest

    def value(x: FloatArray) -> FloatArray:
        return np.asarray(np.where(x > 0, x, np.nan) ** exponent)

    return Univariate(value, bound(1), bound(3))
