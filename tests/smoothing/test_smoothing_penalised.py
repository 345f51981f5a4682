"""The fit, its trace and sums of squares against dense formulas."""

import numpy as np
import pytest

from igpe.smoothing.gcv_spline import GcvSpline
from igpe.smoothing.penalised import MOST_BREAKS, _design, prepare, scaled_problem

PENALTY = 1e-5


def problem_of(n):
    rng = np.random.default_rng(n)
    t = np.sort(rng.uniform(0.0, 3.0, n))
    return scaled_problem(prepare(t, np.exp(-t) + 0.02 * rng.standard_normal(n), None, None))


def dense_of(band):
    full = np.diag(band[0])
    for k in range(1, 4):
        off = band[k, : band.shape[1] - k]
        full += np.diag(off, k) + np.diag(off, -k)
    return full


@pytest.fixture
def problem():
    return problem_of(40)


def test_the_fit_is_that_of_the_dense_formula(problem):
    B, W = problem.design.basis.dense(problem.design.u), np.diag(problem.design.w)
    A = B.T @ W @ B + PENALTY * dense_of(problem.design.bending)
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
