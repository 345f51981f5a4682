"""Single tests whether residuals look like independent normal errors.

Every test is made on standardised residuals in the order of time; `p` is the probability of
residuals at least as odd if the model and its errors are right. Those of a fit are a little too
small and too little alike, which leverages correct for in outliers, and nothing does in the others;
`igpe.numerics.statistics.lack_of_fit` combines all series at the right level.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from igpe.core.arrays import FloatArray

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
    says = "residuals keep their sign too long: the model misses a trend"
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
    whole = float(centred @ centred)
    part = np.array([centred[k:] @ centred[:-k] for k in lags]) / (whole or 1.0)
    q = float(n * (n + 2) * np.sum(part**2 / (n - lags)))
    says = "neighbouring residuals are alike: the model or the error model misses something"
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

    degrees  None if sigma is known; else each is judged by the sigma that all others tell
    returns  0 where the fit goes through the measurement: its residual is rounding
    """
    left = np.maximum(1 - leverage, 1e-12)
    inner = np.where(leverage < FOLLOWED, residual / np.sqrt(left), 0.0)
    if degrees is None:
        return np.asarray(inner)
    if degrees < 2:  # noqa: PLR2004 - nothing is left to tell sigma
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


def exact_probability(p: float) -> str:
    """A computed probability in words."""
    return f"p < {ROUNDING:g}" if p < ROUNDING else f"p = {p:.2g}"


def all_tests(residual: FloatArray) -> list[Tested]:
    """Of one measured quantity in one experiment, in the order of time; none of too few."""
    if len(residual) < FEWEST:
        return []
    return [runs_test(residual), ljung_box(residual), normality(residual)]
