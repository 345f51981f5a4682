"""Enclosures of the columns over cells, computed once; and the boxes of the search.

The remainders of a cell's rows become one number, their Euclidean norm, because |u . e| <= |u| |e|
for every u. A row whose enclosure is infinite on a cell is a row of which nothing is known there;
one whose remainder would drown all others is treated so.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from igpe.algebraic.bounds.separable import Separable, Span
from igpe.algebraic.bounds.taylor.taylor import GROWTH, UNIT, Taylor
from igpe.core.arrays import BoolArray, FloatArray

MOST_KEPT = 25_000_000  # numbers in enclosures that are kept
CHUNK = 30_000  # numbers of one array that are enclosed at a time; in thousands of rows fewer,
LONG, CHUNK_OF_LONG = 1000, 10_000  # as memory of large arrays comes from the system each time


Key = tuple[int, ...]  # a column, then the numbers of the span on each axis it depends on


class Cells(NamedTuple):
    """One column on several cells, r residuals.

    parts   (n_cells, n_parts, r) c, g_1.., t_11, t_12..
    errors  (n_cells,) bounds on the Euclidean norm of all that the polynomial leaves out, rounding
            included
    usable  (r,) rows of which something is known on every cell; in `parts` of one cell the others
            are zero
    """

    parts: FloatArray
    errors: FloatArray
    usable: BoolArray


class ColumnCells:
    """The columns of a problem on cells."""

    def __init__(self, problem: Separable) -> None:
        self.problem = problem
        self._first = [problem.same_axes(k)[0] for k in range(1 + problem.n_linear)]
        self._kept = 0
        self._known: dict[Key, Cells] = {}
        self._stacked: dict[tuple[Key, int], Cells] = {}

    def cells(self, key: Key, halvings: int) -> Cells:
        """The column on a cell whose axes are halved so many times."""
        if (key, halvings) not in self._stacked:
            keys = subcells(key, halvings)
            if any(k not in self._known for k in keys):
                self.prepare(keys)
            parts, errors, usable = zip(*(self._known[k] for k in keys), strict=True)
            self._stacked[key, halvings] = Cells(
                np.concatenate(parts), np.concatenate(errors), np.logical_and.reduce(usable)
            )
        return self._stacked[key, halvings]

    def prepare(self, keys: Iterable[Key]) -> None:
        """Enclose what is not known yet."""
        if self._kept > MOST_KEPT:
            self._known.clear()
            self._stacked.clear()
            self._kept = 0
        groups: dict[tuple[int, bool], list[Key]] = {}
        for key in dict.fromkeys((self._first[k], *cell) for k, *cell in keys):
            if key not in self._known:
                groups.setdefault((key[0], self._at_zero(key)), []).append(key)
        rows = len(self.problem.target)
        chunk = max((CHUNK if rows < LONG else CHUNK_OF_LONG) // rows, 1)
        for own in groups.values():
            for begin in range(0, len(own), chunk):
                self._enclose(own[begin : begin + chunk])

    def _at_zero(self, key: Key) -> bool:
        """Whether the cell begins at zero on an axis, so that no logarithm can be taken."""
        own = (self.problem.axes[a] for a in self.problem.depends[key[0]])
        return any(
            index == 0 and axis.log_affine and axis.lower <= 0
            for index, axis in zip(key[2::3], own, strict=True)
        )

    def _enclose(self, keys: list[Key]) -> None:
        own = self.problem.depends[keys[0][0]]
        numbers = np.array(keys)[:, 1:].reshape(len(keys), len(own), 3)
        ends = [self.problem.axes[a].ends(*numbers[:, j].T) for j, a in enumerate(own)]
        lower, upper = np.stack(ends, axis=-1) if ends else np.zeros((2, len(keys), 0))
        group = self.problem.same_axes(keys[0][0])
        for k, f in zip(group, self.problem.enclosures(group, lower, upper), strict=True):
            good = np.isfinite(f.e) & ~_worthless(f)
            parts = np.where(good, np.concatenate([f.c[None], f.g, f.t]), 0.0).transpose(1, 0, 2)
            rounding = (64 + f.c.shape[1]) * UNIT * np.linalg.norm(parts, axis=2).sum(axis=1)
            errors = (np.linalg.norm(np.where(good, f.e, 0.0), axis=1) + rounding) * GROWTH
            for i, key in enumerate(keys):
                cell = Cells(parts[i : i + 1].copy(), errors[i : i + 1], good[i])
                self._known[k, *key[1:]] = cell
                self._kept += 2 * cell.parts.size  # they are stacked as well


def _worthless(f: Taylor) -> BoolArray:
    """(n_boxes, n_residuals) rows that are better given up: they would drown all others.

    Their remainder alone is larger than the whole column, as far as it is known at all.
    """
    size = f.size
    length = np.sqrt(np.sum(np.where(f.e <= size, f.c, 0.0) ** 2, axis=1, keepdims=True))
    return np.asarray((f.e > length) & (length > 0))


def subcells(key: Key, halvings: int) -> list[Key]:
    """The cells into which a cell falls when each of its axes is halved so many times."""
    parts = [Span(*key[i : i + 3]).parts(halvings) for i in range(1, len(key), 3)]
    return [(key[0], *itertools.chain.from_iterable(cell)) for cell in itertools.product(*parts)]


ROOM = 1e-12  # for the rounding of a difference, relative to its terms


@dataclass(frozen=True)
class SearchBox:
    """A box of the search: a span of each axis, and bounds on the linear parameters.

    spans         (J,) of the axes
    lower, upper  (K,) of the linear parameters
    halvings      of the axes that were needed to bound the box this one comes from
    """

    spans: tuple[Span, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    halvings: int = 1

    def halves(self, axis: int, halvings: int) -> "tuple[SearchBox, SearchBox]":
        """The two halves on an axis, with what is known of the cells they need."""
        low, high = (_with(self.spans, axis, span) for span in self.spans[axis].parts(1))
        return replace(self, spans=low, halvings=halvings), replace(
            self, spans=high, halvings=halvings
        )

    def signs(self, k: int) -> "tuple[SearchBox, SearchBox]":
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
        lower, upper = np.array(ends, dtype=float).reshape(-1, 2).T
        return lower, upper

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
    box: SearchBox


def root(problem: Separable) -> SearchBox:
    """All of the problem."""
    spans = (Span(0, 0),) * len(problem.axes)
    return SearchBox(spans, tuple(problem.lower.tolist()), tuple(problem.upper.tolist()))


def _with(items: tuple[Any, ...], k: int, value: Any) -> tuple[Any, ...]:
    return (*items[:k], value, *items[k + 1 :])
