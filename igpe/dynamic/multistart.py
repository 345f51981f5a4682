"""Many starts, one answer: the search for a global optimum where nothing is proved.

Starts are spread by a seeded Sobol sequence; each is judged by one integration, and the best go
through the local search, in order, until enough of them agree.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from igpe.arrays import FloatArray
from igpe.dynamic.base import Profile
from igpe.dynamic.single_shooting import PreparedShooting, SingleShooting
from igpe.errors import ProblemError
from igpe.estimate import Estimate
from igpe.least_squares.base import Fit
from igpe.problem import Problem
from igpe.status import Status

SAME_COST = 1e-4  # optima whose sums of squares differ by less, relatively, are the same


@dataclass(frozen=True)
class MultiStart:
    """Single shooting from several starts.

    trials   points of the box that are simulated once
    starts   how many of the best are searched from
    seed     of the Sobol sequence; the same seed gives the same result
    """

    local: SingleShooting = SingleShooting()
    trials: int = 64
    starts: int = 8
    seed: int = 0

    def estimate(
        self,
        problem: Problem,
        start: Mapping[str, float],
        profiles: Sequence[Profile] = (),
    ) -> Estimate:
        """The best local optimum over all starts; `start` is one more of them (may be empty).

        The trail of the estimate holds the other distinct optima, best first.
        raises ProblemError if an unknown has no finite bounds to search in
        """
        began = time.perf_counter()
        prepared = self.local.prepare(problem)
        if len(problem.box) == 0:
            return prepared.estimate({})
        optima = distinct(self._optima(prepared, problem, start))
        seconds = time.perf_counter() - began
        method = f"single shooting from {self.starts} of {self.trials} starts (seed {self.seed})"
        if not optima:
            middle = problem.box.mapping(problem.box.sobol(1, self.seed)[0])
            return Estimate(
                middle, float("inf"), Status.INTEGRATION_BROKE, method, seconds=seconds
            )
        found = [_estimate(problem, fit, method) for fit in optima]
        status = Status.BEST_OF_SEVERAL
        return replace(found[0], status=status, seconds=seconds, trail=tuple(found[1:]))

    def _optima(
        self, prepared: PreparedShooting, problem: Problem, start: Mapping[str, float]
    ) -> list[Fit]:
        points = self._points(prepared, problem)
        if set(problem.box.names) <= set(start):
            points.insert(0, problem.box.vector(start))
        fits = [prepared.search.fit(prepared.residuals, p, problem.box) for p in points]
        return [f for f in fits if np.isfinite(f.cost)]

    def _points(self, prepared: PreparedShooting, problem: Problem) -> list[FloatArray]:
        box = problem.box
        if not box.bounded:
            loose = [
                n
                for n, low, high in zip(box.names, box.lower, box.upper, strict=True)
                if not np.isfinite([low, high]).all()
            ]
            raise ProblemError(
                f"A search from many starts needs finite bounds; {loose} have none. Give them: "
                "parameters={'k': (0, 10)} or in the model's Var."
            )
        trials = box.sobol(self.trials, self.seed)
        judged = [(prepared.residuals(p), p) for p in trials]
        able = [(at.cost, k, p) for k, (at, p) in enumerate(judged) if at is not None]
        return [p for _, _, p in sorted(able, key=lambda item: item[:2])[: self.starts]]


def distinct(fits: Sequence[Fit]) -> list[Fit]:
    """Fits with different sums of squares, best first."""
    kept: list[Fit] = []
    for fit in sorted(fits, key=lambda f: f.cost):
        if not kept or fit.cost > kept[-1].cost * (1 + SAME_COST) + np.finfo(float).tiny:
            kept.append(fit)
    return kept


def _estimate(problem: Problem, fit: Fit, method: str) -> Estimate:
    return Estimate(problem.box.mapping(fit.x), fit.cost, fit.status, method)
