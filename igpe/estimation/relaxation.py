"""Problems with constraints, first without them.

What is best without constraints and satisfies them is best with them, and a search without them has
all methods, statistics and features. Only where a constraint is active, or may be within the errors
of the estimate, igpe searches with the constraints. That search also begins at the optimum
without them. Bounds of states and algebraic variables are constraints where that search does not
keep them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from igpe.core.deadline import ended_by, require_going_on
from igpe.core.errors import EstimationFailed, IgpeError, Unsupported
from igpe.core.markup import bracketed, in_words
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.base import constraints
from igpe.dynamics.shooting.limits_of_model import violated, within_reach
from igpe.dynamics.shooting.refine import passed_bounds
from igpe.problem.model import with_bounds, without_constraints
from igpe.problem.problem import Problem
from igpe.results.result import Result

BETWEEN = 1e-3  # of a variable's size: what it may pass a bound by between points of a mesh
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
NOWHERE = "igpe found no parameter values within the bounds that satisfy the constraints."

FiveSteps: TypeAlias = Callable[[Problem, Mapping[str, float] | None], Result]
"""(problem, values that step 5 also corrects, or None) -> result."""


def by_relaxation(problem: Problem, five_steps: FiveSteps) -> Result:
    """The result of a problem; if it has constraints, without them if they are inactive.

    At Ctrl-C and at the time limit it may be the estimate without them, which says so.

    raises  as the five steps; with the constraints that are active where they end without a result
    """
    names, further, active = constraints(problem), None, list[str]()
    with suppress(*[EstimationFailed] * bool(names)):
        result = five_steps(problem.formed(without_constraints) if names else problem, None)
        active = _active(problem, result) if names else []
        if passed := _passed(problem, result):
            problem, active = problem.formed(with_bounds), [*active, *passed]
        if not active:
            note = [INACTIVE.format(bracketed(names))] * bool(names)
            return replace(result, notes=(*result.notes, *note))
        further = {e.name: e.value for e in result.estimates}
        actions = CUT_SHORT.format(in_words(active)), *result.actions
        so_far = replace(result, actions=actions)
    try:
        require_going_on()
        return five_steps(problem, further)
    except KeyboardInterrupt:
        if further is None:
            raise
        return replace(so_far, stopped_by=ended_by())
    except (EstimationFailed, Unsupported) as error:
        if further is None:
            raise
        values = in_words([f"{n} = {v:.6g}" for n, v in further.items()])
        if isinstance(error, Unsupported):
            raise Unsupported(ACTIVE.format(error, values, in_words(active))) from error
        why = ACTIVE.format(NOWHERE, values, in_words(active))
        raise EstimationFailed(why, error.status) from error


def _active(problem: Problem, result: Result) -> list[str]:
    """Constraints that a known optimum violates, or that the estimate has no distance from.

    What cannot be computed counts as active.
    """
    values = {p.name: p.value for p in result.estimates}
    box = problem.box
    at = [box.names.index(p.name) for p in result.estimates[: len(result.covariance)]]
    covariance = np.zeros((len(box), len(box)))
    covariance[np.ix_(at, at)] = result.covariance
    try:
        lost = within_reach(problem, box.vector(values), covariance)
        for one in result.other_optima:
            lost |= violated(problem, box.vector({**values, **one.parameters}))
    except IgpeError:
        return constraints(problem)
    return sorted(lost)


def _passed(problem: Problem, result: Result) -> list[str]:
    """The variables whose bounds the estimate leaves: searches by shooting do not know them."""
    values = {p.name: p.value for p in result.estimates}
    passed = passed_bounds(problem, Automatic(), problem.box.vector(values), BETWEEN)
    return [f"the bounds of {name}" for name in passed]
