"""Gauss-Newton in a relative box trust region.

Each step d solves the linearised problem inside the bounds and inside a box that is relative to the
size of each unknown,

    min |r + J d|   s.t.   lower <= x + d <= upper,   |d_i| <= radius * max(|x_i|, floor_i),

by minimum norm where J does not determine it. A point where the residuals cannot be computed costs
infinitely much: the radius shrinks and the search goes on. It stops when the decrease that the
linear model still promises is negligible.
"""

from dataclasses import dataclass

import numpy as np

from igpe.arrays import FloatArray
from igpe.box import Box
from igpe.least_squares.base import Fit, Linearised, Residual
from igpe.least_squares.bounded import bounded_solution
from igpe.status import Status

POOR, GOOD = 0.25, 0.75  # ratios of actual to promised decrease that shrink and widen the region
ACCEPT = 1e-4  # smallest such ratio of a step that is taken
FLOOR = 1e-2  # an unknown near zero moves as if it were this large, or 1e-3 of its range


@dataclass(frozen=True)
class GaussNewton:
    """Gauss-Newton for bounded least squares with a relative box trust region.

    tolerance   stop when the promised decrease is below this fraction of the cost (plus `absolute`)
    absolute    decrease of the cost that never matters, e.g. 1e-6 in units of chi squared
    radius      first size of the trust region, relative to the unknowns
    """

    tolerance: float = 1e-10
    absolute: float = 0.0
    radius: float = 1.0
    max_iterations: int = 100

    def fit(self, residual: Residual, start: FloatArray, box: Box) -> Fit:
        """Search from `start` (n,), clipped into the box. Failure is the status of the Fit."""
        x = box.clip(start)
        at = residual(x)
        if at is None or not np.isfinite(at.cost):
            return Fit(x, None, Status.INTEGRATION_BROKE, 0)
        radius, iteration = self.radius, 0
        for iteration in range(1, self.max_iterations + 1):
            size = _size(x, box)
            step = _step(at, x, box, radius * size)
            promised = at.cost - _norm2(at.residual + at.jacobian @ step)
            if promised <= self.tolerance * at.cost + self.absolute:
                return Fit(x, at, Status.CONVERGED, iteration)
            trial = residual(box.clip(x + step))
            length = float(np.max(np.abs(step) / size))
            ratio = _ratio(at, trial, promised)
            if ratio > ACCEPT and trial is not None:
                x, at = box.clip(x + step), trial
            radius = _radius(radius, length, ratio)
            if radius < np.finfo(float).eps:
                stalled = trial is None
                return Fit(x, at, Status.STALLED if stalled else Status.CONVERGED, iteration)
        return Fit(x, at, Status.ITERATION_LIMIT, iteration)


def _size(x: FloatArray, box: Box) -> FloatArray:
    width = box.upper - box.lower
    floor = np.where(np.isfinite(width), np.minimum(FLOOR, 1e-3 * width), FLOOR)
    return np.maximum(np.abs(x), floor)


def _step(at: Linearised, x: FloatArray, box: Box, reach: FloatArray) -> FloatArray:
    lower = np.maximum(box.lower - x, -reach) / reach
    upper = np.minimum(box.upper - x, reach) / reach
    return bounded_solution(at.jacobian * reach, -at.residual, lower, upper) * reach


def _ratio(at: Linearised, trial: Linearised | None, promised: float) -> float:
    if trial is None or not np.isfinite(trial.cost):
        return -np.inf
    return (at.cost - trial.cost) / promised


def _radius(radius: float, length: float, ratio: float) -> float:
    if ratio < POOR:
        return (0.2 if ratio < 0 else 0.5) * min(radius, length)
    return max(radius, 2 * length) if ratio > GOOD else radius


def _norm2(v: FloatArray) -> float:
    return float(v @ v)
