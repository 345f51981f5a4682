"""What a search does around the best point known: cut its neighbourhood out of boxes.

Boxes inside a neighbourhood (`neighbourhood.py`) have its bound. A box that is larger is not halved
towards it, once for each axis and digit of the gap, but cut along its edges in one go.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from igpe.algebraic.bounds.box import Box
from igpe.algebraic.bounds.neighbourhood import Neighbourhood, neighbourhood
from igpe.algebraic.bounds.separable import Separable
from igpe.core.arrays import FloatArray

SMALL = 0.1  # of the goal: a box around the best point with such a bound is small
EXPENSIVE = 5  # boxes, that cost as much as to find a neighbourhood
FINENESS = 16  # cells into which a neighbourhood falls, at least, where it is cut out
DEEPEST = 50  # level of a span beyond which rounding rules
SMALLEST = 1e-15  # gap, for what it costs to close it


class Gap(NamedTuple):
    """Sums of squares: of the best point, the bound that is asked for, and a box's."""

    objective: float
    goal: float
    lower: float

    @property
    def allowed(self) -> float:
        """What may be left."""
        return self.objective - self.goal

    def halves(self, n_axes: int) -> float:
        """About how many boxes it takes to halve one around the optimum until it is closed.

        What a bound loses falls to a quarter when all axes are halved, two boxes for each.
        """
        lost = self.objective - self.lower
        if lost <= self.allowed or self.allowed < SMALLEST * self.objective:
            return 0.0
        return 2 * n_axes * math.log(lost / self.allowed, 4)


class Surroundings:
    """The neighbourhood of the best point, once it is worth looking for.

    best  () -> theta of the best point known; None if there is none
    """

    def __init__(self, problem: Separable, best: Callable[[], FloatArray | None]) -> None:
        self.problem, self.best = problem, best
        self._found: Neighbourhood | None = None
        self._objective = math.inf

    def look(self, box: Box, gap: Gap) -> None:
        """Find it, if the box is small, around the best point, and far from closed."""
        n = len(self.problem.axes)
        worth = 2 * n + EXPENSIVE  # boxes, as many as it will cost to find it and to cut it out
        if (
            gap.halves(n) < worth
            or gap.lower < SMALL * gap.goal
            or self._objective <= gap.objective
        ):
            return
        theta = self.best()
        if theta is None or not box.holds(self.problem, theta):
            return
        self._objective = gap.objective
        growth = 4 ** (worth / (2 * n)) * gap.allowed
        self._found = neighbourhood(self.problem, theta, gap.goal, growth)

    def lower_bound(self, box: Box) -> float:
        """Of a box inside the neighbourhood; 0 of others."""
        if self._found is None or not self._found.covers(*box.ends(self.problem)):
            return 0.0
        return self._found.lower_bound

    def pieces(self, box: Box, gap: Gap) -> tuple[Box, ...]:
        """What is around the neighbourhood, and what is in it; nothing where that does not pay.

        It pays if the sum of squares has grown there by all that the box's bound lacks, so that
        what is around can be expected to need no more, and if halves would be more.
        """
        found = self._found
        if found is None or found.growth < gap.goal - gap.lower:
            return ()
        pieces: list[Box] = []
        low, high = found.theta - found.half, found.theta + found.half
        for j, axis in enumerate(self.problem.axes):
            a, b = axis.coordinate(low[j]), axis.coordinate(high[j])
            level = max(box.spans[j].level, math.ceil(-math.log2((b - a + 1e-15) / FINENESS)))
            if level > DEEPEST:
                return ()
            cells = math.ceil(a * 2**level), math.floor(b * 2**level)
            before, between, after = box.spans[j].cut(level, cells)
            if between is None:
                return ()
            pieces += [box.with_span(j, s) for s in (before, after) if s is not None]
            box = box.with_span(j, between)
        worth = 0 < len(pieces) <= gap.halves(len(self.problem.axes))
        return (*pieces, box) if worth else ()
