"""Validated integration of one experiment over one box, which records the enclosed residuals.

Before a step the states are x = P(delta, z) with delta, z in [-1, 1]: z carries the old error in
the coordinates Q diag(zeta). Over the step x = X(tau, delta, z) + eps, and

    |eps|' <= d + M |eps|,  |eps(0)| = 0   =>   |eps(tau)| <= h phi_1(h M) d

as long as |eps| stays in the trial tube in which d and M hold; if the right-hand side is inside,
the tube is never left. This proves existence, and bounds the error of the discretisation, at once.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.kernels.compiled import entry_point, kernel
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, UP, enclose
from igpe.proofs.prover.kernels.mueller import (
    Schedule,
    Tube,
    hull,
    inputs_between,
)
from igpe.proofs.prover.kernels.rows import BoxRows, bounds_of, left, narrow, note, total
from igpe.proofs.prover.kernels.tape import OpTape
from igpe.proofs.prover.kernels.taylor import (
    Monomials,
    Scratch,
    coefficient,
    divides_by_zero,
    errors,
    losses,
    norms,
)

SERIES = 8  # terms of phi_1; what is left of it is M^8 times the tube
TRIES = 6  # trial tubes


@kernel
def expand(
    tape: OpTape,
    algebra: Monomials,
    space: Scratch,
    order: int,
    x: FloatArray,
    p: FloatArray,
    u: FloatArray,
) -> None:
    """Fill x[1:] (order + 1, n_x, size), the Taylor polynomial that begins with x[0]."""
    for k in range(order + 1):
        coefficient(tape, algebra, space, x, p, u, k)
        if k < order:
            for i in range(algebra.states):
                for m in range(algebra.size):
                    x[k + 1, i, m] = space.c[tape.results[i], k, m] / (k + 1)


@kernel
def _growth(
    tape: OpTape, space: Scratch, order: int, h: float, tube: FloatArray, y: FloatArray
) -> None:
    """y = h phi_1(h M) d, the last term of the series by the tube."""
    n = len(tube)
    d, power, following = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        f = tape.results[i]
        d[i] = space.error[f, 0] + 2.0 * UNIT * space.total[f] + TINY
        for g in range(space.norm.shape[2]):
            d[i] += space.norm[f, order, g]
        power[i] = d[i] * h * UP
        y[i] = power[i]
    for k in range(1, SERIES):
        _times(tape, space, power, h / (k + 1), following)
        y += following
        power[:] = following
    power[:] = tube
    for k in range(SERIES):
        _times(tape, space, power, h / (k + 1), following)
        power[:] = following
    for i in range(n):
        y[i] = (y[i] + power[i]) * UP


@kernel
def _times(tape: OpTape, space: Scratch, v: FloatArray, factor: float, out: FloatArray) -> None:
    """out = factor M v."""
    for i in range(len(v)):
        total = 0.0
        for j in range(len(v)):
            total += space.error[tape.results[i], 1 + j] * v[j]
        out[i] = total * factor * UP


@kernel
def enclose_error(
    tape: OpTape,
    algebra: Monomials,
    space: Scratch,
    order: int,
    h: float,
    p: FloatArray,
    sizes: FloatArray,
    y: FloatArray,
) -> bool:
    """Whether a tube was found for a step h; y (n_x,) is then a bound on |eps| over it.

    needs `norms` for this h, and `range` of the operations over the step
    """
    losses(tape, algebra, space, order, p, sizes)
    tube = np.zeros(algebra.states)
    errors(tape, algebra, space, tube)
    _growth(tape, space, order, h, tube, y)
    for _ in range(TRIES):
        for i in range(algebra.states):
            tube[i] = 1.5 * y[i] + TINY
        errors(tape, algebra, space, tube)
        _growth(tape, space, order, h, tube, y)
        inside = True
        for i in range(algebra.states):
            if not (y[i] <= tube[i]):  # also where it is no number
                inside = False
        if inside:
            return True
        if not np.isfinite(y).all():
            return False
    return False


@kernel
def late(tape: OpTape, space: Scratch, order: int, h: float, scale: FloatArray) -> float:
    """How much the coefficient of highest order adds over the step, relative to scale."""
    worst = 0.0
    for i in range(len(scale)):
        total = 0.0
        for g in range(space.norm.shape[2]):
            total += space.norm[tape.results[i], order, g]
        worst = max(worst, total * h / (order + 1) / scale[i])
    return worst


@kernel
def arrive(
    algebra: Monomials, order: int, h: float, x: FloatArray, y: FloatArray, out: FloatArray
) -> None:
    """out (n_x, size) = X(h); y grows by the rounding of the sums and of h."""
    for i in range(algebra.states):
        size = 0.0
        for m in range(algebra.size):
            total = x[order, i, m]
            bound = abs(total) * (order + 1)
            for k in range(order - 1, -1, -1):
                total = total * h + x[k, i, m]
                bound = bound * h + abs(x[k, i, m]) * (k + 1)
            out[i, m] = total
            size += bound
        y[i] = (y[i] + 4.0 * UNIT * (order + 2) * size) * UP + TINY


@kernel
def _orthogonal(z: FloatArray, q: FloatArray) -> None:
    """q (n, n) orthonormal: the columns of z, longest first, and what they lack (Gram-Schmidt)."""
    n = len(z)
    length = np.empty(n)
    for j in range(n):
        length[j] = -np.sqrt((z[:, j] * z[:, j]).sum())
    order = np.argsort(length)
    count = 0
    for candidate in range(2 * n):
        if count == n:
            break
        v = np.zeros(n)
        if candidate < n:
            if not (length[order[candidate]] < 0.0):
                continue
            v[:] = z[:, order[candidate]]
        else:
            v[candidate - n] = 1.0
        before = np.sqrt((v * v).sum())
        if before < 1e-200:
            continue
        v /= before
        for _ in range(2):
            for j in range(count):
                v -= (q[:, j] * v).sum() * q[:, j]
        after = np.sqrt((v * v).sum())
        if after > 1e-6 or (candidate >= n and after > 1e-12):
            q[:, count] = v / after
            count += 1


@kernel
def transport(algebra: Monomials, x: FloatArray, y: FloatArray) -> None:
    """Turn the error y (n_x,) of the states x (n_x, size) and their part in z into new z.

    v = Z z + w with |w| <= y is Q (Q'v) but for how far Q is from orthonormal, which is computed
    and bounded: |Q^-1 v - Q'v| <= kappa |Q'v|_1.
    """
    n = algebra.states
    first = algebra.size - n
    old = x[:, first:].copy()
    q = np.zeros((n, n))
    _orthogonal(old, q)
    far = 0.0
    for i in range(n):
        row = 0.0
        for j in range(n):
            row += abs((q[:, i] * q[:, j]).sum() - (1.0 if i == j else 0.0))
        if not (row <= far):  # also where it is no number
            far = row
    kappa = 2.0 * (far + 16.0 * UNIT * n * n)
    zeta = np.zeros(n)
    total = 0.0
    for i in range(n):
        for j in range(n):
            along, size = 0.0, 0.0
            for k in range(n):
                along += q[k, i] * old[k, j]
                size += abs(q[k, i] * old[k, j])
            zeta[i] += abs(along) + 2.0 * (n + 2) * UNIT * size
            zeta[i] += abs(q[j, i]) * y[j]
        zeta[i] *= UP
        total += zeta[i]
    for i in range(n):
        width = (zeta[i] + kappa * total) * UP + TINY
        for j in range(n):
            x[j, first + i] = q[j, i] * width
    if not (far < 0.01):
        x[:, first:] = np.nan


THROUGH, FATHOMED, BROKE, SHRUNK = 0, 1, 2, 3
ENOUGH = 0.3  # of the box left: begin again on that
NARROW = 30.0  # 1 / spread below which time is enclosed more exactly, as curvature counts less
DROWNED = 0.02  # of a state's scale: smaller errors drown nothing
SMALLEST = 1e-9  # step, as a share of the way to the next stop


@kernel
def _measure(
    tape: OpTape,
    algebra: Monomials,
    space: Scratch,
    schedule: Schedule,
    stop: int,
    x: FloatArray,
    p: FloatArray,
    u: FloatArray,
    sizes: FloatArray,
    rows: BoxRows,
    offset: int,
) -> None:
    """Residuals of one stop as polynomials; needs `range` of a tape that is not plain."""
    first = algebra.size - algebra.states
    coefficient(tape, algebra, space, x, p, u, 0)
    norms(tape, algebra, space, 0, 0.0)
    losses(tape, algebra, space, 0, p, sizes)
    errors(tape, algebra, space, np.zeros(algebra.states))
    for i in range(schedule.first[stop], schedule.first[stop + 1]):
        k = tape.results[schedule.column[i]]
        w, y, size = schedule.weight[i], schedule.value[i], 0.0
        c = rows.c[offset + i]
        for m in range(first):
            size += abs(space.c[k, 0, m])
            c[m] = space.c[k, 0, m] * w
        c[0] = (space.c[k, 0, 0] - y) * w
        error = space.error[k, 0] + 8.0 * UNIT * (size + abs(y))
        for m in range(first, algebra.size):
            error += abs(space.c[k, 0, m])
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
def _reset(algebra: Monomials, x: FloatArray, y: FloatArray, tube: FloatArray) -> None:
    """Where the tube is narrower than the error alone, the state is anywhere in the tube."""
    first = algebra.size - algebra.states
    for i in range(algebra.states):
        half = 0.5 * (tube[i, 1] - tube[i, 0])
        error = y[i]
        for m in range(first, algebra.size):
            error += abs(x[i, m])
        if not (error <= half) and np.isfinite(half):
            x[i, :] = 0.0
            x[i, 0] = 0.5 * (tube[i, 0] + tube[i, 1])
            y[i] = (half + 4.0 * UNIT * (abs(tube[i, 0]) + abs(tube[i, 1]))) * UP


@kernel
def _begin(
    tape: OpTape,
    algebra: Monomials,
    space: Scratch,
    p: FloatArray,
    u: FloatArray,
    sizes: FloatArray,
    x: FloatArray,
    y: FloatArray,
) -> None:
    """The start values as polynomials x (n_x, size), with errors y."""
    nothing = np.zeros((1, algebra.states, algebra.size))
    coefficient(tape, algebra, space, nothing, p, u, 0)
    norms(tape, algebra, space, 0, 0.0)
    losses(tape, algebra, space, 0, p, sizes)
    errors(tape, algebra, space, np.zeros(algebra.states))
    for i in range(algebra.states):
        x[i] = space.c[tape.results[i], 0]
        y[i] = space.error[tape.results[i], 0]


@kernel
def _inputs_at(schedule: Schedule, stop: int, t: float, u: FloatArray, sizes: FloatArray) -> None:
    """Value at t and slope of the inputs and of time, on the way to a stop."""
    for i in range(len(sizes)):
        a, b = schedule.inputs[stop, i, 0], schedule.inputs[stop, i, 1]
        u[i, 0], u[i, 1] = a + b * t, b
        sizes[i] = abs(a) + abs(b * t)
    u[len(u) - 1, 0], u[len(u) - 1, 1] = t, 1.0


@kernel
def _spread(algebra: Monomials, x: FloatArray, scale: FloatArray) -> float:
    """How far the states differ over the box, relative to their scale, and at least rounding."""
    worst = 0.0
    for i in range(algebra.states):
        total = 0.0
        for m in range(1, algebra.size):
            total += abs(x[i, m])
        worst = max(worst, total / scale[i])
    return worst


@kernel
def _lost(algebra: Monomials, x: FloatArray, scale: FloatArray) -> bool:
    """Whether the error of every state drowns what depends on the parameters."""
    first = algebra.size - algebra.states
    for i in range(algebra.states):
        known, error = DROWNED * scale[i], 0.0
        for m in range(1, first):
            known += abs(x[i, m])
        for m in range(first, algebra.size):
            error += abs(x[i, m])
        if error <= known:
            return False
    return True


@entry_point
def integrate(
    tapes: tuple[OpTape, OpTape, OpTape],
    spaces: tuple[Scratch, Scratch, Scratch],
    algebra: Monomials,
    schedule: Schedule,
    order: int,
    p: FloatArray,
    ranges: FloatArray,
    tolerance: float,
    most: int,
    cut: float,
    tube: Tube,
    rows: BoxRows,
    offset: int,
) -> int:
    """Record the residuals of one experiment until the box is excluded or has shrunk.

    tapes, spaces  of slopes, measured quantities and start values
    p          (n_p, 5) the parameters as polynomials;  ranges (n_p, 2): their bounds
    tolerance  of the last Taylor term, relative to how far the states differ over the box
    most       steps at most
    cut        level that the sum of squares must exceed for the box to be excluded
    offset     where the experiment's rows begin
    returns    THROUGH, FATHOMED, BROKE or SHRUNK
    """
    slope, outputs, begin = tapes
    space, outputs_space, begin_space = spaces
    n, n_u = algebra.states, schedule.inputs.shape[1]
    x, y = np.zeros((order + 1, n, algebra.size)), np.zeros(n)
    u, sizes = np.zeros((n_u + 1, 2)), np.zeros(n_u)
    around, between = np.zeros((n, 2)), np.zeros((n_u + 1, 2))
    end = np.zeros((n, algebra.size))
    _inputs_at(schedule, 0, schedule.start, u, sizes)
    if not begin.plain:
        enclose(begin, -1, around, ranges, between, begin_space.range)
    _begin(begin, algebra, begin_space, p, u, sizes, x[0], y)
    transport(algebra, x[0], y)
    time, h, place, steps = schedule.start, (schedule.stops[-1] - schedule.start) * 0.05, 0, 0
    for stop in range(len(schedule.stops)):
        target = schedule.stops[stop]
        while time < target:
            _inputs_at(schedule, stop, time, u, sizes)
            expand(slope, algebra, space, order, x, p, u)
            shortest = SMALLEST * (target - time)
            done = looked = False
            trial = h
            while not done:
                steps += 1
                if steps > most or not (trial > shortest):
                    return BROKE
                parts = np.ceil((target - time) / trial * (1.0 - 1e-12))
                following = target if parts <= 1.0 else time + (target - time) / parts
                step = following - time
                longest = step * (1.0 + 4.0 * UNIT)
                norms(slope, algebra, space, order, longest)
                last = late(slope, space, order, step, schedule.scale)
                if not np.isfinite(last):
                    return BROKE
                arrive(algebra, order, step, x, y, end)
                spread = max(
                    _spread(algebra, x[0], schedule.scale), _spread(algebra, end, schedule.scale)
                )
                goal = tolerance * spread * min(1.0, NARROW * spread) + 1e-15
                if last > goal:
                    trial = step * min(0.9, max(0.1, 0.9 * (goal / last) ** (1.0 / (order + 1))))
                    continue
                if not slope.plain:
                    place = hull(tube, time, following, place, around)
                    inputs_between(schedule, stop, time, following, between)
                    enclose(slope, -1, around, ranges, between, space.range)
                done = enclose_error(slope, algebra, space, order, longest, p, sizes, y)
                if not (done or looked or slope.plain):  # whether any step can be enclosed
                    looked = True
                    norms(slope, algebra, space, order, 0.0)
                    place = hull(tube, time, time, place, around)
                    inputs_between(schedule, stop, time, time, between)
                    enclose(slope, -1, around, ranges, between, space.range)
                    if divides_by_zero(slope, space):
                        return BROKE
                trial = step if done else step * 0.5
            growth = 0.9 * (goal / (last + 1e-300)) ** (1.0 / (order + 1))
            h = step * min(2.0, max(growth, 0.5))
            arrive(algebra, order, step, x, y, end)
            place = hull(tube, following, following, place, around)
            _reset(algebra, end, y, around)
            transport(algebra, end, y)
            x[0] = end
            time = following
            if _lost(algebra, end, schedule.scale):
                return BROKE
        if schedule.first[stop] < schedule.first[stop + 1]:
            _inputs_at(schedule, stop, time, u, sizes)
            if not outputs.plain:
                place = hull(tube, time, time, place, around)
                inputs_between(schedule, stop, time, time, between)
                enclose(outputs, -1, around, ranges, between, outputs_space.range)
            _measure(
                outputs, algebra, outputs_space, schedule, stop, x[:1], p, u, sizes, rows, offset
            )
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
