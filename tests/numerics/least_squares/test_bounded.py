"""Bounded linear least squares against SciPy's, and directions that nothing determines."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from igpe.numerics.least_squares import active
from igpe.numerics.least_squares.active import bounded_solution, undetermined


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


@pytest.mark.filterwarnings("error")
def test_where_next_to_nothing_moves_much_the_step_ends_at_the_bounds():
    matrix, right = 1e-160 * np.eye(2), np.array([1e150, -1e150])
    x = bounded_solution(matrix, right, np.full(2, -2.0), np.full(2, 3.0))
    np.testing.assert_array_equal(x, [3.0, -2.0])
    free = bounded_solution(matrix, right, np.full(2, -np.inf), np.full(2, np.inf))
    assert np.isfinite(free @ free)


def test_a_product_leaves_its_ratio_open():
    x = np.array([2.0, 300.0, 1.0])
    slope = np.array([x[1], x[0], 0.0])  # of x0 x1
    jacobian = np.array([slope, 2 * slope, [0.0, 0.0, 1.0]])
    (found,) = undetermined(jacobian, x, ("a", "b", "c"))
    assert found.names == ("a", "b")
    assert found.change[0] == pytest.approx(-found.change[1])
    assert np.abs(found.change).max() == 1.0
    moved = jacobian[:, :2] @ (found.change * x[:2])
    assert moved == pytest.approx(np.zeros(3), abs=1e-9)
    assert "a and b separately" in found.sentence


def test_unknowns_without_effect_are_named_one_by_one():
    jacobian = np.zeros((5, 3))
    jacobian[:, 1] = 1.0
    found = undetermined(jacobian, np.array([1e-6, 1.0, 1e6]), ("a", "b", "c"))
    assert sorted(d.sentence for d in found) == [
        "The measurements do not determine a.",
        "The measurements do not determine c.",
    ]


def test_fewer_residuals_than_unknowns_leave_the_difference():
    jacobian = np.random.default_rng(3).normal(size=(2, 5))
    found = undetermined(jacobian, np.ones(5), "abcde")
    assert len(found) == 3
    for d in found:
        full = np.zeros(5)
        full[["abcde".index(n) for n in d.names]] = d.change
        assert jacobian @ full == pytest.approx(np.zeros(2), abs=0.3)  # small parts are left out


def test_what_is_determined_however_weakly_is_not_named():
    jacobian = np.diag([1.0, 1e-5])
    assert undetermined(jacobian, np.ones(2), ("a", "b")) == []


@pytest.mark.parametrize(("slope", "right"), [(1e160, 1e160), (1e154, 1.0), (1.0, 1e170)])
def test_steps_far_from_all_measurements_overflow_nowhere(slope, right):
    """Warnings are errors here: no product may overflow where the residuals of a start are huge."""
    matrix = slope * np.array([[1.0, 0.5, 0.1], [0.0, 1e-3, 0.2], [0.3, 0.0, 1e-6]])
    x = bounded_solution(matrix, np.array([right, -right, right]), -np.ones(3), np.ones(3))
    assert (np.abs(x) <= 1).all()
    assert x[0] == 1.0 if right > 1 else np.allclose(x, 0, atol=1e-150)


def test_undetermined_unknowns_at_bounds_are_not_released_for_ever(monkeypatch):
    """Two directions of 22 unknowns, whose columns have sizes from 1e-10 to 100."""
    count, least = 0, active._least

    def counted(*arguments):
        nonlocal count
        count += 1
        return least(*arguments)

    monkeypatch.setattr(active, "_least", counted)
    for seed in range(200):
        random = np.random.default_rng(seed)
        matrix = random.standard_normal((60, 2)) @ random.standard_normal((2, 22))
        matrix *= 10 ** random.uniform(-10, 2, 22)
        right = random.standard_normal(60)
        lower, upper = (10 ** random.uniform(-8, 8, 22) * (random.random(22) < 0.8) for _ in "lu")
        count = 0
        x = bounded_solution(matrix, right, -lower, upper)
        assert count < 60
        assert ((-lower <= x) & (x <= upper)).all()
