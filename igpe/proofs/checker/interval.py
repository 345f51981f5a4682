"""Intervals with outward rounding, many at once: sums of squares, inputs given by tables.

Every bound is moved to the next number outward after every operation. What has no bound is the
whole line. IEEE double precision, to nearest: one operation returns its exact result times 1 + d,
|d| <= UNIT, or, where it underflows, at most `TINY` off (`kernels.polynomials`: what follows).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray

UNIT = 2.0**-53
SLACK = 2.0**-40  # > 4000 UNIT
TINY = 1e-290


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
        least = np.maximum(np.maximum(self.low, -self.high), 0.0)
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        squared = outward(least * least, size * size)
        return Interval(np.maximum(squared.low, 0.0), squared.high)


def outward(low: FloatArray, high: FloatArray) -> Interval:
    """Bounds that one operation rounded, moved apart; the whole line where one is no number."""
    moved = Interval(np.asarray(below(low)), np.asarray(above(high)))  # of inf: the largest double
    bad = ~(moved.low <= moved.high)
    return moved.unless(bad) if bad.any() else moved


def point(value: FloatArray | float) -> Interval:
    """A number that is known exactly."""
    exact = np.asarray(value, dtype=float)
    return Interval(exact, exact)


def _hull(corners: Sequence[FloatArray]) -> Interval:
    return outward(reduce(np.minimum, corners), reduce(np.maximum, corners))  # nan is handed on
