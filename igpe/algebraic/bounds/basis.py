"""Few coordinates in which residuals are bounded: an orthonormal basis of sampled columns.

Which columns span the rest is decided on some of the residuals; those chosen are then computed
whole, and fresh samples tell whether the span misses anything. Any basis is valid: what it misses
weakens bounds and nothing else.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.taylor.taylor import TINY
from igpe.core.arrays import BoolArray, FloatArray, IntArray

FEW = 64  # residuals that are not worth reducing
ENOUGH = 400  # residuals on which columns are chosen
SAMPLES = 16  # thetas whose columns are asked first
FRESH = 6  # thetas that test the span
WORSE = 1e4  # times the median remainder: a row that may have to be given up alone


def basis(problem: Separable, seed: int, miss: float) -> FloatArray:
    """P (r, n_residuals).

    seed  of the samples whose span is taken
    miss  share of a column's norm that may lie outside it
    """
    m = len(problem.target)
    if m <= FEW:
        return np.eye(m)
    always = _always_known(problem)
    alone, rows = np.flatnonzero(~always), np.flatnonzero(always)
    reduced = _span_of_columns(problem, rows, seed, miss)
    found = np.zeros((reduced.shape[1] + len(alone), m))
    found[: reduced.shape[1], rows] = reduced.T
    found[np.arange(reduced.shape[1], len(found)), alone] = 1.0
    return found


def _span_of_columns(problem: Separable, rows: IntArray, seed: int, miss: float) -> FloatArray:
    """(n_rows, r) orthonormal basis of the columns; with more samples until there is no more."""
    if len(rows) == 0:
        return np.zeros((0, 0))
    rng = np.random.default_rng(seed)
    few, kept = problem.thinned(ENOUGH, rng)
    inside = np.isin(kept, rows)
    if inside.sum() < FEW:
        few, inside = problem, np.isin(np.arange(len(problem.target)), rows)
    thetas, count = np.zeros((0, len(problem.axes))), SAMPLES
    while True:
        thetas = np.vstack([thetas, problem.thetas(rng.random((count, len(problem.axes))))])
        samples = few.values(thetas)[:, inside]
        chosen = _spanning(samples, miss / 10)
        fresh = problem.thetas(rng.random((FRESH, len(problem.axes))))
        enough = 2 * len(chosen.theta) > len(rows)
        found = _span(samples[chosen.theta, :, chosen.column].T, miss / 10)
        if enough or _missed(found, few.values(fresh)[:, inside]) <= miss:
            columns = problem.values(thetas[chosen.theta])[:, rows]
            each = columns[np.arange(len(chosen.theta)), :, chosen.column].T
            found = _span(np.hstack([problem.target[rows, None], each]), miss / 10)
            missed = _missed(found, problem.values(fresh)[:, rows])
            if missed <= miss or enough:
                return found if missed <= miss else np.eye(len(rows))
        thetas, count = np.vstack([thetas, fresh]), 2 * count


class _Chosen(NamedTuple):
    """(n,) theta and column of each of the samples that span the others."""

    theta: IntArray
    column: IntArray


def _spanning(samples: FloatArray, negligible: float) -> _Chosen:
    """Of samples (n_thetas, n_rows, n_columns), the fewest that come so near to all."""
    every = _unit(samples.transpose(1, 0, 2).reshape(samples.shape[1], -1))
    triangle, order = qr(every, mode="r", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(triangle))
    rank = int((sizes > negligible * sizes.max(initial=0.0)).sum())
    return _Chosen(*np.divmod(order[:rank], samples.shape[2]))


def _missed(found: FloatArray, fresh: FloatArray) -> float:
    """The largest part of a fresh sample's norm that is outside the span."""
    every = _unit(fresh.transpose(1, 0, 2).reshape(fresh.shape[1], -1))
    outside = every - found @ (found.T @ every)
    return float(np.linalg.norm(outside, axis=0).max(initial=0.0))


def _always_known(problem: Separable) -> BoolArray:
    """(n_residuals,) rows whose enclosure over the whole box is no worse than most others'."""
    good = np.ones(len(problem.target), dtype=bool)
    for alike in {problem.alike(k) for k in range(1 + problem.n_linear)}:
        own = [problem.axes[a] for a in problem.depends[alike[0]]]
        lower = np.array([[a.lower for a in own]])
        upper = np.array([[a.upper for a in own]])
        for f in problem.enclosures(alike, lower, upper):
            e = f.e[0]
            good &= np.isfinite(e) & (e <= WORSE * np.median(e) + TINY)
    return good


def _span(samples: FloatArray, negligible: float) -> FloatArray:
    """(n_rows, r) orthonormal basis of the samples, up to singular values of that share."""
    left, values, _ = np.linalg.svd(_unit(samples), full_matrices=False)
    return np.asarray(left[:, values > negligible * values.max(initial=0.0)])


def _unit(samples: FloatArray) -> FloatArray:
    """The columns with norm one; those that are zero or not finite, zero."""
    with np.errstate(invalid="ignore"):
        size = np.linalg.norm(samples, axis=0)
        scaled = samples / np.where(size > 0, size, 1.0)
    return np.where(np.isfinite(scaled).all(axis=0), scaled, 0.0)
