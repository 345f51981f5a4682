"""Multiple shooting: intervals that begin at nodes of their own and meet in the end.

Continuation from free nodes (`least_squares/soft_links`), then generalised Gauss-Newton with
exact matching (`least_squares/generalised`; Bock 1981, Peifer and Timmer 2007), then a look at
chi squared: a fit that the measurement errors do not explain is a wrong minimum, and the search
begins again with tighter links, with more intervals, and from elsewhere.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, TypeAlias

import numpy as np

from igpe.core.arguments import (
    Checked,
    CountFrom1,
    Flag,
    PositiveOrNone,
    Rule,
    instance_of,
    is_finite,
    shown,
)
from igpe.core.arrays import FloatArray
from igpe.core.deadline import Deadline, finishing, interruptible
from igpe.core.errors import IgpeError, ProblemError
from igpe.core.estimates import Estimate
from igpe.core.markup import in_words
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search.backward_lifting import BackwardLifting
from igpe.dynamics.search.engine import PERFECT, Attempt, Restarts, concluded
from igpe.dynamics.shooting.base import (
    Profile,
    constraints,
    in_deviations,
    is_plain,
    limited,
    minimises_squares,
    objective_at,
    refuse,
    remarks,
    require_start,
    spread_of,
)
from igpe.dynamics.shooting.chains import (
    Chains,
    Shooting,
    chains_of,
    given,
    most_intervals,
    node_times,
    starting_point,
)
from igpe.dynamics.shooting.limits_of_model import passed_between, passed_bounds
from igpe.dynamics.shooting.multiple_shooting_search import (
    ExactSearch,
    finished_by_single_shooting,
    objective,
    space_of,
    stages_of,
)
from igpe.dynamics.shooting.residuals import (
    FINISH,
    ExhaustedError,
    Residuals,
    slow,
    untouched,
)
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.chains import Point
from igpe.numerics.least_squares.generalised import GeneralisedGaussNewton
from igpe.numerics.least_squares.proposal import Space
from igpe.numerics.least_squares.soft_links import SoftLinks
from igpe.numerics.optima import is_same_objective
from igpe.problem.experiment import Experiment
from igpe.problem.model import has_constant_bounds, with_bounds
from igpe.problem.problem import Problem

EARLY = (
    "The search was interrupted before the intervals were joined, so the sum of squares is "
    "unknown, and constraints may be violated."
)
Links: TypeAlias = Annotated[
    tuple[SoftLinks, ...],
    Rule(
        lambda v: isinstance(v, tuple | list) and all(isinstance(s, SoftLinks) for s in v),
        "a tuple of SoftLinks(...), which may be empty",
    ),
]
Unobserved: TypeAlias = Annotated[
    Mapping[str, float] | float | None,
    Rule(
        lambda v: v is None or is_finite(*(v.values() if isinstance(v, Mapping) else [v])),
        "a finite number, or one for each state: {'A': 0.0}",
    ),
]
EXACT, FEW = GeneralisedGaussNewton(), Restarts(count=4)
TURNS = 4  # of adding times at which constraints are kept
NOT_KEPT = "igpe does not enforce these constraints at all times: "
FINISHING = 1_000_000_000  # work of single shooting (`Residuals.work`); half a minute
AnyIntegrator: TypeAlias = Annotated[Integrator, instance_of(Integrator)]


@dataclass(frozen=True)
class MultipleShooting(Checked):
    """Least squares, or a robust loss, on a trajectory that is divided into intervals.

    At the end of the search, the intervals join into a continuous trajectory (exact matching). The
    method tolerates bad start values of parameters, because the states start near their
    measurements. If the start value of a measured state is estimated, igpe takes its first guess
    from the measurements, whatever `start` contains.

    Exact matching enforces the constraints of the model; the preceding continuation does not.
    Constraints can be equations or inequalities that relate unknowns and states at any of the
    model's times; they may also relate the start to the end (for example, for a periodic
    trajectory). igpe enforces inequalities and bounds over time at the measured times first. If the
    trajectories pass them between these times, it adds the times at which they do so most.

    integrator  integrator for exact matching, used for all intervals and their derivatives
    rough       integrator for the continuation, where lower accuracy is sufficient
    intervals   maximum number of intervals in each experiment; intervals begin at measured times.
                An experiment with delayed events that states trigger has only one interval
    finer       factor by which igpe multiplies the number of intervals for a second attempt if
                measurement errors do not explain the residuals; 1: no second attempt
    unobserved  start values of states that are not measured: a number, or a dict {state: number};
                by default igpe simulates these states and interpolates the other states
    links       continuations, each of which starts with separate intervals and gradually joins
                them. igpe tries the continuations in this order until measurement errors explain
                the residuals or, if errors are unknown, until two fits agree. (): only exact
                matching
    search      search method for exact matching; use `BackwardLifting()` for hundreds of unknowns
    restarts    settings for additional starts, which igpe tries if a fit is bad
    time_limit  limit on the wall-clock time of an estimate, in seconds; the first evaluation of
                each stage may exceed it. At the limit, igpe integrates the model once at the best
                estimate so far and returns this estimate. Its status is TIME_LIMIT, or the status
                of the search if the search has finished. The status is FAILED if the intervals have
                not been joined yet and the problem has constraints or a robust loss. None: no limit
    record      whether the trail keeps every iterate, for `igpe.plots.plot_gaps` and
                `igpe.plots.plot_pieces`
    """

    integrator: AnyIntegrator = Automatic(slack=100.0)
    rough: AnyIntegrator = Automatic(1e-6, 1e-8, max_steps=2_000, slack=100.0)
    intervals: CountFrom1 = 30
    finer: CountFrom1 = 2
    unobserved: Unobserved = None
    links: Links = (SoftLinks(factor=100.0, enough=0.1), SoftLinks(), SoftLinks(size=0.1))
    search: Annotated[ExactSearch, instance_of(GeneralisedGaussNewton, BackwardLifting)] = EXACT
    restarts: Annotated[Restarts, instance_of(Restarts)] = FEW
    time_limit: PositiveOrNone = None
    record: Flag = False

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamics.shooting.base.Estimator`. The argument `profiles` gives the start
        values of the nodes."""
        once, deadline = replace(self, restarts=Restarts(count=0)), Deadline.after(self.time_limit)
        return iteratively_reweighted(
            problem,
            start,
            lambda p, s: self._estimate(p, s, profiles, deadline),
            lambda p, s: once._estimate(p, s, profiles, deadline),
        )

    def _estimate(
        self,
        problem: Problem,
        start: Mapping[str, float],
        profiles: Sequence[Profile],
        deadline: Deadline,
    ) -> Estimate:
        """The estimate that also keeps constraints over time where trajectories would pass them."""
        estimate = self.prepare(problem, profiles)._estimate(start, deadline)
        # Backward lifting keeps bounds of states at nodes alone.
        once = replace(self, restarts=Restarts(count=0), finer=1, links=(), search=EXACT)
        for turn in range(TURNS + 1):
            try:
                finer, lost = _at_passed(problem, self.integrator, estimate)
            except IgpeError:
                break
            if not lost:
                break
            again = estimate
            if turn < TURNS and not deadline.over:
                again = once.prepare(finer, profiles)._estimate(estimate.parameters, deadline)
            if again is estimate or not again.status.usable:
                return replace(estimate, notes=(*estimate.notes, f"{NOT_KEPT}{in_words(lost)}."))
            reached, trail = (
                (again.objective, *estimate.reached[1:]),
                (*estimate.trail, *again.trail),
            )
            problem, estimate = finer, replace(again, reached=reached, trail=trail)
        return estimate

    def prepare(self, problem: Problem, profiles: Sequence[Profile] = ()) -> "PreparedMultiple":
        """Translate and compile the model once, for many starts.

        raises Unsupported for constraints on undetermined variables, ProblemError for
               `unobserved` states that the model does not have
        """
        refuse(problem, "MultipleShooting", "spectra", "estimated sigma", "censored", "correlated")
        refuse(problem, "MultipleShooting.prepare", "weights follow fit")
        states = list(dict.fromkeys(n for i in problem.instances for n in i.states))
        named = self.unobserved if isinstance(self.unobserved, Mapping) else ()
        if unknown_names := [n for n in named if n not in states]:
            raise ProblemError(
                f"`unobserved` has values for {shown(unknown_names)}, which are not states of the "
                f"model; its states are {states}."
            )
        if not all(map(has_constant_bounds, problem.instances)):  # nodes know no others
            problem = problem.formed(with_bounds)
        return PreparedMultiple(self, problem, tuple(profiles))


class PreparedMultiple:
    """A problem compiled for multiple shooting.

    known   what is known of the states of each experiment
    stages  how a search goes on from a point
    """

    def __init__(
        self, method: MultipleShooting, problem: Problem, profiles: tuple[Profile, ...]
    ) -> None:
        self.method, self.problem, self.profiles = method, problem, profiles
        chains = chains_of(problem, method.integrator, method.intervals)
        self.known = tuple(
            given(problem, k, shooting, profiles[k] if profiles else None, method.unobserved)
            for k, shooting in enumerate(chains.shootings)
        )
        rough = chains.integrated(method.rough)
        self.stages = stages_of(problem, chains, rough, method.search, record=method.record)
        self.spread = spread_of(problem)

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
        began, name = time.perf_counter(), "multiple shooting"
        box, problem, restarts = self.problem.box, self.problem, self.method.restarts
        if len(box) == 0:
            nothing, at = untouched(self._residuals, name), self._residuals(np.zeros(0))
            return nothing if at is None else replace(nothing, objective=objective_at(problem, at))
        require_start(start, box, "MultipleShooting")
        judged = problem.sigma_known and problem.loss.is_squares
        gate = restarts.explained(len(self.chains)) if judged else np.inf
        attempts = restarts.run(
            lambda x: self._attempt(x, gate, deadline),
            box.clip(box.vector(start)),
            box,
            gate,
            deadline,
        )
        estimate, best = concluded(attempts, box, name), attempts[0]
        costs = [objective(problem, a.fit.at, self.spread) for a in attempts]
        pairs = zip(costs, attempts, strict=True)
        slowly = slow(s.intervals for s in self.chains.shootings)
        notes = [*estimate.notes, *remarks(best.fit, box, gate), *slowly]
        if deadline.over and not _explained(best, gate):
            notes.append(
                f"The time limit of {self.method.time_limit:g} s ended the search; a longer "
                "search may find better parameter values."
            )
        return replace(
            estimate,
            objective=costs[0],
            reached=tuple(c if a.fit.status.usable else np.inf for c, a in pairs),
            notes=tuple(notes),
            seconds=time.perf_counter() - began,
        )

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
                best = self._best(x, gate, deadline)
                enough = _explained(best, gate) or gate == np.inf or deadline.over
                if not enough and self._finer is not None:
                    best = min(best, self._finer._best(x, gate, deadline), key=_rank)
                return best._replace(limited=limited(best.fit))
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
                    return Attempt(in_deviations(fit, self.spread))
        if not reached:
            raise KeyboardInterrupt
        return Attempt(Fit(reached[0], None, Status.INTERRUPTED, 0), notes=(EARLY,))

    def _best(self, x: FloatArray, gate: float, deadline: Deadline) -> Attempt:
        """The best of the continuations up to the first that is explained.

        Where errors are not known, up to the first two that agree.
        """
        start = self.begin(x)
        space = self.space(start)
        attempts: list[Attempt] = []
        for links in self.method.links or (None,):
            attempt = self.stages.run(start, space, links, deadline)
            attempts.append(self._finished(attempt, deadline))
            *_, other, last = None, *attempts
            agree = other is not None and _agree(other, last) and not np.isfinite(gate)
            if deadline.over or agree or _explained(last, gate):
                break
        return min(attempts, key=_rank)

    def _finished(self, one: Attempt, deadline: Deadline) -> Attempt:
        """The attempt, finished by single shooting if need be and if that can do it."""
        status, held = one.fit.status, constraints(self.problem)
        if not self.problem.loss.is_squares or held:
            return one
        bounded = any(np.isfinite([k.lower, k.upper]).any() for k in self.known)
        endless = status in {Status.ITERATION_LIMIT, Status.FAILED}
        if endless and not (bounded or deadline.over):  # shooting keeps no state bounds
            residuals = deadline.keeping(self._last_residuals)
            with suppress(ExhaustedError):
                one = finished_by_single_shooting(one, residuals, self.problem.box, self.spread)
        if deadline.over and one.fit.status is Status.FAILED:  # its nodes do not meet
            at = self._residuals(one.fit.x)
            if at is not None:
                fit = one.fit._replace(at=at, status=Status.TIME_LIMIT, active=None)
                one = one._replace(fit=in_deviations(fit, self.spread), notes=())
        return one

    @cached_property
    def _residuals(self) -> Residuals:
        return Residuals(self.problem, Automatic())

    @cached_property
    def _last_residuals(self) -> Residuals:
        """Those of single shooting that finishes attempts, with a limit of work for all of them."""
        residuals = Residuals(self.problem, Automatic())
        residuals.most_work = FINISHING
        return residuals

    @cached_property
    def _finer(self) -> "PreparedMultiple | None":
        """The same in more intervals, if there can be more."""
        count = self.method.finer * self.method.intervals
        pairs = zip(self.problem.experiments, self.chains.shootings, strict=True)

        def finer(experiment: Experiment, s: Shooting) -> FloatArray:
            return node_times(experiment, most_intervals(s.ivp, count), s.measurements.times)

        if all(len(finer(e, s)) == len(s.nodes) for e, s in pairs):
            return None
        method = replace(self.method, intervals=count, finer=1)
        return method.prepare(self.problem, self.profiles)


def _at_passed(
    problem: Problem, integrator: Integrator, estimate: Estimate
) -> tuple[Problem, list[str]]:
    """The problem at the times where constraints and bounds over time are passed most, and these.

    raises  as `passed_between`
    """
    if not estimate.status.usable:
        return problem, []
    x = problem.box.vector(estimate.parameters)
    if bounds := passed_bounds(problem, integrator, x):
        problem = problem.formed(partial(with_bounds, names=frozenset(bounds)))
    if not problem.inequalities:
        return problem, []
    lost = set[str]()
    for k in range(len(problem.experiments)):
        times, names = passed_between(problem, k, x)
        if names:
            problem = problem.built_at(k, {*problem.instances[k].time, *times.tolist()})
            lost |= {*names}
    return problem, sorted(lost)


def _explained(attempt: Attempt, gate: float) -> bool:
    enough = gate if np.isfinite(gate) else PERFECT
    return attempt.fit.status.usable and attempt.fit.cost <= enough


def _agree(one: Attempt, other: Attempt) -> bool:
    """Whether two fits are as good as each other."""
    usable = one.fit.status.usable and other.fit.status.usable
    return usable and is_same_objective(one.fit.cost, other.fit.cost)


def _rank(attempt: Attempt) -> tuple[bool, float]:
    return not attempt.fit.status.usable, attempt.fit.cost
