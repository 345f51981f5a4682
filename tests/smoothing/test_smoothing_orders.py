"""Penalties on the fourth and fifth derivative, and their average."""

import numpy as np
import pytest

from igpe.smoothing.gcv_spline import (
    BREAKS,
    ORDERS,
    GcvSpline,
    allowed,
    averaged,
    roughness,
)
from igpe.smoothing.penalised import prepare, scaled_problem


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
