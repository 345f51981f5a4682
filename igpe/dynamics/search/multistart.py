"""Many starts, one answer: searches for a global optimum where nothing is proved.

`MultiStart`: starts are spread by a seeded Sobol sequence; each is judged by one integration, and
the best go through the local search, in order, until enough of them agree.

`IteratedSearch`: good optima, changed or mixed, are the next starts.
A random start hardly ever lies in the basin of a model with tens of unknowns, but an optimum that
is wrong in a few of them is one redraw away (Lourenco, Martin & Stuetzle, in: Handbook of
Metaheuristics (2003)). Two optima that are wrong in different unknowns have better ones between
them and beside them: every other start is drawn from the box that two of the pool span, widened by
half its width on both sides (BLX of Eshelman & Schaffer, in: Foundations of Genetic Algorithms 2
(1993); scatter search did best for kinetic models in Villaverde et al., Bioinformatics 35 (2019)).
That asks for hundreds of searches. They are rough, in integration and in where they end, and only
the best go on exactly.

Trials are not ranked: what costs least without a search is a constant or a straight line through
the measurements, and leads nowhere else.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from igpe.core.arguments import Checked, Count, CountFrom1
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible
from igpe.core.estimates import Estimate
from igpe.core.progress import say
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
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
from igpe.dynamics.shooting.base import (
    Estimator,
    Profile,
    is_chi_squared,
    is_explained,
    require_bounds,
    require_start,
)
from igpe.dynamics.shooting.residuals import Best
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.dynamics.shooting.single_shooting import ONCE, PreparedShooting, SingleShooting
from igpe.numerics.least_squares.base import Fit, Logarithms
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import first_of_each, is_same_objective
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


ROUGH, RATHER = 1e-4, 1e-7  # rtol of the search, and of the way to what is integrated exactly
MOST_STEPS = 2000  # of an integration; more is not worth waiting for
FEW_STEPS = 500  # between two outputs
ENOUGH = 1e-5  # promised decrease, relative, at which a rough search ends
ALIKE = 0.5  # of -2 log L: rough ends that differ by less count as one
ENDING = 0.5  # s after which an interrupted search tries no further point
LONGER = 4  # times as long may those search that are among the best
SHARE = 0.1  # of the random starts that end anywhere, which must agree for the search to end
RETURNS = 25  # searches that end at the best optimum, after which no start is changed any more
UNCONFIRMED = 2  # times the patience, while fewer searches than must agree reached the best
WIDER = 0.5  # of the distance of two optima, on both sides: where a mixed start may lie beyond them
UNLIKELY = 3  # searches that end at one optimum that errors explain: a better one is unlikely
PART = 1 / 16  # of the work after which such an optimum ends the search
UNSEEN = 1e-2  # decrease of chi squared, with known errors, that no measurement shows
SPOKEN = 5.0  # s between two reports of progress
SPARE = 4  # times as many random starts may be tried where the model cannot be integrated at some
HALVINGS = 4  # the least share of the unknowns that are redrawn is 2 to the minus this


@dataclass(frozen=True)
class IteratedSearch(Checked):
    """Low-accuracy searches, first from random starts and then from modified optima, followed by
    accurate searches from the best optima.

    local       the method for the accurate searches; igpe sets its `hierarchical` to False
    starts      number of random starts from a seeded Sobol sequence, not counting starts at which
                the model cannot be integrated
    agreeing    number of random starts that must reach the best optimum before the search ends;
                these starts must also make up at least a tenth of all finished starts. Without
                the second condition, a few starts that lead to a flat line through the measurements
                could end the search
    patience    the search ends after this many successive modified starts without a better
                optimum, or when 25 low-accuracy searches have reached the best optimum. It is
                doubled while fewer than `agreeing` low-accuracy searches have reached it
    most        maximum number of modified starts; each is an optimum with some values redrawn, or a
                mixture of two optima
    work        limit on the work of the low-accuracy searches (`Residuals.work`); the default
                corresponds to about two minutes of processor time. A sixteenth is enough if errors
                of known size explain the best optimum and three searches have reached it
    pool        number of the best optima from which the modified starts are formed
    finalists   number of accurate searches that must succeed. The first starts at the best optimum,
                the next at the second best, and so on until enough searches have succeeded. One
                is enough if errors of known size explain the best optimum and three low-accuracy
                searches have reached it
    iterations  maximum number of iterations of a low-accuracy search; a search that starts at one
                of the best optima may take four times as many
    seed        seed of the random starts; the same seed gives the same result
    """

    local: SingleShooting = SingleShooting()
    starts: CountFrom1 = 40
    agreeing: CountFrom1 = 5
    patience: Count = 200
    most: Count = 2000
    work: Count = 4_800_000_000
    pool: CountFrom1 = 8
    finalists: CountFrom1 = 3
    iterations: CountFrom1 = 60
    seed: Count = 0

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """Return the best optimum found; `start` is an additional start (it may be empty).

        After Ctrl-C igpe returns the best point so far, with status INTERRUPTED. The trail contains
        the other distinct optima of the accurate searches, in order of the objective. `reached`
        contains the final objectives of the low-accuracy searches, and then those of the accurate
        searches.
        profiles  ignored
        raises    ProblemError if an unknown has no finite bounds to search in, or if a nonempty
                  start omits an unknown or has a value that is not finite; Unsupported as in
                  `SingleShooting`
        """
        require_bounds(problem, "A search from random starts")
        if start:
            require_start(start, problem.box, "IteratedSearch")
        return iteratively_reweighted(
            problem, start, self._estimate, self.local.estimate, self.local.integrator
        )

    def _estimate(self, problem: Problem, start: Mapping[str, float]) -> Estimate:
        began = time.perf_counter()
        exact = replace(self.local, hierarchical=False).prepare(problem)
        if len(problem.box) == 0:
            return exact.estimate({})
        given = [problem.box.vector(start)] if start else []
        search = _Search(self, self._prepared(problem, ROUGH))
        finals: list[Estimate] = []
        try:
            with interruptible():
                with allowance(MOST_STEPS):
                    search.run(given)
                self._finish(search, self._prepared(problem, RATHER), exact, finals)
            complete = not any(e.status is Status.INTERRUPTED for e in finals)
        except KeyboardInterrupt:
            complete = False
            if not any(e.status.usable for e in finals):
                finals = [self._cut_short(search, exact)]
        found = _concluded(problem, search, finals, complete=complete)
        return replace(found, seconds=time.perf_counter() - began)

    def _prepared(self, problem: Problem, rtol: float) -> PreparedShooting:
        """Single shooting as exact as that, of all unknowns together.

        To eliminate scales and offsets takes longer than all else in rough searches, and their
        ends are no better (docs/notes/search.md). Nor does it gain anything beside an optimum.
        """
        integrator = Automatic(rtol, rtol / 100, max_steps=FEW_STEPS, slack=100.0)
        unseen = UNSEEN if is_chi_squared(problem) else 0.0
        search = GaussNewton(ENOUGH, unseen, max_iterations=self.iterations)
        shooting = replace(
            self.local, integrator=integrator, search=search, restarts=ONCE, hierarchical=False
        )
        return shooting.prepare(problem)

    def _finish(
        self,
        search: "_Search",
        rather: PreparedShooting,
        exact: PreparedShooting,
        finals: list[Estimate],
    ) -> None:
        """Exact searches from the best into `finals`, until enough of them can be integrated."""
        box = exact.problem.box
        for end in search.pool:
            with allowance(MOST_STEPS):
                again = end._replace(at=None, status=Status.ITERATION_LIMIT)
                fit = _continued(rather, again, LONGER)
            x = end.x if fit.at is None else fit.x
            finals.append(exact.estimate(box.mapping(x)))
            if sum(e.status.usable for e in finals) >= (1 if search.is_sure else self.finalists):
                return

    def _cut_short(self, search: "_Search", exact: PreparedShooting) -> Estimate:
        """The best end of a rough search that can be integrated exactly, as it is.

        raises KeyboardInterrupt if there is none
        """
        here = search.rough.residuals.best.x
        points = [*(end.x for end in search.pool), *([] if here is None else [here])]
        exact.residuals.best.clear()
        fit = exact.residuals.best_of(points, ENDING)
        parameters = exact.problem.box.mapping(fit.x)
        return Estimate(parameters, fit.cost, fit.status, "an interrupted search")


class _Search:
    """The rough searches of one problem.

    pool  the best distinct ends, best first;  reached: costs of all that ended
    """

    def __init__(self, method: IteratedSearch, rough: PreparedShooting) -> None:
        self.method, self.rough = method, rough
        self.pool: list[Fit] = []
        self.is_likelihood = rough.problem.sigma_estimated
        self.is_chi_squared = is_chi_squared(rough.problem)
        self.reached: list[float] = []
        self._said = time.monotonic()

    def run(self, given: Sequence[FloatArray]) -> None:
        """From random starts and those given, and from what their best ends become, changed."""
        method, box = self.method, self.rough.problem.box
        for k, x in enumerate((*given, *box.sobol(SPARE * method.starts, method.seed))):
            if k >= method.starts + len(given) and self._ended >= method.starts:
                break
            self._search(x)
            if self._is_worked_out:
                return
        if self.pool and not self._agrees:
            self._modify()

    @property
    def _agrees(self) -> bool:
        return self._at_best >= max(self.method.agreeing, SHARE * self._ended)

    @property
    def _at_best(self) -> int:
        """Searches that ended at the best optimum."""
        best = self.pool[0].cost
        return sum(not self._below(best, cost) for cost in self.reached)

    def _modify(self) -> None:
        """Search from modified optima until many return to the best, or nothing better comes."""
        method, box = self.method, self.rough.problem.box
        others = box.sobol(method.most, method.seed + 1) if method.most else ()
        random, idle = np.random.default_rng(method.seed), 0
        for k, other in enumerate(others):
            best = self.pool[0].cost
            first, *more = (self.pool[i].x for i in random.permutation(len(self.pool)))
            if more and k % 2:
                child = _mixed(first, more[0], random, box)
            else:
                child = _redrawn(first, other, random)
            self._search(child)
            idle = 0 if self._below(self.pool[0].cost, best) else idle + 1
            times = 1 if self._at_best >= method.agreeing else UNCONFIRMED
            is_over = idle >= times * method.patience or self._at_best >= RETURNS
            if is_over or self._is_worked_out:
                return

    @property
    def _ended(self) -> int:
        """Searches that could begin."""
        return sum(np.isfinite(cost) for cost in self.reached)

    @property
    def _is_worked_out(self) -> bool:
        if not self.pool:
            return False
        return self.rough.residuals.work >= self.method.work * (PART if self.is_sure else 1.0)

    @property
    def is_sure(self) -> bool:
        """Whether errors of known size explain the best optimum, which several reached."""
        best = self.pool[0].at
        if best is None or self._at_best < UNLIKELY:
            return False
        return is_explained(self.rough.problem, best)

    def _below(self, one: float, other: float) -> bool:
        """Whether a rough objective is better than another, and not the same."""
        return one < other and not self._is_same(one, other)

    def _is_level(self, one: float, other: float) -> bool:
        """Whether one end stands for both, by their objectives; likelihoods have no size."""
        return abs(one - other) <= ALIKE if self.is_likelihood else is_same_objective(one, other)

    def _is_same(self, one: float, other: float) -> bool:
        """Whether two rough objectives count as the same; chi squared also within `ALIKE`."""
        return (self.is_chi_squared and abs(one - other) <= ALIKE) or self._is_level(one, other)

    def _search(self, start: FloatArray) -> None:
        """Keep where it ends, if it is among the best; of ends of one objective, one is kept."""
        fit = self.rough.fit(self.rough.problem.box.mapping(start))
        has_room = len(self.pool) < self.method.pool
        if fit.at is not None and (has_room or self._below(fit.cost, self.pool[-1].cost)):
            fit = _continued(self.rough, fit, LONGER - 1)
        self.reached.append(fit.cost)
        if fit.at is None:
            return
        pool = sorted([*self.pool, fit], key=lambda one: one.cost)
        self.pool = first_of_each(pool, lambda a, b: self._is_level(a.cost, b.cost))[
            : self.method.pool
        ]
        self._tell()

    def _tell(self) -> None:
        """Report progress, but not too often."""
        if time.monotonic() >= self._said + SPOKEN:
            self._said = time.monotonic()
            count, at_best, best = len(self.reached), self._at_best, self.pool[0].cost
            say(f"{count} searches, {at_best} of them at the best objective so far, {best:.4g}")


def _redrawn(parent: FloatArray, other: FloatArray, random: np.random.Generator) -> FloatArray:
    """The parent (n,) with some of its unknowns from another point: a half of them, or fewer."""
    count = round(len(parent) * 2.0 ** -random.integers(1, HALVINGS, endpoint=True))
    child = parent.copy()
    drawn = random.choice(len(parent), max(count, 1), replace=False)
    child[drawn] = other[drawn]
    return child


def _mixed(one: FloatArray, other: FloatArray, random: np.random.Generator, box: Box) -> FloatArray:
    """A point (n,) of the box that two points span, widened; in logarithms where sought so."""
    logarithms = Logarithms(box)
    start, end = logarithms.there(one), logarithms.there(other)
    share = random.uniform(-WIDER, 1 + WIDER, len(box))
    inner = logarithms.box
    return logarithms.home(inner.clip(start + share * (end - start)))


def _continued(prepared: PreparedShooting, fit: Fit, times: int) -> Fit:
    """The search taken up again so many times, as long as it has not come to its end.

    Nor is it where errors explain the fit and chi squared is the same as before.
    """
    box = prepared.problem.box
    for _ in range(times):
        if fit.status is not Status.ITERATION_LIMIT:
            break
        more = prepared.fit(box.mapping(fit.x))
        if more.at is None or not more.cost < fit.cost:
            break
        creeps = fit.cost - more.cost <= ALIKE
        fit = more
        if creeps and is_explained(prepared.problem, more.at):
            break
    return fit


def _concluded(
    problem: Problem, search: _Search, finals: Sequence[Estimate], *, complete: bool
) -> Estimate:
    """The best of the finalists."""
    count = len(search.reached)
    best = best_of(finals, problem.box, f"{count} rough searches", complete=complete)
    if best is None:
        if finals:
            return finals[0]
        middle = problem.box.mapping(problem.box.sobol(1, search.method.seed)[0])
        method = f"igpe could not simulate the model from any of the {count} starts"
        return Estimate(middle, np.inf, Status.INTEGRATION_BROKE, method)
    usable = (e.objective for e in finals if e.status.usable)
    return replace(best, reached=(*search.reached, *usable))
