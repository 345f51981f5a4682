"""Step 5 by shooting, where collocation has no answer or a wrong one.

Collocation may fail where states die out over hundreds of decades, and its mesh may be too coarse
for what the model does. An accurate integration is the judge: a candidate that it refutes, or that
ends above where it began, is fitted by single shooting. Where even the start cannot be integrated,
multiple shooting begins with the smoothed measurements.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from igpe.core.errors import IgpeError
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.search.restarts import Restarts
from igpe.dynamics.shooting.base import Profile
from igpe.dynamics.shooting.multiple.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.polish import Polished, passed_bounds
from igpe.dynamics.shooting.residuals import Residuals
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.problem.problem import Problem

SEARCH = GaussNewton(max_iterations=50)
SECONDS = 20.0  # of multiple shooting, which is tried last
SINGLE, MULTIPLE, NEITHER = "single shooting", "multiple shooting", "no method"
MOST = 3  # candidates that are shot
MATTERS = 1e-6  # relative difference of sums of squares
NO_ANSWER = "Step 5: collocation has no answer."
ABOVE = (
    "Step 5: collocation ends at a sum of squares of {:.6g}, by an accurate integration, above the "
    "{:.6g} of a candidate before."
)
FINISHED = "The estimate was finished by {}."
AS_THEY_ARE = (
    "Shooting does not improve the values of steps 3 and 4 either, so the result holds these; "
    "they need not be an optimum."
)


class Shot(NamedTuple):
    """Where shooting ended, and by which method: NEITHER if nothing was better than the start.

    begun  the sum of squares at the start
    """

    fit: Fit
    method: str
    begun: float


def shot(residuals: Residuals, problem: Problem, before: "Before") -> Shot | None:
    """Shoot from a candidate, by the first method that improves on it.

    residuals  accurately integrated
    returns    None if neither the start nor any end can be integrated
    """
    box = problem.box
    x = box.clip(box.vector(before.parameters))
    at = residuals(x)
    if at is not None:
        fit = SEARCH.fit(residuals, x, box)
        if fit.at is not None and (fit.cost < at.cost or fit.status is Status.CONVERGED):
            return Shot(fit, SINGLE, at.cost)
    end = _by_multiple(residuals, problem, before)
    if end is not None and (at is None or end.cost < at.cost):
        return Shot(end, MULTIPLE, np.inf if at is None else at.cost)
    return None if at is None else Shot(Fit(x, at, Status.STALLED, 0), NEITHER, at.cost)


def _by_multiple(residuals: Residuals, problem: Problem, before: "Before") -> Fit | None:
    method = MultipleShooting(restarts=Restarts(count=0), time_limit=SECONDS)
    try:
        found = method.estimate(problem, before.parameters, before.profiles)
    except IgpeError:
        return None
    if not found.status.usable:
        return None
    fit = SEARCH.fit(residuals, problem.box.vector(found.parameters), problem.box)
    return None if fit.at is None else fit


class Before(NamedTuple):
    """A candidate before step 5.

    objective  its sum of squares there, NaN where nothing was integrated
    corrected  whether collocation has an answer for it
    profiles   of each experiment, with which multiple shooting begins
    """

    parameters: Mapping[str, float]
    objective: float
    corrected: bool
    profiles: Sequence[Profile]


def by_shooting(
    problem: Problem, residuals: Residuals, begun: Sequence[Before], best: Polished | None
) -> tuple[int, Polished] | None:
    """The number of the candidate that shooting brings below the best one, and where it ends.

    residuals  accurately integrated
    best       what collocation has; None if it has no answer
    returns    None if collocation's answer is the best; or nothing can be integrated
    """
    cost = np.inf if best is None or best.at is None else best.at.cost
    worth = _worth_it(problem, residuals, begun, cost)
    ends = [(k, shot(residuals, problem, begun[k])) for k in worth[:MOST]]
    able = [
        (k, end)
        for k, end in ends
        if end is not None and not passed_bounds(problem, residuals, end.fit.x)
    ]
    if not able:
        return None
    k, end = min(able, key=lambda pair: pair[1].fit.cost)
    if not end.fit.cost < cost:
        return None
    why = NO_ANSWER if np.isinf(cost) else ABOVE.format(cost, end.begun)
    estimate = Estimate(
        problem.box.mapping(end.fit.x),
        end.fit.cost,
        end.fit.status,
        f"{end.method} from the values of step 4",
        iterations=end.fit.steps,
    )
    note = AS_THEY_ARE if end.method == NEITHER else FINISHED.format(end.method)
    return k, Polished(estimate, end.fit.at, (f"{why} {note}",))


def _worth_it(
    problem: Problem, residuals: Residuals, begun: Sequence[Before], cost: float
) -> list[int]:
    """The candidates that are better before step 5 than the best after it, the best first.

    The first of them, which collocation says is the best, and those whose sum of squares is known
    to be less, are integrated; all if collocation has no answer.
    """
    costs = []
    for k, one in enumerate(begun):
        if not (np.isinf(cost) or k == 0 or one.objective < cost):
            continue
        at = residuals(problem.box.clip(problem.box.vector(one.parameters)))
        costs.append((np.inf if at is None else at.cost, k))
    return [k for at, k in sorted(costs) if np.isinf(cost) or at < cost * (1 - MATTERS)]
