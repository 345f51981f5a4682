"""The linear problem with limits, against SciPy's solver; and what it holds."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, lsq_linear, minimize

from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.proposal import Rows, inverse


def problem(seed, n=4, m=12, limits=5):
    rng = np.random.default_rng(seed)
    at = Linearised(5 * rng.normal(size=m), rng.normal(size=(m, n)))
    matrix = np.vstack([np.eye(n), rng.normal(size=(limits, n))])
    hard = np.arange(n + limits) < n
    low = np.concatenate([np.full(n, -0.5), np.full(limits, -0.4)])
    return at, Rows(matrix, np.zeros(n + limits), low, np.full(n + limits, 0.6), hard)


@pytest.mark.parametrize("seed", range(12))
def test_the_cost_is_that_of_a_general_solver(seed):
    at, rows = problem(seed)
    found = inverse(at, np.array([1.0, 10.0, 0.1, 1.0]), rows)

    def cost(d):
        return float(np.sum((at.residual + at.jacobian @ d) ** 2))

    def slope(d):
        return 2 * at.jacobian.T @ (at.residual + at.jacobian @ d)

    limits = LinearConstraint(rows.matrix, rows.low, rows.high)
    zero = np.zeros(4)
    known = minimize(
        cost, zero, jac=slope, constraints=limits, method="SLSQP", options={"ftol": 1e-14}
    )
    assert cost(found.change) == pytest.approx(known.fun, rel=1e-6)
    value = rows.matrix @ found.change
    assert (value >= rows.low - 1e-9).all()
    assert (value <= rows.high + 1e-9).all()
    assert found.reached == pytest.approx(value[found.active])


def test_without_limits_in_the_way_it_is_least_squares():
    at, rows = problem(0)
    found = inverse(at, np.ones(4), rows._replace(low=rows.low - 99, high=rows.high + 99))
    known = np.linalg.lstsq(at.jacobian, -at.residual, rcond=None)[0]
    assert found.change == pytest.approx(known)
    assert len(found.active) == 0


def test_active_rows_go_the_rest_of_their_way_and_no_other():
    at, rows = problem(1)
    found = inverse(at, np.ones(4), rows)
    assert len(found.active) > 0
    again = found.again(7 * at.residual, 0.25 * found.reached)
    assert rows.matrix[found.active] @ again == pytest.approx(0.25 * found.reached)


def test_a_direction_that_nothing_determines_is_held():
    rng = np.random.default_rng(0)
    column = rng.normal(size=(8, 1))
    at = Linearised(rng.normal(size=8), np.hstack([column, 2 * column, rng.normal(size=(8, 1))]))
    free = Rows(np.eye(3), np.zeros(3), np.full(3, -np.inf), np.full(3, np.inf), np.ones(3, bool))
    found = inverse(at, np.ones(3), free)
    assert found.held == 1
    assert found.change @ [2.0, -1.0, 0.0] == pytest.approx(0.0, abs=1e-12)


def test_what_may_be_violated_gives_way_to_what_may_not():
    at = Linearised(np.array([-5.0]), np.eye(1))
    limits = Rows(
        matrix=np.array([[1.0], [1.0]]),
        offset=np.zeros(2),
        low=np.array([-1.0, 3.0]),
        high=np.array([1.0, 4.0]),
        hard=np.array([True, False]),
    )
    assert inverse(at, np.ones(1), limits).change == pytest.approx([1.0])


@pytest.mark.parametrize("seed", range(12))
def test_directions_that_nothing_determines_lead_round_the_limits(seed):
    rng = np.random.default_rng(seed)
    jacobian = rng.normal(size=(8, 2)) @ rng.normal(size=(2, 4))  # two of four directions count
    at = Linearised(10 * rng.normal(size=8), jacobian)
    low, high = np.full(4, -0.3), np.array([0.1, 0.5, 3.0, 3.0])
    rows = Rows(np.eye(4), np.zeros(4), low, high, np.ones(4, dtype=bool))
    found = inverse(at, np.array([1.0, 2.0, 0.5, 1.0]), rows)
    known = lsq_linear(at.jacobian, -at.residual, (low, high), tol=1e-14)
    assert found.held == 2
    assert (found.change >= low - 1e-9).all()
    assert (found.change <= high + 1e-9).all()
    cost = float(np.sum((at.residual + at.jacobian @ found.change) ** 2))
    assert cost == pytest.approx(2 * known.cost, rel=1e-6)
