"""Errors of the states along directions, which are carried from step to step.

At the end of a step the states are P(delta) + Z z + N s + eps with z, s in [-1, 1]: Z is what the
step's flow made of the old directions, N holds the step's own errors, one for each operation whose
constant multiples sum up to slopes (`tape.linear_parts`), and |eps| <= y is rounding. An error e(t)
of an operation that enters the slopes with the factors N_j moves the states by N_j times its
integral: one number, whatever the states. The longest directions are kept. What is left over is
enclosed in a box along Q, with Q nearly orthonormal.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.compiled import kernel
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, UP
from igpe.proofs.prover.kernels.tape import Linear
from igpe.proofs.prover.kernels.taylor import Monomials, TaylorModel


@kernel
def directed(model: TaylorModel, linear: Linear, h: float, y: FloatArray, new: FloatArray) -> None:
    """Errors of a step h as new directions (n_x, n_atoms), and a bound y on the rest.

    needs `errors` for a tube that the solutions do not leave
    """
    tape, space = model.tape, model.space
    for i in range(len(y)):
        y[i] = 2.0 * UNIT * space.total[tape.results[i]]
        for j in range(len(linear.between)):
            y[i] += 2.0 * abs(linear.factor[i, j]) * space.lost[linear.between[j]]
        for j in range(len(linear.atoms)):
            width = abs(linear.weight[i, j]) * space.most[linear.atoms[j]] * h * UP
            new[i, j] = width if linear.weight[i, j] > 0.0 else -width
            y[i] += 8.0 * UNIT * width / h
        y[i] = y[i] * h * UP + TINY


@kernel
def transport(
    algebra: Monomials, x: FloatArray, y: FloatArray, new: FloatArray, scale: FloatArray
) -> int:
    """Turn the error of the states x (n_x, size) into directions again; return x's columns in use.

    y (n_x,) bounds what has no direction yet, new (n_x, any) has one;  scale (n_x,) of the states
    """
    n, first = algebra.states, algebra.size - algebra.errors
    every = np.concatenate((x[:, first:], new), axis=1)
    length = np.zeros(every.shape[1])
    for j in range(len(length)):
        for i in range(n):
            length[j] += (every[i, j] / scale[i]) ** 2
    order = np.argsort(-length)
    count = 0
    while count < len(order) and length[order[count]] > 0.0:
        count += 1
    kept = min(count, algebra.errors - n)
    x[:, first:] = 0.0
    for j in range(kept):
        x[:, first + j] = every[:, order[j]]
    enclose_rest(every[:, order[kept:]], y, x[:, first + kept : first + kept + n])
    return first + kept + n


@kernel
def enclose_rest(rest: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """Box of Z z + w, for Z = `rest` (n, any) and |w| <= y, as directions `out` (n, n).

    v = Z z + w is Q (Q'v) but for how far Q is from orthonormal, which is computed and bounded:
    |Q^-1 v - Q'v| <= kappa |Q'v|_1.
    """
    n = len(y)
    q = np.zeros((n, n))
    _orthogonal(rest, q)
    far = 0.0
    for i in range(n):
        row = 0.0
        for j in range(n):
            row += abs((q[:, i] * q[:, j]).sum() - (i == j))
        if not (row <= far):  # also where it is no number
            far = row
    kappa = 2.0 * (far + 16.0 * UNIT * n * n)
    zeta = np.zeros(n)
    total = 0.0
    for i in range(n):
        for j in range(rest.shape[1]):
            along, size = 0.0, 0.0
            for k in range(n):
                along += q[k, i] * rest[k, j]
                size += abs(q[k, i] * rest[k, j])
            zeta[i] += abs(along) + 2.0 * (n + 2) * UNIT * size
        for j in range(n):
            zeta[i] += abs(q[j, i]) * y[j]
        zeta[i] *= UP
        total += zeta[i]
    for i in range(n):
        width = (zeta[i] + kappa * total) * UP + TINY
        for j in range(n):
            out[j, i] = q[j, i] * width
    if not (far < 0.01):
        out[:] = np.nan


@kernel
def _orthogonal(z: FloatArray, q: FloatArray) -> None:
    """q (n, n) orthonormal: the columns of z, longest first, and what they lack (Gram-Schmidt)."""
    n, many, count = len(z), z.shape[1], 0
    order = np.argsort(-(z * z).sum(axis=0))
    for candidate in range(many + n):
        v = np.zeros(n)
        if candidate < many:
            v[:] = z[:, order[candidate]]
        else:
            v[candidate - many] = 1.0
        before = np.sqrt((v * v).sum())
        if count == n or not (before >= 1e-200):
            continue
        v /= before
        for _ in range(2):
            for j in range(count):
                v -= (q[:, j] * v).sum() * q[:, j]
        after = np.sqrt((v * v).sum())
        if after > 1e-6 or (candidate >= many and after > 1e-12):
            q[:, count] = v / after
            count += 1
