"""The smoother of the IGPE paper: boundary corrected smoothing splines with GCV.

Boundary correction: penalties on higher derivatives, averaged.

A penalty on f'' makes the curve natural, f'' = f''' = 0 at both ends, which biases it there, and
its slope more. A penalty on the m-th derivative leaves polynomials of degree m - 1 alone; its bias
at the ends is of order m. On cubic splines f''' is a constant p_i on each piece, and for m > 3

    integral (d^m f / dt^m)^2  ~  sum of squared (m - 3)th divided differences of p, by widths.

With orders 4 and 5 a smooth curve needs so few degrees of freedom that a few dozen break points
resolve it, and one eigendecomposition gives the fits of all penalties: with A = N + l Omega,

    V'A V = 1,  V'Omega V l = mu:   c(lambda) = V (1 - mu + mu lambda / l)^-1 V'g.

No single lambda is chosen: the fits of all are averaged with weights exp(-D / 2), where D is
n log GCV + REML, two criteria whose errors differ (deviance scales both). Curves of both orders are
averaged with weights GCV^(-n/2) (Buckland et al. 1997). In measurements this beats a penalty of
order 3, or of order 2 with free functions at the ends, and any choice of one lambda. Where f''
vanishes at an end a natural spline is as good.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from igpe.core.arrays import BoolArray, FloatArray
from igpe.smoothing.base import Smooth, noise
from igpe.smoothing.basis import DEGREE
from igpe.smoothing.penalised import (
    LEAST_LEFT,
    NOTHING,
    Counts,
    CurveData,
    PenaltyChoice,
    SmoothingProblem,
    choose,
    prepare,
    scaled_problem,
)
from igpe.smoothing.spline_curve import SplineCurve, polynomial, spline_through

ORDERS = (4, 5)
LEAST_TIMES = {4: 8, 5: 9}  # distinct times each order needs
WIDEST = 0.25  # of the range: in a longer gap curves of high order swing
BREAKS = np.linspace(0.0, 1.0, 30)  # 30 ... 100 do as well; evenly, for the sake of rounding
MIDDLES = {4: 1e-12, 5: 3e-14}  # l, where A is best conditioned
SMALLEST = 1e-10  # lambda / l below which rounding rules
PER_DECADE = 10


class Smoothed(NamedTuple):
    """A fit: coefficients (k,) and band (4, k) of Cov(c) / sigma^2, scaled; trace, GCV, lambda.

    penalty is that of f'' whose curve reaches as far: lambda^(2 / m), for lambda^(1 / 2m) is the
    reach of order m. at_edge: no noise was found; least: trace of an infinite penalty.
    """

    coefficients: FloatArray
    band: FloatArray
    trace: float
    gcv: float
    penalty: float
    at_edge: bool
    least: float


def averaged(problem: SmoothingProblem, counts: Counts, factor: float) -> Smoothed:
    """The mean of the curves of all orders the data allow; at least one must be allowed."""
    orders = [m for m in ORDERS if allowed(problem.u, m)]
    fits = [_smoothed(problem, counts, m, factor) for m in orders]
    scores = np.log([fit.gcv for fit in fits])
    weights = np.exp(-0.5 * counts.measurements * (scores - scores.min()))
    weights /= weights.sum()
    return Smoothed(
        sum((w * fit.coefficients for w, fit in zip(weights, fits, strict=True)), np.zeros(())),
        sum((w * fit.band for w, fit in zip(weights, fits, strict=True)), np.zeros(())),
        float(weights @ [fit.trace for fit in fits]),
        float(np.exp(scores.min())),
        float(np.exp(weights @ np.log([fit.penalty for fit in fits]))),
        any(fit.at_edge for fit in fits),
        float(weights @ orders),
    )


def allowed(times: FloatArray, order: int = ORDERS[0]) -> bool:
    """Whether the distinct times are enough, and even enough, for this order."""
    widest = float(np.diff(times).max() / np.ptp(times))
    return times.size >= LEAST_TIMES[order] and widest <= WIDEST


def roughness(problem: SmoothingProblem, order: int) -> FloatArray:
    """Omega of the given order > 3, (k, k)."""
    breaks = problem.basis.breaks
    widths = np.diff(breaks)
    middles = breaks[:-1] + 0.5 * widths
    rise = [_dense(problem, middles + x * widths, 2) for x in (-0.25, 0.25)]
    rows = (rise[1] - rise[0]) / (0.5 * widths)[:, None]
    for _ in range(order - DEGREE):
        middles, widths = 0.5 * (middles[1:] + middles[:-1]), np.diff(middles)
        rows = np.diff(rows, axis=0) / widths[:, None]
    omega: FloatArray = rows.T @ (widths[:, None] * rows)
    return omega


def _dense(problem: SmoothingProblem, u: FloatArray, order: int) -> FloatArray:
    local = problem.basis.local(u, order)
    rows = np.zeros((u.size, problem.basis.size))
    for a, values in enumerate(local.values):
        rows[np.arange(u.size), local.first + a] = values
    return rows


def _smoothed(problem: SmoothingProblem, counts: Counts, order: int, factor: float) -> Smoothed:
    middle = MIDDLES[order]
    mu, V = _modes(problem, middle * roughness(problem, order), order)
    decades = -np.log10(middle) - np.log10(SMALLEST)
    ratios = SMALLEST * 10.0 ** np.linspace(0.0, decades, int(PER_DECADE * decades) + 1)
    gains = 1.0 / (1.0 - mu + mu * ratios[:, None])
    modes = gains * (V.T @ problem.target)
    squares = _squares(problem, V, mu, modes) + counts.scatter
    traces = gains @ (1.0 - mu)
    n = counts.measurements
    left = n - (traces - counts.exact)
    gcv = n * squares / np.maximum(left, 1e-3) ** 2 + NOTHING
    total = squares + ratios * (modes**2 @ mu) + NOTHING
    determinants = -np.log(gains).sum(axis=1) - (mu > 0.0).sum() * np.log(ratios)
    criterion = n * np.log(gcv) + (n - order) * np.log(total) + determinants
    admissible = left >= max(1.0, LEAST_LEFT * n)
    criterion[~admissible] = np.inf
    weights = np.exp(-0.5 * (criterion - criterion.min()))
    weights /= weights.sum()
    shifted = np.maximum(ratios * factor ** (0.5 * order), SMALLEST)
    gain = weights @ (1.0 / (1.0 - mu + mu * shifted[:, None]))
    best = int(np.argmin(criterion))
    return Smoothed(
        V @ (gain * (V.T @ problem.target)),
        _band((V * gain) @ V.T),
        float(gain @ (1.0 - mu)),
        float(np.exp(weights @ np.log(gcv))),
        float((middle * shifted[best]) ** (2.0 / order)),
        best == int(np.argmax(admissible)),
        float(order),
    )


def _modes(
    problem: SmoothingProblem, omega: FloatArray, order: int
) -> tuple[FloatArray, FloatArray]:
    """mu, (k,), and V, (k, k), of the module's text."""
    A = _full(problem.normal) + omega
    scale = 1.0 / np.sqrt(A.diagonal())
    mu, vectors = eigh(scale[:, None] * omega * scale, scale[:, None] * A * scale)
    mu = np.clip(mu, 0.0, 1.0)
    mu[:order] = 0.0
    return mu, scale[:, None] * vectors


def _squares(
    problem: SmoothingProblem, V: FloatArray, mu: FloatArray, modes: FloatArray
) -> FloatArray:
    """Residual sums of squares of many fits; as `SmoothingProblem.squares`, in modes."""
    first = problem.y - problem.local.combine(V @ modes[0])
    gradient = V.T @ problem.basis.project(problem.local, problem.w * first)
    d = modes - modes[0]
    sums = np.sum(problem.w * first**2) - 2.0 * d @ gradient + d**2 @ (1.0 - mu)
    positive: FloatArray = np.maximum(sums, 0.0)
    return positive


def _full(band: FloatArray) -> FloatArray:
    full = np.diag(band[0])
    for k in range(1, len(band)):
        off = band[k, :-k]
        full += np.diag(off, k) + np.diag(off, -k)
    return full


def _band(full: FloatArray) -> FloatArray:
    n = len(full)
    return np.stack([np.pad(full.diagonal(-k), (0, k)) for k in range(min(DEGREE + 1, n))])


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
        if not (self.boundary_correction and allowed(data.times)):
            return _natural(data, self.penalty_factor).curve
        coarse = scaled_problem(data, BREAKS)
        average = averaged(coarse, _counts(data, coarse), self.penalty_factor)
        curve = _curve(data, coarse, average)
        if average.trace <= RESOLVED:
            return curve
        natural = _natural(data, self.penalty_factor)
        advantage = np.log(average.gcv) - np.log(natural.gcv + NOTHING)
        return natural.curve if data.count * advantage > CLEARLY else curve


class _Natural(NamedTuple):
    curve: SplineCurve
    gcv: float


def _natural(data: CurveData, factor: float) -> _Natural:
    problem = scaled_problem(data)
    choice = choose(problem, _counts(data, problem), factor)
    return _Natural(_curve(data, problem, _plain(choice)), choice.gcv)


def _counts(data: CurveData, problem: SmoothingProblem) -> Counts:
    scatter = data.scatter / (data.total_weight * problem.scale**2)
    return Counts(data.count, int(data.exact.sum()), scatter)


def _plain(choice: PenaltyChoice) -> Smoothed:
    fit = choice.fit
    return Smoothed(
        fit.coefficients, choice.band, choice.trace, choice.gcv, fit.penalty, choice.at_edge, 2.0
    )


def _curve(data: CurveData, problem: SmoothingProblem, fit: Smoothed) -> SplineCurve:
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


def _warnings(data: CurveData, residuals: FloatArray, fit: Smoothed) -> tuple[str, ...]:
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
