"""How far each horizon reaches (section 3.2), and bounds that follow (eqs. 9 to 11)."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from igpe.core.box import Box
from igpe.core.status import Status
from igpe.dynamics.shooting.incremental_shooting import (
    _deviations,
    active,
    doubling_counts,
    held,
    in_the_way,
    limits_around,
    reaches,
    relaxed,
)
from igpe.numerics.covariance import uncertainty
from igpe.numerics.least_squares.active import undetermined
from igpe.numerics.least_squares.base import Fit, Linearised
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.problem.experiment import Experiment


def run(times, name="1", start_time=0.0, **columns):
    """An experiment that measured A (and more) at these times."""
    table = pd.DataFrame({"time": times, "A": 1.0, **columns})
    return Experiment(table, name=name, start={"A": 1.0}, start_time=start_time)


@pytest.mark.parametrize(
    ("most", "counts"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (20, [1, 2, 4, 8, 16, 20])],
)
def test_counts_double_and_end_with_all(most, counts):
    assert doubling_counts(most) == counts


def test_the_papers_horizons():
    found = reaches([run(np.linspace(0.5, 10.0, 20))], None)
    assert [r.ends for r in found] == [(0.5,), (1.0,), (2.0,), (4.0,), (8.0,), (10.0,)]
    assert [r.share for r in found] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0])


def test_each_experiment_is_cut_at_its_own_times():
    short, long = run([1.0, 2.0, 3.0], "a"), run([5.0, 10.0, 40.0, 50.0, 90.0], "b")
    found = reaches([short, long], None)
    assert [r.ends for r in found] == [(1.0, 5.0), (2.0, 10.0), (3.0, 50.0), (3.0, 90.0)]
    assert found[0].share == pytest.approx(6.0 / 93.0)


def test_what_was_measured_at_the_start_or_not_at_all_does_not_count():
    found = reaches([run([0.0, 1.0, 2.0, 3.0], A=[1.0, np.nan, 1.0, 1.0])], None)
    assert [r.ends for r in found] == [(2.0,), (3.0,)]


def test_intervals_are_times_and_all_measurements_come_last():
    experiment = run([1.0, 2.0, 3.0, 4.0])
    assert [r.ends for r in reaches([experiment], (2.5,))] == [(2.0,), (4.0,)]
    other = run([0.5, 9.0], "b")
    assert [r.ends for r in reaches([experiment, other], (0.6,))] == [(0.0, 0.5), (4.0, 9.0)]
    assert [r.ends for r in reaches([experiment], (0.5, 3.0, 9.0))] == [(3.0,), (4.0,)]


def box(lower, upper):
    """Unknowns a and b."""
    return Box(("a", "b"), np.array(lower, dtype=float), np.array(upper, dtype=float))


FREE = box([-np.inf] * 2, [np.inf] * 2)
X = np.array([2.0, -30.0])
JACOBIAN = np.random.default_rng(5).normal(size=(9, 2)) / np.abs(X)


@pytest.mark.parametrize("size", [0.1, 5.0])
@pytest.mark.parametrize("known", [True, False])
def test_limits_are_those_of_the_statistics(size, known):
    """9: widened by a bad fit, never narrowed by a good one where the errors are known."""
    residual = size * np.ones(9)
    told = uncertainty(
        X, residual, JACOBIAN, held=np.zeros(2, dtype=bool), sigma_known=True, confidence=0.99
    )
    chi2 = float(residual @ residual) / 7
    factor = np.sqrt(max(chi2, 1.0) if known else chi2)
    at = Linearised(residual, JACOBIAN)
    found = limits_around(X, at, FREE, sigma_known=known)
    assert found.upper - X == pytest.approx(factor * (told.upper - X), rel=1e-9)
    assert X - found.lower == pytest.approx(factor * (X - told.lower), rel=1e-9)
    published = limits_around(X, at, FREE, sigma_known=True, scaled=False)
    assert published.upper == pytest.approx(told.upper, rel=1e-9)


def test_limits_stay_inside_the_users_bounds():
    user = box([1.9999, -np.inf], [np.inf, -29.999])
    found = limits_around(X, Linearised(np.ones(9), JACOBIAN), user, sigma_known=True)
    assert (found.lower[0], found.upper[1]) == (1.9999, -29.999)
    assert np.isfinite(found.lower[1])


def test_who_is_not_determined_gets_no_limits():
    jacobian = JACOBIAN * [1.0, 0.0]
    found = limits_around(X, Linearised(np.ones(9), jacobian), FREE, sigma_known=True)
    assert np.isfinite(found.upper).tolist() == [True, False]
    few = Linearised(np.zeros(2), JACOBIAN[:2])
    assert limits_around(X, few, FREE, sigma_known=True).upper.tolist() == [np.inf] * 2
    published = limits_around(X, few, FREE, sigma_known=True, scaled=False)
    assert np.isfinite(published.upper).all()


def test_limits_are_wider_than_rounding():
    sharp = Linearised(np.ones(9), JACOBIAN * 1e20)
    found = limits_around(X, sharp, FREE, sigma_known=True)
    assert found.upper - X == pytest.approx(1e-10 * np.abs(X), rel=1e-3)


def test_only_active_updated_bounds_are_relaxed():
    """10 and 11 with BRF = 2: a at its upper, b at a lower bound that is the user's."""
    now, user = box([1.0, -5.0], [2.0, 5.0]), box([-100.0, -5.0], [100.0, 100.0])
    wider = relaxed(np.array([2.0, -5.0]), now, user)
    assert (wider.lower.tolist(), wider.upper.tolist()) == ([1.0, -5.0], [4.0, 5.0])
    near = relaxed(np.array([2.0, -5.0]), now, box([0.0, -5.0], [3.0, 9.0]))
    assert near.upper.tolist() == [3.0, 5.0]
    assert relaxed(np.array([1.5, -5.0]), now, user) is None


def test_a_bound_without_an_opposite_goes_back_to_the_users():
    now = box([1.0, -5.0], [np.inf, 5.0])
    wider = relaxed(np.array([1.0, 0.0]), now, FREE)
    assert wider.lower.tolist() == [-np.inf, -5.0]
    low, high = active(np.array([1.0, 5.0]), now, FREE)
    assert (low.tolist(), high.tolist()) == ([True, False], [False, True])


def test_limits_always_have_a_width_and_relaxing_ends():
    exact = Linearised(np.zeros(9), JACOBIAN)
    found = limits_around(np.zeros(2), exact, FREE, sigma_known=False)
    assert (found.upper > found.lower).all()
    assert (found.upper < 1e-3).all()
    narrow = box([0.0, 1.0], [0.0, 2.0])
    wider = relaxed(np.array([0.0, 1.5]), narrow, FREE)
    assert (wider.lower.tolist(), wider.upper.tolist()) == ([-np.inf, 1.0], [np.inf, 2.0])


def fitted(x, at):
    """An estimate that a search called an optimum."""
    return Fit(np.asarray(x, dtype=float), at, Status.CONVERGED, 1)


def test_a_bound_that_keeps_from_a_promise_is_in_the_way_though_x_is_not_on_it():
    search, tight = GaussNewton(absolute=1e-6), box([0.5, -1.0], [0.5 + 1e-9, 1.0])
    slope = np.array([[1.0, 0.0], [0.0, 1.0]])
    far = fitted([0.5 + 5e-10, 0.0], Linearised(np.array([3.0, 0.0]), slope))
    wider = in_the_way(far, tight, FREE, search)
    assert wider.lower[0] == pytest.approx(0.5 - 2e-9, abs=1e-12)
    assert wider.upper.tolist() == tight.upper.tolist()
    there = fitted([0.5 + 5e-10, 0.0], Linearised(np.array([1e-4, 0.0]), slope))
    assert in_the_way(there, tight, FREE, search) is None
    free = in_the_way(far, tight, FREE, search, give_up=True)
    assert free.lower.tolist() == [-np.inf, -1.0]


def test_an_estimate_on_a_bound_of_ours_is_told():
    (note,) = held(np.array([1.0, 0.0]), box([1.0, -5.0], [2.0, 5.0]), box([0, -5], [9, 5]))
    assert note.startswith(
        "The estimate of a lies on 1, a bound that igpe derived from earlier horizons"
    )
    assert held(np.array([1.0, 0.0]), box([1.0, -5.0], [2.0, 5.0]), box([1, -5], [9, 5])) == []


@pytest.mark.parametrize("of", [_deviations, lambda j: undetermined(j, np.ones(2), "ab")])
def test_memory_grows_with_the_residuals_and_not_with_their_square(of):
    jacobian = np.random.default_rng(6).normal(size=(3000, 2))
    tracemalloc.start()
    of(jacobian)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * jacobian.nbytes
