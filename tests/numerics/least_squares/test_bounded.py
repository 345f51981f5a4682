"""Bounded linear least squares against SciPy's, and where no answer is unique."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from igpe.numerics.least_squares.bounded import bounded_solution


def cost(matrix, right, x):
    return float(np.sum((matrix @ x - right) ** 2))


@pytest.mark.parametrize("seed", range(60))
def test_the_cost_is_scipys(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 9)), int(rng.integers(1, 60))
    matrix = rng.normal(size=(m, n)) * 10 ** rng.uniform(-3, 3, n)
    right = 5 * rng.normal(size=m)
    lower, upper = -(10 ** rng.uniform(-3, 1, n)), 10 ** rng.uniform(-3, 1, n)
    lower[0] *= seed % 3 > 0  # where the search begins
    x = bounded_solution(matrix, right, lower, upper)
    known = lsq_linear(matrix, right, (lower, upper), method="bvls", tol=1e-14).x
    assert (x >= lower).all()
    assert (x <= upper).all()
    assert cost(matrix, right, x) <= cost(matrix, right, known) * (1 + 1e-9) + 1e-12


def test_an_unknown_without_room_is_held():
    x = bounded_solution(np.eye(3), np.ones(3), np.array([0.2, -1, 2]), np.array([0.2, 1, 3.0]))
    np.testing.assert_allclose(x, [0.2, 1.0, 2.0])


def test_without_a_unique_answer_it_is_small():
    matrix = np.array([[1.0, 1.0]])
    x = bounded_solution(matrix, np.ones(1), np.full(2, -9.0), np.full(2, 9.0))
    np.testing.assert_allclose(x, [0.5, 0.5])
    x = bounded_solution(matrix, np.ones(1), np.full(2, -9.0), np.array([0.1, 9.0]))
    np.testing.assert_allclose(x, [0.1, 0.9])


def test_a_column_of_zeros_does_not_move():
    x = bounded_solution(np.array([[1.0, 0.0]]), np.ones(1), np.full(2, -0.5), np.full(2, 0.5))
    np.testing.assert_allclose(x, [0.5, 0.0])
