"""One validated step in time.

X(tau) is a guess of the solution from t to t + h, tau in [0, 1]: any polynomial that begins in the
right place, here its Taylor series in time. What is proved afterwards: let

    |h f(X) - X'| <= d    for all delta, z, tau,
    M >= h J_ij (i = j),  M >= h |J_ij| (i != j)    for the Jacobian J of f on the tube X +- w,
    v >= d + max(0, M v),  0 < v <= w.

Then the solution exists on the whole step and |x - X| <= tau v: the difference satisfies
D+|x_i - X_i| <= d_i + sum_j M_ij |x_j - X_j| while it is in the tube, M has off-diagonal entries
>= 0, and tau v is a supersolution of that. No step of the search for v has to be trusted.

The error of the states is carried from step to step so that it does not wrap. At the end of a step
the states are P(delta) + A z + eps, |z| <= 1, |eps| <= e. They are enclosed in P(delta) + C z',
|z'| <= 1, where the columns of C are nearly orthogonal, the longest column of A leading (Lohner's
QR method). Q is any matrix nearly orthogonal: with eta >= ||I - Q'Q||,

    |Q^-1 w|_i <= |Q'w|_i + eta / (1 - eta) max_j |Q'w|_j,

so Q diag(y) contains A z + eps where y bounds that; what rounding of C = Q diag(y) moves is added
to y as well (by Brouwer's theorem twice its first effect is enough).
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.kernels.intervals import TINY, UNIT, Pair, add, outward, up
from igpe.proofs.checker.kernels.polynomials import (
    Leaves,
    Polynomials,
    bound,
    extend,
    measure,
    span,
)
from igpe.proofs.checker.kernels.tape import ReplayTape, Values, evaluate, jacobian
from igpe.proofs.compiled import kernel

LEAST = TINY / UNIT  # replaces a defect of 0, as of a state at rest: v must exceed `up`
TRIES = 2  # tubes that are tried, each wider
WIDER = 4.0  # the first one, times what X lacks: steps are such that |M| is about 0.7 at most
NEARLY = 1e-3  # a matrix further from orthogonal is not used


class Room(NamedTuple):
    """Arrays for one box.

    x       (n_states, order + 1, size) X, and afterwards its end at tau^0
    error   (n_states,) bound on what the end lacks; infinite or nan where nothing was proved
    late    (n_states,) size of the highest power of tau in X
    d, v    (n_states,) as above;  m (n_states, n_states)
    ranges  (n_states, 2) of X;  tube (n_states, 2)
    norms   (4, order + 1) of one polynomial
    """

    x: FloatArray
    error: FloatArray
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
    x, n, t, h = room.x, len(given.p), given.time[0], given.time[1]
    states, order = len(x), x.shape[1] - 1
    for k in range(order):
        extend(tape, given, k, to)
        for i in range(states):
            slope = to.c[tape.results[i], k]
            for s in range(x.shape[2]):
                x[i, k + 1, s] = slope[s] * h / (k + 1)
    extend(tape, given, order, to)
    bound(tape, given, to)
    for i in range(states):
        measure(n, x[i], room.norms)
        room.ranges[i] = span(room.norms, x[i], 0.0)
        room.late[i] = room.norms[:, order].sum()
        at = tape.results[i]
        room.d[i] = defect(x[i], to.c[at], to.norms[at].sum(), to.e[at], h)
    length = lengths(h)
    growth = supersolution(tape, (t, add(t, t, 0.0, length[1])[1]), p, u, length, values, room)
    for i in range(states):
        room.error[i] = up(room.v[i] + _to_end(x[i]))
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
    for _ in range(TRIES):
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


@kernel
def reset(a: FloatArray, e: FloatArray, c: FloatArray) -> bool:
    """Write C for A (n, n) and e (n,); return False, and nan, where none was found."""
    n = len(e)
    c[:] = np.nan
    if not (np.isfinite(a).all() and np.isfinite(e).all()):
        return False
    q = directions(a, e)
    y, eta = np.empty(n), 0.0
    for i in range(n):
        turned = slack = 0.0
        for j in range(n):
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
def directions(a: FloatArray, e: FloatArray) -> FloatArray:
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
        for j in range(n):
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
