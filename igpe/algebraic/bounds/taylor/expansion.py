"""The residual of a separable problem around one theta, linear parameters following.

With theta = theta^ + T z and beta = beta^ + B z + (the rest eta),

    d - Phi beta = rho(z) - Phi eta,     rho(z) = rho^ + L z + q(z)

Everything here is chosen, not proved: any beta^, B and T make the statements of `neighbourhood`
true, good ones make them useful.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.linear_part import best_linear
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.taylor.derivatives import Expanded
from igpe.core.arrays import BoolArray, FloatArray

INNER = 1e-6  # of a parameter's size: nearer to its end it is on it
NOTHING = 1e-9  # of the data: what it adds there is rounding
PASSES = 3  # in which widths and scales of parameters on an end are made to agree


class Ends(NamedTuple):
    """Which linear parameters (K,) are held by an end of their range.

    free  by none;  sign: +1 by the lower end, -1 by the upper one, 0 by both, which are the same,
          or none
    """

    free: BoolArray
    sign: FloatArray


@dataclass(frozen=True)
class Expansion:
    """Around theta^; see the top of the file.

    theta     (J,)
    at        the columns there, with derivatives by theta or by z
    factors   (1 + K,) 1 and beta^
    ends      of the linear parameters
    follow    (1 + K, J) B, zero for what does not follow
    residual  (r,) rho^;  slope: (J, r) rows of L
    """

    theta: FloatArray
    at: Expanded
    factors: FloatArray
    ends: Ends
    follow: FloatArray
    residual: FloatArray
    slope: FloatArray

    @property
    def gradient(self) -> FloatArray:
        """(J,) of the sum of squares."""
        return np.asarray(2 * self.slope @ self.residual)

    def hessian(self) -> FloatArray:
        """(J, J) half of the second derivative of |rho|^2."""
        bent = self.factors @ (self.at.curvature @ self.residual).reshape(len(self.factors), -1)
        turned = self.follow.T @ (self.at.slope @ self.residual)
        return np.asarray(
            self.slope @ self.slope.T - bent.reshape(2 * self.follow.shape[1:]) - turned - turned.T
        )

    def along(self, scale: FloatArray) -> "Expansion":
        """By z, theta = theta^ + scale z; the curvature is left as it is."""
        by_z, follow = np.einsum("kjr,ja->kar", self.at.slope, scale), self.follow @ scale
        slope = -(np.tensordot(self.factors, by_z, axes=1) + follow.T @ self.at.value)
        return replace(self, at=self.at._replace(slope=by_z), follow=follow, slope=slope)


def expanded(problem: Separable, theta: FloatArray, at: Expanded) -> Expansion | None:
    """Around the best linear parameters at theta; None if there are none."""
    solved = best_linear(problem, at.value.T) if np.isfinite(at.value).all() else None
    if solved is None or not all(np.isfinite(x).all() for x in at):
        return None
    beta, ends = _ends(problem, at.value[1:], solved[0])
    some = at.value[1:][ends.free]
    held = problem.target - at.value[0] - np.where(ends.free, 0.0, beta) @ at.value[1:]
    beta[ends.free] = np.linalg.lstsq(some.T, held, rcond=None)[0]
    factors = np.concatenate([[1.0], beta])
    residual = problem.target - factors @ at.value
    by_theta = np.tensordot(factors, at.slope, axes=1)
    follow = np.zeros((len(factors), len(theta)))
    pulled = at.slope[1:][ends.free] @ residual - some @ by_theta.T
    follow[1:][ends.free] = np.linalg.lstsq(some @ some.T, pulled, rcond=None)[0]
    slope = -(by_theta + follow.T @ at.value)
    return Expansion(theta, at, factors, ends, follow, residual, slope)


def _ends(problem: Separable, columns: FloatArray, beta: FloatArray) -> tuple[FloatArray, Ends]:
    """The linear parameters, those that are held on their very ends, and which those are.

    Only there has what is left of them one sign. One that is near both ends but may move is free.
    """
    nothing = NOTHING * np.linalg.norm(problem.target)
    size = INNER * np.abs(beta) + nothing / (np.linalg.norm(columns, axis=1) + 1e-300)
    low, high = beta <= problem.lower + size, beta >= problem.upper - size
    free = (low == high) & (problem.lower < problem.upper)
    held = np.where(low, problem.lower, problem.upper)
    return np.where(free, beta, held), Ends(free, low.astype(float) - high)


def scaled(expansion: Expansion, held: BoolArray, radius: float) -> FloatArray | None:
    """Triangular T (J, J) by which the sum of squares grows as |z|^2; None if it does not grow.

    held  (J,) theta on an end of its axis: its gradient counts as growth up to |z| = radius
    """
    hessian, gradient = expansion.hessian(), np.abs(expansion.gradient)
    width = np.full(len(held), np.inf)
    for _ in range(PASSES if held.any() else 1):
        more = np.where(held, gradient / np.maximum(width, 1e-300), 0.0)
        if np.isinf(width).all():
            size = np.maximum(hessian.diagonal(), gradient**2 / max(radius**2, 1e-300))
            more = np.where(held, size, 0.0)
        try:
            upper = np.linalg.cholesky(hessian + np.diag(more)).T
        except np.linalg.LinAlgError:
            return None
        scale = np.linalg.inv(upper)
        width = lengths(scale) * radius
    return scale if np.isfinite(scale).all() else None


def lengths(scale: FloatArray) -> FloatArray:
    """(J,) how far each theta goes within |z| <= 1."""
    return np.asarray(np.sqrt((scale * scale).sum(axis=1)))
