"""Places of the factors of a sparse matrix that is eliminated along its diagonal."""

from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import IntArray

FEW = 12  # rows up to which dense factors are as fast
SHARE = 0.3  # of all entries that sparse factors may have


class SparseFactors(NamedTuple):
    """L and U of a matrix (n, n) whose rows and columns are both taken in another order.

    order     (n,) row and column that comes k-th
    first     (n + 1,) where the entries of each row begin
    columns   places in the new order of the entries, ascending in each row
    diagonal  (n,) the entry on the diagonal of each row
    """

    order: IntArray
    first: IntArray
    columns: IntArray
    diagonal: IntArray


def sparse_factors(pattern: Any) -> SparseFactors | None:
    """The factors' places by the minimum degree; None where they are few or would be dense.

    pattern  a sparse matrix (n, n): its entries, and those of its transpose, may be other than 0.
             The diagonal is always.

    The row with the fewest entries in what is left comes next (Tinney and Walker 1967, Proceedings
    of the IEEE 55, 1801-1809, scheme 2), so that elimination adds few. Of several it is the one
    that was not touched for longest: neighbours then seldom follow each other, and a processor
    works at both ends of a band at once, where each row would else wait for the one before.
    """
    n = pattern.shape[0]
    if n <= FEW:
        return None
    both = (pattern + pattern.T).tocsc()
    ends = both.indptr
    left = [set(both.indices[ends[i] : ends[i + 1]].tolist()) - {i} for i in range(n)]
    remaining, order, room = set(range(n)), list[int](), SHARE * n * n - n
    touched = [0] * n
    while remaining:
        i = min(remaining, key=lambda k: (len(left[k]), touched[k], -k))
        remaining.remove(i)
        order.append(i)
        room -= 2 * len(left[i])
        if room < 0:
            return None
        for j in left[i]:
            left[j] |= left[i]
            left[j] -= {i, j}
            touched[j] = len(order)
    place = np.argsort(order)
    rows: list[list[int]] = [[k] for k in range(n)]
    for k, i in enumerate(order):  # what was left of row i when its turn came
        for j in place[list(left[i])].tolist():
            rows[k].append(j)
            rows[j].append(k)
    first = np.cumsum([0, *map(len, rows)])
    below = np.array([sum(j < k for j in row) for k, row in enumerate(rows)])
    columns = np.concatenate([np.sort(row) for row in rows])
    return SparseFactors(np.array(order), first, columns, first[:-1] + below)
