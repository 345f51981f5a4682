"""All that the columns can be on a box, as far as their enclosures tell: support in a direction."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.columns import Cells
from igpe.algebraic.bounds.taylor.taylor import pairs
from igpe.core.arrays import BoolArray, FloatArray, IntArray

SEVERAL, NEARLY = 4, 0.3  # atoms of a column, if they reach that share of the farthest


class Part(NamedTuple):
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
    """How far columns reach in a direction.

    reach  (n_parts,) upper bounds on u . column
    cells  (n_cells,) the same for each cell;  s: (n_cells, J) the point of it that reaches so far
    """

    reach: FloatArray
    cells: FloatArray
    s: FloatArray


class Hull:
    """The polynomials of several columns on a box; those of fewer axes as if they had more."""

    def __init__(self, parts: Sequence[Part], n_coordinates: int) -> None:
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
        reach = w[:, 0] + self._errors + most.sum(axis=1)
        if self.n > 1:
            reach += np.abs(w[:, self._mixed]).sum(axis=1)
        return Support(self._farthest(reach), reach, s)

    def atoms(self, support: "Support") -> Atoms:
        """Those that reach farthest: of each part the best, and more where several count."""
        return self._atoms(self._chosen(support.cells, support.reach), support.s)

    def start(self) -> Atoms:
        """Atoms to begin with: of each column the middles of the cells in its box's corners."""
        outside = np.abs(self._places[:, 0]) + self._places[:, 1] > 1 - 1e-9
        absent = self._places[:, 1] == 0  # axes the column does not have
        corners = np.flatnonzero((outside | absent).all(axis=1))
        return self._atoms(corners, np.zeros((len(self._errors), self.n)))

    def _farthest(self, reach: FloatArray) -> FloatArray:
        return np.maximum.reduceat(reach, self._first) if len(reach) else np.zeros(0)

    def _chosen(self, reach: FloatArray, best: FloatArray) -> IntArray:
        """The cells that count, of each part at most `SEVERAL`, the farthest first."""
        near = (reach > NEARLY * best[self._owners]) & (reach > 0)
        near |= reach == best[self._owners]
        cells = np.flatnonzero(near)
        cells = cells[np.lexsort((-reach[cells], self._owners[cells]))]
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
