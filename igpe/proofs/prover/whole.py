"""What all residuals of a box say together: it is done with, or smaller than it was."""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.bounds import (
    by_convexity,
    combined,
    definite,
    length,
    multipliers,
    values,
)
from igpe.proofs.prover.compiled import door, kernel
from igpe.proofs.prover.enclosures.recursion import TINY, UNIT, UP, Algebra
from igpe.proofs.prover.enclosures.rows import Rows, apart, bounds_of, shrink


@kernel
def contract(algebra: Algebra, rows: Rows, cut: float, u: FloatArray, at: FloatArray) -> None:
    """Cut off what combinations of residuals leave no room for below the cut.

    s'r determines delta_k where s is a row of the pseudo-inverse of G; and |s'r| <= |s| rho with
    rho^2 = cut (1 + kappa) - (u'r / |u|)^2 for any u whose cosine with s is at most kappa.
    """
    m, n = len(rows.error), algebra.parameters
    r, jacobian = np.zeros(m), np.zeros((m, n))
    values(algebra, rows, at, r, jacobian)
    matrix = jacobian.T @ jacobian
    sizes = np.zeros(n)
    for j in range(n):
        sizes[j] = np.sqrt(matrix[j, j])
        if not (sizes[j] > 0.0 and np.isfinite(sizes[j])):
            return
    for j in range(n):
        for k in range(n):
            matrix[j, k] /= sizes[j] * sizes[k]
    if not definite(matrix, 1e-11):
        return
    inverse = np.linalg.inv(matrix)
    # the multipliers without their part along the columns of G
    v = np.zeros(m)
    if (u * u).sum() > 0.0:
        weights = (inverse @ ((jacobian.T @ u) / sizes)) / sizes
        v[:] = u - jacobian @ weights
    sum_up = np.zeros(rows.c.shape[1])
    across, norm_v = 0.0, length(v)
    if norm_v > 1e-150:
        error = combined(rows, v, sum_up)
        low, high = bounds_of(algebra, sum_up)
        across = apart(low - error, high + error) / norm_v / UP
    for k in range(n):
        s = jacobian @ (inverse[:, k] / sizes)
        norm_s = length(s)
        cosine = 0.0
        if norm_v > 1e-150:
            part = (np.abs(s * v)).sum() * (m + 4.0) * UNIT
            cosine = (abs((s * v).sum()) + part) / (norm_s * norm_v) * (1.0 + 1e-9)
        room = cut * (1.0 + cosine) - across * across / UP / UP
        if room < 0.0:
            rows.delta[k, 0], rows.delta[k, 1] = 1.0, -1.0
            return
        reach = np.sqrt(room * UP) * UP * norm_s
        _solve_for(algebra, rows, s, k, reach, sum_up)


@kernel
def _solve_for(
    algebra: Algebra, rows: Rows, s: FloatArray, k: int, reach: float, p: FloatArray
) -> None:
    """Narrow delta_k by |s'r| <= reach."""
    n = algebra.parameters
    error = combined(rows, s, p)
    g = p[1 + k]
    if not (abs(g) > 0.0) or not np.isfinite(error):
        return
    p[1 + k] = 0.0
    size = abs(g)
    low = high = 0.0
    for j in range(n):
        if j != k:
            low += min(p[1 + j] * rows.delta[j, 0], p[1 + j] * rows.delta[j, 1])
            high += max(p[1 + j] * rows.delta[j, 0], p[1 + j] * rows.delta[j, 1])
            size += abs(p[1 + j])
            p[1 + j] = 0.0
    rest_low, rest_high = bounds_of(algebra, p)
    slack = error + 64.0 * UNIT * (size + abs(rest_low) + abs(rest_high) + reach) + TINY
    a = (-reach - rest_high - high - slack) / g
    shrink(rows, k, a, (reach - rest_low - low + slack) / g)


@door
def conclude(algebra: Algebra, rows: Rows, cut: float, u: FloatArray) -> float:
    """Proven bound on the sum of squares from all rows; below the cut, the box is contracted too.

    u  (m,) becomes the best multipliers
    """
    others, alone = 0.0, 0.0  # the others are those without a polynomial
    for i in range(len(rows.error)):
        if np.isfinite(rows.error[i]):
            alone += rows.square[i]
        else:
            others += rows.square[i]
    others, alone = others / UP, alone / UP
    at = np.zeros(algebra.parameters)
    u[:] = 0.0
    best = max(alone, multipliers(algebra, rows, cut - others, u, at))
    if best + others > cut:
        return best + others
    best = max(best, by_convexity(algebra, rows))
    if best + others <= cut:
        contract(algebra, rows, (cut - others) * UP, u, at)
    return (best + others) / UP


@door
def sensitivities(algebra: Algebra, rows: Rows, out: FloatArray) -> None:
    """How far the residuals move along what is left of each axis (n_p,)."""
    out[:] = 0.0
    for i in range(len(rows.error)):
        if not np.isfinite(rows.error[i]):
            continue
        for j in range(algebra.parameters):
            out[j] += rows.c[i, 1 + j] ** 2
    for j in range(algebra.parameters):
        out[j] = np.sqrt(out[j]) * 0.5 * (rows.delta[j, 1] - rows.delta[j, 0])
