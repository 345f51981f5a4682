"""Lower bounds on the sum of squares from all residuals of a box together.

The residuals are r = c + G delta + q(delta) +- E. For every vector u, by Cauchy and Schwarz,

    |r|^2 >= (max(0, min over the box of u'r))^2 / |u|^2;

u'r is summed up before its range is taken, so that curvature cancels. How u was found needs no
trust. Below the cut, combinations of residuals make the box smaller.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.compiled import entry_point, kernel
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, UP
from igpe.proofs.prover.kernels.rows import BoxRows, apart, bounds_of, solve_for
from igpe.proofs.prover.kernels.taylor import Monomials

ROUNDS = 6  # of the search for multipliers
SWEEPS = 15  # of coordinate descent in each
SINGULAR = 1e-11  # eigenvalue of correlations from which parameters cannot be told apart


@kernel
def combined(rows: BoxRows, u: FloatArray, out: FloatArray) -> float:
    """u'r as a polynomial, into out (n_delta,); returns its error, rounding covered."""
    out[:] = 0.0
    error, size, count = 0.0, 0.0, 0
    for i in range(len(u)):
        if u[i] != 0.0:
            count += 1
            error += abs(u[i]) * rows.error[i]
            for m in range(len(out)):
                part = u[i] * rows.c[i, m]
                out[m] += part
                size += abs(part)
    return (error + (count + 4.0) * UNIT * size) * UP + TINY


@kernel
def length(u: FloatArray) -> float:
    """Upper bound on |u|."""
    return float(np.sqrt((u * u).sum() * UP) * UP + TINY)


@kernel
def by_multipliers(algebra: Monomials, rows: BoxRows, u: FloatArray) -> float:
    """Proven bound on |r|^2 from the rows that have polynomials (u is zero elsewhere)."""
    sum_up = np.zeros(rows.c.shape[1])
    error = combined(rows, u, sum_up)
    low, high = bounds_of(algebra, sum_up)
    distance = apart(low - error, high + error) / length(u) / UP
    return distance * distance / UP if distance > 0.0 else 0.0


@kernel
def values(
    algebra: Monomials, rows: BoxRows, delta: FloatArray, r: FloatArray, jacobian: FloatArray
) -> None:
    """Residuals' polynomials and their derivatives at a point, in plain doubles."""
    n_delta = rows.c.shape[1]
    value, slope = np.ones(n_delta), np.zeros((n_delta, algebra.parameters))
    for m in range(n_delta):
        for f in range(3):
            j = algebra.factors[m, f]
            if j >= 0:
                slope[m] *= delta[j]
                slope[m, j] += value[m]
                value[m] *= delta[j]
    r[:], jacobian[:] = rows.c @ value, rows.c @ slope
    for i in range(len(r)):
        if not np.isfinite(rows.error[i]):
            r[i], jacobian[i] = 0.0, 0.0


@kernel
def multipliers(
    algebra: Monomials, rows: BoxRows, cut: float, best_u: FloatArray, best_delta: FloatArray
) -> float:
    """The best bound found, its u and the point that it belongs to.

    Gauss-Newton on the dead-zone problem: minimise sum max(0, |r| - E)^2 over the box; what is left
    of the residuals are the multipliers.
    """
    m, n = len(rows.error), algebra.parameters
    r, jacobian, u, delta = np.zeros(m), np.zeros((m, n)), np.zeros(m), np.zeros(n)
    best = 0.0
    for _ in range(ROUNDS):
        values(algebra, rows, delta, r, jacobian)
        for i in range(m):
            u[i] = 0.0
            if abs(r[i]) > rows.error[i]:
                u[i] = r[i] - rows.error[i] if r[i] > 0.0 else r[i] + rows.error[i]
            else:
                jacobian[i] = 0.0
        if not ((u * u).sum() > 0.0):
            break
        bound = by_multipliers(algebra, rows, u)
        if bound > best:
            best = bound
            best_u[:] = u
            best_delta[:] = delta
            if bound > cut:
                break
        step = _box_step(jacobian.T @ jacobian, jacobian.T @ u, delta)
        if np.abs(step).max() < 1e-6:
            break
        delta += step
    return best


@kernel
def _box_step(matrix: FloatArray, gradient: FloatArray, delta: FloatArray) -> FloatArray:
    """Minimiser of the quadratic model with delta + step in [-1, 1]: coordinate descent."""
    n = len(delta)
    step = np.zeros(n)
    for _ in range(SWEEPS):
        for j in range(n):
            slope = gradient[j]
            for k in range(n):
                slope += matrix[j, k] * step[k]
            if matrix[j, j] > 0.0:
                aim = step[j] - slope / matrix[j, j]
                step[j] = min(max(aim, -1.0 - delta[j]), 1.0 - delta[j])
    return step


@kernel
def contract(algebra: Monomials, rows: BoxRows, cut: float, u: FloatArray, at: FloatArray) -> None:
    """Cut off what combinations of residuals leave no room for below the cut.

    s'r determines delta_k where s is a row of the pseudo-inverse of G; and |s'r| <= |s| rho with
    rho^2 = cut (1 + kappa) - (u'r / |u|)^2 for any u whose cosine with s is at most kappa.
    """
    m, n = len(rows.error), algebra.parameters
    r, jacobian = np.zeros(m), np.zeros((m, n))
    values(algebra, rows, at, r, jacobian)
    matrix = jacobian.T @ jacobian
    sizes = np.sqrt(np.diag(matrix))
    matrix /= np.outer(sizes, sizes)
    if not np.isfinite(matrix).all():
        return
    eigenvalues, vectors = np.linalg.eigh(matrix)
    if not (eigenvalues[0] > SINGULAR):
        return
    inverse = (vectors / eigenvalues) @ vectors.T
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
        error = combined(rows, s, sum_up)
        solve_for(algebra, rows, sum_up, error, np.sqrt(room * UP) * UP * norm_s, k)


@entry_point
def joint_bound(algebra: Monomials, rows: BoxRows, cut: float, u: FloatArray) -> float:
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
    contract(algebra, rows, (cut - others) * UP, u, at)
    return (best + others) / UP
