"""Robust losses: residuals count as squares up to some size, and linearly beyond.

    rho(r) = r^2 if |r| <= delta, else 2 delta |r| - delta^2          (Huber)

Least squares is delta = infinity; rho / (2 delta) with a small delta is the sum of absolute values.
A residual that counts rho(r) is a weighted square, w = min(1, delta / |r|), whose weight changes
with it: solving with the weights of the last solution until they stay is the minimum.

At the minimum, with psi = rho' / 2 and expected values over the measurements' errors,

    cost(x + d) / kappa ~ ... + d'J'J d E[psi'] / kappa,     kappa = E[psi^2] / E[psi'],

rises like chi squared, as a sum of squares in standard deviations does, and the covariance is
E[psi^2] / E[psi']^2 (J'J)^-1 (Huber & Ronchetti, Robust Statistics (2009), section 7.6).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.numerics.least_squares.base import Linearised

MAD = 1.4826  # standard deviations in a median absolute one, of normal errors


@dataclass(frozen=True)
class Robust:
    """Squares up to `delta`, linear beyond.

    absolute  whether the loss is rho / (2 delta), which is |r| but for what is below delta
    """

    delta: float = np.inf
    absolute: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether these are least squares."""
        return bool(np.isinf(self.delta))

    def worth(self, residual: FloatArray) -> float:
        """Sum of rho."""
        if self.is_plain:
            return float(residual @ residual)
        return float(np.sum(self._rho(residual)))

    def weights(self, residual: FloatArray) -> FloatArray:
        """(m,) of the squares."""
        if self.is_plain:
            return np.ones(len(residual))
        return np.asarray(self.delta / np.maximum(np.abs(residual), self.delta))

    def squared(self, residual: FloatArray, jacobian: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Residuals whose squares are rho, and their derivative."""
        if self.is_plain:
            return residual, jacobian
        root = np.sqrt(self._rho(residual))
        inner = np.minimum(np.abs(residual), self.delta)
        slope = np.where(root > 0, inner / np.maximum(root, np.finfo(float).tiny), 1.0)
        return np.copysign(root, residual), slope[:, None] * jacobian

    def reweighted(self, at: Linearised) -> Linearised:
        """Weighted squares and an offset with the cost and the gradient of the loss."""
        if self.is_plain:
            return at
        root = np.sqrt(self.weights(at.residual) / self._unit)
        squares = Linearised(root * at.residual, root[:, None] * at.jacobian)
        offset = self.worth(at.residual) / self._unit - squares.squares
        return squares._replace(offset=at.offset + offset)

    def unweighted(self, at: Linearised) -> Linearised:
        """The residuals of which `reweighted` made these."""
        size = np.abs(at.residual) * np.sqrt(self._unit)
        factor = np.sqrt(self._unit) * np.maximum(size, self.delta) / self.delta
        return Linearised(at.residual * factor, at.jacobian * factor[:, None])

    def judged(self, at: Linearised, unknowns: int, deviation: float | None) -> "Judged":
        """Squares in standard deviations that stand for the loss at its minimum.

        at         plain residuals and derivative there
        deviation  that of the errors; None: unknown
        """
        size = np.abs(at.residual)
        psi = np.clip(at.residual, -self.delta, self.delta) / self._unit
        degrees = max(len(size) - unknowns, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.absolute:
                typical = MAD * np.median(np.sort(size)[min(unknowns, len(size) - 1) :])
                density = 1 / (np.sqrt(2 * np.pi) * (typical if deviation is None else deviation))
                slope, square = density, 0.25
            else:
                slope, square = np.mean(size <= self.delta), float(psi @ psi) / degrees
            kappa = square / slope
            squares = Linearised(psi / np.sqrt(slope * kappa), at.jacobian * np.sqrt(slope / kappa))
        return Judged(squares, float(kappa), float(kappa / slope))

    @property
    def _unit(self) -> float:
        return 2 * self.delta if self.absolute else 1.0

    def _rho(self, residual: FloatArray) -> FloatArray:
        size = np.abs(residual)
        outer = 2 * self.delta * size - self.delta**2
        return np.asarray(np.where(size <= self.delta, size**2, outer))


class Judged(NamedTuple):
    """A minimum of a robust loss as least squares in standard deviations.

    kappa     rise of the loss that counts as one unit of chi squared
    variance  of the estimate, in units of (J'J)^-1
    """

    squares: Linearised
    kappa: float
    variance: float


PLAIN = Robust()
