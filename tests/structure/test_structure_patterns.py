"""Partitions and linearity against enumeration, and the cost of a large model."""

from itertools import chain, combinations

import casadi as ca
import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from igpe.equations.incidence import blocks, parts
from igpe.equations.system import linear_parameters
from igpe.structure.structure import rows_of_slopes
from igpe.structure.subsystems import first_matched


def random_pattern(seed):
    rng = np.random.default_rng(seed)
    shape = rng.integers(2, 7, size=2)
    return (rng.random(shape) < rng.uniform(0.15, 0.6)).astype(float)


def subsets(n):
    return chain.from_iterable(combinations(range(n), k) for k in range(1, n + 1))


def is_suitable(matrix, rows):
    """Whether all unknowns of the rows can be matched with rows."""
    part = matrix[list(rows)]
    part = part[:, part.any(axis=0)]
    if part.shape[1] == 0:
        return True
    return bool((maximum_bipartite_matching(csr_array(part), perm_type="row") >= 0).all())


@pytest.mark.parametrize("seed", range(60))
def test_well_and_over_part_is_the_union_of_all_suitable_sets(seed):
    matrix = random_pattern(seed)
    found = parts(coo_matrix(matrix))
    union = {i for s in subsets(len(matrix)) if is_suitable(matrix, s) for i in s}
    assert {*found.well_rows, *found.over_rows} == union


@pytest.mark.parametrize("seed", range(60))
def test_counting_unknowns_is_enough_where_no_equation_is_superfluous(seed):
    matrix = random_pattern(seed)
    found = parts(coo_matrix(matrix))
    counted = (s for s in subsets(len(matrix)) if matrix[list(s)].any(axis=0).sum() <= len(s))
    if not found.over_rows:
        assert set(found.well_rows) == set(chain.from_iterable(counted))


@pytest.mark.parametrize("seed", range(60))
def test_fast_search_finds_the_closures_of_slopes(seed):
    matrix = random_pattern(seed)
    is_slope = np.arange(matrix.shape[1]) < 2
    pattern = coo_matrix(matrix)
    found = parts(pattern)
    if found.over_rows:
        return  # which of several equations is superfluous is not unique
    order = blocks(pattern, found.well_rows, found.well_columns)
    wanted, open_columns = set(), {j for j in found.well_columns if is_slope[j]}
    for block in reversed(order):  # a block needs only blocks before it
        if open_columns & set(block.columns):
            wanted |= set(block.rows)
            open_columns |= set(np.flatnonzero(matrix[block.rows].any(axis=0)).tolist())
    assert set(rows_of_slopes(csr_array(matrix), is_slope).tolist()) == wanted


@pytest.mark.parametrize("seed", range(60))
def test_of_overlapping_rows_the_first_that_can_be_matched_are_used(seed):
    matrix = random_pattern(seed)
    found = parts(coo_matrix(matrix))
    over = matrix[found.over_rows][:, found.over_columns]
    if over.size == 0:
        return
    order = np.random.default_rng(seed).permutation(len(over))
    greedy = []
    for i in order:
        if is_independent(over, [*greedy, i]):
            greedy.append(int(i))
    assert len(greedy) == over.shape[1]
    assert first_matched(csr_array(over), order) == sorted(greedy)


def is_independent(matrix, rows):
    """Whether each of the rows can be matched with a column of its own."""
    part = csr_array(matrix[rows])
    return bool((maximum_bipartite_matching(part, perm_type="column") >= 0).all())


def test_linearity_of_known_expressions():
    a, b, c, d, e, x = (ca.SX.sym(n) for n in "abcdex")
    expressions = ca.vertcat(a * x + b / (c + x), d * a * x, ca.fabs(e) + 3)
    found = linear_parameters(expressions, ca.vertcat(a, b, c, d, e))
    assert found.individually == (0, 1, 3)
    assert found.jointly == (0, 1)


def test_linearity_of_nothing_and_of_constants():
    p = ca.SX.sym("p", 2)
    assert linear_parameters(ca.SX(0, 1), p).jointly == (0, 1)
    assert linear_parameters(ca.SX(3.0), p).individually == (0, 1)
    assert linear_parameters(ca.SX.sym("x"), ca.SX(0, 1)).jointly == ()


def test_the_jointly_linear_set_is_large():
    p = ca.SX.sym("p", 4)
    star = p[0] * (p[1] + p[2] + p[3])
    assert linear_parameters(star, p).jointly == (1, 2, 3)


def test_a_thousand_equations():
    n = 1000
    square = np.eye(n) + np.eye(n, k=-1)
    assert len(rows_of_slopes(csr_array(square), np.arange(n) >= n - 1)) == n
