"""How the error of the states is carried from step to step, so that it does not wrap.

At the end of a step the states are P(delta) + A z + eps, |z| <= 1, |eps| <= e. It is enclosed in
P(delta) + C z', |z'| <= 1, where the columns of C are nearly orthogonal, the longest column
of A leading (Lohner's QR method). Q is any matrix nearly orthogonal: with eta >= ||I - Q'Q||,

    |Q^-1 w|_i <= |Q'w|_i + eta / (1 - eta) max_j |Q'w|_j,

so Q diag(y) contains A z + eps where y bounds that; what rounding of C = Q diag(y) moves is added
to y as well (by Brouwer's theorem twice its first effect is enough).
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.interval import UNIT, up

NEARLY = 1e-3  # a matrix further from orthogonal is not used


def reset(a: FloatArray, e: FloatArray) -> FloatArray:
    """C (n, n, n_boxes) for A (n, n, n_boxes) and e (n, n_boxes); nan where none was found."""
    n = len(e)
    good = np.isfinite(a).all(axis=(0, 1)) & np.isfinite(e).all(axis=0)
    matrix = np.where(good, a, 0.0).transpose(2, 0, 1)
    error = np.where(good, e, 0.0).T
    q = _directions(matrix, error)
    turned, sizes = q.transpose(0, 2, 1) @ matrix, np.abs(q).transpose(0, 2, 1)
    slack = 2 * n * UNIT
    y = np.abs(turned).sum(axis=2) + slack * (sizes @ np.abs(matrix)).sum(axis=2)
    y = up(y + (sizes @ error[:, :, None])[:, :, 0])
    gram = np.eye(n) - q.transpose(0, 2, 1) @ q
    eta = up(np.abs(gram).sum(axis=2).max(axis=1) + 4 * n * n * UNIT)
    beyond = up(eta / (1 - eta))[:, None]
    y = up(y + beyond * y.max(axis=1, keepdims=True))
    moved = (np.abs(q) @ y[:, :, None]) * 4 * UNIT
    back = (sizes @ moved)[:, :, 0]
    y = up(y + back + 2 * beyond * back.max(axis=1, keepdims=True))
    c = (q * y[:, None, :]).transpose(1, 2, 0)
    return np.asarray(np.where(good & (eta < NEARLY), c, np.nan))


def _directions(matrix: FloatArray, error: FloatArray) -> FloatArray:
    """(n_boxes, n, n) orthogonal matrices up to rounding; the longest column's direction first."""
    lengths = (matrix**2).sum(axis=1)
    order = np.argsort(-lengths, axis=1)
    sorted_ = np.take_along_axis(matrix, order[:, None, :], axis=2)
    usual = np.eye(matrix.shape[1])
    tiny = lengths.max(axis=1) <= (error**2).max(axis=1)
    return np.asarray(np.linalg.qr(np.where(tiny[:, None, None], usual, sorted_))[0])
