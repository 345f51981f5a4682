"""Which equation contains which unknown, and what that alone says (Dulmage and Mendelsohn).

The work is done by CasADi's `Sparsity.btf`, which is CSparse's `cs_dmperm` (Davis 2006): ten to a
hundred times as fast as graphs of Python objects (`benchmarks/structure.py`). SciPy's
`maximum_bipartite_matching` may take exponential time (SciPy issue 26147).
"""

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.sparse import coo_matrix, csc_array

from igpe.core.arrays import IntArray


class DulmageMendelsohn(NamedTuple):
    """Dulmage-Mendelsohn parts of a system, as indices of its equations (rows) and unknowns.

    under_rows, under_columns   more unknowns than equations: not computable
    well_rows, well_columns     square: may stand alone; matched in this order
    over_rows, over_columns     more equations than unknowns: redundant, or contradictory
    spare_rows                  among over_rows: equations left without an unknown
    spare_columns               among under_columns: unknowns left without an equation
    """

    under_rows: list[int]
    under_columns: list[int]
    well_rows: list[int]
    well_columns: list[int]
    over_rows: list[int]
    over_columns: list[int]
    spare_rows: list[int]
    spare_columns: list[int]


class Block(NamedTuple):
    """Equations and as many unknowns that must be solved together."""

    rows: list[int]
    columns: list[int]


def incidence(residual: Any, unknowns: Any) -> coo_matrix:
    """Pattern of the derivative of `residual` with respect to `unknowns` (CasADi SX vectors)."""
    pattern = ca.jacobian_sparsity(residual, unknowns)
    rows, columns = (np.array(index, dtype=int) for index in pattern.get_triplet())
    return coo_matrix((np.ones(len(rows)), (rows, columns)), shape=pattern.shape)


def parts(pattern: coo_matrix) -> DulmageMendelsohn:
    """The under-, well- and over-constrained parts of a pattern."""
    rows, columns, coarse_rows, coarse_columns, _ = _decomposed(pattern)
    # CasADi's order: unmatched rows, over with its columns, well, under, unmatched columns.
    spare_rows, over, well, under = (rows[a:b] for a, b in pairwise(coarse_rows))
    over_columns, well_columns, under_columns, spare_columns = (
        columns[a:b] for a, b in pairwise(coarse_columns)
    )
    order = np.argsort(well)
    return DulmageMendelsohn(
        under_rows=sorted(under.tolist()),
        under_columns=sorted([*spare_columns.tolist(), *under_columns.tolist()]),
        well_rows=well[order].tolist(),
        well_columns=well_columns[order].tolist(),
        over_rows=sorted([*spare_rows.tolist(), *over.tolist()]),
        over_columns=sorted(over_columns.tolist()),
        spare_rows=sorted(spare_rows.tolist()),
        spare_columns=sorted(spare_columns.tolist()),
    )


def blocks(pattern: coo_matrix, rows: Sequence[int], columns: Sequence[int]) -> list[Block]:
    """Block triangular form of a square part with a perfect matching: solvable one by one.

    Of blocks that could come next, the one with the first row does.
    """
    if not rows:
        return []
    own, theirs = np.array(rows), np.array(columns)
    square = csc_array(pattern)[:, theirs].tocsr()[own].tocsc()
    in_rows, in_columns, _, _, edges = _decomposed(square)
    n = len(edges) - 1
    block = np.repeat(np.arange(n), np.diff(edges))  # of each place in the order
    of_row, of_column = np.empty_like(block), np.empty_like(block)
    of_row[in_rows], of_column[in_columns] = block, block
    entries = square.tocoo()
    needs = np.divmod(np.unique(n * of_column[entries.col] + of_row[entries.row]), n)
    i, j = own[in_rows], theirs[in_columns]
    order = np.lexsort((i, block))
    i, j = i[order].tolist(), j[order].tolist()
    gathered = [Block(i[a:b], j[a:b]) for a, b in pairwise(edges)]
    return [gathered[k] for k in _in_turn(needs, [b.rows[0] for b in gathered])]


def matching(pattern: coo_matrix) -> dict[int, int]:
    """A largest matching, row -> column."""
    rows, columns, coarse_rows, _, _ = _decomposed(pattern)
    return dict(sorted(zip(rows[coarse_rows[1] :].tolist(), columns.tolist(), strict=False)))


def _decomposed(pattern: Any) -> tuple[IntArray, IntArray, list[int], list[int], list[int]]:
    """Rows and columns in the order of the decomposition; where its parts begin and end.

    The parts are four of rows, four of columns, and the blocks of the block triangular form.
    """
    by_column = csc_array(pattern)
    by_column.sum_duplicates()  # and sorted, as CasADi needs it
    sparsity = ca.Sparsity(*by_column.shape, by_column.indptr.tolist(), by_column.indices.tolist())
    _, rows, columns, fine, _, coarse_rows, coarse_columns = sparsity.btf()
    return np.array(rows, int), np.array(columns, int), coarse_rows, coarse_columns, fine


def _in_turn(needs: tuple[IntArray, IntArray], first: Sequence[int]) -> list[int]:
    """Topological order of blocks; where there is a choice, that of the least `first`.

    needs  ascending pairs: a block, and one that contains its unknowns, also itself
    """
    n = len(first)
    others = needs[0] != needs[1]
    solved, containing = needs[0][others], needs[1][others]
    left = np.bincount(containing, minlength=n).tolist()
    begins = np.searchsorted(solved, np.arange(n + 1)).tolist()
    later = containing.tolist()
    ready = sorted((first[k], k) for k in range(n) if not left[k])
    order = []
    while ready:
        _, k = heapq.heappop(ready)
        order.append(k)
        for other in later[begins[k] : begins[k + 1]]:
            left[other] -= 1
            if not left[other]:
                heapq.heappush(ready, (first[other], other))
    return order
