"""Steps 4 and 5 on the dynamics.

What algebra could not reach is estimated with the rest held; candidates of step 3 are corrected,
all unknowns at once.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from igpe.core.arguments import digest
from igpe.core.deadline import finishing
from igpe.core.errors import EstimationFailed, Unsupported
from igpe.core.estimates import Estimate, estimate_of, estimate_row
from igpe.core.status import Status
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search.engine import UNANSWERED, Restarts, unanswered
from igpe.dynamics.search.multistart import ENOUGH, STEPS, IteratedSearch, MultiStart
from igpe.dynamics.shooting.base import (
    ROUGHLY,
    Estimator,
    Profile,
    estimate_each,
    is_large,
    is_plain,
    minimises_squares,
    mostly_measured,
    objective_at,
)
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.equations.compiled import compiled, fingerprint
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import is_same_objective
from igpe.problem.problem import Problem
from igpe.solvers.ipopt import Ipopt
from igpe.tasks.run import Backend, run
from igpe.tasks.workers import Function, Item, Work

SOON, TRIALS = 0.3, 16  # s and points of `roughly`
FEW = 4  # starts where every one is a collocation problem of its own
BRIEFLY = IteratedSearch(starts=40, most=80, patience=40, work=2_400_000_000)
ROUGH = SingleShooting(ROUGHLY, GaussNewton(ENOUGH), hierarchical=False)
SPECTRAL = replace(BRIEFLY, most=160, patience=80)  # docs/notes/dynamics.md
MANY = 8  # unknowns: a random start hardly ever lies in the basin of the best optimum


class ComplementJob(NamedTuple):
    """What a task needs: a problem, and how its remaining unknowns are searched."""

    problem: Problem
    search: Estimator


def complements(
    job: ComplementJob, ladder: Sequence[Mapping[str, float]], backend: Backend
) -> list[Estimate | None]:
    """`complement` of every candidate of step 3, in their order, wherever that is done.

    One whose search gave no answer has its other unknowns amid their bounds, and says why; one that
    Ctrl-C came before is None.
    raises EstimationFailed if none gave an answer; KeyboardInterrupt if it came before all; what
           `igpe.tasks.run` raises
    """
    series = (
        "" if backend.store is None else digest("complement", fingerprint(job.problem), job.search)
    )
    items = {f"{k} {digest(c)}": c for k, c in enumerate(ladder)}
    known: dict[str, Estimate] = {}
    try:
        for one in run(Work(_prepared, job, series), map(Item, items, items.values()), backend):
            if one.status is None:
                known[one.key] = estimate_of(one.row)
            else:
                rest = job.problem.fixing(items[one.key]).box
                known[one.key] = unanswered(one, {**items[one.key], **rest.mapping(rest.middle)})
            if known[one.key].status is Status.INTERRUPTED:
                break
    except KeyboardInterrupt:
        if not known:
            raise
    if all(e.status in UNANSWERED for e in known.values()):
        first = next(iter(known.values()))
        raise EstimationFailed(
            f"Step 4 could not complete any of the {len(known)} candidates. "
            f"{first.status.value} {' '.join(first.notes)}",
            first.status,
        )
    return [known.get(key) for key in items]


def _prepared(job: ComplementJob) -> Function:
    return lambda found: estimate_row(complement(job.problem, found, job.search))


def complement(problem: Problem, found: Mapping[str, float], search: Estimator) -> Estimate:
    """All free unknowns: those `found`, and the others from many starts with these held.

    Where the search proves a bound, it holds with what was `found` held.
    """
    rest = problem.fixing(found)
    if len(rest.box) == 0:
        return Estimate(
            dict(found), float("nan"), Status.NOTHING_TO_DO, "all unknowns are estimated in step 3"
        )
    answer = chosen_search(problem, found, search).estimate(rest, {})
    return Estimate(
        {**found, **answer.parameters},
        answer.objective,
        answer.status,
        answer.method,
        answer.lower_bound,
        seconds=answer.seconds,
        trail=answer.trail,
        notes=answer.notes,
        reached=answer.reached,
    )


def chosen_search(problem: Problem, found: Mapping[str, float], search: Estimator) -> Estimator:
    """The search of the other unknowns than those `found`, for one that the settings give.

    A problem with constraints is searched from few starts by collocation, which keeps them, or by
    multiple shooting where the loss is not least squares or priors are not normal. The default is
    rough, as step 5 goes on from its ends. `IteratedSearch` replaces it where step 3 estimated
    nothing and many unknowns are left, as in most PEtab problems; and, with fewer starts, of
    spectra, whose objective has wells that the best of random points miss: there nothing comes from
    algebra, and an evaluation is quick.
    """
    if not isinstance(search, MultiStart):
        return search
    if not is_plain(problem):
        is_usual = minimises_squares(problem) and not problem.other_priors
        local = Collocation(max_refinements=0) if is_usual else MultipleShooting()
        return MultiStart(local, trials=FEW, starts=FEW, seed=search.seed)
    is_default = search == MultiStart(seed=search.seed)
    if is_default and not found and len(problem.box) >= MANY:
        return IteratedSearch(seed=search.seed)
    if is_default and not found and problem.has_spectra:
        return replace(SPECTRAL, seed=search.seed)
    return replace(search, local=ROUGH) if is_default else search


def searches_everywhere(problem: Problem, search: Estimator) -> bool:
    """Return True if all unknowns, where step 3 estimated none, are left to `IteratedSearch`."""
    return isinstance(chosen_search(problem, {}, search), IteratedSearch)


def roughly(problem: Problem, found: Mapping[str, float]) -> Estimate:
    """All free unknowns without a search: the best of few trials, within a second.

    For a call that was interrupted before step 4 had anything.
    raises KeyboardInterrupt if the model cannot be integrated at any of them
    """
    rest = problem.fixing(found)
    if len(rest.box) == 0:
        return Estimate(
            dict(found), np.nan, Status.INTERRUPTED, "all unknowns are estimated in step 3"
        )
    if not is_plain(rest) or not rest.box.bounded:
        raise KeyboardInterrupt
    with finishing():
        residuals = Residuals(rest, Sundials(seconds=SOON))
    fit = residuals.best_of(rest.box.sobol(TRIALS, 0), SOON)
    parameters = {**found, **rest.box.mapping(fit.x)}
    cost = np.inf if fit.at is None else objective_at(rest, fit.at)
    return Estimate(parameters, cost, Status.INTERRUPTED, "trials, without a search")


WORK = 2_000_000  # of collocation (`most_work`), about 20 s of a processor; the rest by shooting
ITERATIONS = 100  # of IPOPT, which begins next to an optimum; most take a third of it
AMD = (("mumps_pivot_order", 0),)
"""MUMPS's minimum degree: for 100 states twice as fast as the ordering that it would choose."""
IN_INTERVALS = MultipleShooting(restarts=Restarts(count=0), finer=1)
NEARBY = SingleShooting(hierarchical=False)
"""Beside an optimum elimination gains nothing, and takes two to four times as long."""
DEAR = 2_000_000  # work of an integration with derivatives, about 50 ms
SHARES = 33  # of ranges, at which all unknowns are tried: four decades in steps of a third
AGREEING = 2  # candidates that multiple shooting brings to one optimum: it corrects no further ones


def corrections(
    problem: Problem,
    starts: Sequence[Mapping[str, float]],
    guesses: Sequence[Sequence[Profile]],
) -> list[Estimate]:
    """Estimates from the starts, in their order; the last ones may be left out.

    By collocation, or by shooting where that takes less work, or can do what collocation cannot.
    raises  Unsupported
    """
    with suppress(Unsupported):
        quick = _quick(problem, starts, guesses)
        if any(end.status.usable for end in quick):
            return quick
    methods: list[Estimator] = [Collocation(), NEARBY]
    if is_plain(problem):  # an accurate integration finishes it, and is the better judge
        ordering = AMD if is_large(problem) else ()
        solver = Ipopt(max_iterations=ITERATIONS, options=ordering)
        methods[0] = Collocation(solver, max_refinements=0, most_work=WORK)
    ends: list[Estimate] = []
    for method in methods:
        with suppress(Unsupported):
            ends += estimate_each(method, problem, starts[len(ends) :], guesses[len(ends) :])
            if len(ends) == len(starts):
                return ends
    if ends:
        return ends
    return estimate_each(MultipleShooting(restarts=Restarts(count=0)), problem, starts, guesses)


def _quick(
    problem: Problem,
    starts: Sequence[Mapping[str, float]],
    guesses: Sequence[Sequence[Profile]],
) -> list[Estimate]:
    """Many states with less work than collocation; empty if nothing takes less.

    Where most states are measured, intervals begin at the measurements, and no factors of the
    whole program are needed. Where few are, trajectories must be integrated from the start.
    """
    if not (is_plain(problem) and is_large(problem)):
        return []
    if not mostly_measured(problem):
        return estimate_each(NEARBY, problem, starts, guesses)
    equations = compiled(problem)
    each = (equations.initial_value_problem(k) for k in range(len(problem.experiments)))
    if any(ivp.y.numel() for ivp in each) or not minimises_squares(problem):
        return []
    even = _even(problem, starts)
    if even is not None and _is_explained(problem, even) and _is_dear(problem, even):
        return [even]
    ends: list[Estimate] = []
    for start, profiles in zip(starts, guesses, strict=True):
        ends.append(IN_INTERVALS.estimate(problem, start, profiles))
        usable = [end.objective for end in ends if end.status.usable]
        least = min(usable, default=np.inf)
        if sum(is_same_objective(one, least) for one in usable) >= AGREEING:
            break
    if even is not None and even.objective < min(usable, default=np.inf):
        ends[0] = even
    return ends


def _even(problem: Problem, starts: Sequence[Mapping[str, float]]) -> Estimate | None:
    """The optimum next to values at one share of all ranges, if these fit better than all starts.

    Where noise hides the slopes of many states, step 3 ends powers of ten beside the right values.
    Of what size unknowns are, a few integrations tell. None: a start is better, or bounds are
    infinite.
    """
    box = problem.box
    if not box.bounded:
        return None
    residuals = Residuals(problem, ROUGHLY)
    points = [*box.diagonal(SHARES), *(box.clip(box.vector(start)) for start in starts)]
    with allowance(STEPS[0]):
        found = [residuals.cost(x) for x in points]
    costs = [np.inf if cost is None or np.isnan(cost) else cost for cost in found]
    best = int(np.argmin(costs))
    if best >= SHARES or not np.isfinite(costs[best]):
        return None
    end = ROUGH.estimate(problem, box.mapping(points[best]))
    method = f"{end.method}, starting at one share of the ranges of all unknowns"
    return replace(end, method=method) if end.status.usable else None


def _is_dear(problem: Problem, end: Estimate) -> bool:
    """Whether derivatives take so long that multiple shooting from other starts never ends."""
    residuals = Residuals(problem, ROUGHLY)
    residuals(problem.box.vector(end.parameters))
    return residuals.work > DEAR


def _is_explained(problem: Problem, end: Estimate) -> bool:
    """Whether errors of known size explain the sum of squares."""
    return problem.sigma_known and end.objective <= Restarts().explained(problem.size)
