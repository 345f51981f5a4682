"""What every smoother promises."""

import numpy as np
import pytest

from igpe.core.errors import DataError
from igpe.smoothing.gcv_spline import GcvSpline, Interpolation

SMOOTHERS = [GcvSpline(), GcvSpline(boundary_correction=False), Interpolation()]
IDS = ["corrected", "natural", "interpolation"]
pytestmark = pytest.mark.parametrize("smoother", SMOOTHERS, ids=IDS)


@pytest.fixture
def decay():
    """Times, uneven, and noisy values of an exponential decay."""
    rng = np.random.default_rng(7)
    t = np.sort(rng.uniform(0.0, 4.0, 40))
    return t, np.exp(-t) + 0.02 * rng.standard_normal(40)


def figures(smooth, t):
    """All that a curve says at t, (4, n)."""
    asks = (smooth.value, smooth.slope, smooth.value_error, smooth.slope_error)
    return np.stack([ask(t) for ask in asks])


def test_slope_is_the_derivative_of_value(smoother, decay):
    smooth = smoother.smooth(*decay)
    t, h = np.linspace(*decay[0][[0, -1]], 33)[1:-1], 1e-5
    difference = (smooth.value(t + h) - smooth.value(t - h)) / (2 * h)
    assert smooth.slope(t) == pytest.approx(difference, rel=1e-4, abs=1e-6)


def test_beyond_the_data_the_curve_is_its_tangent(smoother, decay):
    smooth = smoother.smooth(*decay)
    last = decay[0][-1:]
    beyond = last + 0.5
    assert smooth.value(beyond) == pytest.approx(smooth.value(last) + 0.5 * smooth.slope(last))
    assert smooth.slope(beyond) == pytest.approx(smooth.slope(last))
    assert smooth.value_error(beyond) > smooth.value_error(last)


def test_units_of_time_and_value_only_rescale(smoother, decay):
    t, y = decay
    smooth, scaled = smoother.smooth(t, y), smoother.smooth(1e3 * t, 1e-6 * y)
    at = np.linspace(t[0], t[-1], 50)
    units = np.array([1e-6, 1e-9, 1e-6, 1e-9])[:, None]
    assert figures(scaled, 1e3 * at) / units == pytest.approx(figures(smooth, at), rel=1e-6)
    assert scaled.degrees_of_freedom == pytest.approx(smooth.degrees_of_freedom)
    assert scaled.sigma == pytest.approx(1e-6 * smooth.sigma)
    assert scaled.penalty == pytest.approx(1e9 * smooth.penalty)


def test_shift_of_time_changes_nothing(smoother, decay):
    t, y = decay
    at = np.linspace(t[0], t[-1], 50)
    moved = figures(smoother.smooth(t + 64.0, y), at + 64.0)
    # t + 64 rounds the times by 1e-14, which a fifth derivative on unevenly spaced times magnifies
    assert moved == pytest.approx(figures(smoother.smooth(t, y), at), rel=1e-6, abs=1e-7)


def test_missing_values_are_as_if_never_taken(smoother, decay):
    t, y = decay
    gaps = y.copy()
    gaps[[0, 5, 39]] = np.nan
    kept = ~np.isnan(gaps)
    at = np.linspace(0.0, 4.0, 9)
    expected = figures(smoother.smooth(t[kept], y[kept]), at)
    assert (figures(smoother.smooth(t, gaps), at) == expected).all()


def test_replicates_count_as_their_weighted_mean(smoother, decay):
    t, y = decay
    rng = np.random.default_rng(8)
    pairs = np.stack([y + 0.01, y - 0.01], axis=1)
    deviations = rng.uniform(0.01, 0.03, pairs.shape)
    w = 1.0 / deviations**2
    mean, deviation = (w * pairs).sum(axis=1) / w.sum(axis=1), w.sum(axis=1) ** -0.5
    both = smoother.smooth(np.repeat(t, 2), pairs.ravel(), sigma=deviations.ravel())
    assert both.sigma == 1.0
    if isinstance(smoother, Interpolation):
        single = smoother.smooth(t, mean, sigma=deviation)
        assert figures(both, t) == pytest.approx(figures(single, t), rel=1e-9)
    else:
        assert np.abs(both.value(t) - mean).max() < 0.1


def test_scatter_of_replicates_is_part_of_sigma(smoother):
    rng = np.random.default_rng(9)
    t = np.repeat(np.linspace(0.0, 1.0, 15), 40)
    y = 1.0 - t + 0.05 * rng.standard_normal(t.size)
    assert smoother.smooth(t, y).sigma == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("index", [0, 17, 39])
def test_an_exact_value_is_honoured_and_has_no_error(smoother, decay, index):
    t, y = decay
    y = y.copy()
    y[index] += 0.3
    exact = np.arange(40) == index
    smooth = smoother.smooth(t, y, exact=exact)
    typical = np.median(smooth.value_error(t))
    assert smooth.value(t[exact]) == pytest.approx(y[exact], abs=1e-6)
    assert smooth.value_error(t[exact]) < 1e-3 * typical


def test_measurements_at_an_exact_time_are_superfluous(smoother, decay):
    t, y = decay
    exact = np.arange(41) == 0
    smooth = smoother.smooth(np.r_[t[0], t], np.r_[1.0, y], exact=exact)
    expected = smoother.smooth(t, np.r_[1.0, y[1:]], exact=exact[:40])
    assert figures(smooth, t) == pytest.approx(figures(expected, t))


def test_if_all_is_exact_nothing_is_smoothed(smoother, decay):
    t, y = decay
    smooth = smoother.smooth(t, y, exact=np.ones(40, bool))
    assert smooth.value(t) == pytest.approx(y, abs=1e-9)
    assert np.abs(smooth.value_error(t)).max() < 1e-9


def test_larger_sigma_given_means_larger_errors(smoother, decay):
    t, y = decay
    one, two = (smoother.smooth(t, y, sigma=np.full(40, s)) for s in (0.02, 0.04))
    assert two.value_error(t) == pytest.approx(2.0 * one.value_error(t), rel=1e-6)
    assert two.slope_error(t) == pytest.approx(2.0 * one.slope_error(t), rel=1e-6)
    assert two.slope(t) == pytest.approx(one.slope(t), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_few_points_are_no_exception(smoother, n):
    t, y = np.linspace(0.0, 1.0, n), np.linspace(1.0, 0.2, n) ** 2
    smooth = smoother.smooth(t, y)
    found = figures(smooth, np.array([-0.1, 0.0, 0.3, 1.0, 1.2]))
    assert not np.isnan(found).any()
    assert (found[2:] >= 0.0).all()
    assert smooth.notes or n > 3


def test_one_point_is_a_constant_of_unknown_slope(smoother):
    smooth = smoother.smooth(np.array([2.0]), np.array([5.0]), sigma=np.array([0.1]))
    at = np.array([1.0, 2.0])
    assert smooth.value(at) == pytest.approx([5.0, 5.0])
    assert smooth.value_error(at) == pytest.approx([0.1, 0.1])
    assert (smooth.slope(at) == 0.0).all()
    assert np.isinf(smooth.slope_error(at)).all()
    assert "Number of distinct times: 1" in smooth.notes[0]


def test_two_points_are_a_line(smoother):
    t, y = np.array([1.0, 3.0]), np.array([0.0, 4.0])
    smooth = smoother.smooth(t, y, sigma=np.array([0.3, 0.4]))
    assert smooth.slope(t) == pytest.approx([2.0, 2.0])
    assert smooth.value_error(t) == pytest.approx([0.3, 0.4])
    assert smooth.slope_error(t) == pytest.approx([0.25, 0.25])
    unknown = smoother.smooth(t, y)
    assert np.isinf(unknown.slope_error(t)).all()
    assert any("Pass standard deviations" in note for note in unknown.notes)


def test_constant_data_are_a_constant(smoother):
    t = np.linspace(0.0, 1.0, 20)
    smooth = smoother.smooth(t, np.full(20, 3.0))
    assert smooth.value(t) == pytest.approx(np.full(20, 3.0))
    assert np.abs(smooth.slope(t)).max() < 1e-9
    assert smooth.sigma < 1e-9


def test_nothing_to_smooth_is_refused(smoother):
    for values in (np.array([]), np.array([np.nan, np.nan])):
        with pytest.raises(DataError, match=r"no measurements to smooth.*Leave this quantity out"):
            smoother.smooth(np.zeros(values.size), values)


def test_a_deviation_that_is_no_positive_number_is_refused(smoother, decay):
    t, y = decay
    with pytest.raises(DataError, match=r"40 of the standard deviations.*positive `sigma`"):
        smoother.smooth(t, y, sigma=np.zeros(40))


def test_infinite_data_are_refused(smoother):
    with pytest.raises(DataError, match="Write missing values as NaN"):
        smoother.smooth(np.array([0.0, 1.0]), np.array([0.0, np.inf]))
