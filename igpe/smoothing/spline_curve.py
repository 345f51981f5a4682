"""Curves as cubic splines with their covariance: interpolation, and polynomials of few points."""

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import make_interp_spline

from igpe.core.arrays import BoolArray, FloatArray
from igpe.smoothing.base import Smooth, noise
from igpe.smoothing.penalised import (
    CubicBasis,
    CurveData,
    LocalPolynomials,
    band_of,
    inverse_band,
    prepare,
)


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
        """Standard errors of `slope`, shape (n,); inf for a constant, whose slope is unknown."""
        errors = self._error(self._slopes(t))
        return errors if self.degrees_of_freedom > CONSTANT else np.full_like(errors, np.inf)

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


CONSTANT = 1.5  # degrees of freedom between those of a constant and of a line
POWERS = np.array([[1.0, 1.0, 1.0, 1.0], [0.0, 1 / 3, 2 / 3, 1.0], [0.0, 0.0, 1 / 3, 1.0]])
"""Coefficients of 1, u and u^2 on the one piece from 0 to 1."""


def polynomial(data: CurveData, degree: int) -> SplineCurve:
    """The polynomial of the given degree (less than the number of times) nearest to the data."""
    start, length = float(data.times[0]), float(np.ptp(data.times)) or 1.0
    powers = np.vander((data.times - start) / length, degree + 1, increasing=True)
    roots = np.sqrt(data.weights)
    orthogonal, triangle = np.linalg.qr(roots[:, None] * powers)
    inverse = np.linalg.inv(triangle)
    c = inverse @ (orthogonal.T @ (roots * data.values))
    root = POWERS[: degree + 1].T @ inverse
    sigma, notes = noise(data, data.values - powers @ c, degree + 1.0)
    shape, n = ("a constant", "a straight line", "a parabola")[degree], data.times.size
    few = (
        f"Number of distinct times: {n}. The curve is therefore {shape}, and its slopes follow "
        "from this shape."
    )
    return SplineCurve(
        basis=CubicBasis(np.array([0.0, 1.0])),
        start=start,
        length=length,
        coefficients=POWERS[: degree + 1].T @ c,
        band=band_of(root @ root.T),
        sigma=sigma,
        degrees_of_freedom=degree + 1.0,
        penalty=np.inf,
        notes=(few, *notes),
    )


FEWEST = 4  # distinct times for a cubic


@dataclass(frozen=True)
class Interpolation:
    """The not-a-knot cubic spline through the measurements; replicates are averaged.

    The spline is linear in the measurements, and igpe propagates the errors of the measurements
    through it: the coefficients c, with B c = y, have the covariance sigma^2 (B' W B)^-1. If
    standard deviations are not given, igpe estimates sigma from two sources: the scatter of
    replicates, and the distance between each measurement and the line that joins its neighbours
    (Gasser, Sroka & Jennen-Steinmetz 1986). Curvature of the data increases this estimate of sigma.
    With one, two or three distinct times, the curve is a constant, a line or a parabola.
    """

    @property
    def description(self) -> str:
        """Description of the smoothed data in reports."""
        return "interpolated data"

    def smooth(
        self,
        times: FloatArray,
        values: FloatArray,
        *,
        sigma: FloatArray | None = None,
        exact: BoolArray | None = None,
    ) -> Smooth:
        """See `Smoother.smooth`; the curve has one degree of freedom for each distinct time."""
        data = prepare(times, values, sigma, exact)
        if data.times.size < FEWEST:
            return polynomial(data, data.times.size - 1)
        return spline_through(data)


def spline_through(data: CurveData) -> SplineCurve:
    """The not-a-knot spline through at least four distinct times."""
    start, length = float(data.times[0]), float(np.ptp(data.times))
    u = (data.times - start) / length
    basis = CubicBasis(np.delete(u, [1, -2]))
    scale = data.total_weight / u.size
    normal = basis.gram(basis.local(u), data.weights / scale)
    sigma, notes = _local_noise(data)
    return SplineCurve(
        basis=basis,
        start=start,
        length=length,
        coefficients=make_interp_spline(u, data.values, t=basis.knots).c,
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
    replicates = data.count - int((~data.exact).sum())
    freedom = int(counts.sum()) + replicates
    if freedom == 0:
        return 0.0, ()
    squares = float((misses**2 / expected)[counts].sum()) + data.scatter
    note = (
        "No standard deviations are given. igpe estimated them by comparing each "
        "measurement with the line through its neighbours, so curvature counts as noise."
    )
    return float(np.sqrt(squares / freedom)), (note,)
