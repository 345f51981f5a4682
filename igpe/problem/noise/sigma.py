"""Standard deviations of measurements: the contract of noise models, and the forms users give.

One is a formula of the prediction (`NoiseModel`), a quantity of the model that is estimated with
the rest (`EstimatedSigma`), or that of logarithms, which are compared instead (`LogNormal`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arguments import Checked, Positive, shown
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import DataError
from igpe.problem.noise.censored import Censored, read_limits
from igpe.problem.tables import numbers


@dataclass(frozen=True)
class LogNormal(Checked):
    """Errors of a positive quantity whose logarithm has normal errors.

    igpe replaces the measured quantity `A` by `ln(A)`, also in results and plots. An Expression
    gives the logarithm of the model's quantity, and igpe compares the values of this Expression
    with the logarithms of the measurements. All numbers for this quantity in a result refer to its
    logarithm.

    deviation  standard deviation of the natural logarithm; a small deviation is about equal to
               the relative error. The true value is the median of the distribution of the
               measurements, not its mean
    raises     ProblemError unless the deviation is positive
    """

    deviation: Positive


def logarithms(name: str, values: FloatArray) -> FloatArray:
    """Natural logarithms of a column; raises DataError where a value has none."""
    if (low := values <= 0).any():
        row = int(np.flatnonzero(low)[0])
        raise DataError(
            f"Column '{name}' has the value {values[row]:g} in row {row}, but log-normal errors "
            "need values above 0. Replace such values by NaN, or give normal errors: "
            f"sigma={{'{name}': igpe.Noise(absolute=..., relative=...)}}."
        )
    return np.log(values)


@dataclass(frozen=True)
class EstimatedSigma:
    """A standard deviation that the model computes from estimated unknowns.

    With such a standard deviation, igpe computes maximum likelihood estimates: the objective is
    -2 log L without its constant terms,

        sum over measurements of ((h - y) / s)^2 + 2 log s,        s = s(t, q) > 0.

    name    name of s in the model: a parameter, or a Var or Expression indexed by time; s must be
            in the unit of the measured column. If s is an unknown constant, declare a separate Var
            for it, with a positive lower bound
    raises  DataError if the name is not a string or is empty
    """

    name: str

    @property
    def follows(self) -> bool:
        """Return True, because the standard deviation always depends on the predictions."""
        return True

    @property
    def estimated(self) -> str:
        """Name of the quantity in the model that gives the standard deviation."""
        return self.name

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DataError(
                f"EstimatedSigma has the name {shown(self.name)}; give the name of a quantity "
                "of the model: igpe.EstimatedSigma('sd_A')."
            )


@dataclass(frozen=True)
class NoiseModel(ABC):
    """Base of error models: the standard deviation of one quantity as a function of its prediction.

    A new error model is a frozen dataclass in a file of its own; the rest of igpe uses only this
    interface. Estimators fit with fixed weights, compute new weights from the predictions, and
    repeat this until the weights converge: generalised least squares (Carroll & Ruppert,
    Transformation and Weighting in Regression (1988), chapter 2). The first weights come from
    smoothed data. This procedure solves sum (h - y) / sigma(h)^2 dh/dq = 0, which is unbiased for
    every distribution of the errors. Maximum likelihood would minimise sum ((h - y) / sigma(h))^2 +
    2 log sigma(h). It would also use the size of the residuals, which is slightly more accurate if
    the errors are normal and follow this formula, and biased otherwise. Weights computed from the
    measurements would favour measurements that are too small by chance.
    """

    estimated: ClassVar[str] = ""
    """Name of the quantity in the model that gives the standard deviation; empty: this formula
    does."""

    @abstractmethod
    def deviation(self, predicted: FloatArray) -> FloatArray:
        """Return the standard deviations at the predictions h, in the unit of h."""

    @abstractmethod
    def slope(self, predicted: FloatArray) -> FloatArray:
        """Return the derivatives of `deviation` with respect to h; 0 where the deviation is 0."""

    @abstractmethod
    def scaled(self, factor: float) -> "NoiseModel":
        """Return the noise model for another unit; one old unit equals `factor` new units."""

    @property
    def follows(self) -> bool:
        """Return True if the standard deviation depends on the prediction."""
        return True

    @property
    def remedy(self) -> str:
        """Advice for the user if the formula gives no standard deviation, for example at
        predictions of 0."""
        return ""

    def least(self, values: FloatArray) -> float:
        """Return the lower limit of |h| for a column with the measurements `values`."""
        return 0.0

    def at(self, predicted: FloatArray, values: FloatArray) -> FloatArray:
        """Return the standard deviations at the predictions h of a column with these `values`.

        Predictions count as no smaller than `least`.
        """
        return np.asarray(self.deviation(np.maximum(np.abs(predicted), self.least(values))))

    def level(self, values: FloatArray) -> float:
        """Return one standard deviation for the whole column, used until predictions are known."""
        known = values[np.isfinite(values)]
        return float(self.deviation(np.sqrt(np.mean(known**2)))) if known.size else 1.0


def deviations(
    models: Mapping[int, NoiseModel],
    column: IntArray,
    value: FloatArray,
    predicted: FloatArray,
    sigma: FloatArray,
) -> FloatArray:
    """(m,) standard deviations at predictions (m,) of measurements: column, value and old sigma.

    models  column -> its noise model; other columns keep `sigma`
    """
    result = sigma.copy()
    for number, model in models.items():
        mine = column == number
        result[mine] = model.at(predicted[mine], value[mine])
    return result


def deviation_slopes(
    models: Mapping[int, NoiseModel], column: IntArray, value: FloatArray, predicted: FloatArray
) -> FloatArray:
    """(m,) derivatives of `deviations` by the predictions; 0 where they do not follow these."""
    slopes = np.zeros(len(predicted))
    for number, model in models.items():
        mine = column == number
        sizes, least = np.abs(predicted[mine]), model.least(value[mine])
        slopes[mine] = np.where(
            sizes > least, np.sign(predicted[mine]) * model.slope(np.maximum(sizes, least)), 0.0
        )
    return slopes


Deviation: TypeAlias = NoiseModel | EstimatedSigma
"""How exact the measurements of one quantity are: by a formula, or estimated with the rest."""

Sigma: TypeAlias = (
    float
    | Deviation
    | LogNormal
    | Censored
    | Mapping[str, float | str | npt.ArrayLike | Deviation | LogNormal | Censored]
    | Literal["equal"]
    | None
)
"""Standard deviations: one for all, per column (number, array, name of a column, following the
model, or estimated with it), unknown but equal, or unknown."""
EQUAL = "equal"
_SPREADS = {"sd", "std", "stdev", "sigma", "se", "sem", "err", "error"}
FORMULAS = (
    "For errors in proportion to the values, give igpe.Noise(relative=0.05). For another formula, "
    "give igpe.EstimatedSigma('sd'), where sd is an Expression of the model."
)


def is_unknown(sigma: Sigma) -> bool:
    """Return True if the size of the errors is unknown."""
    return sigma is None or (isinstance(sigma, str) and sigma == EQUAL)


def sigma_columns(sigma: Sigma) -> set[str]:
    """The columns of the table that hold standard deviations."""
    given = sigma.values() if isinstance(sigma, Mapping) else ()
    return {value for value in given if isinstance(value, str)}


def as_deviations(columns: Collection[str], measured: Collection[str]) -> str:
    """The argument for columns that hold standard deviations by their names, in a sentence."""
    given = {
        n: c
        for c in columns
        for n in measured
        if c.replace(n, "", 1).strip("_ .").lower() in _SPREADS
    }
    return f" For columns of standard deviations, pass sigma={given}." * bool(given)


def error_models(columns: list[str], sigma: Sigma) -> dict[str, NoiseModel]:
    """Column -> its noise model, where its standard deviations follow the model's predictions."""
    given = _by_column(columns, sigma).items()
    return {c: model for c, model in given if isinstance(model, NoiseModel) and model.follows}


def estimated_sigma(columns: list[str], sigma: Sigma) -> dict[str, str]:
    """Column -> the model's quantity that is its standard deviation, where that is estimated."""
    given = _by_column(columns, sigma).items()
    return {c: value.name for c, value in given if isinstance(value, EstimatedSigma)}


def log_normal(columns: list[str], sigma: Sigma) -> frozenset[str]:
    """Columns whose logarithms are compared with logarithms of what the model says."""
    given = _by_column(columns, sigma).items()
    return frozenset(c for c, value in given if isinstance(value, LogNormal))


def censored(columns: list[str], sigma: Sigma) -> dict[str, Censored]:
    """Column -> what is known of its limit of detection."""
    given = _by_column(columns, sigma).items()
    return {c: value for c, value in given if isinstance(value, Censored)}


def with_limits(table: pd.DataFrame, sigma: Sigma) -> tuple[pd.DataFrame, dict[str, FloatArray]]:
    """The table with numbers for cells such as "<0.05", and column -> (n_rows,) these limits."""
    columns = [c for c in table.columns if c not in {"time", "experiment"}]
    read = {c: read_limits(table, c) for c in censored(columns, sigma)}
    changed = table.assign(**{c: values for c, (values, _) in read.items()}) if read else table
    return changed, {c: limits for c, (_, limits) in read.items()}


def _by_column(columns: list[str], sigma: Sigma) -> dict[str, Any]:
    if isinstance(sigma, Mapping):
        return {c: sigma.get(c) for c in columns}
    return dict.fromkeys(columns, sigma)


def sigma_of(table: pd.DataFrame, column: str, sigma: Sigma) -> FloatArray:
    """(n_rows,) standard deviations of one column; 1 where unknown.

    Those that follow the model are one level for the whole column, until the model is known; those
    estimated with it are 1.
    raises DataError if they are missing, no numbers, or not one for each row
    """
    n = len(table)
    given = _by_column([column], sigma)[column]
    if is_unknown(sigma) or isinstance(given, EstimatedSigma):
        return np.ones(n)
    if isinstance(given, LogNormal | Censored):
        return np.full(n, given.deviation)
    if isinstance(given, NoiseModel):
        level = given.level(table[column].to_numpy(dtype=float))
        if level == 0:
            raise DataError(
                f"All measurements of '{column}' are 0, and {given} gives no standard "
                f"deviation for a value of 0. {given.remedy}"
            )
        return np.full(n, level)
    if not isinstance(sigma, Mapping):
        try:
            return np.full(n, float(given))
        except (TypeError, ValueError):
            raise DataError(
                f"`sigma` is {shown(sigma)}; give a number for all columns, or for each column a "
                "number or the name of another column: sigma={'A': 0.1, 'B': 'sd_B'}. "
                f"{FORMULAS} Give 'equal' if the errors are unknown but equal in all columns."
            ) from None
    if column not in sigma:
        raise DataError(
            f"`sigma` contains {sorted(sigma)} but not '{column}'. Give standard deviations for "
            "all columns or for none."
        )
    return _of_column(table, column, given)


def _of_column(table: pd.DataFrame, column: str, value: Any) -> FloatArray:
    if isinstance(value, str):
        if value not in table.columns:
            raise DataError(
                f"`sigma` of '{column}' refers to the column '{value}', which is not among the "
                f"columns of the table, {list(table.columns)}. {FORMULAS}"
            )
        return numbers(table, value)
    try:
        spread = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise DataError(
            f"`sigma` of '{column}' is {shown(value)}; expected a number, one number for each "
            f"row, or the name of a column of the table. {FORMULAS}"
        ) from None
    n = len(table)
    if spread.ndim > 0 and spread.shape != (n,):
        raise DataError(
            f"`sigma` of '{column}' has shape {spread.shape}; expected one number, or one for "
            f"each of the {n} rows."
        )
    return np.broadcast_to(spread, (n,)).astype(float)


def check_sigma(columns: list[str], sigma: FloatArray, column: IntArray) -> None:
    """Raise DataError unless all are positive numbers."""
    bad = ~(np.isfinite(sigma) & (sigma > 0))
    if bad.any():
        name = columns[int(column[bad][0])]
        raise DataError(
            f"`sigma` of '{name}' is {sigma[bad][0]:g}. Standard deviations must be positive. "
            "Leave out `sigma` if they are unknown."
        )
