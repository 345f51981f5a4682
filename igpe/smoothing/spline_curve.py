"""A cubic spline with the joint covariance of its coefficients, known by its band."""

from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.smoothing.basis import CubicBasis, Local


@dataclass(frozen=True)
class SplineCurve:
    """A smooth curve: b(u)' c at the scaled time u = (t - start) / length.

    The coefficients have the covariance sigma^2 V, so value and slope at any time are
    b'c and b''c with variances that need four neighbouring coefficients only.

    coefficients  (k,), in the unit of the values
    band          (4, k), band of V
    sigma, degrees_of_freedom, penalty, notes  as in `Smooth`
    """

    basis: CubicBasis
    start: float
    length: float
    coefficients: FloatArray
    band: FloatArray
    sigma: float
    degrees_of_freedom: float
    penalty: float
    notes: tuple[str, ...]

    def value(self, t: FloatArray) -> FloatArray:
        """The curve at times t, shape (n,)."""
        return self._values(t).combine(self.coefficients)

    def slope(self, t: FloatArray) -> FloatArray:
        """Its derivative by time at t, shape (n,)."""
        return self._slopes(t).combine(self.coefficients)

    def value_error(self, t: FloatArray) -> FloatArray:
        """Standard errors of `value`, shape (n,)."""
        return self._error(self._values(t))

    def slope_error(self, t: FloatArray) -> FloatArray:
        """Standard errors of `slope`, shape (n,)."""
        return self._error(self._slopes(t))

    def _values(self, t: FloatArray) -> Local:
        u = (np.asarray(t, float) - self.start) / self.length
        inside = np.clip(u, 0.0, 1.0)
        local = self.basis.local(inside)
        beyond = u - inside
        if not beyond.any():
            return local
        tangent = self.basis.local(inside, order=1)
        return Local(local.first, local.values + beyond * tangent.values)

    def _slopes(self, t: FloatArray) -> Local:
        u = (np.asarray(t, float) - self.start) / self.length
        local = self.basis.local(np.clip(u, 0.0, 1.0), order=1)
        return Local(local.first, local.values / self.length)

    def _error(self, local: Local) -> FloatArray:
        if not np.isfinite(self.sigma):
            return np.full(local.first.size, np.inf)
        variance = local.variance(self.band)
        # Where a value is exact the terms cancel, and rounding may leave less than nothing.
        return self.sigma * np.sqrt(np.maximum(variance, 0.0))
