"""Intervals with outward rounding, many at once.

Every bound is moved to the next number outward after every operation. What has no bound (a quotient
by an interval with 0, an overflow, the logarithm of a negative number) is the whole line, and stays
it in sums and products.

IEEE double precision, to nearest: one operation returns its exact result times 1 + d, |d| <= UNIT,
or, where it underflows, at most `TINY` off. Two rules follow, and nothing else is used:

- a sum of n products, however ordered, is off by at most (n + 1) UNIT times the sum of the absolute
  products, as n UNIT / (1 - n UNIT) <= (n + 1) UNIT for all n < 1e7;
- what is computed from numbers >= 0 by at most 4000 additions, multiplications and divisions is not
  above `up` of it and not below `down` of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray

UNIT = 2.0**-53
SLACK = 2.0**-40  # > 4000 UNIT
TINY = 1e-290
LIBRARY = 8  # units in the last place that exp, log, sin, ... of the C library may be off


def up(x: FloatArray) -> FloatArray:
    """Upper bound of the exact number that x >= 0 approximates."""
    return np.asarray(x * (1 + SLACK) + TINY)


def down(x: FloatArray) -> FloatArray:
    """Lower bound of the exact number that x >= 0 approximates."""
    return np.asarray(np.maximum(x * (1 - SLACK) - TINY, 0.0))


def above(x: FloatArray) -> FloatArray:
    """The next number above: an upper bound of the exact result of one rounded operation."""
    return np.asarray(np.nextafter(x, np.inf))


def below(x: FloatArray) -> FloatArray:
    """The next number below."""
    return np.asarray(np.nextafter(x, -np.inf))


@dataclass(frozen=True)
class Interval:
    """All x with low <= x <= high, elementwise; both (n_boxes,) or broadcastable to it."""

    low: FloatArray
    high: FloatArray

    def __add__(self, other: "Interval") -> "Interval":
        return outward(self.low + other.low, self.high + other.high)

    def __sub__(self, other: "Interval") -> "Interval":
        return outward(self.low - other.high, self.high - other.low)

    def __neg__(self) -> "Interval":
        return Interval(-self.high, -self.low)

    def __mul__(self, other: "Interval") -> "Interval":
        ends = (other.low, other.high)
        return _hull([_corner(a, b) for a in (self.low, self.high) for b in ends])

    def __truediv__(self, other: "Interval") -> "Interval":
        with np.errstate(all="ignore"):
            corners = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
        return _hull(corners).unless(~((other.low > 0) | (other.high < 0)))

    def unless(self, unknown: BoolArray) -> "Interval":
        """Return it with the whole line where `unknown`."""
        low, high = np.where(unknown, -np.inf, self.low), np.where(unknown, np.inf, self.high)
        return Interval(low, high)

    def square(self) -> "Interval":
        """x * x of the same x."""
        squared = outward(self.least * self.least, self.size * self.size)
        return Interval(np.maximum(squared.low, 0.0), squared.high)

    def power(self, exponent: "Interval") -> "Interval":
        """Range of powers; those of numbers that are not positive are 0.

        log x to n log x to exp: monotone in both. Where x reaches 0 so does x**n for n > 0, and
        x**n is anything positive for n < 0.
        """
        positive = np.maximum(self.low, 0.0)
        with np.errstate(all="ignore"):
            known = self.low <= self.high
            logarithm = library(np.log(positive), np.log(np.maximum(self.high, 0.0)))
            powers = (exponent * logarithm).monotone(np.exp)
        low = np.where(positive > 0, np.maximum(powers.low, 0.0), 0.0)
        high = np.where(known, powers.high, np.inf)
        return Interval(np.where(known, low, 0.0), np.where(np.isnan(high), np.inf, high))

    def through(self, function: Callable[["Interval", int], list["Interval"]]) -> "Interval":
        """An elementary function of it (`igpe.proofs.checker.functions`)."""
        return function(self, 0)[0]

    @property
    def size(self) -> FloatArray:
        """The largest |x|."""
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))

    @property
    def least(self) -> FloatArray:
        """The least |x|."""
        return np.asarray(np.maximum(np.maximum(self.low, -self.high), 0.0))

    @property
    def middle(self) -> FloatArray:
        """Some number inside, or nan."""
        with np.errstate(all="ignore"):
            return np.asarray(np.clip(self.low / 2 + self.high / 2, self.low, self.high))

    @property
    def radius(self) -> FloatArray:
        """Upper bound of the distance of `middle` to either end."""
        with np.errstate(all="ignore"):
            return above(np.maximum(self.high - self.middle, self.middle - self.low))

    def monotone(self, function: Callable[[FloatArray], FloatArray]) -> "Interval":
        """An increasing function of the C library."""
        with np.errstate(all="ignore"):
            return library(function(self.low), function(self.high))


def outward(low: FloatArray, high: FloatArray) -> Interval:
    """Bounds that one operation rounded, moved apart; the whole line where one is no number."""
    moved = Interval(np.asarray(below(low)), np.asarray(above(high)))  # of inf: the largest double
    bad = ~(moved.low <= moved.high)
    return moved.unless(bad) if bad.any() else moved


def library(low: FloatArray, high: FloatArray) -> Interval:
    """Bounds that a function of the C library returned, moved apart by `LIBRARY` units."""
    units = [LIBRARY * np.where(np.isinf(x), 0.0, np.spacing(np.abs(x))) for x in (low, high)]
    return outward(low - units[0], high + units[1])


def point(value: FloatArray | float) -> Interval:
    """A number that is known exactly."""
    exact = np.asarray(value, dtype=float)
    return Interval(exact, exact)


def _corner(a: FloatArray, b: FloatArray) -> FloatArray:
    """Product of two ends. An infinite end is no value, so that zero times it is zero."""
    with np.errstate(all="ignore"):
        product = np.asarray(a * b)
        if np.isfinite(product).all():
            return product
        nothing = ((a == 0) & ~np.isnan(b)) | ((b == 0) & ~np.isnan(a))
        return np.asarray(np.where(nothing, 0.0, product))


def _hull(corners: Sequence[FloatArray]) -> Interval:
    return outward(reduce(np.minimum, corners), reduce(np.maximum, corners))  # nan is handed on
