"""Gauss-Newton with a line search, as classical single shooting has it.

The step d solves min |r + J d| inside the bounds, by minimum norm; it is halved until the cost has
decreased enough (Armijo). Kept to reproduce published results: where residuals may fail to exist,
`GaussNewton` is far more robust.
"""

from dataclasses import dataclass

import numpy as np

from igpe.core.arguments import is_finite, require
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Fit, Linearised, Residual, floors
from igpe.numerics.least_squares.bounded import bounded_solution

DECREASE = 1e-4  # of the slope times the step (Armijo)
HALVINGS = 30


@dataclass(frozen=True)
class LineSearch:
    """Gauss-Newton for bounded least squares with a backtracking line search.

    tolerance, absolute  as of `GaussNewton`
    still                stop as well when no unknown would move by this share of its size
    fatal                whether a residual that cannot be computed ends the search, as a failed
                         integration ends a run of an optimiser that cannot be told of it
    """

    tolerance: float = 1e-10
    absolute: float = 0.0
    still: float = 1e-8
    fatal: bool = True
    max_iterations: int = 200

    def __post_init__(self) -> None:
        for field in ("tolerance", "absolute", "still", "max_iterations"):
            value = getattr(self, field)
            ok = is_finite(value) and value >= 0
            require(ok, "LineSearch", field, value, "a number, 0 or more")

    def fit(self, residual: Residual, start: FloatArray, box: Box) -> Fit:
        """Search from `start` (n,), clipped into the box. Failure is the status of the Fit."""
        x = box.clip(start)
        at = residual(x)
        if at is None or not np.isfinite(at.cost):
            return Fit(x, None, Status.INTEGRATION_BROKE, 0)
        floor = floors(at, x, box)
        promised, tried = np.inf, 0
        for steps in range(self.max_iterations):
            size = np.maximum(np.abs(x), floor)
            step = _step(at, x, size, box)
            remaining = at.residual + at.jacobian @ step
            promised = at.cost - float(remaining @ remaining)
            rests = bool((np.abs(step) <= self.still * size).all())
            if rests or promised <= self.tolerance * at.cost + self.absolute:
                return Fit(x, at, Status.CONVERGED, tried, steps, promised)
            for halving in range(HALVINGS):
                share = 0.5**halving
                there = box.clip(x + share * step)
                trial = residual(there)
                tried += 1
                if trial is None and self.fatal:
                    return Fit(x, at, Status.INTEGRATION_BROKE, tried, steps, promised)
                if trial is not None and trial.cost <= at.cost - DECREASE * share * promised:
                    break
            else:
                return Fit(x, at, Status.FAILED, tried, steps, promised)
            x, at = there, trial
        return Fit(x, at, Status.ITERATION_LIMIT, tried, self.max_iterations, promised)


def _step(at: Linearised, x: FloatArray, size: FloatArray, box: Box) -> FloatArray:
    low, high = (box.lower - x) / size, (box.upper - x) / size
    return bounded_solution(at.jacobian * size, -at.residual, low, high) * size
