"""One validated step in time.

X(tau) is a guess of the solution from t to t + h, tau in [0, 1]: any polynomial that begins in the
right place, here its Taylor series in time. What is proved afterwards: let

    |h f(X) - X'| <= d    for all delta, z, tau,
    M >= h J_ij (i = j),  M >= h |J_ij| (i != j)    for the Jacobian J of f on the tube X +- w,
    v >= d + max(0, M v),  0 < v <= w.

Then the solution exists on the whole step and |x - X| <= tau v: the difference satisfies
D+|x_i - X_i| <= d_i + sum_j M_ij |x_j - X_j| while it is in the tube, M has off-diagonal entries
>= 0, and tau v is a supersolution of that. No step of the search for v has to be trusted.

How the error is carried from step to step so that it does not wrap: `directions`.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.kernels.directions import displaced
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
