"""The smoother of the IGPE paper: boundary corrected smoothing splines with GCV."""

from dataclasses import dataclass

import numpy as np

from igpe.arrays import BoolArray, FloatArray
from igpe.smoothing import boundary
from igpe.smoothing.base import Smooth
from igpe.smoothing.cross_validation import Choice, Counts, choose
from igpe.smoothing.interpolation import spline_through
from igpe.smoothing.measurements import Measurements, prepare
from igpe.smoothing.noise import noise
from igpe.smoothing.penalised import Problem, scaled_problem
from igpe.smoothing.polynomial_curve import polynomial
from igpe.smoothing.spline_curve import SplineCurve

FEWEST = 4  # distinct times below which the curve is a line
STIFF = 0.5  # degrees of freedom above those of an infinite penalty that are still "near"
CORRELATED = 2.0  # times 1 / sqrt(m): a lag-one autocorrelation beyond is no chance (95 %)


@dataclass(frozen=True)
class GcvSpline:
    """Boundary corrected cubic smoothing spline, its penalty by generalised cross validation.

    Michalik, Chachuat & Marquardt (2009), step 1; Huang (2001); errors are Wahba's (1983)
    Bayesian ones. Time and memory are proportional to the number of measurements.

    Up to 3000 distinct times the curve is the exact smoothing spline; for more it is a penalised
    regression spline with 3000 knots. Below 8 distinct times the ends are not corrected, below 4
    the curve is a line or a constant. If every value is exact it is the spline through them.

    boundary_correction  free the curve of f'' = f''' = 0 at its ends
    penalty_factor       multiplies the penalty found: 0.01 smooths less
    """

    boundary_correction: bool = True
    penalty_factor: float = 1.0

    def smooth(
        self,
        times: FloatArray,
        values: FloatArray,
        *,
        sigma: FloatArray | None = None,
        exact: BoolArray | None = None,
    ) -> Smooth:
        """As in `Smoother.smooth`."""
        data = prepare(times, values, sigma, exact)
        if data.times.size < FEWEST:
            return polynomial(data, min(data.times.size - 1, 1))
        if data.inexact == 0:
            return spline_through(data)
        corrected = self.boundary_correction and data.times.size >= boundary.FEWEST
        problem = scaled_problem(data, corrected)
        scatter = data.scatter / (data.total_weight * problem.scale**2)
        counts = Counts(data.count, int(data.exact.sum()), scatter)
        return _curve(data, problem, choose(problem, counts, self.penalty_factor))


def _curve(data: Measurements, problem: Problem, choice: Choice) -> SplineCurve:
    """The chosen fit in the user's units."""
    length, weight = float(np.ptp(data.times)), data.total_weight
    residuals = problem.scale * problem.residuals(choice.fit)
    rss = float((data.weights * residuals**2)[~data.exact].sum())
    sigma, notes = noise(data, rss, choice.trace)
    intercept, slope = problem.line
    straight = intercept + slope * problem.basis.centres
    return SplineCurve(
        basis=problem.basis,
        start=float(data.times[0]),
        length=length,
        coefficients=straight + problem.scale * choice.fit.coefficients,
        band=choice.band / weight,
        root=choice.fit.root / np.sqrt(weight),
        sigma=sigma,
        degrees_of_freedom=choice.trace,
        penalty=choice.fit.penalty * weight * length**3,
        notes=notes + _warnings(data, residuals, choice),
    )


def _warnings(data: Measurements, residuals: FloatArray, choice: Choice) -> tuple[str, ...]:
    r = np.sqrt(data.weights[~data.exact]) * residuals[~data.exact]
    squares = float(r @ r)
    lag_one = float(r[1:] @ r[:-1]) / squares if squares > 0.0 else 0.0
    least = 2.0 + choice.fit.root.shape[1]
    if choice.trace < least + STIFF and abs(lag_one) > CORRELATED / np.sqrt(r.size):
        return (
            f"The curve has only {choice.trace:.1f} degrees of freedom, but its residuals are "
            f"autocorrelated ({lag_one:+.2f}): it may smooth away what the data show. "
            "Try penalty_factor=0.01, or Interpolation().",
        )
    if choice.at_edge and squares > 0.0:
        return (
            "Cross validation found no noise to smooth away: the curve follows nearly every "
            "measurement, and its errors mean little.",
        )
    return ()
