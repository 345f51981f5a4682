"""Generalised Gauss-Newton on chains of nodes, damped by natural level functions.

    min |r(q, s)|^2   s.t.   all nodes meet,   q in a box,   nodes in boxes of their own,
                             equations and inequalities between q and s (`limits`)

Each step solves the linearised problem (`chains`, `inner`). How much of it is taken is decided by
the natural level function |G(x) r(x + share d)|: G is the generalised inverse that gave the step,
with the same active set (Peifer & Timmer 2007, section 3.4). Its curvature omega is predicted from
the step before and corrected where the prediction fails (their eqs. 19 to 21); steps that are small
are taken in full, as integration errors would dominate omega there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.core.arguments import is_count, is_finite, require
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains.chains import Chained, Point, Watch, condensed, unwatched
from igpe.numerics.least_squares.chains.proposal import (
    Proposal,
    Space,
    active_limits,
    descend,
    gap_length,
    limited_by,
    missed_length,
    promised,
    proposal,
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

Evaluate: TypeAlias = Callable[[Point], Chained | None]
"""Chains at a point, or None where they cannot be computed (an integration that broke down)."""


class Outcome(NamedTuple):
    """Where a search ended.

    point       best found
    at          what it is worth; None if not even the start could be evaluated
    status      CONVERGED, ITERATION_LIMIT, STALLED or INTEGRATION_BROKE (at the start)
    iterations  steps taken;  evaluations: of the chains
    held        directions of the unknowns that the last step held, as nothing determines them
    limited     for each chain (n_x,) which numbers of its nodes the last step kept at a bound
    active      (a, n) derivative of the constraints that are active there, if there are any
    """

    point: Point
    at: Chained | None
    status: Status
    iterations: int
    evaluations: int
    held: int = 0
    active: FloatArray | None = None
    limited: tuple[BoolArray, ...] = ()

    @property
    def condensed(self) -> Linearised | None:
        """Residuals and derivative by the unknowns alone, as single shooting has them.

        With a robust loss, such that their squares are what they count.
        """
        return None if self.at is None else self.at.counted(condensed(self.at).at)


@dataclass(frozen=True)
class GeneralisedGaussNewton:
    """Generalised Gauss-Newton with natural level functions.

    tolerance   scaled length of a step that no longer matters
    decrease    promised change of the cost that no longer matters, relative to it
    first       share of the first step, if it is not small; 1 after a search that came near
    raises      ProblemError for fields that mean nothing
    """

    tolerance: float = 1e-7
    decrease: float = 1e-11
    first: float = 1.0
    max_iterations: int = 100

    def __post_init__(self) -> None:
        owner = "GeneralisedGaussNewton"
        for field in ("tolerance", "decrease"):
            value = getattr(self, field)
            require(is_finite(value) and value >= 0, owner, field, value, "a number, 0 or more")
        ok = is_finite(self.first) and 0 < self.first <= 1
        require(ok, owner, "first", self.first, "a number above 0, at most 1")
        steps = self.max_iterations
        ok = is_count(steps) and steps >= 1
        require(ok, owner, "max_iterations", steps, "a whole number, 1 or more")

    def fit(
        self, evaluate: Evaluate, start: Point, space: Space, watch: Watch = unwatched
    ) -> Outcome:
        """Search from `start`, clipped into the space. Failure is the status of the Outcome."""
        evaluate, point = tame(evaluate), space.clip(start)
        at, evaluations, predicted = evaluate(point), 1, self.first
        if at is None:
            return Outcome(point, None, Status.INTEGRATION_BROKE, 0, 1)
        damped: _Damped | None = None
        watch(point, at)
        for iteration in range(self.max_iterations):
            step = proposal(at, point, space)
            if self._rests(at, step):
                told = Outcome(point, at, Status.CONVERGED, iteration, evaluations)
                return _finished(evaluate, told, step, space)
            predicted = _predicted(damped, step, predicted)
            damped = _damped(evaluate, point, space, step, predicted)
            evaluations += damped.evaluations
            if damped.at is None:
                return _told(Outcome(point, at, Status.STALLED, iteration, evaluations), step)
            point, at = damped.point, damped.at
            watch(point, at)
        told = Outcome(point, at, Status.ITERATION_LIMIT, self.max_iterations, evaluations)
        return self._descended(evaluate, told, at, space) if at.limits else told

    def _descended(self, evaluate: Evaluate, told: Outcome, at: Chained, space: Space) -> Outcome:
        """From where whole steps did not end: large residuals that constraints keep so."""
        found = descend(evaluate, (told.point, at), space, self._rests, self.max_iterations)
        told = told._replace(
            point=found.point,
            at=found.at,
            iterations=told.iterations + found.iterations,
            evaluations=told.evaluations + found.evaluations,
        )
        if not found.rests:
            return told
        return _finished(evaluate, told._replace(status=Status.CONVERGED), found.step, space)

    def _rests(self, at: Chained, step: Proposal) -> bool:
        """Whether neither the point nor its worth would change noticeably."""
        if step.length <= self.tolerance:
            return True
        change, meet = abs(at.cost - promised(step)), KEPT if at.limits else MEET
        return change <= self.decrease * at.cost and _off(at, step.size) <= meet


def tame(evaluate: Evaluate) -> Evaluate:
    """Points where derivatives have grown beyond numbers are no points: no step leads from them."""

    def told(point: Point) -> Chained | None:
        at = evaluate(point)
        return at if at is None or at.is_tame else None

    return told


def _finished(evaluate: Evaluate, told: Outcome, step: Proposal, space: Space) -> Outcome:
    """The outcome with what its last step tells, which is taken if constraints are kept better."""
    if not step.at.limits:
        return _told(told, step)
    there = space.clip(told.point.moved(step.move))
    at = evaluate(there)
    told = told._replace(evaluations=told.evaluations + 1)
    if at is not None and _off(at, step.size) < _off(step.at, step.size):
        told = told._replace(point=there, at=at)
        step = proposal(at, there, space)
    return _told(told, step)


def _off(at: Chained, size: Point) -> float:
    return max(gap_length(at, size), missed_length(at, size))


def _told(outcome: Outcome, step: Proposal) -> Outcome:
    """With what is known of the step from there."""
    active = active_limits(step) if step.at.limits else None
    return outcome._replace(held=step.inverse.held, limited=limited_by(step), active=active)


class _Damped(NamedTuple):
    """The point that a share of a step led to; `at` is None if every share failed.

    curvature  told when it is wanted, as it may take an integration
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


def _predicted(last: _Damped | None, step: Proposal, before: float) -> float:
    """The share by the curvature of the step before; a small step needs none."""
    if last is None or step.length <= SMALL or not np.isfinite(last.curvature()):
        return before
    return _share(PREDICT / max(last.curvature() * step.length, 1e-300))


def _share(mu: float) -> float:
    return 1.0 if mu > FULL else max(mu, LEAST)


def _curvature(step: Proposal, trial: Chained, share: float) -> float:
    """omega of eq. 19: how far the level is from what a linear problem would have."""
    off = simplified(step, trial, share).minus(step.move, 1 - share).length(step.size)
    return 2 * off / (share * step.length) ** 2
