"""The lower bound on a box, and the search for the direction that gives it.

For every u with |u| <= 1 and every beta, theta of the box, by Cauchy and Schwarz,

    | d - sum_k beta_k phi_k(theta) |  >=  u . d - sum_k beta_k (u . phi_k(theta))
                                       >=  u . d - sum_k max over beta_k of beta_k extent_k(u)

where extent_k is an upper bound on u . phi_k over the box. So any u gives a valid bound, however it
was found. It is found by column generation: the smallest residual with the columns known so far
(a small quadratic program) gives u, and where a column reaches farthest in that direction is the
next to be known.

Small convex quadratic programs, by daqp. No bound depends on their answers being right.

All that the columns can be on a box, as far as their enclosures tell: support in a direction.

The best linear parameters at one theta (variable projection).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import daqp
import numpy as np

from igpe.algebraic.bounds.columns import Cells
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.taylor.taylor import UNIT, pairs
from igpe.core.arrays import BoolArray, FloatArray, IntArray

FREE = 1e30  # no bound


def minimum(
    square: FloatArray, linear: FloatArray, rows: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray | None:
    """Where 1/2 x.square.x + linear.x is least; None if the solver gives up.

    rows       (m, n) of constraints
    low, high  (n + m,) of x, then of rows x; infinite where there is none
    """
    answer = daqp.solve(
        square,
        linear,
        rows,
        np.minimum(high, FREE),
        np.maximum(low, -FREE),
        np.zeros(len(low), dtype=np.int32),
    )
    return np.asarray(answer[0]) if answer[2] > 0 else None


SEVERAL, NEARLY = 4, 0.3  # atoms of a column, if they reach that share of the farthest


class BoundedColumn(NamedTuple):
    """A column, or its negative, on the cells that cover a box.

    column  its number
    cells   its enclosures
    places  (n_cells, 2, J) middle and half width of each cell, the box being [-1, 1]^J
    axes    (J,) the nonlinear parameters it depends on
    sign    +1, or -1 for the negative of the column
    """

    column: int
    cells: Cells
    places: FloatArray
    axes: tuple[int, ...]
    sign: float


class Atoms(NamedTuple):
    """Points of the columns' polynomials.

    vectors  (n, r)
    errors   (n,) remainders there
    owners   (n,) the parts they are of
    places   (n, J) where on the box, of the owner's axes first
    """

    vectors: FloatArray
    errors: FloatArray
    owners: IntArray
    places: FloatArray

    def some(self, keep: IntArray | BoolArray) -> "Atoms":
        """A selection."""
        return Atoms(self.vectors[keep], self.errors[keep], self.owners[keep], self.places[keep])

    def and_(self, new: "Atoms") -> "Atoms":
        """These and others."""
        return Atoms(
            np.concatenate([self.vectors, new.vectors]),
            np.concatenate([self.errors, new.errors]),
            np.concatenate([self.owners, new.owners]),
            np.concatenate([self.places, new.places]),
        )


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
        self._owners = np.repeat(np.arange(len(parts)), counts)
        self._coefficients = np.zeros((sum(counts), 1 + self.n + len(self._pairs), n_coordinates))
        self._places = np.zeros((sum(counts), 2, self.n))
        for part, begin, count in zip(parts, self._first, counts, strict=True):
            cells, m = slice(begin, begin + count), len(part.axes)
            where = [*range(1 + m), *(1 + self.n + self._pairs.index(p) for p in pairs(m))]
            self._coefficients[cells, where] = part.sign * part.cells.parts
            self._places[cells, :, :m] = part.places
        if not usable.all():
            self._coefficients *= usable
        self._errors = np.concatenate([np.zeros(0), *(part.cells.errors for part in parts)])
        squares = np.einsum("cpr,cpr->cp", self._coefficients, self._coefficients)
        sizes = np.sqrt(squares).sum(axis=1)
        self.least = self._farthest(self._errors - sizes)
        """(n_parts,) how far each column reaches in any direction: so large is its remainder."""

    def support(self, u: FloatArray) -> "Support":
        """How far the columns reach in direction u, (r,) of norm at most one."""
        w = self._coefficients @ u
        s, most = farthest(w[:, 1 : 1 + self.n], w[:, self._pure])
        extent = w[:, 0] + self._errors + most.sum(axis=1)
        if self.n > 1:
            extent += np.abs(w[:, self._mixed]).sum(axis=1)
        return Support(self._farthest(extent), extent, s)

    def atoms(self, support: "Support") -> Atoms:
        """Those that reach farthest: of each part the best, and more where several count."""
        return self._atoms(self._chosen(support.cells, support.extent), support.s)

    def start(self) -> Atoms:
        """Atoms to begin with: of each column the middles of the cells in its box's corners."""
        outside = np.abs(self._places[:, 0]) + self._places[:, 1] > 1 - 1e-9
        absent = self._places[:, 1] == 0  # axes the column does not have
        corners = np.flatnonzero((outside | absent).all(axis=1))
        return self._atoms(corners, np.zeros((len(self._errors), self.n)))

    def _farthest(self, extent: FloatArray) -> FloatArray:
        return np.maximum.reduceat(extent, self._first) if len(extent) else np.zeros(0)

    def _chosen(self, extent: FloatArray, best: FloatArray) -> IntArray:
        """The cells that count, of each part at most `SEVERAL`, the farthest first."""
        near = (extent > NEARLY * best[self._owners]) & (extent > 0)
        near |= extent == best[self._owners]
        cells = np.flatnonzero(near)
        cells = cells[np.lexsort((-extent[cells], self._owners[cells]))]
        owners = self._owners[cells]
        rank = np.arange(len(cells)) - np.searchsorted(owners, owners)
        return np.asarray(cells[rank < SEVERAL])

    def _atoms(self, cells: IntArray, s: FloatArray) -> Atoms:
        """The points s (n_cells, J) of some cells."""
        s = s[cells]
        powers = np.ones((len(cells), 1 + self.n + len(self._pairs)))
        powers[:, 1 : 1 + self.n] = s
        for q, (i, j) in enumerate(self._pairs, start=1 + self.n):
            np.multiply(s[:, i], s[:, j], out=powers[:, q])
        vectors = np.matmul(powers[:, None], self._coefficients[cells])[:, 0]
        places = self._places[cells, 0] + self._places[cells, 1] * s
        return Atoms(vectors, self._errors[cells], self._owners[cells], places)


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
    """What is known of a box.

    lower     proven lower bound on the norm of the residual, >= 0
    residual  norm of the smallest residual of the relaxation, as far as it is known: not proven
    slack     by how much remainders may lower that
    weights   (n_atoms,) of the relaxation's solution
    direction (r,) that gives the lower bound; None if it is 0
    halvings  of the box, for its cells
    """

    lower: float
    residual: float
    slack: float
    weights: FloatArray
    atoms: Atoms
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


def bound(target: FloatArray, doubt: float, hull: Hull, ranges: Ranges, cutoff: float) -> Bounded:
    """Bound the norm of the residual from below, until it exceeds the cutoff or cannot.

    target  (r,) d, known up to an error of norm `doubt`
    """
    d = target * hull.usable
    norm_d = float(np.linalg.norm(d))
    rounding = doubt + 4 * len(d) * UNIT * norm_d
    if not hull.parts:
        return Bounded(max(norm_d - rounding, 0.0), norm_d, 0.0, np.zeros(0), hull.start())
    program = _Program(d, ranges, hull.start())
    best, margin = 0.0, np.zeros(len(ranges.lower))
    if norm_d - ranges.most(np.maximum(hull.least, 0.0)) < cutoff:  # whatever u is
        return Bounded(0.0, np.inf, np.inf, program.weights, program.atoms)
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
        near = extent > -1e-3 * margin - 1e-9 * norm_d
        atoms = hull.atoms(support)
        program.add(atoms.some(near[atoms.owners]))
    return Bounded(best, norm, slack, program.weights, program.atoms, direction)


class _Program:
    """min 1/2 |d - sum w_a a|^2 - norm sum (e_a + margin) w_a,  w >= 0, sums within ranges.

    Remainders e and margins are a gain of the adversary's, so that the multiplier has room for
    them. An upper bound of a range becomes a row only when it is exceeded.
    """

    def __init__(self, d: FloatArray, ranges: Ranges, atoms: Atoms) -> None:
        self.d, self.ranges, self.atoms = d, ranges, atoms
        self._floor = SMALL * np.sqrt(d @ d) + 1e-300
        self._capped = ranges.lower > 0
        self.weights = np.zeros(len(atoms.owners))

    def add(self, new: Atoms) -> None:
        """More points of the columns."""
        self.atoms = self.atoms.and_(new)

    def solve(self, margin: FloatArray, norm: float) -> tuple[FloatArray, float]:
        """Residual, of about that norm, and the sum of remainders in it."""
        vectors, owners = self.atoms.vectors, self.atoms.owners
        square, against = vectors @ vectors.T, vectors @ self.d
        size = np.maximum(np.sqrt(square.diagonal()), self._floor)
        square = square / (size[:, None] * size)
        square.flat[:: len(size) + 1] += RIDGE
        cost = np.minimum(self.atoms.errors + margin[owners], FREE / 1e10)
        linear = -(against + norm * cost) / size
        for _ in range(2):
            x = self._solved(square, linear, size)
            self.weights = np.maximum(x, 0.0) / size
            sums = np.bincount(owners, self.weights, len(margin))
            exceeded = (sums > self.ranges.upper) & ~self._capped
            if not exceeded.any():
                break
            self._capped = self._capped | exceeded
        return self.d - self.weights @ vectors, float(self.weights @ self.atoms.errors)

    def _solved(self, square: FloatArray, linear: FloatArray, size: FloatArray) -> FloatArray:
        n = len(size)
        rows, low, high = self._rows(size)
        ends = np.concatenate([np.zeros(n), low]), np.concatenate([np.full(n, np.inf), high])
        x = minimum(square, linear, rows, *ends)
        return np.zeros(n) if x is None else x

    def _rows(self, size: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows for ranges and ratios, scaled to entries of order one."""
        owners, ranges = self.atoms.owners, self.ranges
        rows, low, high = [], [], []
        for k in np.flatnonzero(self._capped):
            row = (owners == k) / size
            scale = row.max()
            rows.append(row / scale)
            low.append(ranges.lower[k] / scale)
            high.append(ranges.upper[k] / scale)
        for first, second, least, most in ranges.ratios:
            for factor, sign in ((least, 1.0), (most, -1.0)):
                if np.isinf(factor):
                    continue
                row = sign * ((owners == second) - factor * (owners == first)) / size
                rows.append(row / np.abs(row).max())
                low.append(0.0)
                high.append(np.inf)
        return np.array(rows).reshape(len(rows), len(size)), np.array(low), np.array(high)


LINEAR_RIDGE = 1e-12


def best_linear(problem: Separable, columns: FloatArray) -> tuple[FloatArray, float] | None:
    """(beta, sum of squares); None where the columns are not finite or no beta is feasible.

    columns  (n_residuals, 1 + K), `Separable.values` at one theta
    """
    if not np.isfinite(columns).all():
        return None
    d, phi = problem.target - columns[:, 0], columns[:, 1:]
    size = np.linalg.norm(phi, axis=0)
    size = np.where(size > 0, size, 1.0)
    square = (phi / size).T @ (phi / size) + LINEAR_RIDGE * np.eye(len(size))
    rows = [
        sign * (_unit(r.second, len(size)) - factor * _unit(r.first, len(size)))
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


def _unit(k: int, n: int) -> FloatArray:
    return np.asarray(np.eye(n)[k])
