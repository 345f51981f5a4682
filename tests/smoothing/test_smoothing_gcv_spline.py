"""The smoothing spline, its penalty, its errors and its cost."""

import numpy as np
import pytest
from scipy.interpolate import make_smoothing_spline

from igpe.smoothing.gcv_spline import GcvSpline
from igpe.smoothing.penalised import prepare, scaled_problem

NATURAL = GcvSpline(boundary_correction=False)


def wave(n, noise=0.02, seed=3, end=7.0):
    rng = np.random.default_rng(seed)
    t = end * (np.arange(n) + rng.uniform(0.0, 0.95, n)) / n  # gaps of 0.05 ... 1.95 spacings
    return t, np.sin(t) + noise * rng.standard_normal(n)


def inverse_dense(band):
    """The inverse of the symmetric matrix of a lower band."""
    full = np.diag(band[0])
    for k in range(1, len(band)):
        full += np.diag(band[k, :-k], k) + np.diag(band[k, :-k], -k)
    return np.linalg.inv(full)


@pytest.mark.parametrize("n", [10, 60, 200])
@pytest.mark.parametrize("factor", [0.01, 1.0, 100.0])
def test_without_correction_it_is_the_smoothing_spline_of_scipy(n, factor):
    t, y = wave(n)
    ours = GcvSpline(boundary_correction=False, penalty_factor=factor).smooth(t, y)
    theirs = make_smoothing_spline(t, y, lam=ours.penalty)
    at = np.linspace(t[0], t[-1], 500)
    assert ours.value(at) == pytest.approx(theirs(at), abs=1e-8)
    assert ours.slope(at) == pytest.approx(theirs.derivative()(at), abs=1e-6)


def test_weights_are_inverse_squares_of_sigma():
    t, y = wave(60)
    sigma = np.random.default_rng(1).uniform(0.01, 0.05, 60)
    ours = NATURAL.smooth(t, y, sigma=sigma)
    theirs = make_smoothing_spline(t, y, w=sigma**-2.0, lam=ours.penalty)
    assert ours.value(t) == pytest.approx(theirs(t), abs=1e-8)


def test_the_penalty_is_that_of_least_gcv():
    t, y = wave(80)
    ours = NATURAL.smooth(t, y)
    unit = t.size * np.ptp(t) ** 3
    problem = scaled_problem(prepare(t, y, None, None))
    fits = [problem.fit(ours.penalty / unit * f) for f in 10.0 ** np.linspace(-8.0, 3.0, 111)]
    score = problem.squares(fits) / (t.size - problem.traces(fits)[0]) ** 2
    own = problem.fit(ours.penalty / unit)
    least = problem.squares([own]) / (t.size - problem.traces([own])[0]) ** 2
    assert least[0] <= score.min() * (1.0 + 1e-4)


def test_penalty_factor_multiplies_the_penalty_of_gcv():
    t, y = wave(80)
    usual, rough = GcvSpline().smooth(t, y), GcvSpline(penalty_factor=0.01).smooth(t, y)
    assert rough.penalty == pytest.approx(0.01 * usual.penalty)
    assert rough.degrees_of_freedom > usual.degrees_of_freedom


def test_a_line_without_noise_is_found_exactly():
    t = np.linspace(0.0, 5.0, 30)
    smooth = GcvSpline().smooth(t, 3.0 - 2.0 * t)
    assert smooth.slope(t) == pytest.approx(np.full(30, -2.0))
    assert smooth.sigma < 1e-10


def test_smooth_data_without_noise_are_followed():
    t = np.linspace(0.0, 5.0, 60)
    smooth = GcvSpline().smooth(t, np.exp(-t))
    assert smooth.value(t) == pytest.approx(np.exp(-t), abs=1e-4)
    assert smooth.slope(t) == pytest.approx(-np.exp(-t), abs=5e-3)


def test_sigma_and_degrees_of_freedom_are_estimated():
    smooth = GcvSpline().smooth(*wave(500))
    assert smooth.sigma == pytest.approx(0.02, rel=0.1)
    assert 8.0 < smooth.degrees_of_freedom < 30.0


def test_correction_mends_the_slope_at_the_ends():
    t = np.linspace(0.0, 1.0, 60)
    wrong = np.zeros((2, 20))
    for seed in range(20):
        y = 1 + 2 * t - 6 * t**2 + 4 * t**3 + 0.01 * np.random.default_rng(seed).standard_normal(60)
        for row, smoother in zip(wrong, (GcvSpline(), NATURAL), strict=True):
            row[seed] = smoother.smooth(t, y).slope(t[:1])[0] - 2.0
    corrected, natural = np.sqrt((wrong**2).mean(axis=1))
    assert corrected < 0.5 * natural


def test_intervals_of_values_and_slopes_cover():
    t = np.linspace(0.0, 4.0, 50)
    value, slope = [], []
    for seed in range(200):
        y = np.exp(-t) * (1 + t) + 0.02 * np.random.default_rng(seed).standard_normal(50)
        smooth = GcvSpline().smooth(t, y)
        miss = smooth.value(t) - np.exp(-t) * (1 + t)
        value.append(np.abs(miss) <= 1.96 * smooth.value_error(t))
        slope.append(np.abs(smooth.slope(t) + t * np.exp(-t)) <= 1.96 * smooth.slope_error(t))
    assert 0.90 <= np.mean(value) <= 0.98
    assert 0.90 <= np.mean(slope) <= 0.98


def test_errors_are_those_of_the_dense_posterior():
    t, y = wave(30)
    smooth = NATURAL.smooth(t, y)
    basis, w = smooth.basis, np.full(30, 1.0)
    normal = basis.gram(basis.local(t / np.ptp(t) - t[0] / np.ptp(t)), w)
    inverse = inverse_dense(normal + smooth.penalty / np.ptp(t) ** 3 * basis.bending())
    covariance = smooth.sigma**2 * inverse
    at = np.linspace(t[0], t[-1], 57)
    for order, found in ((0, smooth.value_error(at)), (1, smooth.slope_error(at))):
        rows = basis.dense((at - t[0]) / np.ptp(t), order) / np.ptp(t) ** order
        expected = np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows))
        assert found == pytest.approx(expected, rel=1e-6)


def test_a_sharp_feature_is_left_to_the_natural_spline():
    t = np.linspace(0.0, 1.0, 300)
    y = np.exp(-(((t - 0.4) / 0.01) ** 2))
    noisy = y + 0.02 * np.random.default_rng(1).standard_normal(300)
    assert np.abs(GcvSpline().smooth(t, noisy).value(t) - y).max() < 0.1


def test_many_times_are_a_regression_spline_as_good():
    t = np.linspace(0.0, 7.0, 12_000)
    y = np.sin(t) + 0.02 * np.random.default_rng(5).standard_normal(t.size)
    smooth = GcvSpline().smooth(t, y)
    assert smooth.sigma == pytest.approx(0.02, rel=0.03)
    assert (np.abs(smooth.value(t) - np.sin(t)) < 4.0 * smooth.value_error(t)).all()
    assert (np.abs(smooth.slope(t) - np.cos(t)) < 4.0 * smooth.slope_error(t)).all()
    assert smooth.value_error(t).max() < 0.005


def test_two_hundred_thousand_points():
    t = np.linspace(0.0, 7.0, 200_000)
    y = np.sin(t) + 0.02 * np.random.default_rng(5).standard_normal(t.size)
    smooth = GcvSpline().smooth(t, y)
    off = np.abs(smooth.slope(t) - np.cos(t))
    assert (off < 5.0 * smooth.slope_error(t)).all()
    assert off.max() < 0.1


def test_autocorrelated_residuals_of_a_stiff_curve_are_told():
    t = np.linspace(0.0, 1.0, 40)
    y = np.sin(9.0 * t)
    told = GcvSpline(penalty_factor=1e9).smooth(t, y).notes
    assert any("autocorrelated" in note and "penalty_factor" in note for note in told)


def test_finding_no_noise_is_told():
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0.0, 7.0, 10))
    told = GcvSpline().smooth(t, np.sin(t) + 0.02 * rng.standard_normal(10)).notes
    assert any("almost no smoothing" in note for note in told)


def test_a_given_sigma_that_is_far_off_is_told():
    t, y = wave(60)
    told = GcvSpline().smooth(t, y, sigma=np.full(60, 0.002)).notes
    assert any("times as large as the given standard deviations" in note for note in told)
    assert not GcvSpline().smooth(t, y, sigma=np.full(60, 0.02)).notes


def test_nearly_equal_and_log_spaced_times_are_harmless():
    t = np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 50), [1.0 + 1e-12]])
    y = np.exp(-3.0 * t) + 0.01 * np.random.default_rng(2).standard_normal(t.size)
    smooth = GcvSpline().smooth(t, y)
    at = np.linspace(0.0, 1.0, 20)
    assert np.abs(smooth.value(at) - np.exp(-3.0 * at)).max() < 0.05


def test_a_value_repeated_counts_twice():
    t, y = wave(30)
    twice = NATURAL.smooth(np.repeat(t, 2), np.repeat(y, 2))
    theirs = make_smoothing_spline(t, y, w=np.full(30, 2.0), lam=twice.penalty)
    assert twice.value(t) == pytest.approx(theirs(t), abs=1e-8)
