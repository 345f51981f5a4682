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

States before a step are P(delta) + A z with |z| <= 1, for as many directions as A has columns.
Polynomials have one coordinate for each state, (A z)_s / r_s with r_s >= sum_k |A_sk|. Where it has
coefficients B after the step, the error is B diag(1/r) A z + S diag(w) z' + eps, |eps| <= e. The
longest columns are kept. The sum of the others and eps is enclosed in C z'', whose columns are
nearly orthogonal, the longest other column leading (Lohner's QR method). Q is any matrix nearly
orthogonal: with eta >= ||I - Q'Q||,

    |Q^-1 w|_i <= |Q'w|_i + eta / (1 - eta) max_j |Q'w|_j,

so Q diag(y) contains what it should where y bounds that; what rounding of C = Q diag(y) moves is
added to y as well (by Brouwer's theorem twice its first effect is enough).

**Coarse bounds** serve where rates are too fast, or too unknown, for polynomials. Let B be a box of
states around those at t, and W a box around B. If, between a face of B and that of W, a state moves
outward by less than their distance during a step, whatever the others in W are, no solution leaves
W from t to t + h: what left it would have come from that face of B. No Lipschitz constant is
needed. B is a little larger than the bounds; where a state leaves, its face is moved to 0, at which
rates of x' = -r x push back however large r is, and then by twice as much as leaves: rates that
rise to an equilibrium push back there.

Let then L be a level in W below the upper end of a state. If its slope on [L, end] is at most
-(end - L) / h, the state is at most L at t + h: it falls as long as it is above L, fast enough, and
cannot rise again. Levels above the lower end likewise.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.kernels.intervals import (
    TINY,
    UNIT,
    Pair,
    ReplayTape,
    Values,
    add,
    evaluate,
    jacobian,
    multiply,
    outward,
    size,
    subtract,
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
from igpe.proofs.compiled import kernel

NEARLY = 1e-3  # a matrix further from orthogonal is not used
EACH, MOST = 8, 1500  # directions for each state, and for all


@kernel
def count_of(states: int) -> int:
    """How many directions errors have."""
    return int(max(2 * states, min(EACH * states, MOST)))


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


@kernel
def carry(
    b: FloatArray, r: FloatArray, a: FloatArray, moved: FloatArray, e: FloatArray, out: FloatArray
) -> bool:
    """Write the directions after a step into out, of the shape of A; whether there are any.

    b  (n, n) coefficients of the coordinates;  r (n,) and a (n, any) as above;  e (n,) the rest
    """
    n, many = len(e), a.shape[1]
    every, rest = np.zeros((n, many + moved.shape[1])), e.copy()
    for i in range(n):
        for s in range(n):
            if b[i, s] != 0:
                factor = b[i, s] / r[s]
                for k in range(many):
                    every[i, k] += factor * a[s, k]
                rest[i] += (n + 6) * UNIT * abs(b[i, s])
        rest[i] = up(rest[i])
    every[:, many:] = moved
    if not (np.isfinite(every).all() and np.isfinite(rest).all()):
        return False
    extent = np.zeros(every.shape[1])
    for i in range(n):
        widest = np.abs(every[i]).max()
        if widest > 0:
            extent += np.abs(every[i]) / widest
    order = np.argsort(-extent)
    kept = many - n
    for k in range(kept):
        out[:, k] = every[:, order[k]]
    return reset(every[:, order[kept:]].copy(), rest, out[:, kept:])


@kernel
def ranges_of(a: FloatArray, r: FloatArray) -> None:
    """Write r_s >= sum_k |A_sk|."""
    for s in range(len(r)):
        r[s] = up(np.abs(a[s]).sum())


@kernel
def reset(a: FloatArray, e: FloatArray, c: FloatArray) -> bool:
    """Write C for A (n, many) and e (n,); return False, and nan, where none was found."""
    n, many = len(e), a.shape[1]
    c[:] = np.nan
    if not (np.isfinite(a).all() and np.isfinite(e).all()):
        return False
    q = axes(a, e)
    y, eta = np.empty(n), 0.0
    for i in range(n):
        turned = slack = 0.0
        for j in range(many):
            one = sizes = 0.0
            for k in range(n):
                one += q[k, i] * a[k, j]
                sizes += abs(q[k, i]) * abs(a[k, j])
            turned += abs(one)
            slack += sizes
        own = 0.0
        for k in range(n):
            own += abs(q[k, i]) * e[k]
        y[i] = up(turned + 2 * n * UNIT * slack + own)
        row = 0.0
        for j in range(n):
            one = 1.0 if i == j else 0.0
            for k in range(n):
                one -= q[k, i] * q[k, j]
            row += abs(one)
        eta = max(eta, row)
    eta = up(eta + 4 * n * n * UNIT)
    if not eta < NEARLY:
        return False
    beyond = up(eta / (1 - eta))
    y += beyond * y.max()
    for i in range(n):
        y[i] = up(y[i])
    moved, back = np.zeros(n), np.zeros(n)
    for i in range(n):
        for j in range(n):
            moved[i] += abs(q[i, j]) * y[j] * 4 * UNIT
    for i in range(n):
        for j in range(n):
            back[j] += abs(q[i, j]) * moved[i]
    most = back.max()
    for j in range(n):
        last = up(y[j] + back[j] + 2 * beyond * most)
        c[:, j] = q[:, j] * last
    return bool(np.isfinite(c).all())


@kernel
def axes(a: FloatArray, e: FloatArray) -> FloatArray:
    """A matrix nearly orthogonal, the longest column of A first; the identity if A hardly matters.

    Gram and Schmidt, twice each; where a column brings no new direction, an axis that does.
    """
    n = len(e)
    q, sizes = np.eye(n), (a**2).sum(axis=0)
    if not sizes.max() > (e**2).max():
        return q
    column = np.empty(n)
    for k in range(n):
        longest = 0
        for j in range(len(sizes)):
            longest = j if sizes[j] > sizes[longest] else longest
        sizes[longest] = -1.0
        column[:] = a[:, longest]
        before = np.sqrt((column**2).sum())
        left = _without(q, k, column)
        axis = 0
        while not left > 1e-8 * before and axis < n:
            column[:] = 0.0
            column[axis] = before = 1.0
            left = _without(q, k, column)
            left = left if left > 0.5 / np.sqrt(n) else 0.0
            axis += 1
        q[:, k] = column / left
    return q


@kernel
def _without(q: FloatArray, k: int, column: FloatArray) -> float:
    """Take the first k columns of Q out of a column, twice; return what length is left."""
    for _ in range(2):
        for j in range(k):
            share = 0.0
            for i in range(len(column)):
                share += q[i, j] * column[i]
            for i in range(len(column)):
                column[i] -= share * q[i, j]
    return float(np.sqrt((column**2).sum()))


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


@kernel
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


@kernel
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


@kernel
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


@kernel
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


SHARES = (
    2.0**-30,
    2.0**-16,
    2.0**-8,
    2.0**-4,
    0.25,
    0.5,
    0.75,
    1 - 2.0**-3,
    1 - 2.0**-5,
    1 - 2.0**-8,
)
"""Of a range, from its far end: levels to be tried before `HALVINGS` between two of them."""
HALVINGS = 4
ROOM, LEAST_STEP = 1e-9, 1e-100  # relative to the size of a state; of one that is 0
BOXES = 10  # boxes around the states, each larger


@kernel
def _change(
    tape: ReplayTape,
    time: Pair,
    wide: FloatArray,
    p: FloatArray,
    u: FloatArray,
    values: Values,
    i: int,
    low: float,
    high: float,
    length: Pair,
) -> Pair:
    """Slope of state i in [low, high], the others anywhere in `wide`, times the step."""
    kept = wide[i, 0], wide[i, 1]
    wide[i] = low, high
    evaluate(tape, time, wide, p, u, False, values)
    wide[i] = kept
    at = tape.results[i]
    return multiply(values.value[at, 0], values.value[at, 1], length[0], length[1])


@kernel
def _wider(low: float, high: float, share: float) -> Pair:
    room = share * (ROOM * size(low, high) + LEAST_STEP)
    return outward(low - room, high + room)


@kernel
def _stays(
    tape: ReplayTape,
    time: Pair,
    box: FloatArray,
    wide: FloatArray,
    p: FloatArray,
    u: FloatArray,
    values: Values,
    length: Pair,
) -> bool:
    """Whether no state leaves `wide`, which is written around B; if not, `box` is made larger."""
    held, n = True, len(box)
    inner = np.empty((n, 2))
    for i in range(n):
        inner[i] = _wider(box[i, 0], box[i, 1], 0.5)
        wide[i] = _wider(box[i, 0], box[i, 1], 1.0)
    for i in range(n):
        a, b, c, d = wide[i, 0], inner[i, 0], inner[i, 1], wide[i, 1]
        most = _change(tape, time, wide, p, u, values, i, c, d, length)[1]
        least = _change(tape, time, wide, p, u, values, i, a, b, length)[0]
        if not most < 0.9 * (d - c):
            box[i, 1], held = (0.0 if d < 0 else d + 2 * most), False
        if not least > -0.9 * (b - a):
            box[i, 0], held = (0.0 if a > 0 else a + 2 * least), False
    return held


@kernel
def _level(
    tape: ReplayTape,
    time: Pair,
    wide: FloatArray,
    p: FloatArray,
    u: FloatArray,
    values: Values,
    i: int,
    near: float,
    far: float,
    length: Pair,
) -> float:
    """Level towards `far` that state i, from `near` or beyond, has passed after a step.

    Where none is known it is infinite, which bounds nothing: the state may move the other way.
    A level nearer to `near` is passed if one further away is, so the search is by bisection.
    """
    passed = -np.inf if near < far else np.inf
    missed, start = far, near  # the halvings are between these, and a level that is passed
    first, last, left = 0, len(SHARES), HALVINGS
    while first < last or left > 0:
        k = (first + last) // 2
        if first < last:
            level = far + SHARES[k] * (near - far)
        else:
            level, left = missed / 2 + start / 2, left - 1
        low, high = min(near, level), max(near, level)
        slope = _change(tape, time, wide, p, u, values, i, low, high, length)
        way = subtract(level, level, near, near)
        is_inside = min(near, far) <= level <= max(near, far)
        is_passed = slope[0] >= way[1] if near < far else slope[1] <= way[0]
        if is_inside and is_passed:
            passed, start, last = level, level, k
        else:
            missed, first = level, k + 1
    return passed


@kernel
def coarse_step(
    tape: ReplayTape, time: Pair, x: FloatArray, p: FloatArray, u: FloatArray, values: Values
) -> bool:
    """Replace ranges x (n_states, 2) by those at the end of a step; whether they hold."""
    n, length = len(x), subtract(time[1], time[1], time[0], time[0])
    box, wide, after = np.empty((n, 2)), np.empty((n, 2)), np.empty((n, 2))
    for i in range(n):
        box[i] = x[i, 0], x[i, 1]
    tries = 0
    while not _stays(tape, time, box, wide, p, u, values, length):
        tries += 1
        if tries == BOXES or not np.isfinite(box).all():
            return False
    for i in range(n):
        a, d = wide[i, 0], wide[i, 1]
        change = _change(tape, time, wide, p, u, values, i, a, d, length)
        moved = add(x[i, 0], x[i, 1], change[0], change[1])
        falls = _level(tape, time, wide, p, u, values, i, x[i, 1], a, length)
        rises = _level(tape, time, wide, p, u, values, i, x[i, 0], d, length)
        after[i] = max(a, moved[0], rises), min(d, moved[1], falls)
    x[:] = after
    return True
