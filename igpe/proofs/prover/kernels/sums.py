"""Conserved sums of states z = A x: what each says of its states, and these of it.

What is conserved is bounded by its start, and cuts what states can be ("invariants": Scott &
Barton, Automatica 49 (2013) 93; Shen & Scott, Comput. Chem. Eng. 107 (2017) 12). Coefficients are
whole numbers, so that A x is exact but for rounding.
"""

import math

from igpe.core.arrays import FloatArray
from igpe.proofs.compiled import kernel
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, outward


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
