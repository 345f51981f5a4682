"""Residuals as polynomials of the scaled parameters, and what they say of a box one by one.

What a tube says of the residuals, and what they say of the tube.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.compiled import entry_point, kernel
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, UP, enclose
from igpe.proofs.prover.kernels.mueller import (
    MOST_STEPS,
    Front,
    Schedule,
    Tube,
    inputs_between,
    mueller,
    start_front,
)
from igpe.proofs.prover.kernels.tape import OpTape
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
    return BoxRows(
        np.zeros((size, algebra.size - algebra.states)),
        np.full(size, np.inf),
        np.full(size, -np.inf),
        np.full(size, np.inf),
        np.zeros(size),
        np.zeros((algebra.parameters, 2)),
        np.zeros(1),
    )


@entry_point
def clear(rows: BoxRows) -> None:
    """Nothing is known."""
    rows.c[:] = 0.0
    rows.error[:] = np.inf
    rows.low[:] = -np.inf
    rows.high[:] = np.inf
    rows.square[:] = 0.0
    rows.delta[:, 0] = -1.0
    rows.delta[:, 1] = 1.0
    rows.known[0] = 0.0


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
def narrow(algebra: Monomials, rows: BoxRows, i: int, cut: float) -> None:
    """Cut off what residual i alone, given the least of all others, leaves no room below the cut.

    A polynomial of one row: g_k delta_k = r - (all the rest), |r| <= sqrt(cut - others).
    """
    others = rows.square.sum() - rows.square[i]
    room = reach(cut, others)
    c, n = rows.c[i], algebra.parameters
    size = abs(c[0])
    low, high = c[0] - rows.error[i], c[0] + rows.error[i]
    for m in range(1 + n, len(c)):
        even = algebra.factors[m, 2] < 0 and algebra.factors[m, 0] == algebra.factors[m, 1]
        low -= abs(c[m]) if not (even and c[m] > 0.0) else 0.0
        high += abs(c[m]) if not (even and c[m] < 0.0) else 0.0
        size += abs(c[m])
    for j in range(n):
        size += abs(c[1 + j])
    slack = 64.0 * (8.0 + len(c)) * UNIT * (size + room) + rows.error[i] * 1e-12 + TINY
    for j in range(n):
        low += min(c[1 + j] * rows.delta[j, 0], c[1 + j] * rows.delta[j, 1])
        high += max(c[1 + j] * rows.delta[j, 0], c[1 + j] * rows.delta[j, 1])
    for k in range(n):
        g = c[1 + k]
        if abs(g) < 1e-6 * size or not np.isfinite(size):
            continue
        rest_low = low - min(g * rows.delta[k, 0], g * rows.delta[k, 1])
        rest_high = high - max(g * rows.delta[k, 0], g * rows.delta[k, 1])
        shrink(rows, k, (-room - rest_high - slack) / g, (room - rest_low + slack) / g)


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


@entry_point
def tube_rows(
    tapes: tuple[OpTape, OpTape, OpTape],
    schedule: Schedule,
    p: FloatArray,
    fine: float,
    most: int,
    cut: float,
    tube: Tube,
    rows: BoxRows,
    offset: int,
) -> int:
    """Mueller bounds of all residuals as far as they reach, or are needed to exceed the cut.

    returns  the number of stops reached
    """
    slope, outputs, begin = tapes
    n = len(slope.results)
    x, u = np.zeros((n, 2)), np.zeros((schedule.inputs.shape[1] + 1, 2))
    out = np.zeros((len(begin.op), 2))
    enclose(begin, -1, x, p, u, out)
    for i in range(n):
        x[i] = out[begin.results[i]]
    front = start_front(schedule, x, tube)
    out = np.zeros((len(outputs.op), 2))
    for stop in range(len(schedule.stops)):
        if not mueller(slope, schedule, stop, front, p, fine, most, tube):
            return stop
        if schedule.first[stop] < schedule.first[stop + 1]:
            t = schedule.stops[stop]
            inputs_between(schedule, stop, t, t, u)
            enclose(outputs, -1, front.now, p, u, out)
            for i in range(schedule.first[stop], schedule.first[stop + 1]):
                low, high = out[outputs.results[schedule.column[i]]]
                _note(schedule, rows, i, low, high, offset)
            if total(rows) > cut:
                return stop + 1
            _within_reach(outputs, schedule, stop, rows, offset, cut, front, tube)
    return len(schedule.stops)


@kernel
def _within_reach(
    outputs: OpTape,
    schedule: Schedule,
    stop: int,
    rows: BoxRows,
    offset: int,
    cut: float,
    front: Front,
    tube: Tube,
) -> None:
    """Cut off what measured states cannot be where the sum of squares is below the cut.

    What goes on in the tube are the solutions that can still be below it: |r_i| <= sqrt(cut -
    the least of the others). The tube gets a second point at the same time.
    """
    changed = False
    for i in range(schedule.first[stop], schedule.first[stop + 1]):
        k = outputs.results[schedule.column[i]]
        if outputs.op[k] != ops.STATE:
            continue
        others = 0.0
        for j in range(len(rows.square)):
            if j != offset + i:
                others += rows.square[j]
        room = reach(cut, others) / schedule.weight[i]
        y, state = schedule.value[i], outputs.a[k]
        low, high = y - room, y + room
        low, high = low - 8.0 * UNIT * abs(low), high + 8.0 * UNIT * abs(high)
        if not (low <= high):
            continue
        low, high = max(low, front.now[state, 0]), min(high, front.now[state, 1])
        if low <= high and high - low < front.now[state, 1] - front.now[state, 0]:
            front.now[state, 0], front.now[state, 1] = low, high
            changed = True
    k = tube.steps[0]
    if changed and k < MOST_STEPS:
        tube.time[k] = front.clock[0]
        tube.bounds[k] = front.now
        tube.steps[0] = k + 1


@kernel
def _note(schedule: Schedule, rows: BoxRows, i: int, low: float, high: float, offset: int) -> None:
    """A measured quantity between low and high, as a residual."""
    y, w = schedule.value[i], schedule.weight[i]
    room = 8.0 * UNIT * (abs(y) + abs(low) + abs(high))
    low, high = (low - y - room) * w, (high - y + room) * w
    note(rows, offset + i, low - abs(low) * 8.0 * UNIT, high + abs(high) * 8.0 * UNIT)
