"""Validated integration of one experiment over one box, which records the enclosed residuals.

Before a step the states are x = P(delta, z) with delta, z in [-1, 1]: z carries the old error along
some directions (below). Over the step x = X(tau, delta, z) + eps, and

    |eps|' <= d + M |eps|,  |eps(0)| = 0   =>   |eps(tau)| <= h phi_1(h M) d

as long as |eps| stays in the trial tube in which d and M hold; if the right-hand side is inside,
the tube is never left. This proves existence, and bounds the error of the discretisation, at once.
At the end of the step the slopes' last Taylor term, which X' lacks, is added as the polynomial it
is, and what the operations of the slopes are off within the tube becomes new directions.

Errors of the states are carried from step to step along directions. At the end of a step the states
are P(delta) + Z z + N s + eps with z, s in [-1, 1]: Z is what the step's flow made of the old
directions, N holds the step's own errors, one for each operation whose constant multiples sum up to
slopes (`tape.linear_parts`), and |eps| <= y is rounding. An error e(t) of an operation that enters
the slopes with the factors N_j moves the states by N_j times its integral: one number, whatever the
states. The longest directions are kept. What is left over is enclosed in a box along Q, with Q
nearly orthonormal.
"""

import math
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.compiled import entry_point, kernel
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, UP
from igpe.proofs.prover.kernels.mueller import Tube, enclose, hull, inputs_between
from igpe.proofs.prover.kernels.rows import BoxRows, bounds_of, left, narrow, note, total
from igpe.proofs.prover.kernels.tape import Linear, Schedule
from igpe.proofs.prover.kernels.taylor import (
    Monomials,
    TaylorModel,
    coefficient,
    divides_by_zero,
    dropped,
    errors,
    losses,
    norms,
)


@kernel
def directed(model: TaylorModel, linear: Linear, h: float, y: FloatArray, new: FloatArray) -> None:
    """Errors of a step h as new directions (n_x, n_atoms), and a bound y on the rest.

    needs `errors` for a tube that the solutions do not leave
    """
    tape, space = model.tape, model.space
    for i in range(len(y)):
        y[i] = 2.0 * UNIT * space.total[tape.results[i]]
        for j in range(len(linear.between)):
            y[i] += 2.0 * abs(linear.factor[i, j]) * space.lost[linear.between[j]]
        for j in range(len(linear.atoms)):
            width = abs(linear.weight[i, j]) * space.most[linear.atoms[j]] * h * UP
            new[i, j] = width if linear.weight[i, j] > 0.0 else -width
            y[i] += 8.0 * UNIT * width / h
        y[i] = y[i] * h * UP + TINY


@kernel
def transport(
    algebra: Monomials, x: FloatArray, y: FloatArray, new: FloatArray, scale: FloatArray
) -> int:
    """Turn the error of the states x (n_x, size) into directions again; return x's columns in use.

    y (n_x,) bounds what has no direction yet, new (n_x, any) has one;  scale (n_x,) of the states
    """
    n, first = algebra.states, algebra.size - algebra.errors
    every = np.concatenate((x[:, first:], new), axis=1)
    length = np.zeros(every.shape[1])
    for j in range(len(length)):
        for i in range(n):
            length[j] += (every[i, j] / scale[i]) ** 2
    order = np.argsort(-length)
    count = 0
    while count < len(order) and length[order[count]] > 0.0:
        count += 1
    kept = min(count, algebra.errors - n)
    x[:, first:] = 0.0
    for j in range(kept):
        x[:, first + j] = every[:, order[j]]
    enclose_rest(every[:, order[kept:]], y, x[:, first + kept : first + kept + n])
    return first + kept + n


@kernel
def enclose_rest(rest: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """Box of Z z + w, for Z = `rest` (n, any) and |w| <= y, as directions `out` (n, n).

    v = Z z + w is Q (Q'v) but for how far Q is from orthonormal, which is computed and bounded:
    |Q^-1 v - Q'v| <= kappa |Q'v|_1.
    """
    n = len(y)
    q = np.zeros((n, n))
    _orthogonal(rest, q)
    far = 0.0
    for i in range(n):
        row = 0.0
        for j in range(n):
            row += abs((q[:, i] * q[:, j]).sum() - (i == j))
        if not (row <= far):  # also where it is no number
            far = row
    kappa = 2.0 * (far + 16.0 * UNIT * n * n)
    zeta = np.zeros(n)
    total = 0.0
    for i in range(n):
        for j in range(rest.shape[1]):
            along, size = 0.0, 0.0
            for k in range(n):
                along += q[k, i] * rest[k, j]
                size += abs(q[k, i] * rest[k, j])
            zeta[i] += abs(along) + 2.0 * (n + 2) * UNIT * size
        for j in range(n):
            zeta[i] += abs(q[j, i]) * y[j]
        zeta[i] *= UP
        total += zeta[i]
    for i in range(n):
        width = (zeta[i] + kappa * total) * UP + TINY
        for j in range(n):
            out[j, i] = q[j, i] * width
    if not (far < 0.01):
        out[:] = np.nan


@kernel
def _orthogonal(z: FloatArray, q: FloatArray) -> None:
    """q (n, n) orthonormal: the columns of z, longest first, and what they lack (Gram-Schmidt)."""
    n, many, count = len(z), z.shape[1], 0
    order = np.argsort(-(z * z).sum(axis=0))
    for candidate in range(many + n):
        v = np.zeros(n)
        if candidate < many:
            v[:] = z[:, order[candidate]]
        else:
            v[candidate - many] = 1.0
        before = np.sqrt((v * v).sum())
        if count == n or not (before >= 1e-200):
            continue
        v /= before
        for _ in range(2):
            for j in range(count):
                v -= (q[:, j] * v).sum() * q[:, j]
        after = np.sqrt((v * v).sum())
        if after > 1e-6 or (candidate >= many and after > 1e-12):
            q[:, count] = v / after
            count += 1


SERIES = 8  # terms of phi_1; what is left of it is M^8 times the tube
TRIES = 6  # trial tubes
LOST, LEAST_LOST = 0.1, 1e-10  # of the spread, and of the scale: what functions may leave out


@kernel
def _growth(model: TaylorModel, order: int, h: float, tube: FloatArray, y: FloatArray) -> None:
    """y = h phi_1(h M) d, the last term of the series by the tube."""
    space, n = model.space, len(tube)
    power, following = np.empty(n), np.empty(n)
    for i in range(n):
        f = model.tape.results[i]
        d = space.error[f, 0] + 2.0 * UNIT * space.total[f] + TINY + space.norm[f, order].sum()
        y[i] = power[i] = d * h * UP
    for k in range(1, SERIES):
        _times(model, power, h / (k + 1), following)
        y += following
        power[:] = following
    power[:] = tube
    for k in range(SERIES):
        _times(model, power, h / (k + 1), following)
        power[:] = following
    for i in range(n):
        y[i] = (y[i] + power[i]) * UP


@kernel
def _times(model: TaylorModel, v: FloatArray, factor: float, out: FloatArray) -> None:
    """out = factor M v."""
    for i in range(len(v)):
        total = 0.0
        for j in range(len(v)):
            total += model.space.error[model.tape.results[i], 1 + j] * v[j]
        out[i] = total * factor * UP


@kernel
def enclose_error(
    model: TaylorModel, order: int, h: float, p: FloatArray, sizes: FloatArray, y: FloatArray
) -> bool:
    """Whether a tube was found for a step h; `errors` are then those in it.

    y  (n_x,) becomes a bound on |eps| over the step

    needs `norms` for this h, and `range` of the operations over the step
    """
    losses(model, order, p, sizes)
    tube = np.zeros(len(y))
    errors(model, tube)
    _growth(model, order, h, tube, y)
    for _ in range(TRIES):
        tube[:] = 1.5 * y + TINY
        errors(model, tube)
        _growth(model, order, h, tube, y)
        if (y <= tube).all():  # not where one is no number
            tube[:] = y
            errors(model, tube)
            return True
        if not np.isfinite(y).all():
            return False
    return False


@kernel
def arrive(
    algebra: Monomials,
    order: int,
    h: float,
    x: FloatArray,
    y: FloatArray,
    out: FloatArray,
    used: int,
) -> None:
    """out (n_x, size) = X(h); y grows by the rounding of the sums and of h."""
    for i in range(algebra.states):
        size = 0.0
        for m in range(used):
            total = x[order, i, m]
            bound = abs(total) * (order + 1)
            for k in range(order - 1, -1, -1):
                total = total * h + x[k, i, m]
                bound = bound * h + abs(x[k, i, m]) * (k + 1)
            out[i, m] = total
            size += bound
        y[i] = (y[i] + 4.0 * UNIT * (order + 2) * size) * UP + TINY


THROUGH, FATHOMED, BROKE, SHRUNK = 0, 1, 2, 3
ENOUGH = 0.3  # of the box left: begin again on that
NARROW = 30.0  # 1 / spread below which time is enclosed more exactly, as curvature counts less
DROWNED = 0.02  # of a state's scale: smaller errors drown nothing
SMALLEST = 1e-9  # step, as a share of the way to the next stop


class TaylorRun(NamedTuple):
    """One experiment: Taylor models of slopes, measured quantities and start values, and results.

    offset  where the experiment's rows begin
    linear  slopes as sums
    spread  (n_p,) what the box is to be made narrower in where the model broke; zeros elsewhere
    """

    slope: TaylorModel
    outputs: TaylorModel
    begin: TaylorModel
    schedule: Schedule
    tube: Tube
    rows: BoxRows
    offset: int
    linear: Linear
    spread: FloatArray


@kernel
def _values(
    model: TaylorModel, x: FloatArray, p: FloatArray, u: FloatArray, sizes: FloatArray
) -> None:
    """The model's operations at one time, with their errors; needs `range` unless it is plain."""
    coefficient(model, x, p, u, 0)
    norms(model, 0, 0.0)
    losses(model, 0, p, sizes)
    errors(model, np.zeros(model.algebra.states))


@kernel
def _measure(run: TaylorRun, stop: int) -> None:
    """Residuals of one stop as polynomials, from `_values`."""
    (tape, algebra, space), schedule = run.outputs, run.schedule
    rows, offset, first = run.rows, run.offset, algebra.size - algebra.errors
    for i in range(schedule.first[stop], schedule.first[stop + 1]):
        k = tape.results[schedule.column[i]]
        w, y = schedule.weight[i], schedule.value[i]
        c = rows.c[offset + i]
        value = space.c[k, 0]
        c[:] = value[:first] * w
        c[0] = (value[0] - y) * w
        error = space.error[k, 0] + 8.0 * UNIT * (np.abs(value[:first]).sum() + abs(y))
        error += np.abs(value[first:]).sum()
        rows.error[offset + i] = error * w * UP
        low, high = bounds_of(algebra, c)
        e = rows.error[offset + i]
        if np.isfinite(low) and np.isfinite(high) and np.isfinite(e):
            note(rows, offset + i, low - e, high + e)
            rows.known[0] += 1
        else:
            rows.error[offset + i] = np.inf
            c[:] = 0.0


@kernel
def _reset(
    algebra: Monomials, x: FloatArray, y: FloatArray, new: FloatArray, tube: FloatArray
) -> None:
    """Where the tube is narrower than the error alone, the state is anywhere in the tube."""
    first = algebra.size - algebra.errors
    for i in range(algebra.states):
        half, error = 0.5 * (tube[i, 1] - tube[i, 0]), y[i] + np.abs(x[i, first:]).sum()
        error += np.abs(new[i]).sum()
        if not (error <= half) and np.isfinite(half):
            x[i, :], new[i] = 0.0, 0.0
            x[i, 0] = 0.5 * (tube[i, 0] + tube[i, 1])
            y[i] = (half + 4.0 * UNIT * (abs(tube[i, 0]) + abs(tube[i, 1]))) * UP


@kernel
def _inputs_at(schedule: Schedule, stop: int, t: float, u: FloatArray, sizes: FloatArray) -> None:
    """Value at t and slope of the inputs and of time, on the way to a stop."""
    for i in range(len(sizes)):
        a, b = schedule.inputs[stop, i, 0], schedule.inputs[stop, i, 1]
        u[i, 0], u[i, 1] = a + b * t, b
        sizes[i] = abs(a) + abs(b * t)
    u[len(u) - 1, 0], u[len(u) - 1, 1] = t, 1.0


@kernel
def _spread(x: FloatArray, scale: FloatArray) -> float:
    """How far the states differ over the box, relative to their scale, and at least rounding."""
    worst = 0.0
    for i in range(len(x)):
        worst = max(worst, np.abs(x[i, 1:]).sum() / scale[i])
    return worst


@kernel
def _broke(run: TaylorRun, x: FloatArray) -> int:
    """Record which parameters the box is to be made narrower in, for the model to go further.

    Where slopes hold quotients or functions: those in what products drop for their degree. Else
    those that move the states x (n_x, size), by monomials of any degree.
    """
    algebra, scale, spread = run.slope.algebra, run.schedule.scale, run.spread
    if not run.slope.tape.plain:
        dropped(run.slope, scale, spread)
        spread *= run.schedule.stops[-1] - run.schedule.start
        if 0.0 < spread.sum() < np.inf:
            return BROKE
    spread[:] = 0.0
    for m in range(1, len(algebra.factors)):
        size = 0.0
        for i in range(len(x)):
            size += abs(x[i, m]) / scale[i]
        last = -1
        for f in range(algebra.factors.shape[1]):
            j = algebra.factors[m, f]  # sorted, so that equal ones are neighbours
            if j >= 0 and j != last and np.isfinite(size):
                spread[j] += size
                last = j
    return BROKE


@kernel
def _lost(algebra: Monomials, x: FloatArray, scale: FloatArray) -> bool:
    """Whether the error of every state drowns what depends on the parameters."""
    first = algebra.size - algebra.errors
    for i in range(algebra.states):
        known = DROWNED * scale[i] + np.abs(x[i, 1:first]).sum()
        if np.abs(x[i, first:]).sum() <= known:
            return False
    return True


@kernel
def _change_of_functions(model: TaylorModel) -> float:
    """Base of the series in powers of their arguments' changes that functions leave out.

    The largest of all, by the norms. The states may not show it: the square of a root is smooth.
    """
    tape, _, space = model
    largest = 0.0
    for slot in range(len(tape.function)):
        a, kind = tape.argument[slot], tape.function[slot]
        is_singular = kind in (ops.LOG, ops.POWER)
        size = abs(space.c[a, 0, 0]) if is_singular else (ops.TERMS + 1) / math.e
        largest = max(largest, space.norm[a, 1:].sum() / (size + TINY))
    return largest


@entry_point
def integrate(
    run: TaylorRun, p: FloatArray, ranges: FloatArray, tolerance: float, most: int, cut: float
) -> int:
    """Record the residuals of one experiment until the box is excluded or has shrunk.

    p          (n_p, 5) the parameters as polynomials;  ranges (n_p, 2): their bounds
    tolerance  of the last Taylor term, relative to how far the states differ over the box
    most       steps at most
    cut        level that the sum of squares must exceed for the box to be excluded
    returns    THROUGH, FATHOMED, BROKE or SHRUNK
    """
    schedule, tube, rows, offset = run.schedule, run.tube, run.rows, run.offset
    slope, algebra, space = run.slope
    outputs, begin = run.outputs.tape, run.begin.tape
    n, n_u, order = algebra.states, schedule.inputs.shape[1], space.c.shape[1] - 1
    x, y = np.zeros((order + 2, n, algebra.size)), np.zeros(n)
    new, used = np.zeros((n, len(run.linear.atoms))), run.slope.space.used
    u, sizes = np.zeros((n_u + 1, 2)), np.zeros(n_u)
    around, between = np.zeros((n, 2)), np.zeros((n_u + 1, 2))
    end = np.zeros((n, algebra.size))
    _inputs_at(schedule, 0, schedule.start, u, sizes)
    if not begin.plain:
        enclose(begin, around, ranges, between, run.begin.space.range)
    _values(run.begin, np.zeros((1, n, algebra.size)), p, u, sizes)
    for i in range(n):
        k = begin.results[i]
        x[0, i], y[i] = run.begin.space.c[k, 0], run.begin.space.error[k, 0]
    used[0] = transport(algebra, x[0], y, new, schedule.scale)
    time, h, place, steps = schedule.start, (schedule.stops[-1] - schedule.start) * 0.05, 0, 0
    for stop in range(len(schedule.stops)):
        target = schedule.stops[stop]
        while time < target:
            _inputs_at(schedule, stop, time, u, sizes)
            for k in range(order + 1):  # the Taylor polynomial that begins with x[0]
                coefficient(run.slope, x, p, u, k)
                for i in range(n):
                    for m in range(used[0]):
                        x[k + 1, i, m] = space.c[slope.results[i], k, m] / (k + 1)
            shortest = SMALLEST * (target - time)
            done = looked = False
            trial = h
            while not done:
                steps += 1
                tube.steps[1] += 1
                if steps > most or not (trial > shortest):
                    return _broke(run, x[0])
                parts = np.ceil((target - time) / trial * (1.0 - 1e-12))
                following = target if parts <= 1.0 else time + (target - time) / parts
                step = following - time
                longest = step * (1.0 + 4.0 * UNIT)
                norms(run.slope, order, longest)
                last = 0.0  # how much the highest order adds over the step, relative to the scale
                for i in range(n):
                    term = space.norm[slope.results[i], order].sum()
                    last = max(last, term * step / (order + 1) / schedule.scale[i])
                if not np.isfinite(last):
                    return _broke(run, x[0])
                arrive(algebra, order, step, x, y, end, used[0])
                spread = max(_spread(x[0], schedule.scale), _spread(end, schedule.scale))
                goal = tolerance * spread * min(1.0, NARROW * spread) + 1e-15
                growth = 0.9 * (goal / (last + 1e-300)) ** (1.0 / (order + 1))
                if last > goal:
                    trial = step * min(0.9, max(0.1, growth))
                    continue
                if not slope.plain:
                    place = hull(tube, time, following, place, around)
                    inputs_between(schedule, stop, time, following, between)
                    enclose(slope, around, ranges, between, space.range)
                done = enclose_error(run.slope, order, longest, p, sizes, y)
                if not (done or looked or slope.plain):  # whether any step can be enclosed
                    looked = True
                    norms(run.slope, order, 0.0)
                    place = hull(tube, time, time, place, around)
                    inputs_between(schedule, stop, time, time, between)
                    enclose(slope, around, ranges, between, space.range)
                    if divides_by_zero(run.slope):
                        return _broke(run, x[0])
                trial = step if done else step * 0.5
                if done and not slope.plain and (y / schedule.scale).max() > LOST * spread + goal:
                    lost = (LOST * spread + LEAST_LOST) ** (1.0 / (ops.TERMS + 1))
                    change = _change_of_functions(run.slope) + TINY
                    growth = min(growth, 0.9 * lost / change)
                    if change > lost:
                        trial, done = step * max(0.1, growth), False
            h = step * min(2.0, max(growth, 0.5))
            directed(run.slope, run.linear, longest, y, new)
            arrive(algebra, order + 1, step, x, y, end, used[0])
            place = hull(tube, following, following, place, around)
            _reset(algebra, end, y, new, around)
            used[0] = transport(algebra, end, y, new, schedule.scale)
            x[0] = end
            time = following
            if _lost(algebra, end, schedule.scale):
                return _broke(run, end)
        if schedule.first[stop] < schedule.first[stop + 1]:
            _inputs_at(schedule, stop, time, u, sizes)
            if not outputs.plain:
                place = hull(tube, time, time, place, around)
                inputs_between(schedule, stop, time, time, between)
                enclose(outputs, around, ranges, between, run.outputs.space.range)
            _values(run.outputs, x[:1], p, u, sizes)
            _measure(run, stop)
            if total(rows) > cut:
                return FATHOMED
            for i in range(schedule.first[stop], schedule.first[stop + 1]):
                if np.isfinite(rows.error[offset + i]):
                    narrow(algebra, rows, offset + i, cut)
            share = left(rows)
            if share < 0.0:
                return FATHOMED
            if share < ENOUGH and stop < len(schedule.stops) - 1:
                return SHRUNK
    return THROUGH
