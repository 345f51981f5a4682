"""Too few points for a spline: the constant, line or parabola they allow."""

from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.smoothing.measurements import Measurements
from igpe.smoothing.noise import noise


@dataclass(frozen=True)
class PolynomialCurve:
    """A weighted least squares polynomial in x = (t - centre) / length.

    coefficients  (d + 1,), of 1, x, x^2, in the unit of the values
    root          (d + 1, d + 1), of their covariance sigma^2 R R'
    sigma, degrees_of_freedom, penalty, notes  as in `Smooth`
    """

    centre: float
    length: float
    coefficients: FloatArray
    root: FloatArray
    sigma: float
    degrees_of_freedom: float
    penalty: float
    notes: tuple[str, ...]

    def value(self, t: FloatArray) -> FloatArray:
        """The polynomial at times t, shape (n,)."""
        return self._powers(t) @ self.coefficients

    def slope(self, t: FloatArray) -> FloatArray:
        """Its derivative by time at t, shape (n,)."""
        return self._derivatives(t) @ self.coefficients

    def value_error(self, t: FloatArray) -> FloatArray:
        """Standard errors of `value`, shape (n,)."""
        return self._error(self._powers(t))

    def slope_error(self, t: FloatArray) -> FloatArray:
        """Standard errors of `slope`, shape (n,); inf for a constant, whose slope is unknown."""
        return self._error(self._derivatives(t))

    def _powers(self, t: FloatArray) -> FloatArray:
        x = (np.asarray(t, float) - self.centre) / self.length
        return np.vander(x, self.coefficients.size, increasing=True)

    def _derivatives(self, t: FloatArray) -> FloatArray:
        powers = self._powers(t)
        rows = np.zeros_like(powers)
        rows[:, 1:] = powers[:, :-1] * np.arange(1, self.coefficients.size) / self.length
        return rows

    def _error(self, rows: FloatArray) -> FloatArray:
        unknown = not np.isfinite(self.sigma) or not rows.any()
        if unknown:
            return np.full(len(rows), np.inf)
        errors: FloatArray = self.sigma * np.sqrt(((rows @ self.root) ** 2).sum(axis=1))
        return errors


def polynomial(data: Measurements, degree: int) -> PolynomialCurve:
    """The polynomial of the given degree (less than the number of times) nearest to the data."""
    centre = float(data.times.mean())
    length = float(np.ptp(data.times)) or 1.0
    x = (data.times - centre) / length
    weighted = np.sqrt(data.weights)[:, None] * np.vander(x, degree + 1, increasing=True)
    orthogonal, triangle = np.linalg.qr(weighted)
    root = np.linalg.inv(triangle)
    coefficients = root @ (orthogonal.T @ (np.sqrt(data.weights) * data.values))
    residuals = data.values - np.vander(x, degree + 1, increasing=True) @ coefficients
    rss = float((data.weights * residuals**2)[~data.exact].sum())
    sigma, notes = noise(data, rss, degree + 1.0)
    shape = ("a constant", "a straight line", "a parabola")[degree]
    few = f"Only {x.size} distinct time(s): the curve is {shape}, its slopes are no more than that."
    return PolynomialCurve(
        centre, length, coefficients, root, sigma, degree + 1.0, np.inf, (few, *notes)
    )
