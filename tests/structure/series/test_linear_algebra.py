"""Linear algebra modulo primes, and quotients from residues."""

from fractions import Fraction

import numpy as np
import pytest

from igpe.structure.series.field import (
    Singular,
    echelon,
    null_space,
    product,
    random_prime,
    reconstructed,
    residue,
    solved,
)

PRIME = 2147483629


def matrix(rows, columns, rank, seed=0):
    """A random matrix of that rank."""
    random = np.random.default_rng(seed)
    left, right = (
        random.integers(0, PRIME, shape, dtype=np.uint64)
        for shape in ((rows, rank), (rank, columns))
    )
    return product(left, right, PRIME)


@pytest.mark.parametrize(("rows", "columns", "rank"), [(5, 4, 3), (3, 6, 3), (8, 8, 0), (1, 1, 1)])
def test_rank_and_null_space(rows, columns, rank):
    a = matrix(rows, columns, rank)
    form = echelon(a, PRIME)
    basis = null_space(form, PRIME)
    assert form.rank == rank
    assert basis.shape == (columns - rank, columns)
    assert not product(a, basis.T, PRIME).any()
    assert echelon(basis, PRIME).rank == columns - rank


def test_echelon_rows_span_the_same_space():
    a = matrix(6, 5, 3)
    form = echelon(a, PRIME)
    assert echelon(np.vstack([a, form.rows]), PRIME).rank == 3
    assert (form.rows[:, list(form.pivots)] == np.eye(3)).all()


def test_solution_of_a_square_system():
    a, b = matrix(4, 4, 4), matrix(4, 2, 2, seed=1)
    assert (product(a, solved(a, b, PRIME), PRIME) == b).all()
    with pytest.raises(Singular):
        solved(matrix(4, 4, 3), b, PRIME)


@pytest.mark.parametrize("value", [Fraction(-3, 7), Fraction(0), Fraction(100), Fraction(1, 99)])
def test_small_quotients_come_back_from_their_residues(value):
    assert reconstructed(residue(value, PRIME), PRIME, 100) == value


def test_large_ones_do_not():
    values = np.random.default_rng(0).integers(1, PRIME, 500)
    assert sum(reconstructed(int(v), PRIME, 100) is not None for v in values) <= 1


def test_random_primes_are_primes():
    random = np.random.default_rng(0)
    for _ in range(5):
        p = random_prime(random)
        assert 2**30 < p < 2**31
        assert all(p % d for d in range(2, 46341))
