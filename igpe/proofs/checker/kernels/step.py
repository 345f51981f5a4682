"""One validated step in time, how its error is carried on, and coarse bounds where it fails.

X(tau) is a guess of the solution from t to t + h, tau in [0, 1]: any polynomial that begins in the
right place, here its Taylor series in time. What is proved afterwards: let

    |h f(X) - X'| <= d    for all delta, z, tau,
    M >= h J_ij (i = j),  M >= h |J_ij| (i != j)    for the Jacobian J of f on the tube X +- w,
    v >= d + max(0, M v),  0 < v <= w.

Then the solution exists on the whole step and |x - X| <= tau v: the difference satisfies D+|x_i -
X_i| <= d_i + sum_j M_ij |x_j - X_j| while it is in the tube, M has off-diagonal entries >= 0, and
tau v is a supersolution of that. No step of the search for v has to be trusted.

**The error** is carried from step to step along directions, so that it does not wrap. The slope of
state i is a sum of rates, f_i = sum_j S_ij q_j (`ReplayTape.share`), with polynomials q_j +- e_j
along the guess X. Y is X with one power of tau more. At the end of the step

    x_i - Y_i = integral over tau of  h sum_j S_ij q_j(x) - Y_i',
    |q_j(x) - q_j(X)| <= sum_s |dq_j/dx_s| |x_s - X_s|,    |x_s - X_s| <= tau v_s  (above).

What rate j is off hence moves all states together, by S_ij times a number of at most

    w_j = h (e_j + 1/2 sum_s |dq_j/dx_s| v_s).

What remains is how far Y' is from h sum_j S_ij q_j, coefficient by coefficient: rounding.

How directions are carried on is in `polynomials.py`.

**Coarse bounds** serve where boxes are too wide, or rates too fast or unknown, for polynomials. W
is a box around the states of which it is proved that no solution leaves it from t to t + h.

Faces (after Mueller): let the upper end of state i lead from b to u, so that h f_i <= u - b while
x_i is between b and u and the other states are anywhere in W. Then x_i <= b + tau (u - b): what is
beyond this line left it where x_i is still between b and u, and is slower there. Lower ends
likewise. If all lines are within W they prove W as well, as none is the first to be crossed
(`_leads`). Ends are as good as they can be if b + h max f_i is u (`_end`, by secants).

Strips (`_stays`): let B be a box of states around those at t. If, between a face of B and that of
W, a state moves outward by less than their distance during a step, whatever the others in W are, no
solution leaves W there: what left it would have come from that face of B. No Lipschitz constant is
needed. At first B is what the states are; if that leads nowhere a face of B is moved to 0, at which
rates of x' = -r x push back however large r is, and then by twice as much as leaves: rates that
rise to an equilibrium push back there. A strip on the way is a level that is not passed.

A state >= 0 remains so if its slope is not negative wherever it is 0 and others are in W, the
slopes being locally Lipschitz (Nagumo).
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.proofs.checker.kernels.intervals import (
    STATE,
    TINY,
    UNIT,
    Pair,
    ReplayTape,
    Values,
    add,
    evaluate,
    jacobian,
    multiply,
    operate,
    outward,
    size,
    up,
)
from igpe.proofs.checker.kernels.polynomials import (
    Leaves,
    Polynomials,
    bound,
    extend,
    measure,
    span,
)
from igpe.proofs.compiled import kernel, lean_kernel


@kernel
def displaced(
    tape: ReplayTape,
    h: float,
    to: Polynomials,
    values: Values,
    x: FloatArray,
    v: FloatArray,
    moved: FloatArray,
    error: FloatArray,
) -> None:
    """Write S diag(w) into moved (n_states, n_rates), and the rest into error (n_states,).

    x  (n_states, order + 2, size) Y
    """
    length, many = abs(h) * (1 + 16 * UNIT), len(tape.rates)
    for i in range(len(x)):
        missing = rates = sizes = 0.0
        for k in range(x.shape[1] - 1):
            for s in range(x.shape[2]):
                total = 0.0
                for j in range(many):
                    if tape.share[i, j] != 0:
                        term = tape.share[i, j] * to.c[tape.rates[j], k, s]
                        total += term
                        sizes += abs(term)
                rate = x[i, k + 1, s] * (k + 1)
                missing += abs(total * h - rate)
                rates += abs(rate)
        lost = (many + 16) * UNIT * length * sizes + 2 * UNIT * rates + 2 * UNIT * missing
        error[i] = missing + lost
    for j in range(many):
        at, w = tape.rates[j], 0.0
        for s in range(len(v)):
            if tape.depends[at, s]:
                w += 0.5 * size(values.slope[at, s, 0], values.slope[at, s, 1]) * v[s]
        w = up(length * up(w + to.e[at]))
        for i in range(len(x)):
            moved[i, j] = tape.share[i, j] * w if tape.share[i, j] != 0 else 0.0
            error[i] += 4 * UNIT * abs(moved[i, j])
    for i in range(len(x)):
        error[i] = up(error[i])


LEAST = TINY / UNIT  # replaces a defect of 0, as of a state at rest: v must exceed `up`
TUBES = 2  # tubes that are tried, each wider
WIDER = 4.0  # the first one, times what X lacks: steps are such that |M| is about 0.7 at most


class Room(NamedTuple):
    """Arrays for one box.

    x       (n_states, order + 2, size) X and the power that it lacks; afterwards its end at tau^0
    error   (n_states,) bound on what the end lacks apart from `moved`; infinite or nan where
            nothing was proved
    moved   (n_states, n_rates) how far the error of each rate moves the states during the step
    late    (n_states,) size of the highest power of tau in X
    d, v    (n_states,) as above;  m (n_states, n_states)
    ranges  (n_states, 2) of X;  tube (n_states, 2)
    norms   (5, order + 1) of one polynomial
    """

    x: FloatArray
    error: FloatArray
    moved: FloatArray
    late: FloatArray
    d: FloatArray
    v: FloatArray
    m: FloatArray
    ranges: FloatArray
    tube: FloatArray
    norms: FloatArray


@lean_kernel
def lengths(h: float) -> Pair:
    """A length that is known up to two units of rounding."""
    return outward(h * (1 - 8 * UNIT), h * (1 + 8 * UNIT))


@kernel
def validated_step(
    tape: ReplayTape,
    given: Leaves,
    p: FloatArray,
    u: FloatArray,
    to: Polynomials,
    values: Values,
    room: Room,
) -> float:
    """Integrate over `given.time` from `room.x[:, 0]`; the largest row sum of |M|, or infinity.

    p, u  (n, 2) ranges of parameters, and of inputs during the step
    """
    x, t, h = room.x, given.time[0], given.time[1]
    states, order = len(x), x.shape[1] - 2
    for k in range(order + 1):
        extend(tape, given, k, to)
        for i in range(states):
            slope = to.c[tape.results[i], k]
            for s in range(x.shape[2]):
                x[i, k + 1, s] = slope[s] * h / (k + 1)
    bound(tape, given, to)
    for i in range(states):
        guess = x[i, : order + 1]
        measure(given.terms, guess, room.norms)
        room.ranges[i] = span(room.norms, guess, 0.0)
        room.late[i] = room.norms[:, order].sum()
        at = tape.results[i]
        room.d[i] = defect(guess, to.c[at], to.norms[at].sum(), to.e[at], h)
    length = lengths(h)
    growth = supersolution(tape, (t, add(t, t, 0.0, length[1])[1]), p, u, length, values, room)
    if not np.isfinite(room.v).all():
        room.error[:] = np.inf
        return growth
    displaced(tape, h, to, values, x, room.v, room.moved, room.error)
    for i in range(states):
        room.error[i] = up(room.error[i] + _to_end(x[i]))
    return growth


@lean_kernel
def defect(x: FloatArray, slope: FloatArray, size: float, e: float, h: float) -> float:
    """Bound on |h f(X) - X'| for f = slope +- e, whose absolute coefficients sum up to `size`."""
    missing = rates = 0.0
    for k in range(len(x)):
        for s in range(x.shape[1]):
            rate = x[k + 1, s] * (k + 1) if k + 1 < len(x) else 0.0
            missing += abs(slope[k, s] * h - rate)
            rates += abs(rate)
    length = abs(h)
    lost = length * (e + 4 * UNIT * (size + e)) + 2 * UNIT * rates + UNIT * missing + TINY
    return max(up(missing + lost), LEAST)


@lean_kernel
def _to_end(x: FloatArray) -> float:
    """Write the polynomial at tau = 1 to tau^0; return its rounding."""
    rounding = 0.0
    for s in range(x.shape[1]):
        total = x[-1, s]
        for k in range(len(x) - 2, -1, -1):  # small terms first; each sum rounded once
            total += x[k, s]
            rounding += UNIT * abs(total)
        x[0, s] = total
    return up(rounding)


@kernel
def supersolution(
    tape: ReplayTape,
    time: Pair,
    p: FloatArray,
    u: FloatArray,
    length: Pair,
    values: Values,
    room: Room,
) -> float:
    """Write v, infinite where none was found; return the largest row sum of |M|."""
    d, v, m, n = room.d, room.v, room.m, len(room.d)
    w, trial, image = WIDER * d, np.empty(n), np.empty(n)
    for _ in range(TUBES):
        for i in range(n):
            a, b = room.ranges[i]
            room.tube[i] = outward(a - w[i], b + w[i])
        evaluate(tape, time, room.tube, p, u, True, values)
        jacobian(tape, values, length, m)
        trial[:] = 1.001 * d
        for _ in range(6):
            for i in range(n):
                image[i] = (m[i] * trial).sum()
            for i in range(n):
                trial[i] = 1.001 * (d[i] + max(image[i], 0.0))
        if solves(m, d, trial, w):
            v[:] = trial
            return float(np.abs(m).sum(axis=1).max())
        if not np.isfinite(trial).all():
            break
        w[:] = np.maximum(1.5 * trial, 2 * w)
    v[:] = np.inf
    return np.inf


@lean_kernel
def solves(m: FloatArray, d: FloatArray, v: FloatArray, w: FloatArray) -> bool:
    """Whether v >= d + max(0, M v), rounding included, and 0 < v <= w."""
    n = len(v)
    for i in range(n):
        image = sizes = 0.0
        for j in range(n):
            image += m[i, j] * v[j]
            sizes += abs(m[i, j] * v[j])
        above = image + 4 * (n + 1) * UNIT * sizes
        if np.isnan(above):
            return False
        if not (v[i] >= up(d[i] + max(above, 0.0)) and 0 < v[i] <= w[i] and v[i] < np.inf):
            return False
    return True


ROOM, LEAST_STEP = 1e-9, 1e-100  # relative to the size of a state; of one that is 0
GROWN, BOXES = 6, 10  # boxes around the states whose strips, and which themselves, become larger
BEYOND = 1.5  # times what leaves the last strip: the next one
MISSED, LITTLE = 0.1, 1e-2  # share of its way by which a face may miss its end, and of others
SWEEPS = 2  # over all faces, each with what the last one said of the others
ENDS, NEARLY_THERE = 6, 1e-3  # trial ends of a face, and how exact the last one has to be


class Slopes(NamedTuple):
    """Slopes as intervals: of a tape what is needed over and over, and its values v (n, 2).

    leaf  (n_states,) where each state stands
    """

    code: IntArray
    number: FloatArray
    every: IntArray
    own: IntArray
    own_first: IntArray
    results: IntArray
    leaf: IntArray
    v: FloatArray


@kernel
def slopes_of(tape: ReplayTape) -> Slopes:
    """Those of a tape, whose leaves are still to be written."""
    leaf = np.full(len(tape.results), -1, np.intp)
    for i in range(len(tape.code)):
        if tape.code[i, 0] == STATE:
            leaf[tape.code[i, 1]] = i
    v = np.zeros((len(tape.code), 2))
    return Slopes(
        tape.code, tape.number, tape.every, tape.own, tape.own_first, tape.results, leaf, v
    )


@lean_kernel
def _everywhere(f: Slopes, x: FloatArray) -> None:
    """Evaluate all for states in x (n, 2)."""
    for i in range(len(x)):
        if f.leaf[i] >= 0:
            f.v[f.leaf[i]] = x[i, 0], x[i, 1]
    operate(f.code, f.number, f.every, 0, len(f.every), f.v)


@lean_kernel
def _change(f: Slopes, i: int, low: float, high: float, length: Pair) -> Pair:
    """Slope of state i, itself in [low, high], times the step; the others as they were last.

    State i is left there: the next one must find it where it is meant to be.
    """
    v, at = f.v, f.results[i]
    if f.leaf[i] >= 0:
        v[f.leaf[i], 0], v[f.leaf[i], 1] = low, high
    operate(f.code, f.number, f.own, f.own_first[i], f.own_first[i + 1], v)
    low, high = multiply(v[at, 0], v[at, 1], length[0], length[1])
    return (max(low, 0.0) if v[at, 0] >= 0 and length[0] >= 0 else low), high


@kernel
def _stays(
    f: Slopes, x: FloatArray, length: Pair, is_smooth: bool, first: FloatArray, wide: FloatArray
) -> bool:
    """Write a box `wide` that no state leaves, moved as `first` at the start; whether found."""
    n = len(x)
    box, room, positive = x.copy(), np.empty((n, 2)), np.zeros(n, np.bool_)
    for tries in range(GROWN + BOXES):
        if tries in (0, GROWN):
            for i in range(n):
                box[i] = x[i, 0], x[i, 1]
                room[i] = ROOM * size(x[i, 0], x[i, 1]) + LEAST_STEP
                positive[i] = is_smooth and x[i, 0] >= 0
                if tries == 0:
                    room[i, 0] = max(room[i, 0], -BEYOND * first[i, 0])
                    room[i, 1] = max(room[i, 1], BEYOND * first[i, 1])
        for i in range(n):
            wide[i] = outward(box[i, 0] - room[i, 0], box[i, 1] + room[i, 1])
            if positive[i]:
                wide[i, 0] = max(wide[i, 0], 0.0)
        if not np.isfinite(wide).all():
            continue
        _everywhere(f, wide)
        held = True
        for i in range(n):
            a, b, c, d = wide[i, 0], box[i, 0], box[i, 1], wide[i, 1]
            most = _change(f, i, c, d, length)[1]
            least = _change(f, i, a, max(a, b), length)[0]
            if not most < 0.9 * (d - c):
                held = False
                if tries < GROWN:
                    room[i, 1] = max(BEYOND * most, room[i, 1])
                else:
                    box[i, 1] = 0.0 if d < 0 else d + 2 * most
            if not least > -0.9 * (b - a):
                if positive[i] and a == 0:  # else a strip is needed there
                    positive[i] = _change(f, i, 0.0, 0.0, length)[0] >= 0
                    held = held and positive[i]
                elif tries < GROWN:
                    held, room[i, 0] = False, max(-BEYOND * least, room[i, 0])
                else:
                    held, box[i, 0] = False, (0.0 if a > 0 else a + 2 * least)
            _change(f, i, a, d, length)
        if held:
            return True
    return False


@lean_kernel
def _end(f: Slopes, wide: FloatArray, i: int, side: int, near: float, length: Pair) -> float:
    """What state i, not beyond `near` before a step, is not beyond after it, and nor on the way."""
    sign, best, inner = (1.0 if side == 1 else -1.0), float(wide[i, side]), wide[i, 1 - side]
    begin = change = _change(f, i, near, near, length)[side]
    way, before, by = near + change, near, change
    missed, share = inner, 2.0**-11
    for _ in range(ENDS):
        way += sign * 1e-6 * abs(way - near)
        way = min(max(way, min(best, inner)), max(best, inner))
        change = _change(f, i, min(near, way), max(near, way), length)[side]
        image = add(near, near, change, change)[side]
        rises = sign * (near - image) < 0
        if sign * (way - image) >= 0:
            best = way
        elif not rises:
            best = image if sign * (best - image) > 0 else best
        else:
            missed, share = way, 8 * share
        is_there = abs(image - way) <= NEARLY_THERE * abs(way - near)
        if is_there and (not rises or sign * (way - image) >= 0):
            break
        steep = (change - by) / (way - before)
        before, by = way, change
        if -np.inf < steep < 1:
            to_go = (image - way) / (1 - steep)
            way = way + to_go + sign * 0.05 * abs(to_go)
        else:
            way = missed + share * (best - missed)
    if not (sign * (best - near) > 0 and sign * begin > 0):
        return best
    far = _change(f, i, best, best, length)[side]
    if sign * far < 0:  # there is a level on the way at which the state turns round
        level = near + 1.05 * (best - near) * (begin / (begin - far))
        room = ROOM * abs(level) + LEAST_STEP
        beyond = outward(level - room, level + room)[side]
        change = _change(f, i, min(level, beyond), max(level, beyond), length)[side]
        if sign * change < 0.9 * sign * (beyond - level) and sign * (best - beyond) > 0:
            best = beyond
    return best


@kernel
def _leads(
    f: Slopes,
    x: FloatArray,
    length: Pair,
    is_smooth: bool,
    first: FloatArray,
    wide: FloatArray,
    after: FloatArray,
) -> bool:
    """Write ends of all faces, proved together, near where movements `first` lead; whether found.

    wide  becomes the box of their ways, and some room, that proves them
    """
    n, found = len(x), True
    ways = np.empty((n, 2, 2))
    for i in range(n):
        if is_smooth and x[i, 0] >= 0 and x[i, 1] + first[i, 1] < 0:
            return False  # it turns round before 0: its upper face leads nowhere near
        for side in range(2):
            near, end = x[i, side], x[i, side] + first[i, side]
            room = MISSED * (abs(first[i, side]) + LITTLE * (abs(near) + np.abs(first[i]).max()))
            ways[i, side] = outward(min(near, end) - room, max(near, end) + room)
            if is_smooth and x[i, 0] >= 0:
                ways[i, side] = max(ways[i, side, 0], 0.0), max(ways[i, side, 1], 0.0)
        wide[i] = ways[i, 0, 0], ways[i, 1, 1]
    if not np.isfinite(wide).all():
        return False
    _everywhere(f, wide)
    for i in range(n):
        for side in range(2):
            low, high = ways[i, side]
            change = _change(f, i, low, high, length)[side]
            end = add(x[i, side], x[i, side], change, change)[side]
            if side == 0 and is_smooth and x[i, 0] >= 0 and end < 0:
                end = 0.0 if _change(f, i, 0.0, 0.0, length)[0] >= 0 else end
            found = found and low <= end <= high
            after[i, side] = end
        _change(f, i, wide[i, 0], wide[i, 1], length)
    for i in range(n):
        if found:
            wide[i] = min(x[i, 0], after[i, 0]), max(x[i, 1], after[i, 1])
    return found


@kernel
def coarse_step(f: Slopes, x: FloatArray, length: Pair, is_smooth: bool, wide: FloatArray) -> float:
    """Replace ranges x (n_states, 2) by those at the end of a step; infinity if there are none.

    f     with the leaves of parameters, inputs and time as they are during the step
    wide  (n_states, 2) becomes ranges during the step
    returns  how far ends of faces are from where their first slopes lead, relative to the states
    """
    n, largest, worst = len(x), 0.0, 0.0
    after, first = np.empty((n, 2)), np.empty((n, 2))
    _everywhere(f, x)
    for i in range(n):
        first[i, 0] = _change(f, i, x[i, 0], x[i, 0], length)[0]
        first[i, 1] = _change(f, i, x[i, 1], x[i, 1], length)[1]
        _change(f, i, x[i, 0], x[i, 1], length)
    found = _leads(f, x, length, is_smooth, first, wide, after)
    if not (found or _stays(f, x, length, is_smooth, first, wide)):
        return np.inf
    for sweep in range(0 if found else SWEEPS):
        if sweep > 0:
            _everywhere(f, wide)
        for i in range(n):
            for side in range(2):
                after[i, side] = _end(f, wide, i, side, x[i, side], length)
            wide[i, 0] = max(wide[i, 0], min(x[i, 0], after[i, 0]))
            wide[i, 1] = min(wide[i, 1], max(x[i, 1], after[i, 1]))
            _change(f, i, wide[i, 0], wide[i, 1], length)
    for i in range(n):
        largest = max(largest, size(wide[i, 0], wide[i, 1]))
    for i in range(n):
        scale = max(size(wide[i, 0], wide[i, 1]), 0.01 * largest)
        for side in range(2):
            straight = min(max(x[i, side] + first[i, side], wide[i, 0]), wide[i, 1])
            worst = max(worst, abs(after[i, side] - straight) / (scale + LEAST_STEP))
        x[i] = after[i, 0], after[i, 1]
    return worst
