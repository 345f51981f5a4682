"""The lower bound on a box, and the search for the direction that gives it.

For every u with |u| <= 1 and every beta, theta of the box, by Cauchy and Schwarz,

    | d - sum_k beta_k phi_k(theta) |  >=  u . d - sum_k beta_k (u . phi_k(theta))
                                       >=  u . d - sum_k max over beta_k of beta_k extent_k(u)

where extent_k is an upper bound on u . phi_k over the box. So any u gives a valid bound, however it
was found. It is found by column generation: the smallest residual with the columns known so far
(a small quadratic program) gives u, and where a column reaches farthest in that direction is the
next to be known.

The columns are enclosed once over cells. The remainders of a cell's rows become one number, their
Euclidean norm, because |u . e| <= |u| |e| for every u. A row whose enclosure is infinite on a cell
is a row of which nothing is known there; one whose remainder would drown all others is treated so.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import daqp
import numpy as np

from igpe.algebraic.bounds.separable import Separable, Span
from igpe.algebraic.bounds.taylor import GROWTH, UNIT, Taylor, pairs
from igpe.core.arrays import BoolArray, FloatArray, IntArray, column_sizes

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


FREE = 1e30  # no bound


def minimum(
    square: FloatArray, linear: FloatArray, rows: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray | None:
    """Where 1/2 x.square.x + linear.x is least (daqp); None if the solver gives up.

    No bound depends on its answer being right.

    rows       (m, n) of constraints
    low, high  (n + m,) of x, then of rows x; infinite where there is none
    """
    if not len(linear):  # daqp 0.7 reads beyond empty matrices
        return linear
    high, low = np.minimum(high, FREE), np.maximum(low, -FREE)
    answer = daqp.solve(square, linear, rows, high, low, np.zeros(len(low), dtype=np.int32))
    return np.asarray(answer[0]) if answer[2] > 0 else None


SEVERAL, NEARLY = 4, 0.3  # atoms of a column, if they reach that share of the farthest


class BoundedColumn(NamedTuple):
    """A column, or its negative, on the cells that cover a box.

    column  its number
    cells   its enclosures
    axes    (J,) the nonlinear parameters it depends on
    sign    +1, or -1 for the negative of the column
    """

    column: int
    cells: Cells
    axes: tuple[int, ...]
    sign: float


class Atoms(NamedTuple):
    """Points of the columns' polynomials.

    vectors  (n, r)
    errors   (n,) remainders there
    owners   (n,) the parts they are of
    """

    vectors: FloatArray
    errors: FloatArray
    owners: IntArray

    def and_(self, new: "Atoms", keep: BoolArray) -> "Atoms":
        """These and some of others."""
        return Atoms(*(np.concatenate([a, b[keep]]) for a, b in zip(self, new, strict=True)))


class Support(NamedTuple):
    """The support function of the columns in a direction.

    extent  (n_parts,) upper bounds on u . column
    cells   (n_cells,) the same for each cell;  s: (n_cells, J) the point where it is taken
    """

    extent: FloatArray
    cells: FloatArray
    s: FloatArray


class Hull:
    """The polynomials of several columns on a box; those of fewer axes as if they had more."""

    def __init__(self, parts: Sequence[BoundedColumn], n_coordinates: int) -> None:
        self.parts = parts
        usable = np.ones(n_coordinates, dtype=bool)
        for part in parts:
            usable = usable & part.cells.usable
        self.usable: BoolArray = usable
        counts = [len(part.cells.errors) for part in parts]
        self.n = max((len(part.axes) for part in parts), default=0)
        self._pairs = pairs(self.n)
        numbered = list(enumerate(self._pairs, start=1 + self.n))
        self._pure = [q for q, (i, j) in numbered if i == j]
        self._mixed = [q for q, (i, j) in numbered if i != j]
        self._first = np.cumsum([0, *counts])[:-1]  # of each part's cells
        self._last = self._first + counts - 1
        self._owners = np.repeat(np.arange(len(parts)), counts)
        self._coefficients = np.zeros((sum(counts), 1 + self.n + len(self._pairs), n_coordinates))
        for part, begin, count in zip(parts, self._first, counts, strict=True):
            cells, m = slice(begin, begin + count), len(part.axes)
            where = [*range(1 + m), *(1 + self.n + self._pairs.index(p) for p in pairs(m))]
            self._coefficients[cells, where] = part.sign * part.cells.parts
        if not usable.all():
            self._coefficients *= usable
        self._errors = np.concatenate([np.zeros(0), *(part.cells.errors for part in parts)])
        squares = np.einsum("cpr,cpr->cp", self._coefficients, self._coefficients)
        sizes = np.sqrt(squares).sum(axis=1)
        self.least = self._farthest(self._errors - sizes)
        """(n_parts,) how far each column reaches in any direction: so large is its remainder."""

    def support(self, u: FloatArray) -> Support:
        """How far the columns reach in direction u, (r,) of norm at most one."""
        w = self._coefficients @ u
        s, most = farthest(w[:, 1 : 1 + self.n], w[:, self._pure])
        extent = w[:, 0] + self._errors + most.sum(axis=1)
        if self.n > 1:
            extent += np.abs(w[:, self._mixed]).sum(axis=1)
        return Support(self._farthest(extent), extent, s)

    def atoms(self, support: Support) -> Atoms:
        """Points that reach farthest: the best of each part, at most `SEVERAL` that count."""
        extent, best = support.cells, support.extent[self._owners]
        cells = np.flatnonzero(((extent > NEARLY * best) & (extent > 0)) | (extent == best))
        cells = cells[np.lexsort((-extent[cells], self._owners[cells]))]
        owners = self._owners[cells]
        rank = np.arange(len(cells)) - np.searchsorted(owners, owners)
        return self._atoms(cells[rank < SEVERAL], support.s)

    def start(self) -> Atoms:
        """Atoms to begin with: of each column the middles of its first and its last cell."""
        ends = np.unique(np.concatenate([self._first, self._last]))
        return self._atoms(ends, np.zeros((len(self._errors), self.n)))

    def _farthest(self, extent: FloatArray) -> FloatArray:
        return np.maximum.reduceat(extent, self._first) if len(extent) else np.zeros(0)

    def _atoms(self, cells: IntArray, s: FloatArray) -> Atoms:
        """The points s (n_cells, J) of some cells."""
        s = s[cells]
        powers = np.ones((len(cells), 1 + self.n + len(self._pairs)))
        powers[:, 1 : 1 + self.n] = s
        for q, (i, j) in enumerate(self._pairs, start=1 + self.n):
            np.multiply(s[:, i], s[:, j], out=powers[:, q])
        vectors = np.matmul(powers[:, None], self._coefficients[cells])[:, 0]
        return Atoms(vectors, self._errors[cells], self._owners[cells])


def farthest(a: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where a s + t s^2 is largest over [-1, 1], and how large it is there."""
    end = np.where(a < 0, -1.0, 1.0)
    twice = -2 * t
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.where(np.abs(a) < twice, a / twice, end)
    return s, a * s + t * s * s


ROUNDS = 12  # directions tried on one box
OVERSHOOT = 1.05  # times the excess of a column, which the next direction shall make up for
FIRST = 2  # rounds without that: the columns known are still too few
PATIENCE, PROGRESS = 3, 0.7  # it must come so much nearer to the cutoff in so many rounds
RIDGE = 1e-10  # of the quadratic program, whose columns have norm one
SMALL = 1e-6  # of the data: columns below it are scaled as if they were this large


class Bounded(NamedTuple):
    """Lower bound of a box and what was computed for it.

    lower     proven lower bound on the norm of the residual, >= 0
    residual  norm of the smallest residual of the relaxation, as far as it is known: not proven
    slack     by how much remainders may lower that
    direction (r,) that gives the lower bound; None if it is 0
    halvings  of the box, for its cells
    """

    lower: float
    residual: float
    slack: float
    direction: FloatArray | None = None
    halvings: int = 1


@dataclass(frozen=True)
class Ranges:
    """Bounds on the factor of every column of the hull, >= 0; upper may be infinite.

    ratios  (k, m, low, high): the factor of m is between low and high times that of k
    """

    lower: FloatArray
    upper: FloatArray
    ratios: tuple[tuple[int, int, float, float], ...] = ()

    def most(self, extent: FloatArray) -> float:
        """Upper bound on sum_k beta_k extent_k."""
        each = np.where(extent > 0, self.upper, self.lower)
        each = np.multiply(each, extent, out=np.zeros(len(extent)), where=extent != 0)
        taken: set[int] = set()
        for k, m, low, high in self.ratios:
            if extent[m] > 0 and np.isinf(high):
                continue
            both = extent[k] + (high if extent[m] > 0 else low) * extent[m]
            pair = self.upper[k] * both if both > 0 else self.lower[k] * both
            if pair < each[k] + each[m] and not taken & {k, m}:
                each[k], each[m] = pair, 0.0
                taken |= {k, m}  # a column's gain counts once
        total = float(each.sum())
        return total + 8 * len(each) * UNIT * float(np.abs(each).sum()) if total < np.inf else total


def bound(target: FloatArray, hull: Hull, ranges: Ranges, cutoff: float) -> Bounded:
    """Bound the norm of the residual from below, until it exceeds the cutoff or cannot.

    target  (r,) d
    """
    d = target * hull.usable
    norm_d = float(np.linalg.norm(d))
    rounding = 4 * len(d) * UNIT * norm_d
    if not hull.parts:
        return Bounded(max(norm_d - rounding, 0.0), norm_d, 0.0)
    if norm_d - ranges.most(np.maximum(hull.least, 0.0)) < cutoff:  # whatever u is
        return Bounded(0.0, np.inf, np.inf)
    program, best, margin = _Program(d, ranges, hull.start()), 0.0, np.zeros(len(ranges.lower))
    norm = slack = 0.0
    direction = None
    short = [np.inf] * PATIENCE
    for k in range(ROUNDS):
        residual, slack = program.solve(margin, max(norm, cutoff))
        norm = float(np.sqrt(residual @ residual))
        if norm == 0.0:
            break
        u = residual / (norm * (1 + 4 * UNIT * len(d)))
        support = hull.support(u)
        extent = support.extent
        value = float(u @ d) - rounding - ranges.most(extent)
        if value > best:
            best, direction = value, u
        short.append(cutoff - value)
        hopeless = k >= FIRST and norm - slack < cutoff
        if best >= cutoff or hopeless or short[-1] > PROGRESS * short[-1 - PATIENCE]:
            break
        if k >= FIRST:
            margin = np.where(extent > 0, OVERSHOOT * extent, margin / 2)
        near, atoms = extent > -1e-3 * margin - 1e-9 * norm_d, hull.atoms(support)
        program.atoms = program.atoms.and_(atoms, near[atoms.owners])
    return Bounded(best, norm, slack, direction)


class _Program:
    """min 1/2 |d - sum w_a a|^2 - norm sum (e_a + margin) w_a,  w >= 0, sums within ranges.

    Remainders e and margins are a gain of the adversary's, so that the multiplier has room for
    them. An upper bound of a range becomes a row only when it is exceeded.
    """

    def __init__(self, d: FloatArray, ranges: Ranges, atoms: Atoms) -> None:
        self.d, self.ranges, self.atoms = d, ranges, atoms
        self._floor = SMALL * np.sqrt(d @ d) + 1e-300
        self._capped = ranges.lower > 0

    def solve(self, margin: FloatArray, norm: float) -> tuple[FloatArray, float]:
        """Residual, of about that norm, and the sum of remainders in it."""
        vectors, errors, owners = self.atoms
        square, against = vectors @ vectors.T, vectors @ self.d
        size = np.maximum(np.sqrt(square.diagonal()), self._floor)
        square = square / (size[:, None] * size)
        square.flat[:: len(size) + 1] += RIDGE
        cost = np.minimum(errors + margin[owners], FREE / 1e10)
        linear = -(against + norm * cost) / size
        for _ in range(2):
            rows, low, high = self._rows(size)
            low = np.concatenate([np.zeros(len(size)), low])
            high = np.concatenate([np.full(len(size), np.inf), high])
            x = minimum(square, linear, rows, low, high)
            weights = np.zeros(len(size)) if x is None else np.maximum(x, 0.0) / size
            sums = np.bincount(owners, weights, len(margin))
            exceeded = (sums > self.ranges.upper) & ~self._capped
            if not exceeded.any():
                break
            self._capped = self._capped | exceeded
        return self.d - weights @ vectors, float(weights @ errors)

    def _rows(self, size: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows for ranges and ratios with their ends, scaled to entries of order one."""
        owners, ranges = self.atoms.owners, self.ranges
        rows = [
            ((owners == k) / size, ranges.lower[k], ranges.upper[k])
            for k in np.flatnonzero(self._capped)
        ]
        for first, second, least, most in ranges.ratios:
            rows += [
                (sign * ((owners == second) - factor * (owners == first)) / size, 0.0, np.inf)
                for factor, sign in ((least, 1.0), (most, -1.0))
                if np.isfinite(factor)
            ]
        scales = [float(np.abs(row).max()) for row, _, _ in rows]
        every = np.array([row / s for (row, _, _), s in zip(rows, scales, strict=True)])
        low, high = np.array([ends for _, *ends in rows]).reshape(-1, 2).T / scales
        return every.reshape(len(rows), len(size)), low, high


LINEAR_RIDGE = 1e-12


def best_linear(problem: Separable, columns: FloatArray) -> tuple[FloatArray, float] | None:
    """The best (beta, sum of squares) at one theta (variable projection).

    None where the columns are not finite or no beta is feasible.

    columns  (n_residuals, 1 + K), `Separable.values` at one theta
    """
    if not np.isfinite(columns).all():
        return None
    d, phi = problem.target - columns[:, 0], columns[:, 1:]
    size = column_sizes(phi)
    unit = np.eye(len(size))
    square = (phi / size).T @ (phi / size) + LINEAR_RIDGE * unit
    rows = [
        sign * (unit[r.second] - factor * unit[r.first])
        for r in problem.ratios
        for factor, sign in ((r.low, 1.0), (r.high, -1.0))
        if np.isfinite(factor)
    ]
    lower = np.concatenate([problem.lower * size, np.zeros(len(rows))])
    upper = np.concatenate([problem.upper * size, np.full(len(rows), np.inf)])
    matrix = np.array(rows).reshape(len(rows), len(size)) / size
    scale = np.abs(matrix).max(axis=1, initial=0.0)[:, None] if rows else 1.0
    x = minimum(square, -((phi / size).T @ d), matrix / scale, lower, upper)
    if x is None:
        return None
    beta = np.clip(x / size, problem.lower, problem.upper)
    rest = d - phi @ beta
    return beta, float(rest @ rest)
