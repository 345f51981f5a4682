"""Robust losses in multiple shooting: what is minimised on the way, and what is told."""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.shooting.residuals import unmeasured
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.robust import PLAIN, Robust
from igpe.problem.loss import L1, Huber
from igpe.problem.problem import Problem

GENTLE = (1.0, 0.1, 0.01)
"""Standard deviations up to which residuals count as squares where absolute values are asked for:
at first, and in the end. The last moves an estimate by less than a hundredth of its error."""


def losses_of(problem: Problem, spread: float) -> tuple[Robust, ...]:
    """Losses to be minimised one after the other; residuals are in units of `spread`."""
    loss = problem.loss
    if isinstance(loss, Huber):
        return (Robust(loss.delta / spread),)
    if isinstance(loss, L1):
        return tuple(Robust(delta) for delta in GENTLE)
    return (PLAIN,)


def prior_factor(problem: Problem, loss: Robust, spread: float) -> float:
    """What unmeasured residuals are multiplied by, to weigh beside the others as they should.

    Where absolute values are asked for, those are 1 / (2 delta spread) of what `loss` makes.
    """
    return float(np.sqrt(2 * loss.delta * spread)) if isinstance(problem.loss, L1) else 1.0


def objective(problem: Problem, at: Linearised | None, spread: float) -> float:
    """What the problem asks to be minimised; those of no measurement come first."""
    if at is None:
        return float("inf")
    if not isinstance(problem.loss, L1):
        return at.cost * spread**2
    loss = losses_of(problem, spread)[-1]
    free = unmeasured(problem).size
    rho, delta = at.residual[free:] ** 2, loss.delta
    size = np.where(rho <= delta**2, np.sqrt(rho), (rho + delta**2) / (2 * delta))
    priors = at.residual[:free] * spread / prior_factor(problem, loss, spread)
    return float(np.sum(size)) * spread + float(priors @ priors)


def worth(problem: Problem, residual: FloatArray) -> float:
    """What plain residuals (m,) of measurements alone count in the problem's loss."""
    loss = problem.loss
    if isinstance(loss, L1):
        return float(np.abs(residual).sum())
    return (Robust(loss.delta) if isinstance(loss, Huber) else PLAIN).worth(residual)
