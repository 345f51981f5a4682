"""Which equation contains which unknown, and what that alone says (Dulmage and Mendelsohn)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from pyomo.contrib.incidence_analysis.dulmage_mendelsohn import dulmage_mendelsohn
from pyomo.contrib.incidence_analysis.matching import maximum_matching
from pyomo.contrib.incidence_analysis.triangularize import block_triangularize
from scipy.sparse import coo_matrix


class Parts(NamedTuple):
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


def parts(pattern: coo_matrix) -> Parts:
    """The under-, well- and over-constrained parts of a pattern."""
    rows, columns = dulmage_mendelsohn(pattern)
    return Parts(
        under_rows=list(rows.underconstrained),
        under_columns=[*columns.unmatched, *columns.underconstrained],
        well_rows=list(rows.square),
        well_columns=list(columns.square),
        over_rows=[*rows.unmatched, *rows.overconstrained],
        over_columns=list(columns.overconstrained),
        spare_rows=list(rows.unmatched),
        spare_columns=list(columns.unmatched),
    )


def blocks(pattern: coo_matrix, rows: Sequence[int], columns: Sequence[int]) -> list[Block]:
    """Block triangular form of a square part with a perfect matching: solvable one by one."""
    if not rows:
        return []
    square = pattern.tocsr()[list(rows)][:, list(columns)].tocoo()
    row_blocks, column_blocks = block_triangularize(square)
    return [
        Block([rows[i] for i in r], [columns[j] for j in c])
        for r, c in zip(row_blocks, column_blocks, strict=True)
    ]


def matching(pattern: coo_matrix) -> dict[int, int]:
    """A largest matching, row -> column."""
    return {int(r): int(c) for r, c in maximum_matching(pattern).items()}
