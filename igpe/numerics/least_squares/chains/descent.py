"""Gauss-Newton steps shortened until a merit falls: where whole ones circle around the optimum.

    merit = cost + nu (sum of |gaps| + sum of missed constraints),  each relative to its size

Where constraints keep residuals large, whole steps overshoot, and the natural level does not see
it: what it measures lies along the step. The direction leads down the merit if nu is large enough
(Nocedal & Wright, Numerical Optimization, 2006, eq. 18.36), so that some share of it does.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.numerics.least_squares.chains.chains import Chained, Point
from igpe.numerics.least_squares.chains.proposal import (
    Proposal,
    Space,
    missed_sum,
    promised,
    proposal,
)

Evaluate: TypeAlias = Callable[[Point], Chained | None]

LEAST = 0.3  # of what a share promises to take from the sum of gaps and missed constraints
ENOUGH = 1e-4  # of the promised decrease
SHORTEST, SHORTER, LONGER = 1e-5, 0.1, 0.5  # shares; bounds of the next one relative to the last
NOISE = 1e-8  # relative decrease of the merit that integration errors hide


class Descent(NamedTuple):
    """Where it ended; step: the one that was not taken there.

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
    """From a point and what it is worth, at most so many steps."""
    (point, at), weight, evaluations = start, 0.0, 0
    step = proposal(at, point, space)
    for iteration in range(most):
        if rests(at, step):
            return Descent(point, at, step, True, iteration, evaluations)
        off, change = missed_sum(at, step), promised(step) - at.cost
        weight = max(weight, change / ((1 - LEAST) * off) if off > 0 else 0.0)
        merit, decrease = at.cost + weight * off, weight * off - change
        share = 1.0
        while share >= SHORTEST:
            there = space.clip(point.moved(step.move, share))
            trial = evaluate(there)
            evaluations += 1
            worth = np.inf if trial is None else trial.cost + weight * missed_sum(trial, step)
            if trial is not None and merit - worth >= ENOUGH * share * decrease:
                break
            parabola = 0.5 * share * decrease / (decrease + max((worth - merit) / share, 0.0))
            share = min(max(parabola, SHORTER * share), LONGER * share)
        else:
            hidden = decrease <= NOISE * merit
            return Descent(point, at, step, bool(hidden), iteration, evaluations)
        assert trial is not None, "what was taken was evaluated"
        point, at = there, trial
        step = proposal(at, point, space)
    return Descent(point, at, step, rests(at, step), most, evaluations)
