"""Bounds of least-squares problems: linear problems inside them, and those that hold an optimum.

Linear least squares: min |A x - b|^2, lower <= x <= upper; quadratics in a box. An active-set
method (Stark & Parker 1995) on the triangular factor of A, so that its many small problems have as
many rows as unknowns. Problems here are small and come by the hundred, so LAPACK is called
directly: `scipy.optimize.lsq_linear` gives the same answers and takes ten times as long.

The active set of an optimum is judged by the residuals and not by a distance: an interior-point
method ends beside a bound, at a distance that depends on its barrier. A value belongs on the bound
if the residuals do not show the step to it, and the objective does not rise.

A direction of the Jacobian's null space is a change of the unknowns that moves no residual,
relative to the size of each. The null space is that of columns of length 1, so that neither units
nor an unknown of little effect hide one that has some.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import daqp
import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.markup import listed
from igpe.numerics.least_squares.base import LARGEST, Fit, Linearised, Residual, Search

RANK = 1e-10  # directions below this fraction of the largest determine nothing
ROUNDING_COLUMN = 1e-13  # columns below this fraction of the largest are rounding
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
    length[length <= ROUNDING_COLUMN * length.max()] = 1.0
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
    nothing = length <= ROUNDING_COLUMN * length.max()
    length[nothing] = 1.0
    even = matrix / length
    even[:, nothing] = 0.0
    padded = np.zeros(max(m, n))
    padded[:m] = right
    work = 3 * n + 64 * (min(m, n) + 1)
    free = np.zeros(n, dtype=np.int32)
    _, solution, _, rank, _ = lapack.dgelsy(even, padded, free, RANK, work)
    with np.errstate(over="ignore"):
        x: FloatArray = np.asarray(solution, dtype=float).reshape(-1)[:n] / length
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


ROUNDING = 1e-9  # a value this close to a bound, relative to its size, lies on it
UNSEEN = 1e-2  # of a residual's standard deviation: a step that the data do not show
SEEN = 0.1  # of it: the whole width of the bounds must move the residuals by so much
BESIDE = 1e-7  # of the bounds' width: so near a bound the bound itself is always tried
LEVEL = 1e-6  # of the mean square: a rise of the objective that is none


def on_bounds(x: FloatArray, at: Linearised | None, box: Box) -> BoolArray:
    """(n,) which values lie on a bound: exactly, or beside it where the objective falls towards it.

    at  residuals and derivative at x (n,); None where there are none: then up to rounding only
    """
    gap, side = _gap(x, box)
    width = np.where(np.isfinite(box.upper - box.lower), box.upper - box.lower, 0.0)
    exactly = gap <= ROUNDING * np.abs(x)
    beside = gap <= ROUNDING * 1e-3 * width
    if at is None:
        return np.asarray(exactly | beside)
    falls = side * (at.jacobian.T @ at.residual) < 0
    effect, deviation = _effects(at)  # between very wide bounds, a value beside one may be large
    return np.asarray(
        exactly | (beside & (effect * gap <= UNSEEN * deviation)) | (_unseen(gap, at, box) & falls)
    )


def beside_bounds(x: FloatArray, box: Box) -> BoolArray:
    """(n,) which values are so near a bound, and not on it, that `refitted_on_bounds` may move."""
    gap, _ = _gap(x, box)
    return np.asarray((gap > 0) & (gap <= UNSEEN * (box.upper - box.lower)))


def refitted_on_bounds(residual: Residual, fit: Fit, box: Box, search: Search) -> Fit:
    """The fit with every value beside a bound tried on the bound, the others fitted again.

    The search releases a bound from which the objective falls. What fits worse is not taken.
    """
    if fit.at is None:
        return fit
    gap, side = _gap(fit.x, box)
    beside = _unseen(gap, fit.at, box) | (gap <= BESIDE * (box.upper - box.lower))
    there = np.where(beside, np.where(side < 0, box.lower, box.upper), fit.x)
    if (there == fit.x).all():
        return fit
    tried = search.fit(residual, there, box)
    rise = LEVEL * fit.at.squares / max(len(fit.at.residual), 1)
    return tried if tried.cost <= fit.cost + rise else fit


def _gap(x: FloatArray, box: Box) -> tuple[FloatArray, FloatArray]:
    """Distances (n,) to the nearest bounds, and -1 where that is the lower one, else 1."""
    below, above = x - box.lower, box.upper - x
    return np.minimum(below, above), np.where(below <= above, -1.0, 1.0)


def _effects(at: Linearised) -> tuple[FloatArray, float]:
    """The length (n,) of each column of the Jacobian, and the size of a residual."""
    deviation = np.sqrt(at.squares / max(len(at.residual), 1))
    return np.linalg.norm(at.jacobian, axis=0), float(deviation)


def _unseen(gap: FloatArray, at: Linearised, box: Box) -> BoolArray:
    """(n,) which steps to the nearest bound no residual shows, though it shows the whole width."""
    width = box.upper - box.lower
    effect, deviation = _effects(at)
    with np.errstate(invalid="ignore"):  # 0 * inf
        seen = effect * width > SEEN * deviation
        unseen = effect * gap <= UNSEEN * deviation
    return np.asarray(seen & unseen & (gap <= UNSEEN * width))


LOST = 1e-8  # a direction whose singular value is below this fraction of the largest is lost
NOTHING = 1e-12  # an unknown whose effect is below this fraction of the largest has none
SMALL = 0.05  # of the largest part: a part that is left out of the sentence


class Direction(NamedTuple):
    """A change of the unknowns that no residual shows.

    names   those that take part
    change  (n,), relative to the size of each; largest part 1
    """

    names: tuple[str, ...]
    change: FloatArray

    @property
    def sentence(self) -> str:
        """Sentence that explains the direction to the user."""
        if len(self.names) == 1:
            return f"The measurements do not determine {self.names[0]}."
        parts = " ".join(
            f"{'+' if c > 0 else '-'} {abs(c):.2g} {n}"
            for n, c in zip(self.names, self.change, strict=True)
        )
        return (
            f"The measurements do not determine {listed(self.names)} separately: to first order, "
            f"the relative change {parts.removeprefix('+ ')} does not affect any measurement."
        )


def undetermined(jacobian: FloatArray, sizes: FloatArray, names: Sequence[str]) -> list[Direction]:
    """The directions that the Jacobian (m, n) does not determine.

    sizes  (n,) of the unknowns, as their values; 0 where unknown
    """
    m, n = jacobian.shape
    short = np.asarray(np.linalg.qr(jacobian, mode="r")) if m > n else jacobian
    length = np.sqrt((short**2).sum(axis=0))
    size = np.where(sizes != 0, np.abs(sizes), 1 / np.where(length > 0, length, 1.0))
    effect = length * size
    none = effect <= NOTHING * effect.max()
    even = np.where(none, 0.0, short / np.where(none, 1.0, length))
    _, singular, rows = np.linalg.svd(even, full_matrices=True)
    values = np.zeros(n)
    values[: len(singular)] = singular
    lost = rows[values <= LOST * max(values[0], np.finfo(float).tiny)]
    lost = lost / np.where(none, 1.0, effect)
    free, directions = list(range(n)), []
    for k in range(len(lost)):  # reduced row echelon form: a basis with few parts each
        pivot = max(free, key=lambda j: abs(lost[k, j]))
        lost[k] /= lost[k, pivot]
        others = np.arange(len(lost)) != k
        lost[others] -= np.outer(lost[others, pivot], lost[k])
        free.remove(pivot)
    for row in lost:
        change = row / row[np.argmax(np.abs(row))]
        parts = [i for i, c in enumerate(change) if abs(c) >= SMALL]
        directions.append(Direction(tuple(names[i] for i in parts), change[parts]))
    return directions
