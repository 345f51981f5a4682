"""The smoother of the IGPE paper: boundary corrected smoothing splines with GCV."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.smoothing import orders
from igpe.smoothing.base import Smooth, noise
from igpe.smoothing.cross_validation import NOTHING, Choice, Counts, choose
from igpe.smoothing.orders import Smoothed
from igpe.smoothing.penalised import Measurements, Problem, prepare, scaled_problem
from igpe.smoothing.spline_curve import SplineCurve, polynomial, spline_through

FEWEST = 4  # distinct times below which the curve is a line
STIFF = 0.5  # degrees of freedom above those of an infinite penalty that are still "near"
RESOLVED = 12.0  # degrees of freedom that the few breaks of a smooth curve surely resolve
CLEARLY = 6.0  # deviance by which the natural spline must win, for sharp features
CORRELATED = 2.0  # times 1 / sqrt(m): a lag-one autocorrelation beyond is no chance (95 %)


@dataclass(frozen=True)
class GcvSpline:
    """Boundary corrected cubic smoothing spline, its penalty by generalised cross validation.

    Michalik, Chachuat & Marquardt (2009), step 1; Huang (2001); errors are Wahba's (1983)
    Bayesian ones. Time and memory are proportional to the number of measurements.

    Corrected, it is an average of curves with penalties on the fourth and the sixth derivative
    (`orders`), unless a feature is sharp and GCV clearly prefers the natural spline. Below 8
    distinct times, or with a gap of over a quarter of the range, it is the natural spline, below 4
    a line or a constant. Up to 3000 distinct times the natural spline is exact; for more it has
    3000 knots. If every value is exact it is the spline through them.

    boundary_correction  free the curve of f'' = f''' = 0 at its ends
    penalty_factor       multiplies the penalty found (as of f''): 0.01 smooths less
    """

    boundary_correction: bool = True
    penalty_factor: float = 1.0

    @property
    def description(self) -> str:
        """What it makes of the data."""
        factor = self.penalty_factor
        return "smoothed data" if factor == 1 else f"data smoothed {factor:g} times as much"

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
        if not (self.boundary_correction and orders.allowed(data.times)):
            return _natural(data, self.penalty_factor).curve
        coarse = scaled_problem(data, orders.BREAKS)
        average = orders.averaged(coarse, _counts(data, coarse), self.penalty_factor)
        curve = _curve(data, coarse, average)
        if average.trace <= RESOLVED:
            return curve
        natural = _natural(data, self.penalty_factor)
        advantage = np.log(average.gcv) - np.log(natural.gcv + NOTHING)
        return natural.curve if data.count * advantage > CLEARLY else curve


class _Natural(NamedTuple):
    curve: SplineCurve
    gcv: float


def _natural(data: Measurements, factor: float) -> _Natural:
    problem = scaled_problem(data)
    choice = choose(problem, _counts(data, problem), factor)
    return _Natural(_curve(data, problem, _plain(choice)), choice.gcv)


def _counts(data: Measurements, problem: Problem) -> Counts:
    scatter = data.scatter / (data.total_weight * problem.scale**2)
    return Counts(data.count, int(data.exact.sum()), scatter)


def _plain(choice: Choice) -> Smoothed:
    fit = choice.fit
    return Smoothed(
        fit.coefficients, choice.band, choice.trace, choice.gcv, fit.penalty, choice.at_edge, 2.0
    )


def _curve(data: Measurements, problem: Problem, fit: Smoothed) -> SplineCurve:
    """The chosen fit in the user's units."""
    length, weight = float(np.ptp(data.times)), data.total_weight
    residuals = problem.scale * (problem.y - problem.local.combine(fit.coefficients))
    rss = float((data.weights * residuals**2)[~data.exact].sum())
    sigma, notes = noise(data, rss, fit.trace)
    intercept, slope = problem.line
    straight = intercept + slope * problem.basis.centres
    return SplineCurve(
        basis=problem.basis,
        start=float(data.times[0]),
        length=length,
        coefficients=straight + problem.scale * fit.coefficients,
        band=fit.band / weight,
        sigma=sigma,
        degrees_of_freedom=fit.trace,
        penalty=fit.penalty * weight * length**3,
        notes=notes + _warnings(data, residuals, fit),
    )


def _warnings(data: Measurements, residuals: FloatArray, fit: Smoothed) -> tuple[str, ...]:
    r = np.sqrt(data.weights[~data.exact]) * residuals[~data.exact]
    squares = float(r @ r)
    lag_one = float(r[1:] @ r[:-1]) / squares if squares > 0.0 else 0.0
    if fit.trace < fit.least + STIFF and abs(lag_one) > CORRELATED / np.sqrt(r.size):
        return (
            f"The curve has only {fit.trace:.1f} degrees of freedom, but its residuals are "
            f"autocorrelated ({lag_one:+.2f}): it may smooth away what the data show. "
            "Try penalty_factor=0.01, or Interpolation().",
        )
    if fit.at_edge and squares > 0.0:
        return (
            "Cross validation found no noise to smooth away: the curve follows nearly every "
            "measurement, and its errors mean little.",
        )
    return ()
