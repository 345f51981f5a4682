"""Linear least squares inside bounds: min |A x - b|^2, lower <= x <= upper; quadratics in a box.

An active-set method (Stark & Parker 1995) on the triangular factor of A, so that its many small
problems have as many rows as unknowns. Problems here are small and come by the hundred, so LAPACK
is called directly: `scipy.optimize.lsq_linear` gives the same answers and takes ten times as long.
"""

from functools import lru_cache
from typing import NamedTuple

import daqp
import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack

from igpe.core.arrays import BoolArray, FloatArray
from igpe.numerics.least_squares.base import LARGEST

RANK = 1e-10  # directions below this fraction of the largest determine nothing
NOTHING = 1e-13  # columns below this fraction of the largest are rounding
SLOPE = 1e-12  # of |A| |b|: a slope that releases no bound
NEARLY = 1e-10  # added to the squares of columns of length 1, which may be singular
ROUNDS = 10  # releases per unknown, at most
HUGE = 1e100  # entries of a matrix above it are scaled: their products with the right overflow


def bounded_solution(
    matrix: FloatArray, right: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """(n,) a minimiser inside the bounds, of small norm where the matrix determines none.

    matrix  (m, n);  right (m,)
    """
    n = matrix.shape[1]
    largest = float(np.abs(matrix).max(initial=0.0))
    if largest > HUGE:
        matrix, right = matrix / largest, right / largest
    right = np.clip(right, -LARGEST, LARGEST)
    if len(matrix) > n:  # R (n, n) and Q'b (n,) of the factors A = Q R
        both = np.empty((len(matrix), n + 1), order="F")
        both[:, :n], both[:, n] = matrix, right
        factors = lapack.dgeqrf(both, overwrite_a=True)[0][:n]
        factors[_below(n)] = 0.0  # dgeqrf keeps Q there
        matrix, right = factors[:, :n], factors[:, n]
    free = _least(matrix, right)
    if ((free >= lower) & (free <= upper)).all():
        return free
    inside = np.minimum(np.maximum(free, lower), upper)
    if n == 1:
        return inside
    nearly = _nearly(matrix, right, lower, upper)
    return _ActiveSet(matrix, right, lower, upper).solution(inside if nearly is None else nearly)


def _nearly(
    matrix: FloatArray, right: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray | None:
    """(n,) the solution but for the rounding of normal equations, or None.

    Its active set is nearly always the right one, which spares the search for it.
    """
    length = np.linalg.norm(matrix, axis=0)
    length[length <= NOTHING * length.max()] = 1.0
    even, low, high = matrix / length, lower * length, upper * length
    square = even.T @ even
    square.flat[:: len(length) + 1] += NEARLY
    solved = _quadratic(square, -(even.T @ right), low, high)
    if solved is None:
        return None
    x, multipliers = solved
    held = np.where(multipliers > 0, upper, np.where(multipliers < 0, lower, x / length))
    return np.minimum(np.maximum(held, lower), upper)


class _ActiveSet(NamedTuple):
    """The problem, of few rows."""

    matrix: FloatArray
    right: FloatArray
    lower: FloatArray
    upper: FloatArray

    def solution(self, x: FloatArray) -> FloatArray:
        """From x, which lies inside the bounds.

        An unknown that was released in vain is not released again until others move: where
        directions are undetermined, rounding would release it for ever.
        """
        free = (x > self.lower) & (x < self.upper)
        tiny = SLOPE * float(np.linalg.norm(self.matrix) * np.linalg.norm(self.right))
        released = np.zeros(len(x), dtype=bool)
        for _ in range(ROUNDS * len(x)):
            before = x.copy()
            self._descend(x, free)
            if (x != before).any():
                released[:] = False
            slope = self.matrix.T @ (self.right - self.matrix @ x)  # of the decrease
            gain = np.where(x <= self.lower, slope, -slope)
            gain[free | released | (self.lower >= self.upper)] = 0.0
            best = int(gain.argmax())
            if gain[best] <= tiny:
                break
            free[best] = released[best] = True
        return x

    def _descend(self, x: FloatArray, free: BoolArray) -> None:
        """Move x to the minimiser with the others held; who meets a bound on the way stays."""
        while free.any():
            which = free.nonzero()[0]
            now, held = x[which], x.copy()
            held[which] = 0.0
            goal = _least(self.matrix[:, which], self.right - self.matrix @ held)
            low, high = self.lower[which], self.upper[which]
            outside = (goal < low) | (goal > high)
            if not outside.any():
                x[which] = goal
                return
            ends = np.where(goal < low, low, high)
            share = np.ones(len(which))
            share[outside] = (ends - now)[outside] / (goal - now)[outside]
            first = share.min()
            arrived = outside & (share <= first)
            between = np.minimum(np.maximum(now + first * (goal - now), low), high)
            x[which] = np.where(arrived, ends, between)
            free[which[arrived]] = False


@lru_cache
def _below(n: int) -> BoolArray:
    """(n, n + 1) what lies below the diagonal."""
    return np.tri(n, n + 1, -1, dtype=bool)


def _least(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """(n,) the shortest minimiser of |A x - b|, by complete orthogonal factors.

    Which directions are determined is decided with columns of length 1: an unknown is no less
    determined for being far from its size.
    """
    m, n = matrix.shape
    length = np.sqrt((matrix**2).sum(axis=0))
    nothing = length <= NOTHING * length.max()
    length[nothing] = 1.0
    even = matrix / length
    even[:, nothing] = 0.0
    padded = np.zeros(max(m, n))
    padded[:m] = right
    work = 3 * n + 64 * (min(m, n) + 1)
    free = np.zeros(n, dtype=np.int32)
    _, found, _, rank, _ = lapack.dgelsy(even, padded, free, RANK, work)
    with np.errstate(over="ignore"):
        x: FloatArray = np.asarray(found, dtype=float).reshape(-1)[:n] / length
    x = np.clip(x, -LARGEST, LARGEST)  # a step has a square
    if rank == n:
        return x
    rows = np.linalg.svd(even)[2][rank:] / length  # directions that are lost
    rows /= np.abs(rows).max(axis=1, keepdims=True)
    lost = np.linalg.qr(rows.T)[0]
    return np.asarray(x - lost @ (lost.T @ x))


RIDGE = 1e-8  # of the largest curvature: directions that no residual determines have so much


def least(
    curvature: FloatArray, gradient: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """(n,) the minimiser of g'd + d'K d / 2 between the bounds."""
    try:
        free = -cho_solve(cho_factor(curvature), gradient)
    except LinAlgError:  # rounding ate the smallest curvature
        curvature = curvature.copy()
        curvature.flat[:: len(gradient) + 1] += RIDGE * np.max(np.diag(curvature))
        free = np.asarray(-np.linalg.lstsq(curvature, gradient)[0], dtype=np.float64)
    if ((low <= free) & (free <= high)).all():
        return np.asarray(free)
    solved = _quadratic(curvature, gradient, low, high)
    return np.clip(free if solved is None else solved[0], low, high)


def _quadratic(
    curvature: FloatArray, gradient: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """The minimiser (n,) of g'd + d'K d / 2 in a box, and its multipliers; None if daqp gives up.

    Multipliers are positive on upper bounds and negative on lower ones.
    """
    none, sense = np.zeros((0, len(gradient))), np.zeros(len(gradient), dtype=np.int32)
    x, _, flag, details = daqp.solve(curvature, gradient, none, high, low, sense)
    return (x, details["lam"]) if flag > 0 and np.isfinite(x).all() else None
