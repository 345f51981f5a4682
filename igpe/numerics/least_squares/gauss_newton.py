"""Gauss-Newton in a relative box trust region.

Each step d solves the linearised problem inside the bounds and inside a box that is relative to the
size of each unknown,

    min |r + J d|   s.t.   lower <= x + d <= upper,   |d_i| <= radius * max(|x_i|, floor_i),

by minimum norm where J does not determine it; floor_i is the unknown's own (`sizes`), so that units
do not matter. A point where the residuals cannot be computed costs
infinitely much: the radius shrinks and the search goes on. It stops when the decrease that the
linear model still promises is negligible, and the region is not what keeps it small. A region that
shrinks to nothing beside points that cannot be computed is no optimum: the search stalled.
"""

from dataclasses import dataclass

import numpy as np

from igpe.core.arguments import is_finite, require
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Fit, Linearised, Logarithms, Residual, floors
from igpe.numerics.least_squares.curvature import Curvature

POOR, GOOD = 0.25, 0.75  # ratios of actual to promised decrease that shrink and widen the region
ACCEPT = 1e-4  # smallest such ratio of a step that is taken
BROKEN = 0.2  # of the step that could not be computed: the next radius
LEAST, MOST = 0.1, 0.5  # of a step that was too long: the next radius, by interpolation
EDGE = 1 - 1e-9  # of the radius: a step this long is held by the region
TINY = 4 * np.finfo(float).eps  # a radius too small to move any unknown


@dataclass(frozen=True)
class GaussNewton:
    """Gauss-Newton for bounded least squares with a relative box trust region.

    tolerance   stop when the promised decrease is below this fraction of the cost (plus `absolute`)
    absolute    decrease of the cost that never matters, e.g. 1e-6 in units of chi squared
    radius      first size of the trust region, relative to the unknowns
    curvature   whether what Gauss-Newton leaves out is learnt on the way (`Curvature`); likelihoods
                with estimated deviations are always searched so
    """

    tolerance: float = 1e-10
    absolute: float = 0.0
    radius: float = 1.0
    max_iterations: int = 100
    curvature: bool = False

    def __post_init__(self) -> None:
        for field in ("tolerance", "absolute", "max_iterations"):
            value = getattr(self, field)
            ok = is_finite(value) and value >= 0
            require(ok, "GaussNewton", field, value, "a number, 0 or more")
        ok = is_finite(self.radius) and self.radius > 0
        require(ok, "GaussNewton", "radius", self.radius, "a positive number")

    def fit(self, residual: Residual, start: FloatArray, box: Box) -> Fit:
        """Search from `start` (n,), clipped into the box. Failure is the status of the Fit."""
        if box.logarithmic:
            way = Logarithms(box)
            found = self._search(way.seen(residual), way.there(box.clip(start)), way.box, way.which)
            return way.back(found)
        return self._search(residual, box.clip(start), box, np.zeros(len(box), dtype=bool))

    def _search(self, residual: Residual, x: FloatArray, box: Box, even: BoolArray) -> Fit:
        """From x (n,) inside the box; even: unknowns of which one step is as long as any other."""
        at = residual(x)
        if at is None or not np.isfinite(at.cost):
            return Fit(x, None, Status.INTEGRATION_BROKE, 0)
        floor = floors(at, x, box)
        radius, steps, promised, broke = self.radius, 0, np.inf, False
        model = Curvature(len(x), wanted=self.curvature)
        for iteration in range(1, self.max_iterations + 1):
            size = np.where(even, 1.0, np.maximum(np.abs(x), floor))
            low, high = box.lower - x, box.upper - x
            step = model.step(at, low, high, radius * size)
            cost, squares = at.cost, at.squares
            promised = model.promised(at, step)
            if promised <= self.tolerance * squares + self.absolute and not (
                promised > TINY * squares and _held(step, low, high, radius * size)
            ):
                return Fit(x, at, Status.CONVERGED, iteration, steps, promised)
            there = np.minimum(np.maximum(x + step, box.lower), box.upper)
            trial = residual(there)
            length = float((np.abs(step) / size).max())
            ratio = _ratio(cost, trial, promised)
            radius = _radius(radius, length, ratio, _slope(at, step) / promised)
            if trial is not None and np.isfinite(trial.cost):
                model.learn(at, step, trial)
            if ratio == -np.inf:
                broke = True
            if ratio > ACCEPT and trial is not None:
                x, at, steps, broke = there, trial, steps + 1, False
            if radius < TINY:
                status = Status.STALLED if broke else Status.CONVERGED
                return Fit(x, at, status, iteration, steps, promised)
        return Fit(x, at, Status.ITERATION_LIMIT, self.max_iterations, steps, promised)


def _held(step: FloatArray, low: FloatArray, high: FloatArray, reach: FloatArray) -> bool:
    """Whether a wider region would allow a longer step."""
    long = np.abs(step) >= EDGE * reach
    return bool((long & (step > low) & (step < high)).any())


def _slope(at: Linearised, step: FloatArray) -> float:
    """Directional derivative of the cost along the step, at its beginning."""
    return 2 * float(at.residual @ (at.jacobian @ step))


def _ratio(cost: float, trial: Linearised | None, promised: float) -> float:
    if trial is None or not np.isfinite(trial.cost):
        return -np.inf
    return (cost - trial.cost) / promised


def _radius(radius: float, length: float, ratio: float, slope: float) -> float:
    """The next radius; slope: that of the cost at the step's beginning / promised decrease.

    After a step that was not taken it ends where the parabola through both costs, with that slope,
    has its minimum.
    """
    if ratio == -np.inf:
        return BROKEN * min(radius, length)
    if ratio <= ACCEPT:
        least = -slope / (2 * (-ratio - slope))
        return min(max(least, LEAST), MOST) * min(radius, length)
    if ratio < POOR:
        return MOST * min(radius, length)
    return max(radius, 2 * length) if ratio > GOOD else radius
