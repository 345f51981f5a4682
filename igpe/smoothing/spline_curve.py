"""A cubic spline with the joint covariance of its coefficients, known by its band.

No smoothing: the cubic spline through the data.

Too few points for a spline: the constant, line or parabola they allow.
"""

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import make_interp_spline

from igpe.core.arrays import BoolArray, FloatArray
from igpe.smoothing.base import Smooth, noise
from igpe.smoothing.basis import CubicBasis, LocalPolynomials, inverse_band
from igpe.smoothing.penalised import CurveData, prepare


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

    def _values(self, t: FloatArray) -> LocalPolynomials:
        u = (np.asarray(t, float) - self.start) / self.length
        inside = np.clip(u, 0.0, 1.0)
        local = self.basis.local(inside)
        beyond = u - inside
        if not beyond.any():
            return local
        tangent = self.basis.local(inside, order=1)
        return LocalPolynomials(local.first, local.values + beyond * tangent.values)

    def _slopes(self, t: FloatArray) -> LocalPolynomials:
        u = (np.asarray(t, float) - self.start) / self.length
        local = self.basis.local(np.clip(u, 0.0, 1.0), order=1)
        return LocalPolynomials(local.first, local.values / self.length)

    def _error(self, local: LocalPolynomials) -> FloatArray:
        if not np.isfinite(self.sigma):
            return np.full(local.first.size, np.inf)
        variance = local.variance(self.band)
        # Where a value is exact the terms cancel, and rounding may leave less than nothing.
        return self.sigma * np.sqrt(np.maximum(variance, 0.0))


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


def polynomial(data: CurveData, degree: int) -> PolynomialCurve:
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


FEWEST = 4  # distinct times for a cubic


@dataclass(frozen=True)
class Interpolation:
    """The not-a-knot cubic spline through the (averaged) measurements.

    Its errors are those of the measurements carried through the spline, which is linear in them:
    with B c = y, Cov(c) = sigma^2 (B' W B)^-1. Without given standard deviations sigma comes from
    what each measurement differs from the line between its neighbours (Gasser, Sroka &
    Jennen-Steinmetz 1986) and from the scatter of replicates; curvature counts as noise there.
    Up to three distinct times give a constant, a line or a parabola.
    """

    @property
    def description(self) -> str:
        """What it makes of the data."""
        return "interpolated data"

    def smooth(
        self,
        times: FloatArray,
        values: FloatArray,
        *,
        sigma: FloatArray | None = None,
        exact: BoolArray | None = None,
    ) -> Smooth:
        """As in `Smoother.smooth`; the penalty is 0, one degree of freedom for each time."""
        data = prepare(times, values, sigma, exact)
        if data.times.size < FEWEST:
            return polynomial(data, data.times.size - 1)
        return spline_through(data)


def spline_through(data: CurveData) -> SplineCurve:
    """The not-a-knot spline through at least four distinct times."""
    start, length = float(data.times[0]), float(np.ptp(data.times))
    u = (data.times - start) / length
    basis = CubicBasis(np.delete(u, [1, -2]))
    spline = make_interp_spline(u, data.values, t=basis.knots)
    scale = data.total_weight / u.size
    normal = basis.gram(basis.local(u), data.weights / scale)
    sigma, notes = _local_noise(data)
    return SplineCurve(
        basis=basis,
        start=start,
        length=length,
        coefficients=spline.c,
        band=inverse_band(normal) / scale,
        sigma=sigma,
        degrees_of_freedom=float(u.size),
        penalty=0.0,
        notes=notes,
    )


def _local_noise(data: CurveData) -> tuple[float, tuple[str, ...]]:
    """sigma as in `Smooth`, from three neighbours at a time.

    With e_i = a y_{i-1} + b y_{i+1} - y_i, a + b = 1 linear in time, E e_i^2 is sigma^2 times
    a^2 / w_{i-1} + b^2 / w_{i+1} + 1 / w_i wherever the curve is straight.
    """
    if data.sigma_given:
        return 1.0, ()
    t, y, w = data.times, data.values, data.weights
    a = (t[2:] - t[1:-1]) / (t[2:] - t[:-2])
    b = 1.0 - a
    misses = a * y[:-2] + b * y[2:] - y[1:-1]
    expected = a**2 / w[:-2] + b**2 / w[2:] + 1.0 / w[1:-1]
    counts = ~data.exact[1:-1]
    replicates = data.count - data.inexact
    freedom = int(counts.sum()) + replicates
    if freedom == 0:
        return 0.0, ()
    squares = float((misses**2 / expected)[counts].sum()) + data.scatter
    note = "The errors of an interpolation without standard deviations count curvature as noise."
    return float(np.sqrt(squares / freedom)), (note,)
