"""One step of the enclosure, and the error's coordinates carried to the next.

Before a step the states are x = P(delta, z) with delta, z in [-1, 1]: z carries the old error in
the coordinates Q diag(zeta). Over the step x = X(tau, delta, z) + eps, and

    |eps|' <= d + M |eps|,  |eps(0)| = 0   =>   |eps(tau)| <= h phi_1(h M) d

as long as |eps| stays in the trial tube in which d and M hold; if the right-hand side is inside,
the tube is never left. This proves existence, and bounds the error of the discretisation, at once.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.compiled import kernel
from igpe.proofs.prover.enclosures.monomials import TINY, UNIT, UP, Algebra
from igpe.proofs.prover.enclosures.recursion import Space, coefficient
from igpe.proofs.prover.enclosures.remainder import errors, losses
from igpe.proofs.prover.writer import Tape

SERIES = 8  # terms of phi_1; what is left of it is M^8 times the tube
TRIES = 6  # trial tubes


@kernel
def expand(
    tape: Tape,
    algebra: Algebra,
    space: Space,
    order: int,
    x: FloatArray,
    p: FloatArray,
    u: FloatArray,
) -> None:
    """Fill x[1:] (order + 1, n_x, size), the Taylor polynomial that begins with x[0]."""
    for k in range(order + 1):
        coefficient(tape, algebra, space, x, p, u, k)
        if k < order:
            for i in range(algebra.states):
                for m in range(algebra.size):
                    x[k + 1, i, m] = space.c[tape.results[i], k, m] / (k + 1)


@kernel
def _growth(
    tape: Tape, space: Space, order: int, h: float, tube: FloatArray, y: FloatArray
) -> None:
    """y = h phi_1(h M) d, the last term of the series by the tube."""
    n = len(tube)
    d, power, following = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        f = tape.results[i]
        d[i] = space.error[f, 0] + 2.0 * UNIT * space.total[f] + TINY
        for g in range(space.norm.shape[2]):
            d[i] += space.norm[f, order, g]
        power[i] = d[i] * h * UP
        y[i] = power[i]
    for k in range(1, SERIES):
        _times(tape, space, power, h / (k + 1), following)
        y += following
        power[:] = following
    power[:] = tube
    for k in range(SERIES):
        _times(tape, space, power, h / (k + 1), following)
        power[:] = following
    for i in range(n):
        y[i] = (y[i] + power[i]) * UP


@kernel
def _times(tape: Tape, space: Space, v: FloatArray, factor: float, out: FloatArray) -> None:
    """out = factor M v."""
    for i in range(len(v)):
        total = 0.0
        for j in range(len(v)):
            total += space.error[tape.results[i], 1 + j] * v[j]
        out[i] = total * factor * UP


@kernel
def enclose_error(
    tape: Tape,
    algebra: Algebra,
    space: Space,
    order: int,
    h: float,
    p: FloatArray,
    sizes: FloatArray,
    y: FloatArray,
) -> bool:
    """Whether a tube was found for a step h; y (n_x,) is then a bound on |eps| over it.

    needs `norms` for this h, and `range` of the operations over the step
    """
    losses(tape, algebra, space, order, p, sizes)
    tube = np.zeros(algebra.states)
    errors(tape, algebra, space, tube)
    _growth(tape, space, order, h, tube, y)
    for _ in range(TRIES):
        for i in range(algebra.states):
            tube[i] = 1.5 * y[i] + TINY
        errors(tape, algebra, space, tube)
        _growth(tape, space, order, h, tube, y)
        inside = True
        for i in range(algebra.states):
            if not (y[i] <= tube[i]):  # also where it is no number
                inside = False
        if inside:
            return True
        if not np.isfinite(y).all():
            return False
    return False


@kernel
def late(tape: Tape, space: Space, order: int, h: float, scale: FloatArray) -> float:
    """How much the coefficient of highest order adds over the step, relative to scale."""
    worst = 0.0
    for i in range(len(scale)):
        total = 0.0
        for g in range(space.norm.shape[2]):
            total += space.norm[tape.results[i], order, g]
        worst = max(worst, total * h / (order + 1) / scale[i])
    return worst


@kernel
def arrive(
    algebra: Algebra, order: int, h: float, x: FloatArray, y: FloatArray, out: FloatArray
) -> None:
    """out (n_x, size) = X(h); y grows by the rounding of the sums and of h."""
    for i in range(algebra.states):
        size = 0.0
        for m in range(algebra.size):
            total = x[order, i, m]
            bound = abs(total) * (order + 1)
            for k in range(order - 1, -1, -1):
                total = total * h + x[k, i, m]
                bound = bound * h + abs(x[k, i, m]) * (k + 1)
            out[i, m] = total
            size += bound
        y[i] = (y[i] + 4.0 * UNIT * (order + 2) * size) * UP + TINY


@kernel
def _orthogonal(z: FloatArray, q: FloatArray) -> None:
    """q (n, n) orthonormal: the columns of z, longest first, and what they lack (Gram-Schmidt)."""
    n = len(z)
    length = np.empty(n)
    for j in range(n):
        length[j] = -np.sqrt((z[:, j] * z[:, j]).sum())
    order = np.argsort(length)
    count = 0
    for candidate in range(2 * n):
        if count == n:
            break
        v = np.zeros(n)
        if candidate < n:
            if not (length[order[candidate]] < 0.0):
                continue
            v[:] = z[:, order[candidate]]
        else:
            v[candidate - n] = 1.0
        before = np.sqrt((v * v).sum())
        if before < 1e-200:
            continue
        v /= before
        for _ in range(2):
            for j in range(count):
                v -= (q[:, j] * v).sum() * q[:, j]
        after = np.sqrt((v * v).sum())
        if after > 1e-6 or (candidate >= n and after > 1e-12):
            q[:, count] = v / after
            count += 1


@kernel
def transport(algebra: Algebra, x: FloatArray, y: FloatArray) -> None:
    """Turn the error y (n_x,) of the states x (n_x, size) and their part in z into new z.

    v = Z z + w with |w| <= y is Q (Q'v) but for how far Q is from orthonormal, which is computed
    and bounded: |Q^-1 v - Q'v| <= kappa |Q'v|_1.
    """
    n = algebra.states
    first = algebra.size - n
    old = x[:, first:].copy()
    scaled = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            scaled[i, j] = old[i, j]
    q = np.zeros((n, n))
    _orthogonal(scaled, q)
    far = 0.0
    for i in range(n):
        row = 0.0
        for j in range(n):
            row += abs((q[:, i] * q[:, j]).sum() - (1.0 if i == j else 0.0))
        if not (row <= far):  # also where it is no number
            far = row
    kappa = 2.0 * (far + 16.0 * UNIT * n * n)
    zeta = np.zeros(n)
    total = 0.0
    for i in range(n):
        for j in range(n):
            along, size = 0.0, 0.0
            for k in range(n):
                along += q[k, i] * old[k, j]
                size += abs(q[k, i] * old[k, j])
            zeta[i] += abs(along) + 2.0 * (n + 2) * UNIT * size
            zeta[i] += abs(q[j, i]) * y[j]
        zeta[i] *= UP
        total += zeta[i]
    for i in range(n):
        width = (zeta[i] + kappa * total) * UP + TINY
        for j in range(n):
            x[j, first + i] = q[j, i] * width
    if not (far < 0.01):
        x[:, first:] = np.nan
