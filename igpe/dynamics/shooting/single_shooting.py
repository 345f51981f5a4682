"""Single shooting: integrate, compare, Gauss-Newton; times of switches cross measurements.

Where states jump at an unknown time, what is measured next jumps once that time passes it: the sum
of squares is only smooth while each such time stays between two measurements, and Gauss-Newton does
not get beyond. After a local search every such time is tried between all pairs of measurements.
What the other unknowns could gain there is estimated by their Gauss-Newton step, and the best few
are searched, with all times kept between their measurements.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, column_sizes
from igpe.core.box import Box
from igpe.core.deadline import interruptible
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.search.engine import Attempt, Restarts, concluded
from igpe.dynamics.shooting.base import (
    Profile,
    in_deviations,
    limited,
    minimises_squares,
    objective_at,
    refuse,
    remarks,
    require_plain,
    require_start,
    spread_of,
)
from igpe.dynamics.shooting.limits_of_model import without_bounds
from igpe.dynamics.shooting.projected import Eliminated, UnlikeError, projected
from igpe.dynamics.shooting.residuals import Residuals, untouched
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.equations.compiled import compiled
from igpe.numerics.least_squares.base import Fit, Linearised, Search
from igpe.numerics.least_squares.gauss_newton import GaussNewton, LineSearch
from igpe.problem.problem import Problem

ONCE = Restarts(count=0)


@dataclass(frozen=True)
class SingleShooting:
    """Least squares on the integrated model, from one start.

    The method is suitable for starts near the optimum. If the integration fails because of a bad
    start, the status says so; no exception is raised. If standard deviations are estimated, the
    method maximises the likelihood: the objective is sum (r / s)^2 + 2 log s, where r is a residual
    and s its standard deviation.

    integrator  method that computes the model's trajectories and sensitivities
    search      the least-squares method
    restarts    settings for additional starts, which igpe tries if a fit is bad; by default, there
                are no additional starts. If standard deviations are estimated, igpe never restarts
    hierarchical  whether the search eliminates unknowns that affect only outputs (scales, offsets,
                  estimated standard deviations): each step finds their best values without
                  integrating again. The result is still the joint optimum of all unknowns
    """

    integrator: Integrator = Automatic()
    search: Search = GaussNewton()
    restarts: Restarts = ONCE
    hierarchical: bool = True

    @classmethod
    def as_published(cls, integrator: Integrator = Automatic()) -> "SingleShooting":
        """Return the single shooting that Michalik et al. (2009, ISS) use as a baseline.

        A failed integration ends the run.
        """
        return cls(integrator, LineSearch(absolute=1e-6), hierarchical=False)

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamics.shooting.base.Estimator`. The argument `profiles` is ignored."""
        once = replace(self, restarts=ONCE)
        estimate = iteratively_reweighted(
            problem,
            start,
            lambda p, s: self.prepare(p).estimate(s),
            lambda p, s: once.prepare(p).estimate(s),
            self.integrator,
        )
        return without_bounds(problem, self, estimate)

    def prepare(self, problem: Problem, profiles: Sequence[Profile] = ()) -> "PreparedShooting":
        """Translate and compile the model once, for many starts.

        The argument `profiles` is ignored.
        raises Unsupported for constraints, and for robust losses with estimated standard deviations
        """
        require_plain(
            problem, "SingleShooting", constraints_too=True, varying_too=False, losses_too=False,
            spectra_too=False,
        )  # fmt: skip
        refuse(problem, "SingleShooting.prepare", "weights follow fit")
        residuals = Residuals(problem, self.integrator)
        # A likelihood does not tell whether a fit is bad.
        restarts = ONCE if problem.sigma_estimated else self.restarts
        few = projected(problem, residuals.forwards) if self.hierarchical else None
        residuals = residuals if few is None else few.residuals
        return PreparedShooting(problem, residuals, self.search, restarts, few)


@dataclass(frozen=True)
class PreparedShooting:
    """A problem compiled for single shooting.

    few  its residuals without the unknowns that only outputs depend on; None if there are none
    """

    problem: Problem
    residuals: Residuals
    search: Search
    restarts: Restarts = ONCE
    few: Eliminated | None = None

    def cost(self, x: FloatArray) -> float | None:
        """Cost at x (n,), of eliminated unknowns at their best; None if it cannot be computed."""
        if self.few is not None:
            with suppress(UnlikeError):
                at_best = self.few.solved(x)
                return None if at_best is None else at_best[1].cost
        return self.residuals.cost(x)

    def fit(self, start: Mapping[str, float]) -> Fit:
        """The search from `start`, with residuals and derivative where it ended."""
        return self._fit(self.problem.box.vector(start))

    def estimate(self, start: Mapping[str, float]) -> Estimate:
        """The search from `start`, as an Estimate of the free unknowns."""
        began, problem, box = time.perf_counter(), self.problem, self.problem.box
        if len(box) == 0:
            return untouched(self.residuals, "single shooting")
        require_start(start, box, "SingleShooting")
        gate = self._gate
        attempts = self.restarts.run(self._attempt, box.clip(box.vector(start)), box, gate)
        fit, spread = attempts[0].fit, spread_of(problem)
        objective, at = fit.cost * spread**2, in_deviations(fit, 1 / spread).at
        if at is not None and not minimises_squares(problem):
            objective = objective_at(problem, at)
        estimate = concluded(attempts, box, "single shooting")
        return replace(
            estimate,
            objective=objective,
            notes=(*estimate.notes, *remarks(fit, box, gate), *self.residuals.manner),
            seconds=time.perf_counter() - began,
        )

    def _fit(self, start: FloatArray) -> Fit:
        *gentler, own = self.residuals.stages
        if gentler and own(start) is None:  # computed as what an interrupted search falls back to
            return Fit(start, None, Status.INTEGRATION_BROKE, 0)
        for residuals in gentler:
            start = self.search.fit(residuals, start, self.problem.box).x
        fit = self._searched_from(start)
        if np.isfinite(self._gate) and fit.cost <= self._gate:
            return fit
        return _moved_across(own, self.search, fit, self.problem.box)

    def _searched_from(self, start: FloatArray) -> Fit:
        if self.few is not None:
            with suppress(UnlikeError):
                return self.few.fit(self.search, self.problem.box.clip(start))
        return self.search.fit(self.residuals, start, self.problem.box)

    @property
    def _gate(self) -> float:
        """Cost that the measurement errors explain; infinite if they are not known."""
        judged = self.problem.sigma_known and minimises_squares(self.problem)
        return self.restarts.explained(self.residuals.degrees) if judged else np.inf

    def _attempt(self, start: FloatArray) -> Attempt:
        self.residuals.broken = None
        self.residuals.best.clear()
        try:
            with interruptible():
                fit = self._fit(start)
        except KeyboardInterrupt:
            fit = self.residuals.best_fit()
        fit = self.residuals.ended(in_deviations(fit, spread_of(self.problem)))
        return Attempt(fit, notes=tuple(self.residuals.reasons(fit)), limited=limited(fit))


ROUNDS = 6
FEW = 3  # searches in one round
GAIN = 1e-6  # relative decrease of the sum of squares that is worth another round
JUMP = 1e-3  # relative rise of the objective, next to a measurement, that is more than its slope
BEYOND = 1e-5  # of the same distance: so far from a jump is looked behind it
INSIDE = 1e-7  # of the distance of two measurements: so much earlier than the later one


def _moved_across(residuals: Residuals, search: Search, fit: Fit, box: Box) -> Fit:
    """The best fit, with the times of switches between any two measurements."""
    if fit.at is None or not _switches(residuals, fit.x, box):
        return fit
    fit = _smaller(fit, _within(residuals, search, fit.x, box))
    for _ in range(ROUNDS):
        every = ((i, x, residuals(x)) for i, x in _moves(residuals, fit.x, box))
        tried = [(_promise(at, i), x) for i, x, at in every if at is not None]
        better = fit
        for promise, x in sorted(tried, key=lambda one: one[0])[:FEW]:
            if promise < better.cost:
                better = _smaller(better, _within(residuals, search, x, box))
        if not better.cost < (1 - GAIN) * fit.cost:
            return better
        fit = better
    return fit


def _smaller(one: Fit, other: Fit) -> Fit:
    return other if other.at is not None and other.cost < one.cost else one


def _within(residuals: Residuals, search: Search, x: FloatArray, box: Box) -> Fit:
    """A search from x in which no time of a switch passes a measurement."""
    lower, upper = box.lower.copy(), box.upper.copy()
    for one in _switches(residuals, x, box):
        low, high = one.between
        if np.isfinite([low, high]).all():
            high -= INSIDE * (high - low)
        ends = sorted(x[one.unknown] + (np.array([low, high]) - one.time) / one.by)
        lower[one.unknown] = max(lower[one.unknown], ends[0])
        upper[one.unknown] = min(upper[one.unknown], ends[1])
    return search.fit(residuals, x, replace(box, lower=lower, upper=np.maximum(lower, upper)))


def _promise(at: Linearised, held: int) -> float:
    """The sum of squares that a Gauss-Newton step of all unknowns but one predicts."""
    others = np.delete(at.jacobian, held, axis=1)
    scaled = others / column_sizes(others)
    step = np.linalg.lstsq(scaled, -at.residual, rcond=1e-8)[0]
    return float(np.sum((at.residual + scaled @ step) ** 2)) + at.offset


class _Switch(NamedTuple):
    """A switch that an unknown moves: its time, the slope of this, and what is measured when."""

    unknown: int
    number: int
    time: float
    by: float
    times: FloatArray

    @property
    def between(self) -> tuple[float, float]:
        """The measurements before and after it; the first counts as before at its own time."""
        k = int(np.searchsorted(self.times, self.time, side="right"))
        low = self.times[k - 1] if k else -np.inf
        return float(low), float(self.times[k]) if k < len(self.times) else np.inf


class ObjectiveJump(NamedTuple):
    """An unknown at a jump of the objective: the switch that it alone moves is at a measurement.

    time      of the measurement
    is_least  whether the values without the jump are larger
    """

    unknown: int
    time: float
    is_least: bool


class _End(NamedTuple):
    """Where a switch meets a measurement at `time`, and a point (n,) just beyond."""

    switch: _Switch
    time: float
    beyond: FloatArray


def _ends(residuals: Residuals, x: FloatArray, box: Box) -> Iterator[_End]:
    """Of all switches that one unknown alone moves; what is measured jumps there."""
    every = _switches(residuals, x, box)
    numbers = [one.number for one in every]
    for one in every:
        low, high = one.between
        if numbers.count(one.number) > 1 or not np.isfinite([low, high]).all():
            continue
        for end, side in ((low, -BEYOND), (high, BEYOND)):
            beyond = x.copy()
            beyond[one.unknown] += (end + side * (high - low) - one.time) / one.by
            yield _End(one, end, beyond)


def jumps_of(problem: Problem, x: FloatArray) -> list[ObjectiveJump]:
    """Unknowns from whose values x (n,) the objective jumps up to one side."""
    if not any(compiled(problem).switching) or problem.has_spectra:
        return []
    residuals, near = Residuals(problem, Automatic()), list[_End]()
    for end in _ends(residuals, x, problem.box):
        low, high = end.switch.between
        if abs(end.switch.time - end.time) <= BEYOND / 10 * (high - low):
            near.append(end)
    here = residuals.cost(x) if near else None
    if here is None:
        return []
    jumps = []
    for end in near:
        there, i = residuals.cost(end.beyond), end.switch.unknown
        if there is not None and there > (1 + JUMP) * here:
            jumps.append(ObjectiveJump(i, end.time, bool(x[i] > end.beyond[i])))
    return jumps


def between_jumps(residuals: Residuals, x: FloatArray, box: Box, most: float) -> Box:
    """The bounds, with unknowns kept from jumps of the objective above `most`.

    Whatever the other unknowns could gain there, to first order.
    """
    lower, upper = box.lower.copy(), box.upper.copy()
    for one, end, beyond in _ends(residuals, x, box):
        i, there = one.unknown, residuals(beyond)
        if there is not None and _promise(there, i) > most:
            low, high = one.between
            inside = min(end, max(high - INSIDE * (high - low), one.time))
            value = x[i] + (inside - one.time) / one.by
            (lower if beyond[i] < x[i] else upper)[i] = value
    return replace(box, lower=np.minimum(lower, x), upper=np.maximum(upper, x))


def _moves(residuals: Residuals, x: FloatArray, box: Box) -> Iterator[tuple[int, FloatArray]]:
    """An unknown, and points at which it has moved a switch between two measurements."""
    for i, when, along, times in _directions(residuals, x, box):
        for shift in (times[1:] + times[:-1]) / 2 - when:
            moved = x + shift * along
            if ((moved >= box.lower) & (moved <= box.upper)).all():
                yield i, moved


def _directions(
    residuals: Residuals, x: FloatArray, box: Box
) -> Iterator[tuple[int, float, FloatArray, FloatArray]]:
    """An unknown, and a direction that moves a switch by 1: alone, or with no other switch."""
    free = _switches(residuals, x, box)
    unknowns = sorted({one.unknown for one in free})
    matrix = np.zeros((1 + max((one.number for one in free), default=-1), len(unknowns)))
    for one in free:
        matrix[one.number, unknowns.index(one.unknown)] = one.by
    for i, number, when, by, times in free:
        single, unit = np.zeros(len(x)), np.zeros(len(matrix))
        single[i], unit[number] = 1 / by, 1.0
        yield i, when, single, times
        step = np.linalg.lstsq(matrix, unit, rcond=None)[0]
        if np.count_nonzero(step) > 1 and np.allclose(matrix @ step, unit):
            several = np.zeros(len(x))
            several[unknowns] = step
            yield i, when, several, times


def _switches(residuals: Residuals, x: FloatArray, box: Box) -> list[_Switch]:
    """Every switch whose time unknowns give, once for each of them that is free."""
    every = [
        (run.index, np.union1d(run.ivp.t0, run.measurements.times), *one)
        for run in residuals.runs
        for one in run.simulation.intervals.switch_times(x[run.index])
    ]
    return [
        _Switch(int(index[own]), number, time, float(by[own]), times)
        for number, (index, times, time, by) in enumerate(every)
        for own in np.flatnonzero(by)
        if box.lower[index[own]] < box.upper[index[own]]
    ]
