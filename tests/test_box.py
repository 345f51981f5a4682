"""Unknowns with names and bounds."""

import numpy as np
import pytest

from igpe.core.box import Box
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Linearised

BOX = Box(("a", "b", "c"), np.array([0.0, -1.0, 1e-3]), np.array([10.0, 1.0, 1e3]))


def test_names_lead_to_values_and_back():
    values = {"c": 3.0, "a": 1.0, "b": 0.5, "stranger": 9.0}
    assert BOX.vector(values).tolist() == [1.0, 0.5, 3.0]
    assert BOX.mapping(np.array([1.0, 0.5, 3.0])) == {"a": 1.0, "b": 0.5, "c": 3.0}
    assert BOX.select(["c", "a"]).upper.tolist() == [1e3, 10.0]
    assert BOX.without(["b"]).names == ("a", "c")
    assert len(BOX.without(BOX.names)) == 0
    assert len(BOX.select([])) == 0


def test_clip_and_bounded():
    assert BOX.clip(np.array([-5.0, 5.0, 5.0])).tolist() == [0.0, 1.0, 5.0]
    assert BOX.bounded
    assert not Box(("a",), np.array([0.0]), np.array([np.inf])).bounded


@pytest.mark.parametrize("count", [1, 2, 3, 64, 100])
def test_sobol_points_are_inside_seeded_and_the_same(count):
    points = BOX.sobol(count, seed=3)
    assert points.shape == (count, 3)
    assert ((points >= BOX.lower) & (points <= BOX.upper)).all()
    assert points.tolist() == BOX.sobol(count, seed=3).tolist()
    assert points.tolist() != BOX.sobol(count, seed=4).tolist()


def test_sobol_points_also_spread_over_orders_of_magnitude():
    c = BOX.sobol(64, seed=0)[:, 2]
    counts, _ = np.histogram(np.log10(c), bins=[-3, -2, -1, 0, 1, 2, 3])
    assert (counts >= 4).all()
    half, _ = np.histogram(c, bins=[0, 500, 1000])
    assert half[1] >= 12


@pytest.mark.parametrize("seed", range(10))
def test_both_kinds_of_points_fill_every_axis(seed):
    """Points of one kind in half a range would never see the other half at that scale."""
    n = 5
    wide = Box(tuple("abcde"), np.full(n, 1e-4), np.ones(n))
    points = wide.sobol(64, seed)
    kind = np.median(points, axis=1) < 0.05  # spread over orders of magnitude: mostly small
    for chosen, scaled in ((kind, np.log10(points) / 4 + 1), (~kind, points)):
        assert 24 <= chosen.sum() <= 40
        assert (np.ptp(scaled[chosen], axis=0) > 0.75).all()


def test_sobol_without_unknowns():
    assert BOX.select([]).sobol(4, seed=0).shape == (4, 0)


AT_BOUNDS = [
    (0.0, 10.0, 0.0, True),
    (0.0, 10.0, 10.0, True),
    (0.0, 10.0, 10.0 - 1e-9, True),
    (0.0, 10.0, 1e-12, True),
    (0.0, 1000.0, 1.95e-7, False),
    (0.0, np.inf, 1.95e-10, False),
    (0.0, 10.0, 1e-3, False),
    (0.0, 10.0, 5.0, False),
    (0.0, 1e6, 1e-2, False),
    (1e-3, 1e3, 1e-3, True),
    (1e-3, 1e3, 1.1e-3, False),
    (-np.inf, np.inf, 0.0, False),
    (0.0, np.inf, 0.0, True),
    (0.0, np.inf, 3.0, False),
    (-1.0, 1.0, 0.0, False),
]


@pytest.mark.parametrize(("lower", "upper", "value", "said"), AT_BOUNDS)
def test_on_bounds_without_residuals(lower, upper, value, said):
    box = Box(("a",), np.array([lower]), np.array([upper]))
    assert on_bounds(np.array([value]), None, box).tolist() == [said]


WIDE = Box(("k",), np.array([1e-12]), np.array([1e12]))


@pytest.mark.parametrize(("value", "effect", "said"), [(0.3, 100.0, False), (0.3, 1e-5, True)])
def test_very_wide_bounds_hold_what_residuals_do_not_show(value, effect, said):
    """The value is 3e-13 of the width from its lower bound."""
    at = Linearised(np.array([1.0, -1.0]), np.full((2, 1), effect))
    assert on_bounds(np.array([value]), at, WIDE).tolist() == [said]
