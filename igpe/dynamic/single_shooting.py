"""Single shooting: integrate, compare, Gauss-Newton."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from igpe.dynamic.base import Profile, require_plain
from igpe.dynamic.residuals import Residuals
from igpe.equations.system import read_systems
from igpe.estimates import Estimate
from igpe.integrators.base import Integrator
from igpe.integrators.sundials import Sundials
from igpe.least_squares.base import Fit
from igpe.least_squares.gauss_newton import GaussNewton
from igpe.problem import Problem
from igpe.status import Status


@dataclass(frozen=True)
class SingleShooting:
    """Least squares on the integrated model, from one start.

    Good when the start is near; a bad start may break the integration (a status, not an exception).
    """

    integrator: Integrator = Sundials()
    search: GaussNewton = GaussNewton()

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamic.base.Estimator`; `profiles` are not used."""
        return self.prepare(problem).estimate(start)

    def prepare(self, problem: Problem) -> "PreparedShooting":
        """Translate and compile once, to estimate from many starts.

        raises Unsupported for robust losses, constraints and time-varying unknowns
        """
        require_plain(problem, "SingleShooting", constraints_too=True)
        residuals = Residuals(problem, read_systems(problem), self.integrator)
        return PreparedShooting(problem, residuals, self.search)


@dataclass(frozen=True)
class PreparedShooting:
    """A problem compiled for single shooting."""

    problem: Problem
    residuals: Residuals
    search: GaussNewton

    def fit(self, start: Mapping[str, float]) -> Fit:
        """The search from `start`, with residuals and derivative where it ended."""
        box = self.problem.box
        return self.search.fit(self.residuals, box.vector(start), box)

    def estimate(self, start: Mapping[str, float]) -> Estimate:
        """The search from `start`, as an Estimate of the free unknowns."""
        began = time.perf_counter()
        box = self.problem.box
        if len(box) == 0:
            at = self.residuals(box.lower)
            cost = float("inf") if at is None else at.cost
            return Estimate({}, cost, Status.NOTHING_TO_DO, "single shooting")
        fit = self.fit(start)
        seconds = time.perf_counter() - began
        return Estimate(
            box.mapping(fit.x), fit.cost, fit.status, "single shooting", seconds=seconds
        )
