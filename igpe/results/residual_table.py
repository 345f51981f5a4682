"""The tests of a fit's residuals as a table, with a sentence each.

Verdict on a fit: whether its residuals are what measurement errors alone would leave.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.numerics.statistics.covariance import chi_squared_probability
from igpe.numerics.statistics.lack_of_fit import (
    CLEAR,
    ODD,
    Tested,
    all_tests,
    exact_probability,
    outlier_p,
    studentised,
)

ROUNDING = 1e-6  # of the largest measurement: residuals below it are no measurement errors
COLUMNS = ["experiment", "name", "test", "statistic", "p", "verdict"]


def residual_table(points: pd.DataFrame, objective: float, degrees: int) -> pd.DataFrame:
    """One row for each test of each measured quantity, and the chi-squared test of all.

    points   columns experiment, name, time, residual, sigma, and leverage if it is known
    returns  columns experiment, name, test, statistic, p, verdict (a sentence)
    """
    standard, known = standardised(points), sigma_known(points)
    odd = _studentised(points, degrees)
    tests: list[tuple[str, str, Tested]] = []
    if known and degrees > 0:
        tests.append(("", "", _chi_squared(objective, degrees)))
    for (experiment, name), rows in points.groupby(["experiment", "name"], sort=False):
        at = points.index.get_indexer(rows.index)
        if _exact(rows):
            continue
        order = at[np.argsort(rows["time"].to_numpy(), kind="stable")]
        where = str(experiment), str(name)
        tests += [(*where, t) for t in all_tests(standard[order])]
        if np.isfinite(odd[at]).all():
            tests.append((*where, _outliers(rows, odd[at], None if known else degrees)))
    rows_of = [
        dict(zip(COLUMNS, (e, n, t.test, t.statistic, t.p, _verdict(t, len(tests))), strict=True))
        for e, n, t in tests
    ]
    return pd.DataFrame(rows_of, columns=COLUMNS)


def _exact(rows: pd.DataFrame) -> bool:
    """Whether the residuals of a quantity are rounding, which has a pattern of its own."""
    largest = float(rows["measured"].abs().max())
    return bool(rows["residual"].abs().max() <= ROUNDING * largest)


def outliers(points: pd.DataFrame, degrees: int) -> pd.DataFrame:
    """The measurements whose residual is too large among all, the worst first.

    returns  rows of `points` with p < 0.05, and `studentised` and `p` (Bonferroni over all)
    """
    odd = _studentised(points, degrees)
    p = outlier_p(odd, None if sigma_known(points) else degrees)
    table = points.assign(studentised=odd, p=p)
    largest = points.groupby(["experiment", "name"])["measured"].transform(lambda m: m.abs().max())
    real = points["residual"].abs() > ROUNDING * largest
    return table[(p < ODD) & real].sort_values("p")


def clear_failures(table: pd.DataFrame) -> list[str]:
    """Sentences on outliers and distributions, where they fail beyond the chance of so many tests.

    Patterns over time and chi squared are left to the verdict on the whole fit.
    """
    level = CLEAR / max(len(table), 1)
    several = table["experiment"].nunique() > 1 + ("chi squared" in set(table["test"]))
    return [
        f"{_where(row, several)}{row['verdict']}"
        for _, row in table.iterrows()
        if row["p"] < level and row["test"] in {"outlier", "normality"}
    ]


def standardised(points: pd.DataFrame) -> FloatArray:
    """(m,) residuals over their standard deviations (1 where unknown)."""
    sigma = points["sigma"].fillna(1.0).to_numpy(dtype=float)
    return np.asarray(points["residual"].to_numpy(dtype=float) / sigma)


class StandardResiduals(NamedTuple):
    """Residuals in standard deviations, as far as these are known or estimated.

    values    (m,)
    standard  whether they are; False if they are in the measurements' units
    """

    values: FloatArray
    standard: bool


def standard_residuals(points: pd.DataFrame, variance: float) -> StandardResiduals:
    """Residuals over their standard deviations.

    variance  estimated, of a residual of weight 1 (see `Result.variance`); counts where not every
              measurement has its own standard deviation
    """
    values = standardised(points)
    if sigma_known(points):
        return StandardResiduals(values, standard=True)
    if not (np.isfinite(variance) and variance > 0):
        return StandardResiduals(values, standard=False)
    return StandardResiduals(values / np.sqrt(variance), standard=True)


def sigma_known(points: pd.DataFrame) -> bool:
    """Whether every measurement has its standard deviation."""
    return bool(points["sigma"].notna().all())


def _studentised(points: pd.DataFrame, degrees: int) -> FloatArray:
    leverage = points["leverage"].fillna(0.0) if "leverage" in points else 0.0 * points["residual"]
    known = sigma_known(points)
    return studentised(
        standardised(points), leverage.to_numpy(dtype=float), None if known else degrees
    )


def _chi_squared(objective: float, degrees: int) -> Tested:
    larger = chi_squared_probability(objective, degrees)
    if larger > 0.5:  # noqa: PLR2004 - the other tail
        says = "residuals are smaller than their standard deviations: these are too large"
        return Tested("chi squared", objective, 2 * (1 - larger), says)
    says = "residuals are larger than their standard deviations: a wrong model or too small sigma"
    return Tested("chi squared", objective, 2 * larger, says)


def _outliers(rows: pd.DataFrame, odd: FloatArray, degrees: int | None) -> Tested:
    worst = int(np.argmax(np.abs(odd)))
    p = outlier_p(odd, degrees)[worst]
    time = rows["time"].iloc[worst]
    says = (
        f"the measurement at {time:g} is {abs(odd[worst]):.2g} standard deviations off: an outlier"
    )
    return Tested("outlier", float(odd[worst]), float(p), says)


def _verdict(one: Tested, count: int) -> str:
    if one.p >= ODD:
        return "Nothing odd."
    weight = "" if one.p < CLEAR / count else f" (one of {count} tests; `adequacy` combines them)"
    return f"{one.says[0].upper()}{one.says[1:]} ({exact_probability(one.p)}){weight}."


def _where(row: Any, several: bool) -> str:
    return f"{row['name']} in experiment {row['experiment']}: " if several else f"{row['name']}: "


ADEQUATE, LACK, UNJUDGED = "adequate", "lack of fit", "cannot be judged"
ALARM = 0.01  # probability below which the verdict is lack of fit
DOUBTFUL = 0.05  # probability below which a fit is not called adequate without reserve
SHOWN = 0.01  # smaller probabilities are simulated too coarsely to be shown


@dataclass(frozen=True)
class Adequacy:
    """Whether the model fits its measurements, by all tests of the residuals together.

    verdict  "adequate": no lack of fit was detected; "lack of fit": p < 0.01; "cannot be judged"
    p        probability of residuals at least as odd if the model is right and errors are normal
             and independent, of all tests combined; NaN if nothing was tested. Simulated: below
             0.01 it is an upper bound
    reasons  sentences: which residuals are odd and how, or why nothing can be judged
    tests    kind of test -> its own probability: "trend" (all series together), "series" (the
             oddest one), "replicates" (their means against their scatter), "size" (chi squared and
             smooth parts, where sigma is known)
    """

    verdict: str
    p: float = math.nan
    reasons: tuple[str, ...] = ()
    tests: Mapping[str, float] = field(default_factory=dict)

    @property
    def lacks(self) -> bool:
        """Whether the verdict is lack of fit."""
        return self.verdict == LACK

    @property
    def sentence(self) -> str:
        """The verdict, its probability and its reasons."""
        clear = "no clear lack" if self.p < DOUBTFUL else "no lack"
        said = {
            ADEQUATE: f"Fit adequate: {clear} of fit was detected",
            LACK: "LACK OF FIT: the residuals are not measurement errors alone",
            UNJUDGED: "Whether the model fits cannot be judged",
        }[self.verdict]
        return " ".join([f"{said}{_bracketed(self.p)}.", *self.reasons])


def probability(p: float) -> str:
    """A simulated probability in words."""
    return f"p < {SHOWN:g}" if p < SHOWN else f"p = {p:.2g}"


def _bracketed(p: float) -> str:
    return "" if math.isnan(p) else f" ({probability(p)})"
