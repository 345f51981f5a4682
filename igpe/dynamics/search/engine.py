"""The search engine: draws starts, runs estimators from them, ranks and merges their optima.

`searched` runs methods from given starts, wherever that is done (`igpe.tasks`), and `best_of` makes
one estimate of theirs: `MultiStart`, `IteratedSearch`, `igpe.campaign` and
`igpe.estimation.compare` are uses of it. Which optima are the same is decided by
`igpe.numerics.optima` alone.

`Restarts` begin again within one estimator, where a fit is worse than the errors explain. With
known standard deviations the sum of squares of the right parameters is chi squared; a fit far
beyond it is a wrong minimum, or the model is wrong. The search begins again elsewhere, until it
passes or several starts agree that nothing better is there.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from igpe.core.arguments import (
    SHORT,
    Checked,
    Count,
    CountFrom1,
    Fraction,
    digest,
    is_count,
    is_number,
    require,
)
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import NEVER, Deadline
from igpe.core.errors import DataError, ProblemError
from igpe.core.estimates import Estimate, Horizon, estimate_of, estimate_row
from igpe.core.json_form import checked_types
from igpe.core.status import Status
from igpe.dynamics.integrators.limits import allowance, allowed
from igpe.dynamics.shooting.base import (
    Estimator,
    Profile,
    from_many_starts,
    most_explained,
    require_bounds,
    require_start,
)
from igpe.equations.compiled import fingerprint
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.optima import distinct_estimates, has_same_values
from igpe.problem.problem import Problem
from igpe.tasks.run import DAMAGED, Backend, run
from igpe.tasks.workers import Function, Item, ItemOutcome, Row, Work

UNANSWERED = {Status.TIMED_OUT, Status.WORKER_DIED, Status.RAISED}

Search: TypeAlias = Callable[[Mapping[str, float]], Estimate]
"""A method prepared for one problem, as a function of the start."""


class SearchJob(NamedTuple):
    """What a task needs: a problem, and methods that search it.

    profiles  of the problem's experiments, as for `Estimator.estimate`
    trails    whether the estimates keep their trails, which may be long
    steps     that an integration may take in all; None: as its integrator says
    """

    problem: Problem
    methods: Mapping[str, Estimator]
    profiles: Sequence[Profile] = ()
    trails: bool = False
    steps: int | None = None


class Run(NamedTuple):
    """One search: of which method, from which start (its number), and what was found.

    work  equivalent iterations and integrations (see `Estimate`)
    """

    method: str
    number: int
    estimate: Estimate
    work: tuple[float, float]


def searched(
    job: SearchJob,
    starts: FloatArray,
    backend: Backend,
    *,
    here: Function | None = None,
    begins: Callable[[str], None] = lambda name: None,
) -> Iterator[Run]:
    """Every method from every start, as they become known.

    starts  (count, n) in the order of the problem's box
    here    the function of `prepared`, where this process has it already
    begins  receives the name of a method before its first search
    raises  what the methods and `igpe.tasks.run` raise; ProblemError for profiles with a store
    """
    box, series = job.problem.box, ""
    if backend.store is not None:
        kept = "no profiles if a store is given, because igpe cannot compare functions of time"
        require(not job.profiles, "store", "profiles", job.profiles, kept)
        steps = () if job.steps is None else (job.steps,)
        series = digest("searches", fingerprint(job.problem), job.trails, *steps)
    keys = {name: digest(name, method)[:SHORT] for name, method in job.methods.items()}
    numbers: dict[str, tuple[str, int]] = {}

    def items() -> Iterator[Item]:
        for name in job.methods:
            begins(name)
            for number, start in enumerate(starts):
                key = f"{keys[name]} {number} {digest(start)[:SHORT]}"
                numbers[key] = (name, number)
                yield Item(key, (name, box.mapping(start)))

    for outcome in run(Work(prepared, job, series, here), items(), backend):
        name, number = numbers.pop(outcome.key)
        found = Run(name, number, *_told(outcome, box.names))
        # A method that keeps what it has at Ctrl-C has swallowed it.
        cut_short = found.estimate.status is Status.INTERRUPTED
        if job.trails or not cut_short:
            yield found
        if cut_short:
            raise KeyboardInterrupt


def prepared(job: SearchJob, done: Mapping[str, Search] = MappingProxyType({})) -> Function:
    """From (method, start) to an Estimate's row.

    done  methods that are prepared already
    """
    ready = {
        name: done.get(name) or from_many_starts(method, job.problem, job.profiles)
        for name, method in job.methods.items()
    }

    def search(given: tuple[str, Mapping[str, float]]) -> Row:
        name, start = given
        began = time.perf_counter()
        with allowance(allowed() if job.steps is None else job.steps):
            found = ready[name](start)
        row = estimate_row(replace(found, seconds=time.perf_counter() - began))
        return row if job.trails else row | {"trail": [], "elsewhere": []}

    return search


def is_estimator(given: Any) -> bool:
    """Whether it can estimate; a class of estimators cannot."""
    return callable(getattr(given, "estimate", None)) and not isinstance(given, type)


def given_starts(
    problem: Problem, starts: int | Sequence[Mapping[str, float]], seed: int, owner: str
) -> FloatArray:
    """(count, n) the starts that were given, or so many spread over the bounds by the seed.

    raises ProblemError for starts that are none, and a number of them without bounds
    """
    wanted = "a list of mappings, or a positive number of starts"
    if not isinstance(starts, Sequence):
        require(is_count(starts), owner, "starts", starts, wanted)
        if starts < 1:
            raise ProblemError(f"{starts} starts are requested; at least one is needed.")
        require(is_count(seed), owner, "seed", seed, "a whole number, 0 or more")
        require_bounds(problem, "A number of starts")
        return problem.box.sobol(int(starts), seed)
    require(not isinstance(starts, str), owner, "starts", starts, wanted)
    if not starts:
        raise ProblemError(
            f"There is no start for {owner}; give at least one start, or a number of starts."
        )
    for k, start in enumerate(starts):
        require_start(start, problem.box, owner, str(k))
    return np.array([problem.box.vector(start) for start in starts])


def unanswered(outcome: ItemOutcome, parameters: Mapping[str, float]) -> Estimate:
    """What stands for a search that did not end: why, in status and note."""
    assert outcome.status is not None, "called only for searches that did not return"
    return Estimate(
        parameters, np.inf, outcome.status, notes=(outcome.message,), seconds=outcome.seconds
    )


def best_of(
    estimates: Sequence[Estimate], box: Box, searches: str, *, complete: bool
) -> Estimate | None:
    """The best of several estimates, with the other optima in its trail; None if none is usable.

    searches  what they were, in words: "8 starts"
    complete  whether no search was interrupted
    """
    optima = distinct_estimates(estimates, box)
    if not optima:
        return None
    best, others = optima[0], optima[1:]
    status = Status.BEST_OF_SEVERAL if best.status is Status.CONVERGED else best.status
    left = (h for e in estimates if e is not best for h in (*e.trail, *e.elsewhere))
    return replace(
        best,
        status=status if complete else Status.INTERRUPTED,
        method=f"best of {searches}, {best.method}",
        notes=(*best.notes, *missing(estimates)),
        trail=(*(h for h in best.trail if isinstance(h, Horizon)), *others),
        elsewhere=(*best.elsewhere, *(h for h in left if isinstance(h, Horizon))),
        reached=tuple(e.objective if e.status.usable else np.inf for e in estimates),
    )


def missing(found: Sequence[Estimate]) -> tuple[str, ...]:
    """A sentence on searches that gave no answer; none if all did."""
    lost = [e for e in found if e.status in UNANSWERED]
    if not lost:
        return ()
    return (f"{len(lost)} of {len(found)} searches gave no result; {' '.join(lost[0].notes)}",)


def _told(outcome: ItemOutcome, names: Sequence[str]) -> tuple[Estimate, tuple[float, float]]:
    if outcome.status is not None:
        return unanswered(outcome, dict.fromkeys(names, np.nan)), (0.0, 0.0)
    row: dict[str, Any] = outcome.row
    try:
        work = float(row["equivalent_iterations"]), float(row["equivalent_integrations"])
        found = estimate_of(row)
        if set(found.parameters) != set(names) or not is_number(*found.parameters.values()):
            raise ValueError("other unknowns")
        return checked_types(found), work
    except (LookupError, TypeError, ValueError, AttributeError):
        raise DataError(DAMAGED.format(outcome.key)) from None


CLOSE, SHARE = 10.0, 1e-2  # in chi squared, or of the least cost where errors are not known: a fit
# that is no worse than this is preferred to one that oscillates between the measurements
TRIES = 100  # for a start that is none of those before
PERFECT = 1e-6  # cost in (guessed) standard deviations where searches end: only rounding is left
DECADES = 2.0  # a new start without bounds lies so many below the first, at most


class Attempt(NamedTuple):
    """One run from one start.

    limited  whether the accuracy of the integration limits it: its cost cannot be judged
    sparse   whether the model oscillates between the measurements: a slower one may fit as well
    """

    fit: Fit
    trail: tuple[Horizon, ...] = ()
    notes: tuple[str, ...] = ()
    limited: bool = False
    sparse: bool = False


@dataclass(frozen=True)
class Restarts(Checked):
    """Conditions for restarts of a search, and the points from which it restarts.

    count     maximum number of additional starts
    chance    probability that igpe judges a correct fit to be bad
    agreeing  number of agreeing estimates after which the search ends, even if measurement errors
              do not explain the residuals. If the size of these errors is unknown or the
              integration is not accurate, igpe requires two agreeing estimates instead
    seed      seed of the random starts; the same seed gives the same result
    """

    count: Count = 20
    chance: Fraction = 1e-6
    agreeing: CountFrom1 = 3
    seed: Count = 0

    def explained(self, size: int) -> float:
        """Return the largest cost that measurement errors of known size can explain, for `size`
        residuals."""
        return most_explained(size, self.chance)

    def run(
        self,
        attempt: Callable[[FloatArray], Attempt],
        start: FloatArray,
        box: Box,
        gate: float,
        deadline: Deadline = NEVER,
    ) -> list[Attempt]:
        """Search from `start` (n,) and, if necessary, from additional starts.

        gate      cost below which no further start is needed; infinite if errors are unknown
        deadline  time limit for restarts
        returns   the finished attempts, best first, even if interrupted by Ctrl-C
        raises    KeyboardInterrupt if no attempt was finished
        """
        others = distinct_points(self._elsewhere(start, box), start)
        found = [attempt(start)]
        interrupted = found[0].fit.status is Status.INTERRUPTED
        while len(found) <= self.count and not (
            interrupted or deadline.over or self._enough(found, box, gate)
        ):
            another = next(others, None)
            if another is None:
                break
            try:
                found.append(attempt(another))
                interrupted = found[-1].fit.status is Status.INTERRUPTED
            except KeyboardInterrupt:
                interrupted = True
        best, *rest = ranked(found, gate)
        if interrupted and best.fit.status.usable:
            best = best._replace(fit=best.fit._replace(status=Status.INTERRUPTED))
        return [best, *rest]

    def _enough(self, found: Sequence[Attempt], box: Box, gate: float) -> bool:
        best = ranked(found, gate)[0]
        if not best.fit.status.usable:
            return best.fit.status is Status.NO_SOLVER
        explained = best.fit.cost <= (gate if np.isfinite(gate) else PERFECT)
        if explained and not best.sparse:
            return True
        usable = [other.fit for other in found if other.fit.status.usable]
        agreeing = sum(has_same_values(best.fit.x, fit.x, box) for fit in usable)
        return agreeing >= (2 if best.limited or gate == np.inf else self.agreeing)

    def _elsewhere(self, start: FloatArray, box: Box) -> Iterator[FloatArray]:
        """Anywhere in finite bounds, else at the start or below it, where models are slow.

        What begins at zero and has no bounds is taken to be of order one.
        """
        if box.bounded:
            yield from box.sobol(self.count, self.seed)
        random = np.random.default_rng(self.seed)
        width = box.upper - box.lower
        order_one = np.where(box.upper > 0, 1.0, -1.0)
        size = np.where(start != 0, start, np.where(np.isfinite(width), width, order_one))
        while True:
            yield box.clip(size * 10.0 ** (-DECADES * random.uniform(size=len(start))))


def distinct_points(points: Iterator[FloatArray], start: FloatArray) -> Iterator[FloatArray]:
    """The points that are neither `start` nor an earlier one, until no more come."""
    seen, tries = {start.tobytes()}, 0
    for point in points:
        tries += 1
        if point.tobytes() not in seen:
            seen.add(point.tobytes())
            yield point
            tries = 0
        if tries >= TRIES:
            return


def ranked(found: Sequence[Attempt], gate: float) -> list[Attempt]:
    """Usable ones first, by their cost; but of those close to the best, the well sampled first."""
    least = min((a.fit.cost for a in found if a.fit.status.usable), default=np.inf)
    close = least + (CLOSE if np.isfinite(gate) else SHARE * least + PERFECT)

    def backend(one: Attempt) -> tuple[bool, bool, bool, float]:
        far = one.fit.cost > close
        return not one.fit.status.usable, far, one.sparse and not far, one.fit.cost

    return sorted(found, key=backend)


def concluded(attempts: Sequence[Attempt], box: Box, method: str) -> Estimate:
    """The first attempt as an estimate; residuals are in units of one standard deviation."""
    best, several = attempts[0], len(attempts) > 1
    status = best.fit.status
    if several:
        method = f"best of {len(attempts)} starts, {method}"
        status = Status.BEST_OF_SEVERAL if status is Status.CONVERGED else status
    return Estimate(
        box.mapping(best.fit.x),
        best.fit.cost,
        status,
        method,
        trail=best.trail,
        notes=best.notes,
        elsewhere=tuple(h for a in attempts[1:] for h in a.trail),
        iterations=sum(h.iterations for h in best.trail) or best.fit.steps,
        reached=tuple(a.fit.cost if a.fit.status.usable else np.inf for a in attempts),
    )
