"""Enclosures of the columns over cells, few numbers each, computed once.

Residuals are many, but all columns at all theta lie near a space of few dimensions. With any
matrix P

    | d - Phi beta |  >=  | P (d - Phi beta) | / |P|

so bounds are computed in the coordinates P, whose rows are an orthonormal basis of sampled columns
and of d: nothing is lost but what the samples miss. The remainders of a cell's rows become one
number, their Euclidean norm, because |u . e| <= |u| |e| for every u.

A row whose enclosure is infinite on a cell is a row of which nothing is known there; one whose
remainder would drown all others is treated so. Rows that are well known everywhere are reduced
together; the others keep a coordinate each, which a cell may lack.

Few coordinates in which residuals are bounded: an orthonormal basis of sampled columns.

Which columns span the rest is decided on some of the residuals; those chosen are then computed
whole, and fresh samples tell whether the span misses anything. Any basis is valid: what it misses
weakens bounds and nothing else.

A box of the search: a span of each axis, and bounds on the linear parameters.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import qr

from igpe.algebraic.bounds.separable import Separable, Span
from igpe.algebraic.bounds.taylor.taylor import GROWTH, TINY, UNIT, Taylor
from igpe.core.arrays import BoolArray, FloatArray, IntArray

FEW = 64  # residuals that are not worth reducing
ENOUGH = 400  # residuals on which columns are chosen
SAMPLES = 16  # thetas whose columns are evaluated first
FRESH = 6  # thetas that test the span
WORSE = 1e4  # times the median remainder: a row that may have to be given up alone


def basis(problem: Separable, seed: int, miss: float) -> FloatArray:
    """P (r, n_residuals).

    seed  of the samples whose span is taken
    miss  share of a column's norm that may lie outside it
    """
    m = len(problem.target)
    if m <= FEW:
        return np.eye(m)
    always = _always_known(problem)
    alone, rows = np.flatnonzero(~always), np.flatnonzero(always)
    reduced = _span_of_columns(problem, rows, seed, miss)
    result = np.zeros((reduced.shape[1] + len(alone), m))
    result[: reduced.shape[1], rows] = reduced.T
    result[np.arange(reduced.shape[1], len(result)), alone] = 1.0
    return result


def _span_of_columns(problem: Separable, rows: IntArray, seed: int, miss: float) -> FloatArray:
    """(n_rows, r) orthonormal basis of the columns; with more samples until there is no more."""
    if len(rows) == 0:
        return np.zeros((0, 0))
    rng = np.random.default_rng(seed)
    few, kept = problem.thinned(ENOUGH, rng)
    inside = np.isin(kept, rows)
    if inside.sum() < FEW:
        few, inside = problem, np.isin(np.arange(len(problem.target)), rows)
    thetas, count = np.zeros((0, len(problem.axes))), SAMPLES
    while True:
        thetas = np.vstack([thetas, problem.thetas(rng.random((count, len(problem.axes))))])
        samples = few.values(thetas)[:, inside]
        chosen = _spanning(samples, miss / 10)
        fresh = problem.thetas(rng.random((FRESH, len(problem.axes))))
        enough = 2 * len(chosen.theta) > len(rows)
        result = _span(samples[chosen.theta, :, chosen.column].T, miss / 10)
        if enough or _missed(result, few.values(fresh)[:, inside]) <= miss:
            columns = problem.values(thetas[chosen.theta])[:, rows]
            each = columns[np.arange(len(chosen.theta)), :, chosen.column].T
            result = _span(np.hstack([problem.target[rows, None], each]), miss / 10)
            missed = _missed(result, problem.values(fresh)[:, rows])
            if missed <= miss or enough:
                return result if missed <= miss else np.eye(len(rows))
        thetas, count = np.vstack([thetas, fresh]), 2 * count


class _Chosen(NamedTuple):
    """(n,) theta and column of each of the samples that span the others."""

    theta: IntArray
    column: IntArray


def _spanning(samples: FloatArray, negligible: float) -> _Chosen:
    """Of samples (n_thetas, n_rows, n_columns), the fewest that come so near to all."""
    every = _unit(samples.transpose(1, 0, 2).reshape(samples.shape[1], -1))
    triangle, order = qr(every, mode="r", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(triangle))
    rank = int((sizes > negligible * sizes.max(initial=0.0)).sum())
    return _Chosen(*np.divmod(order[:rank], samples.shape[2]))


def _missed(result: FloatArray, fresh: FloatArray) -> float:
    """The largest part of a fresh sample's norm that is outside the span."""
    every = _unit(fresh.transpose(1, 0, 2).reshape(fresh.shape[1], -1))
    outside = every - result @ (result.T @ every)
    return float(np.linalg.norm(outside, axis=0).max(initial=0.0))


def _always_known(problem: Separable) -> BoolArray:
    """(n_residuals,) rows whose enclosure over the whole box is no worse than most others'."""
    good = np.ones(len(problem.target), dtype=bool)
    for group in {problem.same_axes(k) for k in range(1 + problem.n_linear)}:
        own = [problem.axes[a] for a in problem.depends[group[0]]]
        lower = np.array([[a.lower for a in own]])
        upper = np.array([[a.upper for a in own]])
        for f in problem.enclosures(group, lower, upper):
            e = f.e[0]
            good &= np.isfinite(e) & (e <= WORSE * np.median(e) + TINY)
    return good


def _span(samples: FloatArray, negligible: float) -> FloatArray:
    """(n_rows, r) orthonormal basis of the samples, up to singular values of that share."""
    left, values, _ = np.linalg.svd(_unit(samples), full_matrices=False)
    return np.asarray(left[:, values > negligible * values.max(initial=0.0)])


def _unit(samples: FloatArray) -> FloatArray:
    """The columns with norm one; those that are zero or not finite, zero."""
    with np.errstate(invalid="ignore"):
        size = np.linalg.norm(samples, axis=0)
        scaled = samples / np.where(size > 0, size, 1.0)
    return np.where(np.isfinite(scaled).all(axis=0), scaled, 0.0)


MOST_KEPT = 25_000_000  # numbers in enclosures that are kept
CHUNK = 30_000  # numbers of one array that are enclosed at a time; in thousands of rows fewer,
LONG, CHUNK_OF_LONG = 1000, 10_000  # as memory of large arrays comes from the system each time


Key = tuple[int, ...]  # a column, then the numbers of the span on each axis it depends on


class Cell(NamedTuple):
    """One column on one cell.

    parts   (n_parts, r) coordinates of c, g_1.., t_11, t_12..
    error   bound on the Euclidean norm of all that the polynomial leaves out, rounding included
    usable  (r,) coordinates of which something is known; the others are zero in `parts`
    """

    parts: FloatArray
    error: float
    usable: BoolArray


class Cells(NamedTuple):
    """One column on several cells.

    parts   (n_cells, n_parts, r);  errors: (n_cells,)
    usable  (r,) coordinates of which something is known on every cell
    """

    parts: FloatArray
    errors: FloatArray
    usable: BoolArray


class ColumnCells:
    """The columns of a problem in few coordinates.

    seed  of the samples whose span is taken
    miss  share of a column's norm that may lie outside it: a bound is weaker by the square of that
    """

    def __init__(self, problem: Separable, seed: int, miss: float = 1e-7) -> None:
        self.problem = problem
        self.basis = basis(problem, seed, miss)
        single = (self.basis != 0).sum(axis=1) == 1
        self._alone = np.any(self.basis[single] != 0, axis=0)
        self.target = self.basis @ problem.target
        r, m = self.basis.shape
        self._plain = bool(r == m and np.array_equal(self.basis, np.eye(m)))
        excess = np.linalg.norm(self.basis @ self.basis.T - np.eye(r)) + m * r * UNIT
        self.norm = float(np.sqrt(1 + excess)) * GROWTH
        """Upper bound on |P|."""
        self.doubt = m * r * UNIT * float(np.linalg.norm(problem.target)) * GROWTH
        """Upper bound on the rounding error of `target`, as a norm."""
        self._support = (self.basis != 0).astype(np.float32)
        self._first = [problem.same_axes(k)[0] for k in range(1 + problem.n_linear)]
        self._kept = 0
        self._known: dict[Key, Cell] = {}
        self._stacked: dict[tuple[Key, int], Cells] = {}

    def cell(self, key: Key) -> Cell:
        """The column on the cell; `prepare` computes many at once."""
        if key not in self._known:
            self.prepare([key])
        return self._known[key]

    def cells(self, key: Key, halvings: int) -> Cells:
        """The column on a cell whose axes are halved so many times."""
        if (key, halvings) not in self._stacked:
            result = [self.cell(k) for k in subcells(key, halvings)]
            usable = result[0].usable
            for cell in result[1:]:
                usable = usable & cell.usable
            self._stacked[key, halvings] = Cells(
                np.stack([c.parts for c in result]), np.array([c.error for c in result]), usable
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
        for own in groups.values():
            rows = self.basis.shape[1]
            chunk = max((CHUNK if rows < LONG else CHUNK_OF_LONG) // rows, 1)
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
        result = self.problem.enclosures(group, lower, upper)
        for k, f in zip(group, result, strict=True):
            for key, cell in zip(keys, self._cells(f), strict=True):
                self._known[k, *key[1:]] = cell
                self._kept += 2 * cell.parts.size  # they are stacked as well

    def _cells(self, f: Taylor) -> list[Cell]:
        good = np.isfinite(f.e) & ~(self._alone & _worthless(f))
        parts = np.concatenate([f.c[None], f.g, f.t])
        parts = np.where(good, parts, 0.0).transpose(1, 0, 2)
        if self._plain:
            reduced, usable = np.ascontiguousarray(parts), good
        else:
            usable = (~good).astype(np.float32) @ self._support.T == 0
            reduced = parts @ self.basis.T * usable[:, None, :]
        error = np.linalg.norm(np.where(good, f.e, 0.0), axis=1)
        rounding = (64 + self.basis.size) * UNIT * np.linalg.norm(parts, axis=2).sum(axis=1)
        error = (error + rounding) * self.norm * GROWTH
        return [Cell(*item) for item in zip(reduced, error.tolist(), usable, strict=True)]


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


@lru_cache
def cell_places(n: int, halvings: int) -> FloatArray:
    """(n_cells, 2, n) middles and half widths of the cells of a box [-1, 1]^n."""
    count = 2**halvings
    middles = (2 * np.arange(count) + 1) / count - 1
    grid = np.array(list(itertools.product(middles, repeat=n))).reshape(count**n, n)
    return np.stack([grid, np.full_like(grid, 1 / count)], axis=1)


ROOM = 1e-12  # for the rounding of a difference, relative to its terms


@dataclass(frozen=True)
class SearchBox:
    """See the top of the file.

    spans         (J,) of the axes
    lower, upper  (K,) of the linear parameters
    halvings      of the axes that were needed to bound the box this one comes from
    """

    spans: tuple[Span, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    halvings: int = 1

    def halves(self, axis: int) -> "tuple[SearchBox, SearchBox]":
        """The two halves on an axis."""
        low, high = self.spans[axis].parts(1)
        return self.with_span(axis, low), self.with_span(axis, high)

    def with_span(self, axis: int, span: Span) -> "SearchBox":
        """The box with another span of an axis."""
        return replace(self, spans=_with(self.spans, axis, span))

    def with_halvings(self, halvings: int) -> "SearchBox":
        """The same box with what is known of the cells it needs."""
        return replace(self, halvings=halvings)

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
    box: SearchBox


def root(problem: Separable) -> SearchBox:
    """All of the problem."""
    spans = (Span(0, 0),) * len(problem.axes)
    return SearchBox(spans, tuple(problem.lower.tolist()), tuple(problem.upper.tolist()))


def _with(items: tuple[Any, ...], k: int, value: Any) -> tuple[Any, ...]:
    return (*items[:k], value, *items[k + 1 :])
