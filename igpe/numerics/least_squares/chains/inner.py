"""The linear problem inside a generalised Gauss-Newton step, after condensing.

    min |r + J d|   s.t.   low <= C d + c <= high

Equations among the rows (low = high) are eliminated first, d = P e + Z y. Columns of what is left
are scaled, J Z = Q U S V', and directions whose singular value is below a fraction of the largest
are held (Peifer & Timmer 2007, section 4, with an infinite Delta), unless limits are in the way:
then they may be what leads round them. In w = S V' y the problem is to project one point on a
polyhedron, which an active-set method (daqp) does; held directions count with a small S. What it
finds active is then solved for exactly, so that the same generalised inverse serves the natural
level function (their eq. 15): there, active rows must go the rest of their way, and no other.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import daqp
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.numerics.least_squares.base import Linearised

RANK = 1e-10  # directions below this fraction of the largest are held
ROUND = 1e-5  # of the largest singular value: as if held directions had it, where they give way
FREE = 1e30  # no limit
SOFT = 8  # daqp's word for a row that may be violated if it must
MET = 1e-9  # a limit violated by less is kept
TOLERANCE = 1e-5  # a violation below it is daqp's rounding, not a row that gave way
NONE = np.zeros(0, dtype=np.intp)
STILL = 1e-12  # of what moves a row: what is left is rounding


class Rows(NamedTuple):
    """Limits low <= C d + c <= high, each row in units of what it limits.

    matrix     (k, n);  offset, low, high  (k,)
    hard       (k,) rows that must be kept; d = 0 must satisfy them
    limits     so many rows at the end are constraints, equations where low = high
    """

    matrix: FloatArray
    offset: FloatArray
    low: FloatArray
    high: FloatArray
    hard: BoolArray
    limits: int = 0


class _Equal(NamedTuple):
    """Equations E d = e eliminated: d = through e + along y.

    rows     (n_e,) which;  through (n, n_e);  along (n, n - rank)
    effect   (m, n_e) J through
    still    (k,) rows that nothing moves once the equations are met
    """

    rows: IntArray
    through: FloatArray
    along: FloatArray
    effect: FloatArray
    still: BoolArray


@dataclass(frozen=True)
class Inverse:
    """The generalised inverse at one point, with the rows that were found active.

    change   (n,) the step there
    active   (a,) which rows, equations first;  reached (a,) C d + c of them
    held     how many directions of the unknowns were held;  rows: how many rows there are
    """

    change: FloatArray
    active: IntArray
    reached: FloatArray
    held: int
    rows: int
    _equal: _Equal
    _basis: FloatArray  # (n, r) d = through e + basis w; wider if held directions may give way
    _left: FloatArray  # (m, r) w = -left' (r + J through e)
    _rows: FloatArray  # (a - equations, n)

    def again(self, residual: FloatArray, targets: FloatArray) -> FloatArray:
        """(n,) the step for other residuals (m,) that takes C d of the active rows to (a,)."""
        n = self._equal.through.shape[1]
        fixed = self._equal.through @ targets[:n]
        free = -self._left.T @ (residual + self._equal.effect @ targets[:n])
        right = targets[n:] - self._rows @ fixed
        return np.asarray(fixed + self._basis @ _on(self._rows @ self._basis, right, free))


def inverse(at: Linearised, size: FloatArray, rows: Rows) -> Inverse:
    """Solve the problem at a point; size (n,) scales the unknowns.

    Rows that are not hard give way if no step keeps them all: inequalities first, then equations.
    """
    first = len(rows.low) - rows.limits
    equations = first + np.flatnonzero(rows.low[first:] == rows.high[first:])
    solution, kept = _solved(at, _eliminated(at, size, rows, equations), rows)
    if kept or len(equations) == 0:
        return solution
    return _solved(at, _eliminated(at, size, rows, equations[:0]), rows)[0]


def _eliminated(at: Linearised, size: FloatArray, rows: Rows, equations: IntArray) -> _Equal:
    if len(equations) == 0:
        nothing = np.zeros((len(size), 0))
        still = np.asarray(~rows.matrix.any(axis=1))
        return _Equal(equations, nothing, np.diag(size), np.zeros((len(at.residual), 0)), still)
    u, singular, vt = np.linalg.svd(rows.matrix[equations] * size)
    rank = int(np.sum(singular > RANK * max(float(singular[0]), np.finfo(float).tiny)))
    through = size[:, None] * (vt[:rank].T / singular[:rank]) @ u[:, :rank].T
    along = size[:, None] * vt[rank:].T
    left = np.linalg.norm(rows.matrix @ along, axis=1)
    still = np.asarray(left <= STILL * np.linalg.norm(rows.matrix * size, axis=1))
    return _Equal(equations, through, along, at.jacobian @ through, still)


def _solved(at: Linearised, equal: _Equal, rows: Rows) -> tuple[Inverse, bool]:
    """The problem with these equations eliminated, and whether hard rows are kept."""
    orthogonal, triangle = np.linalg.qr(at.jacobian @ equal.along)
    u, singular, vt = np.linalg.svd(triangle)
    largest = float(np.max(singular, initial=np.finfo(float).tiny))
    rank = int(np.sum(singular > RANK * largest))
    basis, left = equal.along @ (vt[:rank].T / singular[:rank]), orthogonal @ u[:, :rank]
    rest = vt[rank:]
    solution, is_free, kept = _projected(at, equal, rows, basis, left)
    if not is_free and len(rest):
        # Held directions give way too, as if a residual hardly knew them.
        basis = np.column_stack([basis, equal.along @ (rest.T / (ROUND * largest))])
        left = np.column_stack([left, np.zeros((len(left), len(rest)))])
        solution, _, kept = _projected(at, equal, rows, basis, left)
    return replace(solution, held=len(rest)), kept


def _projected(
    at: Linearised, equal: _Equal, rows: Rows, basis: FloatArray, left: FloatArray
) -> tuple[Inverse, bool, bool]:
    """In d = through e + basis w, w = -left' (r + J through e).

    returns  the inverse, whether no limit was in the way, and whether hard rows are kept
    """
    targets = rows.low[equal.rows] - rows.offset[equal.rows]
    fixed = equal.through @ targets
    free = -left.T @ (at.residual + equal.effect @ targets)
    others = np.setdiff1d(np.arange(len(rows.low)), equal.rows)
    turned, offset = rows.matrix[others] @ basis, (rows.offset + rows.matrix @ fixed)[others]
    turned[equal.still[others]] = 0.0
    part = Rows(turned, offset, rows.low[others], rows.high[others], rows.hard[others])
    value = turned @ free + offset
    is_free = bool(((value >= part.low - MET) & (value <= part.high + MET)).all())
    active, reached, kept = (NONE, np.zeros(0), True) if is_free else _active(free, part)
    best = _on(turned[active], reached - offset[active], free)
    solution = Inverse(
        fixed + basis @ best,
        np.concatenate([equal.rows, others[active]]).astype(np.intp),
        np.concatenate([rows.low[equal.rows], reached]),
        0, len(rows.low), equal, basis, left, rows.matrix[others[active]],
    )  # fmt: skip
    return solution, is_free, kept


def _active(free: FloatArray, rows: Rows) -> tuple[IntArray, FloatArray, bool]:
    """The rows that hold the point of the polyhedron next to `free`.

    returns  (a,) which, (a,) where they are held, and whether hard rows are kept
    """
    moves = rows.matrix.any(axis=1)
    inside = (rows.offset >= rows.low - MET) & (rows.offset <= rows.high + MET)
    moving, kept = np.flatnonzero(moves), bool((inside | moves | ~rows.hard).all())
    if len(moving) == 0:
        return NONE, np.zeros(0), kept
    upper = np.minimum(rows.high - rows.offset, FREE)[moving]
    lower = np.maximum(rows.low - rows.offset, -FREE)[moving]
    square, matrix = np.eye(len(free)), np.ascontiguousarray(rows.matrix[moving])
    for soft in (0, SOFT):  # rows give way only if no point keeps them all
        sense = np.where(rows.hard[moving], 0, soft).astype(np.int32)
        point, _, flag, details = daqp.solve(square, -free, matrix, upper, lower, sense)
        if flag > 0:
            break
    active = moving[np.flatnonzero(details["lam"])]
    value = rows.matrix[active] @ point + rows.offset[active]
    nearest = np.clip(value, rows.low[active], rows.high[active])
    keep = rows.hard[active] | (np.abs(nearest - value) <= TOLERANCE)
    return active.astype(np.intp), np.where(keep, nearest, value), kept and flag > 0


def _on(matrix: FloatArray, right: FloatArray, point: FloatArray) -> FloatArray:
    """The point of {matrix w = right} next to the one given."""
    if len(matrix) == 0:
        return point
    change = np.linalg.lstsq(matrix, right - matrix @ point, rcond=RANK)[0]
    return np.asarray(point + change)
