"""Univariate functions of Taylor models.

On the range [m - r, m + r] of the argument f, a function h is replaced by the quadratic through its
values at the Chebyshev nodes m and m +- r sqrt(3)/2, which is off by at most

    max |h'''| r^3 / 24

or, where that is smaller, by a constant and half the width of h's range.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from igpe.algebraic.bounds.taylor.taylor import GROWTH, TINY, UNIT, Taylor
from igpe.core.arrays import FloatArray

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
