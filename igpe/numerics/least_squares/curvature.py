"""What Gauss-Newton's model of the cost leaves out, learnt from gradients on the way.

    cost(x + d) ~ cost + 2 g'd + d'(J'J + S)d,     g = J'r,     S = sum of r_i times r_i's curvature

Gauss-Newton has S = 0, which goes to and fro across a curved valley where residuals stay large.
Here S follows the changes of the gradient by the structured secant update of NL2SOL (Dennis, Gay &
Welsch, ACM TOMS 7 (1981), eqs. 2.9 to 2.11), sized before; whichever of both models foretold the
last change of the cost better makes the next step, as there, once Gauss-Newton has become slow.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.bounded import bounded_solution

FLAT = 1e-12  # of the largest curvature: none is taken for smaller, nor for negative
SLOW = 1e-3  # of the sum of squares: a step that gained no more counts as slow
PATIENCE = 3  # slow steps of Gauss-Newton: before, it finds better optima (20 starts of Boehm's
# problem, seed 1: the best one twice instead of once)
TINY = np.finfo(float).tiny


class Curvature:
    """S of one search, and whether it is believed. Nothing is learnt unless it is `wanted`."""

    def __init__(self, size: int, *, wanted: bool) -> None:
        self.wanted, self.believed = wanted, False
        self.slow = 0
        self.matrix: FloatArray = np.zeros((size, size))

    def step(
        self, at: Linearised, low: FloatArray, high: FloatArray, reach: FloatArray
    ) -> FloatArray:
        """(n,) what minimises the model inside low <= d <= high, |d| <= reach."""
        lower, upper = np.maximum(low / reach, -1.0), np.minimum(high / reach, 1.0)
        jacobian = at.jacobian * reach
        if not self.believed:
            return bounded_solution(jacobian, -at.residual, lower, upper) * reach
        whole = jacobian.T @ jacobian + reach[:, None] * self.matrix * reach
        values, vectors = np.linalg.eigh(whole)
        root = np.sqrt(np.maximum(values, FLAT * max(float(values.max()), TINY)))
        right = -(vectors.T @ (jacobian.T @ at.residual)) / root
        return bounded_solution(root[:, None] * vectors.T, right, lower, upper) * reach

    def promised(self, at: Linearised, step: FloatArray) -> float:
        """Decrease of the cost that the model foretells."""
        left = at.residual + at.jacobian @ step
        return at.squares - float(left @ left) - (self._more(step) if self.believed else 0.0)

    def learn(self, before: Linearised, step: FloatArray, after: Linearised) -> None:
        """From the gradients at both ends of a step."""
        if not self.wanted:
            return
        self._judge(before, step, after)
        moved = after.jacobian.T @ after.residual - before.jacobian.T @ before.residual
        along = float(moved @ step)
        if along <= FLAT * float(np.linalg.norm(moved) * np.linalg.norm(step)):
            return
        told = moved - after.jacobian.T @ (after.jacobian @ step)
        own = abs(self._more(step))
        size = min(1.0, abs(float(told @ step)) / own) if own > 0 else 1.0
        sized = size * self.matrix
        wrong = told - sized @ step
        cross = np.outer(wrong, moved)
        self.matrix = (
            sized
            + (cross + cross.T) / along
            - float(wrong @ step) / along**2 * np.outer(moved, moved)
        )

    def _judge(self, before: Linearised, step: FloatArray, after: Linearised) -> None:
        left = before.residual + before.jacobian @ step
        plain = before.squares - float(left @ left)
        actual, more = before.cost - after.cost, self._more(step)
        better = abs(actual - plain + more) < abs(actual - plain)
        self.slow += bool(0 <= actual <= SLOW * before.squares)
        self.believed = better and self.slow >= PATIENCE

    def _more(self, step: FloatArray) -> float:
        return float(step @ self.matrix @ step)
