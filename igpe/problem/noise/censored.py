"""Values below a limit of detection, which are known only to be below it.

With z = (limit - h) / s the value is below its limit with the probability Phi(z). Its residual

    r = sqrt(-2 log Phi(z)),        dr/dh = m / (r s),        m = phi(z) / Phi(z),

has -2 log Phi(z) as its square, so that searches minimise a sum of squares. Half the second
derivative of that square is m (m + z) / s^2, the observed information; (dr/dh)^2 is less, by up to
one half. m by the scaled complementary error function is exact for any z.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from scipy.special import erfcx, log_ndtr, ndtri_exp

from igpe.core.arguments import Checked, Positive, Rule, is_finite
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import DataError

FINITE_OR_NONE = Rule(lambda v: v is None or is_finite(v), "a finite number, or None")
BELOW = "<"


@dataclass(frozen=True)
class Censored(Checked):
    """Normal errors of a quantity that has a limit of detection (left-censored measurements).

    A value below its limit adds -2 log Phi((limit - h) / deviation) to the objective. Here h is the
    prediction of the model, and Phi(...) is the probability of a value below the limit. Any other
    value adds its squared residual (Tobin, Econometrica 26 (1958), 24). Values below a limit have
    no residual, so `result.points`, plots, smoothed data and step 3 omit them.

    deviation  standard deviation of the measurements, in the unit of the column
    below      the limit of detection, in the same unit. Values that do not exceed the limit count
               as below it. A cell of the table such as "<0.05" sets the limit for this measurement,
               whether or not `below` is given
    raises     ProblemError unless the deviation is positive and the limit, if given, is finite
    """

    deviation: Positive
    below: Annotated[float | None, FINITE_OR_NONE] = None

    def read(
        self, column: str, values: FloatArray, cells: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """Return the values (n_rows,), in which each value below its limit is replaced by the
        limit, and a mask of the values that were replaced.

        cells   limits from cells such as "<0.05"; NaN for other cells
        """
        limits = cells
        if self.below is not None:
            limits = np.where(np.isnan(cells) & (values <= self.below), self.below, cells)
        is_below = ~np.isnan(limits)
        return np.where(is_below, limits, values), is_below


def read_limits(table: pd.DataFrame, column: str) -> tuple["pd.Series[float]", FloatArray]:
    """A column with cells such as "<0.05", as numbers; and its limits, NaN elsewhere.

    raises DataError where a limit is no number
    """
    texts = table[column].astype(str).str.strip()
    below = texts.str.startswith(BELOW)
    limits = pd.to_numeric(texts[below].str[len(BELOW) :], errors="coerce")
    if not np.isfinite(limits).all():
        raise DataError(
            f"Column '{column}' contains {texts[limits.index[~np.isfinite(limits)][0]]!r}; "
            "expected a number after '<', for example '<0.05'."
        )
    values = table[column].mask(below)
    numbers = pd.to_numeric(values, errors="coerce")
    if (numbers.isna() & values.notna()).any():  # `tables.numbers` says which
        return table[column], np.full(len(table), np.nan)
    every = np.full(len(table), np.nan)
    every[below.to_numpy()] = limits.to_numpy(dtype=float)
    return numbers.astype(float).fillna(pd.Series(every, table.index)), every


def mills(z: FloatArray) -> FloatArray:
    """(n,) phi(z) / Phi(z)."""
    return np.asarray(np.sqrt(2 / np.pi) / erfcx(-z / np.sqrt(2)))


def below(away: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(n,) residuals r, and their derivatives by away = (h - limit) / s."""
    r = np.sqrt(-2 * log_ndtr(-away))
    with np.errstate(divide="ignore", invalid="ignore"):
        return r, np.where(r > 0, mills(-away) / r, 0.0)  # r underflows at 38 s below the limit


def information(r: FloatArray) -> FloatArray:
    """(n,) by what the derivative of residuals r is multiplied for its square to be observed
    information."""
    z = ndtri_exp(-(r**2) / 2)
    m = mills(z)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = r * np.sqrt(np.maximum(m + z, 0.0) / m)
    return np.where(np.isfinite(factor), factor, 1.0)


def require_values(measurements: Iterable[Any]) -> None:
    """Raise DataError if all values of all experiments are below a limit of detection."""
    every = list(measurements)
    if sum(len(m.value) for m in every) and not sum(len(m.known.value) for m in every):
        names = sorted({m.names[k] for m in every for k in m.column})
        raise DataError(
            f"All values of {', '.join(map(repr, names))} are below the limit of detection. igpe "
            "needs at least one value above a limit, in some experiment."
        )
