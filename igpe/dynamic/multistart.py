"""Many starts, one answer: the search for a global optimum where nothing is proved.

Starts are spread by a seeded Sobol sequence; each is judged by one integration, and the best go
through the local search, in order, until enough of them agree.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from igpe.arguments import is_count, require
from igpe.dynamic.base import Estimator, Profile, from_many_starts, require_bounds
from igpe.dynamic.settling import settled
from igpe.dynamic.single_shooting import PreparedShooting, SingleShooting
from igpe.dynamic.wanted import require_start
from igpe.estimates import Estimate, Horizon
from igpe.problem import Problem
from igpe.status import Status

SAME = 1e-4  # optima whose objectives differ by less, relatively, are the same


@dataclass(frozen=True)
class MultiStart:
    """A local method from several starts.

    local    with single shooting all trials are simulated first and the best are searched from;
             any other method searches from the first `starts` trials
    trials   points of the box, by a seeded Sobol sequence
    starts   how many searches
    seed     of the sequence; the same seed gives the same result
    """

    local: Estimator = SingleShooting()
    trials: int = 64
    starts: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for field, least in (("trials", 1), ("starts", 1), ("seed", 0)):
            value = getattr(self, field)
            ok = is_count(value) and value >= least
            require(ok, "MultiStart", field, value, f"a whole number, {least} or more")

    def estimate(
        self,
        problem: Problem,
        start: Mapping[str, float],
        profiles: Sequence[Profile] = (),
    ) -> Estimate:
        """The best local optimum over all starts; `start` is one more of them (may be empty).

        The trail of the estimate holds the best one's horizons, if it has any, and after them the
        other distinct optima, best first.
        raises ProblemError if an unknown has no finite bounds to search in, or a start that is not
               empty leaves one out or is no finite number
        """
        require_bounds(problem, "A search from many starts")
        if start:
            require_start(start, problem.box, "MultiStart")
        return settled(
            problem,
            start,
            lambda p, s: self._estimate(p, s, profiles),
            lambda p, s: self.local.estimate(p, s, profiles),
        )

    def _estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile]
    ) -> Estimate:
        began = time.perf_counter()
        given = [start] if start else []
        if isinstance(self.local, SingleShooting):
            found = self._shoot(self.local.prepare(problem), given)
        else:
            points = problem.box.sobol(self.starts, self.seed)
            starts = [*given, *(problem.box.mapping(p) for p in points)]
            search = from_many_starts(self.local, problem, profiles)
            found = [search(s) for s in starts]
        optima = distinct(found)
        seconds = time.perf_counter() - began
        if not optima:
            return replace(found[0], seconds=seconds) if found else self._nothing(problem, seconds)
        best, others = optima[0], optima[1:]
        status = Status.BEST_OF_SEVERAL if best.status is Status.CONVERGED else best.status
        horizons = (h for h in best.trail if isinstance(h, Horizon))
        method = f"best of {len(found)} starts, {best.method}"
        left = (h for e in found if e is not best for h in (*e.trail, *e.elsewhere))
        return replace(
            best,
            status=status,
            method=method,
            seconds=seconds,
            trail=(*horizons, *others),
            elsewhere=(*best.elsewhere, *(h for h in left if isinstance(h, Horizon))),
        )

    def _shoot(
        self, prepared: PreparedShooting, given: list[Mapping[str, float]]
    ) -> list[Estimate]:
        box = prepared.problem.box
        trials = box.sobol(self.trials, self.seed)
        judged = [(prepared.residuals(p), p) for p in trials]
        able = [(at.cost, k, p) for k, (at, p) in enumerate(judged) if at is not None]
        best = [p for _, _, p in sorted(able, key=lambda item: item[:2])[: self.starts]]
        return [prepared.estimate(s) for s in (*given, *(box.mapping(p) for p in best))]

    def _nothing(self, problem: Problem, seconds: float) -> Estimate:
        middle = problem.box.mapping(problem.box.sobol(1, self.seed)[0])
        method = f"none of {self.trials} trials could be simulated"
        return Estimate(middle, np.inf, Status.INTEGRATION_BROKE, method, seconds=seconds)


def distinct(found: Sequence[Estimate]) -> list[Estimate]:
    """Usable estimates with different objectives, best first."""
    kept: list[Estimate] = []
    for one in sorted((e for e in found if e.status.usable), key=lambda e: e.objective):
        last = kept[-1].objective if kept else 0.0
        if not kept or one.objective > last + SAME * abs(last) + np.finfo(float).tiny:
            kept.append(one)
    return kept
