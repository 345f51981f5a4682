"""Generalised Gauss-Newton on chains of nodes, damped by natural level functions.

    min |r(q, s)|^2   s.t.   all nodes meet,   q in a box,   nodes in boxes of their own,
                             equations and inequalities between q and s (`limits`)

Each step solves the linearised problem (`chains`, `inner`). How much of it is taken is decided by
the natural level function |G(x) r(x + share d)|: G is the generalised inverse that gave the step,
with the same active set (Peifer & Timmer 2007, section 3.4). Its curvature omega is predicted from
the step before and corrected where the prediction fails (their eqs. 19 to 21); steps that are small
are taken in full, as integration errors would dominate omega there.

Where constraints keep residuals large, whole steps may circle around the optimum, and the natural
level does not see it: what it measures lies along the step. There steps are shortened until

    cost + nu (sum of |gaps| + sum of missed constraints),  each relative to its size

falls; the direction leads down this merit if nu is large enough (Nocedal & Wright, Numerical
Optimization, 2006, eq. 18.36).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, NamedTuple

import numpy as np

from igpe.core.arguments import Checked, CountFrom1, NotNegative, Rule, is_finite
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains import (
    Chained,
    Evaluate,
    Point,
    Watch,
    condensed,
    unwatched,
)
from igpe.numerics.least_squares.proposal import (
    Proposal,
    Space,
    gap_length,
    missed_length,
    missed_sum,
    proposal,
    shortened,
    simplified,
)

LEAST, FULL = 0.01, 0.5  # tau_min and tau: smallest share, and beyond which a step is full
PREDICT, ACCEPT = 1.0, 1.8  # eta_0 and eta_2
SHORTER = 0.5  # of the share that failed: what the correction gives at most
BROKEN = 0.3  # of a share that could not be evaluated: the next
SMALLEST = 1e-6  # share below which the search has no way to go
SMALL = 0.02  # scaled length of steps that are taken in full
MEET = 1e-6  # scaled length of gaps that no longer matter
KEPT = 1e-9  # the same of gaps and missed constraints where there are constraints
OF_MERIT = 0.3  # of what a share promises to take from the sum of gaps and missed constraints
NOISE = 1e-8  # relative decrease of the merit that integration errors hide


class Outcome(NamedTuple):
    """Where a search ended.

    point       best found
    at          what it is worth; None if not even the start could be evaluated
    status      CONVERGED, ITERATION_LIMIT, STALLED or INTEGRATION_BROKE (at the start)
    iterations  steps taken;  evaluations: of the chains
    limited     for each chain (n_x,) which numbers of its nodes the last step kept at a bound
    active      (a, n) derivative of the constraints that are active there, if there are any
    """

    point: Point
    at: Chained | None
    status: Status
    iterations: int
    evaluations: int
    active: FloatArray | None = None
    limited: tuple[BoolArray, ...] = ()

    @property
    def condensed(self) -> Linearised | None:
        """Residuals and derivative by the unknowns alone, as single shooting has them.

        With a robust loss, such that their squares are what they count.
        """
        if self.at is None:
            return None
        reduced, n = condensed(self.at).at, len(self.at.free.residual)
        residual, jacobian = self.at.loss.squared(reduced.residual[n:], reduced.jacobian[n:])
        return Linearised(
            np.concatenate([reduced.residual[:n], residual]),
            np.vstack([reduced.jacobian[:n], jacobian]),
        )

    def after(self, step: Proposal) -> "Outcome":
        """With what is known of the step from there."""
        return self._replace(limited=step.limited, active=step.active)


SHARE = Rule(lambda v: is_finite(v) and 0 < v <= 1, "a number above 0 and at most 1")


@dataclass(frozen=True)
class GeneralisedGaussNewton(Checked):
    """Generalised Gauss-Newton with natural level functions.

    tolerance   scaled length of a step that no longer matters
    decrease    promised change of the cost that no longer matters, relative to it
    first       share of the first step, if it is not small; 1 after a search that came near
    """

    tolerance: NotNegative = 1e-7
    decrease: NotNegative = 1e-11
    first: Annotated[float, SHARE] = 1.0
    max_iterations: CountFrom1 = 100

    def fit(
        self, evaluate: Evaluate, start: Point, space: Space, watch: Watch = unwatched
    ) -> Outcome:
        """Search from `start`, clipped into the space. The Outcome's status reports failure."""
        evaluate, point = tame(evaluate), space.clip(start)
        at, evaluations, share = evaluate(point), 1, self.first
        if at is None:
            return Outcome(point, None, Status.INTEGRATION_BROKE, 0, 1)
        damped: _Damped | None = None
        watch(point, at)
        for iteration in range(self.max_iterations):
            step = proposal(at, point, space)
            if self._rests(at, step):
                outcome = Outcome(point, at, Status.CONVERGED, iteration, evaluations)
                return _finished(evaluate, outcome, step, space)
            # By the curvature of the step before; a small step needs none.
            if damped is not None and step.length > SMALL and np.isfinite(damped.curvature()):
                share = _share(PREDICT / max(damped.curvature() * step.length, 1e-300))
            damped = _damped(evaluate, point, space, step, share)
            evaluations += damped.evaluations
            if damped.at is None:
                return Outcome(point, at, Status.STALLED, iteration, evaluations).after(step)
            point, at = damped.point, damped.at
            watch(point, at)
        limit = Status.ITERATION_LIMIT
        outcome = Outcome(point, at, limit, self.max_iterations, evaluations)
        return self._descended(evaluate, outcome, at, space) if at.limits else outcome

    def _descended(
        self, evaluate: Evaluate, outcome: Outcome, at: Chained, space: Space
    ) -> Outcome:
        """From where whole steps did not end: large residuals that constraints keep so."""
        end = descend(evaluate, (outcome.point, at), space, self._rests, self.max_iterations)
        outcome = outcome._replace(
            point=end.point,
            at=end.at,
            iterations=outcome.iterations + end.iterations,
            evaluations=outcome.evaluations + end.evaluations,
        )
        if not end.rests:
            return outcome
        return _finished(evaluate, outcome._replace(status=Status.CONVERGED), end.step, space)

    def _rests(self, at: Chained, step: Proposal) -> bool:
        """Whether neither the point nor its worth would change noticeably."""
        meet = KEPT if at.limits else MEET
        return rests(self.tolerance, self.decrease, at, step, meet)


def rests(tolerance: float, decrease: float, at: Chained, step: Proposal, meet: float) -> bool:
    """Whether neither a point nor its worth would change noticeably, all gaps being closed."""
    change = abs(at.cost - step.promised)
    return step.length <= tolerance or (
        change <= decrease * at.cost and _off(at, step.size) <= meet
    )


def tame(evaluate: Evaluate) -> Evaluate:
    """Points where derivatives have grown beyond numbers are no points: no step leads from them."""

    def evaluated(point: Point) -> Chained | None:
        at = evaluate(point)
        return at if at is None or at.is_tame else None

    return evaluated


def _finished(evaluate: Evaluate, outcome: Outcome, step: Proposal, space: Space) -> Outcome:
    """The outcome after its last step, which is taken if constraints are kept better."""
    if not step.at.limits:
        return outcome.after(step)
    there = space.clip(outcome.point.moved(step.move))
    at = evaluate(there)
    outcome = outcome._replace(evaluations=outcome.evaluations + 1)
    if at is not None and _off(at, step.size) < _off(step.at, step.size):
        outcome = outcome._replace(point=there, at=at)
        step = proposal(at, there, space)
    return outcome.after(step)


def _off(at: Chained, size: Point) -> float:
    return max(gap_length(at, size), missed_length(at, size))


class _Damped(NamedTuple):
    """The point that a share of a step led to; `at` is None if every share failed.

    curvature  computed on request, as it may take an integration
    """

    point: Point
    at: Chained | None
    curvature: Callable[[], float]
    evaluations: int


def _damped(
    evaluate: Evaluate, point: Point, space: Space, step: Proposal, predicted: float
) -> _Damped:
    """Predictor and corrector of the share (Peifer & Timmer 2007, section 3.4)."""
    small = step.length <= SMALL
    share, evaluations = 1.0 if small else predicted, 0
    while share >= SMALLEST:
        there = space.clip(point.moved(step.move, share))
        trial = evaluate(there)
        evaluations += 1
        if trial is None:
            share *= BROKEN
            continue
        curvature = cache(partial(_curvature, step, trial, share))
        taken = (small and share == 1.0) or share <= LEAST
        if taken or curvature() * step.length * share <= ACCEPT:
            return _Damped(there, trial, curvature, evaluations)
        corrected = _share(PREDICT / (curvature() * step.length))
        share = max(min(corrected, SHORTER * share), LEAST)
    return _Damped(point, None, lambda: np.nan, evaluations)


def _share(mu: float) -> float:
    return 1.0 if mu > FULL else max(mu, LEAST)


def _curvature(step: Proposal, trial: Chained, share: float) -> float:
    """omega of eq. 19: how far the level is from what a linear problem would have."""
    off = simplified(step, trial, share).minus(step.move, 1 - share).length(step.size)
    return 2 * off / (share * step.length) ** 2


class Descent(NamedTuple):
    """Where a descent ended; step: the one that was not taken there.

    rests  whether that step no longer matters, or its decrease is hidden by integration errors
    """

    point: Point
    at: Chained
    step: Proposal
    rests: bool
    iterations: int
    evaluations: int


def descend(
    evaluate: Evaluate,
    start: tuple[Point, Chained],
    space: Space,
    rests: Callable[[Chained, Proposal], bool],
    most: int,
) -> Descent:
    """Shorten Gauss-Newton steps until the merit falls, at most so many of them."""
    (point, at), weight, evaluations = start, 0.0, 0
    for iteration in range(most):
        step = proposal(at, point, space)
        if rests(at, step):
            return Descent(point, at, step, True, iteration, evaluations)
        off, change = missed_sum(at, step), step.promised - at.cost
        weight = max(weight, change / ((1 - OF_MERIT) * off) if off > 0 else 0.0)
        before, decrease = at.cost + weight * off, weight * off - change
        there = shortened(
            evaluate,
            space,
            point,
            step.move,
            merit=partial(_merit, step, weight),
            before=before,
            decrease=decrease,
        )
        evaluations += there.evaluations
        if there.at is None:
            hidden = bool(decrease <= NOISE * before)
            return Descent(point, at, step, hidden, iteration, evaluations)
        point, at = there.point, there.at
    step = proposal(at, point, space)
    return Descent(point, at, step, rests(at, step), most, evaluations)


def _merit(step: Proposal, weight: float, at: Chained) -> float:
    return at.cost + weight * missed_sum(at, step)
