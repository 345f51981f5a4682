"""Nonlinear least squares: min |r(x)|^2 inside bounds. Knows no time and no model."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from igpe.arrays import FloatArray
from igpe.status import Status


class Linearised(NamedTuple):
    """Residuals at a point and their exact derivative.

    residual  (m,), already divided by the standard deviations
    jacobian  (m, n), d residual / d x
    """

    residual: FloatArray
    jacobian: FloatArray

    @property
    def cost(self) -> float:
        """Sum of squared residuals."""
        return float(self.residual @ self.residual)


Residual: TypeAlias = Callable[[FloatArray], Linearised | None]
"""Residuals at x, or None where they cannot be computed (an integration that broke down)."""


class Fit(NamedTuple):
    """Where a search ended.

    x            (n,) best point found
    at           residual and derivative there; None if not even the start could be evaluated
    status       CONVERGED, ITERATION_LIMIT, STALLED, or INTEGRATION_BROKE at the start itself
    iterations   accepted and rejected steps together
    """

    x: FloatArray
    at: Linearised | None
    status: Status
    iterations: int

    @property
    def cost(self) -> float:
        """Sum of squared residuals at x; infinite if it could not be evaluated."""
        return float("inf") if self.at is None else self.at.cost
