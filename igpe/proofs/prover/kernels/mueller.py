"""Mueller bounds: a tube of piecewise linear lower and upper solutions, for large boxes.

The upper bound of a state rises at least as fast as the state does anywhere on the tube's face
where it has this value; its slope over a step is the worst value on the face's whole path. First
order, but hard to break (Mueller 1927; Walter, Differential and Integral Inequalities, 1970,
section 12). On each face, and after each step, states are only where conserved sums leave them.

Ranges of all operations of a tape, and of slopes on the faces of a tube, are one kernel: to pass a
tape to another one takes longer than to compute a face.

Conserved sums of states are z = A x. What is conserved is bounded by its start, and cuts what
states can be ("invariants": Scott & Barton, Automatica 49 (2013) 93; Shen & Scott, Comput. Chem.
Eng. 107 (2017) 12). Coefficients are whole numbers, so that A x is exact but for rounding.
"""

import math
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.proofs.compiled import kernel
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.intervals import (
    ROUND,
    TINY,
    UNIT,
    base_and_exponent,
    between,
    fraction,
    of_function,
    of_power,
    outward,
)
from igpe.proofs.prover.kernels.tape import Faces, OpTape, Schedule


@kernel
def _terms(c: FloatArray, x: FloatArray) -> tuple[float, float, float]:
    """Least and largest sum of c_j x_j, not rounded, and its size; that is no number if x is not.

    What is infinite may make the size infinite or no number.
    """
    least = most = size = 0.0
    for j in range(len(c)):
        if c[j] != 0.0:
            a, b = c[j] * x[j, 0], c[j] * x[j, 1]
            least, most = least + min(a, b), most + max(a, b)
            size += abs(a) + abs(b)
    return least, most, size


@kernel
def begin_sums(sums: FloatArray, held: FloatArray, x: FloatArray, states: int) -> None:
    """Write what sums of states are at the start into x (n, 2), after the states.

    Each is defined by a conserved sum, of the states minus itself, which is held at zero.
    """
    for k in range(len(sums)):
        for j in range(states, len(x)):
            if sums[k, j] != 0.0:
                least, most, size = _terms(sums[k, :states], x)
                room = 4.0 * (states + 4.0) * UNIT * size + TINY
                x[j, 0], x[j, 1] = outward(least - room, most + room)
                held[k, 0], held[k, 1] = 0.0, 0.0


@kernel
def narrow_states(sums: FloatArray, held: FloatArray, x: FloatArray, only: int) -> None:
    """Cut off what states x (n_x, 2) cannot be, given sums' ranges held (n_sums, 2).

    only  sums that hold this state; all of them: -1
    A range that would be left empty, or is no number, is left as it is.
    """
    count, n = sums.shape
    for k in range(count):
        if only >= 0 and sums[k, only] == 0.0:
            continue
        low, high = held[k]
        least, most, size = _terms(sums[k], x)
        room = 4.0 * (n + 4.0) * UNIT * (size + abs(low) + abs(high)) + TINY
        if not (math.isfinite(room) and low <= high):
            continue
        for j in range(n):
            c = sums[k, j]
            if c == 0.0:
                continue
            # x changes as it goes, and least and most stay those of wider ranges
            a, b = min(c * x[j, 0], c * x[j, 1]), max(c * x[j, 0], c * x[j, 1])
            one, two = (low - most + b - room) / c, (high - least + a + room) / c
            one, two = outward(min(one, two), max(one, two))
            one, two = max(one, x[j, 0]), min(two, x[j, 1])
            if one <= two:
                x[j, 0], x[j, 1] = one, two


@kernel
def narrow_sums(sums: FloatArray, held: FloatArray, x: FloatArray) -> None:
    """Cut off what sums, held (n_sums, 2), cannot be, given their states x (n_x, 2)."""
    count, n = sums.shape
    for k in range(count):
        least, most, size = _terms(sums[k], x)
        room = 4.0 * (n + 4.0) * UNIT * size + TINY
        if not math.isfinite(room):
            continue
        low, high = max(least - room, held[k, 0]), min(most + room, held[k, 1])
        if low <= high:
            held[k, 0], held[k, 1] = low, high


class Slopes(NamedTuple):
    """Slopes over ranges: their tape, ranges of parameters and inputs, and room (n, 2) for all.

    sums (n_sums, n_x) of states whose slope is zero;  held (n_sums, 2): what they are;  near (n_x,
    2): room for states
    """

    tape: OpTape
    faces: Faces
    p: FloatArray
    u: FloatArray
    out: FloatArray
    sums: FloatArray
    held: FloatArray
    near: FloatArray


@kernel
def face_slopes(
    of: Slopes, asked: BoolArray, paths: FloatArray, x: FloatArray, worst: FloatArray
) -> None:
    """Worst slopes (n_x, 2) on faces' paths (n_x, 2, 2) while the other states are anywhere in x.

    asked  (n_x, 2) for which faces

    Operations that do not depend on a face's state are the same for all faces, unless sums cut off
    what the other states can be there. Those that do not move must have been computed before.
    """
    tape, faces, p, u, out = of.tape, of.faces, of.p, of.u, of.out
    kinds, firsts, seconds, numbers = tape.op, tape.a, tape.b, tape.number
    slots, functions, exponents, results = tape.argument, tape.function, tape.exponent, tape.results
    sums, held, near, has_sums = of.sums, of.held, of.near, len(of.sums) > 0
    kept = np.empty_like(out)
    for face in range(0 if has_sums else -1, 2 * len(asked)):
        i, s = face // 2, face % 2
        around, places, first, last = x, faces.moving, 0, len(faces.moving)
        if face >= 0:
            if not asked[i, s]:
                continue
            inner, outer = x[i, 0], x[i, 1]
            x[i, 0], x[i, 1] = paths[i, s, 0], paths[i, s, 1]
            places, first, last = faces.own, faces.own_first[i], faces.own_first[i + 1]
            if has_sums:
                near[:] = x
                narrow_states(sums, held, near, i)
                around = near
                places, first, last = faces.need, faces.need_first[i], faces.need_first[i + 1]
        for j in range(first, last):
            n = places[j]
            op, a, b = kinds[n], firsts[n], seconds[n]
            if op == ops.STATE:
                low, high = around[a, 0], around[a, 1]
            elif op == ops.PARAMETER:
                low, high = p[a, 0], p[a, 1]
            elif op == ops.CONST:
                low, high = numbers[n], numbers[n]
            elif op == ops.INPUT:
                low, high = u[a, 0], u[a, 1]
            elif op == ops.TIME:
                low, high = u[len(u) - 1, 0], u[len(u) - 1, 1]
            elif op in (ops.SHIFT, ops.COEFFICIENT, ops.HORNER, ops.TERM):
                continue
            elif op == ops.FRACTION:
                low, high = fraction(firsts, numbers, a, b, out)
            elif op == ops.NEG:
                low, high = -out[a, 1], -out[a, 0]
            elif op == ops.CLOSE:
                k = slots[b]
                low, high = of_function(functions[b], exponents[b], out[k, 0], out[k, 1])
                low, high = outward(low, high)
            elif op == ops.GENERAL_POWER:
                base, k = base_and_exponent(tape, n)
                low, high = of_power(out[base, 0], out[base, 1], out[k, 0], out[k, 1])
            else:
                low, high = between(op, out[a, 0], out[a, 1], out[b, 0], out[b, 1])
            if not (low <= high):
                low, high = -np.inf, np.inf
            out[n, 0], out[n, 1] = low, high
        if face < 0:
            kept[:] = out
            continue
        x[i, 0], x[i, 1] = inner, outer
        worst[i, s] = out[results[i], s]
        if not has_sums:
            for j in range(first, last):
                n = places[j]
                out[n, 0], out[n, 1] = kept[n, 0], kept[n, 1]


@kernel
def face_slope(of: Slopes, i: int, side: int, path: FloatArray, x: FloatArray) -> float:
    """The same of one face, on the path (2,) of state i."""
    n = len(x)
    asked, paths, worst = np.zeros((n, 2), dtype=np.bool_), np.empty((n, 2, 2)), np.empty((n, 2))
    asked[i, side], paths[i, side] = True, path
    face_slopes(of, asked, paths, x, worst)
    return float(worst[i, side])


@kernel
def enclose(tape: OpTape, x: FloatArray, p: FloatArray, u: FloatArray, out: FloatArray) -> None:
    """Ranges of all operations, into out (n, 2).

    x (n_x, 2), p (n_p, 2), u (n_u + 1, 2): ranges of states, parameters, and inputs with time last
    """
    every, none = np.arange(len(tape.op)), np.zeros(0, dtype=np.int64)
    no_faces, nothing = np.zeros((0, 2), dtype=np.bool_), np.zeros((0, 2))
    faces = Faces(every, none, none, none, none)
    of = Slopes(tape, faces, p, u, out, nothing, nothing, nothing)
    face_slopes(of, no_faces, np.zeros((0, 2, 2)), x, nothing)


ROOM, TIGHT = 0.1, 1e-9  # share of its way by which a face may miss its trial slope
FALLEN = 1e-8  # least share of a face that is left after it fell
LEVEL = 1.05  # times the way to where a face's slope vanishes if it is linear
FALLS = 3  # attempts, each with a smaller fall


@kernel
def has_broken_powers(tape: OpTape) -> bool:
    """Whether right-hand sides may not be Lipschitz: solutions may leave where slopes are zero."""
    return bool((tape.function == ops.POWER).any() or (tape.op == ops.GENERAL_POWER).any())


@kernel
def _keep_positive(
    of: Slopes, now: FloatArray, paths: FloatArray, x: FloatArray, positive: BoolArray
) -> None:
    """Cut off what is below zero where no solution goes: its slope is not negative at zero.

    A solution that is not negative in these states remains so (Nagumo), as right-hand sides without
    broken powers are locally Lipschitz. With such powers the slope must not be negative below zero
    either: what falls below zero cannot have fallen there. What does not have the property is found
    out one by one.
    """
    n, broken = len(now), has_broken_powers(of.tape)
    touches, below = np.zeros((n, 2), dtype=np.bool_), paths.copy()
    slope = np.empty((n, 2))
    for i in range(n):
        positive[i] = now[i, 0] >= 0.0
        touches[i, 0] = positive[i] and not (min(paths[i, 0, 0], paths[i, 1, 0]) >= 0.0)
        below[i, 0] = 0.0
        if broken:
            below[i, 0, 0] = min(paths[i, 0, 0], paths[i, 1, 0], 0.0)
    wrong = True
    while wrong:
        wrong = False
        for i in range(n):
            x[i, 0] = max(paths[i, 0, 0], 0.0) if positive[i] else paths[i, 0, 0]
        if touches.any():
            face_slopes(of, touches, below, x, slope)
        for i in range(n):
            if touches[i, 0] and not (slope[i, 0] >= 0.0):
                positive[i] = touches[i, 0] = False
                wrong = True
    for i in range(n):
        if positive[i]:
            for s in range(2):
                paths[i, s, 0] = max(paths[i, s, 0], 0.0)
                paths[i, s, 1] = max(paths[i, s, 1], 0.0)


@kernel
def level(of: Slopes, i: int, side: int, now: float, farthest: float, x: FloatArray) -> float:
    """A level of a face that state i does not cross while the others are anywhere in x; or nan.

    The state is on the inner side of `now` before. Where its slope on the level does not lead
    outward it remains within, however steep slopes elsewhere are: near a fast equilibrium.
    """
    if has_broken_powers(of.tape):
        return np.nan
    path, sign = np.empty(2), 1.0 if side == 1 else -1.0
    path[:] = now
    here = sign * face_slope(of, i, side, path, x)
    if here <= 0.0:
        return now
    path[:] = farthest
    there = sign * face_slope(of, i, side, path, x)
    if not (there <= 0.0 and here < np.inf):
        return np.nan
    between = now + LEVEL * (farthest - now) * here / (here - there)
    path[:] = between
    if sign * (farthest - between) > 0.0 and sign * face_slope(of, i, side, path, x) <= 0.0:
        return between
    return farthest


@kernel
def try_step(
    of: Slopes,
    now: FloatArray,
    h: float,
    slope: FloatArray,
    fine: float,
    falling: bool,
    last: bool,
    positive: BoolArray,
) -> bool:
    """Whether slopes (n_x, 2) hold over the step; they are what was found, right or not.

    last      whether faces whose slopes do not hold may lead to a `level`
    falling   whether slopes are those of `fall`: where one leads further inward than its face may
              go, it is taken to lead nearly as far as that
    positive  (n_x,) becomes which states are known not to be negative
    """
    n = len(now)
    paths, x = np.empty((n, 2, 2)), np.empty((n, 2))
    worst = np.empty((n, 2))
    # Where faces may go, with room, a share of the way, for other slopes; and for changes of small
    # ones, as states near an equilibrium have. One that falls far has hardly any: see `fall`.
    for i in range(n):
        for s in range(2):
            end = now[i, s] + h * slope[i, s]
            share = TIGHT if falling and s == 1 and end < 0.5 * now[i, s] else ROOM
            room = share * (abs(h * slope[i, s]) + fine * abs(now[i, s])) + 1e-14 * abs(h)
            paths[i, s, 0] = min(now[i, s], end) - room
            paths[i, s, 1] = max(now[i, s], end) + room
        x[i, 0], x[i, 1] = paths[i, 0, 0], paths[i, 1, 1]
    _keep_positive(of, now, paths, x, positive)
    narrow_states(of.sums, of.held, x, -1)
    face_slopes(of, np.ones((n, 2), dtype=np.bool_), paths, x, worst)
    good = True
    for i in range(n):
        for s in range(2):
            end = now[i, s] + h * worst[i, s]
            if positive[i]:
                end = max(end, 0.0)
            inward = paths[i, s, 1 - s]
            if falling and ((end < inward) if s == 1 else (end > inward)):
                worst[i, s] = (inward - now[i, s]) / h * (1.0 - 1e-12)
            elif not (paths[i, s, 0] <= end <= paths[i, s, 1]):
                end = level(of, i, s, now[i, s], paths[i, s, s], x) if last else np.nan
                worst[i, s] = (end - now[i, s]) / h if np.isfinite(end) else worst[i, s]
                good = good and np.isfinite(end)
    slope[:] = worst
    return good


@kernel
def fall(
    of: Slopes,
    now: FloatArray,
    h: float,
    first: FloatArray,
    slope: FloatArray,
    fine: float,
    positive: BoolArray,
) -> bool:
    """`try_step` with upper faces that fall far within the step, as one of a fast decay does.

    Where slopes shrink as states do, x' = -r x, a face falls to x / (1 + r h); of x' = -r x^2 and
    x' = -r x^4 to its root and that of its root.
    """
    power = 1.0
    for _ in range(FALLS):
        slope[:] = first
        for i in range(len(now)):
            if stalls(now[i, 1], h, first[i, 1], 0.0):
                ratio = 1.1 / (1.0 - h * first[i, 1] / now[i, 1])
                left = max(ratio**power, FALLEN)
                slope[i, 1] = -max(1.0 - left, 0.0) * now[i, 1] / h
        if try_step(of, now, h, slope, fine, True, False, positive):
            return True
        power *= 0.5
    return False


@kernel
def stalls(now: float, h: float, first: float, slope: float) -> bool:
    """Whether an upper face should fall far within a step, by its first slope, and does not."""
    return now > 0.0 and h * first < -0.5 * now and slope > 0.1 * first


MOST_STEPS = 3000
WIDEST, EXPLODED = 8.0, 1e3  # of scales and first widths: if all, or one, are wider, it ends
SHORTEST = 1e-12  # step, as a share of the way to the next stop; faster decays fall at once
ROUGHER = 30.0  # are the last of the allowed steps than the first


class Tube(NamedTuple):
    """Bounds of the states at some times; linear between them.

    time (most,), bounds (most, n_x, 2)
    steps (2,): of the tube, and how many the Taylor models beside it took
    """

    time: FloatArray
    bounds: FloatArray
    steps: IntArray


def tube(states: int) -> Tube:
    """Room for one."""
    return Tube(
        np.zeros(MOST_STEPS), np.zeros((MOST_STEPS, states, 2)), np.zeros(2, dtype=np.int64)
    )


@kernel
def inputs_between(schedule: Schedule, stop: int, a: float, b: float, u: FloatArray) -> None:
    """Ranges of inputs and time from a to b, on the way to a stop, into u (n_u + 1, 2)."""
    for i in range(len(u) - 1):
        c, s = schedule.inputs[stop, i, 0], schedule.inputs[stop, i, 1]
        v, w = c + s * a, c + s * b
        room = 8.0 * ROUND * (abs(c) + abs(s * a) + abs(s * b)) + TINY
        u[i, 0], u[i, 1] = min(v, w) - room, max(v, w) + room
    u[len(u) - 1, 0], u[len(u) - 1, 1] = a, b


@kernel
def mueller(
    of: Slopes,
    schedule: Schedule,
    stop: int,
    now: FloatArray,
    clock: FloatArray,
    fine: float,
    most: int,
    tube: Tube,
) -> bool:
    """Go on with the tube to the next stop; whether it came there.

    now   (n_x, 2) its bounds;  clock (2,) the time, and the next step
    fine  how far slopes may change over a step, relative to the states' scale; more at last
    most  steps at most, of the whole tube
    """
    n, u = len(now), of.u
    slope, first, points = np.empty((n, 2)), np.empty((n, 2)), np.empty((n, 2, 2))
    every = np.ones((n, 2), dtype=np.bool_)
    positive = np.empty(n, dtype=np.bool_)
    while clock[0] < schedule.stops[stop]:
        time, h = clock
        following = min(time + h, schedule.stops[stop])
        if schedule.stops[stop] - following < 0.3 * (following - time):
            following = schedule.stops[stop]
        inputs_between(schedule, stop, time, time, u)
        points[:, :, 0] = points[:, :, 1] = now
        face_slopes(of, every, points, now, first)
        k = tube.steps[0]
        rough = fine * ROUGHER ** (k / most)
        done, worst = False, 0.0
        for _ in range(40):
            step = following - time
            if not (step > SHORTEST * (schedule.stops[stop] - time)):
                break
            inputs_between(schedule, stop, time, following, u)
            slope[:] = first
            good = try_step(of, now, step, slope, rough, False, False, positive)
            for again in range(2):
                if good:
                    break
                # Slopes that would be found again, those found being linear in those tried
                # (secants): what an implicit method takes, where equations are stiff.
                for i in range(n):
                    for s in range(2):
                        if again == 0 and first[i, s] != 0.0:
                            change = (slope[i, s] - first[i, s]) / first[i, s]
                            if change < 0.0:
                                slope[i, s] = first[i, s] / (1.0 - change)
                good = try_step(of, now, step, slope, rough, False, again > 0, positive)
            worst = 0.0
            for i in range(n):
                for s in range(2):
                    size = schedule.scale[i] + now[i, 1] - now[i, 0]
                    change = abs(slope[i, s] - first[i, s]) * step / size
                    if change < np.inf:  # ends of infinite slopes are known otherwise
                        worst = max(worst, change)
            if good and worst <= rough:
                done = True
                break
            factor = 0.5 if not (worst > 4.0 * rough) else 0.25
            following = time + step * factor
        any_stalls = False
        for i in range(n):
            any_stalls = any_stalls or stalls(now[i, 1], step, first[i, 1], slope[i, 1])
        if not done:
            following = min(time + h, schedule.stops[stop])
            step = following - time
            inputs_between(schedule, stop, time, following, u)
            done = fall(of, now, step, first, slope, rough, positive)
        elif any_stalls:
            before, kept = slope.copy(), positive.copy()
            if not fall(of, now, step, first, slope, rough, positive):
                slope[:], positive[:] = before, kept
        if not done or k >= min(most, MOST_STEPS):
            return False
        wide = 0
        for i in range(n):
            ends = now[i] + step * slope[i]
            now[i, 0], now[i, 1] = outward(ends[0], ends[1])
            now[i, 0] -= 4.0 * ROUND * abs(step * slope[i, 0])
            now[i, 1] += 4.0 * ROUND * abs(step * slope[i, 1])
            if positive[i]:
                now[i, 0] = max(now[i, 0], 0.0)
        # Between two times the tube is linear only to where its faces lead: what sums cut off
        # at the end is not cut off before it.
        tube.time[k], tube.bounds[k], tube.steps[0] = following, now, k + 1
        narrow_states(of.sums, of.held, now, -1)
        narrow_sums(of.sums, of.held, now)
        for i in range(n):
            begun = tube.bounds[0, i, 1] - tube.bounds[0, i, 0]
            width = (now[i, 1] - now[i, 0]) / (schedule.scale[i] + begun)
            if not (width < WIDEST):
                wide += 1 if width < EXPLODED else n  # as many as there are: too wide to go on
        clock[0], clock[1] = following, step * (2.0 if worst < 0.3 * rough else 1.2)
        if wide >= n:
            return False
    return True


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
    x[:] = tube.bounds[k, : len(x)]
    while tube.time[k] < b:
        k += 1
        for i in range(len(x)):
            low, high = tube.bounds[k, i, 0], tube.bounds[k, i, 1]
            if not (low <= high):
                low, high = -np.inf, np.inf
            x[i, 0], x[i, 1] = min(x[i, 0], low), max(x[i, 1], high)
    for i in range(len(x)):
        if not (x[i, 0] <= x[i, 1]):
            x[i, 0], x[i, 1] = -np.inf, np.inf
    return place
