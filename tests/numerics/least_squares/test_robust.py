"""Robust losses: what they count, and their minima on chains against SciPy's."""

import numpy as np
import pytest
from chain_zoo import Ricker
from scipy.optimize import approx_fprime, least_squares, linprog

from igpe.core.status import Status
from igpe.numerics.least_squares.base import PLAIN, Linearised, Robust
from igpe.numerics.least_squares.chains import Chain, Chained, Point
from igpe.numerics.least_squares.generalised import GeneralisedGaussNewton
from igpe.numerics.least_squares.proposal import proposal
from igpe.numerics.least_squares.soft_links import SoftLinks

TRUTH = (3.0, 1.5, 0.2)


def test_worth_is_a_square_inside_and_linear_outside_without_a_jump():
    loss = Robust(2.0)
    assert loss.worth(np.array([1.5])) == pytest.approx(1.5**2)
    assert loss.worth(np.array([-7.0])) == pytest.approx(2 * 2 * 7 - 4)
    assert loss.worth(np.array([2.0 + 1e-9])) == pytest.approx(4.0)
    assert PLAIN.worth(np.array([3.0, 4.0])) == 25.0


def test_weights_make_squares_with_the_same_slope():
    loss, r = Robust(0.7), np.array([0.0, 0.3, -0.69, 0.8, -5.0])
    slope = approx_fprime(r, loss.worth, 1e-7)
    assert 2 * loss.weights(r) * r == pytest.approx(slope, abs=1e-6)
    assert (PLAIN.weights(r) == 1).all()


def test_squared_residuals_are_what_counts_with_their_derivative():
    loss, matrix = Robust(0.7), np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])
    x = np.array([0.4, -0.3])
    right = np.array([0.1, 2.0, 0.2])
    residual, jacobian = loss.squared(matrix @ x - right, matrix)
    assert residual @ residual == pytest.approx(loss.worth(matrix @ x - right))
    slope = approx_fprime(x, lambda v: loss.worth(matrix @ v - right), 1e-7)
    assert 2 * jacobian.T @ residual == pytest.approx(slope, abs=1e-5)


def spoilt(delta, seed):
    """A Ricker chain with two outliers, and how it is evaluated with a loss."""
    ricker = Ricker(TRUTH, noise=0.02, seed=seed)
    ricker.data[[3, 8]] += [1.5, -1.0]
    return ricker, lambda point: ricker(point)._replace(loss=Robust(delta))


@pytest.mark.parametrize("seed", range(3))
def test_hubers_minimum_is_scipys(seed):
    ricker, evaluate = spoilt(0.05, seed)
    begin = SoftLinks().run(evaluate, ricker.start((2.5, 1.2, 0.3)), ricker.space())
    found = GeneralisedGaussNewton().fit(evaluate, begin.point, ricker.space())
    known = least_squares(
        lambda q: ricker.course(q) - ricker.data,
        TRUTH,
        loss="huber",
        f_scale=0.05,
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    assert found.status is Status.CONVERGED
    assert found.point.unknowns == pytest.approx(known.x, rel=1e-4)
    assert found.at.cost == pytest.approx(2 * known.cost, rel=1e-6)
    assert found.condensed.cost == pytest.approx(found.at.cost, rel=1e-8)
    bounds = ((0.1, 0.1, 0.01), (10.0, 10.0, 1.0))
    plain = least_squares(lambda q: ricker.course(q) - ricker.data, TRUTH, bounds=bounds)
    near, far = (np.abs(x / np.array(TRUTH) - 1).max() for x in (known.x, plain.x))
    assert near < 0.5 * far  # what robust losses are for


def linear(delta):
    """A step on residuals that are linear in three unknowns: matrix, right side, the step."""
    rng = np.random.default_rng(0)
    matrix, right = rng.normal(size=(40, 3)), rng.standard_t(1.5, size=40)
    chain = Chain(
        residual=-right,
        by_node=np.zeros((40, 1)),
        by_unknown=matrix,
        owner=np.zeros(40, dtype=int),
        gap=np.zeros((1, 1)),
        step=np.zeros((1, 1, 1)),
        drift=np.zeros((1, 1, 3)),
    )
    at = Chained((chain,), Linearised(np.zeros(0), np.zeros((0, 3))), Robust(delta))
    point = Point(np.zeros(3), (np.zeros((1, 1)),))
    return matrix, right, proposal(at, point, Ricker().space()).inverse.change


@pytest.mark.parametrize("delta", [1.0, 0.1])
def test_a_step_is_the_minimum_of_the_loss_on_the_linear_problem(delta):
    matrix, right, step = linear(delta)
    residual = matrix @ step - right
    slope = 2 * matrix.T @ (Robust(delta).weights(residual) * residual)
    scale = 2 * delta * np.abs(matrix).sum()
    assert slope == pytest.approx(0.0, abs=1e-5 * scale)


def test_a_small_delta_gives_the_sum_of_absolute_values():
    matrix, right, step = linear(0.01)
    equal = np.hstack([matrix, -np.eye(40), np.eye(40)])  # r = up - down
    price = np.concatenate([np.zeros(3), np.ones(80)])
    bounds = [(None, None)] * 3 + [(0, None)] * 80
    known = linprog(price, A_eq=equal, b_eq=right, bounds=bounds)
    above = np.abs(matrix @ step - right).sum() - known.fun
    assert 0 <= above < 40 * 0.01 / 2  # |r| and rho / (2 delta) differ by at most delta / 2
    assert step == pytest.approx(known.x[:3], abs=0.02)


def test_priors_stay_squares():
    at = Linearised(np.array([9.0]), np.ones((1, 3)))
    ricker, _ = spoilt(0.05, 0)
    found = ricker(ricker.start(TRUTH))._replace(free=at, loss=Robust(0.05))
    assert found.cost == pytest.approx(81.0 + Robust(0.05).worth(found.chains[0].residual))
    root = proposal(found, ricker.start(TRUTH), ricker.space()).root
    assert root[0] == 1.0
    assert (root[1:] < 1.0).any()
