"""How exact measurements are: standard deviations in the forms a caller may give them."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arguments import shown
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import DataError
from igpe.problem.noise.error_model import Proportional
from igpe.problem.noise.estimated import Estimated
from igpe.problem.tables import numbers

Sigma: TypeAlias = (
    float
    | Proportional
    | Estimated
    | Mapping[str, float | str | npt.ArrayLike | Proportional | Estimated]
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
    return {c: value.name for c, value in pairs if isinstance(value, Estimated)}


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
