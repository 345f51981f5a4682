"""Gross errors are left out before smoothing, and nothing else is."""

from typing import Any

import numpy as np
import pytest

import igpe
from igpe.smoothing.base import FEWEST, description, without_gross_errors
from igpe.smoothing.gcv_spline import GcvSpline

TIMES = np.linspace(0.0, 10.0, 50)
SIGMA = 0.02


def course(times):
    """A decay with a peak."""
    return np.exp(-0.3 * times) + 0.8 * np.exp(-(((times - 4) / 1.2) ** 2))


def measured(seed):
    return course(TIMES) + SIGMA * np.random.default_rng(seed).standard_normal(len(TIMES))


def left_out(values, **given):
    found = without_gross_errors(GcvSpline(), TIMES, values, **given)
    kept = np.isfinite(found)
    assert (found[kept] == values[kept]).all()
    return set(np.flatnonzero(~kept & np.isfinite(values)).tolist())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [(1.0, -0.7, 0.9, -1.0, 0.8), (9.0,) * 5])
@pytest.mark.parametrize("sigma", [None, np.full(len(TIMES), SIGMA)])
def test_one_in_ten_is_found_of_either_size(seed, size, sigma):
    values = measured(seed)
    bad = np.random.default_rng([seed, 1]).choice(len(values), 5, replace=False)
    values[bad] += size
    found = left_out(values, sigma=sigma)
    assert found >= set(bad.tolist())
    assert len(found) <= 7


@pytest.mark.parametrize("seed", range(10))
def test_good_measurements_stay(seed):
    assert len(left_out(measured(seed))) <= 1


def test_exact_data_stay():
    assert left_out(course(TIMES)) == set()
    assert left_out(np.full(len(TIMES), 3.0)) == set()


def test_an_exact_value_stays_and_a_missing_one_is_missing():
    values, exact = measured(0), TIMES == 0
    values[0], values[7], values[20] = course(0.0), np.nan, 8.0
    assert left_out(values, exact=exact) == {20}


def test_few_measurements_stay():
    few = slice(0, FEWEST - 1)
    values = measured(0)[few]
    values[4] += 10
    assert (without_gross_errors(GcvSpline(), TIMES[few], values) == values).all()


# Each smoother says what it makes of the data.


class Mine:
    """A user's smoother, which has no description."""

    def smooth(self, times: Any, values: Any, **given: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("smoother", "expected"),
    [
        (igpe.smoothing.GcvSpline(), "smoothed data"),
        (
            igpe.smoothing.GcvSpline(penalty_factor=0.1),
            "data smoothed with 0.1 times the GCV penalty",
        ),
        (igpe.smoothing.Interpolation(), "interpolated data"),
        (
            igpe.smoothing.BootstrapErrors(igpe.smoothing.Interpolation()),
            "interpolated data (errors by bootstrap)",
        ),
        (Mine(), "data smoothed by Mine"),
    ],
)
def test_a_smoother_says_what_it_makes_of_the_data(smoother: Any, expected: str) -> None:
    assert description(smoother) == expected
