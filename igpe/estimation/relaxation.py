"""Problems with constraints, first without them.

What is best without constraints and satisfies them is best with them, and a search without them has
all methods, statistics and features. Only where a constraint is active, or may be within the errors
of the estimate, igpe searches with the constraints. That search also begins at the optimum
without them. Bounds of variables over time are such constraints too.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
from scipy import special

from igpe.algebraic.step import Algebraic
from igpe.core.deadline import ended_by, require_going_on
from igpe.core.errors import EstimationFailed, IgpeError, Unsupported
from igpe.core.estimates import Estimate
from igpe.core.markup import bracketed, in_words
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.base import constraints, minimises_squares
from igpe.dynamics.shooting.limits_of_model import (
    passed_bounds,
    touched_bounds,
    violated,
    within_reach,
)
from igpe.dynamics.shooting.multiple_shooting import NOT_KEPT, MultipleShooting
from igpe.estimation.settings import CandidatePath, Settings
from igpe.problem.model import bounded_over_time, with_bounds, without_constraints
from igpe.problem.problem import Problem
from igpe.results.answer import SEARCHED
from igpe.results.result import Result

INACTIVE = (
    "The constraints {} are inactive: igpe estimated without them, and the estimate satisfies them."
)
ACTIVE = (
    "{} Without the constraints, the best fit is at {}. These constraints are violated there, or "
    "close to their limits: {}."
)
ONE_SEARCH = (
    "igpe searched with the constraints only from the optimum without them. Its objective, {:.6g}, "
    "is lower by {:.3g}, which is less than the errors explain."
)
CUT_SHORT = (
    "The call was stopped before igpe could search with the constraints. The estimate does not use "
    "them. These are violated there, or close to their limits: {}."
)
FIXED = "All unknowns are fixed, and the values violate these constraints: {}."
NOWHERE = "igpe found no parameter values within the bounds that satisfy the constraints."

FiveSteps: TypeAlias = Callable[[Problem, Result | None, Callable[[Result], bool]], Result]
"""(problem, the result without constraints or None, whether a result is accepted) -> result."""
UNCONSTRAINED = "the optimum without the constraints"
BESIDE = MultipleShooting(links=(), finer=1, restarts=Restarts(count=0))


def by_relaxation(problem: Problem, five_steps: FiveSteps) -> Result:
    """The result of a problem; if it has constraints, without them if they are inactive.

    At Ctrl-C and at the time limit it may be the estimate without them, which says so.

    raises  as the five steps; with the constraints that are active where they end without a result
    """
    names, lost, passed = constraints(problem), list[str](), list[str]()
    if not (names or any(map(bounded_over_time, problem.instances))):
        return five_steps(problem, None, _any)

    def keeps_all(result: Result) -> bool:
        passed[:] = _passed(problem, result)
        lost[:] = [*_active(problem, result), *(f"the bounds of {n}" for n in passed)]
        return not lost

    try:
        free = five_steps(problem.formed(without_constraints), None, keeps_all)
    except EstimationFailed:
        return five_steps(problem, None, _any)
    if not lost:
        note = [INACTIVE.format(bracketed(names))] * bool(names)
        return replace(free, notes=(*free.notes, *note))
    if not len(problem.box):
        raise EstimationFailed(FIXED.format(in_words(lost)), Status.INFEASIBLE)
    if passed:
        problem = problem.formed(partial(with_bounds, names=frozenset(passed)))
    return _with_constraints(problem, five_steps, free, in_words(lost))


def _with_constraints(problem: Problem, five_steps: FiveSteps, free: Result, active: str) -> Result:
    """The result of a search with the constraints, which begins also at the result without them."""
    at = in_words([f"{n} = {v:.6g}" for n, v in free.parameters.items()])
    try:
        require_going_on()
        return five_steps(problem, free, _any)
    except KeyboardInterrupt:
        actions = CUT_SHORT.format(active), *free.actions
        return replace(free, actions=actions, stopped_by=ended_by())
    except Unsupported as error:
        raise Unsupported(ACTIVE.format(error, at, active)) from error
    except EstimationFailed as error:
        raise EstimationFailed(ACTIVE.format(NOWHERE, at, active), error.status) from error


def beside(problem: Problem, free: Result, settings: Settings) -> Estimate | None:
    """The optimum with constraints next to the one without them, where no other search is needed.

    No optimum with constraints is better than the best without them. If the rise of the objective
    is what errors explain, a better one would be better by no more than that.

    free     the result without constraints
    returns  None where this is not so, or not known
    """
    is_known = problem.sigma_known and minimises_squares(problem) and not problem.is_correlated
    fits = free.adequacy is not None and not free.adequacy.lacks
    is_best = free.status in SEARCHED and fits and not free.other_optima
    if not (is_known and is_best) or settings.correction != Settings().correction:
        return None
    try:
        kept = BESIDE.estimate(problem, problem.box.mapping(problem.box.middle) | free.parameters)
    except IgpeError:
        return None
    rise = special.chdtri(len(problem.box), 1 - settings.confidence)
    is_kept = kept.status is Status.CONVERGED and not any(NOT_KEPT in n for n in kept.notes)
    gap = kept.objective - free.objective
    note = ONE_SEARCH.format(free.objective, gap)
    return replace(kept, notes=(*kept.notes, note)) if is_kept and gap <= rise else None


def from_free(like: Algebraic, start: Estimate) -> CandidatePath:
    """The candidate that begins at the result without constraints."""
    own = replace(like, parameters={}, answers=(), origin=UNCONSTRAINED)
    return CandidatePath(own, start, start)


def _active(problem: Problem, result: Result) -> list[str]:
    """Constraints that a known optimum violates, or that the estimate has no distance from.

    What cannot be computed counts as active.
    """
    if not constraints(problem):
        return []
    box, values = problem.box, result.parameters
    at = [box.names.index(p.name) for p in result.estimates[: len(result.covariance)]]
    covariance = np.zeros((len(box), len(box)))
    covariance[np.ix_(at, at)] = result.covariance
    try:
        lost = within_reach(problem, box.vector(values), covariance)
        others = [box.vector({**values, **one.parameters}) for one in result.other_optima]
        lost = lost.union(*violated(problem, *others))
    except IgpeError:
        return constraints(problem)
    return sorted(lost)


def _passed(problem: Problem, result: Result) -> list[str]:
    """The variables over time whose bounds the estimate leaves.

    Beyond bounds of implicit variables there is no solution: a search that ends next to one stalls.
    """
    x = problem.box.vector(result.parameters)
    passed = passed_bounds(problem, Automatic(), x)
    return passed if passed or result.status in SEARCHED else touched_bounds(problem, x)


def _any(_: Result) -> bool:
    return True
