"""The penalised least squares problem in B-splines, for any number of penalties at once.

With u in [0, 1], weights of sum 1 (without exact values) and the line through the data taken off,

    minimise  sum w (y - b(u)'c)^2 + lambda c' Omega c,      (N + lambda Omega) c = g.

If there is a break at each distinct time, the minimiser over all these splines is the smoothing
spline itself, which is natural by itself. For more times than MOST_BREAKS the breaks are
an even choice of them: a penalised regression spline, whose cost is one pass over the data and
then independent of their number (as smooth.spline of R does).

Measurements made ready for smoothing: no gaps, one value for each time, known weights.

Replicates y_j of weights w_j at one time become their mean of weight W = sum w_j. What is lost,
the scatter sum w_j (y_j - mean)^2, is kept with its count: it tells sigma^2 whatever the curve.

The penalty by generalised cross validation (Craven & Wahba 1979).

    GCV(lambda) = n RSS(lambda) / (n - tr S(lambda))^2

may have several minima, so log10 lambda is scanned over all its sensible range and the best
neighbourhood is scanned again, finer, twice. RSS holds the scatter of replicates and n all
measurements; exact values count in neither.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpbsv

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import DataError
from igpe.smoothing.basis import CubicBasis, LocalPolynomials, inverse_bands, multiply

# An exact datum weighs this many times all others together: it is then missed by less than 1e-6
# of the range of the data, and the band matrices keep seven digits for the rest.
EXACT_WEIGHT = 1e9


@dataclass(frozen=True)
class CurveData:
    """One quantity at m distinct times.

    times         (m,), strictly ascending
    values        (m,), means of the replicates
    weights       (m,), 1 / sigma^2 of the means, very large where exact
    exact         (m,), whether the value is known without error
    count         number of measurements the means were made of, without the exact ones
    scatter       sum of w_j (y_j - mean)^2 over replicates
    sigma_given   whether the weights are known absolutely
    total_weight  sum of the weights that are not exact; 1 if all are
    """

    times: FloatArray
    values: FloatArray
    weights: FloatArray
    exact: BoolArray
    count: int
    scatter: float
    sigma_given: bool
    total_weight: float

    @property
    def inexact(self) -> int:
        """Number of distinct times with a value that has an error."""
        return int(self.exact.size - self.exact.sum())


def prepare(
    times: FloatArray,
    values: FloatArray,
    sigma: FloatArray | None,
    exact: BoolArray | None,
) -> CurveData:
    """Drop what is missing, weigh, and average replicates; arguments as in `Smoother.smooth`.

    An exact value makes the other values at its time superfluous.
    """
    times, values = np.asarray(times, float), np.asarray(values, float)
    known = np.zeros(times.size, bool) if exact is None else np.asarray(exact, bool)
    raw = np.ones(times.size) if sigma is None else _inverse_squares(sigma, values, known)
    kept = ~np.isnan(values)
    _check(times[kept], values[kept])
    t, y, w, known = times[kept], values[kept], raw[kept], known[kept]
    first = np.flatnonzero(np.diff(t, prepend=-np.inf) > 0.0)
    group = np.repeat(np.arange(first.size), np.diff(first, append=t.size))
    exact_at = np.logical_or.reduceat(known, first)
    w = np.where(exact_at[group] & ~known, 0.0, np.where(known, 1.0, w))
    weight = np.add.reduceat(w, first)
    mean = np.add.reduceat(w * y, first) / weight
    free = ~exact_at
    total = float(weight[free].sum()) if free.any() else 1.0
    return CurveData(
        times=t[first],
        values=mean,
        weights=np.where(exact_at, EXACT_WEIGHT * total, weight),
        exact=exact_at,
        count=int(free[group].sum()),
        scatter=float((w * (y - mean[group]) ** 2)[free[group]].sum()),
        sigma_given=sigma is not None,
        total_weight=total,
    )


def _inverse_squares(sigma: FloatArray, values: FloatArray, exact: BoolArray) -> FloatArray:
    deviations = np.broadcast_to(np.asarray(sigma, float), values.shape)
    needed = ~np.isnan(values) & ~exact
    wrong = needed & ~(np.isfinite(deviations) & (deviations > 0.0))
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum())} of the standard deviations are not positive numbers "
            f"(the first is {deviations[wrong][0]}). Give each measurement a positive `sigma`, "
            "or mark values known without error as exact."
        )
    return 1.0 / np.where(needed, deviations, 1.0) ** 2


def _check(times: FloatArray, values: FloatArray) -> None:
    if values.size == 0:
        raise DataError(
            "There is no measurement to smooth: none was given, or all are missing (NaN). "
            "Leave this quantity out, or give at least one value."
        )
    if not (np.isfinite(times).all() and np.isfinite(values).all()):
        raise DataError(
            "Some times or values are not finite numbers. "
            "Write missing values as NaN and give every one a finite time."
        )


MOST_BREAKS = 3000  # full accuracy up to here; detail finer than 1/3000 of the range is noise
NARROWEST = 1e-5  # of the range: times nearer than this share a break, for the sake of rounding
STRAIGHT = 1e-12  # of the largest value: what a line leaves is rounding


@dataclass(frozen=True)
class SplineFit:
    """The minimiser for one penalty.

    penalty       lambda, scaled
    coefficients  (k,), scaled values
    factor        (4, k), Cholesky factor of A = N + lambda Omega
    """

    penalty: float
    coefficients: FloatArray
    factor: FloatArray


@dataclass(frozen=True)
class SmoothingProblem:
    """Scaled data of one quantity.

    u, y, w   (m,), as in the module's text; y is in units of `scale`
    line      intercept and slope in u that were taken off, unit of the values
    """

    u: FloatArray
    y: FloatArray
    w: FloatArray
    basis: CubicBasis
    line: tuple[float, float]
    scale: float

    @cached_property
    def local(self) -> LocalPolynomials:
        """Basis functions at the data."""
        return self.basis.local(self.u)

    @cached_property
    def normal(self) -> FloatArray:
        """Band of N, (4, k)."""
        return self.basis.gram(self.local, self.w)

    @cached_property
    def bending(self) -> FloatArray:
        """Band of Omega, (4, k)."""
        return self.basis.bending()

    @cached_property
    def target(self) -> FloatArray:
        """g, (k,)."""
        return self.basis.project(self.local, self.w * self.y)

    def fit(self, penalty: float) -> SplineFit | None:
        """The minimiser, or None if this penalty is too small to be distinguished from none."""
        # LAPACK itself: for a hundred data SciPy's checks take three times as long as the work.
        factor, c, failed = dpbsv(self.normal + penalty * self.bending, self.target, lower=1)
        return None if failed else SplineFit(penalty, c, factor)

    def traces(self, fits: list[SplineFit]) -> tuple[FloatArray, FloatArray]:
        """Trace of each fit's smoother, (len(fits),), and bands of A^-1, (len(fits), 4, k)."""
        bands = inverse_bands(np.stack([fit.factor for fit in fits]))
        products = np.einsum("mij,ij->mi", bands, self.normal)
        traces: FloatArray = products[:, 0] + 2.0 * products[:, 1:].sum(axis=1)
        return traces, bands

    def residuals(self, fit: SplineFit) -> FloatArray:
        """y - f at the data, (m,), scaled."""
        return self.y - self.local.combine(fit.coefficients)

    def squares(self, fits: list[SplineFit]) -> FloatArray:
        """Weighted residual sums of squares, (len(fits),), without a pass over the data each.

        From the first fit c0 with residuals r0:  r0'W r0 - 2 d'B'W r0 + d'N d,  d = c - c0.
        """
        r0 = self.residuals(fits[0])
        g0 = self.basis.project(self.local, self.w * r0)
        d = np.stack([fit.coefficients - fits[0].coefficients for fit in fits], axis=1)
        changes = (d * multiply(self.normal, d)).sum(axis=0) - 2.0 * g0 @ d
        sums: FloatArray = np.maximum(np.sum(self.w * r0**2) + changes, 0.0)
        return sums


def scaled_problem(data: CurveData, breaks: FloatArray | None = None) -> SmoothingProblem:
    """The problem of m >= 2 distinct times in units that make every smoother blind to units.

    breaks   ascending from 0 to 1; None: the times themselves, see the module's text
    """
    u = (data.times - data.times[0]) / np.ptp(data.times)
    w = data.weights / data.total_weight
    slope, intercept = _line(u, data.values, w)
    y = data.values - (intercept + slope * u)
    scale = float(np.abs(y).max())
    if scale <= STRAIGHT * float(np.abs(data.values).max()):
        y, scale = np.zeros_like(y), 1.0
    return SmoothingProblem(
        u,
        y / scale,
        w,
        CubicBasis(_breaks(u) if breaks is None else breaks),
        (intercept, slope),
        scale,
    )


def _line(u: FloatArray, y: FloatArray, w: FloatArray) -> tuple[float, float]:
    mean_u, mean_y = np.average(u, weights=w), np.average(y, weights=w)
    du = u - mean_u
    slope = np.sum(w * du * (y - mean_y)) / np.sum(w * du**2)
    return float(slope), float(mean_y - slope * mean_u)


def _breaks(u: FloatArray) -> FloatArray:
    """An even choice of at most MOST_BREAKS times, none nearer to another than NARROWEST."""
    if u.size > MOST_BREAKS:
        u = u[np.round(np.linspace(0, u.size - 1, MOST_BREAKS)).astype(int)]
    chosen = [0.0]
    for time in u[1:-1].tolist():
        if time - chosen[-1] >= NARROWEST and 1.0 - time >= NARROWEST:
            chosen.append(time)
    return np.array([*chosen, 1.0])


EXPONENTS = np.arange(-20.0, 0.25, 0.5)  # from interpolating 3000 times to a line
ZOOMS = 2  # each leaves an eighth of the step: log10 lambda to 0.01
ZOOMED = np.linspace(-1.0, 1.0, 17)
LEAST_LEFT = 0.02  # of n: residual degrees of freedom the curve must leave, and at least one
LEVEL = 1e-9  # relative difference of GCV that is rounding; then the larger penalty is taken
NOTHING = 1e-20  # scaled GCV of data without noise


class PenaltyChoice(NamedTuple):
    """The fit of the chosen penalty; band is of A^-1, at_edge if noise was not found."""

    fit: SplineFit
    trace: float
    band: FloatArray
    at_edge: bool
    gcv: float


class Counts(NamedTuple):
    """What GCV knows of the data besides the problem: n, exact values, scaled scatter."""

    measurements: int
    exact: int
    scatter: float


def choose(problem: SmoothingProblem, counts: Counts, factor: float) -> PenaltyChoice:
    """The fit for `factor` times the penalty of least GCV; deterministic.

    raises  ArithmeticError if no penalty can be fitted, which scaled finite data do not cause
    """
    exponents, step = EXPONENTS, float(EXPONENTS[1] - EXPONENTS[0])
    best, at_edge, gcv = _least(problem, counts, exponents)
    for _ in range(ZOOMS):
        exponents = best + step * ZOOMED
        best, _edge, gcv = _least(problem, counts, exponents)
        step *= float(ZOOMED[1] - ZOOMED[0])
    fit = problem.fit(factor * 10.0**best)
    if fit is None:  # so little penalty was requested that rounding hides it
        fit = problem.fit(10.0**best)
    if fit is None:
        raise ArithmeticError("The penalised normal equations are not positive definite.")
    traces, bands = problem.traces([fit])
    return PenaltyChoice(fit, float(traces[0]), bands[0], at_edge, gcv)


def _least(
    problem: SmoothingProblem, counts: Counts, exponents: FloatArray
) -> tuple[float, bool, float]:
    """The exponent of least GCV, whether it is the smallest that was admissible, and the GCV."""
    tried = [(x, problem.fit(10.0**x)) for x in exponents]
    usable = [(float(x), fit) for x, fit in tried if fit is not None]
    if not usable:
        return float(exponents[-1]), False, np.inf
    fits = [fit for _, fit in usable]
    traces, _ = problem.traces(fits)
    n = counts.measurements
    left = n - (traces - counts.exact)
    scores = n * (problem.squares(fits) + counts.scatter) / np.maximum(left, 1e-3) ** 2
    admissible = left >= max(1.0, LEAST_LEFT * n)
    admissible[-1] = True  # the stiffest curve is always possible
    scores = np.where(admissible, scores, np.inf)
    level = (1.0 + LEVEL) * scores.min() + NOTHING
    chosen = int(np.flatnonzero(scores <= level)[-1])
    first = int(np.flatnonzero(admissible)[0])
    return usable[chosen][0], chosen == first, float(scores[chosen])
