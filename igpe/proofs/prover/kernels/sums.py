"""Sums of states z = A x, bounded beside the states: what each says of the other.

The right-hand side of a sum is simpler than those of its terms where what one state loses another
one gains ("manufactured invariants": Scott & Barton, Automatica 49 (2013) 93; Shen & Scott, Comput.
Chem. Eng. 107 (2017) 12). Coefficients are whole numbers, so that A x is exact but for rounding.
"""

import math

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.kernels.compiled import kernel
from igpe.proofs.prover.kernels.intervals import TINY, UNIT, outward


@kernel
def narrow_states(sums: FloatArray, x: FloatArray) -> bool:
    """Cut off what states cannot be, given their sums, x (n_x + n_sums, 2); whether that is any.

    A range that would be left empty, or is no number, is left as it is.
    """
    count, n = sums.shape
    changed = False
    for k in range(count):
        low, high = x[n + k, 0], x[n + k, 1]
        least = most = 0.0
        size = abs(low) + abs(high)
        for j in range(n):
            a, b = sums[k, j] * x[j, 0], sums[k, j] * x[j, 1]
            if sums[k, j] != 0.0:
                least, most = least + min(a, b), most + max(a, b)
                size += abs(a) + abs(b)  # infinite, or no number, if an end is
        room = 4.0 * (n + 4.0) * UNIT * size + TINY
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
            if one <= two and (one > x[j, 0] or two < x[j, 1]):
                x[j, 0], x[j, 1] = one, two
                changed = True
    return changed


@kernel
def narrow_sums(sums: FloatArray, x: FloatArray) -> None:
    """Cut off what sums cannot be, given their states, x (n_x + n_sums, 2)."""
    count, n = sums.shape
    for k in range(count):
        least = most = size = 0.0
        for j in range(n):
            if sums[k, j] != 0.0:
                a, b = sums[k, j] * x[j, 0], sums[k, j] * x[j, 1]
                least, most = least + min(a, b), most + max(a, b)
                size += abs(a) + abs(b)  # infinite, or no number, if an end is
        room = 4.0 * (n + 4.0) * UNIT * size + TINY
        if not math.isfinite(room):
            continue
        low, high = max(least - room, x[n + k, 0]), min(most + room, x[n + k, 1])
        if low <= high:
            x[n + k, 0], x[n + k, 1] = low, high
