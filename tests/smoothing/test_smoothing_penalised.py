"""Band algebra, B-splines, the fit, its trace and sums of squares against dense matrices."""

import numpy as np
import pytest
from bands import dense
from scipy.interpolate import BSpline
from scipy.linalg import cholesky_banded, solveh_banded

from igpe.smoothing.gcv_spline import GcvSpline
from igpe.smoothing.penalised import (
    MOST_BREAKS,
    CubicBasis,
    _design,
    inverse_band,
    inverse_bands,
    multiply,
    prepare,
    scaled_problem,
)

PENALTY = 1e-5


def problem_of(n):
    rng = np.random.default_rng(n)
    t = np.sort(rng.uniform(0.0, 3.0, n))
    return scaled_problem(prepare(t, np.exp(-t) + 0.02 * rng.standard_normal(n), None, None))


@pytest.fixture
def problem():
    return problem_of(40)


def test_the_fit_is_that_of_the_dense_formula(problem):
    B, W = problem.design.basis.dense(problem.design.u), np.diag(problem.design.w)
    A = B.T @ W @ B + PENALTY * dense(problem.design.bending)
    H = B @ np.linalg.solve(A, B.T @ W)
    fit = problem.fit(PENALTY)
    assert problem.y - problem.residuals(fit.coefficients) == pytest.approx(H @ problem.y, abs=1e-9)
    assert problem.traces([fit])[0][0] == pytest.approx(np.trace(H), rel=1e-8)


@pytest.mark.parametrize("n", [10, 33, 60])
def test_the_trace_without_penalty_and_with_much(n):
    """Two coefficients more than data are held by the penalty alone: A is nearly singular."""
    t = np.linspace(0.0, 1.0, n)
    problem = scaled_problem(prepare(t, np.sin(t), None, None))
    fits = [problem.fit(penalty) for penalty in (1e-18, 1.0)]
    through, line = problem.traces(fits)[0]
    assert through == pytest.approx(n, abs=1e-2)
    assert line == pytest.approx(2.0, abs=1e-2)


def test_without_correction_the_curve_is_natural():
    problem = problem_of(40)
    fit = problem.fit(PENALTY)
    bends = problem.design.basis.local(np.array([0.0, 0.5, 1.0]), order=2).combine(fit.coefficients)
    assert np.abs(bends[[0, 2]]).max() < 1e-7 * abs(bends[1])


def test_sums_of_squares_need_no_pass_over_the_data(problem):
    fits = [problem.fit(x) for x in (1e-9, 1e-6, 1e-3, 1.0)]
    direct = [np.sum(problem.design.w * problem.residuals(fit.coefficients) ** 2) for fit in fits]
    assert problem.squares(fits) == pytest.approx(direct, rel=1e-9)


def test_too_small_a_penalty_is_a_value_not_an_exception(problem):
    assert problem.fit(1e-300) is None or np.isfinite(problem.fit(1e-300).coefficients).all()


@pytest.mark.parametrize("n", [MOST_BREAKS, MOST_BREAKS + 1, 20_000])
def test_the_number_of_breaks_is_bounded(n):
    t = np.linspace(0.0, 1.0, n)
    breaks = scaled_problem(prepare(t, t**2, None, None)).design.basis.breaks
    assert breaks.size == MOST_BREAKS
    assert (breaks[0], breaks[-1]) == (0.0, 1.0)


def test_times_very_near_each_other_share_a_break():
    t = np.array([0.0, 1e-9, 0.3, 0.3 + 1e-9, 0.6, 1.0 - 1e-9, 1.0])
    breaks = scaled_problem(prepare(t, t**2, None, None)).design.basis.breaks
    assert breaks == pytest.approx([0.0, 0.3, 0.6, 1.0])


def test_what_quantities_share_does_not_depend_on_which_came_first():
    t, rng = np.linspace(0, 4, 30), np.random.default_rng(4)
    one, other = (f(t) + 0.1 * rng.standard_normal(30) for f in (np.sin, np.exp))
    alone = GcvSpline().smooth(t, other).value(t)
    _design.cache_clear()
    GcvSpline().smooth(t, one)
    assert (GcvSpline().smooth(t, other).value(t) == alone).all()
    assert _design.cache_info().hits  # the same times and weights


# Band algebra and B-splines against dense matrices.


UNEVEN = np.array([0.0, 0.01, 0.2, 0.25, 0.6, 0.61, 1.0])


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
