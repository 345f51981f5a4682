"""The spline through the data and the errors it carries on."""

import numpy as np
import pytest
from scipy.interpolate import make_interp_spline

from igpe.smoothing.gcv_spline import Interpolation


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
