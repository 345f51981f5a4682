"""Mueller bounds: a tube of piecewise linear lower and upper solutions, for large boxes.

The upper bound of a state rises at least as fast as the state does anywhere on the tube's face
where it has this value; its slope over a step is the worst value on the face's whole path. First
order, but hard to break (Mueller 1927; Walter, Differential and Integral Inequalities, 1970,
section 12).
"""

from typing import NamedTuple

import numpy as np

from igpe.arrays import FloatArray, IntArray
from igpe.proof.compiled import kernel
from igpe.proof.intervals import ROUND, enclose, outward
from igpe.proof.monomials import TINY
from igpe.proof.tape import Tape

MOST_STEPS = 3000
WIDEST = 8.0  # of a state's scale: a wider tube tells nothing


class Course(NamedTuple):
    """What one experiment measures, and when.

    start    time at which it begins
    stops    (n_stops,) increasing: measured times, and breaks of the inputs
    first    (n_stops + 1,) where the rows of each stop begin
    column   (m,) which told quantity;  value, weight (m,): measurement, 1 / standard deviation
    inputs   (n_stops, n_u, 2) coefficients a, b of a + b t up to each stop
    scale    (n_x,) positive: how large each state is
    """

    start: float
    stops: FloatArray
    first: IntArray
    column: IntArray
    value: FloatArray
    weight: FloatArray
    inputs: FloatArray
    scale: FloatArray


class Tube(NamedTuple):
    """Bounds of the states at some times; linear between them.

    time (most,), bounds (most, n_x, 2), steps (1,)
    """

    time: FloatArray
    bounds: FloatArray
    steps: IntArray


def tube(states: int) -> Tube:
    """Room for one."""
    return Tube(
        np.zeros(MOST_STEPS), np.zeros((MOST_STEPS, states, 2)), np.zeros(1, dtype=np.int64)
    )


@kernel
def inputs_between(course: Course, stop: int, a: float, b: float, u: FloatArray) -> None:
    """Ranges of inputs and time from a to b, on the way to a stop, into u (n_u + 1, 2)."""
    for i in range(len(u) - 1):
        c, s = course.inputs[stop, i, 0], course.inputs[stop, i, 1]
        v, w = c + s * a, c + s * b
        room = 8.0 * ROUND * (abs(c) + abs(s * a) + abs(s * b)) + TINY
        u[i, 0], u[i, 1] = min(v, w) - room, max(v, w) + room
    u[len(u) - 1, 0], u[len(u) - 1, 1] = a, b


@kernel
def _face(
    tape: Tape,
    i: int,
    side: int,
    path: FloatArray,
    x: FloatArray,
    p: FloatArray,
    u: FloatArray,
    out: FloatArray,
) -> float:
    """Worst slope of state i on its face's path (2,) while the others are anywhere in x."""
    low, high = x[i, 0], x[i, 1]
    x[i, 0], x[i, 1] = path[0], path[1]
    enclose(tape, i, x, p, u, out)
    x[i, 0], x[i, 1] = low, high
    return float(out[tape.results[i], side])


@kernel
def _try(
    tape: Tape,
    now: FloatArray,
    h: float,
    p: FloatArray,
    u: FloatArray,
    slope: FloatArray,
    out: FloatArray,
) -> bool:
    """Whether slopes (n_x, 2) hold over the step; they are what was found, right or not."""
    n = len(now)
    paths, x = np.empty((n, 2, 2)), np.empty((n, 2))
    found = np.empty((n, 2))
    for i in range(n):
        for s in range(2):
            end = now[i, s] + h * slope[i, s]
            room = 0.1 * abs(h * slope[i, s]) + 1e-9 * abs(now[i, s]) + 1e-14 * abs(h)
            paths[i, s, 0] = min(now[i, s], end) - room
            paths[i, s, 1] = max(now[i, s], end) + room
        x[i, 0], x[i, 1] = paths[i, 0, 0], paths[i, 1, 1]
    good = True
    for i in range(n):
        for s in range(2):
            found[i, s] = _face(tape, i, s, paths[i, s], x, p, u, out)
            end = now[i, s] + h * found[i, s]
            if not (paths[i, s, 0] <= end <= paths[i, s, 1]):
                good = False
    slope[:] = found
    return good


@kernel
def mueller(
    tape: Tape, course: Course, begin: FloatArray, p: FloatArray, fine: float, most: int, tube: Tube
) -> int:
    """Fill the tube from `begin` (n_x, 2) on; the number of stops that it reached.

    fine  how far slopes may change over a step, relative to the states' scale
    most  steps at most
    """
    n = len(begin)
    out, u = np.empty((len(tape.op), 2)), np.empty((course.inputs.shape[1] + 1, 2))
    slope, first = np.empty((n, 2)), np.empty((n, 2))
    now = begin.copy()
    tube.time[0], tube.steps[0] = course.start, 1
    tube.bounds[0] = now
    time, h = course.start, course.stops[-1] - course.start
    for stop in range(len(course.stops)):
        while time < course.stops[stop]:
            following = min(time + h, course.stops[stop])
            if course.stops[stop] - following < 0.3 * (following - time):
                following = course.stops[stop]
            inputs_between(course, stop, time, time, u)
            for i in range(n):
                for s in range(2):
                    path = np.array([now[i, s], now[i, s]])
                    first[i, s] = _face(tape, i, s, path, now, p, u, out)
            done = False
            for _ in range(40):
                step = following - time
                if not (step > 0.0):
                    break
                inputs_between(course, stop, time, following, u)
                slope[:] = first
                good = _try(tape, now, step, p, u, slope, out)
                if not good:
                    good = _try(tape, now, step, p, u, slope, out)
                worst = 0.0
                for i in range(n):
                    for s in range(2):
                        worst = max(worst, abs(slope[i, s] - first[i, s]) * step / course.scale[i])
                if good and worst <= fine:
                    done = True
                    break
                factor = 0.5 if not (worst > 4.0 * fine) else 0.25
                following = time + step * factor
            if not done or tube.steps[0] >= min(most, MOST_STEPS):
                return stop
            wide = False
            for i in range(n):
                a = now[i, 0] + step * slope[i, 0]
                b = now[i, 1] + step * slope[i, 1]
                room = 4.0 * ROUND * (abs(step * slope[i, 0]) + abs(step * slope[i, 1]))
                now[i, 0], now[i, 1] = outward(a, b)
                now[i, 0], now[i, 1] = now[i, 0] - room, now[i, 1] + room
                if not (now[i, 1] - now[i, 0] < WIDEST * course.scale[i]):
                    wide = True
            k = tube.steps[0]
            tube.time[k] = following
            tube.bounds[k] = now
            tube.steps[0] = k + 1
            h = step * (2.0 if worst < 0.3 * fine else 1.2)
            time = following
            if wide:
                return stop + 1 if following == course.stops[stop] else stop
    return len(course.stops)


@kernel
def hull(tube: Tube, a: float, b: float, place: int, x: FloatArray) -> int:
    """Bounds of the states from a to b into x (n_x, 2); infinite beyond the tube's end.

    place  of an earlier call, at a time not later than a;  returns  that of this one
    """
    last = tube.steps[0] - 1
    if last < 0 or b > tube.time[last]:
        x[:, 0], x[:, 1] = -np.inf, np.inf
        return place
    while place < last and tube.time[place + 1] <= a:
        place += 1
    k = place
    x[:] = tube.bounds[k]
    while tube.time[k] < b:
        k += 1
        for i in range(len(x)):
            x[i, 0] = min(x[i, 0], tube.bounds[k, i, 0])
            x[i, 1] = max(x[i, 1], tube.bounds[k, i, 1])
    return place
