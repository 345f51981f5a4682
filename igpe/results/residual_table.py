"""Tests of a fit's residuals as a table, with a sentence each, and the verdict on a fit.

The verdict says whether the residuals are what measurement errors alone would leave. Spectra have a
part of their own: the pure spectra of a fit, with errors, and the residuals of measured spectra.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arrays import BoolArray, FloatArray, IntArray, typical
from igpe.core.markup import in_words, listed
from igpe.numerics.lack_of_fit import (
    CLEAR,
    ODD,
    Tested,
    all_tests,
    chi_squared_probability,
    exact_probability,
    outlier_p,
    studentised,
)

ROUNDING = 1e-6  # of the largest measurement: residuals below it are no measurement errors
CUT_OFF = 3.0  # standard deviations above a limit, from where 0.1 % of values are below it
MISSED = 2.0  # median residual, in standard deviations, of a series that the model misses
ALONE = 20.0  # times this median: so large a residual stands alone, and has pulled the others
SERIES = 5  # measurements that show it; from so many of a quantity igpe estimates sigma
TWO_DIGITS = 100  # below it, two digits need no power of ten
FOLLOWED = 0.75  # leverage from where a residual has less than half of the measurement's error
CHI_SQUARED = "chi squared, two-sided"
COLUMNS = ["experiment", "name", "test", "statistic", "p", "verdict"]


def residual_table(
    points: pd.DataFrame, squares: float, degrees: int, *, robust: bool = False
) -> pd.DataFrame:
    """One row for each test of each measured quantity, and the chi-squared test of all.

    points   columns experiment, name, time, residual, sigma, and leverage if it is known
    squares  weighted sum of squares; nan where the objective is no such sum
    robust   as in `outliers`
    returns  columns experiment, name, test, statistic, p, verdict (a sentence)
    """
    standard, known = standardised(points), sigma_known(points)
    odd, left = _oddness(points, degrees, robust=robust)
    tests: list[tuple[str, str, Tested]] = []
    if known and degrees > 0 and math.isfinite(squares):
        tests.append(("", "", _chi_squared(squares, degrees)))
    series = list(points.groupby(["experiment", "name"], sort=False))
    places = [points.index.get_indexer(rows.index) for _, rows in series]
    judged = [at for at in places if np.isfinite(odd[at]).all()]
    missed = max((np.abs(odd[at]).max() for at in judged if _is_missed(odd, at)), default=-1.0)
    for at, ((experiment, name), rows) in zip(places, series, strict=True):
        where = str(experiment), str(name)
        if rows["residual"].abs().max() <= ROUNDING * rows["measured"].abs().max():
            continue  # rounding has a pattern of its own
        order = at[np.argsort(rows["time"].to_numpy(), kind="stable")]
        time = points["time"].to_numpy(dtype=float)[order]
        tests += [(*where, t) for t in all_tests(standard[order], time)]
        worst = int(np.argmax(np.abs(odd[at])))
        if missed < abs(odd[at][worst]) < np.inf:  # what is farther off elsewhere may be its cause
            p = float(outlier_p(odd[at], left)[worst])
            says = f"{_off(rows.iloc[worst], float(odd[at][worst]))}{OUTLIER}"
            tests.append((*where, Tested("outlier", float(odd[at][worst]), p, says)))
    rows_of = [(e, n, t.test, t.statistic, t.p, _verdict(t, len(tests))) for e, n, t in tests]
    return pd.DataFrame(rows_of, columns=COLUMNS)


def _is_missed(odd: FloatArray, at: IntArray) -> bool:
    """Whether the model misses the series as a whole: no single measurement is to blame then.

    odd, at  studentised residuals of all measurements, and places of those of the series. Few
             measurements show it only together with all others
    """
    these = np.abs(odd[at] if len(at) >= SERIES else odd[np.isfinite(odd)])
    middle = np.median(these)
    return bool(middle > MISSED and np.max(np.abs(odd[at])) < ALONE * middle)


def _off(point: pd.Series, odd: float) -> str:
    """How far a point is off; `odd` residuals in their own standard deviations.

    Where the fit follows a measurement, its residual is much less uncertain than itself.
    """
    size = f"{abs(odd):.2g}" if abs(odd) < TWO_DIGITS else f"{abs(odd):.0f}"
    leverage = point.get("leverage", 0.0)
    if leverage > FOLLOWED:
        return (
            f"the residual at time {point['time']:g} is {size} times its own standard "
            f"deviation, which is small because the fit follows this measurement (leverage "
            f"{leverage:.2g})"
        )
    return f"the measurement at time {point['time']:g} is off by {size} standard deviations"


def outliers(points: pd.DataFrame, degrees: int, *, robust: bool = False) -> pd.DataFrame:
    """Rows of `points` whose residual is too large among all (Bonferroni), the worst first.

    robust  whether the loss was a robust one: what its large residuals are does not count in how
            large a residual is, where standard deviations are unknown
    """
    odd, left = _oddness(points, degrees, robust=robust)
    p = outlier_p(odd, left)
    table = points.assign(studentised=odd, p=p)
    largest = points.groupby(["experiment", "name"])["measured"].transform(lambda m: m.abs().max())
    real = points["residual"].abs() > ROUNDING * largest
    return table[(p < ODD) & real].sort_values("p")


def above_limits(points: pd.DataFrame) -> pd.DataFrame:
    """The points whose residuals are normal: errors nearer to a limit of detection are cut off.

    What is predicted decides, not what was measured, so that the choice leaves residuals as they
    are.
    """
    if "limit" not in points:
        return points
    near = points["fitted"] < points["limit"] + CUT_OFF * points["sigma"]
    return points[~near]


def clear_failures(table: pd.DataFrame, growing: Sequence[str] = ()) -> list[str]:
    """Sentences on outliers and distributions that fail beyond the chance of so many tests.

    growing  quantities whose large residuals have another cause
    """
    several = table["experiment"].nunique() > 1 + (CHI_SQUARED in set(table["test"]))
    failures = table[
        (table["p"] < CLEAR / max(len(table), 1))
        & table["test"].isin(["outlier", "normality"])
        & ~table["name"].isin(growing)
    ]
    where = failures["name"] + (" in experiment " + failures["experiment"] if several else "")
    return list(where + ": " + failures["verdict"])


def standardised(points: pd.DataFrame) -> FloatArray:
    """(m,) residuals over their standard deviations, relative ones where unknown.

    Those of correlated errors are whitened, for tests take them as independent.
    """
    if "whitened" in points:
        plain = points["residual"] / divisors(points)  # of experiments with independent errors
        return points["whitened"].fillna(plain).to_numpy(dtype=float)
    return np.asarray(points["residual"].to_numpy(dtype=float) / divisors(points))


def divisors(points: pd.DataFrame) -> FloatArray:
    """(m,) what residuals were divided by: standard deviations, relative ones where unknown."""
    relative = points.get("relative_sigma", 1.0)
    return points["sigma"].fillna(relative).fillna(1.0).to_numpy(dtype=float)


def standard_residuals(points: pd.DataFrame, variance: float) -> tuple[FloatArray, bool]:
    """(m,) residuals over their standard deviations, as far as these are known or estimated.

    variance  estimated, of a residual of weight 1 (see `Result.variance`); counts where not every
              measurement has its own standard deviation
    returns   them; and whether they are in standard deviations, not in the measurements' units
    """
    values = standardised(points)
    if not sigma_known(points) and np.isfinite(variance) and variance > 0:
        return values / np.sqrt(variance), True
    return values, sigma_known(points)


def sigma_known(points: pd.DataFrame) -> bool:
    """Return True if every measurement has a standard deviation."""
    return bool(points["sigma"].notna().all())


def sigma_given(points: pd.DataFrame) -> bool:
    """Return True if every measurement has a standard deviation, and not all were estimated.

    Those that maximise the likelihood fit the residuals: their size says nothing.
    """
    is_fitted = "sigma_estimated" in points and bool((points["sigma_estimated"] == 1).all())
    return sigma_known(points) and not is_fitted


def within_noise(points: pd.DataFrame) -> list[str]:
    """Quantities whose measured values vary no more than their given errors make a constant vary.

    A model can explain nothing of that.
    """
    if not sigma_given(points):
        return []
    weight, names = 1.0 / divisors(points) ** 2, []
    for name, rows in points.assign(weight=weight).groupby("name", sort=False):
        y, w = rows["measured"], rows["weight"]
        mean = (w * y).sum() / w.sum() if 0 < w.sum() < math.inf else math.nan
        scatter = float((w * (y - mean) ** 2).sum(skipna=False))
        if chi_squared_probability(scatter, len(rows) - 1) >= DOUBTFUL:
            names.append(str(name))
    return names


def _oddness(points: pd.DataFrame, degrees: int, *, robust: bool) -> tuple[FloatArray, int | None]:
    """(m,) residuals in their own standard deviations, and the freedom of these; None: known."""
    values, left = standardised(points), None if sigma_given(points) else degrees
    size = typical(values) if len(values) else 0.0
    if robust and left is not None and size > 0:
        values, left = values / size, None
    leverage = points["leverage"].fillna(0.0) if "leverage" in points else 0.0 * points["residual"]
    odd = studentised(values, leverage.to_numpy(dtype=float), left)
    return np.where(has_assumed_sigma(points), np.nan, odd), left


def has_assumed_sigma(points: pd.DataFrame) -> BoolArray:
    """(m,) measurements whose standard deviation igpe assumed, as their quantity has too few.

    How far they are off in such standard deviations says nothing about them.
    """
    if "relative_sigma" not in points:
        return np.zeros(len(points), dtype=bool)
    count = points.groupby("name")["name"].transform("size")
    return np.asarray((count < SERIES) & points["relative_sigma"].notna(), dtype=bool)


def oversized(points: pd.DataFrame) -> Iterator[str]:
    """That standard deviations were given that are far larger than the residuals.

    points  with leverages: what the unknowns take up of a quantity leaves it small residuals
    """
    if not sigma_given(points) or "whitened" in points:
        return
    quantities = []
    for name, own in points.assign(value=standardised(points)).groupby("name", sort=False):
        expected, squares = float((1 - own["leverage"]).sum()), float((own["value"] ** 2).sum())
        has_errors = own["residual"].abs().max() > EXACT * own["measured"].abs().max()
        if has_errors and expected >= 1 and special.chdtr(expected, squares) < BY_CHANCE:
            factor = float(np.sqrt(expected / squares))
            if factor > OVERSIZED:
                quantities.append(f"{name} (about {float(f'{factor:.2g}'):g} times)")
    if quantities:
        yield (
            f"{TOO_LARGE_SIGMA} than the residuals of {in_words(quantities)}. Check sigma and its "
            "unit: sigma decides how much a quantity counts and how wide the intervals are."
        )


def _chi_squared(objective: float, degrees: int) -> Tested:
    larger = chi_squared_probability(objective, degrees)
    says = (
        "residuals are larger than the standard deviations: the model is wrong, or sigma is "
        "too small"
    )
    if larger > 0.5:  # noqa: PLR2004 - the other tail
        says = "residuals are smaller than the standard deviations: sigma is too large"
    return Tested(CHI_SQUARED, objective, 2 * min(larger, 1 - larger), says)


def _verdict(one: Tested, count: int) -> str:
    if one.p >= ODD:
        return "Nothing unusual."
    together = f" (one of {count} tests; `adequacy` judges all of them together)"
    weight = "" if one.p < CLEAR / count else together
    return f"{one.says[0].upper()}{one.says[1:]} ({exact_probability(one.p)}){weight}."


ADEQUATE, LACK, UNJUDGED = "adequate", "lack of fit", "cannot be judged"
NOT_INTEGRATED = "The model could not be integrated at the estimate."
OUTLIER = ": an outlier"  # how a sentence on one ends
CORRELATED = ", or errors of neighbouring measurements are correlated"
OFTEN = 10  # changes of sign from which correlated errors may look like a trend
TOO_LARGE_SIGMA = "The given standard deviations are far larger"
OVERSIZED, BY_CHANCE = 2.0, 1e-6  # factor and probability from which they are
EXACT = 1e-5  # of the largest measurement: smaller residuals are those of data without errors
ALARM = 0.01  # probability below which the verdict is lack of fit
DOUBTFUL = 0.05  # probability below which a fit is not called adequate without reserve
SHOWN = 0.01  # smaller probabilities are simulated too coarsely to be shown


@dataclass(frozen=True)
class Adequacy:
    """Verdict on the fit of the model, from all tests of the residuals together.

    verdict  "adequate": no lack of fit was detected; "lack of fit": p < 0.01; "cannot be judged"
    p        combined p-value of all tests: probability of residuals at least as unusual if the
             model is right and the errors are normal and independent; NaN if nothing was tested. It
             is simulated: a value below 0.01 is an upper bound
    reasons  sentences: which residuals are unusual and in what way, or why the fit cannot be judged
    tests    a dict {kind of test: its p-value}: "trend" (all series together), "series" (the most
             unusual series), "replicates" (their means compared with their scatter), "size" (chi
             squared and smooth parts, if sigma is known)
    growing  names of quantities without sigma whose residuals grow with the fitted values
    """

    verdict: str
    p: float = math.nan
    reasons: tuple[str, ...] = ()
    tests: Mapping[str, float] = field(default_factory=dict)
    growing: tuple[str, ...] = ()

    @property
    def lacks(self) -> bool:
        """Return True if the verdict is lack of fit."""
        return self.verdict == LACK

    @property
    def sentence(self) -> str:
        """The verdict, its p-value and its reasons."""
        clear = "no clear lack" if self.p < DOUBTFUL else "no lack"
        verdict = {
            ADEQUATE: f"Fit adequate: {clear} of fit was detected",
            LACK: "Lack of fit: measurement errors alone do not explain the residuals",
            UNJUDGED: "The fit cannot be judged",
        }[self.verdict]
        bracket = "" if math.isnan(self.p) else f" ({probability(self.p)})"
        return " ".join([f"{verdict}{bracket}.", *self.reasons])


def grow(names: Sequence[str]) -> str:
    """That the residuals of quantities without sigma grow with their values."""
    one = names[0]
    its = "their" if len(names) > 1 else "its"
    return (
        f"Residuals of {in_words(names)} grow with {its} values, but without sigma all errors "
        "count as equally large. Intervals may be too short. Write sigma={'"
        f"{one}': igpe.Noise(absolute=..., relative=...)}}, or igpe.losses.LogNormal(...)."
    )


def probability(p: float) -> str:
    """A simulated probability in words."""
    return f"p < {SHOWN:g}" if p < SHOWN else f"p = {p:.2g}"


@dataclass(frozen=True)
class SpectralFit:
    """Fit of the spectra of one or several experiments that share the pure spectra of their
    species.

    experiments   names
    species       names of the species, followed by "constant i" for unwanted constant contributions
    wavelengths   (m,)
    values        (n, m) pure spectra, absorbance per unit of the species' amount
    errors        (n, m) standard errors of the pure spectra, including the effect of the estimated
                  parameters; NaN where a spectrum is known or fixed at 0, infinite where the
                  amounts do not determine it
    times         (N,) times of all experiments, one experiment after the other
    owner         (N,) number of the experiment in `experiments`
    residuals     (N, m) measured minus fitted values, in the unit of the measurements
    unwanted      (N, v) amounts of unwanted contributions that vary in time
    lack_of_fit   percent: 100 |residuals| / |measured|
    noise         standard deviation of the instrument, estimated from the residuals outside the
                  space of the pure spectra; in units of the standard deviations used in the fit
    deviations    (n,) standard deviation of the species' amounts about the model, beyond what the
                  instrument explains
    probability   probability of residuals at least as large within the space of the pure spectra if
                  the noise of the instrument is the only error
    is_scattered  whether `probability` is so small that the standard errors were computed from the
                  scatter
    rank          number of contributions above the noise
    lost          names of spectra that are not determined because the amounts are linearly
                  dependent
    cost          contribution of the spectra to the objective
    eliminated    number of eliminated linear unknowns that are determined
    squares       sum of squared residuals of each experiment: in units of the given sigma, or
                  otherwise in the unit of the measurements
    """

    experiments: tuple[str, ...]
    species: tuple[str, ...]
    wavelengths: FloatArray
    values: FloatArray
    errors: FloatArray
    times: FloatArray
    owner: FloatArray
    residuals: FloatArray = field(repr=False)
    unwanted: FloatArray = field(repr=False)
    lack_of_fit: float
    noise: float
    deviations: FloatArray
    probability: float
    is_scattered: bool
    rank: int
    lost: tuple[str, ...] = ()
    cost: float = float("nan")
    eliminated: int = 0
    squares: tuple[float, ...] = ()

    @property
    def measured(self) -> float:
        """Square root of the sum of squares of the measured values."""
        return float(np.linalg.norm(self.residuals)) / max(self.lack_of_fit / 100, 1e-300)

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood, maximised over the size of each experiment's errors (relative to a given
        sigma)."""
        size = np.bincount(self.owner.astype(int)) * len(self.wavelengths)
        variance = np.maximum(self.squares, 1e-300) / size
        return float(-0.5 * (size * (np.log(2 * np.pi * variance) + 1)).sum())

    def to_frame(self) -> pd.DataFrame:
        """Pure spectra by wavelength: columns (species, value) and (species, standard_error)."""
        names = pd.MultiIndex.from_product([self.species, ["value", "standard_error"]])
        both = np.stack([self.values, self.errors], axis=1).reshape(-1, len(self.wavelengths))
        index = pd.Index(self.wavelengths, name="wavelength")
        return pd.DataFrame(both.T, index=index, columns=names)

    def variances(self) -> pd.Series:
        """Standard deviations of the instrument (relative to sigma) and of each species."""
        names = ["instrument", *self.species[: len(self.deviations)]]
        return pd.Series([self.noise, *self.deviations], index=names, name="standard_deviation")

    def residual_frame(self, experiment: str | None = None) -> pd.DataFrame:
        """Residuals of one experiment (by default the first): a table of times by wavelengths."""
        number = 0 if experiment is None else self.experiments.index(experiment)
        rows = self.owner == number
        index = pd.Index(self.times[rows], name="time")
        columns = pd.Index(self.wavelengths, name="wavelength")
        return pd.DataFrame(self.residuals[rows], index=index, columns=columns)

    def __str__(self) -> str:
        lines = [
            f"Spectra of {', '.join(self.species)} at {len(self.wavelengths)} wavelengths and "
            f"{len(self.times)} times of {', '.join(self.experiments)}: lack of fit "
            f"{self.lack_of_fit:.3g} %, {self.rank} contributions above the noise."
        ]
        if self.lost:
            lines.append(
                f"The amounts of {listed(self.lost)} are linearly dependent at all times, so only "
                "combinations of their pure spectra are determined. A known spectrum (pure={...}) "
                "or an experiment with other start values would determine the spectra themselves."
            )
        if self.is_scattered:
            each = zip(self.species, self.deviations, strict=False)
            lines.append(
                "Residuals within the space of the pure spectra are larger than the "
                f"instrument noise alone explains ({exact_probability(self.probability, 1)}). "
                "Either the amounts scatter around the model with the standard deviations "
                f"{', '.join(f'{n} {d:.2g}' for n, d in each)}, or the errors are correlated. "
                "The standard errors are computed from these residuals."
            )
        return "\n".join(lines)
