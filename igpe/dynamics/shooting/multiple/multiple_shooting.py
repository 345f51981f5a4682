"""Multiple shooting: intervals that begin at nodes of their own and meet in the end.

Continuation from free nodes (`chains/soft_links`), then generalised Gauss-Newton with
exact matching (`chains/generalised`; Bock 1981, Peifer and Timmer 2007), then a look at
chi squared: a fit that the measurement errors do not explain is a wrong minimum, and the search
begins again with tighter links, with more intervals, and from elsewhere.

Fields of multiple shooting that mean nothing, refused where they are given.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from igpe.core.arguments import is_count, is_finite, require, shown
from igpe.core.arrays import FloatArray
from igpe.core.deadline import Deadline, finishing, interruptible
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search.engine import PERFECT, Attempt, Restarts, concluded
from igpe.dynamics.shooting.base import (
    Profile,
    constraints,
    in_deviations,
    is_plain,
    limited,
    minimises_squares,
    objective_at,
    remarks,
    require_known_sigma,
    require_numbers,
    require_start,
    spread_of,
)
from igpe.dynamics.shooting.multiple.chains import (
    Chains,
    Given,
    given,
    node_times,
    shootings,
    starting_point,
)
from igpe.dynamics.shooting.multiple.search import (
    ExactSearch,
    Stages,
    finished_by_single_shooting,
    integrated_at_deadline,
    objective,
    space_of,
    stages_of,
)
from igpe.dynamics.shooting.residuals import FINISH, Residuals, untouched
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.chains.backward_lifting import BackwardLifting
from igpe.numerics.least_squares.chains.chains import Point
from igpe.numerics.least_squares.chains.generalised import GeneralisedGaussNewton
from igpe.numerics.least_squares.chains.proposal import Space
from igpe.numerics.least_squares.chains.soft_links import SoftLinks
from igpe.numerics.optima import is_same_objective
from igpe.problem.losses import LeastSquares
from igpe.problem.problem import Problem

OWNER = "MultipleShooting"


def check_fields(method: Any) -> None:
    """Raise ProblemError for a field of `MultipleShooting` that means nothing."""
    for field in ("integrator", "rough"):
        value = getattr(method, field)
        wanted = "an integrator: Automatic(), RungeKutta(), Sundials(), ..."
        require(isinstance(value, Integrator), OWNER, field, value, wanted)
    for field in ("intervals", "finer"):
        value = getattr(method, field)
        ok = is_count(value) and value >= 1
        require(ok, OWNER, field, value, "a whole number, 1 or more")
    kinds = {"search": (GeneralisedGaussNewton, BackwardLifting), "restarts": (Restarts,)}
    for field, kind in kinds.items():
        value, wanted = getattr(method, field), " or ".join(f"a {k.__name__}(...)" for k in kind)
        require(isinstance(value, kind), OWNER, field, value, wanted)
    require(isinstance(method.record, bool), OWNER, "record", method.record, "True or False")
    links = method.links
    ok = isinstance(links, (tuple, list)) and all(isinstance(s, SoftLinks) for s in links)
    require(ok, OWNER, "links", links, "a tuple of SoftLinks(...), which may be empty")
    limit = method.time_limit
    ok = limit is None or (is_finite(limit) and limit > 0)
    require(ok, OWNER, "time_limit", limit, "a number of seconds above 0, or None for no limit")
    said = method.unobserved
    numbers = said.values() if isinstance(said, Mapping) else [said]
    ok = said is None or is_finite(*numbers)
    require(ok, OWNER, "unobserved", said, "a finite number, or one for each state: {'A': 0.0}")


def check_unobserved(unobserved: Mapping[str, float] | float | None, problem: Problem) -> None:
    """Raise ProblemError for names that no experiment's model has as a state."""
    if not isinstance(unobserved, Mapping):
        return
    states = list(dict.fromkeys(n for instance in problem.instances for n in instance.states))
    strangers = [n for n in unobserved if n not in states]
    if strangers:
        raise ProblemError(
            f"unobserved has values for {shown(strangers)}, which are no states of the model; "
            f"its states are {states}."
        )


FINE, ROUGH = Automatic(slack=100.0), Automatic(1e-6, 1e-8, max_steps=2_000, slack=100.0)
QUICK = SoftLinks(factor=100.0, enough=0.1)
EARLY = (
    "The search was interrupted before the nodes met, so the sum of squares is not known, and "
    "constraints need not be kept."
)
EXACT, FEW = GeneralisedGaussNewton(), Restarts(count=4)


@dataclass(frozen=True)
class MultipleShooting:
    """Least squares, or a robust loss, on a trajectory in intervals that meet only in the end.

    Bears bad starts of parameters: what matters is that states begin near their measurements.
    Estimated start values of measured states begin there too, whatever `start` says.

    Constraints of the model are kept by exact matching, not yet by the continuation before it:
    equations and inequalities between unknowns and states at any of its times, start and end
    together as well (a periodic course). Inequalities over time are kept at its times, that is at
    the start, at all measured times, where the nodes are, and at times of the model's own; not
    between them.

    With many states and few unknowns (16 states and three parameters, say) exact matching has its
    derivatives along the directions that are left, through all intervals, in place of each
    interval's own: the same steps for less (Houska et al., equations 7 to 10).

    integrator  of all intervals with their derivatives, for exact matching
    rough       the same for the continuation, where less will do
    intervals   at most so many in each experiment, between measured times
    finer       times as many intervals where the fit is not explained; 1 for no such attempt
    unobserved  where states begin that nothing is known of: a number, or state -> number; by
                default where the model takes them, driven by the others
    links       continuations from free nodes, one after the other until the fit is explained, or
                two agree where errors are not known; () for exact matching from the beginning
    search      the search with exact matching; `BackwardLifting()` where unknowns are very many
    restarts    further starts where a fit is bad
    time_limit  s of the wall clock for an estimate; one evaluation of each stage may come after it.
                Then the result is the best so far, as one integration has it, with status
                TIME_LIMIT or that of a search that had ended; FAILED if nodes did not meet yet and
                there are constraints or a robust loss. None: no limit
    record      whether the trail keeps every iterate, for `igpe.plots.plot_gaps` and
                `igpe.plots.plot_pieces`
    raises      ProblemError for fields that mean nothing
    """

    integrator: Integrator = FINE
    rough: Integrator = ROUGH
    intervals: int = 30
    finer: int = 2
    unobserved: Mapping[str, float] | float | None = None
    links: tuple[SoftLinks, ...] = (QUICK, SoftLinks(), SoftLinks(size=0.1))
    search: ExactSearch = EXACT
    restarts: Restarts = FEW
    time_limit: float | None = None
    record: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamics.shooting.base.Estimator`; `profiles` are where the nodes begin."""
        once, deadline = replace(self, restarts=Restarts(count=0)), Deadline.after(self.time_limit)
        return iteratively_reweighted(
            problem,
            start,
            lambda p, s: self.prepare(p, profiles)._estimate(s, deadline),
            lambda p, s: once.prepare(p, profiles)._estimate(s, deadline),
        )

    def prepare(self, problem: Problem, profiles: Sequence[Profile] = ()) -> "PreparedMultiple":
        """Translate and compile once, to estimate from many starts.

        raises Unsupported for constraints on what no equation determines, ProblemError for
               `unobserved` states that the model does not have
        """
        require_known_sigma(problem, "MultipleShooting")
        require_numbers(problem, "MultipleShooting.prepare")
        check_unobserved(self.unobserved, problem)
        chains = Chains(problem, shootings(problem, self.integrator, self.intervals))
        known = tuple(
            given(problem, k, shooting, profiles[k] if profiles else None, self.unobserved)
            for k, shooting in enumerate(chains.shootings)
        )
        rough = chains.integrated(self.rough)
        stages = stages_of(problem, chains, rough, self.search, record=self.record)
        return PreparedMultiple(self, problem, tuple(profiles), known, stages)


@dataclass(frozen=True)
class PreparedMultiple:
    """A problem compiled for multiple shooting.

    profiles  as given;  known: what is known of the states of each experiment
    stages    how a search goes on from a point
    """

    method: MultipleShooting
    problem: Problem
    profiles: tuple[Profile, ...]
    known: tuple[Given, ...]
    stages: Stages

    @property
    def chains(self) -> Chains:
        """Residuals, gaps and derivatives, exactly integrated."""
        return self.stages.chains

    def fit(self, start: Mapping[str, float]) -> Fit:
        """One search from `start`, with residuals and derivative by the unknowns where it ended.

        They are in standard deviations, as known or guessed (`spread_of`).
        """
        box = self.problem.box
        require_start(start, box, "MultipleShooting")
        deadline = Deadline.after(self.method.time_limit)
        return self._best(box.clip(box.vector(start)), np.inf, deadline).fit

    def estimate(self, start: Mapping[str, float]) -> Estimate:
        """The search from `start`, as an Estimate of the free unknowns."""
        return self._estimate(start, Deadline.after(self.method.time_limit))

    def _estimate(self, start: Mapping[str, float], deadline: Deadline) -> Estimate:
        began = time.perf_counter()
        box, problem = self.problem.box, self.problem
        if len(box) == 0:
            return self._untouched()
        require_start(start, box, "MultipleShooting")
        restarts = self.method.restarts
        judged = problem.sigma_known and isinstance(problem.loss, LeastSquares)
        gate = restarts.explained(len(self.chains)) if judged else np.inf
        attempts = restarts.run(
            lambda x: self._attempt(x, gate, deadline),
            box.clip(box.vector(start)),
            box,
            gate,
            deadline,
        )
        found = concluded(attempts, box, "multiple shooting")
        costs = [objective(problem, a.fit.at, spread_of(problem)) for a in attempts]
        pairs = zip(costs, attempts, strict=True)
        return replace(
            found,
            objective=costs[0],
            reached=tuple(c if a.fit.status.usable else np.inf for c, a in pairs),
            notes=(
                *found.notes,
                *remarks(attempts[0].fit, box, gate),
                *self._stopped(deadline, attempts[0], gate),
            ),
            seconds=time.perf_counter() - began,
        )

    def _stopped(self, deadline: Deadline, best: Attempt, gate: float) -> Iterator[str]:
        """That time ended the search, or kept it from another start."""
        if deadline.over and not _explained(best, gate):
            yield (
                f"The time limit of {self.method.time_limit:g} s ended the search; a longer one "
                "may find better parameters."
            )

    def _untouched(self) -> Estimate:
        """The estimate of a problem that leaves nothing to estimate."""
        found = untouched(self._residuals, "multiple shooting")
        at = self._residuals(np.zeros(0))
        return found if at is None else replace(found, objective=objective_at(self.problem, at))

    def begin(self, start: FloatArray) -> Point:
        """Unknowns (n,) and nodes that a search from `start` (n,) begins at."""
        return starting_point(self.problem, self.stages.free.shootings, self.known, start)

    def space(self, start: Point) -> Space:
        """Where a search from `start` takes place."""
        return space_of(self.problem, self.known, start, self.stages.free(start))

    def _attempt(self, x: FloatArray, gate: float, deadline: Deadline) -> Attempt:
        self.stages.reached.clear()
        try:
            with interruptible():
                return self._full_attempt(x, gate, deadline)
        except KeyboardInterrupt:
            with finishing(), allowance(FINISH):
                return self._cut_short(x)

    def _cut_short(self, x: FloatArray) -> Attempt:
        """What an interrupted attempt from x (n,) is worth, by single shooting.

        Without residuals where none can be integrated in short time, or constraints are to be kept.
        raises KeyboardInterrupt if the search had not started
        """
        reached = list(self.stages.reached)
        if is_plain(self.problem) and minimises_squares(self.problem):
            residuals = Residuals(self.problem, Sundials())
            for point in (*reached, x):
                at = residuals(point)
                if at is not None:
                    fit = Fit(point, at, Status.INTERRUPTED, 0)
                    return Attempt(in_deviations(fit, spread_of(self.problem)))
        if not reached:
            raise KeyboardInterrupt
        return Attempt(Fit(reached[0], None, Status.INTERRUPTED, 0), notes=(EARLY,))

    def _full_attempt(self, x: FloatArray, gate: float, deadline: Deadline) -> Attempt:
        found = self._best(x, gate, deadline)
        enough = _explained(found, gate) or gate == np.inf or deadline.over
        if not enough and self._finer is not None:
            found = min(found, self._finer._best(x, gate, deadline), key=_rank)
        return found._replace(limited=limited(found.fit))

    def _best(self, x: FloatArray, gate: float, deadline: Deadline) -> Attempt:
        """The best of the continuations up to the first that is explained.

        Where errors are not known, up to the first two that agree.
        """
        start = self.begin(x)
        space = self.space(start)
        found: list[Attempt] = []
        for links in self.method.links or (None,):
            found.append(self._ended(self.stages.run(start, space, links, deadline), deadline))
            if deadline.over or _explained(found[-1], gate) or _agree(found[-2:], gate):
                break
        return min(found, key=_rank)

    def _ended(self, one: Attempt, deadline: Deadline) -> Attempt:
        """The attempt, brought to an end by single shooting if need be and if that can do it."""
        spread, plain = spread_of(self.problem), isinstance(self.problem.loss, LeastSquares)
        endless = one.fit.status in {Status.ITERATION_LIMIT, Status.FAILED}
        bounded = any(np.isfinite([k.lower, k.upper]).any() for k in self.known)
        held = constraints(self.problem)  # neither they nor bounds are kept by shooting
        if endless and plain and not (bounded or held or deadline.over):
            one = finished_by_single_shooting(
                one, deadline.keeping(self._residuals), self.problem.box, spread
            )
        if deadline.over and plain and not held and one.fit.status is Status.FAILED:
            one = integrated_at_deadline(one, self._residuals, spread)
        return one

    @cached_property
    def _residuals(self) -> Residuals:
        return Residuals(self.problem, Automatic())

    @cached_property
    def _finer(self) -> "PreparedMultiple | None":
        """The same in more intervals, if there can be more."""
        method = self.method
        count = method.finer * method.intervals
        here = [len(s.nodes) for s in self.chains.shootings]
        pairs = zip(self.problem.experiments, self.chains.shootings, strict=True)
        there = [len(node_times(e, count, s.measurements.times)) for e, s in pairs]
        if here == there:
            return None
        return replace(method, intervals=count, finer=1).prepare(self.problem, self.profiles)


def _explained(found: Attempt, gate: float) -> bool:
    enough = gate if np.isfinite(gate) else PERFECT
    return found.fit.status.usable and found.fit.cost <= enough


def _agree(last: Sequence[Attempt], gate: float) -> bool:
    """Whether two fits of unknown errors are as good as each other."""
    if np.isfinite(gate) or len(last) == 1 or not all(a.fit.status.usable for a in last):
        return False
    one, other = (a.fit.cost for a in last)
    return is_same_objective(one, other)


def _rank(found: Attempt) -> tuple[bool, float]:
    return not found.fit.status.usable, found.fit.cost
