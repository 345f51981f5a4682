"""Many starts, one answer: the search for a global optimum where nothing is proved.

Starts are spread by a seeded Sobol sequence; each is judged by one integration, and the best go
through the local search, in order, until enough of them agree.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from igpe.core.arguments import Checked, Count, CountFrom1
from igpe.core.arrays import FloatArray
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.search.engine import (
    UNANSWERED,
    Run,
    SearchJob,
    best_of,
    missing,
    prepared,
    searched,
)
from igpe.dynamics.shooting.base import Estimator, Profile, require_bounds, require_start
from igpe.dynamics.shooting.residuals import Best
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.dynamics.shooting.single_shooting import PreparedShooting, SingleShooting
from igpe.problem.problem import Problem
from igpe.tasks.run import Backend, Workers

STEPS = (10_000, 100_000, None)  # that the integration of a trial may take in all
FURTHER = 10  # times as many may an integration of a search from the best trials


@dataclass(frozen=True)
class MultiStart(Checked):
    """A local method, run from several starts.

    local    method that performs the local searches. With single shooting, igpe simulates all trial
             points and searches from the best; with other methods, it searches from the first
             `starts` trial points
    trials   number of trial points; igpe takes them from a seeded Sobol sequence within the bounds
    starts   number of local searches; fewer if single shooting cannot simulate the model at so many
             trial points, or only in many times the steps that other points need
    seed     seed of the Sobol sequence; the same seed gives the same result
    """

    local: Estimator = SingleShooting()
    trials: CountFrom1 = 64
    starts: CountFrom1 = 8
    seed: Count = 0

    def estimate(
        self,
        problem: Problem,
        start: Mapping[str, float],
        profiles: Sequence[Profile] = (),
        *,
        executor: Workers = None,
        store: str | Path | None = None,
        timeout: float | None = None,
    ) -> Estimate:
        """Return the best local optimum of all starts, including `start` (which may be empty).

        executor, store, timeout   executor, store and time limit of the searches, as for
                                   `igpe.campaign`

        After Ctrl-C igpe returns the best of the finished searches, with status INTERRUPTED. The
        trail of the estimate contains the horizons of the best search, if any, followed by the
        other distinct optima, best first.
        raises ProblemError if an unknown has no finite bounds to search in, or if a nonempty start
               omits an unknown or has a value that is not finite; other errors as in
               `igpe.campaign`
        """
        backend = Backend(executor, store, timeout)
        require_bounds(problem, "A search from many starts")
        if start:
            require_start(start, problem.box, "MultiStart")
        return iteratively_reweighted(
            problem,
            start,
            lambda p, s: self._estimate(p, s, profiles, backend),
            lambda p, s: self.local.estimate(p, s, profiles),
        )

    def _estimate(
        self,
        problem: Problem,
        start: Mapping[str, float],
        profiles: Sequence[Profile],
        backend: Backend,
    ) -> Estimate:
        began = time.perf_counter()
        given = [problem.box.vector(start)] if start else []
        job = SearchJob(problem, {"local": self.local}, profiles, trails=True)
        if not isinstance(self.local, SingleShooting):
            points = list(problem.box.sobol(self.starts, self.seed))
            runs = searched(job, np.array([*given, *points]), backend)
            return self._concluded(problem, runs, began)
        shooting = self.local.prepare(problem)
        best, tried = shooting.residuals.best, Best()
        try:
            points, steps = self._best_trials(shooting)
            tried = replace(best)  # searches begin with a best of their own
            job = job._replace(steps=steps)
            here = prepared(job, {"local": shooting.estimate})
            runs = searched(job, np.array([*given, *points]), backend, here=here)
            return self._concluded(problem, runs, began)
        except KeyboardInterrupt:
            if tried.x is not None and tried.at is not None:
                best.look_at(tried.x, tried.at)
            fit = shooting.residuals.best_fit()
            said = "best of the trials; no search finished"
            return Estimate(problem.box.mapping(fit.x), fit.cost, fit.status, said)

    def _concluded(self, problem: Problem, runs: Iterator[Run], began: float) -> Estimate:
        """The best of the searches, also at Ctrl-C if one of them is usable."""
        finished: list[Run] = []
        complete = True
        try:
            for one in runs:
                finished.append(one)
        except KeyboardInterrupt:
            if not any(one.estimate.status.usable for one in finished):
                raise
            complete = False
        found = [one.estimate for one in sorted(finished, key=lambda one: one.number)]
        best = best_of(found, problem.box, f"{len(found)} starts", complete=complete)
        if best is None:  # why the first one has no usable parameters
            middle = problem.box.mapping(problem.box.sobol(1, self.seed)[0])
            method = f"igpe could not simulate the model at any of {self.trials} trial points"
            best = Estimate(middle, np.inf, Status.INTEGRATION_BROKE, method)
            answered = [e for e in found if e.status not in UNANSWERED]
            if answered:
                best = replace(answered[0], notes=(*answered[0].notes, *missing(found)))
            elif found:
                best = replace(found[0], parameters=middle)
            best = replace(best, reached=(np.inf,) * len(found))
        return replace(best, seconds=time.perf_counter() - began)

    def _best_trials(self, shooting: PreparedShooting) -> tuple[list[FloatArray], int | None]:
        """Trials that are searched from, best first, and what an integration then may take.

        Those that take many steps are tried again only if fewer than half of the searches could
        begin without them: there one evaluation may take seconds.
        """
        shooting.residuals.best.clear()
        trials = shooting.problem.box.sobol(self.trials, self.seed)
        able: dict[int, float] = {}
        for steps in STEPS:
            with allowance(steps):
                for k in set(range(len(trials))) - set(able):
                    cost = shooting.cost(trials[k])
                    if cost is not None:
                        able[k] = cost
            if 2 * len(able) >= min(self.starts, self.trials):
                break
        best = sorted(able, key=lambda k: (able[k], k))[: self.starts]
        return [trials[k] for k in best], None if steps is None else FURTHER * steps
