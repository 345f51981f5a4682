"""Nonlinear least squares: min |r(x)|^2 inside bounds. Knows no time and no model."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.status import Status

LARGEST = 1e150  # what is not below it has no square


def have_squares(*numbers: FloatArray | float) -> bool:
    """Whether all of them are numbers, and small enough to be squared."""
    return all(bool(np.max(np.abs(part), initial=0.0) < LARGEST) for part in numbers)


class Linearised(NamedTuple):
    """Residuals at a point and their exact derivative.

    residual  (m,), already divided by the standard deviations
    jacobian  (m, n), d residual / d x
    offset    what the cost is beside the sum of squares: 0, but for a likelihood whose deviations
              are unknown. Then jacobian' residual is half the gradient of the whole cost
    """

    residual: FloatArray
    jacobian: FloatArray
    offset: float = 0.0

    @property
    def cost(self) -> float:
        """Sum of squared residuals, and the offset."""
        return self.squares + self.offset

    @property
    def squares(self) -> float:
        """Sum of squared residuals."""
        return float(self.residual @ self.residual)


Residual: TypeAlias = Callable[[FloatArray], Linearised | None]
"""Residuals at x, or None where they cannot be computed (an integration that broke down)."""


class Fit(NamedTuple):
    """Where a search ended.

    x            (n,) best point found
    at           residual and derivative there; None if not even the start could be evaluated
    status       CONVERGED, ITERATION_LIMIT, STALLED, FAILED, or INTEGRATION_BROKE: at the start
                 itself (then `at` is None), or at a step of a search that bears no failure;
                 NO_SOLVER for it where what integrates is missing
    iterations   accepted and rejected steps together
    steps        accepted ones
    promised     decrease of the cost that the linear model still promised at the end; large where
                 the residuals are too inexact to keep the promise
    active       (k, n) derivative of constraints that are active there; None if there are none
    """

    x: FloatArray
    at: Linearised | None
    status: Status
    iterations: int
    steps: int = 0
    promised: float = 0.0
    active: FloatArray | None = None

    @property
    def cost(self) -> float:
        """Sum of squared residuals at x; infinite if it could not be evaluated."""
        return float("inf") if self.at is None else self.at.cost


class Search(Protocol):
    """A local method for bounded nonlinear least squares.

    It ends where it cannot decrease the cost by more than tolerance * cost + absolute.
    """

    @property
    def tolerance(self) -> float: ...

    @property
    def absolute(self) -> float: ...

    def fit(self, residual: Residual, start: FloatArray, box: Box) -> Fit:
        """Search from `start` (n,), clipped into the box. Failure is the status of the Fit."""
        ...
