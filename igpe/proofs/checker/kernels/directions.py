"""Error of the states at the end of a step, carried along directions so that it does not wrap.

The slope of state i is a sum of rates, f_i = sum_j S_ij q_j (`ReplayTape.share`), with polynomials
q_j +- e_j along the guess X. Y is X with one power of tau more. At the end of the step

    x_i - Y_i = integral over tau of  h sum_j S_ij q_j(x) - Y_i',
    |q_j(x) - q_j(X)| <= sum_s |dq_j/dx_s| |x_s - X_s|,    |x_s - X_s| <= tau v_s  (`step`).

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
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.kernels.intervals import UNIT, size, up
from igpe.proofs.checker.kernels.polynomials import Polynomials
from igpe.proofs.checker.kernels.tape import ReplayTape, Values
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
