"""Symmetric positive definite band matrices: products, and the band of the inverse.

The inverse of a band matrix is full, but its band follows from the Cholesky factor A = L L'
by a recursion upwards from the last row (Hutchinson & de Hoog 1985; Erisman & Tinney 1975):

    V[i, j] = delta_ij / l_ii^2 - sum_k (l_{i+k,i} / l_ii) V[i+k, j],   j = i ... i + 3

It is sequential in i, so many matrices (penalties, or pieces of one long matrix) go together.
"""

import numpy as np
from scipy.linalg import cholesky_banded

from igpe.arrays import FloatArray

PIECE = 2000  # rows in a piece of a long matrix
OVERLAP = 200  # rows after which a wrong start of the recursion is forgotten


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
    ratios = np.ascontiguousarray(np.moveaxis(factors[:, 1:] / factors[:, :1], 2, 0))
    pivots = np.ascontiguousarray((1.0 / factors[:, 0] ** 2).T)
    bands = np.empty((n, m, width))
    window = np.zeros((m, p, p))  # V for the rows and columns i+1 ... i+p
    for i in range(n - 1, -1, -1):
        ratio, row = ratios[i], bands[i]
        row[:, 1:] = -(ratio[:, None, :] @ window)[:, 0]
        row[:, 0] = pivots[i] - (ratio * row[:, 1:]).sum(axis=1)
        window[:, 1:, 1:] = window[:, :-1, :-1]
        window[:, 0] = row[:, :-1]
        window[:, :, 0] = row[:, :-1]
    moved: FloatArray = np.moveaxis(bands, 0, 2)
    return moved


def inverse_band(band: FloatArray) -> FloatArray:
    """Band of the inverse of one matrix whose inverse decays away from the diagonal.

    band     (4, n), lower form
    returns  (4, n)
    raises   np.linalg.LinAlgError if the matrix is not positive definite

    A long matrix is cut into pieces that are treated together. Each starts below its end, from
    an empty window: the recursion forgets its start as fast as the inverse decays.
    """
    factor = cholesky_banded(band, lower=True)
    n = factor.shape[1]
    if n <= PIECE:
        alone: FloatArray = inverse_bands(factor[None])[0]
        return alone
    pieces = -(-n // PIECE)
    long = np.zeros((len(factor), pieces * PIECE + OVERLAP))
    long[0] = 1.0
    long[:, :n] = factor
    cut = np.stack([long[:, i * PIECE : (i + 1) * PIECE + OVERLAP] for i in range(pieces)])
    found = inverse_bands(cut)[:, :, :PIECE]
    whole: FloatArray = np.concatenate(list(found), axis=1)[:, :n]
    return whole
