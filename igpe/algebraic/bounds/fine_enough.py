"""Bounds of boxes whose columns are enclosed on cells as fine as are needed."""

from collections.abc import Sequence

import numpy as np

from igpe.algebraic.bounds.bound import Bounded, Ranges, bound
from igpe.algebraic.bounds.box import Box
from igpe.algebraic.bounds.columns import Columns, cell_places, subcells
from igpe.algebraic.bounds.hull import Hull, Part
from igpe.algebraic.bounds.separable import Separable

FINEST = {0: 0, 1: 4, 2: 2, 3: 2}  # most halvings of a box for its cells, by number of axes
FINEST_OF_MANY = {0: 0, 1: 3, 2: 1, 3: 1}  # the same where each cell has
PLANE = 2  # axes; columns of more have many cells
MANY = 1000  # residuals or more


class FineEnough:
    """Bounds boxes.

    active  the columns that are not zero
    """

    def __init__(self, problem: Separable, columns: Columns) -> None:
        self.problem, self.columns = problem, columns
        self.active = [
            k
            for k in range(1 + problem.n_linear)
            if k > 0 or not all(b.is_zero(0) for b in problem.blocks)
        ]
        self._finest = max((self._halvings(k, 99) for k in self.active), default=0)

    def bounded(self, boxes: Sequence[Box], cutoff: float) -> list[tuple[Hull, Bounded]]:
        """Bound each box, with cells as fine as are needed; cutoff: a norm that is enough."""
        done: dict[int, tuple[Hull, Bounded]] = {}
        waiting = set(range(len(boxes)))
        coarsest = min((b.halvings for b in boxes), default=1)
        for halvings in range(coarsest, max(self._finest, 1) + 1):
            now = [i for i in sorted(waiting) if min(boxes[i].halvings, self._finest) <= halvings]
            self.prepare([boxes[i] for i in now], halvings)
            for i in now:
                hull, ranges = self.hull(boxes[i], halvings)
                bounded = bound(self.columns.target, self.columns.doubt, hull, ranges, cutoff)
                done[i] = hull, bounded._replace(halvings=halvings)
                if bounded.lower >= cutoff or bounded.residual < cutoff:
                    waiting.discard(i)  # finer cells would not change that
        return [done[i] for i in range(len(boxes))]

    def prepare(self, boxes: Sequence[Box], halvings: int) -> None:
        """Enclose what bounding and dividing the boxes needs, together."""
        self.columns.prepare(
            key
            for box in boxes
            for k in self.active
            for m in {0, self._halvings(k, 1), self._halvings(k, halvings)}
            for key in subcells(box.key(self.problem, k), m)
        )

    def _halvings(self, k: int, wanted: int) -> int:
        own = self.problem.depends[k]
        if len(own) > PLANE and any(self.problem.axes[a].log_affine for a in own):
            return min(wanted, 1)  # in logarithms enclosures are good enough for that many cells
        finest = FINEST if len(self.problem.target) < MANY else FINEST_OF_MANY
        return min(wanted, finest.get(len(own), 1))

    def hull(self, box: Box, halvings: int) -> tuple[Hull, Ranges]:
        """The columns on the box, those of parameters of any sign twice; and their factors."""
        parts: list[Part] = []
        lower, upper, index = [], [], {}
        for k in self.active:
            own, m = self.problem.depends[k], self._halvings(k, halvings)
            cells = self.columns.cells(box.key(self.problem, k), m)
            low, high = (1.0, 1.0) if k == 0 else (box.lower[k - 1], box.upper[k - 1])
            for sign, a, b in ((1.0, low, high), (-1.0, -high, -low)):
                if b > 0:
                    index[k] = len(parts)
                    parts.append(Part(k, cells, cell_places(len(own), m), own, sign))
                    lower.append(max(a, 0.0))
                    upper.append(b)
        ratios = tuple(
            (index[r.first + 1], index[r.second + 1], r.low, r.high)
            for r in self.problem.ratios
            if r.first + 1 in index and r.second + 1 in index
        )
        return Hull(parts, len(self.columns.target)), Ranges(
            np.array(lower), np.array(upper), ratios
        )
