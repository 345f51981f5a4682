"""Lower bounds on the sum of squares from all residuals of a box together.

The residuals are r = c + G delta + q(delta) +- E. For every vector u, by Cauchy and Schwarz,

    |r|^2 >= (max(0, min over the box of u'r))^2 / |u|^2;

u'r is summed up before its range is taken, so that curvature cancels. How u was found needs no
trust.

What all residuals of a box say together: it is done with, or smaller than it was.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.kernels.compiled import entry_point, kernel
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, UP
from igpe.proofs.prover.kernels.rows import BoxRows, apart, bounds_of, shrink
from igpe.proofs.prover.kernels.taylor import Monomials

ROUNDS = 6  # of the search for multipliers
SWEEPS = 15  # of coordinate descent in each


@kernel
def combined(rows: BoxRows, u: FloatArray, out: FloatArray) -> float:
    """u'r as a polynomial, into out (n_delta,); returns its error, rounding covered."""
    out[:] = 0.0
    error, size = 0.0, 0.0
    count = 0
    for i in range(len(u)):
        if u[i] == 0.0:
            continue
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
    n = algebra.parameters
    value, slope = np.zeros(n_delta), np.zeros((n_delta, n))
    for m in range(n_delta):
        value[m] = 1.0
        for f in range(3):
            j = algebra.factors[m, f]
            if j >= 0:
                slope[m] *= delta[j]
                slope[m, j] += value[m]
                value[m] *= delta[j]
    for i in range(len(r)):
        r[i] = 0.0
        jacobian[i] = 0.0
        if not np.isfinite(rows.error[i]):
            continue
        for m in range(n_delta):
            r[i] += rows.c[i, m] * value[m]
            for j in range(n):
                jacobian[i, j] += rows.c[i, m] * slope[m, j]


@kernel
def multipliers(
    algebra: Monomials, rows: BoxRows, cut: float, best_u: FloatArray, best_delta: FloatArray
) -> float:
    """The best bound found, its u and the point that it belongs to.

    Gauss-Newton on the dead-zone problem: minimise sum max(0, |r| - E)^2 over the box; what is left
    of the residuals are the multipliers.
    """
    m, n = len(rows.error), algebra.parameters
    r, jacobian = np.zeros(m), np.zeros((m, n))
    u, delta = np.zeros(m), np.zeros(n)
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
        matrix = jacobian.T @ jacobian
        gradient = jacobian.T @ u
        step = _box_step(matrix, gradient, delta)
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
            slope, curve = gradient[j], matrix[j, j]
            for k in range(n):
                slope += matrix[j, k] * step[k]
            if curve > 0.0:
                aim = step[j] - slope / curve
                step[j] = min(max(aim, -1.0 - delta[j]), 1.0 - delta[j])
    return step


@kernel
def definite(matrix: FloatArray, margin: float) -> bool:
    """Whether matrix - margin I has a Cholesky factor (in doubles; the margin covers rounding)."""
    n = len(matrix)
    a = matrix.copy()
    for j in range(n):
        d = a[j, j] - margin
        for k in range(j):
            d -= a[j, k] * a[j, k]
        if not (d > 0.0):
            return False
        a[j, j] = np.sqrt(d)
        for i in range(j + 1, n):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            a[i, j] = total / a[j, j]
    return True


@kernel
def by_convexity(algebra: Monomials, rows: BoxRows) -> float:
    """Proven bound on |r|^2 near an optimum: the quadratic part, if convex, minus what is left.

    |c + G d + q(d)|^2 >= |c|^2 + 2 c'G d + d'(G'G + 2 sum c_i H_i) d - |cubic|, q'q being no less
    than 0; then |r| >= |polynomial| - |E|.
    """
    n, n_delta = algebra.parameters, rows.c.shape[1]
    matrix, gradient = np.zeros((n, n)), np.zeros(n)
    cubic = np.zeros((n, n_delta))
    constant, errors, size = 0.0, 0.0, 0.0
    count = 0
    for i in range(len(rows.error)):
        if not np.isfinite(rows.error[i]):
            continue
        count += 1
        c = rows.c[i]
        row_error = rows.error[i]
        constant += c[0] * c[0]
        row_size = 0.0
        for m in range(n_delta):
            row_size += abs(c[m])
        size += row_size * row_size
        for j in range(n):
            gradient[j] += 2.0 * c[0] * c[1 + j]
            for k in range(n):
                matrix[j, k] += c[1 + j] * c[1 + k]
        for m in range(1 + n, n_delta):
            if algebra.factors[m, 2] >= 0:
                row_error += abs(c[m])
                continue
            a, b = algebra.factors[m, 0], algebra.factors[m, 1]
            matrix[a, b] += c[0] * c[m]
            matrix[b, a] += c[0] * c[m]
            for j in range(n):
                cubic[j, m] += 2.0 * c[1 + j] * c[m]
        errors += row_error * row_error
    rounding = (count + 8.0) * 16.0 * (n + 2.0) * (n + 2.0) * UNIT * size
    if count == 0 or not definite(matrix, rounding):
        return 0.0
    delta = _box_step(matrix, 0.5 * gradient, np.zeros(n))
    value, slopes = constant, np.zeros(n)
    for j in range(n):
        along = 0.0
        for k in range(n):
            along += matrix[j, k] * delta[k]
        value += delta[j] * (gradient[j] + along)
        slopes[j] = gradient[j] + 2.0 * along
    # convex: not below its tangent at delta, whose least value is at corners
    for j in range(n):
        g = slopes[j]
        value += min(g * (1.0 - delta[j]), g * (-1.0 - delta[j]))
    for j in range(n):
        for m in range(n_delta):
            value -= abs(cubic[j, m])
    value -= 4.0 * rounding
    if not (value > 0.0):
        return 0.0
    away = np.sqrt(value / UP) / UP - np.sqrt(errors * UP) * UP
    return away * away / UP if away > 0.0 else 0.0


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
    algebra: Monomials, rows: BoxRows, s: FloatArray, k: int, reach: float, p: FloatArray
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
    best = max(best, by_convexity(algebra, rows))
    if best + others <= cut:
        contract(algebra, rows, (cut - others) * UP, u, at)
    return (best + others) / UP


@entry_point
def sensitivities(algebra: Monomials, rows: BoxRows, out: FloatArray) -> None:
    """How far the residuals move along what is left of each axis (n_p,)."""
    out[:] = 0.0
    for i in range(len(rows.error)):
        if not np.isfinite(rows.error[i]):
            continue
        for j in range(algebra.parameters):
            out[j] += rows.c[i, 1 + j] ** 2
    for j in range(algebra.parameters):
        out[j] = np.sqrt(out[j]) * 0.5 * (rows.delta[j, 1] - rows.delta[j, 0])
