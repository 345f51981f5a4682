"""Gauss-Newton on problems with known answers, and where it may fail."""

import numpy as np
import pytest

from igpe.core.box import Box
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.gauss_newton import (
    GaussNewton,
    GaussNewtonInBlocks,
    LineSearch,
    _radius,
)


def box(n, lower=-np.inf, upper=np.inf):
    """n unknowns within the same bounds."""
    return Box(tuple(f"x{i}" for i in range(n)), np.full(n, lower), np.full(n, upper))


def rosenbrock(x):
    """Minimum 0 at (1, 1)."""
    residual = np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
    return Linearised(residual, np.array([[-20 * x[0], 10.0], [-1.0, 0.0]]))


@pytest.mark.parametrize("start", [(-1.2, 1.0), (0.0, 0.0), (1.0, 1.0), (-30.0, 40.0)])
def test_rosenbrock_from_everywhere(start):
    fit = GaussNewton().fit(rosenbrock, np.array(start), box(2))
    assert fit.status is Status.CONVERGED
    assert fit.x == pytest.approx([1.0, 1.0], rel=1e-8)
    assert fit.cost == pytest.approx(0.0, abs=1e-16)


@pytest.mark.parametrize("search", [GaussNewton(), LineSearch()])
def test_rosenbrock_on_a_bound(search):
    """With x0 <= 0.5 the best is x0 = 0.5, x1 = 0.25."""
    bounded = Box(("x0", "x1"), np.array([-2.0, -2.0]), np.array([0.5, 2.0]))
    fit = search.fit(rosenbrock, np.array([-1.2, 1.0]), bounded)
    assert fit.status is Status.CONVERGED
    assert fit.x == pytest.approx([0.5, 0.25], rel=1e-6)
    assert fit.cost == pytest.approx(0.25, rel=1e-10)


def test_a_search_stops_at_a_cost_that_is_enough():
    fit = GaussNewton(enough=1.0).fit(rosenbrock, np.array([-1.2, 1.0]), box(2))
    assert fit.status is Status.CONVERGED
    assert 1e-6 < fit.cost <= 1.0


def test_a_start_outside_begins_at_the_nearest_point_inside():
    seen = []

    def watched(x):
        seen.append(x.copy())
        return rosenbrock(x)

    fit = GaussNewton().fit(watched, np.array([50.0, -50.0]), box(2, -3.0, 3.0))
    assert seen[0].tolist() == [3.0, -3.0]
    assert all(((x >= -3) & (x <= 3)).all() for x in seen)
    assert fit.x == pytest.approx([1.0, 1.0], rel=1e-6)


def test_squares_that_no_unknown_changes_count_for_the_tolerance():
    """One part of 1e10 of all of them is the end. Cubes, since searches approach 0 there slowly."""

    def cubes(rest):
        return lambda x: Linearised(x**3, np.diag(3 * x**2)).with_rest(rest)

    less, more = (
        GaussNewton().fit(cubes(rest), np.array([1.0, 2.0]), box(2)) for rest in (1.0, 1e6)
    )
    for fit in less, more:
        assert fit.status is Status.CONVERGED
        assert 1e-12 < fit.promised / fit.cost <= 1e-10


def linear(matrix, right):
    """Residuals A x - b."""
    return lambda x: Linearised(matrix @ x - right, matrix)


def test_rank_deficient_takes_the_shortest_step():
    matrix = np.array([[1.0, 1.0], [2.0, 2.0], [-1.0, -1.0]])
    fit = GaussNewton(radius=100.0).fit(linear(matrix, matrix @ [3.0, 1.0]), np.ones(2), box(2))
    assert fit.status is Status.CONVERGED
    assert fit.x == pytest.approx([2.0, 2.0], rel=1e-10)


def test_linear_problems_with_active_bounds_against_a_grid():
    random = np.random.default_rng(1)
    matrix, right = random.normal(size=(8, 2)), 5 * random.normal(size=8)
    fit = GaussNewton().fit(linear(matrix, right), np.zeros(2), box(2, -0.5, 0.5))
    axis = np.linspace(-0.5, 0.5, 401)
    grid = np.array(np.meshgrid(axis, axis)).reshape(2, -1)
    best = np.sum((matrix @ grid - right[:, None]) ** 2, axis=0).min()
    assert (abs(fit.x) == 0.5).any()
    assert fit.cost <= best
    assert fit.cost == pytest.approx(best, rel=1e-4)


def test_points_that_cannot_be_computed_are_walked_around():
    refused = []

    def fragile(x):
        if x[0] > 1.5 or x[1] > 2.0:
            refused.append(x)
            return None
        return rosenbrock(x)

    fit = GaussNewton(radius=50.0).fit(fragile, np.array([-1.2, 1.9]), box(2))
    assert fit.x == pytest.approx([1.0, 1.0], rel=1e-6)

    def log(x):
        refused.append(x)
        with np.errstate(invalid="ignore"):
            return Linearised(np.log(x) - 1.0, np.array([[1 / x[0]]]))

    fit = GaussNewton(radius=9.0).fit(log, np.array([60.0]), box(1))
    assert fit.x == pytest.approx([np.e], rel=1e-8)
    assert refused


@pytest.mark.parametrize("value", [None, Linearised(np.array([np.nan]), np.array([[1.0]]))])
def test_a_start_that_cannot_be_computed_is_a_status(value):
    fit = GaussNewton().fit(lambda x: value, np.ones(1), box(1))
    assert (fit.status, fit.at, fit.cost) == (Status.INTEGRATION_BROKE, None, np.inf)
    assert fit.x.tolist() == [1.0]


MISRA_Y = [10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05]
MISRA_Y += [61.01, 66.40, 75.47, 81.78]
MISRA_X = [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3]
MISRA_X += [536.8, 593.1, 689.1, 760.0]


@pytest.mark.parametrize("start", [(500.0, 0.0001), (250.0, 0.0005)])
def test_misra1a_of_nist(start):
    """NIST StRD Misra1a: y = b1 (1 - exp(-b2 x)), certified to 11 digits."""
    x, y = np.array(MISRA_X), np.array(MISRA_Y)

    def residual(b):
        e = np.exp(-b[1] * x)
        return Linearised(b[0] * (1 - e) - y, np.column_stack([1 - e, b[0] * x * e]))

    fit = GaussNewton(tolerance=1e-15).fit(residual, np.array(start), box(2))
    assert fit.x == pytest.approx([2.3894212918e02, 5.5015643181e-04], rel=1e-8)
    assert fit.cost == pytest.approx(1.2455138894e-01, rel=1e-10)


def test_it_does_not_stop_where_only_the_region_is_small():
    """A first radius of 1e-9 promises next to nothing, far from the optimum."""
    fit = GaussNewton(radius=1e-9, absolute=1e-3).fit(rosenbrock, np.array([-1.2, 1.0]), box(2))
    assert fit.status is Status.CONVERGED
    assert fit.cost <= 1e-3


def test_steps_are_those_taken_and_the_promise_is_told():
    seen = []

    def watched(x):
        seen.append(x)
        return rosenbrock(x)

    fit = GaussNewton().fit(watched, np.array([-1.2, 1.0]), box(2))
    assert fit.steps < fit.iterations
    assert len(seen) == fit.iterations  # the start, and each but the last, which only looks
    assert fit.promised == pytest.approx(0.0, abs=1e-12)


def test_residuals_that_do_not_keep_the_promise_tell_how_much_was_left():
    fit = GaussNewton().fit(
        lambda x: Linearised(np.array([0.7]), np.array([[1.0]])), np.array([3.0]), box(1)
    )
    assert fit.status is Status.CONVERGED  # no region is small enough to gain anything
    assert fit.promised > 0.0
    assert (fit.steps, fit.x.tolist()) == (0, [3.0])


@pytest.mark.parametrize(("ratio", "shorter"), [(-1e9, 0.1), (-1.0, 1 / 3), (1e-5, 0.5)])
def test_a_step_too_long_is_interpolated(ratio, shorter):
    """Slope -2: the parabola of a full Gauss-Newton step, whose promise is 1."""
    assert _radius(5.0, 2.0, ratio, -2.0) == pytest.approx(2.0 * shorter, rel=1e-4)


def test_the_radius_otherwise():
    assert _radius(5.0, 2.0, -np.inf, -2.0) == pytest.approx(0.4)
    assert _radius(5.0, 2.0, 0.1, -2.0) == 1.0
    assert _radius(5.0, 2.0, 0.5, -2.0) == 5.0
    assert _radius(3.0, 2.0, 0.9, -2.0) == 4.0


def test_a_region_that_ends_beside_points_without_a_value_is_no_optimum():
    def only_up_to_one(x):
        return Linearised(x - 2.0, np.eye(1)) if x[0] <= 1.0 else None

    fit = GaussNewton().fit(only_up_to_one, np.array([1.0]), box(1))
    assert fit.x == pytest.approx([1.0])
    assert fit.status is Status.STALLED


def logarithm(x):
    """Root at e; not defined for x <= 0, where the first step from 60 leads."""
    return Linearised(np.log(x) - 1.0, np.array([[1 / x[0]]])) if x[0] > 0 else None


def test_a_failure_ends_a_line_search():
    ended = LineSearch().fit(logarithm, np.array([60.0]), box(1))
    assert (ended.status, ended.x.tolist(), ended.steps) == (Status.INTEGRATION_BROKE, [60.0], 0)
    assert ended.at is not None
    nowhere = LineSearch().fit(logarithm, np.array([-1.0]), box(1))
    assert (nowhere.status, nowhere.at) == (Status.INTEGRATION_BROKE, None)


def test_limits_and_promises_not_kept_are_statuses():
    fit = LineSearch(max_iterations=2).fit(rosenbrock, np.array([-1.2, 1.0]), box(2))
    assert (fit.status, fit.steps) == (Status.ITERATION_LIMIT, 2)

    def lying(x):
        return Linearised(np.array([1.0 + x[0] ** 2]), np.array([[-1.0]]))

    fit = LineSearch().fit(lying, np.zeros(1), box(1))
    assert fit.status is Status.FAILED
    assert fit.promised == pytest.approx(1.0)


def test_a_narrow_curved_valley_is_followed_with_bent_steps():
    """Along it plain steps stay short: a thousand of them do not end (MISSES = 0)."""

    def banana(x):
        residual = np.array([1e4 * (x[1] - x[0] ** 2 - x[2] ** 3), 1 - x[0], 0.5 - x[2]])
        jacobian = np.array([
            [-2e4 * x[0], 1e4, -3e4 * x[2] ** 2],
            [-1.0, 0.0, 0.0],
            [0.0, 0.0, -1.0],
        ])
        return Linearised(residual, jacobian)

    box = Box(("x", "y", "z"), np.full(3, -3.0), np.full(3, 6.0))
    fit = GaussNewton(max_iterations=400).fit(banana, np.array([-1.2, 1.44, 0.0]), box)
    assert fit.status is Status.CONVERGED
    np.testing.assert_allclose(fit.x, [1.0, 1.125, 0.5], rtol=1e-6)


def test_a_jump_of_the_residuals_holds_no_search():
    """A dose at a time that a measurement ends: only its amount can still be corrected."""

    def residual(x):
        dose, lag = x
        r = np.array([dose * lag - 2.0, dose - 1.0 + 1e4 * (lag > 1.0)])
        return Linearised(r, np.array([[lag, dose], [1.0, 0.0]]))

    box = Box(("dose", "lag"), np.array([0.1, 0.1]), np.array([10.0, 10.0]))
    fit = GaussNewton(1e-10).fit(residual, np.array([0.3, 0.999]), box)
    assert fit.status is Status.CONVERGED
    assert fit.x == pytest.approx([1.5, 1.0], abs=1e-4)


def valley(x):
    """A narrow valley bent around the origin, along which the cost falls by 0.4 in all."""
    radius, angle = np.hypot(*x), np.arctan2(x[1], x[0])
    outwards, along = x / radius, np.array([-x[1], x[0]]) / radius**2
    residual = np.array([1e4 * (radius - 1), np.sqrt(54 - 0.4 * np.sin(angle / 2) ** 2)])
    slope = -0.1 * np.sin(angle) / residual[1]
    return Linearised(residual, np.vstack([1e4 * outwards, slope * along]))


def test_a_search_that_creeps_is_given_up():
    """Each block that gains too little is the last; what converges is no other search."""
    start = np.array([1.0, 0.1])
    creeping = GaussNewton(curvature=False, max_iterations=300).fit(valley, start, box(2))
    blocks = GaussNewtonInBlocks(max_iterations=300, block=5, little=0.5)
    fit = blocks.fit(valley, start, box(2))
    assert creeping.iterations > fit.iterations
    assert fit.status is Status.ITERATION_LIMIT
    assert fit.cost - creeping.cost < 0.5
    never = blocks.fit(rosenbrock, np.array([-1.2, 1.0]), box(2))
    assert never.cost == pytest.approx(0.0, abs=1e-16)
    assert never.status is Status.CONVERGED


def test_blocks_go_on_to_the_limit_of_iterations():
    limited = GaussNewtonInBlocks(max_iterations=7, block=3, little=0.0)
    fit = limited.fit(rosenbrock, np.array([-30.0, 40.0]), box(2))
    assert fit.status is Status.ITERATION_LIMIT
    assert 7 <= fit.iterations <= 14  # with bent steps
    assert GaussNewtonInBlocks().fit(lambda _: None, np.zeros(2), box(2)).at is None
