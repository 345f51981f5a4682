"""The linear problem inside a generalised Gauss-Newton step, after condensing.

    min |r + J d|   s.t.   low <= C d + c <= high

Columns are scaled, J W = Q U S V', and directions whose singular value is below a fraction of the
largest are held (Peifer & Timmer 2007, section 4, with an infinite Delta), unless limits are in the
way: then they may be what leads round them. In w = S V' W^-1 d the problem is to project one point
on a polyhedron, which an active-set method (daqp) does; held directions count with a small S. What
it finds active is then solved for exactly, so that the same generalised inverse serves the natural
level function (their eq. 15): there, active rows must go the rest of their way, and no other.
"""

from dataclasses import dataclass
from typing import NamedTuple

import daqp
import numpy as np

from igpe.arrays import BoolArray, FloatArray, IntArray
from igpe.least_squares.base import Linearised

RANK = 1e-10  # directions below this fraction of the largest are held
ROUND = 1e-5  # of the largest singular value: as if held directions had it, where they give way
FREE = 1e30  # no limit
SOFT = 8  # daqp's word for a row that may be violated if it must
MET = 1e-9  # a limit violated by less is kept
TOLERANCE = 1e-5  # a violation below it is daqp's rounding, not a row that gave way


class Rows(NamedTuple):
    """Limits low <= C d + c <= high, each row in units of what it limits.

    matrix     (k, n);  offset, low, high  (k,)
    hard       (k,) rows that must be kept; d = 0 must satisfy them
    """

    matrix: FloatArray
    offset: FloatArray
    low: FloatArray
    high: FloatArray
    hard: BoolArray


@dataclass(frozen=True)
class Inverse:
    """The generalised inverse at one point, with the rows that were found active.

    change   (n,) the step there
    active   (a,) which rows;  reached (a,) C d + c of them
    held     how many directions of the unknowns were held
    """

    change: FloatArray
    active: IntArray
    reached: FloatArray
    held: int
    _basis: FloatArray  # (n, r) d = basis w; r = n if held directions may give way
    _left: FloatArray  # (m, r) w = -left' r
    _rows: FloatArray  # (a, n)

    def again(self, residual: FloatArray, offset: FloatArray, rest: float) -> FloatArray:
        """(n,) the step for other residuals (m,) and offsets (a,) of the active rows.

        rest  the share of their way that active rows still have to go
        """
        free = -self._left.T @ residual
        return self._basis @ _on(self._rows @ self._basis, rest * self.reached - offset, free)


def inverse(at: Linearised, size: FloatArray, rows: Rows) -> Inverse:
    """Solve the problem at a point; size (n,) scales the unknowns."""
    orthogonal, triangle = np.linalg.qr(at.jacobian * size)
    u, singular, vt = np.linalg.svd(triangle)
    largest = max(float(singular[0]), np.finfo(float).tiny)
    rank = int((singular > RANK * largest).sum())
    basis = size[:, None] * (vt[:rank].T / singular[:rank])
    left = orthogonal @ u[:, :rank]
    free, held = -left.T @ at.residual, len(size) - rank
    value = rows.matrix @ (basis @ free) + rows.offset
    if ((value >= rows.low - MET) & (value <= rows.high + MET)).all():
        none = np.zeros(0, dtype=np.intp)
        return Inverse(basis @ free, none, np.zeros(0), held, basis, left, rows.matrix[none])
    if held:
        basis = np.hstack([basis, size[:, None] * vt[rank:].T / (ROUND * largest)])
        left = np.hstack([left, np.zeros((len(left), held))])
        free = np.append(free, np.zeros(held))
    turned = rows.matrix @ basis
    active, reached = _active(free, turned, rows)
    best = _on(turned[active], reached - rows.offset[active], free)
    return Inverse(basis @ best, active, reached, held, basis, left, rows.matrix[active])


def _active(free: FloatArray, turned: FloatArray, rows: Rows) -> tuple[IntArray, FloatArray]:
    """The rows that hold the point of the polyhedron next to `free`, and where they are held."""
    upper = np.minimum(rows.high - rows.offset, FREE)
    lower = np.maximum(rows.low - rows.offset, -FREE)
    square, matrix = np.eye(len(free)), np.ascontiguousarray(turned)
    for soft in (0, SOFT):  # rows give way only if no point keeps them all
        sense = np.where(rows.hard, 0, soft).astype(np.int32)
        found, _, flag, told = daqp.solve(square, -free, matrix, upper, lower, sense)
        if flag > 0:
            break
    active = np.flatnonzero(told["lam"])
    value = turned[active] @ found + rows.offset[active]
    inside = np.clip(value, rows.low[active], rows.high[active])
    keep = rows.hard[active] | (np.abs(inside - value) <= TOLERANCE)
    return active.astype(np.intp), np.where(keep, inside, value)


def _on(matrix: FloatArray, right: FloatArray, point: FloatArray) -> FloatArray:
    """The point of {matrix w = right} next to the one given."""
    if len(matrix) == 0:
        return point
    way = np.linalg.lstsq(matrix, right - matrix @ point, rcond=RANK)[0]
    return np.asarray(point + way)
