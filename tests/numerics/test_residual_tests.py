"""Tests of residuals: right level, and power against what they are for."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from scipy.stats import shapiro

from igpe.numerics.lack_of_fit import (
    all_tests,
    ljung_box,
    normality,
    outlier_p,
    runs_test,
    studentised,
)

N, TRIALS = 24, 1500


@pytest.mark.parametrize("test", [runs_test, ljung_box, normality])
def test_independent_normal_errors_pass_as_often_as_they_should(test):
    random = np.random.default_rng(3)
    p = np.array([test(random.standard_normal(N)).p for _ in range(TRIALS)])
    assert 0.02 < np.mean(p < 0.05) < 0.075


@pytest.mark.parametrize(
    ("test", "spoil"),
    [
        (runs_test, lambda e: e + 2.5 * np.sin(np.linspace(0, 5, N))),
        (ljung_box, lambda e: np.convolve(e, [0.9, 0.8, 0.7], "same")),
        (normality, lambda e: e**3),
    ],
)
def test_what_they_look_for_is_found(test, spoil):
    random = np.random.default_rng(4)
    p = np.array([test(spoil(random.standard_normal(N))).p for _ in range(200)])
    assert np.mean(p < 0.05) > 0.7


def test_runs_are_counted_exactly():
    """Against all orders of four plus and three minus."""
    signs = [1, 1, 1, 1, -1, -1, -1]
    orders = set(permutations(signs))
    counts = [1 + sum(a != b for a, b in pairwise(o)) for o in orders]
    for order in ((1, 1, 1, -1, -1, -1, 1), (1, -1, 1, -1, 1, -1, 1), (1, 1, 1, 1, -1, -1, -1)):
        found = runs_test(np.array(order, dtype=float))
        expected = np.mean([c <= found.statistic for c in counts])
        assert found.p == pytest.approx(expected)


def test_many_runs_are_counted_by_their_normal_limit():
    few = np.random.default_rng(1).standard_normal(290)
    exact = runs_test(few).p
    assert runs_test(np.append(few, few[:30])).p == pytest.approx(exact, abs=0.2)
    assert runs_test(np.ones(10)).p == pytest.approx(0.5**9)


def test_ljung_and_boxs_statistic():
    r = np.random.default_rng(2).standard_normal(12)
    c = r - r.mean()
    parts = [(c[k:] @ c[:-k]) / (c @ c) for k in (1, 2)]
    assert ljung_box(r).statistic == pytest.approx(
        12 * 14 * (parts[0] ** 2 / 11 + parts[1] ** 2 / 10)
    )


@pytest.mark.parametrize("size", [8, 11, 12, 40, 5000])
def test_shapiro_and_wilks_statistic_and_probability_are_those_of_scipy(size):
    normal = np.random.default_rng(size).standard_normal(size)
    for residual in (normal, 1e-200 * normal, normal**3, np.exp(normal), np.round(normal, 1)):
        result, expected = normality(residual), shapiro(residual / np.ptp(residual))
        assert result.statistic == pytest.approx(expected.statistic, abs=1e-8)
        assert result.p == pytest.approx(expected.pvalue, rel=1e-5)
    assert normality(np.ones(size)).p == 1.0


def test_studentised_residuals_are_those_of_a_fit_without_the_measurement():
    """Externally studentised: prediction error of the others' fit over its standard error."""
    x = np.column_stack([np.ones(9), np.arange(9.0)])
    y = x @ [1.0, 0.3] + np.random.default_rng(8).standard_normal(9)
    hat = x @ np.linalg.inv(x.T @ x) @ x.T
    residual = y - hat @ y
    found = studentised(residual, np.diag(hat), 7)
    for i in range(9):
        rest = np.arange(9) != i
        beta, cost, *_ = np.linalg.lstsq(x[rest], y[rest], rcond=None)
        s2 = cost[0] / 6
        spread = s2 * (1 + x[i] @ np.linalg.inv(x[rest].T @ x[rest]) @ x[i])
        assert found[i] == pytest.approx((y[i] - x[i] @ beta) / np.sqrt(spread))
    assert studentised(residual, np.diag(hat), None) == pytest.approx(
        residual / np.sqrt(1 - np.diag(hat))
    )


def test_an_outlier_is_judged_among_all():
    p = outlier_p(np.array([0.1, 3.0, 4.5]), None)
    assert p == pytest.approx([1.0, 3 * 2 * 0.0013499, 3 * 2 * 3.398e-6], rel=1e-3)
    assert outlier_p(np.array([3.0]), 5) > outlier_p(np.array([3.0]), None)
    assert np.isnan(studentised(np.ones(3), np.zeros(3), 1)).all()


def test_too_few_are_not_tested():
    assert all_tests(np.ones(7)) == []
    assert [t.test for t in all_tests(np.arange(8.0))] == ["runs", "autocorrelation", "normality"]
    times = np.repeat([1.0, 2.0], 4)
    assert [t.test for t in all_tests(np.arange(8.0), times)] == ["normality"]  # replicates
