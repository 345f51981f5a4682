"""Residuals as polynomials of the scaled parameters: what they say of a box, and tubes of them.

Lower bounds on the sum of squares come from all residuals of a box together. The residuals are r =
c + G delta + q(delta) +- E. For every vector u, by Cauchy and Schwarz,

    |r|^2 >= (max(0, min over the box of u'r))^2 / |u|^2;

u'r is summed up before its range is taken, so that curvature cancels. How u was found needs no
trust. Below the cut, combinations of residuals make the box smaller.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.compiled import entry_point, kernel
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, UP, cut_off, narrow_operands
from igpe.proofs.prover.kernels.mueller import (
    MOST_STEPS,
    Slopes,
    Tube,
    begin_sums,
    enclose,
    inputs_between,
    mueller,
    narrow_states,
    narrow_sums,
)
from igpe.proofs.prover.kernels.tape import Faces, OpTape, Schedule
from igpe.proofs.prover.kernels.taylor import Monomials


class BoxRows(NamedTuple):
    """All residuals over one box.

    c      (m, n_delta) coefficients;  error: (m,) >= 0, infinite where there is no polynomial
    low, high  (m,) bounds, of whatever is known
    square (m,) the least that each residual's square can be
    delta  (n_p, 2) what is left of [-1, 1] in each parameter
    known  (1,) how many polynomials there are
    """

    c: FloatArray
    error: FloatArray
    low: FloatArray
    high: FloatArray
    square: FloatArray
    delta: FloatArray
    known: FloatArray


def rows(size: int, algebra: Monomials) -> BoxRows:
    """Room for `size` residuals."""
    shapes = (size, algebra.size - algebra.errors), *[(size,)] * 4, (algebra.parameters, 2), (1,)
    return BoxRows(*map(np.zeros, shapes))


def clear(rows: BoxRows) -> None:
    """Forget everything."""
    rows.delta[:] = -1.0, 1.0
    for array in (rows.c, rows.square, rows.known):
        array[:] = 0.0
    rows.low[:], rows.high[:], rows.error[:] = -np.inf, np.inf, np.inf


@kernel
def bounds_of(algebra: Monomials, c: FloatArray) -> tuple[float, float]:
    """Range of a polynomial over the box, rounding covered."""
    low = high = c[0]
    size = abs(c[0])
    n = algebra.parameters
    square = np.zeros(n)
    for m in range(1 + n, len(c)):
        a, b = algebra.factors[m, 0], algebra.factors[m, 1]
        size += abs(c[m])
        if algebra.factors[m, 2] < 0 and a == b:
            square[a] = c[m]
        else:
            low -= abs(c[m])
            high += abs(c[m])
    for j in range(n):
        g, t = c[1 + j], square[j]
        size += abs(g)
        low += _least(g, t)
        high -= _least(-g, -t)
    room = (8.0 + 2.0 * len(c)) * UNIT * size + TINY
    return low - room, high + room


@kernel
def _least(g: float, t: float) -> float:
    """Minimum of g s + t s^2 over [-1, 1]."""
    if t > 0.0 and abs(g) < 2.0 * t:
        return -g * g / (4.0 * t)
    return t - abs(g)


@kernel
def apart(low: float, high: float) -> float:
    """How far a number between low and high is from zero at least; 0 unless they are bounds."""
    if not (low <= high):
        return 0.0
    return max(low, -high, 0.0)


@kernel
def reach(cut: float, others: float) -> float:
    """How large a residual can be below the cut, given the squares of all others; may be nan."""
    rest = (cut - others / UP) * UP + TINY
    return 0.0 if rest <= 0.0 else np.sqrt(rest) * UP


@entry_point
def note(rows: BoxRows, i: int, low: float, high: float) -> None:
    """Residual i is between low and high, as well as within what was known.

    Nothing is learnt from ends that are no numbers, or crossed.
    """
    if not (low <= high):
        return
    low, high = max(low, rows.low[i]), min(high, rows.high[i])
    rows.low[i], rows.high[i] = low, high
    away = max(low, -high, 0.0)
    rows.square[i] = away * away / UP


@entry_point
def total(rows: BoxRows) -> float:
    """Proven bound on the sum of squares, from each residual alone."""
    return float(rows.square.sum() / UP)


@kernel
def solve_for(
    algebra: Monomials, rows: BoxRows, p: FloatArray, error: float, room: float, only: int
) -> None:
    """Narrow delta_k, of all k if `only` is -1, by |p(delta) +- error| <= room."""
    rest, size, low, high = p.copy(), 0.0, 0.0, 0.0
    for j in range(algebra.parameters):
        size += abs(p[1 + j])
        rest[1 + j] = 0.0
        low += min(p[1 + j] * rows.delta[j, 0], p[1 + j] * rows.delta[j, 1])
        high += max(p[1 + j] * rows.delta[j, 0], p[1 + j] * rows.delta[j, 1])
    if not np.isfinite(size + error):
        return
    rest_low, rest_high = bounds_of(algebra, rest)
    slack = error + 64.0 * UNIT * (size + abs(rest_low) + abs(rest_high) + room + error) + TINY
    for k in range(algebra.parameters):
        g = p[1 + k]
        if abs(g) > 0.0 and only in (-1, k):
            least = low - min(g * rows.delta[k, 0], g * rows.delta[k, 1])
            most = high - max(g * rows.delta[k, 0], g * rows.delta[k, 1])
            a = (-room - rest_high - most - slack) / g
            b = (room - rest_low - least + slack) / g
            shrink(rows, k, a, b)


@kernel
def narrow(algebra: Monomials, rows: BoxRows, i: int, cut: float) -> None:
    """Cut off what residual i, given the least of all others, leaves no room below the cut."""
    room = reach(cut, rows.square.sum() - rows.square[i])
    solve_for(algebra, rows, rows.c[i], rows.error[i], room, -1)


@kernel
def shrink(rows: BoxRows, k: int, one: float, other: float) -> None:
    """delta_k is between two numbers, in either order; an empty range is one with low > high."""
    low, high = (one, other) if one <= other else (other, one)
    if not (low <= high):  # one of them is no number
        return
    low, high = low - 1e-14 * abs(low) - TINY, high + 1e-14 * abs(high) + TINY
    rows.delta[k, 0] = max(rows.delta[k, 0], low)
    rows.delta[k, 1] = min(rows.delta[k, 1], high)


@kernel
def left(rows: BoxRows) -> float:
    """Share of the box that is left; negative if nothing is. What is no number cuts nothing off."""
    share = 1.0
    for k in range(len(rows.delta)):
        width = rows.delta[k, 1] - rows.delta[k, 0]
        if width < 0.0:
            return -1.0
        if width <= 2.0:
            share *= 0.5 * width
    return share


class TubeRun(NamedTuple):
    """One experiment: tapes of slopes, measured quantities and start values, and results.

    slope   of the states and, after them, of sums of states, as interval arithmetic likes it, and
            what its `faces` need
    sums    (n_sums, n_results) whole numbers: coefficients of conserved sums of both; a sum of
            states minus itself is zero
    offset  where the experiment's rows begin
    """

    slope: OpTape
    faces: Faces
    sums: FloatArray
    outputs: OpTape
    begin: OpTape
    schedule: Schedule
    tube: Tube
    rows: BoxRows
    offset: int


@entry_point
def tube_rows(run: TubeRun, p: FloatArray, fine: float, most: int, cut: float) -> int:
    """Mueller bounds of all residuals as far as they reach, or are needed to exceed the cut.

    returns  the number of stops reached
    """
    slope, faces, sums, outputs, begin, schedule, tube, rows, offset = run
    n, states = len(slope.results), len(begin.results)
    x, u = np.zeros((n, 2)), np.zeros((schedule.inputs.shape[1] + 1, 2))
    out = np.zeros((len(begin.op), 2))
    enclose(begin, x, p, u, out)
    for i in range(states):
        x[i] = out[begin.results[i]]
    held = np.empty((len(sums), 2))
    held[:, 0], held[:, 1] = -np.inf, np.inf
    begin_sums(sums, held, x, states)
    narrow_sums(sums, held, x)
    tube.time[0], tube.bounds[0], tube.steps[0] = schedule.start, x, 1
    clock = np.array([schedule.start, schedule.stops[-1] - schedule.start])
    ranges = np.empty((len(slope.op), 2))
    inputs_between(schedule, 0, schedule.start, schedule.start, u)
    enclose(slope, x, p, u, ranges)  # what does not move, once
    of = Slopes(slope, faces, p, np.empty_like(u), ranges, sums, held, np.empty((n, 2)))
    out = np.zeros((len(outputs.op), 2))
    for stop in range(len(schedule.stops)):
        if not mueller(of, schedule, stop, x, clock, fine, most, tube):
            return stop
        if schedule.first[stop] < schedule.first[stop + 1]:
            inputs_between(schedule, stop, clock[0], clock[0], u)
            enclose(outputs, x, p, u, out)
            for i in range(schedule.first[stop], schedule.first[stop + 1]):
                low, high = out[outputs.results[schedule.column[i]]]
                y, w = schedule.value[i], schedule.weight[i]
                room = 8.0 * UNIT * (abs(y) + abs(low) + abs(high))
                low, high = (low - y - room) * w, (high - y + room) * w
                low, high = low - abs(low) * 8.0 * UNIT, high + abs(high) * 8.0 * UNIT
                note(rows, offset + i, low, high)
            if total(rows) > cut:
                return stop + 1
            if _within_reach(run, stop, cut, out, x) or len(sums):
                narrow_states(sums, held, x, -1)
                narrow_sums(sums, held, x)
                k = tube.steps[0]
                if k < MOST_STEPS:  # a second point at the same time
                    tube.time[k], tube.bounds[k], tube.steps[0] = clock[0], x, k + 1
    return len(schedule.stops)


@kernel
def _within_reach(run: TubeRun, stop: int, cut: float, out: FloatArray, now: FloatArray) -> bool:
    """Cut off what states cannot be, by measurements, where the sum of squares is below the cut.

    What goes on in the tube are the solutions that can still be below it: |r_i| <= sqrt(cut -
    the least of the others).

    out      (n, 2) ranges of the operations of what is measured
    returns  whether the bounds now (n_x, 2) have changed
    """
    outputs, schedule, rows, offset = run.outputs, run.schedule, run.rows, run.offset
    for i in range(schedule.first[stop], schedule.first[stop + 1]):
        k = outputs.results[schedule.column[i]]
        others = rows.square[: offset + i].sum() + rows.square[offset + i + 1 :].sum()
        room = reach(cut, others) / schedule.weight[i]
        y = schedule.value[i]
        low, high = y - room, y + room
        cut_off(out, k, low - 8.0 * UNIT * abs(low), high + 8.0 * UNIT * abs(high))
    narrow_operands(outputs, out)
    changed = False
    for k in range(len(outputs.op)):
        if outputs.op[k] == ops.STATE:
            state, low, high = outputs.a[k], out[k, 0], out[k, 1]
            if low > now[state, 0] or high < now[state, 1]:
                now[state, 0], now[state, 1] = low, high
                changed = True
    return changed


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
