"""Single shooting: integrate, compare, Gauss-Newton."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from igpe.core.arrays import FloatArray
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
    remarks,
    require_numbers,
    require_plain,
    require_start,
    spread_of,
)
from igpe.dynamics.shooting.projected import Eliminated, UnlikeError, projected
from igpe.dynamics.shooting.residuals import Residuals, untouched
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.dynamics.shooting.switch_times import moved_across
from igpe.numerics.least_squares.base import Fit, Search
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
        return iteratively_reweighted(
            problem,
            start,
            lambda p, s: self.prepare(p).estimate(s),
            lambda p, s: once.prepare(p).estimate(s),
            self.integrator,
        )

    def prepare(self, problem: Problem, profiles: Sequence[Profile] = ()) -> "PreparedShooting":
        """Translate and compile the model once, for many starts.

        The argument `profiles` is ignored.
        raises Unsupported for constraints, and for robust losses with estimated standard deviations
        """
        require_plain(
            problem, "SingleShooting", constraints_too=True, varying_too=False, losses_too=False,
            spectra_too=False,
        )  # fmt: skip
        require_numbers(problem, "SingleShooting.prepare")
        residuals = Residuals(problem, self.integrator)
        # A likelihood does not tell whether a fit is bad.
        restarts = ONCE if problem.sigma_estimated else self.restarts
        few = projected(problem, residuals) if self.hierarchical else None
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
            notes=(*estimate.notes, *remarks(fit, box, gate), *self.residuals.slow),
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
        return moved_across(own, self.search, fit, self.problem.box)

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
