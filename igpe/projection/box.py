"""A box of the search: a cell on each axis, and bounds on the linear parameters."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from igpe.arrays import FloatArray
from igpe.projection.columns import Key
from igpe.projection.separable import Separable

ROOM = 1e-12  # for the rounding of a difference, relative to its terms


@dataclass(frozen=True)
class Box:
    """See the top of the file.

    level, index  (J,) the cell on each axis: `Axis.cells`
    lower, upper  (K,) of the linear parameters
    halvings      of the axes that were needed to bound the box this one comes from
    """

    level: tuple[int, ...]
    index: tuple[int, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    halvings: int = 1

    def halves(self, axis: int) -> "tuple[Box, Box]":
        """The two boxes of the next level on an axis."""
        level = _with(self.level, axis, self.level[axis] + 1)
        i = 2 * self.index[axis]
        low, high = (_with(self.index, axis, k) for k in (i, i + 1))
        return replace(self, level=level, index=low), replace(self, level=level, index=high)

    def with_halvings(self, halvings: int) -> "Box":
        """The same box with what is known of the cells it needs."""
        return replace(self, halvings=halvings)

    def signs(self, k: int) -> "tuple[Box, Box]":
        """Where the k-th linear parameter is not positive, and where it is not negative."""
        lower, upper = _with(self.lower, k, 0.0), _with(self.upper, k, 0.0)
        return replace(self, upper=upper), replace(self, lower=lower)

    def key(self, problem: Separable, k: int) -> Key:
        """The cell of column k that covers the box."""
        own = ((self.level[a], self.index[a]) for a in problem.depends[k])
        return (k, *itertools.chain.from_iterable(own))

    def ends(self, problem: Separable) -> tuple[FloatArray, FloatArray]:
        """Lower and upper theta (J,)."""
        cells = [
            axis.cells(np.array(level), np.array(index))
            for axis, level, index in zip(problem.axes, self.level, self.index, strict=True)
        ]
        return np.array([c[0] for c in cells], dtype=float), np.array(
            [c[1] for c in cells], dtype=float
        )

    def feasible(self, problem: Separable) -> bool:
        """Whether some theta in it keeps the bounds on differences."""
        if not problem.differences:
            return True
        lower, upper = self.ends(problem)
        size = np.maximum(np.abs(lower), np.abs(upper))
        room = {d: ROOM * (size[d.second] + size[d.first]) for d in problem.differences}
        return all(
            upper[d.second] - lower[d.first] >= d.low - room[d]
            and lower[d.second] - upper[d.first] <= d.high + room[d]
            for d in problem.differences
        )


def root(problem: Separable) -> Box:
    """All of the problem."""
    n = len(problem.axes)
    return Box((0,) * n, (0,) * n, tuple(problem.lower.tolist()), tuple(problem.upper.tolist()))


def _with(items: tuple[Any, ...], k: int, value: Any) -> tuple[Any, ...]:
    return (*items[:k], value, *items[k + 1 :])
