"""How residuals count: as squares, or linearly beyond some size.

    rho(r) = r^2 if |r| <= delta, else 2 delta |r| - delta^2          (Huber)

Least squares is delta = infinity; rho / (2 delta) with a small delta is the sum of absolute values.
A residual that counts rho(r) is a weighted square, w = min(1, delta / |r|), whose weight changes
with it: solving with the weights of the last solution until they stay is the minimum.
"""

from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import FloatArray


@dataclass(frozen=True)
class Robust:
    """Squares up to `delta`, linear beyond."""

    delta: float = np.inf

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

    def _rho(self, residual: FloatArray) -> FloatArray:
        size = np.abs(residual)
        outer = 2 * self.delta * size - self.delta**2
        return np.asarray(np.where(size <= self.delta, size**2, outer))


PLAIN = Robust()
