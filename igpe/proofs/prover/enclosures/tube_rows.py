"""What a tube says of the residuals, and what they say of the tube."""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.compiled import door, kernel
from igpe.proofs.prover.enclosures.intervals import enclose
from igpe.proofs.prover.enclosures.monomials import UNIT
from igpe.proofs.prover.enclosures.mueller import (
    MOST_STEPS,
    Course,
    Front,
    Tube,
    begun,
    inputs_between,
    mueller,
)
from igpe.proofs.prover.enclosures.rows import Rows, note, reach, total
from igpe.proofs.prover.writer import STATE, Tape


@door
def tube_rows(
    tapes: tuple[Tape, Tape, Tape],
    course: Course,
    p: FloatArray,
    fine: float,
    most: int,
    cut: float,
    tube: Tube,
    rows: Rows,
    offset: int,
) -> int:
    """Mueller bounds of all residuals as far as they reach, or are needed to exceed the cut.

    returns  the number of stops reached
    """
    slope, told, begin = tapes
    n = len(slope.results)
    x, u = np.zeros((n, 2)), np.zeros((course.inputs.shape[1] + 1, 2))
    out = np.zeros((len(begin.op), 2))
    enclose(begin, -1, x, p, u, out)
    for i in range(n):
        x[i] = out[begin.results[i]]
    front = begun(course, x, tube)
    out = np.zeros((len(told.op), 2))
    for stop in range(len(course.stops)):
        if not mueller(slope, course, stop, front, p, fine, most, tube):
            return stop
        if course.first[stop] < course.first[stop + 1]:
            t = course.stops[stop]
            inputs_between(course, stop, t, t, u)
            enclose(told, -1, front.now, p, u, out)
            for i in range(course.first[stop], course.first[stop + 1]):
                low, high = out[told.results[course.column[i]]]
                _note(course, rows, i, low, high, offset)
            if total(rows) > cut:
                return stop + 1
            _within_reach(told, course, stop, rows, offset, cut, front, tube)
    return len(course.stops)


@kernel
def _within_reach(
    told: Tape,
    course: Course,
    stop: int,
    rows: Rows,
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
    for i in range(course.first[stop], course.first[stop + 1]):
        k = told.results[course.column[i]]
        if told.op[k] != STATE:
            continue
        others = 0.0
        for j in range(len(rows.square)):
            if j != offset + i:
                others += rows.square[j]
        room = reach(cut, others) / course.weight[i]
        y, state = course.value[i], told.a[k]
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
def _note(course: Course, rows: Rows, i: int, low: float, high: float, offset: int) -> None:
    """A measured quantity between low and high, as a residual."""
    y, w = course.value[i], course.weight[i]
    room = 8.0 * UNIT * (abs(y) + abs(low) + abs(high))
    low, high = (low - y - room) * w, (high - y + room) * w
    note(rows, offset + i, low - abs(low) * 8.0 * UNIT, high + abs(high) * 8.0 * UNIT)
