"""Walking along paths whose likelihood is a formula, and slopes against differences."""

import numpy as np
import pytest
from michaelis_menten import DECAY_TRUTH, decay, decay_data

from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.uncertainty.likelihood import likelihood, quick
from igpe.uncertainty.path import End, HeldLine, PathPoint, ShootingPath, WalkSteps, walk

STEPS = WalkSteps(rise=4.0, increments=4, scale=0.1)


class Formula:
    """A path with a known cost; with or without derivatives; cannot be computed beyond `broken`."""

    jumps = False

    def __init__(self, cost, reach=(-np.inf, np.inf), derivatives=True, broken=np.inf):
        self.cost, self.reach, self.broken, self.derivatives = cost, reach, broken, derivatives
        self.asked = 0

    @property
    def origin(self):
        return self.point(0.0, None)

    def point(self, at, near):
        self.asked += 1
        if abs(at) > self.broken:
            return None
        h = 1e-5
        low, here, high = (self.cost(t) for t in (at - h, at, at + h))
        slope, curvature = (high - low) / (2 * h), (high - 2 * here + low) / h**2
        if not self.derivatives:
            slope = curvature = np.nan
        return PathPoint(at, here, slope, max(curvature, 0.0), np.array([at]))

    def anew(self, at):
        return self.point(at, self.origin)


COSTS = {
    "parabola": (lambda t: 7 + t**2, 2.0),
    "quartic": (lambda t: 7 + t**2 + t**4 / 4, 2**0.5 * ((1 + 4) ** 0.5 - 1) ** 0.5),
    "slower than a parabola": (lambda t: 7 + 8 * (np.sqrt(1 + t**2 / 4) - 1), 2 * 1.25**0.5),
    "one-sided": (lambda t: 7 + np.expm1(abs(t)) ** 2 if t else 7.0, np.log(3.0)),
    "hard wall": (lambda t: 7 + t**2 + np.exp(40 * (abs(t) - 1)), None),
}


@pytest.mark.parametrize("derivatives", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", COSTS)
def test_the_end_is_found(name, sign, derivatives):
    cost, end = COSTS[name]
    path = Formula(cost, derivatives=derivatives)
    found = walk(path, path.origin, sign, STEPS)
    assert found.end is End.FOUND
    assert cost(found.at) - cost(0.0) == pytest.approx(4.0, rel=5e-3)
    if end is not None:
        assert found.at == pytest.approx(sign * end, rel=1e-3)
    assert path.asked < 25


def test_a_plateau_is_open_and_a_slope_at_the_bound_is_not():
    flat = Formula(lambda t: 1 - np.exp(-(t**2)), reach=(-30.0, 30.0))
    found = walk(flat, flat.origin, 1, STEPS)
    assert (found.end, found.at) == (End.OPEN, 30.0)
    rising = Formula(lambda t: t**2, reach=(-1.5, 1.5))
    found = walk(rising, rising.origin, -1, STEPS)
    assert (found.end, found.at) == (End.BOUND, -1.5)


@pytest.mark.parametrize("derivatives", [True, False])
def test_without_a_bound_a_plateau_ends_at_infinity(derivatives):
    flat = Formula(lambda t: 1 - np.exp(-(t**2)), derivatives=derivatives)
    found = walk(flat, flat.origin, -1, STEPS)
    assert (found.end, found.at) == (End.OPEN, -np.inf)


def test_where_it_cannot_be_computed_the_walk_says_so():
    path = Formula(lambda t: t**2, broken=1.3)
    found = walk(path, path.origin, 1, STEPS)
    assert found.end is End.BROKEN
    assert found.at == pytest.approx(1.3, rel=1e-3)


@pytest.mark.parametrize("bound", [5.0, np.inf])
@pytest.mark.parametrize("broken", [0.0, np.inf])
def test_a_walk_that_cannot_make_its_first_step_ends(broken, bound):
    """The sum of squares jumps right beside the estimate, as where a dose meets a measurement."""
    path = Formula(lambda t: 1e4, reach=(-bound, bound), broken=broken)
    origin = PathPoint(0.0, 0.0, 0.0, 0.0, np.zeros(1))
    found = walk(path, origin, 1, STEPS)
    assert (found.end, found.at, found.points) == (End.BROKEN, 0.0, ())


@pytest.mark.parametrize("jumps", [False, True])
def test_a_search_that_lost_its_way_is_made_again_from_nearby(jumps):
    """From far away, the search at 1.2 and beyond ends at another, higher optimum."""

    class Far(Formula):
        def point(self, at, near):
            point = super().point(at, near)
            is_lost = at > 1.2 and (jumps or at - near.at > 0.3)
            return point._replace(cost=point.cost + 9) if is_lost else point

    path = Far(lambda t: t**2 / 2)
    found = walk(path, path.origin, 1, STEPS._replace(increments=1))
    assert found.end is (End.BROKEN if jumps else End.FOUND)
    assert found.at == pytest.approx(1.2 if jumps else 8**0.5, rel=1e-2)


def test_steps_stay_short_where_longer_ones_lose_their_way():
    """Beyond 1.2 a search finds the way for 1.2 % of the distance from the estimate."""

    class Near(Formula):
        def point(self, at, near):
            point = super().point(at, near)
            is_lost = at > 1.2 and at - near.at > 0.012 * at
            return point._replace(cost=point.cost + 9) if is_lost else point

    path = Near(lambda t: t**2 / 2)
    found = walk(path, path.origin, 1, STEPS)
    assert found.end is End.FOUND
    assert found.at == pytest.approx(8**0.5, rel=1e-2)


def test_nothing_to_walk():
    path = Formula(lambda t: t**2, reach=(0.0, 5.0))
    assert walk(path, path.origin, -1, STEPS).end is End.BOUND
    assert walk(path, path.origin, 1, STEPS._replace(rise=np.nan)).end is End.UNKNOWN
    assert walk(path, path.origin, 1, STEPS._replace(rise=0.0)).at == 0.0


@pytest.fixture(scope="module")
def path():
    base = likelihood(decay(), DECAY_TRUTH, SingleShooting(), "test")
    return ShootingPath(base, HeldLine((1,), np.ones(1)), quick(base, 1e-10))


def test_slopes_of_a_profile_are_its_differences(path):
    for at in (-0.2, 0.1, 0.4):
        here = path.point(at, path.origin)
        below, above = (path.point(at + h, here) for h in (-1e-3, 1e-3))
        assert here.slope == pytest.approx((above.cost - below.cost) / 2e-3, rel=1e-4)


def test_the_curvature_at_the_estimate_is_the_linearised_error(path):
    error = path.base.errors.standard_error[1]
    assert path.origin.curvature == pytest.approx(2 / error**2, rel=1e-6)
    assert abs(path.origin.slope) < 1e-3 / error


def test_predictions_err_by_second_order():
    """With small residuals the tangent is exact: half the step leaves a quarter of the error."""
    exact = decay().with_data(decay_data(0, noise=0.0))
    base = likelihood(exact, DECAY_TRUTH, SingleShooting(), "test")
    path = ShootingPath(base, HeldLine((1,), np.ones(1)), quick(base, 1e-12))
    errors = []
    for at in (0.04, 0.08):
        guess = path._predicted(at, path.origin)[0]
        errors.append(abs(guess - path.point(at, path.origin).x[0]))
    assert errors[1] / errors[0] == pytest.approx(4, rel=0.3)


def test_a_correction_that_is_counted_in_is_nearly_the_optimum(path):
    """With 1e-3 of the rise left the value is right to 1e-4 of it."""
    rough = ShootingPath(path.base, path.line, quick(path.base, 1e-3 * 3.84))
    for at in (-0.2, 0.1, 0.3, 0.5):
        one, other = (p.point(at, p.origin) for p in (rough, path))
        assert one.cost == pytest.approx(other.cost, abs=1e-4 * 3.84)
