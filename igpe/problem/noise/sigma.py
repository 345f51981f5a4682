"""How exact measurements are: standard deviations in the forms a caller may give them.

Standard deviations that are estimated with the model.

Standard deviations that depend on what the model predicts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arguments import is_finite, shown
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import DataError
from igpe.problem.tables import numbers


@dataclass(frozen=True)
class EstimatedSigma:
    """A standard deviation that the model computes from unknowns, estimated with the rest.

    Maximum likelihood: what is minimised is -2 log L but for a constant,

        sum over measurements of ((h - y) / s)^2 + 2 log s,        s = s(t, q) > 0.

    name    the parameter, variable over time or Expression over time that is s, in the unit of the
            column it belongs to: an error of unknown size is a Var of its own, bounded from below
            by a positive number
    raises  DataError if the name is no text
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DataError(
                f"An estimated standard deviation is named {shown(self.name)}; give the name of "
                "what it is in the model: igpe.EstimatedSigma('sd_A')."
            )


NEAR_ZERO = 0.1  # of a column's smallest measurement: predictions count as no smaller, floor or not


@dataclass(frozen=True)
class Proportional:
    """Errors proportional to the true value, with a constant part beneath it if there is a floor.

        sigma = sqrt(floor^2 + (share h)^2),    h the model's prediction, not the measurement

    is the additive and proportional ("combined") error model of pharmacokinetics (Beal & Sheiner,
    Estimating heteroscedastic variances, Technometrics 30 (1988)); share alone is a constant
    coefficient of variation. Estimators fit with weights held, take them anew where the model now
    is, and fit again until they stand still: generalised least squares (Carroll & Ruppert,
    Transformation and Weighting in Regression (1988), chapter 2), first weights from smoothed data.
    That solves sum (h - y) / sigma(h)^2 dh/dq = 0, right on average whatever the errors'
    distribution; maximum likelihood would minimise sum ((h - y) / sigma(h))^2 + 2 log sigma(h) and
    also learn from the size of residuals, which is a little more exact for normal errors of just
    this share and wrong for others. Weights from the measurements themselves would favour those
    that are too small by chance.

    Without a floor estimates do not depend on the share: if it is unknown give a guess, of which
    sqrt(result.reduced_chi_squared) times as much is what the measurements tell.

    share   coefficient of variation, e.g. 0.05 for 5 %
    floor   standard deviation at h = 0, in the unit of the column; without one, |h| counts as no
            less than a tenth of the column's smallest measurement that is not 0, and a note tells
            where that mattered
    raises  DataError unless 0 < share < 1 and floor is finite and not negative
    """

    share: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (is_finite(self.share) and 0 < self.share < 1):
            raise DataError(
                f"The share of a proportional error is {shown(self.share)}; give a number between "
                "0 and 1: igpe.Proportional(0.05) is 5 % of the model's value."
            )
        if not (is_finite(self.floor) and self.floor >= 0):
            raise DataError(
                f"The floor of a proportional error is {shown(self.floor)}; give the standard "
                "deviation at 0 in the unit of the column, a number of 0 or more."
            )

    def deviation(self, predicted: FloatArray) -> FloatArray:
        """Standard deviations at predictions h, in their unit."""
        return np.hypot(self.floor, self.share * predicted)

    def level(self, values: FloatArray) -> float:
        """One standard deviation for a whole column, until predictions are known."""
        known = values[np.isfinite(values)]
        return float(self.deviation(np.sqrt(np.mean(known**2)))) if known.size else 1.0

    def least(self, values: FloatArray) -> float:
        """The smallest |h| that counts beside a column of measurements."""
        sizes = np.abs(values[values != 0])
        return NEAR_ZERO * float(sizes.min(initial=np.inf)) if self.floor == 0 else 0.0

    def scaled(self, factor: float) -> "Proportional":
        """The same in a unit of which one old unit holds `factor`."""
        return replace(self, floor=abs(factor) * self.floor)


def deviations(
    models: Mapping[int, Proportional],
    column: IntArray,
    value: FloatArray,
    predicted: FloatArray,
    sigma: FloatArray,
) -> FloatArray:
    """(m,) standard deviations at predictions (m,) of measurements: column, value and old sigma.

    models  column -> its error model; other columns keep `sigma`
    """
    found = sigma.copy()
    for number, model in models.items():
        mine = column == number
        sizes = np.maximum(np.abs(predicted[mine]), model.least(value[mine]))
        found[mine] = model.deviation(sizes)
    return found


Sigma: TypeAlias = (
    float
    | Proportional
    | EstimatedSigma
    | Mapping[str, float | str | npt.ArrayLike | Proportional | EstimatedSigma]
    | None
)
"""Standard deviations: one for all, per column (number, array, name of a column, following the
model, or estimated with it), or unknown."""


def sigma_columns(sigma: Sigma) -> set[str]:
    """The columns of the table that hold standard deviations."""
    if not isinstance(sigma, Mapping):
        return set()
    return {value for value in sigma.values() if isinstance(value, str)}


def error_models(columns: list[str], sigma: Sigma) -> dict[str, Proportional]:
    """Column -> its error model, where its standard deviations follow the model."""
    given = sigma if isinstance(sigma, Mapping) else dict.fromkeys(columns, sigma)
    pairs = ((c, given.get(c)) for c in columns)
    return {c: model for c, model in pairs if isinstance(model, Proportional)}


def estimated_sigma(columns: list[str], sigma: Sigma) -> dict[str, str]:
    """Column -> the model's quantity that is its standard deviation, where that is estimated."""
    given = sigma if isinstance(sigma, Mapping) else dict.fromkeys(columns, sigma)
    pairs = ((c, given.get(c)) for c in columns)
    return {c: value.name for c, value in pairs if isinstance(value, EstimatedSigma)}


def sigma_of(table: pd.DataFrame, column: str, sigma: Sigma) -> FloatArray:
    """(n_rows,) standard deviations of one column; 1 where unknown.

    Those that follow the model are one level for the whole column, until the model is known; those
    estimated with it are 1.
    raises DataError if they are missing, no numbers, or not one for each row
    """
    n = len(table)
    if sigma is None or estimated_sigma([column], sigma):
        return np.ones(n)
    model = error_models([column], sigma).get(column)
    if model is not None:
        return np.full(n, _level(table, column, model))
    if not isinstance(sigma, Mapping):
        return np.full(n, _number(sigma))
    if column not in sigma:
        raise DataError(
            f"sigma is given for {sorted(sigma)} but not for '{column}'; give all columns a "
            "standard deviation, or none."
        )
    return _of_column(table, column, sigma[column])


def _of_column(table: pd.DataFrame, column: str, value: Any) -> FloatArray:
    n = len(table)
    if isinstance(value, str):
        if value not in table.columns:
            raise DataError(
                f"sigma of '{column}' names the column '{value}', which is not in the table "
                f"{list(table.columns)}."
            )
        return numbers(table, value)
    try:
        spread = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise DataError(
            f"sigma of '{column}' is {shown(value)}, which are not numbers; give a number, one "
            "for each row, or the name of the column that holds them."
        ) from None
    if spread.ndim > 0 and spread.shape != (n,):
        raise DataError(
            f"sigma of '{column}' has shape {spread.shape}; give one number, or one for each of "
            f"the {n} rows."
        )
    return np.broadcast_to(spread, (n,)).astype(float)


def _level(table: pd.DataFrame, column: str, model: Proportional) -> float:
    level = model.level(table[column].to_numpy(dtype=float))
    if level == 0:
        raise DataError(
            f"All measurements of '{column}' are 0, of which {model.share:g} is no standard "
            f"deviation; give a floor: igpe.Proportional({model.share:g}, floor=...)."
        )
    return level


def _number(sigma: Any) -> float:
    try:
        return float(sigma)
    except (TypeError, ValueError):
        raise DataError(
            f"sigma is {sigma!r}; give a number or igpe.Proportional(0.05) for all columns, or for "
            "each its own: sigma={'A': 0.1, 'B': 'name of the column that holds them'}."
        ) from None


def check_sigma(columns: list[str], sigma: FloatArray, column: IntArray) -> None:
    """Raise DataError unless all are positive numbers."""
    bad = ~(np.isfinite(sigma) & (sigma > 0))
    if bad.any():
        name = columns[int(column[bad][0])]
        raise DataError(
            f"sigma of '{name}' is {sigma[bad][0]:g}; standard deviations must be positive "
            "numbers. Leave sigma out if they are unknown."
        )
