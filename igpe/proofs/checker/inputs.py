"""Inputs given by tables: straight lines between two stops.

On a line through (t_0, y_0) with slope b an input is y_0 + b (t - t_0). The slope is an interval
that holds the exact (y_1 - y_0) / (t_1 - t_0), and what it is rounded to.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.problem.inputs import Table
from igpe.proofs.checker.interval import Interval, outward, point
from igpe.proofs.checker.polynomial import Polynomial, Space
from igpe.proofs.checker.rounding import UNIT, up


class Line(NamedTuple):
    """One input, each array for all boxes, or for all stops it leads to."""

    start: FloatArray
    value: FloatArray
    slope: Interval

    def of(self, k: IntArray) -> "Line":
        """The lines that lead to these stops."""
        return Line(self.start[k], self.value[k], Interval(self.slope.low[k], self.slope.high[k]))

    def between(self, time: Interval) -> Interval:
        """Its values over some times."""
        return point(self.value) + self.slope * (time - point(self.start))

    def polynomial(self, space: Space, t: FloatArray, h: FloatArray) -> Polynomial:
        """Its value at t + tau h, for a length h known up to two units of rounding."""
        length = outward(h * (1 - 8 * UNIT), h * (1 + 8 * UNIT))
        parts = [self.between(point(t)), self.slope * length][: space.order + 1]
        c = np.zeros((space.size, len(parts), len(t)))
        for i, part in enumerate(parts):
            c[0, i] = part.middle
        return Polynomial(space, c, up(np.sum([part.radius for part in parts], axis=0)))


def line(table: Table, begins: Sequence[float]) -> Line:
    """A table from each of some times until it, or its slope, jumps again.

    Before its first and after its last point it is constant; one that is held always is.
    """
    t, y = table.times, table.values
    k = np.searchsorted(t, np.asarray(begins), side="right") - 1
    inside = (k >= 0) & (k < len(t) - 1) & (not table.hold)
    k = np.maximum(k, 0)
    after = np.minimum(k + 1, len(t) - 1)
    rise, run = point(y[after]) - point(y[k]), point(t[after]) - point(t[k])
    slope = rise / Interval(np.where(inside, run.low, 1.0), np.where(inside, run.high, 1.0))
    low, high = (np.where(inside, end, 0.0) for end in (slope.low, slope.high))
    return Line(t[k], y[k], Interval(low, high))
