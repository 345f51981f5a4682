"""Cubic B-splines on given break points: local values, derivatives and band matrices.

Four basis functions are non-zero at any point, so a curve and its errors need only four
coefficients and a band of three off-diagonals. Symmetric band matrices are kept as SciPy's
lower form: band[k, i] = A[i + k, i], shape (4, n_coefficients).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky_banded

from igpe.core.arrays import FloatArray, IntArray

DEGREE = 3
GAUSS = 0.5 / np.sqrt(3.0)  # two Gauss points integrate the square of a linear function exactly


class LocalPolynomials(NamedTuple):
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

    def local(self, u: FloatArray, order: int = 0) -> LocalPolynomials:
        """Values (order 0) or derivatives (1, 2) at u; outside the breaks on the end pieces.

        The recurrences of de Boor (1978), chapter X, BSPLVB.
        """
        piece = np.searchsorted(self.breaks, u, side="right") - 1
        t, left = self.knots, np.clip(piece, 0, self.breaks.size - 2) + DEGREE
        rows = [np.ones(u.size)]
        for d in range(1, DEGREE - order + 1):
            carried: FloatArray = np.zeros(u.size)
            risen = []
            for r in range(d):
                ahead, behind = t[left + r + 1] - u, u - t[left + 1 - d + r]
                part = rows[r] / (ahead + behind)
                risen.append(carried + ahead * part)
                carried = behind * part
            rows = [*risen, carried]
        for d in range(DEGREE - order + 1, DEGREE + 1):  # derivatives of one degree higher
            width = [t[left + r + 1] - t[left + r + 1 - d] for r in range(d)]
            quotients = [row / w for row, w in zip(rows, width, strict=True)]
            zero = np.zeros(left.size)
            ends = zip([zero, *quotients], [*quotients, zero], strict=True)
            rows = [d * (a - b) for a, b in ends]
        return LocalPolynomials(left - DEGREE, np.stack(rows))

    def dense(self, u: FloatArray, order: int = 0) -> FloatArray:
        """All basis functions, or their derivatives, at u, shape (n, size)."""
        local, rows = self.local(u, order), np.zeros((u.size, self.size))
        for a, values in enumerate(local.values):
            rows[np.arange(u.size), local.first + a] = values
        return rows

    def gram(self, local: LocalPolynomials, weights: FloatArray) -> FloatArray:
        """Band of sum_i w_i b_i b_i' over points in ascending order, shape (4, size)."""
        band = np.zeros((DEGREE + 1, self.size))
        for a, row in enumerate(local.values):
            for k in range(DEGREE + 1 - a):
                self._add(band[k], a, local, weights * row * local.values[a + k])
        return band

    def project(self, local: LocalPolynomials, weighted: FloatArray) -> FloatArray:
        """sum_i b_i (w y)_i over points in ascending order, shape (size,)."""
        total = np.zeros(self.size)
        for a, row in enumerate(local.values):
            self._add(total, a, local, row * weighted)
        return total

    def _add(self, total: FloatArray, a: int, local: LocalPolynomials, terms: FloatArray) -> None:
        """Add terms of the points of each piece to the piece's coefficient a."""
        begins = np.flatnonzero(np.diff(local.first, prepend=-1))
        total[local.first[begins] + a] += np.add.reduceat(terms, begins)

    def bending(self) -> FloatArray:
        """Band of the integrals of b_i'' b_j'' over the range of the breaks, shape (4, size)."""
        h = np.diff(self.breaks)
        middle = self.breaks[:-1] + 0.5 * h
        points = np.stack([middle - GAUSS * h, middle + GAUSS * h], axis=1).ravel()
        return self.gram(self.local(points, order=2), np.repeat(0.5 * h, 2))


SHORTEST = 32  # rows of a piece; more pieces would cost more to link than they save


def multiply(band: FloatArray, x: FloatArray) -> FloatArray:
    """A x for the symmetric A of which `band` is the lower form; x is (n,) or (n, m)."""
    rows = band if x.ndim == 1 else band[:, :, None]
    y: FloatArray = rows[0] * x
    for k in range(1, len(band)):
        y[k:] += rows[k, :-k] * x[:-k]
        y[:-k] += rows[k, :-k] * x[k:]
    return y


def band_of(full: FloatArray) -> FloatArray:
    """The band of a symmetric matrix (n, n), shape (4, n)."""
    return np.stack([np.pad(full.diagonal(-k), (0, k)) for k in range(DEGREE + 1)])


def inverse_band(band: FloatArray) -> FloatArray:
    """Band of the inverse of one matrix, (4, n).

    raises   np.linalg.LinAlgError if the matrix is not positive definite
    """
    result: FloatArray = inverse_bands(cholesky_banded(band, lower=True)[None])[0]
    return result


def inverse_bands(factors: FloatArray) -> FloatArray:
    """Bands of the inverses of m symmetric positive definite band matrices, (m, 4, n).

    The inverse V of a band matrix is full, but its band follows from the Cholesky factor A = L L'
    by a recursion upwards from the last row (Hutchinson & de Hoog 1985; Erisman & Tinney 1975).
    With r_ik = l_{i+k,i} / l_ii and k = 1 ... p,

        V[i, i+j] = delta_0j / l_ii^2 - sum_k r_ik V[i+k, i+j],   j = 0 ... p.

    It is sequential in i, so a long matrix is cut into pieces that go side by side. All that a
    piece needs to know of those below it is the window W of V for the p rows behind its end:
    V = V0 + X W X', where V0 comes of W = 0, and X solves x_i = -sum_k r_ik x_{i+k} from unit
    vectors behind the end. Both terms are positive semidefinite: what they lose is relative to V.
    (A matrix of few rows and next to no penalty is nearly singular; its trace with N needs the
    errors of one recursion, which fit each other. It is one piece.)

    factors  (m, 4, n), lower Cholesky factors in lower form
    """
    m, width, n = factors.shape
    p, steps = width - 1, min(n, max(SHORTEST, int(np.sqrt(n))))
    pieces = -(-n // steps)
    filled = np.zeros((m, width, pieces * steps))
    filled[:, 0] = 1.0  # behind the last row the unit matrix goes on
    for k in range(width):
        filled[:, k, : n - k] = factors[:, k, : n - k]
    rows = np.moveaxis(filled.reshape(m, width, pieces, steps), (3, 1, 2, 0), (0, 1, 2, 3))
    ratios = np.ascontiguousarray(-rows[:, 1:] / rows[:, :1])  # -r, (steps, p, pieces, m)
    bands = np.empty((steps, width, pieces, m))  # V0, then V
    window = np.zeros((p, p, pieces, m))
    for i in range(steps - 1, -1, -1):
        ratio, row = ratios[i], bands[i]
        np.add.reduce(ratio[:, None] * window, axis=0, out=row[1:])
        np.add.reduce(ratio * row[1:], axis=0, out=row[0])
        row[0] += 1.0 / rows[i, 0] ** 2
        window[1:, 1:] = window[:-1, :-1]
        window[0] = row[:-1]
        window[1:, 0] = row[1:-1]
    if pieces > 1:
        x = np.empty((steps + p, p, pieces, m))  # X, with the unit vectors behind the end
        x[steps:] = np.eye(p).reshape(p, p, 1, 1)
        for i in range(steps - 1, -1, -1):
            np.add.reduce(ratios[i][:, None] * x[i + 1 : i + 1 + p], axis=0, out=x[i])
        windows = _windows(bands[:p], x[:p])
        right = sum(windows[a] * x[:steps, a, None] for a in range(p))
        for j in range(width):
            bands[:, j] += (right * x[j : j + steps]).sum(axis=1)
    result: FloatArray = np.moveaxis(bands, (3, 1, 2, 0), (0, 1, 2, 3)).reshape(m, width, -1)
    return np.ascontiguousarray(result[:, :, :n])


def _windows(bands: FloatArray, x: FloatArray) -> FloatArray:
    """W behind each piece, (p, p, pieces, m), from the first p rows of V0 and X of each."""
    p, _, pieces, m = x.shape
    own = np.stack([[bands[min(a, b), abs(a - b)] for b in range(p)] for a in range(p)])
    windows = np.zeros((pieces, m, p, p))
    own, x = np.moveaxis(own, (2, 3), (0, 1)), np.moveaxis(x, (2, 3), (0, 1))
    for i in range(pieces - 1, 0, -1):
        windows[i - 1] = own[i] + x[i] @ windows[i] @ x[i].swapaxes(1, 2)
    return np.ascontiguousarray(np.moveaxis(windows, (0, 1), (2, 3)))
