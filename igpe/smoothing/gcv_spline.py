"""The smoother of the IGPE paper: boundary-corrected smoothing splines with GCV.

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

Curves are cubic splines with their covariance; `Interpolation` makes them too.

`BootstrapErrors` replaces the errors by formula of these and other smoothers (Michalik et al. 2009,
IGPE, section 5; Efron (1979); Härdle & Bowman (1988) for curves). Smoothing is repeated on the
curve plus noise made of its own residuals. How far the repetitions miss the curve they came from
estimates how far the curve misses the truth, bias and choice of the penalty included, which no
formula holds.
"""

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.linalg import eigh

from igpe.core.arguments import Checked, Count, CountFrom1
from igpe.core.arrays import BoolArray, FloatArray
from igpe.smoothing.base import Smooth, Smoother, description, noise
from igpe.smoothing.penalised import (
    DEGREE,
    NOTHING,
    CubicBasis,
    CurveData,
    Design,
    LocalPolynomials,
    Smoothed,
    SmoothingProblem,
    band_of,
    choose,
    inverse_band,
    prepare,
    scaled_problem,
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
        return _spline_through(data)


def _spline_through(data: CurveData) -> SplineCurve:
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


ORDERS = (4, 5)
LEAST_TIMES = {4: 8, 5: 9}  # distinct times each order needs
WIDEST = 0.25  # of the range: in a longer gap curves of high order swing
BREAKS = np.linspace(0.0, 1.0, 30)  # 30 ... 100 do as well; evenly, for the sake of rounding
MIDDLES = {4: 1e-12, 5: 3e-14}  # l, where A is best conditioned
SMALLEST = 1e-10  # lambda / l below which rounding rules
PER_DECADE = 10


def averaged(problem: SmoothingProblem, factor: float) -> Smoothed:
    """The mean of the curves of all orders the data allow; at least one must be allowed."""
    orders = [m for m in ORDERS if allowed(problem.design.u, m)]
    fits = [_smoothed(problem, m, factor) for m in orders]
    scores = np.log([fit.gcv for fit in fits])
    weights = _normalised(problem.count * scores)
    coefficients, bands, traces, _, penalties, at_edge, _ = zip(*fits, strict=True)
    return Smoothed(
        weights @ np.array(coefficients),
        np.tensordot(weights, np.array(bands), 1),
        float(weights @ traces),
        float(np.exp(scores.min())),
        float(np.exp(weights @ np.log(penalties))),
        any(at_edge),
        float(weights @ orders),
    )


def allowed(times: FloatArray, order: int = ORDERS[0]) -> bool:
    """Whether the distinct times are enough, and even enough, for this order."""
    widest = float(np.diff(times).max() / np.ptp(times))
    return times.size >= LEAST_TIMES[order] and widest <= WIDEST


def roughness(design: Design, order: int) -> FloatArray:
    """Omega of the given order > 3, (k, k)."""
    breaks = design.basis.breaks
    widths = np.diff(breaks)
    middles = breaks[:-1] + 0.5 * widths
    rise = [design.basis.dense(middles + x * widths, 2) for x in (-0.25, 0.25)]
    rows = (rise[1] - rise[0]) / (0.5 * widths)[:, None]
    for _ in range(order - DEGREE):
        middles, widths = 0.5 * (middles[1:] + middles[:-1]), np.diff(middles)
        rows = np.diff(rows, axis=0) / widths[:, None]
    omega: FloatArray = rows.T @ (widths[:, None] * rows)
    return omega


def _modes(design: Design, order: int) -> tuple[FloatArray, FloatArray]:
    """mu, (k,), and V, (k, k), of the eigenvalue problem of an order."""
    omega = MIDDLES[order] * roughness(design, order)
    bands = (np.diag(row[: len(omega) - k], -k) for k, row in enumerate(design.normal))
    lower = sum(bands, np.zeros_like(omega))
    A = lower + np.tril(lower, -1).T + omega
    scale = 1.0 / np.sqrt(A.diagonal())
    mu, vectors = eigh(scale[:, None] * omega * scale, scale[:, None] * A * scale)
    mu = np.clip(mu, 0.0, 1.0)
    mu[:order] = 0.0
    return mu, scale[:, None] * vectors


def _smoothed(problem: SmoothingProblem, order: int, factor: float) -> Smoothed:
    middle = MIDDLES[order]
    if order not in problem.design.modes:
        problem.design.modes[order] = _modes(problem.design, order)
    mu, V = problem.design.modes[order]
    decades = -np.log10(middle) - np.log10(SMALLEST)
    ratios = SMALLEST * 10.0 ** np.linspace(0.0, decades, int(PER_DECADE * decades) + 1)
    gains = 1.0 / (1.0 - mu + mu * ratios[:, None])
    modes = gains * (V.T @ problem.target)
    # Sums of squares as `SmoothingProblem.squares` has them, in modes.
    first = problem.residuals(V @ modes[0])
    gradient = V.T @ problem.design.basis.project(problem.design.local, problem.design.w * first)
    d = modes - modes[0]
    sums = np.sum(problem.design.w * first**2) - 2.0 * d @ gradient + d**2 @ (1.0 - mu)
    squares, n = np.maximum(sums, 0.0), problem.count
    scores, admissible = problem.gcv(squares, gains @ (1.0 - mu))
    gcv = scores + NOTHING
    total = squares + problem.scatter + ratios * (modes**2 @ mu) + NOTHING
    determinants = -np.log(gains).sum(axis=1) - (mu > 0.0).sum() * np.log(ratios)
    criterion = n * np.log(gcv) + (n - order) * np.log(total) + determinants
    criterion[~admissible] = np.inf
    weights = _normalised(criterion)
    shifted = np.maximum(ratios * factor ** (0.5 * order), SMALLEST)
    gain = weights @ (1.0 / (1.0 - mu + mu * shifted[:, None]))
    best = int(np.argmin(criterion))
    return Smoothed(
        V @ (gain * (V.T @ problem.target)),
        band_of((V * gain) @ V.T),
        float(gain @ (1.0 - mu)),
        float(np.exp(weights @ np.log(gcv))),
        float((middle * shifted[best]) ** (2.0 / order)),
        best == int(np.argmax(admissible)),
        float(order),
    )


def _normalised(deviances: FloatArray) -> FloatArray:
    """Weights exp(-D / 2) of sum 1."""
    weights = np.exp(-0.5 * (deviances - deviances.min()))
    return np.asarray(weights / weights.sum())


STIFF = 0.5  # degrees of freedom above those of an infinite penalty that are still "near"
RESOLVED = 12.0  # degrees of freedom that the few breaks of a smooth curve surely resolve
CLEARLY = 6.0  # deviance by which the natural spline must win, for sharp features
CORRELATED = 2.0  # times 1 / sqrt(m): a lag-one autocorrelation beyond is no chance (95 %)


@dataclass(frozen=True)
class GcvSpline:
    """Boundary-corrected cubic smoothing spline with its penalty chosen by generalised
    cross-validation.

    See Michalik, Chachuat & Marquardt (2009), step 1, and Huang (2001). The standard errors are
    Bayesian (Wahba 1983). Time and memory are proportional to the number of measurements.

    With the boundary correction, the curve is a weighted average of two splines. The first has a
    penalty on its fourth derivative, the second on its fifth. With only 8 distinct times, the curve
    is the first of these splines. If the data have a sharp feature and GCV clearly prefers the
    natural spline, igpe uses that spline instead. igpe also uses the natural spline if there are
    fewer than 8 distinct times, or if a gap between times is longer than a quarter of the time
    range. With fewer than 4 distinct times, this spline is a line or a constant. With at most 3000
    distinct times, the natural spline is the exact smoothing spline; with more times, it is an
    approximation with 3000 knots. If every value is exact, the curve is the spline through all
    values.

    boundary_correction  whether to remove the conditions f'' = f''' = 0 at the ends of the curve
    penalty_factor       factor by which the chosen penalty on f'' is multiplied; 0.01, for example,
                         smooths less
    """

    boundary_correction: bool = True
    penalty_factor: float = 1.0

    @property
    def description(self) -> str:
        """Description of the smoothed data in reports."""
        factor = self.penalty_factor
        return (
            "smoothed data"
            if factor == 1
            else f"data smoothed with {factor:g} times the GCV penalty"
        )

    def smooth(
        self,
        times: FloatArray,
        values: FloatArray,
        *,
        sigma: FloatArray | None = None,
        exact: BoolArray | None = None,
    ) -> Smooth:
        """See `Smoother.smooth`."""
        data = prepare(times, values, sigma, exact)
        if data.times.size < FEWEST:
            return polynomial(data, min(data.times.size - 1, 1))
        if data.exact.all():
            return _spline_through(data)
        is_corrected = self.boundary_correction and allowed(data.times)
        if is_corrected:
            coarse = scaled_problem(data, BREAKS)
            average = averaged(coarse, self.penalty_factor)
            if average.trace <= RESOLVED:
                return _curve(data, coarse, average)
        problem = scaled_problem(data)
        natural = choose(problem, self.penalty_factor)
        if is_corrected and data.count * np.log(average.gcv / natural.gcv) <= CLEARLY:
            return _curve(data, coarse, average)
        return _curve(data, problem, natural)


def _curve(data: CurveData, problem: SmoothingProblem, fit: Smoothed) -> SplineCurve:
    """The chosen fit in the user's units."""
    length, weight = float(np.ptp(data.times)), data.total_weight
    residuals = problem.scale * problem.residuals(fit.coefficients)
    sigma, notes = noise(data, residuals, fit.trace)
    intercept, slope = problem.line
    straight = intercept + slope * problem.design.basis.centres
    return SplineCurve(
        basis=problem.design.basis,
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
            f"autocorrelated ({lag_one:+.2f}): the curve may be too smooth. "
            "Try penalty_factor=0.01 or Interpolation().",
        )
    if fit.at_edge and squares > 0.0:
        return (
            "Cross validation chose almost no smoothing: the curve follows nearly every "
            "measurement, and its standard errors are unreliable.",
        )
    return ()


LEAST_FREEDOM = 0.5  # residual degrees of freedom below which residuals do not show the noise


@dataclass(frozen=True)
class BootstrapErrors(Checked):
    """Any smoother, combined with standard errors from repeated smoothing (bootstrap).

    smoother  smoother that is applied repeatedly
    samples   number of repetitions; 50 repetitions give standard errors accurate to about 10 %
    seed      seed of the simulated noise; the same seed gives the same errors

    If standard deviations are given, the simulated noise is normal. Otherwise igpe draws the noise
    with replacement from the residuals, which it scales to account for the degrees of freedom of
    the curve. If the residuals contain no information about the noise, the standard errors are
    those of the smoother itself.
    """

    smoother: Smoother = GcvSpline()
    samples: CountFrom1 = 50
    seed: Count = 0

    @property
    def description(self) -> str:
        """Description of the smoothed data in reports, including the description of the
        smoother."""
        return f"{description(self.smoother)} (errors by bootstrap)"

    def smooth(
        self,
        times: FloatArray,
        values: FloatArray,
        *,
        sigma: FloatArray | None = None,
        exact: BoolArray | None = None,
    ) -> Smooth:
        """See `Smoother.smooth`."""
        times, values = np.asarray(times, float), np.asarray(values, float)
        curve = self.smoother.smooth(times, values, sigma=sigma, exact=exact)
        fitted = curve.value(times)
        noisy = ~np.isnan(values) if exact is None else ~(np.isnan(values) | exact)
        residual, random = (values - fitted)[noisy], np.random.default_rng(self.seed)
        n = len(residual)
        if sigma is None:
            if n - curve.degrees_of_freedom < LEAST_FREEDOM:
                return curve
            centred = residual - residual.mean()
            squares = float(centred @ centred)
            widened = centred * np.sqrt(n / squares) * curve.sigma if squares > 0 else centred
        repeated = []
        for _ in range(self.samples):
            sample = np.where(np.isnan(values), np.nan, fitted)
            sample[noisy] += (
                random.choice(widened, n)
                if sigma is None
                else sigma[noisy] * random.standard_normal(n)
            )
            repeated.append(self.smoother.smooth(times, sample, sigma=sigma, exact=exact))
        numbers = curve.degrees_of_freedom, curve.sigma, curve.penalty, curve.notes
        return BootstrapCurve(*numbers, curve, tuple(repeated))


@dataclass(frozen=True)
class BootstrapCurve:
    """A curve with the errors of its repetitions; fields and methods are those of `Smooth`."""

    degrees_of_freedom: float
    sigma: float
    penalty: float
    notes: tuple[str, ...]
    curve: Smooth
    repeated: tuple[Smooth, ...]

    def value(self, t: FloatArray) -> FloatArray:
        """See `Smooth`."""
        return self.curve.value(t)

    def slope(self, t: FloatArray) -> FloatArray:
        """See `Smooth`."""
        return self.curve.slope(t)

    def value_error(self, t: FloatArray) -> FloatArray:
        """Root mean square miss of the repeated curves at t, (n,)."""
        return _miss(self.curve.value(t), [c.value(t) for c in self.repeated])

    def slope_error(self, t: FloatArray) -> FloatArray:
        """Root mean square miss of the repeated slopes at t, (n,)."""
        return _miss(self.curve.slope(t), [c.slope(t) for c in self.repeated])


def _miss(value: FloatArray, repeated: list[FloatArray]) -> FloatArray:
    errors: FloatArray = np.sqrt(np.mean((np.array(repeated) - value) ** 2, axis=0))
    return errors
