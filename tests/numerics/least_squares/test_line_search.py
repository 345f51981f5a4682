"""The classical search: right near an optimum, and honest about where it gives up."""

import numpy as np
import pytest

from igpe.core.box import Box
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.gauss_newton import LineSearch


def box(n, lower=-np.inf, upper=np.inf):
    """n unknowns within the same bounds."""
    return Box(tuple(f"x{i}" for i in range(n)), np.full(n, lower), np.full(n, upper))


def rosenbrock(x):
    """Minimum 0 at (1, 1)."""
    residual = np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
    return Linearised(residual, np.array([[-20 * x[0], 10.0], [-1.0, 0.0]]))


def test_rosenbrock_and_a_bound():
    fit = LineSearch().fit(rosenbrock, np.array([-1.2, 1.0]), box(2))
    assert fit.status is Status.CONVERGED
    assert fit.x == pytest.approx([1.0, 1.0], rel=1e-8)
    bounded = Box(("x0", "x1"), np.array([-2.0, -2.0]), np.array([0.5, 2.0]))
    fit = LineSearch().fit(rosenbrock, np.array([-1.2, 1.0]), bounded)
    assert fit.x == pytest.approx([0.5, 0.25], rel=1e-6)


def logarithm(x):
    """Root at e; not defined for x <= 0, where the first step from 60 leads."""
    return Linearised(np.log(x) - 1.0, np.array([[1 / x[0]]])) if x[0] > 0 else None


def test_a_failure_is_fatal_or_borne():
    fatal = LineSearch().fit(logarithm, np.array([60.0]), box(1))
    assert (fatal.status, fatal.x.tolist(), fatal.steps) == (Status.INTEGRATION_BROKE, [60.0], 0)
    assert fatal.at is not None
    borne = LineSearch(fatal=False).fit(logarithm, np.array([60.0]), box(1))
    assert borne.status is Status.CONVERGED
    assert borne.x == pytest.approx([np.e], rel=1e-6)
    nowhere = LineSearch().fit(logarithm, np.array([-1.0]), box(1))
    assert (nowhere.status, nowhere.at) == (Status.INTEGRATION_BROKE, None)


def test_limits_and_promises_not_kept_are_statuses():
    fit = LineSearch(max_iterations=2).fit(rosenbrock, np.array([-1.2, 1.0]), box(2))
    assert (fit.status, fit.steps) == (Status.ITERATION_LIMIT, 2)

    def lying(x):
        return Linearised(np.array([1.0 + x[0] ** 2]), np.array([[-1.0]]))

    fit = LineSearch().fit(lying, np.zeros(1), box(1))
    assert fit.status is Status.FAILED
    assert fit.promised == pytest.approx(1.0)
