"""Test whether residuals of a fit are what its errors alone would leave.

At the linearised optimum residuals are r = (I - H) e, H = U U' the projection on the columns of the
derivative. They are neither independent nor alike, so that textbook tests of few residuals miss
their level. Here each statistic is compared with its values for residuals of simulated errors e
(a Monte Carlo test: Davison & Hinkley, Bootstrap Methods and their Application (1997), section 4.2;
for smooth alternatives: Hart, Nonparametric Smoothing and Lack-of-Fit Tests (1997), chapter 5).

    r_j = sum_k c_jk q_k + rest    residuals of series j, q_k orthogonal polynomials in the order of
                                   time: their mean, their trend, slow waves
    trend       sum over quantities of d log(|r|^2 / |rest|^2): smooth parts of all series together
    series      the same for each series, against what the quantity's residuals leave beside it
    replicates  means of replicates against their scatter
    size        |r|^2 of all and of each series, and their smooth parts, where sigma is known

Each is made for several numbers of polynomials, and where sigma is unknown also for residuals
relative to the fitted values. Standardised by their simulated values, the largest of a kind counts;
the smallest probability of the kinds is compared with that of the same simulated residuals, so that
the combined probability is exact, however the statistics depend on each other.

Where sigma is unknown, errors are simulated with one error model a quantity, from constant to
proportional, each as often as it is likely by the residuals' rough part.

Single tests of residuals in the order of time follow below: `p` is the probability of residuals at
least as odd if the model and its errors are right. Those of a fit are a little too small and too
little alike, which leverages correct for in outliers, and nothing does in the others.

Errors that grow with the fitted values, where sigma is unknown, are a question of their own.

How differences of AICc are read (Burnham & Anderson, Model Selection, 2002, section 2.6).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from igpe.core.arrays import FloatArray, IntArray

CLOSE = 2.0  # models that cannot be distinguished
FAR = 10.0  # a model that has no support


def chi_squared_probability(chi2: float, degrees: int) -> float:
    """Probability of a larger chi squared if model and standard deviations are right."""
    return float(special.chdtrc(degrees, chi2)) if degrees > 0 else float("nan")


def akaike_weights(delta: FloatArray) -> FloatArray:
    """(n,) weights exp(-delta/2) that sum to 1, of differences (n,) to the least AICc."""
    weights = np.exp(-np.asarray(delta, dtype=float) / 2)
    return np.asarray(weights / weights.sum())


DRAWS = 1999
MOST_NUMBERS = 10_000_000  # simulated residuals beyond which there are fewer draws
FEWEST_DRAWS = 999  # 499 could hardly show a probability of 0.01
BLOCK = 2_000_000  # simulated residuals at a time
COUNTS = (1, 2, 4, 7)  # polynomials of a series: mean, trend, slow waves
FLOORS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 100.0)  # constant part of an error model, see _spreads
RELATIVE = 0.05  # constant part of the weights of relative residuals
LEAST_REST = 2  # degrees of freedom of a rest that something can be compared with
FEWEST_ROUGH = 4  # residuals of a series from whose differences their size is estimated
SHARED = 0.5  # of a likelihood: differences of neighbours share their errors
SAME = 1e-9  # of the largest residual: a smaller difference of replicates is rounding
TINY = float(np.finfo(float).tiny)


class FitResiduals(NamedTuple):
    """Residuals of a least-squares fit, in the order of series and time.

    value     (M,) measured - fitted, divided by sigma where it is known; last those of no
              measurement, such as priors
    image     (M, r) U above: orthonormal columns, but for rows without error that are left out
    series    (m,) m <= M: number of the series of each measurement, ascending
    quantity  (m,) number of the measured quantity, which has one error model
    time      (m,) ascending in a series
    size      (m,) |fitted|, in units of the value
    known     whether sigma is known
    """

    value: FloatArray
    image: FloatArray
    series: IntArray
    quantity: IntArray
    time: FloatArray
    size: FloatArray
    known: bool


class Evidence(NamedTuple):
    """Against the hypothesis that residuals are what the errors leave.

    p       probability of residuals at least as odd, of all tests together; at least
            1 / (draws + 1)
    kinds   kind of test -> its probability
    series  (S,) probability for each series, of tests of its smooth part
    mean    (S,) mean residual of each series, in its simulated standard deviations
    """

    p: float
    kinds: dict[str, float]
    series: FloatArray
    mean: FloatArray


def lack_of_fit(residuals: FitResiduals, seed: int = 0) -> Evidence | None:
    """Test the residuals of a fit; None if they are too few for any test."""
    parts = [_Series(residuals, s) for s in range(int(residuals.series.max()) + 1)]
    means, blocks = [], []
    for rows in _simulated(residuals, parts, seed):
        means.append(np.column_stack([rows[:, p.at].mean(axis=1) for p in parts]))
        blocks.append(list(_statistics(residuals, parts, rows)))
    largest: dict[str, FloatArray] = {}
    of_series: dict[int, FloatArray] = {}
    for pieces in zip(*blocks, strict=True):
        # cube roots are nearly normal for sums of squares (Wilson & Hilferty 1931)
        root = np.cbrt(np.concatenate([piece.values for piece in pieces]))
        odd = (root - root.mean()) / max(float(root.std()), TINY)
        kind, series = pieces[0].kind, pieces[0].series
        largest[kind] = np.maximum(largest.get(kind, odd), odd)
        of_series[series] = np.maximum(of_series.get(series, odd), odd)
    if not largest:
        return None
    p = {kind: _probabilities(values) for kind, values in largest.items()}
    combined = _probabilities(-np.min(list(p.values()), axis=0))
    nothing, mean = np.zeros(1), np.concatenate(means)  # probability 1
    return Evidence(
        float(combined[0]),
        {kind: float(values[0]) for kind, values in p.items()},
        np.array([_probabilities(of_series.get(j, nothing))[0] for j in range(len(parts))]),
        mean[0] / np.maximum(mean[1:].std(axis=0), TINY),
    )


def _simulated(residuals: FitResiduals, parts: "list[_Series]", seed: int) -> Iterator[FloatArray]:
    """Blocks (b, M) of residuals: first those of the fit, then those of simulated errors."""
    total, image = len(residuals.value), residuals.image
    left = int(np.clip(MOST_NUMBERS // total, FEWEST_DRAWS, DRAWS))
    random = np.random.default_rng(seed)
    head = residuals.value[None]
    while left:
        draws = min(left, max(BLOCK // total, 1))
        errors = random.standard_normal((draws, total))
        errors[:, : len(residuals.series)] *= _spreads(residuals, parts, draws, random)
        errors -= (errors @ image) @ image.T
        yield np.vstack([head, errors])
        head, left = head[:0], left - draws


class _Series:
    """One series: its place among the residuals, its polynomials, and its replicates.

    scatters  whether the residuals of some replicates differ
    """

    def __init__(self, residuals: FitResiduals, number: int) -> None:
        self.at = np.flatnonzero(residuals.series == number)
        self.quantity = int(residuals.quantity[self.at[0]])
        times, group = np.unique(residuals.time[self.at], return_inverse=True)
        self.count, distinct = len(self.at), len(times)
        self.first = np.flatnonzero(np.diff(group, prepend=-1))
        value = residuals.value[self.at]
        apart = np.abs(value - value[self.first][group]).max()
        self.scatters = bool(apart > SAME * np.abs(value).max())
        place = np.linspace(-1, 1, distinct)[group] if distinct > 1 else np.zeros(self.count)
        degree = max(min(distinct // 2, COUNTS[-1]), 1) - 1
        self.basis = np.linalg.qr(np.polynomial.legendre.legvander(place, degree))[0]


class _Statistic(NamedTuple):
    """Values (b, ...) of one kind of statistic, large where odd; of which series, -1: of all."""

    kind: str
    values: FloatArray
    series: int = -1


def _statistics(
    residuals: FitResiduals, parts: list[_Series], rows: FloatArray
) -> Iterator[_Statistic]:
    """All statistics of the rows (b, M): as they are and, if sigma is unknown, as shares."""
    weights = [np.ones(len(residuals.series))]
    if not residuals.known:
        weights.append(1 / _relative(residuals, RELATIVE))
    for weight in weights:
        own = [rows[:, part.at] * weight[part.at] for part in parts]
        total = [np.sum(mine**2, axis=1) for mine in own]
        # (b, k) sums of squares of the first 1 ... k polynomials' parts
        smooth = [np.cumsum((m @ p.basis) ** 2, axis=1) for m, p in zip(own, parts, strict=True)]
        counts = [[min(count, s.shape[1]) for s in smooth] for count in COUNTS]
        yield from _smooth(parts, total, smooth, counts)
        yield from _replicates(parts, own)
        if residuals.known:
            yield _Statistic("size", np.sum(rows**2, axis=1))
            for functions in counts:
                first = [s[:, k - 1] for s, k in zip(smooth, functions, strict=True)]
                yield _Statistic("size", np.sum(first, axis=0))


def _relative(residuals: FitResiduals, floor: float) -> FloatArray:
    """(m,) fitted values as shares of the quantity's largest, with a floor."""
    largest = np.zeros(int(residuals.quantity.max()) + 1)
    np.maximum.at(largest, residuals.quantity, residuals.size)
    largest_of = largest[residuals.quantity]
    share = np.divide(
        residuals.size, largest_of, out=np.ones_like(largest_of), where=largest_of > 0
    )
    return np.asarray(np.hypot(floor, share))


def _quantities(parts: list[_Series]) -> list[list[int]]:
    """Numbers of the series of each quantity."""
    of: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        of.setdefault(part.quantity, []).append(number)
    return list(of.values())


def _smooth(
    parts: list[_Series], total: list[FloatArray], smooth: list[FloatArray], counts: list[list[int]]
) -> Iterator[_Statistic]:
    """Statistics of the parts that the first polynomials explain, for all series and for each."""
    for functions in dict.fromkeys(map(tuple, counts)):
        together = []
        for numbers in _quantities(parts):
            degrees = sum(parts[j].count - functions[j] for j in numbers)
            if degrees < LEAST_REST:
                continue
            every = np.sum([total[j] for j in numbers], axis=0)
            explained = [smooth[j][:, functions[j] - 1] for j in numbers]
            rest = _at_least(every - np.sum(explained, axis=0), every)
            together.append(degrees * np.log(np.maximum(every, TINY) / rest))
            for j, mine in zip(numbers, explained, strict=True):
                yield _Statistic("series", mine / rest, j)
        if together:
            yield _Statistic("trend", np.sum(together, axis=0))


def _replicates(parts: list[_Series], own: list[FloatArray]) -> Iterator[_Statistic]:
    """Means of replicates against their scatter, of all quantities that have some."""
    several = []
    for every in _quantities(parts):
        numbers = [j for j in every if parts[j].scatters]  # copies say nothing of errors
        degrees = sum(parts[j].count - len(parts[j].first) for j in numbers)
        if degrees < LEAST_REST:
            continue
        lack, pure = np.zeros((2, len(own[0])))
        for j in numbers:
            first = parts[j].first
            sums = np.add.reduceat(own[j], first, axis=1)
            square = np.sum(sums**2 / np.diff(first, append=parts[j].count), axis=1)
            lack += square
            pure += np.sum(own[j] ** 2, axis=1) - square
        several.append(degrees * np.log1p(lack / _at_least(pure, pure + lack)))
    if several:
        yield _Statistic("replicates", np.sum(several, axis=0))


def _at_least(rest: FloatArray, total: FloatArray) -> FloatArray:
    """Differences of sums of squares, not below the rounding errors of the total."""
    return np.asarray(np.maximum(rest, np.maximum(total * np.finfo(float).eps, TINY)))


def _probabilities(values: FloatArray) -> FloatArray:
    """(b,) share of all values that are at least as large as each."""
    ordered = np.sort(values)
    return np.asarray((len(values) - np.searchsorted(ordered, values, "left")) / len(values))


def _spreads(
    residuals: FitResiduals, parts: list[_Series], draws: int, random: np.random.Generator
) -> FloatArray:
    """(draws, m) standard deviations of the errors to simulate; 1 where sigma is known.

    Otherwise sigma = s (floor^2 + share^2)^0.5 with the floor one of FLOORS, drawn by its
    likelihood for differences of neighbouring residuals, in which smooth parts vanish.
    """
    spread = np.ones((draws, len(residuals.series)))
    if residuals.known:
        return spread
    shapes = np.array([_relative(residuals, floor) for floor in FLOORS])
    for numbers in _quantities(parts):
        at = np.concatenate([parts[j].at for j in numbers])
        rough, expected = [], []
        for j in numbers:  # second differences and their expected squares; all of too few
            value, variance = residuals.value[parts[j].at], shapes[:, parts[j].at] ** 2
            if len(value) >= FEWEST_ROUGH:
                value = np.diff(value, 2)
                variance = variance[:, :-2] + 4 * variance[:, 1:-1] + variance[:, 2:]
            rough.append(value)
            expected.append(variance)
        every, of = np.concatenate(rough), np.hstack(expected)
        squares = np.mean(every**2 / of, axis=1)
        if not squares.min() > 0:
            continue
        likelihood = -np.log(of).sum(axis=1) / 2 - len(every) / 2 * np.log(squares)
        share = np.exp(SHARED * (likelihood - likelihood.max()))
        chosen = random.choice(len(FLOORS), size=draws, p=share / share.sum())
        spread[:, at] = shapes[chosen][:, at] * np.sqrt(squares[chosen])[:, None]
    return spread


FEWEST_SIZES, WIDTH = 8, 3.0  # residuals, and ratio of fitted values, that can show growing errors
GROWS, RANKED = 0.002, 0.02  # probabilities of constant errors below which errors grow
LEFT = 1e-6  # of an error's variance: what a residual keeps at least


def growing_quantities(residuals: FitResiduals, seed: int = 0) -> list[int]:
    """Numbers of the quantities whose errors grow with the fitted values.

    Judged by the likelihood ratio of proportional to constant errors, with its values for simulated
    constant ones. A single outlier may decide it. So the ranks of the residuals' sizes must follow
    the fitted values as well (Spearman).
    """
    size = _relative(residuals, RELATIVE)
    width = np.sqrt(np.maximum(1 - np.sum(residuals.image**2, axis=1), LEFT))
    places = {q: np.flatnonzero(residuals.quantity == q) for q in np.unique(residuals.quantity)}
    places = {
        int(q): at
        for q, at in places.items()
        if len(at) >= FEWEST_SIZES and size[at].max() >= WIDTH * size[at].min()
    }
    scores: dict[int, list[FloatArray]] = {q: [] for q in places}
    for rows in _simulated(residuals, [], seed) if places else ():
        for q, at in places.items():
            z = np.abs(rows[:, at]) / width[at]
            squares, relative = np.sum(z**2, axis=1), np.sum((z / size[at]) ** 2, axis=1)
            ratio = np.log(np.maximum(squares, TINY)) - np.log(np.maximum(relative, TINY))
            scores[q].append(np.stack([ratio, _ranks(z) @ _ranks(size[at])]))
    p = {q: [_probabilities(v)[0] for v in np.hstack(both)] for q, both in scores.items()}
    return [q for q, (ratio, rank) in p.items() if ratio < GROWS and rank < RANKED]


def _ranks(values: FloatArray) -> FloatArray:
    """Ranks along the last axis."""
    return np.argsort(np.argsort(values, axis=-1), axis=-1).astype(float)


FEWEST = 8  # residuals, for a test of their order or distribution to mean something
LAGS = 5  # of the autocorrelation, at most a fifth of the residuals
ODD = 0.05  # a test below it is odd
CLEAR = 0.01  # below it, divided by the number of tests, it fails clearly
FOLLOWED = 0.999  # leverage of a measurement that the fit goes through, whatever it is
ROUNDING = 1e-15  # probabilities below it are not computed exactly
EXACT = 300  # residuals up to which runs are counted exactly


class Tested(NamedTuple):
    """One test: its name, statistic, probability, and the words for a failure."""

    test: str
    statistic: float
    p: float
    says: str


def runs_test(residual: FloatArray) -> Tested:
    """Wald and Wolfowitz: runs of equal sign; too few mean a trend. One-sided."""
    signs = residual[residual != 0] > 0
    n, plus = len(signs), int(signs.sum())
    runs = 1 + int(np.sum(signs[1:] != signs[:-1])) if n else 0
    says = "residuals have too few sign changes: the model misses a trend"
    if plus in (0, n):
        p = 0.5 ** (n - 1) if n else 1.0
    elif n <= EXACT:
        p = float(sum(_runs(r, plus, n - plus) for r in range(2, runs + 1)))
    else:
        mean = 1 + 2 * plus * (n - plus) / n
        spread = np.sqrt((mean - 1) * (mean - 2) / (n - 1))
        p = float(special.ndtr((runs + 0.5 - mean) / spread))
    return Tested("runs", float(runs), min(p, 1.0), says)


def _runs(runs: int, plus: int, minus: int) -> float:
    """Probability of so many runs of so many signs in random order."""
    half, odd = divmod(runs, 2)
    a = special.binom(plus - 1, half - 1) * special.binom(minus - 1, half - 1) * 2
    if odd:
        a = special.binom(plus - 1, half) * special.binom(minus - 1, half - 1)
        a += special.binom(plus - 1, half - 1) * special.binom(minus - 1, half)
    return float(a / special.binom(plus + minus, plus))


def ljung_box(residual: FloatArray) -> Tested:
    """Autocorrelation of neighbours in time (Ljung & Box 1978)."""
    n, centred = len(residual), residual - residual.mean()
    lags = np.arange(1, max(1, min(LAGS, n // 5)) + 1)
    total = float(centred @ centred)
    part = np.array([centred[k:] @ centred[:-k] for k in lags]) / (total or 1.0)
    q = float(n * (n + 2) * np.sum(part**2 / (n - lags)))
    says = "neighbouring residuals are correlated: the model or the error model is incomplete"
    return Tested("autocorrelation", q, float(special.chdtrc(len(lags), q)), says)


def normality(residual: FloatArray) -> Tested:
    """Shapiro and Wilk's test, by Royston's approximation for 6 to 5000 values (AS R94, 1995).

    `scipy.stats` has it as well, but takes longer to import than an estimate takes.
    """
    says = "residuals are not normally distributed: outliers, or a wrong error model"
    some = np.sort(residual[:5000])
    spread, n = np.ptp(some), len(some)
    if spread == 0:
        return Tested("normality", 1.0, 1.0, says)
    normal = special.ndtri((np.arange(1, n + 1) - 0.375) / (n + 0.25))  # expected order statistics
    weights = normal / np.linalg.norm(normal)
    ends = np.array([np.polyval(c, n**-0.5) for c in _ENDS]) + weights[[-1, -2]]
    inner = normal[2:-2] @ normal[2:-2] / (1 - 2 * ends @ ends)
    weights = np.concatenate([-ends, normal[2:-2] / np.sqrt(inner), ends[::-1]])
    centred = (some - some.mean()) / spread
    length = np.linalg.norm(centred) * np.linalg.norm(weights)
    along = weights @ centred
    short = max(float((length - along) * (length + along) / length**2), 1e-19)  # 1 - W
    return Tested("normality", 1 - short, float(special.ndtr(-_royston(np.log(short), n))), says)


_ENDS = (
    (-2.706056, 4.434685, -2.071190, -0.147981, 0.221157, 0.0),
    (-3.582633, 5.682633, -1.752461, -0.293762, 0.042981, 0.0),
)
"""Corrections of the last and the last but one weight: polynomials in n^-0.5."""


def _royston(log_short: float, n: int) -> float:
    """log(1 - W) of n values, transformed to standard normal."""
    if n > 11:  # noqa: PLR2004 - Royston's bound between his two fits
        mean = np.polyval([0.0038915, -0.083751, -0.31082, -1.5861], np.log(n))
        spread = np.exp(np.polyval([0.0030302, -0.082676, -0.4803], np.log(n)))
        return float((log_short - mean) / spread)
    most = 0.459 * n - 2.273
    mean = np.polyval([-0.0006714, 0.025054, -0.39978, 0.5440], n)
    spread = np.exp(np.polyval([-0.0020322, 0.062767, -0.77857, 1.3822], n))
    if log_short >= most:
        return float("inf")
    return float((-np.log(most - log_short) - mean) / spread)


def studentised(residual: FloatArray, leverage: FloatArray, degrees: int | None) -> FloatArray:
    """(m,) residuals in units of their own standard deviation, sigma (1 - h)^0.5.

    degrees  None if sigma is known; else sigma is estimated from all other residuals
    returns  0 where the fit goes through the measurement: its residual is rounding
    """
    left = np.maximum(1 - leverage, 1e-12)
    inner = np.where(leverage < FOLLOWED, residual / np.sqrt(left), 0.0)
    if degrees is None:
        return np.asarray(inner)
    if degrees < 2:  # noqa: PLR2004 - no residual is left to estimate sigma from
        return np.full(len(residual), np.nan)
    rest = (float(residual @ residual) - inner**2) / (degrees - 1)
    return np.asarray(inner / np.sqrt(np.maximum(rest, 1e-300)))


def outlier_p(student: FloatArray, degrees: int | None) -> FloatArray:
    """(m,) probability of a residual so large among so many (Bonferroni)."""
    if degrees is None:
        single = 2 * special.ndtr(-np.abs(student))
    else:
        single = 2 * special.stdtr(max(degrees - 1, 1), -np.abs(student))
    return np.asarray(np.minimum(len(student) * single, 1.0))


def exact_probability(p: float, digits: int = 2) -> str:
    """A computed probability in words."""
    return f"p < {ROUNDING:g}" if p < ROUNDING else f"p = {p:.{digits}g}"


def all_tests(residual: FloatArray, time: FloatArray | None = None) -> list[Tested]:
    """Tests of one measured quantity in one experiment, in order of time; none for few residuals.

    time  of each; None: all differ. Replicates at few times have no order to be tested.
    """
    if len(residual) < FEWEST:
        return []
    is_course = time is None or len(np.unique(time)) >= FEWEST
    ordered = [runs_test(residual), ljung_box(residual)] if is_course else []
    return [*ordered, normality(residual)]
