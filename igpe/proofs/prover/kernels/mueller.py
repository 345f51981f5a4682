"""Mueller bounds: a tube of piecewise linear lower and upper solutions, for large boxes.

The upper bound of a state rises at least as fast as the state does anywhere on the tube's face
where it has this value; its slope over a step is the worst value on the face's whole path. First
order, but hard to break (Mueller 1927; Walter, Differential and Integral Inequalities, 1970,
section 12). On each face, and after each step, states are only where conserved sums leave them.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.proofs.compiled import kernel
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.faces import Slopes, face_slope, face_slopes
from igpe.proofs.prover.kernels.intervals import ROUND, TINY, outward
from igpe.proofs.prover.kernels.sums import narrow_states, narrow_sums
from igpe.proofs.prover.kernels.tape import OpTape, Schedule

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
