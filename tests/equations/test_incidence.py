"""Dulmage and Mendelsohn's decomposition against Pyomo's, which is made of other parts."""

import numpy as np
import pytest
from pyomo.contrib.incidence_analysis.dulmage_mendelsohn import dulmage_mendelsohn
from pyomo.contrib.incidence_analysis.matching import maximum_matching
from pyomo.contrib.incidence_analysis.triangularize import block_triangularize
from scipy.sparse import coo_matrix

from igpe.equations.incidence import blocks, matching, parts

SEEDS = range(60)


def pattern(seed):
    """Up to 12 by 12, from nearly empty to nearly full."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 13, size=2)
    return coo_matrix((rng.random(shape) < rng.uniform(0.05, 0.6)).astype(float))


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_are_those_of_pyomo(seed):
    matrix = pattern(seed)
    found = parts(matrix)
    rows, columns = dulmage_mendelsohn(matrix)
    assert found.under_rows == sorted(rows.underconstrained)
    assert found.under_columns == sorted([*columns.unmatched, *columns.underconstrained])
    assert found.well_rows == sorted(rows.square)
    assert sorted(found.well_columns) == sorted(columns.square)
    assert found.over_rows == sorted([*rows.unmatched, *rows.overconstrained])
    assert found.over_columns == sorted(columns.overconstrained)
    assert len(found.spare_rows) == len(rows.unmatched)
    assert len(found.spare_columns) == len(columns.unmatched)
    assert {*found.spare_rows} <= {*found.over_rows}
    assert {*found.spare_columns} <= {*found.under_columns}


@pytest.mark.parametrize("seed", SEEDS)
def test_matching_is_one_of_the_largest(seed):
    matrix = pattern(seed)
    found = matching(matrix)
    assert len(found) == len(maximum_matching(matrix)) == len(set(found.values()))
    assert all(matrix.toarray()[i, j] for i, j in found.items())
    well = parts(matrix)
    pairs = zip(well.well_rows, well.well_columns, strict=True)
    assert all(matrix.toarray()[i, j] for i, j in pairs)


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_are_those_of_pyomo_and_each_needs_only_those_before(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 15))
    full = (rng.random((n, n)) < rng.uniform(0.02, 0.3)) | np.eye(n, dtype=bool)
    full = np.pad(full, 1)[rng.permutation(n + 2)][:, rng.permutation(n + 2)]  # shuffled, bordered
    matrix = coo_matrix(full.astype(float))
    well = parts(matrix)
    rows, columns = well.well_rows, well.well_columns
    found = blocks(matrix, rows, columns)
    theirs, _ = block_triangularize(matrix.tocsr()[rows][:, columns].tocoo())
    assert {tuple(b.rows) for b in found} == {tuple(sorted(rows[i] for i in b)) for b in theirs}
    known = set()
    for block in found:
        assert all(full[i, j] for i, j in zip(block.rows, block.columns, strict=True))
        known |= {*block.columns}
        assert {j for i in block.rows for j in np.flatnonzero(full[i])} <= known
    assert len(known) == n


def test_blocks_that_may_come_in_any_order_keep_that_of_their_rows():
    assert [b.rows for b in blocks(coo_matrix(np.eye(4)[::-1]), [2, 0, 3, 1], [1, 3, 0, 2])] == [
        [0],
        [1],
        [2],
        [3],
    ]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 3)])
def test_nothing_in_the_equations_leaves_all_of_them_and_all_unknowns_over(shape):
    empty = coo_matrix(shape)
    found = parts(empty)
    assert found.spare_rows == found.over_rows == list(range(shape[0]))
    assert found.spare_columns == found.under_columns == list(range(shape[1]))
    assert matching(empty) == {}
    assert blocks(empty, [], []) == []


def test_an_entry_given_twice_is_one():
    twice = coo_matrix((np.ones(3), ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    assert parts(twice).well_rows == [0, 1]
