"""Sentences beside a result: when several sets of values explain the data alike."""

from dataclasses import replace

import numpy as np

from igpe.estimation.summary import passed, several
from igpe.results.result_data import Optimum, Parameter

K1 = Parameter("k1", 1.0, 0.1, 0.8, 1.2, "", (0.0, 10.0), "step 3")
K2 = Parameter("k2", 0.0, np.nan, 0.0, 0.3, "", (0.0, 10.0), "step 3", "on its lower bound")


def other(k1, objective):
    return Optimum((replace(K1, value=k1), K2), objective)


def test_other_optima_are_told_with_their_values():
    assert several([K1, K2], []) == []
    (note,) = several([K1, K2], [other(3.0, 13.0)])
    assert note.startswith("Two sets of values explain the data alike: k1 = 1, k2 = 0")
    assert "k1 = 3, k2 = 0 (sum of squares 13)" in note
    (note,) = several([K1, K2], [other(3.0, 13.0), other(5.0, 13.5)])
    assert note.startswith("Three sets")


def test_of_very_many_only_some_are_listed():
    (note,) = several([K1, K2], [other(float(k), 13.0) for k in range(2, 14)])
    assert note.startswith("13 sets")
    assert "and 7 more" in note


def test_what_was_not_followed_is_counted():
    assert passed(0) == []
    assert passed(3)[0].startswith("3 more local optima of step 3")
