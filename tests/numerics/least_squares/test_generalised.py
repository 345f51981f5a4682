"""Generalised Gauss-Newton and the continuation before it, on a map that oscillates."""

import numpy as np
import pytest
from chain_zoo import Ricker, dense, flat, point_of, random_chained, space_of
from scipy.optimize import least_squares, minimize

from igpe.core.status import Status
from igpe.numerics.least_squares.generalised import GeneralisedGaussNewton
from igpe.numerics.least_squares.proposal import gap_length
from igpe.numerics.least_squares.soft_links import Normal, SoftLinks

TRUTH = (3.0, 1.5, 0.2)
FAR = (8.0, 4.0, 0.2)


def single(ricker, start=TRUTH):
    """The optimum next to a start, by single shooting with SciPy."""
    return least_squares(lambda q: ricker.course(q) - ricker.data, start, xtol=1e-15, ftol=1e-15)


@pytest.mark.parametrize("seed", range(4))
def test_it_ends_in_the_optimum_of_single_shooting(seed):
    ricker = Ricker(TRUTH, noise=0.05, seed=seed)
    found = GeneralisedGaussNewton().fit(ricker, ricker.start(FAR), ricker.space())
    known = single(ricker)
    assert found.status is Status.CONVERGED
    assert found.point.unknowns == pytest.approx(known.x, rel=1e-5)
    assert found.at.cost == pytest.approx(2 * known.cost, rel=1e-8)
    assert gap_length(found.at, ricker.space().size) < 1e-6


def test_its_condensed_derivative_is_that_of_single_shooting():
    ricker = Ricker(TRUTH, noise=0.05)
    found = GeneralisedGaussNewton().fit(ricker, ricker.start(TRUTH), ricker.space())
    q, h = found.point.unknowns, 1e-6
    for i in range(3):
        move = h * np.eye(3)[i]
        central = (ricker.course(q + move) - ricker.course(q - move)) / (2 * h)
        assert found.condensed.jacobian[:, i] == pytest.approx(central, abs=1e-5)


def test_a_bound_in_the_way_is_kept_and_the_rest_is_best():
    ricker = Ricker(TRUTH, noise=0.05)
    space = ricker.space(upper=(2.8, np.inf, np.inf))
    found = GeneralisedGaussNewton().fit(ricker, ricker.start((2.0, 1.0, 0.2)), space)
    known = least_squares(
        lambda q: ricker.course([2.8, *q]) - ricker.data, TRUTH[1:], xtol=1e-15, ftol=1e-15
    )
    assert found.status is Status.CONVERGED
    assert found.point.unknowns == pytest.approx([2.8, *known.x], rel=1e-5)
    assert found.point.unknowns[0] == 2.8


def test_bounds_of_nodes_are_kept_and_the_rest_is_best():
    ricker = Ricker(TRUTH, noise=0.05)
    lowest = 0.1 + ricker.course(single(ricker).x)[1:-1].min()
    found = GeneralisedGaussNewton().fit(
        ricker, ricker.start(TRUTH), ricker.space(node_lower=lowest)
    )
    known = minimize(
        lambda q: np.sum((ricker.course(q) - ricker.data) ** 2),
        TRUTH,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda q: ricker.course(q)[1:-1] - lowest},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert found.status is Status.CONVERGED
    assert found.point.nodes[0][1:].min() == pytest.approx(lowest, abs=1e-7)
    assert found.at.cost == pytest.approx(known.fun, rel=1e-5)
    assert found.at.cost > 1.01 * 2 * single(ricker).cost


def test_a_start_that_cannot_be_evaluated_is_a_status():
    ricker = Ricker()
    found = GeneralisedGaussNewton().fit(ricker, ricker.start((3.0, -1.0, 0.2)), ricker.space())
    assert found.status is Status.INTEGRATION_BROKE
    assert found.at is None
    assert SoftLinks().run(ricker, ricker.start((3.0, -1.0, 0.2)), ricker.space()).at is None


def test_steps_that_break_down_are_shortened():
    ricker = Ricker(TRUTH, noise=0.05)

    def fragile(point):
        return None if point.unknowns[0] > 3.5 else ricker(point)

    start = ricker.start((0.5, 6.0, 0.2))
    found = GeneralisedGaussNewton().fit(fragile, start, ricker.space())
    assert found.status is Status.CONVERGED
    assert found.point.unknowns == pytest.approx(single(ricker).x, rel=1e-5)


def test_where_every_step_breaks_down_it_stalls():
    ricker = Ricker(TRUTH, noise=0.05)
    start = ricker.start(FAR)

    def only_here(point):
        return ricker(point) if np.allclose(point.unknowns, FAR, rtol=1e-12) else None

    found = GeneralisedGaussNewton().fit(only_here, start, ricker.space())
    assert found.status is Status.STALLED
    assert found.point.unknowns == pytest.approx(FAR)


def test_derivatives_that_grow_beyond_numbers_are_a_break_down():
    ricker = Ricker(TRUTH, noise=0.05, count=40)
    start = ricker.start(FAR)

    def growing(by):
        at = ricker(start)
        chain = at.chains[0]
        return at._replace(chains=(chain._replace(step=by * np.ones_like(chain.step)),))

    assert growing(1e3).is_tame  # far, but its squares are numbers
    assert not growing(1e5).is_tame
    found = GeneralisedGaussNewton().fit(lambda point: growing(1e8), start, ricker.space())
    assert (found.status, found.at) == (Status.INTEGRATION_BROKE, None)


@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_the_normal_equations_against_dense_ones(damping):
    at = random_chained(0, gaps=False)
    space, point = space_of(at), point_of(at, 1)
    weights = tuple(np.arange(1.0, c.gap.shape[1] + 1) * 3 for c in at.chains)
    residual, matrix, gaps, links = dense(at)
    # the first nodes are the unknowns' alone: their columns go to those of the unknowns
    n, width = 3, matrix.shape[1]
    lift, column = [np.eye(width)[:n].T], n
    for c in at.chains:
        n_x = c.gap.shape[1]
        lift[0][column : column + n_x] = c.drift[0]
        lift.append(np.eye(width)[:, column + n_x : column + c.gap.size])
        column += c.gap.size
    lift = np.hstack(lift)
    root = np.concatenate([
        np.tile(np.sqrt(w), len(c.gap)) for w, c in zip(weights, at.chains, strict=True)
    ])
    rows = np.vstack([matrix, root[:, None] * links]) @ lift
    right = np.concatenate([residual, root * gaps])
    square = rows.T @ rows
    known = -np.linalg.solve(square + damping * np.diag(np.diag(square)), rows.T @ right)
    found = Normal.of(at, weights, point, space).step(damping)
    assert flat(found) == pytest.approx(lift @ known, rel=1e-6, abs=1e-8)


def test_numbers_at_a_bound_that_would_leave_it_stay():
    at = random_chained(5, gaps=False)
    space, point = space_of(at, lower=0.0, node_lower=0.0), point_of(at, 1)
    on_bound = point._replace(
        unknowns=np.zeros(3), nodes=tuple(np.zeros_like(s) for s in point.nodes)
    )
    weights = tuple(np.ones(c.gap.shape[1]) for c in at.chains)
    move = Normal.of(at, weights, on_bound, space).step(1e6)  # along the gradient
    assert (move.unknowns >= 0).all()
    assert (move.unknowns == 0).any()
    for nodes in move.nodes:
        assert (nodes[1:] >= 0).all()
        assert len(nodes) == 1 or (nodes[1:] == 0).any()


def test_the_continuation_closes_the_gaps_from_far_away():
    ricker = Ricker(TRUTH, noise=0.05)
    found = SoftLinks().run(ricker, ricker.start((1.0, 9.0, 0.2)), ricker.space())
    assert gap_length(found.at, ricker.space().size) < 1e-2
    assert found.point.unknowns == pytest.approx(single(ricker).x, rel=1e-2)
