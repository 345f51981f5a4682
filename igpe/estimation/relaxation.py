"""Problems with constraints, first without them.

What is best without constraints and satisfies them is best with them, and a search without them has
all methods, statistics and features. Only where a constraint is active, or may be within the errors
of the estimate, igpe searches with the constraints. That search also begins at the optimum
without them. Bounds of variables over time are such constraints too.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from igpe.core.deadline import ended_by, require_going_on
from igpe.core.errors import EstimationFailed, IgpeError, Unsupported
from igpe.core.markup import bracketed, in_words
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.base import constraints
from igpe.dynamics.shooting.limits_of_model import (
    passed_bounds,
    touched_bounds,
    violated,
    within_reach,
)
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
CUT_SHORT = (
    "The call was stopped before igpe could search with the constraints. The estimate does not use "
    "them. These are violated there, or close to their limits: {}."
)
FIXED = "All unknowns are fixed, and the values violate these constraints: {}."
NOWHERE = "igpe found no parameter values within the bounds that satisfy the constraints."

FiveSteps: TypeAlias = Callable[
    [Problem, Mapping[str, float] | None, Callable[[Result], bool]], Result
]
"""(problem, values that step 5 also corrects, or None, whether a result is accepted) -> result."""


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
        return five_steps(problem, free.parameters, _any)
    except KeyboardInterrupt:
        actions = CUT_SHORT.format(active), *free.actions
        return replace(free, actions=actions, stopped_by=ended_by())
    except Unsupported as error:
        raise Unsupported(ACTIVE.format(error, at, active)) from error
    except EstimationFailed as error:
        raise EstimationFailed(ACTIVE.format(NOWHERE, at, active), error.status) from error


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
