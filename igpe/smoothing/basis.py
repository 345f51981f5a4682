"""Cubic B-splines on given break points: local values, derivatives and band matrices.

Four basis functions are non-zero at any point, so a curve and its errors need only four
coefficients and a band of three off-diagonals. Symmetric band matrices are kept as SciPy's
lower form: band[k, i] = A[i + k, i], shape (4, n_coefficients).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray

DEGREE = 3
GAUSS = 0.5 / np.sqrt(3.0)  # two Gauss points integrate the square of a linear function exactly


class Local(NamedTuple):
    """The basis functions that are non-zero at each of n points.

    first   (n,), index of the first of the four
    values  (4, n), their values or derivatives
    """

    first: IntArray
    values: FloatArray

    def combine(self, coefficients: FloatArray) -> FloatArray:
        """sum_a c[first + a] values[a], shape (n,)."""
        total = np.zeros(self.first.size)
        for a, row in enumerate(self.values):
            total += coefficients[self.first + a] * row
        return total

    def begins(self) -> IntArray:
        """Of points in ascending order: where those of one piece begin."""
        return np.flatnonzero(np.diff(self.first, prepend=-1))

    def variance(self, band: FloatArray) -> FloatArray:
        """b' V b at each point for a symmetric V of which `band` is the band, shape (n,)."""
        total = np.zeros(self.first.size)
        for a in range(DEGREE + 1):
            for k in range(DEGREE + 1 - a):
                twice = 1.0 if k == 0 else 2.0
                total += twice * band[k, self.first + a] * self.values[a] * self.values[a + k]
        return total


@dataclass(frozen=True)
class CubicBasis:
    """All cubic splines with two continuous derivatives on `breaks`.

    breaks  (n_breaks,), strictly ascending, n_breaks >= 2
    """

    breaks: FloatArray

    @property
    def size(self) -> int:
        """Number of basis functions, n_breaks + 2."""
        return self.breaks.size + DEGREE - 1

    @cached_property
    def knots(self) -> FloatArray:
        """The break points with the ends repeated, shape (n_breaks + 6,)."""
        return np.pad(self.breaks, DEGREE, mode="edge")

    @cached_property
    def centres(self) -> FloatArray:
        """Greville abscissae: as coefficients they give the function u itself, shape (size,)."""
        t = self.knots
        return (t[1:-3] + t[2:-2] + t[3:-1]) / DEGREE

    def local(self, u: FloatArray, order: int = 0) -> Local:
        """Values (order 0) or derivatives (1, 2) at u; outside the breaks on the end pieces."""
        piece = np.searchsorted(self.breaks, u, side="right") - 1
        left = np.clip(piece, 0, self.breaks.size - 2) + DEGREE
        rows = _rise(self.knots, left, u, DEGREE - order)
        for _ in range(order):
            rows = _differentiate(self.knots, left, rows)
        return Local(left - DEGREE, np.stack(rows))

    def gram(self, local: Local, weights: FloatArray) -> FloatArray:
        """Band of sum_i w_i b_i b_i' over points in ascending order, shape (4, size)."""
        band = np.zeros((DEGREE + 1, self.size))
        begins = local.begins()
        places = local.first[begins]
        for a, row in enumerate(local.values):
            weighted = weights * row
            for k in range(DEGREE + 1 - a):
                band[k, places + a] += np.add.reduceat(weighted * local.values[a + k], begins)
        return band

    def project(self, local: Local, weighted: FloatArray) -> FloatArray:
        """sum_i b_i (w y)_i over points in ascending order, shape (size,)."""
        total = np.zeros(self.size)
        begins = local.begins()
        places = local.first[begins]
        for a, row in enumerate(local.values):
            total[places + a] += np.add.reduceat(row * weighted, begins)
        return total

    def bending(self) -> FloatArray:
        """Band of the integrals of b_i'' b_j'' over the range of the breaks, shape (4, size)."""
        h = np.diff(self.breaks)
        middle = self.breaks[:-1] + 0.5 * h
        points = np.stack([middle - GAUSS * h, middle + GAUSS * h], axis=1).ravel()
        return self.gram(self.local(points, order=2), np.repeat(0.5 * h, 2))


def _rise(t: FloatArray, left: IntArray, u: FloatArray, degree: int) -> list[FloatArray]:
    """Non-zero B-splines of one degree at u (de Boor 1978, chapter X, BSPLVB)."""
    rows = [np.ones(u.size)]
    for d in range(1, degree + 1):
        carried: FloatArray = np.zeros(u.size)
        risen = []
        for r in range(d):
            ahead, behind = t[left + r + 1] - u, u - t[left + 1 - d + r]
            part = rows[r] / (ahead + behind)
            risen.append(carried + ahead * part)
            carried = behind * part
        rows = [*risen, carried]
    return rows


def _differentiate(t: FloatArray, left: IntArray, rows: list[FloatArray]) -> list[FloatArray]:
    """Derivatives of the splines one degree higher: d (b[i] / width[i] - b[i+1] / width[i+1])."""
    d = len(rows)
    quotients = [row / (t[left + r + 1] - t[left + r + 1 - d]) for r, row in enumerate(rows)]
    zero = np.zeros(left.size)
    return [d * (a - b) for a, b in zip([zero, *quotients], [*quotients, zero], strict=True)]
