"""Gauss-Newton in a relative box trust region.

Each step d solves the linearised problem inside the bounds and inside a box that is relative to the
size of each unknown,

    min |r + J d|   s.t.   lower <= x + d <= upper,   |d_i| <= radius * max(|x_i|, floor_i),

by minimum norm where J does not determine it; floor_i is the unknown's own (`sizes`), so that units
do not matter. A point where the residuals cannot be computed costs
infinitely much: the radius shrinks and the search goes on. It stops when the decrease that the
linear model still promises is negligible, and the region is not what keeps it small. A region that
shrinks to nothing beside points that cannot be computed is no optimum: the search stalled.

Gauss-Newton with a line search, as classical single shooting has it.

The step d solves min |r + J d| inside the bounds, by minimum norm; it is halved until the cost has
decreased enough (Armijo). Kept to reproduce published results: where residuals may fail to exist,
`GaussNewton` is far more robust.

What Gauss-Newton's model of the cost leaves out, learnt from gradients on the way.

    cost(x + d) ~ cost + 2 g'd + d'(J'J + S)d,     g = J'r,     S = sum of r_i times r_i's curvature

Gauss-Newton has S = 0, which goes to and fro across a curved valley where residuals stay large.
Here S follows the changes of the gradient by the structured secant update of NL2SOL (Dennis, Gay &
Welsch, ACM TOMS 7 (1981), eqs. 2.9 to 2.11), sized before; whichever of both models foretold the
last change of the cost better makes the next step, as there, once Gauss-Newton has become slow.

A valley that is narrow and curved allows short steps only, though residuals are small: along it
some unknowns compensate one another. The end of a step that gains less than promised is moved back
to the floor of the valley by what the linear model had wrong there, as long as that helps
(geodesic acceleration: Transtrum, Machta & Sethna, Phys. Rev. E 83, 036701 (2011), with
residuals at the end of the step in place of their second derivative along it).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arguments import Checked, Count, Flag, NotNegative, Positive
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.numerics.least_squares.active import bounded_solution
from igpe.numerics.least_squares.base import Fit, Linearised, Logarithms, Residual, floors

DECREASE = 1e-4  # of the slope times the step (Armijo)
HALVINGS = 30


@dataclass(frozen=True)
class LineSearch(Checked):
    """Gauss-Newton for bounded least squares with a backtracking line search.

    A residual that cannot be computed ends the search, as a failed integration ends a run of an
    optimiser that knows no failed evaluation.

    tolerance, absolute  as of `GaussNewton`
    still                stop as well when no unknown would move by this share of its size
    """

    tolerance: NotNegative = 1e-10
    absolute: NotNegative = 0.0
    still: NotNegative = 1e-8
    max_iterations: Count = 200

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
            low, high = (side / size for side in box.steps(x))
            step = bounded_solution(at.jacobian * size, -at.residual, low, high) * size
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
                if trial is None:
                    return Fit(x, at, Status.INTEGRATION_BROKE, tried, steps, promised)
                if trial.cost <= at.cost - DECREASE * share * promised:
                    break
            else:
                return Fit(x, at, Status.FAILED, tried, steps, promised)
            x, at = there, trial
        return Fit(x, at, Status.ITERATION_LIMIT, tried, self.max_iterations, promised)


FLAT = 1e-12  # of the largest curvature: none is taken for smaller, nor for negative
SLOW = 1e-3  # of the sum of squares: a step that gained no more counts as slow
PATIENCE = 3  # slow steps of Gauss-Newton: before, it finds better optima (20 starts of Boehm's
# problem, seed 1: the best one twice instead of once)
NEGLIGIBLE = np.finfo(float).tiny


class Curvature:
    """S of one search, and whether it is believed. Nothing is learnt unless it is `wanted`."""

    def __init__(self, size: int, *, wanted: bool) -> None:
        self.wanted, self.believed = wanted, False
        self.slow = 0
        self.matrix: FloatArray = np.zeros((size, size))

    def step(
        self, at: Linearised, low: FloatArray, high: FloatArray, reach: FloatArray
    ) -> FloatArray:
        """(n,) what minimises the model inside low <= d <= high, |d| <= reach."""
        lower, upper = np.maximum(low / reach, -1.0), np.minimum(high / reach, 1.0)
        jacobian = at.jacobian * reach
        if not self.believed:
            return bounded_solution(jacobian, -at.residual, lower, upper) * reach
        largest = max(float(np.abs(jacobian).max(initial=0.0)), 1.0)
        jacobian, scaled = jacobian / largest, reach / largest  # whose squares are numbers
        curvature = jacobian.T @ jacobian + scaled[:, None] * self.matrix * scaled
        values, vectors = np.linalg.eigh(curvature)
        root = np.sqrt(np.maximum(values, FLAT * max(float(values.max()), NEGLIGIBLE)))
        right = -(vectors.T @ (jacobian.T @ (at.residual / largest))) / root
        return bounded_solution(root[:, None] * vectors.T, right, lower, upper) * reach

    def promised(self, at: Linearised, step: FloatArray) -> float:
        """Decrease of the cost that the model foretells."""
        left = at.residual + at.jacobian @ step
        more = float(step @ self.matrix @ step) if self.believed else 0.0
        return at.squares - float(left @ left) - more

    def learn(self, before: Linearised, step: FloatArray, after: Linearised) -> None:
        """From the gradients at both ends of a step."""
        if not self.wanted:
            return
        left = before.residual + before.jacobian @ step
        plain, more = before.squares - float(left @ left), float(step @ self.matrix @ step)
        actual = before.cost - after.cost
        self.slow += bool(0 <= actual <= SLOW * before.every_square)
        is_better = abs(actual - plain + more) < abs(actual - plain)
        self.believed = is_better and self.slow >= PATIENCE
        moved = after.jacobian.T @ after.residual - before.jacobian.T @ before.residual
        along = float(moved @ step)
        if along <= FLAT * float(np.linalg.norm(moved) * np.linalg.norm(step)):
            return
        secant = moved - after.jacobian.T @ (after.jacobian @ step)
        share = abs(float(secant @ step) / more) if more != 0 else 1.0
        sized = min(1.0, share) * self.matrix
        wrong = secant - sized @ step
        cross, twice = np.outer(wrong, moved), float(wrong @ step) * np.outer(moved, moved)
        self.matrix = sized + (cross + cross.T) / along - twice / along**2


POOR, GOOD = 0.25, 0.75  # ratios of actual to promised decrease that shrink and widen the region
CLIFF, BESIDE = -1e6, 3  # such a ratio where residuals jump; unknowns held there, one at a time
ACCEPT = 1e-4  # smallest such ratio of a step that is taken
BROKEN = 0.2  # of the step that could not be computed: the next radius
LEAST, MOST = 0.1, 0.5  # of a step that was too long: the next radius, by interpolation
BENT = 0.75  # of the length of a step: how far its end may be moved
MISSES = 3  # bent steps in a row that were no better: no further one is tried
EDGE = 1 - 1e-9  # of the radius: a step this long is held by the region
TINY = 4 * np.finfo(float).eps  # a radius too small to move any unknown


@dataclass(frozen=True)
class GaussNewton(Checked):
    """Gauss-Newton for bounded least squares with a relative box trust region.

    tolerance   stop when the promised decrease is below this fraction of the cost (plus `absolute`)
    absolute    decrease of the cost that never matters, e.g. 1e-6 in units of chi squared
    enough      a cost at which the search stops, however much lower it could go
    radius      first size of the trust region, relative to the unknowns
    curvature   whether the search learns the second derivatives that Gauss-Newton leaves out
                (`Curvature`). It always does where the cost is no sum of squares (`offset`):
                likelihoods with estimated deviations, robust losses
    """

    tolerance: NotNegative = 1e-10
    absolute: NotNegative = 0.0
    enough: float = -np.inf
    radius: Positive = 1.0
    max_iterations: Count = 100
    curvature: Flag = False

    def fit(self, residual: Residual, start: FloatArray, box: Box) -> Fit:
        """Search from `start` (n,), clipped into the box. Failure is the status of the Fit."""
        if box.logarithmic:
            u = Logarithms(box)
            fit = self._search(u.seen(residual), u.there(box.clip(start)), u.box, u.which)
            return u.back(fit)
        return self._search(residual, box.clip(start), box, np.zeros(len(box), dtype=bool))

    def _search(self, residual: Residual, x: FloatArray, box: Box, even: BoolArray) -> Fit:
        """From x (n,) inside the box; even: unknowns of which one step is as long as any other."""
        at = residual(x)
        if at is None or not np.isfinite(at.cost):
            return Fit(x, None, Status.INTEGRATION_BROKE, 0)
        floor = floors(at, x, box)
        radius, promised, broke = self.radius, np.inf, False
        steps = bends = misses = 0
        model = Curvature(len(x), wanted=self.curvature or at.offset != 0.0)
        for iteration in range(1, self.max_iterations + 1):
            size = np.where(even, 1.0, np.maximum(np.abs(x), floor))
            low, high = box.steps(x)
            step = model.step(at, low, high, radius * size)
            cost, squares = at.cost, at.every_square
            promised = model.promised(at, step)
            if promised <= self.tolerance * squares + self.absolute and not (
                promised > TINY * squares and _held(step, low, high, radius * size)
            ):
                return Fit(x, at, Status.CONVERGED, iteration + bends, steps, promised)
            slope = 2 * float(at.residual @ (at.jacobian @ step))  # of the cost along the step
            trial = _trial(residual, box.clip(x + step), cost, promised)
            if misses < MISSES and -np.inf < trial.ratio < GOOD:
                there = box.clip(trial.x + _bend(at, trial.x - x, trial.at, size))
                bent = _trial(residual, there, cost, promised)
                bends += 1
                misses = 0 if bent.ratio > trial.ratio else misses + 1
                trial = trial if misses else bent
            trial = _beside(residual, model, at, trial, (x, step, low, high, radius * size, box))
            radius = _radius(radius, (np.abs(step) / size).max(), trial.ratio, slope / promised)
            broke = broke or trial.ratio == -np.inf
            if trial.ratio > -np.inf:
                model.learn(at, trial.x - x, trial.at)
            if trial.ratio > ACCEPT:
                x, at, steps, broke = trial.x, trial.at, steps + 1, False
            if radius < TINY or at.cost <= self.enough:
                status = Status.STALLED if broke else Status.CONVERGED
                return Fit(x, at, status, iteration + bends, steps, promised)
        return Fit(x, at, Status.ITERATION_LIMIT, self.max_iterations + bends, steps, promised)


@dataclass(frozen=True)
class GaussNewtonInBlocks(GaussNewton):
    """Gauss-Newton that is given up where a block of iterations decreases the cost by too little.

    For optima that are good enough as they are: in a valley along which residuals hardly change,
    a search creeps to its iteration limit, with that status. Each block begins with the first
    radius.

    block   iterations of each;  little: decrease of the cost
    """

    block: Count = 50
    little: NotNegative = 0.5

    def fit(self, residual: Residual, start: FloatArray, box: Box) -> Fit:
        """See `GaussNewton`."""
        x = box.clip(start)
        fit = Fit(x, residual(x), Status.ITERATION_LIMIT, 0)
        left, gain = self.max_iterations, np.inf
        while fit.status is Status.ITERATION_LIMIT and left > 0 and gain > self.little:
            one = replace(self, max_iterations=min(self.block, left))
            more = GaussNewton.fit(one, residual, fit.x, box)
            left, gain = left - self.block, fit.cost - more.cost
            iterations, steps = fit.iterations + more.iterations, fit.steps + more.steps
            fit = more._replace(iterations=iterations, steps=steps)
        return fit


class _Trial(NamedTuple):
    """The end of a step, and the ratio of actual to promised decrease.

    ratio  minus infinity where residuals cannot be computed
    """

    x: FloatArray
    at: Any
    ratio: float


def _trial(residual: Residual, x: FloatArray, cost: float, promised: float) -> _Trial:
    at = residual(x)
    if at is None or not np.isfinite(at.cost):
        return _Trial(x, at, -np.inf)
    return _Trial(x, at, (cost - at.cost) / promised)


def _beside(
    residual: Residual,
    model: Curvature,
    at: Linearised,
    trial: _Trial,
    region: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, Box],
) -> _Trial:
    """The trial, or where residuals jump a step beside the jump: one unknown that moved is held.

    Residuals jump where a switching time passes a measurement. Short steps alone would only come
    nearer and nearer to the jump.
    """
    x, step, low, high, reach, box = region
    if trial.ratio >= CLIFF or trial.ratio == -np.inf:
        return trial
    for k in np.argsort(-np.abs(step) / reach)[:BESIDE].tolist():
        held = np.arange(len(x)) == k
        along = model.step(at, np.where(held, 0.0, low), np.where(held, 0.0, high), reach)
        promised = model.promised(at, along)
        if promised > 0:
            other = _trial(residual, box.clip(x + along), at.cost, promised)
            if other.ratio > ACCEPT:
                return other
    return trial


def _bend(at: Linearised, step: FloatArray, trial: Linearised, size: FloatArray) -> FloatArray:
    """(n,) from the end of a step to the floor of the valley: the acceleration of its geodesic.

    It is damped as the region damps the step itself, by its multiplier.
    """
    left, scaled = at.residual + at.jacobian @ step, step / size
    multiplier = -float(left @ (at.jacobian @ step)) / max(float(scaled @ scaled), NEGLIGIBLE)
    damping = np.sqrt(max(multiplier, 0.0)) * np.eye(len(step))
    right = np.concatenate([left - trial.residual, np.zeros(len(step))])
    reach = np.full(len(step), BENT * float(np.abs(scaled).max()))
    return bounded_solution(np.vstack([at.jacobian * size, damping]), right, -reach, reach) * size


def _held(step: FloatArray, low: FloatArray, high: FloatArray, reach: FloatArray) -> bool:
    """Whether a wider region would allow a longer step."""
    long = np.abs(step) >= EDGE * reach
    return bool((long & (step > low) & (step < high)).any())


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
