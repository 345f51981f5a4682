"""Enclosures of the columns over cells, few numbers each, computed once.

Residuals are many, but all columns at all theta lie near a space of few dimensions. With any
matrix P

    | d - Phi beta |  >=  | P (d - Phi beta) | / |P|

so bounds are computed in the coordinates P, whose rows are an orthonormal basis of sampled columns
and of d: nothing is lost but what the samples miss. The remainders of a cell's rows become one
number, their Euclidean norm, because |u . e| <= |u| |e| for every u.

A row whose enclosure is infinite on a cell is a row of which nothing is known there. Rows that are
finite everywhere are reduced together; the others keep a coordinate each, which a cell may lack.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from igpe.arrays import BoolArray, FloatArray
from igpe.projection.separable import Separable
from igpe.projection.taylor import GROWTH, UNIT, Taylor

FEW = 64  # residuals that are not worth reducing
SAMPLES = 32  # thetas whose columns span the coordinates
NEGLIGIBLE = 1e-9  # singular values below this share of the largest are left out
MOST_KEPT = 50_000_000  # numbers in enclosures that are kept
CHUNK = 400_000  # numbers of one array that are enclosed at a time


Key = tuple[int, ...]  # a column, then level and index of the cell on each axis it depends on


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


class Columns:
    """The columns of a problem in few coordinates."""

    def __init__(self, problem: Separable, seed: int) -> None:
        self.problem = problem
        self.basis = _basis(problem, seed)
        self.target = self.basis @ problem.target
        r, m = self.basis.shape
        excess = np.linalg.norm(self.basis @ self.basis.T - np.eye(r)) + m * r * UNIT
        self.norm = float(np.sqrt(1 + excess)) * GROWTH
        """Upper bound on |P|."""
        self._support = (self.basis != 0).astype(np.float32)
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
            found = [self.cell(k) for k in subcells(key, halvings)]
            usable = found[0].usable
            for cell in found[1:]:
                usable = usable & cell.usable
            self._stacked[key, halvings] = Cells(
                np.stack([c.parts for c in found]), np.array([c.error for c in found]), usable
            )
        return self._stacked[key, halvings]

    def prepare(self, keys: Iterable[Key]) -> None:
        """Enclose what is not known yet."""
        if self._kept > MOST_KEPT:
            self._known.clear()
            self._stacked.clear()
            self._kept = 0
        groups: dict[Key, list[Key]] = {}
        for key in dict.fromkeys(keys):
            if key not in self._known:
                groups.setdefault((key[0], *self._at_zero(key)), []).append(key)
        for own in groups.values():
            chunk = max(CHUNK // self.basis.shape[1], 1)
            for begin in range(0, len(own), chunk):
                self._enclose(own[begin : begin + chunk])

    def _at_zero(self, key: Key) -> Key:
        """The axes on which the cell begins at zero: there no logarithm can be taken."""
        own = self.problem.depends[key[0]]
        return tuple(
            a
            for j, a in enumerate(own)
            if key[2 + 2 * j] == 0 and self.problem.axes[a].lower <= 0 and self.problem.axes[a].leaf
        )

    def _enclose(self, keys: list[Key]) -> None:
        k, own = keys[0][0], self.problem.depends[keys[0][0]]
        numbers = np.array(keys)[:, 1:].reshape(len(keys), len(own), 2)
        ends = [
            self.problem.axes[a].cells(numbers[:, j, 0], numbers[:, j, 1])
            for j, a in enumerate(own)
        ]
        lower, upper = np.stack(ends, axis=-1) if ends else np.zeros((2, len(keys), 0))
        for key, cell in zip(
            keys, self._cells(self.problem.enclosure(k, lower, upper)), strict=True
        ):
            self._known[key] = cell
            self._kept += 2 * cell.parts.size  # they are stacked as well

    def _cells(self, f: Taylor) -> list[Cell]:
        good = np.isfinite(f.e)
        parts = np.concatenate([f.c[None], f.g, f.t])
        parts = np.where(good, parts, 0.0).transpose(1, 0, 2)
        reduced = parts @ self.basis.T
        usable = (~good).astype(np.float32) @ self._support.T == 0
        reduced *= usable[:, None, :]
        error = np.linalg.norm(np.where(good, f.e, 0.0), axis=1)
        rounding = (64 + self.basis.size) * UNIT * np.linalg.norm(parts, axis=2).sum(axis=1)
        error = (error + rounding) * self.norm * GROWTH
        return [Cell(*item) for item in zip(reduced, error.tolist(), usable, strict=True)]


def subcells(key: Key, halvings: int) -> list[Key]:
    """The cells into which a cell falls when each of its axes is halved so many times."""
    count = 2**halvings
    own = zip(key[1::2], key[2::2], strict=True)
    ranges = [[(level + halvings, index * count + i) for i in range(count)] for level, index in own]
    return [(key[0], *itertools.chain.from_iterable(cell)) for cell in itertools.product(*ranges)]


def _basis(problem: Separable, seed: int) -> FloatArray:
    """P (r, n_residuals)."""
    m = len(problem.target)
    if m <= FEW:
        return np.eye(m)
    always = _always_finite(problem)
    alone = np.flatnonzero(~always)
    rows = np.flatnonzero(always)
    reduced = _span(_samples(problem, seed)[rows])
    basis = np.zeros((reduced.shape[1] + len(alone), m))
    basis[: reduced.shape[1], rows] = reduced.T
    basis[np.arange(reduced.shape[1], len(basis)), alone] = 1.0
    return basis


def _always_finite(problem: Separable) -> BoolArray:
    """(n_residuals,) rows whose enclosure over the whole box is finite."""
    good = np.ones(len(problem.target), dtype=bool)
    for k, own in enumerate(problem.depends):
        lower = np.array([[problem.axes[a].lower for a in own]])
        upper = np.array([[problem.axes[a].upper for a in own]])
        good &= np.isfinite(problem.enclosure(k, lower, upper).e[0])
    return good


def _samples(problem: Separable, seed: int) -> FloatArray:
    """(n_residuals, n) d and columns at random theta, zero where they are not finite."""
    rng = np.random.default_rng(seed)
    columns = [problem.target[:, None]]
    for _ in range(SAMPLES):
        theta = np.array([
            a.at(t) for a, t in zip(problem.axes, rng.random(len(problem.axes)), strict=True)
        ])
        columns.append(problem.values(theta))
    found = np.hstack(columns)
    size = np.linalg.norm(found, axis=0)
    return np.nan_to_num(found / np.where(size > 0, size, 1.0), nan=0.0, posinf=0.0, neginf=0.0)


def _span(samples: FloatArray) -> FloatArray:
    """(n_rows, r) orthonormal basis of the samples, up to what is negligible."""
    left, values, _ = np.linalg.svd(samples, full_matrices=False)
    return np.asarray(left[:, values > NEGLIGIBLE * values[0]])
