"""Incremental single shooting: a growing horizon keeps the integration from breaking down.

Michalik, Hannemann, Marquardt, "Incremental Single Shooting", Comput. Chem. Eng. 33 (2009), Fig. 2:

    for each horizon (t <= t_1, t_2, ..., t_end):
        solve the least squares problem of its measurements inside the present bounds
        while an updated bound is active: relax it (eqs. 10, 11), solve again
        update the bounds by the confidence of the estimate (eq. 9)

Ours differs where measurements taught us: a trust region that bears failed integrations, bounds
widened by a bad fit, help between horizons, rough early searches, further starts (`horizons`).
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from igpe.core.arguments import Checked, Flag
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible
from igpe.core.estimates import Estimate, Horizon
from igpe.core.markup import counted
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.search.engine import Attempt, Restarts, concluded
from igpe.dynamics.shooting.base import (
    Profile,
    in_deviations,
    limited,
    refuse_censored,
    remarks,
    require_known_sigma,
    require_numbers,
    require_plain,
    require_start,
    spread_of,
)
from igpe.dynamics.shooting.horizons import (
    MOST,
    OSCILLATES,
    Reach,
    SamplingDensity,
    held,
    in_the_way,
    limits_around,
    places,
    prior,
    reaches,
    require_increasing,
)
from igpe.dynamics.shooting.residuals import ExhaustedError, Residuals, untouched
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.numerics.least_squares.base import Fit, Linearised, Search, stacked
from igpe.numerics.least_squares.gauss_newton import GaussNewton, LineSearch
from igpe.problem.problem import Problem

ROUGH_RTOL, ROUGH_ATOL, ROUGH_STEPS = 1e-6, 1e-8, 500
"""Of integrations on early horizons: what they find is a start for the next one, no more; and near
a pole every further step is wasted. CVODES needs 90 ms to use up 20,000 steps there, as long as for
fifty integrations that succeed."""
EARLY = (
    "The search was interrupted before the last horizon. An integration to the end would take too "
    "long, so the sum of squares of the estimate is unknown."
)


@dataclass(frozen=True)
class IncrementalShooting(Checked):
    """Single shooting on a growing horizon: a method that tolerates starts far from the optimum.

    integrator  method that computes the model's trajectories and sensitivities
    search      least-squares method for the last horizon; igpe divides the residuals by their
                standard deviations
    early       least-squares method for all horizons before the last
    intervals   times at which the horizons end; None: after 1, 2, 4, 8, ... measurements (see
                `horizons`)
    robust      whether to integrate early horizons with low accuracy first, to widen bounds after a
                bad fit, and to repair an estimate for which the model cannot be integrated over a
                longer horizon; False: as published by Michalik, Hannemann & Marquardt (2009)
    restarts    settings for additional starts, which igpe tries if a fit is bad
    """

    integrator: Integrator = Automatic()
    search: Search = GaussNewton(absolute=1e-6)
    early: Search = GaussNewton(tolerance=1e-3, absolute=1e-2, max_iterations=40)
    intervals: tuple[float, ...] | None = None
    robust: Flag = True
    restarts: Restarts = field(default_factory=Restarts)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.intervals is not None:
            require_increasing(self.intervals)
            object.__setattr__(self, "intervals", tuple(float(t) for t in self.intervals))

    @classmethod
    def as_published(cls, integrator: Integrator = Automatic()) -> "IncrementalShooting":
        """Return the method as published (Michalik, Hannemann & Marquardt 2009, Fig. 2).

        A failed integration ends the run.
        """
        search = LineSearch(absolute=1e-6)
        return cls(integrator, search, search, robust=False, restarts=Restarts(count=0))

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamics.shooting.base.Estimator`. The argument `profiles` is ignored.

        The trail of the estimate contains the horizons, each an `igpe.core.estimates.Horizon`.
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
        """Translate and compile the model once, for many starts.

        The argument `profiles` is ignored.
        raises Unsupported for robust losses, constraints and time-varying unknowns
        """
        require_plain(problem, "IncrementalShooting", constraints_too=True)
        require_known_sigma(problem, "IncrementalShooting")
        refuse_censored(problem, "IncrementalShooting")
        require_numbers(problem, "IncrementalShooting.prepare")
        exact, rough = self.integrator, self.integrator
        if self.robust:
            rough = dataclasses.replace(
                exact,
                rtol=max(ROUGH_RTOL, exact.rtol),
                atol=max(ROUGH_ATOL, exact.atol),
                max_steps=min(ROUGH_STEPS, exact.max_steps),
            )
        return PreparedIncremental(self, problem, rough)


class _Stage(NamedTuple):
    """The problem of one horizon; last: whether it holds all measurements."""

    residuals: Residuals
    reach: Reach
    last: bool


class _Counted:
    """A horizon's residuals in standard deviations, as its searches see them.

    start   (n,) where the prior is centred; None: there is none
    calls   integrations so far
    """

    def __init__(self, residuals: Residuals, search: "PreparedIncremental") -> None:
        self.residuals, self.search, self.calls = residuals, search, 0
        self.start: FloatArray | None = None

    def __call__(self, x: FloatArray) -> Linearised | None:
        """Residuals and derivative at x (n,), or None if an integration broke down."""
        if self.search.work > self.search.most_work:
            raise ExhaustedError
        self.calls += 1
        before = self.residuals.work
        at = self.residuals(x)
        self.search.work += self.residuals.work - before
        if at is None:
            return None
        spread = self.search.spread
        at = Linearised(at.residual / spread, at.jacobian / spread)
        if self.start is None:
            return at
        return stacked([at, prior(x, self.start, self.search.box)])


class PreparedIncremental:
    """A problem compiled for incremental shooting.

    rough      the integrator of early horizons
    work       of all searches so far (`Residuals.work`)
    most_work  after which `ExhaustedError` is raised
    """

    work, most_work = 0.0, np.inf

    def __init__(self, method: IncrementalShooting, problem: Problem, rough: Integrator) -> None:
        self.method, self.problem, self.box = method, problem, problem.box
        self.horizons = reaches(problem.experiments, method.intervals)
        self.spread, self.sigma_known = spread_of(problem), problem.sigma_known
        self.residuals = Residuals(problem, method.integrator)
        self.stages = self._stages(self.residuals)
        self.rough_stages = self.stages
        if rough != method.integrator:
            roughly = Residuals(problem, rough)
            roughly.best = self.residuals.best
            self.rough_stages = [*self._stages(roughly)[:-1], self.stages[-1]]
        explained = method.restarts.explained(len(self.residuals))
        self.gate = explained if self.sigma_known else np.inf  # cost that errors explain

    def _stages(self, residuals: Residuals) -> list[_Stage]:
        final = self.horizons[-1]
        return [_Stage(residuals.until(r.ends), r, r is final) for r in self.horizons]

    @cached_property
    def samplings(self) -> tuple[SamplingDensity, ...]:
        """Of each experiment, to judge how densely it was measured."""
        return tuple(map(SamplingDensity, self.residuals.runs))

    def estimate(self, start: Mapping[str, float]) -> Estimate:
        """The search from `start`, as an Estimate of the free unknowns."""
        began, count = time.perf_counter(), len(self.horizons)
        name = f"incremental single shooting, {counted(count, 'horizon')}"
        if len(self.box) == 0:
            return untouched(self.residuals, name)
        require_start(start, self.box, "IncrementalShooting")
        first = self.box.clip(self.box.vector(start))
        attempts = self.method.restarts.run(self._attempt, first, self.box, self.gate)
        estimate, unit = concluded(attempts, self.box, name), self.spread**2
        return dataclasses.replace(
            estimate,
            objective=estimate.objective * unit,
            reached=tuple(cost * unit for cost in estimate.reached),
            seconds=time.perf_counter() - began,
            notes=(
                *estimate.notes,
                *remarks(attempts[0].fit, self.box, self.gate),
                *self.residuals.slow,
            ),
        )

    def _attempt(self, start: FloatArray) -> Attempt:
        """One run over all horizons, from `start` (n,) inside the bounds."""
        self.residuals.best.clear()
        try:
            with interruptible():
                attempt = self._run(start, self.rough_stages)
                broke = attempt.fit.status is Status.INTEGRATION_BROKE
                if broke and self.rough_stages is not self.stages:
                    attempt = self._run(start, self.stages)
                return attempt
        except KeyboardInterrupt:
            fit = self.residuals.best_fit()
            notes = (EARLY,) if fit.at is None else ()
            return Attempt(in_deviations(fit, self.spread), notes=notes)

    def _run(self, start: FloatArray, stages: Sequence[_Stage]) -> Attempt:
        x, box = start, self.box
        past: list[FloatArray] = []
        trail: list[Horizon] = []
        for stage in stages:
            fit, box, begin, horizon = self._solved(stage, x, box, past)
            trail.append(horizon)
            if not fit.status.usable or fit.at is None:
                break
            past.append(begin)
            x = fit.x
            if not stage.last:
                rows, known = _without_prior(stage, fit.at), self.sigma_known
                box = limits_around(x, rows, self.box, sigma_known=known, scaled=self.method.robust)
        if not stage.last:  # no cost, and the notes say why it ended
            fit = fit._replace(at=None)
        notes = [*stage.residuals.reasons(fit), *held(fit.x, box, self.box)]
        sparse = fit.at is not None and all(s.too_sparse(fit.x) for s in self.samplings)
        notes += [OSCILLATES] if sparse else []
        return Attempt(fit, tuple(trail), tuple(notes), limited(fit), sparse)

    def _solved(
        self, stage: _Stage, x: FloatArray, box: Box, past: Sequence[FloatArray]
    ) -> tuple[Fit, Box, FloatArray, Horizon]:
        """Solve the horizon's problem, from x or the nearest place that can be integrated.

        past     where earlier horizons began
        returns  the fit, its bounds, where it began, and all of it as an estimate
        """
        robust, search = self.method.robust, self.method.early
        search = self.method.search if stage.last else search
        residual = _Counted(stage.residuals, self)
        few = robust and not stage.last and len(stage.residuals) <= len(x)
        others = places(x, past) if robust else iter(())
        begin: FloatArray | None = x
        while begin is not None:
            stage.residuals.broken, first = None, begin
            residual.start = None if not few else past[0] if past else begin
            fit = stage.residuals.ended(search.fit(residual, begin, box))
            if fit.status is not Status.INTEGRATION_BROKE or fit.at is not None:
                break
            begin = next(others, None)
            if begin is not None:
                begin, box = self.box.clip(begin), self.box
        steps, count = fit.steps, 0
        while count < MOST + len(box) and fit.status.usable:
            wider = in_the_way(fit, box, self.box, search, give_up=count >= MOST)
            if wider is None:
                break
            box, count = wider, count + 1
            fit = search.fit(residual, fit.x, box)
            steps += fit.steps
        unit = self.spread**2
        horizon = Horizon(
            self.box.mapping(fit.x),
            np.inf if fit.at is None else _without_prior(stage, fit.at).cost * unit,
            fit.status,
            "incremental single shooting",
            until=dict(zip(stage.residuals.experiments, stage.reach.ends, strict=True)),
            share=stage.reach.share,
            lower=self.box.mapping(box.lower),
            upper=self.box.mapping(box.upper),
            iterations=steps,
            integrations=residual.calls,
            relaxations=count,
        )
        return fit, box, first, horizon


def _without_prior(stage: _Stage, at: Linearised) -> Linearised:
    """The rows of the problem itself."""
    m = len(stage.residuals)
    return Linearised(at.residual[:m], at.jacobian[:m])
