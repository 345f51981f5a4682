"""BootstrapErrors errors: honest, repeatable, and the smoother's own curve untouched."""

import numpy as np
import pytest

import igpe
from igpe.smoothing.gcv_spline import BootstrapErrors, Interpolation

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
