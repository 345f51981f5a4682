"""No smoothing: the cubic spline through the data."""

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import make_interp_spline

from igpe.core.arrays import BoolArray, FloatArray
from igpe.smoothing.band import inverse_band
from igpe.smoothing.base import Smooth
from igpe.smoothing.basis import CubicBasis
from igpe.smoothing.measurements import Measurements, prepare
from igpe.smoothing.polynomial_curve import polynomial
from igpe.smoothing.spline_curve import SplineCurve

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


def spline_through(data: Measurements) -> SplineCurve:
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


def _local_noise(data: Measurements) -> tuple[float, tuple[str, ...]]:
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
