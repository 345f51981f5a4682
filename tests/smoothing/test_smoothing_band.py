"""Band algebra and B-splines against dense matrices."""

import numpy as np
import pytest
from scipy.interpolate import BSpline
from scipy.linalg import cholesky_banded, solveh_banded

from igpe.smoothing.penalised import CubicBasis, inverse_band, inverse_bands, multiply

UNEVEN = np.array([0.0, 0.01, 0.2, 0.25, 0.6, 0.61, 1.0])


def dense(band):
    """The symmetric matrix of a lower band."""
    n = band.shape[1]
    full = np.diag(band[0])
    for k in range(1, len(band)):
        full += np.diag(band[k, : n - k], -k) + np.diag(band[k, : n - k], k)
    return full


def normal_band(n, rng):
    """B'B of random points, a positive definite band matrix."""
    basis = CubicBasis(np.linspace(0.0, 1.0, n - 2))
    u = np.sort(rng.uniform(0.0, 1.0, 20 * n))
    return basis.gram(basis.local(u), np.ones(u.size))


@pytest.mark.parametrize("order", [0, 1, 2])
def test_basis_and_its_derivatives_agree_with_scipy(order):
    basis = CubicBasis(UNEVEN)
    u = np.linspace(0.0, 1.0, 57)
    c = np.random.default_rng(0).standard_normal(basis.size)
    theirs = BSpline(basis.knots, c, 3).derivative(order) if order else BSpline(basis.knots, c, 3)
    assert basis.local(u, order).combine(c) == pytest.approx(theirs(u), rel=1e-10, abs=1e-9)


def test_centres_are_the_coefficients_of_time_itself():
    basis = CubicBasis(UNEVEN)
    u = np.linspace(0.0, 1.0, 30)
    assert basis.local(u).combine(basis.centres) == pytest.approx(u, abs=1e-14)


def test_bending_of_a_cubic_is_its_integral():
    basis = CubicBasis(UNEVEN)
    t = basis.knots
    cube = t[1:-3] * t[2:-2] * t[3:-1]  # blossom of u^3, whose integral of (6u)^2 is 12
    assert cube @ multiply(basis.bending(), cube) == pytest.approx(12.0)


def test_product_with_a_band_matrix():
    rng = np.random.default_rng(1)
    band = normal_band(30, rng)
    x = rng.standard_normal((30, 2))
    assert multiply(band, x) == pytest.approx(dense(band) @ x)
    assert multiply(band, x[:, 0]) == pytest.approx(dense(band) @ x[:, 0])


def test_bands_of_several_inverses():
    rng = np.random.default_rng(2)
    bands = [normal_band(25, rng), 3.0 * normal_band(25, rng)]
    found = inverse_bands(np.stack([cholesky_banded(b, lower=True) for b in bands]))
    for band, inverse in zip(bands, found, strict=True):
        full = np.linalg.inv(dense(band))
        for k in range(4):
            assert inverse[k, : 25 - k] == pytest.approx(np.diag(full, -k), rel=1e-9)


@pytest.mark.parametrize("n", [4, 9, 64, 65, 1000])
def test_band_of_the_inverse_whatever_the_pieces(n):
    """Columns of the inverse by solving; a stiff spline's inverse does not decay over pieces."""
    basis = CubicBasis(np.linspace(0.0, 1.0, n - 2))
    points = basis.local(np.linspace(0.0, 1.0, 5 * n))
    data = basis.gram(points, np.full(5 * n, 0.2 / n))
    for penalty in (1e-9, 1e-2):
        band = data + penalty * basis.bending()
        found = inverse_band(band)
        for j in {0, 1, n // 3, n // 2, n - 2, n - 1}:
            column = solveh_banded(band, np.eye(n)[j], lower=True)
            last = min(j + 4, n)
            told = [found[i - j, j] for i in range(j, last)]
            assert told == pytest.approx(column[j:last], rel=1e-6)


def test_variance_is_the_quadratic_form():
    rng = np.random.default_rng(4)
    basis = CubicBasis(np.linspace(0.0, 1.0, 23))
    band = normal_band(25, rng)
    local = basis.local(np.array([0.0, 0.33, 0.5, 1.0]))
    rows = basis.dense(np.array([0.0, 0.33, 0.5, 1.0]))
    expected = np.einsum("ij,jk,ik->i", rows, dense(band), rows)
    assert local.variance(band) == pytest.approx(expected)
