"""Sentences beside a result: when several sets explain the measurements alike, and when not."""

from dataclasses import replace

import numpy as np
import pytest

import igpe
from igpe.notes import alike, passed
from igpe.result import Candidate, Parameter

K1 = Parameter("k1", 1.0, 0.1, 0.8, 1.2, "", (0.0, 10.0), "step 3")
K2 = Parameter("k2", 0.0, np.nan, np.nan, np.nan, "", (0.0, 10.0), "step 3", "on its lower bound")
LOST = Parameter("k3", 5.0, np.inf, -np.inf, np.inf, "", (0.0, 9.0), "step 4", "not determined")
ALL = (K1, K2, LOST)


def candidate(k1, k2, k3, objective, status=igpe.Status.CONVERGED):
    found = {"k1": k1, "k2": k2, "k3": k3}
    return Candidate("made up", found, found, objective, status)


BEST = candidate(1.0, 0.0, 5.0, 10.0)
OTHER = candidate(3.0, 0.0, 5.0, 13.0)


def test_another_optimum_within_chance_is_told_with_its_values():
    (note,) = alike(ALL, [BEST, OTHER], 1.0)
    assert note.startswith("Two sets of parameters explain the measurements alike: k1 = 1, k2 = 0")
    assert "k1 = 3, k2 = 0, k3 = 5 (sum of squares 13)" in note
    third = candidate(5.0, 0.0, 5.0, 13.5)
    (note,) = alike(ALL, [BEST, OTHER, replace(OTHER, origin="again"), third], 1.0)
    assert note.startswith("Three sets")


@pytest.mark.parametrize(
    ("other", "variance"),
    [
        (OTHER, 0.5),  # too much worse: 3 > 3.84 * 0.5
        (OTHER, np.nan),  # nothing tells the variance, and 30 % is no rounding
        (candidate(1.1, 0.0, 5.0, 10.0), 1.0),  # inside the interval
        (candidate(1.0, 0.0, 8.0, 10.0), 1.0),  # along what is not determined
        (candidate(1.0, 1e-6, 5.0, 10.0), 1.0),  # on the bound, but for rounding
        (candidate(3.0, 0.0, 5.0, 10.0, igpe.Status.FAILED), 1.0),
        (candidate(3.0, 0.0, 5.0, np.inf), 1.0),
    ],
)
def test_what_is_no_other_set(other, variance):
    assert alike(ALL, [BEST, other], variance) == []


def test_off_a_bound_is_another_set():
    assert alike(ALL, [BEST, candidate(1.0, 0.5, 5.0, 10.0)], 1.0)


def test_without_a_variance_equal_to_a_thousandth_is_alike():
    assert alike(ALL, [BEST, replace(OTHER, objective=10.005)], np.nan)


def test_what_was_not_followed_is_counted():
    assert passed(0) == []
    assert passed(3)[0].startswith("3 more local optima of step 3")
