"""Incremental single shooting: a growing horizon keeps the integration from breaking down.

Michalik, Hannemann, Marquardt, "Incremental Single Shooting", Comput. Chem. Eng. 33 (2009), Fig. 2:

    for each horizon (t <= t_1, t_2, ..., t_end):
        solve the least squares problem of its measurements inside the present bounds
        while an updated bound is active: relax it (eqs. 10, 11), solve again
        update the bounds by the confidence of the estimate (eq. 9)

Ours differs where measurements taught us: a trust region that bears failed integrations, bounds
widened by a bad fit, help between horizons (`recovery`), rough early searches, further starts.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible
from igpe.core.estimates import Estimate, Horizon
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.search.engine import Attempt, Restarts, concluded
from igpe.dynamics.shooting.base import (
    Budget,
    Profile,
    in_deviations,
    limited,
    remarks,
    require_known_sigma,
    require_numbers,
    require_plain,
    require_start,
    spread_of,
)
from igpe.dynamics.shooting.incremental import handover
from igpe.dynamics.shooting.incremental.handover import Counted, Stage, StageFit
from igpe.dynamics.shooting.incremental.horizons import (
    MOST,
    TOLD,
    Reach,
    Recovery,
    SlopeSampling,
    UpdatedBounds,
    held,
    reaches,
    require_increasing,
    too_sparse,
)
from igpe.dynamics.shooting.residuals import Residuals, untouched
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.numerics.least_squares.base import Fit, Search
from igpe.numerics.least_squares.gauss_newton import GaussNewton, LineSearch
from igpe.problem.problem import Problem

EARLY = (
    "The search was interrupted before the last horizon, and integrating the estimate to the end "
    "would take too long, so its sum of squares is not known."
)


@dataclass(frozen=True)
class IncrementalShooting:
    """Single shooting on a growing horizon; robust against starts that are far off.

    integrator  of the model
    search      on the last horizon; its residuals are in units of one standard deviation
    early       on the horizons before
    budget      of the integrations there; None: as of all. Where no estimate is found within it,
                the search is made again without
    intervals   their ends; None: 1, 2, 4, 8, ... measurements (see `horizons`)
    bounds      how they follow the estimates
    recovery    help where an estimate cannot be integrated further; None gives up there
    restarts    further starts where a fit is bad
    """

    integrator: Integrator = Automatic()
    search: Search = GaussNewton(absolute=1e-6)
    early: Search = GaussNewton(tolerance=1e-3, absolute=1e-2, max_iterations=40)
    budget: Budget | None = field(default_factory=Budget)
    intervals: tuple[float, ...] | None = None
    bounds: UpdatedBounds = field(default_factory=UpdatedBounds)
    recovery: Recovery | None = field(default_factory=Recovery)
    restarts: Restarts = field(default_factory=Restarts)

    def __post_init__(self) -> None:
        if self.intervals is not None:
            require_increasing(self.intervals)
            object.__setattr__(self, "intervals", tuple(float(t) for t in self.intervals))

    @classmethod
    def as_published(cls, integrator: Integrator = Automatic()) -> "IncrementalShooting":
        """The paper's Fig. 2 to the letter; a failed integration ends the run."""
        search = LineSearch(absolute=1e-6)
        return cls(
            integrator=integrator,
            search=search,
            early=search,
            budget=None,
            bounds=UpdatedBounds(scaled=False),
            recovery=None,
            restarts=Restarts(count=0),
        )

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamics.shooting.base.Estimator`; `profiles` are not used.

        The trail of the estimate holds the horizons, each an `igpe.core.estimates.Horizon`.
        """
        again = SingleShooting(self.integrator)
        return iteratively_reweighted(
            problem,
            start,
            lambda p, s: self.prepare(p).estimate(s),
            again.estimate,
            self.integrator,
        )

    def prepare(self, problem: Problem, profiles: Sequence[Profile] = ()) -> "PreparedIncremental":
        """Translate and compile once, to estimate from many starts; `profiles` are not used.

        raises Unsupported for robust losses, constraints and time-varying unknowns
        """
        require_plain(problem, "IncrementalShooting", constraints_too=True)
        require_known_sigma(problem, "IncrementalShooting")
        require_numbers(problem, "IncrementalShooting.prepare")
        horizons = reaches(problem.experiments, self.intervals)
        whole = Residuals(problem, self.integrator)
        within = self.integrator if self.budget is None else self.budget.of(self.integrator)
        rough = whole if within == self.integrator else Residuals(problem, within)
        rough.best = whole.best
        return PreparedIncremental(problem, self, whole, rough, horizons)


@dataclass(frozen=True)
class PreparedIncremental:
    """A problem compiled for incremental shooting.

    rough  the residuals within the budget of early horizons
    """

    problem: Problem
    method: IncrementalShooting
    residuals: Residuals
    rough: Residuals
    horizons: tuple[Reach, ...]

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """One problem for each horizon."""
        return self._stages(self.residuals)

    @cached_property
    def rough_stages(self) -> tuple[Stage, ...]:
        """The same within the budget, but for the last."""
        if self.rough is self.residuals:
            return self.stages
        return (*self._stages(self.rough)[:-1], self.stages[-1])

    def _stages(self, residuals: Residuals) -> tuple[Stage, ...]:
        spread, last = spread_of(self.problem), self.horizons[-1]
        return tuple(
            Stage(residuals.until(reach.ends), reach, self.box, spread, last=reach is last)
            for reach in self.horizons
        )

    @cached_property
    def samplings(self) -> tuple[SlopeSampling, ...]:
        """Of each experiment, to judge how densely it was measured."""
        return tuple(map(SlopeSampling, self.residuals.runs))

    @cached_property
    def box(self) -> Box:
        """The free unknowns with the user's bounds."""
        return self.problem.box

    @cached_property
    def gate(self) -> float:
        """Cost that the measurement errors explain; infinite if they are not known."""
        known = self.problem.sigma_known
        return self.method.restarts.explained(len(self.residuals)) if known else np.inf

    def estimate(self, start: Mapping[str, float]) -> Estimate:
        """The search from `start`, as an Estimate of the free unknowns."""
        began = time.perf_counter()
        count = len(self.horizons)
        name = f"incremental single shooting, {count} horizon{'s' if count > 1 else ''}"
        if len(self.box) == 0:
            return untouched(self.residuals, name)
        require_start(start, self.box, "IncrementalShooting")
        first = self.box.clip(self.box.vector(start))
        attempts = self.method.restarts.run(self.attempt, first, self.box, self.gate)
        found = concluded(attempts, self.box, name)
        sentences = remarks(attempts[0].fit, self.box, self.gate)
        unit = self.stages[-1].spread ** 2
        return replace(
            found,
            objective=found.objective * unit,
            reached=tuple(cost * unit for cost in found.reached),
            seconds=time.perf_counter() - began,
            notes=(*found.notes, *sentences),
        )

    def attempt(self, start: FloatArray) -> Attempt:
        """One run over all horizons, from `start` (n,) inside the bounds."""
        self.residuals.best.clear()
        try:
            with interruptible():
                return self._first_or_again(start)
        except KeyboardInterrupt:
            fit = self.residuals.best_fit()
            notes = (EARLY,) if fit.at is None else ()
            return Attempt(in_deviations(fit, self.stages[-1].spread), notes=notes)

    def _first_or_again(self, start: FloatArray) -> Attempt:
        found = self._attempt(start, self.rough_stages)
        again = found.fit.status is Status.INTEGRATION_BROKE and self.rough is not self.residuals
        return self._attempt(start, self.stages) if again else found

    def _attempt(self, start: FloatArray, stages: Sequence[Stage]) -> Attempt:
        x, box = start, self.box
        past: list[FloatArray] = []
        trail: list[Horizon] = []
        notes: list[str] = []
        for stage in stages:
            solved = self._solved(stage, x, box, past)
            fit = solved.fit
            notes += handover.handover_notes(trail, stages, solved)
            trail.append(stage.horizon(solved, self.box))
            if not fit.status.usable or fit.at is None:
                break
            past.append(solved.begin)
            x = fit.x
            if not stage.last:
                known = self.problem.sigma_known
                rows = stage.without_prior(fit.at)
                box = self.method.bounds.around(x, rows, self.box, sigma_known=known)
        final = _final(fit, stage)
        notes += stage.residuals.reasons(final)
        notes += held(fit.x, solved.box, self.box)
        sparse = final.at is not None and too_sparse(self.samplings, final.x)
        notes += [TOLD] if sparse else []
        return Attempt(final, tuple(trail), tuple(notes), limited(final), sparse)

    def _solved(
        self, stage: Stage, x: FloatArray, box: Box, past: Sequence[FloatArray]
    ) -> StageFit:
        """The horizon's problem, from x or the nearest place from which it can be integrated."""
        recovery, search = self.method.recovery, self._search(stage)
        residual = stage.residual(recovery, past[0] if past else x)
        begin, fit = x, stage.ended(search.fit(residual, x, box))
        others = iter(()) if recovery is None else recovery.places(x, past)
        while fit.status is Status.INTEGRATION_BROKE and fit.at is None:
            place = next(others, None)
            if place is None:
                break
            begin, box = self.box.clip(place), self.box
            residual = stage.residual(recovery, past[0] if past else begin, residual.calls)
            fit = stage.ended(search.fit(residual, begin, box))
        missed = np.inf if residual.missed is None else residual.missed
        solved = StageFit(fit, box, begin, begin is not x, fit.steps, residual.calls, 0, missed)
        return self._relaxed(solved, residual, search)

    def _relaxed(self, solved: StageFit, residual: Counted, search: Search) -> StageFit:
        """Solved again until no updated bound is in the way; at last inside the user's."""
        fit, box, steps, count = solved.fit, solved.box, solved.iterations, 0
        while count < MOST + len(box) and fit.status.usable:
            wider = self.method.bounds.in_the_way(fit, box, self.box, search, give_up=count >= MOST)
            if wider is None:
                break
            box, count = wider, count + 1
            fit = search.fit(residual, fit.x, box)
            steps += fit.steps
        return solved._replace(
            fit=fit, box=box, iterations=steps, integrations=residual.calls, relaxations=count
        )

    def _search(self, stage: Stage) -> Search:
        return self.method.search if stage.last else self.method.early


def _final(fit: Fit, stage: Stage) -> Fit:
    """The last horizon's fit; one that ended before has no cost, and says why it ended."""
    return fit if stage.last else fit._replace(at=None)
