"""Residuals of a box as polynomials in the offsets of its parameters: validated integration."""

import math
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.proofs.checker.kernels.intervals import (
    FUNCTION,
    LOG,
    SQRT,
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
    subtract,
    up,
)
from igpe.proofs.checker.kernels.polynomials import (
    Leaves,
    Polynomials,
    Terms,
    bound,
    count_of_terms,
    extend,
    measure,
    span,
)
from igpe.proofs.checker.kernels.step import (
    Room,
    carry,
    coarse_step,
    count_of,
    lengths,
    ranges_of,
    validated_step,
)
from igpe.proofs.compiled import entry_point, kernel

PARTS = 4  # steps of coarse bounds from one time to the next
TOO_LONG = 0.7  # a step is tried again where it should have been so much shorter
PATIENCE = 30  # steps after which a box that is too slow is given up, and
PACE = 0.1  # the share of the way to its next time that all steps left would come at least
SMALLEST = 1e-280  # replaces a size of 0
MOST = 1e150  # of a residual: its square is a number


class Program(NamedTuple):
    """One experiment (`experiments.Replay`).

    times    (n_times,), and t0 before them;  first (n_times + 1,) the rows of each
    column, value, sigma  (n_rows,) r = (measured[column] - value) / sigma
    begins, levels  (n_inputs, n_times) the line of an input that leads to a time starts there
    rises    (n_inputs, n_times, 2) slopes
    """

    slopes: ReplayTape
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
    """Effort of the integration (`confirm.Effort`)."""

    order: int
    growth: float
    precision: float
    absolute: float
    most: int
    cubic: bool


class ReplayRows(NamedTuple):
    """Residuals of one box: polynomials in delta +- e.

    c  (n_terms, n_rows);  e (n_rows,);  spread (n,) how far parameters moved the states at last
    """

    c: FloatArray
    e: FloatArray
    spread: FloatArray


@kernel
def input_range(program: Program, i: int, k: int, time: Pair) -> Pair:
    """Range of input i over some times before the experiment's time k."""
    a, b = program.begins[i, k], program.levels[i, k]
    low, high = subtract(time[0], time[1], a, a)
    low, high = multiply(program.rises[i, k, 0], program.rises[i, k, 1], low, high)
    return add(b, b, low, high)


@kernel
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


@kernel
def ranges_of_inputs(program: Program, k: int, time: Pair, u: FloatArray) -> None:
    """Write the range of each input over some times: (n_inputs, 2)."""
    for i in range(len(u)):
        u[i] = input_range(program, i, k, time)


@kernel
def polynomials(tape: ReplayTape, order: int, size: int) -> Polynomials:
    """Room for those of a tape."""
    n = len(tape.op)
    c = np.zeros((n, order + 1, size))
    return Polynomials(c, np.zeros(n), np.zeros((n, 5, order + 1)))


@kernel
def values_of(tape: ReplayTape, states: int) -> Values:
    """Room for intervals of a tape, and for derivatives by so many states."""
    n = len(tape.op)
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


@kernel
def record(program: Program, k: int, given: Leaves, to: Polynomials, rows: ReplayRows) -> float:
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
        least = max(low, -high, 0.0)
        squares = down(squares + down(min(least, MOST) ** 2))
        rows.c[:, i] = r[0, :z]
        e = up(e + norms[4, 0])
        rows.e[i] = np.inf if np.isnan(e) else e
    return squares


@kernel
def is_vague(rows: ReplayRows, first: int, end: int, cut: float) -> bool:
    """Whether no residual of one time says anything: errors only grow from there, as a rule."""
    for i in range(first, end):
        if not rows.e[i] > max(np.abs(rows.c[:, i]).sum(), np.sqrt(max(cut, 0.0))):
            return False
    return True


@kernel
def change_of_functions(tape: ReplayTape, to: Polynomials, order: int) -> float:
    """The base of the geometric series in time that a function leaves out; the largest of all.

    The states may not show it: logarithm and exponential of a power cancel each other in them.
    """
    largest = 0.0
    for i in range(len(tape.op)):
        kind, a = tape.op[i] - FUNCTION, tape.a[i]
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
    program: Program, center: FloatArray, half: FloatArray, pace: Pace, cut: float, rows: ReplayRows
) -> float:
    """Residuals of a box, center + half delta, into rows; a lower bound of their sum of squares.

    Where that exceeds `cut` the integration stops, and rows that are left out stay as they are.
    """
    tape, n, states = program.slopes, len(center), len(program.start.results)
    terms = Terms(n, pace.cubic)
    z, last = count_of_terms(terms), len(program.times) - 1
    size = z + states
    p, box = np.empty((n, 2)), np.empty((n, 2))
    p[:, 0], p[:, 1] = center, half
    for i in range(n):
        box[i] = outward(center[i] - half[i], center[i] + half[i])
    x, fresh = np.zeros((states, 1, size)), np.zeros((states, 1, size))
    u, ranges = np.zeros((len(program.begins), 3)), np.zeros((len(program.begins), 2))
    many = len(tape.rates)
    room = Room(
        np.zeros((states, pace.order + 2, size)), np.empty(states), np.zeros((states, many)),
        np.zeros(states), np.empty(states), np.empty(states), np.empty((states, states)),
        np.empty((states, 2)), np.empty((states, 2)), np.empty((5, pace.order + 1)),
    )  # fmt: skip
    to, values = polynomials(tape, pace.order, size), values_of(tape, states)
    told = polynomials(program.measured, 0, size)
    clock = np.array([program.t0, 0.0])
    now, ahead = Leaves(x, p, clock, u, terms), Leaves(room.x, p, clock, u, terms)
    r, a = np.zeros(states), np.zeros((states, count_of(states)))
    alive, total, vague = start_of(program, now, z, x, r, a), 0.0, False
    t, k, tried = program.t0, 0, 0
    way = program.times[last] - t
    h = (way if way > 0 else 1.0) / (last + 1) / 2
    shortest = 1e-9 * way
    while alive:
        while k <= last and t == program.times[k]:
            clock[0], clock[1] = t, 0.0
            if program.first[k] < program.first[k + 1]:
                inputs_at(program, k, t, 0.0, u)
                total = down(total + record(program, k, now, told, rows))
                vague = is_vague(rows, program.first[k], program.first[k + 1], cut)
            k += 1
        if k > last or vague or not total <= cut or tried >= pace.most or h < shortest:
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
        if fine and absorb(fresh, z, r, a, room.moved, room.error):
            x[:] = fresh
            t = then
            h = max(h, wanted) if to_goal else wanted
        else:
            h = 0.5 * clock[1]
    rows.spread[:] = 0.0
    for i in range(states):
        full = np.abs(x[i, 0]).sum() + 1e-300
        for j in range(n):
            share = abs(x[i, 0, 1 + j]) / full
            rows.spread[j] += share if share < np.inf else 0.0
    if total <= cut and np.isinf(rows.e).any():
        total = coarse(program, box, values, rows, total)
    return total


@kernel
def coarse(
    program: Program, p: FloatArray, values: Values, rows: ReplayRows, total: float
) -> float:
    """ReplayRows without a polynomial become numbers with errors, where levels bound them."""
    states = len(program.start.results)
    x, u, begin = np.zeros((states, 2)), np.zeros((len(program.begins), 2)), program.t0
    told, beginning = values_of(program.measured, 0), values_of(program.start, 0)
    evaluate(program.start, (begin, begin), x, p, u, False, beginning)
    for i in range(states):
        x[i] = beginning.value[program.start.results[i]]
    for k in range(len(program.times)):
        end = program.times[k]
        for part in range(PARTS):
            a = begin + (end - begin) * (part / PARTS)
            b = begin + (end - begin) * ((part + 1) / PARTS) if part + 1 < PARTS else end
            if not np.isfinite(x).all():
                return total
            if b > a:
                ranges_of_inputs(program, k, (a, b), u)
                if not coarse_step(program.slopes, (a, b), x, p, u, values):
                    return total
        begin = end
        ranges_of_inputs(program, k, (end, end), u)
        evaluate(program.measured, (end, end), x, p, u, False, told)
        for i in range(program.first[k], program.first[k + 1]):
            y, sigma = program.value[i], program.sigma[i]
            out = told.value[program.measured.results[program.column[i]]]
            low, high = subtract(out[0], out[1], y, y)
            low, high = divide(low, high, sigma, sigma)
            far = radius(low, high)
            if np.isinf(rows.e[i]) and far < np.inf:
                rows.c[:, i] = 0.0
                rows.c[0, i], rows.e[i] = middle(low, high), far
                least = max(low, -high, 0.0)
                total = down(total + down(min(least, MOST) ** 2))
    return total
