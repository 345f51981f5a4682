"""A box of the search: a span of each axis, and bounds on the linear parameters."""

import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from igpe.algebraic.bounds.axis import Span
from igpe.algebraic.bounds.columns import Key
from igpe.algebraic.bounds.separable import Separable
from igpe.core.arrays import FloatArray

ROOM = 1e-12  # for the rounding of a difference, relative to its terms


@dataclass(frozen=True)
class Box:
    """See the top of the file.

    spans         (J,) of the axes
    lower, upper  (K,) of the linear parameters
    halvings      of the axes that were needed to bound the box this one comes from
    """

    spans: tuple[Span, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    halvings: int = 1

    def halves(self, axis: int) -> "tuple[Box, Box]":
        """The two halves on an axis."""
        low, high = self.spans[axis].parts(1)
        return self.with_span(axis, low), self.with_span(axis, high)

    def with_span(self, axis: int, span: Span) -> "Box":
        """The box with another span of an axis."""
        return replace(self, spans=_with(self.spans, axis, span))

    def with_halvings(self, halvings: int) -> "Box":
        """The same box with what is known of the cells it needs."""
        return replace(self, halvings=halvings)

    def signs(self, k: int) -> "tuple[Box, Box]":
        """Where the k-th linear parameter is not positive, and where it is not negative."""
        lower, upper = _with(self.lower, k, 0.0), _with(self.upper, k, 0.0)
        return replace(self, upper=upper), replace(self, lower=lower)

    def key(self, problem: Separable, k: int) -> Key:
        """The cell of column k that covers the box."""
        return (k, *itertools.chain.from_iterable(self.spans[a] for a in problem.depends[k]))

    def ends(self, problem: Separable) -> tuple[FloatArray, FloatArray]:
        """Lower and upper theta (J,)."""
        both = zip(problem.axes, self.spans, strict=True)
        ends = [axis.ends(*(np.array(number) for number in span)) for axis, span in both]
        return np.array([e[0] for e in ends], dtype=float), np.array(
            [e[1] for e in ends], dtype=float
        )

    def holds(self, problem: Separable, theta: FloatArray) -> bool:
        """Whether theta (J,) is in it."""
        lower, upper = self.ends(problem)
        return bool(((lower <= theta) & (theta <= upper)).all())

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


class Open(NamedTuple):
    """A box in the queue, smallest bound first, the older of equals first."""

    lower_bound: float
    number: int
    box: Box


def root(problem: Separable) -> Box:
    """All of the problem."""
    spans = (Span(0, 0),) * len(problem.axes)
    return Box(spans, tuple(problem.lower.tolist()), tuple(problem.upper.tolist()))


def _with(items: tuple[Any, ...], k: int, value: Any) -> tuple[Any, ...]:
    return (*items[:k], value, *items[k + 1 :])
