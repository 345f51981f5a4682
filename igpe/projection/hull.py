"""All that the columns can be on a box, as far as their enclosures tell: support in a direction."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.arrays import BoolArray, FloatArray, IntArray
from igpe.projection.columns import Cells
from igpe.projection.taylor import pairs

Atom = tuple[FloatArray, float, FloatArray]  # vector, error and place of one of `Atoms`

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
    places   n arrays (J,): where on the box
    """

    vectors: FloatArray
    errors: FloatArray
    owners: IntArray
    places: list[FloatArray]

    def some(self, keep: IntArray) -> "Atoms":
        """A selection."""
        places = [self.places[i] for i in keep]
        return Atoms(self.vectors[keep], self.errors[keep], self.owners[keep], places)


class Hull:
    """The polynomials of several columns on a box."""

    def __init__(self, parts: Sequence[Part], n_coordinates: int) -> None:
        self.parts = parts
        usable = np.ones(n_coordinates, dtype=bool)
        for part in parts:
            usable = usable & part.cells.usable
        self.usable: BoolArray = usable
        mask = None if usable.all() else usable
        self._faces = [_Face(part, mask) for part in parts]
        self.least = np.array([face.least for face in self._faces])
        """(n_parts,) how far each column reaches in any direction: so large is its remainder."""

    def support(self, u: FloatArray) -> tuple[FloatArray, Atoms]:
        """How far each column reaches in direction u, (r,) of norm at most one.

        returns  upper bounds (n_parts,) on u . column, and the atoms that reach farthest: of each
                 part the best, and more where several cells reach beyond zero
        """
        found = [face.support(u) for face in self._faces]
        reach = np.array([most for most, _ in found])
        atoms = [atom for _, own in found for atom in own]
        owners = [k for k, (_, own) in enumerate(found) for _ in own]
        vectors, errors, places = zip(*atoms, strict=True)
        return reach, Atoms(np.array(vectors), np.array(errors), np.array(owners), list(places))

    def start(self) -> Atoms:
        """Atoms to begin with: of each column the middles of the cells in its box's corners."""
        found = [
            (face.coefficients[c, 0], face.errors[c], k, face.places[c, 0])
            for k, face in enumerate(self._faces)
            for c in face.corners
        ]
        if not found:
            return Atoms(np.zeros((0, len(self.usable))), np.zeros(0), np.zeros(0, dtype=int), [])
        vectors, errors, owners, places = zip(*found, strict=True)
        return Atoms(np.array(vectors), np.array(errors), np.array(owners), list(places))


class _Face:
    """One part, ready for support."""

    def __init__(self, part: Part, mask: BoolArray | None) -> None:
        self.n = len(part.axes)
        self.coefficients = part.cells.parts
        if part.sign < 0:
            self.coefficients = -self.coefficients
        if mask is not None:
            self.coefficients = self.coefficients * mask
        self.errors, self.places = part.cells.errors, part.places
        sizes = np.linalg.norm(self.coefficients, axis=2).sum(axis=1)
        self.least = float(np.max(self.errors - sizes))
        outside = np.abs(self.places[:, 0]) + self.places[:, 1] > 1 - 1e-9
        self.corners = np.flatnonzero(outside.all(axis=1))

    def support(self, u: FloatArray) -> tuple[float, list[Atom]]:
        """The farthest reach, and the atoms of the cells that count."""
        w = self.coefficients @ u
        reach = w[:, 0] + self.errors
        if self.n == 0:
            return float(reach[0]), [(self.coefficients[0, 0], self.errors[0], self.places[0, 0])]
        s = np.empty((len(w), self.n))
        for q, (i, j) in enumerate(pairs(self.n)):
            t = w[:, 1 + self.n + q]
            if i == j:
                s[:, i], most = farthest(w[:, 1 + i], t)
                reach = reach + most
            else:
                reach = reach + np.abs(t)
        order = reach.argsort()[: -1 - SEVERAL : -1]
        farther = [c for c in order if c == order[0] or reach[c] > NEARLY * reach[order[0]] > 0]
        return float(reach[order[0]]), [self._atom(c, s[c]) for c in farther]

    def _atom(self, c: int, s: FloatArray) -> "Atom":
        """The point s of cell c."""
        powers = np.concatenate([[1.0], s, [s[i] * s[j] for i, j in pairs(self.n)]])
        place = self.places[c, 0] + self.places[c, 1] * s
        return powers @ self.coefficients[c], float(self.errors[c]), place


def farthest(a: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where a s + t s^2 is largest over [-1, 1], and how large it is there."""
    end = np.where(a < 0, -1.0, 1.0)
    twice = -2 * t
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.where(np.abs(a) < twice, a / twice, end)
    return s, a * s + t * s * s
