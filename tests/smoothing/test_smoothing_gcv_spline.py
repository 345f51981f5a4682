"""The smoothing spline, its penalty, its errors and its cost."""

import numpy as np
import pytest
from bands import dense
from scipy.interpolate import make_interp_spline, make_smoothing_spline

import igpe
from igpe.smoothing.gcv_spline import (
    BREAKS,
    ORDERS,
    BootstrapErrors,
    GcvSpline,
    Interpolation,
    allowed,
    averaged,
    roughness,
)
from igpe.smoothing.penalised import prepare, scaled_problem

NATURAL = GcvSpline(boundary_correction=False)


def wave(n, noise=0.02, seed=3, end=7.0):
    rng = np.random.default_rng(seed)
    t = end * (np.arange(n) + rng.uniform(0.0, 0.95, n)) / n  # gaps of 0.05 ... 1.95 spacings
    return t, np.sin(t) + noise * rng.standard_normal(n)


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
    band = normal + smooth.penalty / np.ptp(t) ** 3 * basis.bending()
    covariance = smooth.sigma**2 * np.linalg.inv(dense(band))
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


@pytest.mark.parametrize("n", [12_000, 200_000])
def test_many_times_are_a_regression_spline_as_good(n):
    t = np.linspace(0.0, 7.0, n)
    y = np.sin(t) + 0.02 * np.random.default_rng(5).standard_normal(t.size)
    smooth = GcvSpline().smooth(t, y)
    assert smooth.sigma == pytest.approx(0.02, rel=0.03)
    assert (np.abs(smooth.value(t) - np.sin(t)) < 4.0 * smooth.value_error(t)).all()
    assert (np.abs(smooth.slope(t) - np.cos(t)) < 5.0 * smooth.slope_error(t)).all()
    assert smooth.value_error(t).max() < 0.005


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


# Penalties on the fourth and fifth derivative, and their average.


def coarse(t, y):
    return scaled_problem(prepare(t, y, None, None), BREAKS)


@pytest.fixture
def problem():
    rng = np.random.default_rng(4)
    t = np.sort(rng.uniform(0.0, 1.0, 60))
    return coarse(t, np.exp(-2.0 * t) + 0.02 * rng.standard_normal(60))


@pytest.mark.parametrize("order", ORDERS)
def test_a_polynomial_of_degree_three_is_not_rough(problem, order):
    t = problem.design.basis.knots
    omega = roughness(problem.design, order)
    cube = t[1:-3] * t[2:-2] * t[3:-1]  # blossom of u^3
    assert abs(cube @ omega @ cube) < 1e-9 * np.abs(omega).max()


def test_roughness_of_order_four_is_the_integral(problem):
    f = np.poly1d([1.0, 0.0, 0.0, 0.0, 0.0])  # fourth derivative 24
    u = np.linspace(0.0, 1.0, 2000)
    c = np.linalg.lstsq(problem.design.basis.dense(u), f(u), rcond=None)[0]
    assert c @ roughness(problem.design, 4) @ c == pytest.approx(24.0**2, rel=0.1)


def test_the_curve_of_cubic_data_is_the_cubic():
    t = np.linspace(0.0, 2.0, 30)
    smooth = GcvSpline(penalty_factor=1e3).smooth(t, (t - 0.7) ** 3)
    assert smooth.value(t) == pytest.approx((t - 0.7) ** 3, abs=1e-8)
    assert smooth.slope(t) == pytest.approx(3.0 * (t - 0.7) ** 2, abs=1e-6)


def test_trace_and_covariance_belong_together(problem):
    found = averaged(problem, 1.0)
    variance = problem.design.local.variance(found.band)
    assert found.trace == pytest.approx(problem.design.w @ variance, rel=1e-6)


def test_few_or_uneven_times_allow_no_high_order():
    assert allowed(np.linspace(0.0, 1.0, 8), 4)
    assert not allowed(np.linspace(0.0, 1.0, 8), 5)
    assert not allowed(np.append(np.linspace(0.0, 0.5, 30), 1.0), 4)


# The spline through the data and the errors it carries on.


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    t = np.sort(rng.uniform(0.0, 5.0, 25))
    return t, np.cos(t), rng.uniform(0.01, 0.05, 25)


def test_it_is_the_spline_of_scipy(data):
    t, y, _ = data
    at = np.linspace(t[0], t[-1], 200)
    spline = make_interp_spline(t, y)
    smooth = Interpolation().smooth(t, y)
    assert smooth.value(at) == pytest.approx(spline(at), abs=1e-10)
    assert smooth.slope(at) == pytest.approx(spline.derivative()(at), abs=1e-8)
    assert (smooth.degrees_of_freedom, smooth.penalty) == (25.0, 0.0)


def test_errors_are_those_of_the_data_carried_through(data):
    t, y, sigma = data
    at = np.linspace(t[0], t[-1], 40)
    smooth = Interpolation().smooth(t, y, sigma=sigma)
    responses = make_interp_spline(t, np.diag(sigma))
    value = np.sqrt((responses(at) ** 2).sum(axis=1))
    slope = np.sqrt((responses.derivative()(at) ** 2).sum(axis=1))
    assert smooth.value_error(t) == pytest.approx(sigma, rel=1e-6)
    assert smooth.value_error(at) == pytest.approx(value, rel=1e-6)
    assert smooth.slope_error(at) == pytest.approx(slope, rel=1e-6)


def test_three_points_are_a_parabola():
    t = np.array([0.0, 1.0, 3.0])
    smooth = Interpolation().smooth(t, t**2)
    assert smooth.slope(np.array([2.0])) == pytest.approx([4.0])
    assert "parabola" in smooth.notes[0]


def test_noise_comes_from_local_differences():
    t = np.linspace(0.0, 1.0, 400)
    y = np.sin(t) + 0.03 * np.random.default_rng(6).standard_normal(400)
    smooth = Interpolation().smooth(t, y)
    assert smooth.sigma == pytest.approx(0.03, rel=0.1)
    assert "curvature counts as noise" in smooth.notes[0]


def test_a_long_series_is_quick():
    t = np.linspace(0.0, 1.0, 50_000)
    smooth = Interpolation().smooth(t, t**2, sigma=np.full(t.size, 0.1))
    assert smooth.value_error(t[::500]) == pytest.approx(np.full(100, 0.1))


# BootstrapErrors errors: honest, repeatable, and the smoother's own curve untouched.


T = np.linspace(0.0, 3.0, 40)
SIGMA = 0.03


def noisy(seed=0):
    return np.exp(-T) + SIGMA * np.random.default_rng(seed).standard_normal(len(T))


@pytest.mark.parametrize("sigma", [None, np.full(len(T), SIGMA)])
def test_the_curve_is_the_smoothers_own(sigma):
    plain = igpe.smoothing.GcvSpline().smooth(T, noisy(), sigma=sigma)
    curve = BootstrapErrors(samples=3).smooth(T, noisy(), sigma=sigma)
    for name in ("value", "slope"):
        np.testing.assert_array_equal(getattr(curve, name)(T), getattr(plain, name)(T))
    for name in ("degrees_of_freedom", "sigma", "penalty", "notes"):
        assert getattr(curve, name) == getattr(plain, name)


def test_the_same_seed_gives_the_same_errors():
    one, two, other = (
        BootstrapErrors(samples=5, seed=s).smooth(T, noisy()).slope_error(T) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert (one != other).all()


@pytest.mark.parametrize("known", [False, True])
def test_of_a_linear_smoother_they_are_the_errors_by_formula(known):
    """An interpolation with given deviations: cov(c) is exact, and Monte Carlo must meet it."""
    sigma = np.full(len(T), SIGMA)
    curve = BootstrapErrors(Interpolation(), samples=400).smooth(T, noisy(), sigma=sigma)
    plain = Interpolation().smooth(T, noisy(), sigma=sigma)
    name = "value_error" if known else "slope_error"
    ratio = getattr(curve, name)(T) / getattr(plain, name)(T)
    assert np.sqrt(np.mean(ratio**2)) == pytest.approx(1.0, abs=0.05)


def test_intervals_of_the_slope_cover_the_truth():
    hits = [
        np.abs(curve.slope(T) + np.exp(-T)) <= 1.96 * curve.slope_error(T)
        for curve in (BootstrapErrors(samples=30).smooth(T, noisy(k)) for k in range(12))
    ]
    assert 0.85 <= np.mean(hits) <= 0.99


def test_missing_and_exact_values_stay_so():
    y = noisy()
    y[7], y[0] = np.nan, 1.0
    exact = np.arange(len(T)) == 0
    curve = BootstrapErrors(samples=10).smooth(T, y, exact=exact)
    assert curve.value_error(T)[0] == pytest.approx(0.0, abs=1e-5)
    assert curve.value_error(T)[7] > 0.1 * SIGMA


def test_without_residuals_the_smoothers_own_errors_remain():
    plain = Interpolation().smooth(T, noisy())
    curve = BootstrapErrors(Interpolation()).smooth(T, noisy())
    np.testing.assert_array_equal(curve.slope_error(T), plain.slope_error(T))


def test_the_seed_of_the_settings_reaches_it():
    settings = igpe.Settings(ladder=(BootstrapErrors(), igpe.smoothing.GcvSpline())).seeded(5)
    assert settings.ladder[0].seed == 5
    assert settings.ladder[1] == igpe.smoothing.GcvSpline()
