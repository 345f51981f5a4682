"""Residuals of a box as polynomials in the offsets of its parameters: validated integration."""

import math
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.proofs.checker.kernels.intervals import (
    FUNCTION,
    LOG,
    SQRT,
    STATE,
    UNIT,
    Pair,
    ReplayTape,
    Values,
    add,
    divide,
    down,
    evaluate,
    middle,
    multiply,
    outward,
    radius,
    ranges_of_leaves,
    subtract,
    up,
)
from igpe.proofs.checker.kernels.polynomials import (
    Leaves,
    Polynomials,
    Terms,
    bound,
    carry,
    count_of,
    count_of_terms,
    extend,
    measure,
    ranges_of,
    span,
)
from igpe.proofs.checker.kernels.step import (
    Room,
    coarse_step,
    lengths,
    slopes_of,
    validated_step,
)
from igpe.proofs.compiled import entry_point, kernel, lean_kernel

TUBES = (0.05, 200), (0.002, 600)  # how straight faces of a tube are, and its steps at most
PROMISING = 0.15  # of the level: what a tube must prove for a finer one to be tried
ROUGH, PARTS = 0.3, 4  # the same of a tube for what polynomials do not reach; steps to each time
ROUGHER = 30.0  # is the last step of a tube than the first
TOO_LONG = 0.7  # a step is tried again where it should have been so much shorter
PATIENCE = 30  # steps after which a box that is too slow is given up, and
PACE = 0.1  # the share of the way to its next time that all steps left would come at least
SMALLEST = 1e-280  # replaces a size of 0
MOST = 1e150  # of a residual: its square is a number


class Program(NamedTuple):
    """One experiment (`experiments.Replay`).

    sharp    the slopes again, as interval arithmetic likes them
    times    (n_times,), and t0 before them;  first (n_times + 1,) the rows of each
    column, value, sigma  (n_rows,) r = (measured[column] - value) / sigma
    begins, levels  (n_inputs, n_times) the line of an input that leads to a time starts there
    rises    (n_inputs, n_times, 2) slopes
    """

    slopes: ReplayTape
    sharp: ReplayTape
    start: ReplayTape
    measured: ReplayTape
    t0: float
    times: FloatArray
    first: IntArray
    column: IntArray
    value: FloatArray
    sigma: FloatArray
    begins: FloatArray
    levels: FloatArray
    rises: FloatArray


class Pace(NamedTuple):
    """Effort of the integration (`confirm.Effort`), and whether a tube is tried before it."""

    order: int
    growth: float
    precision: float
    absolute: float
    most: int
    cubic: bool
    tubes: bool


class ReplayRows(NamedTuple):
    """Residuals of one box: polynomials in delta +- e.

    c  (n_terms, n_rows);  e (n_rows,);  spread (n,) how far parameters moved the states at last
    """

    c: FloatArray
    e: FloatArray
    spread: FloatArray


@lean_kernel
def input_range(program: Program, i: int, k: int, time: Pair) -> Pair:
    """Range of input i over some times before the experiment's time k."""
    a, b = program.begins[i, k], program.levels[i, k]
    low, high = subtract(time[0], time[1], a, a)
    low, high = multiply(program.rises[i, k, 0], program.rises[i, k, 1], low, high)
    return add(b, b, low, high)


@lean_kernel
def inputs_at(program: Program, k: int, t: float, h: float, u: FloatArray) -> None:
    """Write value, change and remainder of each input from t to t + h: (n_inputs, 3)."""
    length = lengths(h)
    for i in range(len(u)):
        low, high = input_range(program, i, k, (t, t))
        u[i, 0], u[i, 2] = middle(low, high), radius(low, high)
        rise = program.rises[i, k]
        low, high = multiply(rise[0], rise[1], length[0], length[1])
        u[i, 1] = middle(low, high)
        u[i, 2] = up(u[i, 2] + radius(low, high))


@lean_kernel
def ranges_of_inputs(program: Program, k: int, time: Pair, u: FloatArray) -> None:
    """Write the range of each input over some times: (n_inputs, 2)."""
    for i in range(len(u)):
        u[i] = input_range(program, i, k, time)


@kernel
def polynomials(tape: ReplayTape, order: int, size: int) -> Polynomials:
    """Room for those of a tape."""
    n = len(tape.code)
    c = np.zeros((n, order + 1, size))
    return Polynomials(c, np.zeros(n), np.zeros((n, 5, order + 1)))


@kernel
def values_of(tape: ReplayTape, states: int) -> Values:
    """Room for intervals of a tape, and for derivatives by so many states."""
    n = len(tape.code)
    return Values(np.zeros((n, 2)), np.zeros((n, states, 2)))


@kernel
def absorb(
    x: FloatArray, z: int, r: FloatArray, a: FloatArray, moved: FloatArray, e: FloatArray
) -> bool:
    """Move errors of x (n, 1, size) into directions and coordinates z; whether they could be."""
    fresh, wide = np.empty(a.shape), np.empty(len(r))
    fine = carry(x[:, 0, z:].copy(), r, a, moved, e, fresh)
    ranges_of(fresh, wide)
    if not (fine and np.isfinite(wide).all() and np.isfinite(x[:, 0, :z]).all()):
        return False
    a[:], r[:] = fresh, wide
    for i in range(len(x)):
        x[i, 0, z:] = 0.0
        x[i, 0, z + i] = r[i]
    return True


@kernel
def start_of(
    program: Program, given: Leaves, z: int, x: FloatArray, r: FloatArray, a: FloatArray
) -> bool:
    """Write the states at t0; whether they are known."""
    tape = program.start
    to = polynomials(tape, 0, x.shape[2])
    extend(tape, given, 0, to)
    bound(tape, given, to)
    e = np.empty(len(x))
    for i in range(len(x)):
        x[i, 0], e[i] = to.c[tape.results[i], 0], to.e[tape.results[i]]
    return absorb(x, z, r, a, np.zeros((len(x), 0)), e)


class Tube(NamedTuple):
    """Ranges of one experiment's states and residuals where the sum of squares is below the level.

    end      (most,) of each step;  during, after (most, n_states, 2) ranges;  steps (1,) how many
    rows     (n_rows, 2);  squares (n_times + 1,) lower bound of the sum from a time on
    """

    end: FloatArray
    during: FloatArray
    after: FloatArray
    steps: IntArray
    rows: FloatArray
    squares: FloatArray


@lean_kernel
def least_square(low: float, high: float) -> float:
    """Lower bound of the square of what is in a range."""
    return down(min(max(low, -high, 0.0), MOST) ** 2)


@kernel
def record(
    program: Program, k: int, given: Leaves, to: Polynomials, tube: Tube, rows: ReplayRows
) -> float:
    """Residuals at time k into rows; a lower bound of their sum of squares."""
    tape, z, norms = program.measured, len(rows.c), np.empty((5, 1))
    extend(tape, given, 0, to)
    bound(tape, given, to)
    squares = 0.0
    for i in range(program.first[k], program.first[k + 1]):
        at, sigma = tape.results[program.column[i]], program.sigma[i]
        r, e = to.c[at].copy(), to.e[at]
        r[0, 0] -= program.value[i]
        measure(given.terms, r, norms)
        e = up(e + UNIT * norms.sum())
        if sigma != 1:
            factor = abs(1 / sigma)
            e = up(factor * (e + 3 * UNIT * (norms.sum() + e)) + 1e-290)
            r *= 1 / sigma
            measure(given.terms, r, norms)
        low, high = span(norms, r, e)
        least, most = tube.rows[i]
        squares = down(squares + least_square(max(low, least), min(high, most)))
        e = up(e + norms[4, 0])
        if e <= radius(least, most):
            rows.c[:, i], rows.e[i] = r[0, :z], e
        else:
            by_range(i, least, most, rows)
    return squares


@kernel
def by_range(i: int, low: float, high: float, rows: ReplayRows) -> None:
    """Write a residual of which only the range is known."""
    far = radius(low, high)
    rows.c[:, i] = 0.0
    rows.c[0, i], rows.e[i] = (middle(low, high), far) if far < np.inf else (0.0, np.inf)


@kernel
def is_vague(rows: ReplayRows, tube: Tube, first: int, end: int, cut: float) -> bool:
    """Whether no residual of one time says anything beyond the tube: errors grow, as a rule."""
    for i in range(first, end):
        e = rows.e[i]
        is_range = e < np.inf and e >= radius(tube.rows[i, 0], tube.rows[i, 1])
        if not (is_range or e > max(np.abs(rows.c[:, i]).sum(), np.sqrt(max(cut, 0.0)))):
            return False
    return True


@lean_kernel
def change_of_functions(tape: ReplayTape, to: Polynomials, order: int) -> float:
    """The base of the geometric series in time that a function leaves out; the largest of all.

    The states may not show it: logarithm and exponential of a power cancel each other in them.
    """
    largest = 0.0
    for i in range(len(tape.code)):
        kind, a = tape.code[i, 0] - FUNCTION, tape.code[i, 1]
        if kind >= 0:
            change = to.norms[a, :, 1:].sum()
            is_singular = kind in (LOG, SQRT)
            by = abs(to.c[a, 0, 0]) if is_singular else (order + 1) / math.e
            largest = max(largest, change / (by + SMALLEST))
    return largest


@kernel
def scale_of(z: int, room: Room, pace: Pace, growth: float, change: float) -> float:
    """How much longer the next step may be; below `TOO_LONG` this one was too long."""
    x, by_time, largest = room.x, np.inf, 0.0
    for i in range(len(x)):
        largest = max(largest, np.abs(x[i, 0]).sum())
    for i in range(len(x)):
        spread = np.abs(x[i, 0, 1:z]).sum()
        size = max(np.abs(x[i, 0]).sum(), 1e-3 * largest)
        allowed = pace.precision * spread + pace.absolute * size
        # a state at rest at 0 has neither a size nor a late term: it allows any step
        by_time = min(by_time, (allowed + SMALLEST) / (room.late[i] + SMALLEST))
    found = min(by_time ** (1 / pace.order), pace.growth / (growth + SMALLEST))
    lost = 0.1 * pace.precision + pace.absolute
    found = min(found, lost ** (1 / (pace.order + 1)) / (change + SMALLEST))
    return 0.0 if np.isnan(found) else found


@entry_point
def integrate(
    program: Program,
    center: FloatArray,
    half: FloatArray,
    box: FloatArray,
    pace: Pace,
    cut: float,
    rows: ReplayRows,
) -> float:
    """Residuals of a box, center + half delta, into rows; a lower bound of their sum of squares.

    box  (n, 2) its ends
    Where that exceeds `cut` the integration stops, and rows that are left out stay as they are.
    """
    tape, n, states = program.slopes, len(center), len(program.start.results)
    terms = Terms(n, pace.cubic)
    z, last = count_of_terms(terms), len(program.times) - 1
    size = z + states
    p = np.empty((n, 2))
    p[:, 0], p[:, 1] = center, half
    x, fresh = np.zeros((states, 1, size)), np.zeros((states, 1, size))
    u, ranges = np.zeros((len(program.begins), 3)), np.zeros((len(program.begins), 2))
    many = len(tape.rates)
    room = Room(
        np.zeros((states, pace.order + 2, size)), np.empty(states), np.zeros((states, many)),
        np.zeros(states), np.empty(states), np.empty(states), np.empty((states, states)),
        np.empty((states, 2)), np.empty((states, 2)), np.empty((5, pace.order + 1)),
    )  # fmt: skip
    to, values = polynomials(tape, pace.order, size), values_of(tape, states)
    outputs = polynomials(program.measured, 0, size)
    clock = np.array([program.t0, 0.0])
    now, ahead = Leaves(x, p, clock, u, terms), Leaves(room.x, p, clock, u, terms)
    r, a = np.zeros(states), np.zeros((states, count_of(states)))
    tube = tube_of(states, len(program.value), last + 2)
    if pace.tubes and cut < np.inf and tape.divides:
        for straight, most in TUBES:
            coarse(program, box, straight, most + last, cut, tube)
            if not PROMISING * cut <= tube.squares[0] <= cut:
                break
        if tube.squares[0] > cut:
            return float(tube.squares[0])
    alive, total, vague = start_of(program, now, z, x, r, a), 0.0, False
    t, k, tried, place, following = program.t0, 0, 0, 0, 0
    way = program.times[last] - t
    h = (way if way > 0 else 1.0) / (last + 1) / 2
    shortest = 1e-9 * way
    while alive:
        while k <= last and t == program.times[k]:
            clock[0], clock[1] = t, 0.0
            if program.first[k] < program.first[k + 1]:
                inputs_at(program, k, t, 0.0, u)
                total = down(total + record(program, k, now, outputs, tube, rows))
                vague = is_vague(rows, tube, program.first[k], program.first[k + 1], cut)
            k += 1
        if k > last or vague or tried >= pace.most or h < shortest:
            break
        if not down(total + tube.squares[k]) <= cut:
            break
        goal = program.times[k]
        if tried >= PATIENCE and h * (pace.most - tried) < PACE * (goal - t):
            break
        to_goal = t + 1.05 * h >= goal
        then = goal if to_goal else t + h
        clock[0], clock[1] = t, then - t
        inputs_at(program, k, t, clock[1], u)
        ranges_of_inputs(program, k, (t, add(t, t, 0.0, lengths(clock[1])[1])[1]), ranges)
        room.x[:, 0] = x[:, 0]
        growth = validated_step(tape, ahead, box, ranges, to, values, room)
        scale = scale_of(z, room, pace, growth, change_of_functions(tape, to, pace.order))
        wanted = clock[1] * min(max(0.9 * scale, 0.3), 2.0)
        tried += 1
        fresh[:, 0] = room.x[:, 0]
        fine = scale > TOO_LONG and np.isfinite(room.error).all()
        if fine:
            following = narrow_to_tube(tube, place, then, z, fresh, room)
        if fine and absorb(fresh, z, r, a, room.moved, room.error):
            x[:] = fresh
            t, place = then, following
            h = max(h, wanted) if to_goal else wanted
        else:
            h = 0.5 * clock[1]
    rows.spread[:] = 0.0
    for i in range(states):
        full = np.abs(x[i, 0]).sum() + 1e-300
        for j in range(n):
            share = abs(x[i, 0, 1 + j]) / full
            rows.spread[j] += share if share < np.inf else 0.0
    steps = tube.steps[0]
    is_whole = steps > 0 and tube.end[steps - 1] == program.times[last]
    if total <= cut and 2 * k <= last and not is_whole:  # else it says hardly more
        coarse(program, box, ROUGH, PARTS * (last + 1), cut, tube)
    for i in range(len(rows.e)):
        if np.isinf(rows.e[i]):
            by_range(i, tube.rows[i, 0], tube.rows[i, 1], rows)
    return float(down(total + tube.squares[k]))


@kernel
def tube_of(states: int, rows: int, times: int) -> Tube:
    """A tube that says nothing."""
    most = TUBES[-1][1] + PARTS * times
    shape = most, states, 2
    none = np.empty((rows, 2))
    none[:, 0], none[:, 1] = -np.inf, np.inf
    return Tube(
        np.empty(most), np.empty(shape), np.empty(shape), np.zeros(1, np.intp), none,
        np.zeros(times),
    )  # fmt: skip


@kernel
def narrow_to_tube(tube: Tube, place: int, t: float, z: int, x: FloatArray, room: Room) -> int:
    """States x (n, 1, size) at t whose error alone is wider than the tube are anywhere in it.

    place  step of the tube that an earlier t was in;  returns  that of t, or the last one
    """
    last = tube.steps[0]
    while place < last and tube.end[place] < t:
        place += 1
    if place == last:
        return place
    ranges = tube.after[place] if tube.end[place] == t else tube.during[place]
    for i in range(len(x)):
        low, high = ranges[i]
        error = room.error[i] + np.abs(room.moved[i]).sum() + np.abs(x[i, 0, z:]).sum()
        far = radius(low, high)
        if far < np.inf and not error <= far:
            x[i, 0], room.moved[i] = 0.0, 0.0
            x[i, 0, 0], room.error[i] = middle(low, high), far
    return place


@kernel
def coarse(program: Program, p: FloatArray, fine: float, most: int, cut: float, tube: Tube) -> None:
    """Write a tube, of which nothing but what bounds squares is kept of an earlier one."""
    states, last = len(program.start.results), len(program.times) - 1
    # without a level, the answer is also used where a quotient of the equations is 0 / 0
    tape = program.sharp if cut < np.inf else program.slopes
    x, u, t = np.zeros((states, 2)), np.zeros((len(program.begins), 2)), program.t0
    f, outputs = slopes_of(tape), values_of(program.measured, 0)
    beginning, trial, wide = (
        values_of(program.start, 0),
        np.empty((states, 2)),
        np.empty((states, 2)),
    )
    evaluate(program.start, (t, t), x, p, u, False, beginning)
    for i in range(states):
        x[i] = beginning.value[program.start.results[i]]
    way = program.times[last] - t
    h, steps, tried, total = 10 * way / most, 0, 0, 0.0
    tube.steps[0] = 0
    for k in range(last + 1):
        goal = program.times[k]
        while t < goal:
            tried += 1
            if steps == most or tried > 3 * most or not np.isfinite(x).all():
                goal = -np.inf
                break
            left = (program.times[last] - t) / (most - steps)
            shortest = left if 2 * steps > most else 1e-9 * way
            then = goal if t + 1.3 * h >= goal else t + h
            ranges_of_inputs(program, k, (t, then), u)
            trial[:] = x
            ranges_of_leaves(tape, (t, then), x, p, u, f.v)
            length = subtract(then, then, t, t)
            change = coarse_step(f, trial, length, tape.is_smooth, wide)
            allowed = fine * ROUGHER ** (steps / most)
            if not (change <= allowed or (change < np.inf and then - t <= shortest)):
                h = 0.5 * (then - t)
                continue
            x[:] = trial
            tube.end[steps], tube.during[steps], tube.after[steps] = then, wide, x
            faster = min(0.9 * np.sqrt(allowed / (change + SMALLEST)), 2.0)
            h = max(h, then - t) if then == goal else then - t
            h, t, steps = h * max(faster, 0.5), then, steps + 1
        if goal < t:
            break
        ranges_of_inputs(program, k, (goal, goal), u)
        evaluate(program.measured, (goal, goal), x, p, u, False, outputs)
        first, end = program.first[k], program.first[k + 1]
        for i in range(first, end):
            y, sigma = program.value[i], program.sigma[i]
            out = outputs.value[program.measured.results[program.column[i]]]
            low, high = subtract(out[0], out[1], y, y)
            low, high = divide(low, high, sigma, sigma)
            tube.rows[i] = max(low, tube.rows[i, 0]), min(high, tube.rows[i, 1])
        total = down(total + squares_of(tube, first, end))
        for i in range(first, end):
            meet(program, i, cut, total, tube, x)
        if steps > 0:
            tube.after[steps - 1] = x
    tube.steps[0], tube.squares[last + 1] = steps, 0.0
    for k in range(last, -1, -1):
        own = squares_of(tube, program.first[k], program.first[k + 1])
        tube.squares[k] = down(tube.squares[k + 1] + own)


@lean_kernel
def squares_of(tube: Tube, first: int, end: int) -> float:
    """Lower bound of the sum of squares of some residuals."""
    squares = 0.0
    for i in range(first, end):
        squares = down(squares + least_square(tube.rows[i, 0], tube.rows[i, 1]))
    return squares


@lean_kernel
def meet(program: Program, i: int, cut: float, total: float, tube: Tube, x: FloatArray) -> None:
    """Cut off of a state what makes the sum of squares larger than the level, by residual i.

    total  lower bound of the sum of squares of all residuals until then, this one included
    """
    at = program.measured.results[program.column[i]]
    if program.measured.code[at, 0] != STATE or not total <= cut < np.inf:
        return
    low, high = tube.rows[i]
    others = down(total - up(least_square(low, high)))
    far = np.sqrt(up(cut - others))
    far = up(up(far) * abs(program.sigma[i]))
    low, high = outward(program.value[i] - far, program.value[i] + far)
    s = program.measured.code[at, 1]
    low, high = max(low, x[s, 0]), min(high, x[s, 1])
    if low <= high:
        x[s] = low, high
