"""Directions that are not determined are named, relative to the unknowns."""

import numpy as np
import pytest

from igpe.numerics.least_squares.active import undetermined


def test_a_product_leaves_its_ratio_open():
    x = np.array([2.0, 300.0, 1.0])
    slope = np.array([x[1], x[0], 0.0])  # of x0 x1
    jacobian = np.array([slope, 2 * slope, [0.0, 0.0, 1.0]])
    (found,) = undetermined(jacobian, x, ("a", "b", "c"))
    assert found.names == ("a", "b")
    assert found.change[0] == pytest.approx(-found.change[1])
    assert np.abs(found.change).max() == 1.0
    moved = jacobian[:, :2] @ (found.change * x[:2])
    assert moved == pytest.approx(np.zeros(3), abs=1e-9)
    assert "a and b together" in found.sentence


def test_unknowns_without_effect_are_named_one_by_one():
    jacobian = np.zeros((5, 3))
    jacobian[:, 1] = 1.0
    found = undetermined(jacobian, np.array([1e-6, 1.0, 1e6]), ("a", "b", "c"))
    assert sorted(d.sentence for d in found) == [
        "The measurements do not determine a.",
        "The measurements do not determine c.",
    ]


def test_fewer_residuals_than_unknowns_leave_the_difference():
    jacobian = np.random.default_rng(3).normal(size=(2, 5))
    found = undetermined(jacobian, np.ones(5), "abcde")
    assert len(found) == 3
    for d in found:
        full = np.zeros(5)
        full[["abcde".index(n) for n in d.names]] = d.change
        assert jacobian @ full == pytest.approx(np.zeros(2), abs=0.3)  # small parts are left out


def test_what_is_determined_however_weakly_is_not_named():
    jacobian = np.diag([1.0, 1e-5])
    assert undetermined(jacobian, np.ones(2), ("a", "b")) == []
