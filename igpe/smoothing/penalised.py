"""Measurements made ready for smoothing, and the penalised least squares problem in B-splines.

With u in [0, 1], weights of sum 1 (without exact values) and the line through the data taken off,

    minimise  sum w (y - b(u)'c)^2 + lambda c' Omega c,      (N + lambda Omega) c = g.

If there is a break at each distinct time, the minimiser over all these splines is the smoothing
spline itself, which is natural by itself. For more times than MOST_BREAKS the breaks are
an even choice of them: a penalised regression spline, whose cost is one pass over the data and
then independent of their number (as smooth.spline of R does).

Of cubic B-splines on given break points four basis functions are non-zero at any point, so a curve
and its errors need only four coefficients and a band of three off-diagonals. Symmetric band
matrices are kept as SciPy's lower form: band[k, i] = A[i + k, i], shape (4, n_coefficients).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky_banded
from scipy.linalg.lapack import dpbsv

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import DataError

DEGREE = 3
GAUSS = 0.5 / np.sqrt(3.0)  # two Gauss points integrate the square of a linear function exactly


class LocalPolynomials(NamedTuple):
    """The basis functions that are non-zero at each of n points.

    first   (n,), index of the first of the four
    values  (4, n), their values or derivatives
    """

    first: IntArray
    values: FloatArray

    def combine(self, coefficients: FloatArray) -> FloatArray:
        """sum_a c[first + a] values[a], shape (n,)."""
        total = np.zeros(self.first.size)
        for a, row in enumerate(self.values):
            total += coefficients[self.first + a] * row
        return total

    def variance(self, band: FloatArray) -> FloatArray:
        """b' V b at each point for a symmetric V of which `band` is the band, shape (n,)."""
        total = np.zeros(self.first.size)
        for a in range(DEGREE + 1):
            for k in range(DEGREE + 1 - a):
                twice = 1.0 if k == 0 else 2.0
                total += twice * band[k, self.first + a] * self.values[a] * self.values[a + k]
        return total


@dataclass(frozen=True)
class CubicBasis:
    """All cubic splines with two continuous derivatives on `breaks`.

    breaks  (n_breaks,), strictly ascending, n_breaks >= 2
    """

    breaks: FloatArray

    @property
    def size(self) -> int:
        """Number of basis functions, n_breaks + 2."""
        return self.breaks.size + DEGREE - 1

    @cached_property
    def knots(self) -> FloatArray:
        """The break points with the ends repeated, shape (n_breaks + 6,)."""
        return np.pad(self.breaks, DEGREE, mode="edge")

    @cached_property
    def centres(self) -> FloatArray:
        """Greville abscissae: as coefficients they give the function u itself, shape (size,)."""
        t = self.knots
        return (t[1:-3] + t[2:-2] + t[3:-1]) / DEGREE

    def local(self, u: FloatArray, order: int = 0) -> LocalPolynomials:
        """Values (order 0) or derivatives (1, 2) at u; outside the breaks on the end pieces.

        The recurrences of de Boor (1978), chapter X, BSPLVB.
        """
        piece = np.searchsorted(self.breaks, u, side="right") - 1
        t, left = self.knots, np.clip(piece, 0, self.breaks.size - 2) + DEGREE
        rows = [np.ones(u.size)]
        for d in range(1, DEGREE - order + 1):
            carried: FloatArray = np.zeros(u.size)
            risen = []
            for r in range(d):
                ahead, behind = t[left + r + 1] - u, u - t[left + 1 - d + r]
                part = rows[r] / (ahead + behind)
                risen.append(carried + ahead * part)
                carried = behind * part
            rows = [*risen, carried]
        for d in range(DEGREE - order + 1, DEGREE + 1):  # derivatives of one degree higher
            width = [t[left + r + 1] - t[left + r + 1 - d] for r in range(d)]
            quotients = [row / w for row, w in zip(rows, width, strict=True)]
            zero = np.zeros(left.size)
            ends = zip([zero, *quotients], [*quotients, zero], strict=True)
            rows = [d * (a - b) for a, b in ends]
        return LocalPolynomials(left - DEGREE, np.stack(rows))

    def dense(self, u: FloatArray, order: int = 0) -> FloatArray:
        """All basis functions, or their derivatives, at u, shape (n, size)."""
        local, rows = self.local(u, order), np.zeros((u.size, self.size))
        for a, values in enumerate(local.values):
            rows[np.arange(u.size), local.first + a] = values
        return rows

    def gram(self, local: LocalPolynomials, weights: FloatArray) -> FloatArray:
        """Band of sum_i w_i b_i b_i' over points in ascending order, shape (4, size)."""
        band = np.zeros((DEGREE + 1, self.size))
        for a, row in enumerate(local.values):
            for k in range(DEGREE + 1 - a):
                self._add(band[k], a, local, weights * row * local.values[a + k])
        return band

    def project(self, local: LocalPolynomials, weighted: FloatArray) -> FloatArray:
        """sum_i b_i (w y)_i over points in ascending order, shape (size,)."""
        total = np.zeros(self.size)
        for a, row in enumerate(local.values):
            self._add(total, a, local, row * weighted)
        return total

    def _add(self, total: FloatArray, a: int, local: LocalPolynomials, terms: FloatArray) -> None:
        """Add terms of the points of each piece to the piece's coefficient a."""
        begins = np.flatnonzero(np.diff(local.first, prepend=-1))
        total[local.first[begins] + a] += np.add.reduceat(terms, begins)

    def bending(self) -> FloatArray:
        """Band of the integrals of b_i'' b_j'' over the range of the breaks, shape (4, size)."""
        h = np.diff(self.breaks)
        middle = self.breaks[:-1] + 0.5 * h
        points = np.stack([middle - GAUSS * h, middle + GAUSS * h], axis=1).ravel()
        return self.gram(self.local(points, order=2), np.repeat(0.5 * h, 2))


SHORTEST = 32  # rows of a piece; more pieces would cost more to link than they save


def multiply(band: FloatArray, x: FloatArray) -> FloatArray:
    """A x for the symmetric A of which `band` is the lower form; x is (n,) or (n, m)."""
    rows = band if x.ndim == 1 else band[:, :, None]
    y: FloatArray = rows[0] * x
    for k in range(1, len(band)):
        y[k:] += rows[k, :-k] * x[:-k]
        y[:-k] += rows[k, :-k] * x[k:]
    return y


def band_of(full: FloatArray) -> FloatArray:
    """The band of a symmetric matrix (n, n), shape (4, n)."""
    return np.stack([np.pad(full.diagonal(-k), (0, k)) for k in range(DEGREE + 1)])


def inverse_band(band: FloatArray) -> FloatArray:
    """Band of the inverse of one matrix, (4, n).

    raises   np.linalg.LinAlgError if the matrix is not positive definite
    """
    result: FloatArray = inverse_bands(cholesky_banded(band, lower=True)[None])[0]
    return result


def inverse_bands(factors: FloatArray) -> FloatArray:
    """Bands of the inverses of m symmetric positive definite band matrices, (m, 4, n).

    The inverse V of a band matrix is full, but its band follows from the Cholesky factor A = L L'
    by a recursion upwards from the last row (Hutchinson & de Hoog 1985; Erisman & Tinney 1975).
    With r_ik = l_{i+k,i} / l_ii and k = 1 ... p,

        V[i, i+j] = delta_0j / l_ii^2 - sum_k r_ik V[i+k, i+j],   j = 0 ... p.

    It is sequential in i, so a long matrix is cut into pieces that go side by side. All that a
    piece needs to know of those below it is the window W of V for the p rows behind its end:
    V = V0 + X W X', where V0 comes of W = 0, and X solves x_i = -sum_k r_ik x_{i+k} from unit
    vectors behind the end. Both terms are positive semidefinite: what they lose is relative to V.
    (A matrix of few rows and next to no penalty is nearly singular; its trace with N needs the
    errors of one recursion, which fit each other. It is one piece.)

    factors  (m, 4, n), lower Cholesky factors in lower form
    """
    m, width, n = factors.shape
    p, steps = width - 1, min(n, max(SHORTEST, int(np.sqrt(n))))
    pieces = -(-n // steps)
    filled = np.zeros((m, width, pieces * steps))
    filled[:, 0] = 1.0  # behind the last row the unit matrix goes on
    for k in range(width):
        filled[:, k, : n - k] = factors[:, k, : n - k]
    rows = np.moveaxis(filled.reshape(m, width, pieces, steps), (3, 1, 2, 0), (0, 1, 2, 3))
    ratios = np.ascontiguousarray(-rows[:, 1:] / rows[:, :1])  # -r, (steps, p, pieces, m)
    bands = np.empty((steps, width, pieces, m))  # V0, then V
    window = np.zeros((p, p, pieces, m))
    for i in range(steps - 1, -1, -1):
        ratio, row = ratios[i], bands[i]
        np.add.reduce(ratio[:, None] * window, axis=0, out=row[1:])
        np.add.reduce(ratio * row[1:], axis=0, out=row[0])
        row[0] += 1.0 / rows[i, 0] ** 2
        window[1:, 1:] = window[:-1, :-1]
        window[0] = row[:-1]
        window[1:, 0] = row[1:-1]
    if pieces > 1:
        x = np.empty((steps + p, p, pieces, m))  # X, with the unit vectors behind the end
        x[steps:] = np.eye(p).reshape(p, p, 1, 1)
        for i in range(steps - 1, -1, -1):
            np.add.reduce(ratios[i][:, None] * x[i + 1 : i + 1 + p], axis=0, out=x[i])
        windows = _windows(bands[:p], x[:p])
        right = sum(windows[a] * x[:steps, a, None] for a in range(p))
        for j in range(width):
            bands[:, j] += (right * x[j : j + steps]).sum(axis=1)
    result: FloatArray = np.moveaxis(bands, (3, 1, 2, 0), (0, 1, 2, 3)).reshape(m, width, -1)
    return np.ascontiguousarray(result[:, :, :n])


def _windows(bands: FloatArray, x: FloatArray) -> FloatArray:
    """W behind each piece, (p, p, pieces, m), from the first p rows of V0 and X of each."""
    p, _, pieces, m = x.shape
    own = np.stack([[bands[min(a, b), abs(a - b)] for b in range(p)] for a in range(p)])
    windows = np.zeros((pieces, m, p, p))
    own, x = np.moveaxis(own, (2, 3), (0, 1)), np.moveaxis(x, (2, 3), (0, 1))
    for i in range(pieces - 1, 0, -1):
        windows[i - 1] = own[i] + x[i] @ windows[i] @ x[i].swapaxes(1, 2)
    return np.ascontiguousarray(np.moveaxis(windows, (0, 1), (2, 3)))


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
    scatter       sum of w_j (y_j - mean)^2 over replicates, which tells sigma^2 whatever the curve
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
    kept = ~np.isnan(values)
    t, y, known = times[kept], values[kept], known[kept]
    if y.size == 0:
        raise DataError(
            "There are no measurements to smooth: the column is empty, or all values are missing "
            "(NaN). Leave this quantity out, or give at least one value."
        )
    if not (np.isfinite(t).all() and np.isfinite(y).all()):
        raise DataError(
            "Some times or values are not finite numbers. "
            "Write missing values as NaN, and give every value a finite time."
        )
    w = np.ones(y.size)
    if sigma is not None:
        deviations = np.broadcast_to(np.asarray(sigma, float), values.shape)[kept]
        wrong = ~known & ~(np.isfinite(deviations) & (deviations > 0.0))
        if wrong.any():
            raise DataError(
                f"{int(wrong.sum())} of the standard deviations are not positive numbers (the "
                f"first is {deviations[wrong][0]}). Give each measurement a positive `sigma`, or "
                "mark values without error as exact."
            )
        w = 1.0 / np.where(known, 1.0, deviations) ** 2
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


MOST_BREAKS = 3000  # full accuracy up to here; detail finer than 1/3000 of the range is noise
NARROWEST = 1e-5  # of the range: times nearer than this share a break, for the sake of rounding
STRAIGHT = 1e-12  # of the largest value: what a line leaves is rounding


class SplineFit(NamedTuple):
    """The minimiser for one penalty.

    penalty       lambda, scaled
    coefficients  (k,), scaled values
    factor        (4, k), Cholesky factor of A = N + lambda Omega
    """

    penalty: float
    coefficients: FloatArray
    factor: FloatArray


@dataclass(frozen=True)
class Design:
    """What quantities share that were measured at the same times with the same weights.

    u, w    (m,), as in the module's text
    traces  of the smoother, for each penalty that was tried
    modes   (see `igpe.smoothing.gcv_spline`), for each order
    """

    u: FloatArray
    w: FloatArray
    basis: CubicBasis
    traces: dict[float, float] = field(default_factory=dict)
    modes: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    @cached_property
    def local(self) -> LocalPolynomials:
        """The basis functions at the data."""
        return self.basis.local(self.u)

    @cached_property
    def normal(self) -> FloatArray:
        """Band of N, (4, k)."""
        return self.basis.gram(self.local, self.w)

    @cached_property
    def bending(self) -> FloatArray:
        """Band of Omega, (4, k)."""
        return self.basis.bending()


SHARED = 4  # designs that are kept: most quantities of an experiment have one


@lru_cache(SHARED)
def _design(u: bytes, w: bytes, breaks: bytes) -> Design:
    own, weights, at = (np.frombuffer(numbers) for numbers in (u, w, breaks))
    return Design(own, weights, CubicBasis(at))


@dataclass(frozen=True)
class SmoothingProblem:
    """Scaled data of one quantity.

    design    shared by quantities with the same times and weights
    y         (m,), as in the module's text, in units of `scale`
    line      intercept and slope in u that were taken off, unit of the values
    count     number of measurements without exact ones;  exact: number of exact values
    scatter   of replicates, scaled
    """

    design: Design
    y: FloatArray
    line: tuple[float, float]
    scale: float
    count: int
    exact: int
    scatter: float

    @cached_property
    def target(self) -> FloatArray:
        """g, (k,)."""
        return self.design.basis.project(self.design.local, self.design.w * self.y)

    def fit(self, penalty: float) -> SplineFit | None:
        """The minimiser, or None if this penalty is too small to be distinguished from none."""
        # LAPACK itself: for a hundred data SciPy's checks take three times as long as the work.
        band = self.design.normal + penalty * self.design.bending
        factor, c, failed = dpbsv(band, self.target, lower=1)
        return None if failed else SplineFit(penalty, c, factor)

    def traces(self, fits: Sequence[SplineFit]) -> tuple[FloatArray, FloatArray]:
        """Trace of each fit's smoother, (len(fits),), and bands of A^-1, (len(fits), 4, k)."""
        bands = inverse_bands(np.stack([fit.factor for fit in fits]))
        products = np.einsum("mij,ij->mi", bands, self.design.normal)
        traces: FloatArray = products[:, 0] + 2.0 * products[:, 1:].sum(axis=1)
        return traces, bands

    def known_traces(self, fits: Sequence[SplineFit]) -> FloatArray:
        """Trace of each fit's smoother, (len(fits),), computed once for each penalty."""
        known = self.design.traces
        if new := [fit for fit in fits if fit.penalty not in known]:
            traces = self.traces(new)[0].tolist()
            known.update(zip((fit.penalty for fit in new), traces, strict=True))
        return np.array([known[fit.penalty] for fit in fits])

    def residuals(self, coefficients: FloatArray) -> FloatArray:
        """y - f at the data, (m,), scaled."""
        return self.y - self.design.local.combine(coefficients)

    def squares(self, fits: list[SplineFit]) -> FloatArray:
        """Weighted residual sums of squares, (len(fits),), without a pass over the data each.

        From the first fit c0 with residuals r0:  r0'W r0 - 2 d'B'W r0 + d'N d,  d = c - c0.
        """
        r0 = self.residuals(fits[0].coefficients)
        g0 = self.design.basis.project(self.design.local, self.design.w * r0)
        d = np.stack([fit.coefficients - fits[0].coefficients for fit in fits], axis=1)
        changes = (d * multiply(self.design.normal, d)).sum(axis=0) - 2.0 * g0 @ d
        sums: FloatArray = np.maximum(np.sum(self.design.w * r0**2) + changes, 0.0)
        return sums

    def gcv(self, squares: FloatArray, traces: FloatArray) -> tuple[FloatArray, BoolArray]:
        """GCV of fits with these sums of squares and traces, and which of them are admissible.

        GCV(lambda) = n RSS(lambda) / (n - tr S(lambda))^2 (Craven & Wahba 1979). RSS holds the
        scatter of replicates and n all measurements; exact values count in neither.
        """
        n, left = self.count, self.count - (traces - self.exact)
        scores = n * (squares + self.scatter) / np.maximum(left, 1e-3) ** 2
        return scores, left >= max(1.0, LEAST_LEFT * n)


def scaled_problem(data: CurveData, breaks: FloatArray | None = None) -> SmoothingProblem:
    """The problem of m >= 2 distinct times in units that make every smoother blind to units.

    breaks   ascending from 0 to 1; None: the times themselves, see the module's text
    """
    u = (data.times - data.times[0]) / np.ptp(data.times)
    w = data.weights / data.total_weight
    mean_u, mean_y = np.average(u, weights=w), np.average(data.values, weights=w)
    du = u - mean_u
    slope = float(np.sum(w * du * (data.values - mean_y)) / np.sum(w * du**2))
    intercept = float(mean_y - slope * mean_u)
    y = data.values - (intercept + slope * u)
    scale = float(np.abs(y).max())
    if scale <= STRAIGHT * float(np.abs(data.values).max()):
        y, scale = np.zeros_like(y), 1.0
    at = _breaks(u) if breaks is None else breaks
    return SmoothingProblem(
        _design(u.tobytes(), w.tobytes(), at.tobytes()),
        y / scale,
        (intercept, slope),
        scale,
        data.count,
        int(data.exact.sum()),
        data.scatter / (data.total_weight * scale**2),
    )


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
ZOOMED = np.linspace(-0.5, 0.5, 17), np.linspace(-0.0625, 0.0625, 17)  # log10 lambda to 0.01
LEAST_LEFT = 0.02  # of n: residual degrees of freedom the curve must leave, and at least one
LEVEL = 1e-9  # relative difference of GCV that is rounding; then the larger penalty is taken
NOTHING = 1e-20  # scaled GCV of data without noise


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


def choose(problem: SmoothingProblem, factor: float) -> Smoothed:
    """The fit for `factor` times the penalty of least GCV; deterministic.

    GCV may have several minima, so log10 lambda is scanned over all its sensible range and the best
    neighbourhood is scanned again, finer, twice.

    raises  ArithmeticError if no penalty can be fitted, which scaled finite data do not cause
    """
    best, at_edge, gcv = _least(problem, EXPONENTS)
    for zoomed in ZOOMED:
        best, _, gcv = _least(problem, best + zoomed)
    # So little penalty may be requested that rounding hides it.
    fit = problem.fit(factor * 10.0**best) or problem.fit(10.0**best)
    if fit is None:
        raise ArithmeticError("The penalised normal equations are not positive definite.")
    traces, bands = problem.traces([fit])
    return Smoothed(
        fit.coefficients, bands[0], float(traces[0]), gcv + NOTHING, fit.penalty, at_edge, 2.0
    )


def _least(problem: SmoothingProblem, exponents: FloatArray) -> tuple[float, bool, float]:
    """The exponent of least GCV, whether it is the smallest that was admissible, and the GCV."""
    tried = [(float(x), problem.fit(10.0**x)) for x in exponents]
    fits = [fit for _, fit in tried if fit is not None]
    if not fits:
        return float(exponents[-1]), False, np.inf
    scores, admissible = problem.gcv(problem.squares(fits), problem.known_traces(fits))
    admissible[-1] = True  # the stiffest curve is always possible
    scores = np.where(admissible, scores, np.inf)
    chosen = int(np.flatnonzero(scores <= (1.0 + LEVEL) * scores.min() + NOTHING)[-1])
    usable = [x for x, fit in tried if fit is not None]
    return usable[chosen], chosen == int(np.argmax(admissible)), float(scores[chosen])
