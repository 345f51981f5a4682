"""Symmetric positive definite band matrices: products, and the band of the inverse.

The inverse V of a band matrix is full, but its band follows from the Cholesky factor A = L L'
by a recursion upwards from the last row (Hutchinson & de Hoog 1985; Erisman & Tinney 1975). With
r_ik = l_{i+k,i} / l_ii and k = 1 ... p,

    V[i, i+j] = delta_0j / l_ii^2 - sum_k r_ik V[i+k, i+j],   j = 0 ... p.

It is sequential in i, so a long matrix is cut into pieces that go side by side. All that a piece
needs to know of those below it is the window W of V for the p rows behind its end:
V = V0 + X W X', where V0 comes of W = 0, and X solves x_i = -sum_k r_ik x_{i+k} from unit
vectors behind the end. Both terms are positive semidefinite: what they lose is relative to V. (A
matrix of few rows and next to no penalty is nearly singular; its trace with N needs the errors of
one recursion, which fit each other. It is one piece.)
"""

import numpy as np
from scipy.linalg import cholesky_banded

from igpe.core.arrays import FloatArray

SHORTEST = 32  # rows of a piece; more pieces would cost more to link than they save


def multiply(band: FloatArray, x: FloatArray) -> FloatArray:
    """A x for the symmetric A of which `band` is the lower form; x is (n,) or (n, m)."""
    rows = band if x.ndim == 1 else band[:, :, None]
    y: FloatArray = rows[0] * x
    for k in range(1, len(band)):
        y[k:] += rows[k, :-k] * x[:-k]
        y[:-k] += rows[k, :-k] * x[k:]
    return y


def inverse_bands(factors: FloatArray) -> FloatArray:
    """Bands of the inverses of m matrices.

    factors  (m, 4, n), lower Cholesky factors in lower form
    returns  (m, 4, n)
    """
    m, width, n = factors.shape
    p = width - 1
    steps = min(n, max(SHORTEST, int(np.sqrt(n))))
    pieces = -(-n // steps)
    ratios, pivots = _rows(factors, steps, pieces)
    bands = _alone(ratios, pivots)
    if pieces > 1:
        x = _carried(ratios)
        windows = _windows(bands[:p], x[:p])
        right = sum(windows[a] * x[:steps, a, None] for a in range(p))
        for j in range(width):
            bands[:, j] += (right * x[j : j + steps]).sum(axis=1)
    found: FloatArray = np.moveaxis(bands, (3, 1, 2, 0), (0, 1, 2, 3)).reshape(m, width, -1)
    return np.ascontiguousarray(found[:, :, :n])


def _rows(factors: FloatArray, steps: int, pieces: int) -> tuple[FloatArray, FloatArray]:
    """-r, (steps, p, pieces, m), and 1 / l_ii^2, (steps, pieces, m).

    Behind the last row the unit matrix goes on.
    """
    m, width, n = factors.shape
    filled = np.zeros((m, width, pieces * steps))
    filled[:, 0] = 1.0
    for k in range(width):
        filled[:, k, : n - k] = factors[:, k, : n - k]
    rows = np.moveaxis(filled.reshape(m, width, pieces, steps), (3, 1, 2, 0), (0, 1, 2, 3))
    return np.ascontiguousarray(-rows[:, 1:] / rows[:, :1]), 1.0 / rows[:, 0] ** 2


def _alone(ratios: FloatArray, pivots: FloatArray) -> FloatArray:
    """V0, (steps, p + 1, pieces, m)."""
    steps, p, *rest = ratios.shape
    bands = np.empty((steps, p + 1, *rest))
    window = np.zeros((p, p, *rest))
    for i in range(steps - 1, -1, -1):
        ratio, row = ratios[i], bands[i]
        np.add.reduce(ratio[:, None] * window, axis=0, out=row[1:])
        np.add.reduce(ratio * row[1:], axis=0, out=row[0])
        row[0] += pivots[i]
        window[1:, 1:] = window[:-1, :-1]
        window[0] = row[:-1]
        window[1:, 0] = row[1:-1]
    return bands


def _carried(ratios: FloatArray) -> FloatArray:
    """X, (steps + p, p, pieces, m), with the unit vectors behind the end."""
    steps, p, *rest = ratios.shape
    x = np.empty((steps + p, p, *rest))
    x[steps:] = np.eye(p).reshape(p, p, *(1 for _ in rest))
    for i in range(steps - 1, -1, -1):
        np.add.reduce(ratios[i][:, None] * x[i + 1 : i + 1 + p], axis=0, out=x[i])
    return x


def _windows(bands: FloatArray, x: FloatArray) -> FloatArray:
    """W behind each piece, (p, p, pieces, m), from the first p rows of V0 and X of each."""
    p, _, pieces, m = x.shape
    own = np.stack([[bands[min(a, b), abs(a - b)] for b in range(p)] for a in range(p)])
    windows = np.zeros((pieces, m, p, p))
    own, x = np.moveaxis(own, (2, 3), (0, 1)), np.moveaxis(x, (2, 3), (0, 1))
    for i in range(pieces - 1, 0, -1):
        windows[i - 1] = own[i] + x[i] @ windows[i] @ x[i].swapaxes(1, 2)
    return np.ascontiguousarray(np.moveaxis(windows, (0, 1), (2, 3)))


def inverse_band(band: FloatArray) -> FloatArray:
    """Band of the inverse of one matrix.

    band     (4, n), lower form
    returns  (4, n)
    raises   np.linalg.LinAlgError if the matrix is not positive definite
    """
    found: FloatArray = inverse_bands(cholesky_banded(band, lower=True)[None])[0]
    return found
