"""The linear problem of a robust loss, by squares whose weights change.

    min sum rho(r + J d)   inside limits

Squares with the weights of the last solution lie above rho, so that every round lowers it, but
slowly. Outliers are therefore given only a share of their weight, and their slope as a residual,

    w' = share w,     r' = (w r - w' J d) / w'        (w r is the slope of rho, halved)

which with share -> 0 is Newton's method on the squares and lines of rho. A round that does not
lower it asks for a larger share; share = 1 always does.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains.chains import Chained
from igpe.numerics.least_squares.chains.inner import Inverse

ROUNDS, ENOUGH = 60, 1e-11  # at most; relative decrease that ends them
FIRST, LEAST = 0.1, 1e-6  # shares


class Settled(NamedTuple):
    """The generalised inverse at the minimum, and the roots (m,) of the weights that it belongs to.

    Its step is that minimum, as the weights are those of the residuals it leaves.
    """

    inverse: Inverse
    root: FloatArray


def settled(at: Chained, whole: Linearised, solve: Callable[[Linearised], Inverse]) -> Settled:
    """Minimise what the condensed residuals `whole` count; `solve` does so for squares."""
    root = np.sqrt(at.weights(whole.residual))
    found = solve(_times(root, whole))
    if at.loss.is_plain:
        return Settled(found, root)
    d, share = found.change, FIRST
    worth = at.worth(whole.residual + whole.jacobian @ d)
    for _ in range(ROUNDS):
        there = solve(_flatter(at, whole, d, share)).change
        worth_there = at.worth(whole.residual + whole.jacobian @ there)
        decrease = worth - worth_there
        if decrease > 0:
            d, worth, share = there, worth_there, max(share / 4, LEAST)
        if decrease <= ENOUGH * worth:
            if share >= 1:
                break
            share = min(10 * share, 1.0)
    root = np.sqrt(at.weights(whole.residual + whole.jacobian @ d))
    return Settled(solve(_times(root, whole)), root)


def _flatter(at: Chained, whole: Linearised, d: FloatArray, share: float) -> Linearised:
    """Squares with the slopes of rho at d, and less curvature than its outliers' weights have."""
    moved = whole.jacobian @ d
    weight = at.weights(whole.residual + moved)
    slope = weight * (whole.residual + moved)
    flat = np.where(weight < 1, share * weight, weight)
    root = np.sqrt(flat)
    return Linearised((slope - flat * moved) / root, root[:, None] * whole.jacobian)


def _times(root: FloatArray, at: Linearised) -> Linearised:
    return Linearised(root * at.residual, root[:, None] * at.jacobian)
