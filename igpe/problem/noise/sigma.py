"""Standard deviations of measurements: the contract of noise models, and the forms users give.

One is a formula of the prediction (`NoiseModel`): `Noise` has a constant part, a share of the
predicted value, or both. Others are a quantity of the model that is estimated with the rest
(`EstimatedSigma`), or that of logarithms, which are compared instead (`LogNormal`).

`Censored` values lie below a limit of detection, and are known only to be below it. With
z = (limit - h) / s the value is below its limit with the probability Phi(z). Its residual

    r = sqrt(-2 log Phi(z)),        dr/dh = m / (r s),        m = phi(z) / Phi(z),

has -2 log Phi(z) as its square, so that searches minimise a sum of squares. Half the second
derivative of that square is m (m + z) / s^2, the observed information; (dr/dh)^2 is less, by up to
one half. m by the scaled complementary error function is exact for any z.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import erfcx, log_ndtr, ndtri_exp

from igpe.core.arguments import Checked, Positive, Rule, is_finite, shown
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import DataError
from igpe.problem.tables import numbers

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


NEAR_ZERO = 0.1  # of a column's smallest measurement: predictions count as no smaller


@dataclass(frozen=True)
class Noise(NoiseModel):
    """A standard deviation with a constant part and a part proportional to the predicted value.

        sigma = sqrt(absolute^2 + (relative h)^2)

    Here h is the prediction of the model, not the measurement. This is the "combined" (additive and
    proportional) error model of pharmacokinetics (Beal & Sheiner, Estimating heteroscedastic
    variances, Technometrics 30 (1988)). With only a relative part, the coefficient of variation is
    constant; with only an absolute part, the standard deviation is constant.

    Without an absolute part, the estimated unknowns do not depend on the size of the relative part.
    If this size is not known, give a guess and multiply it by sqrt(result.reduced_chi_squared) to
    get an estimate of the relative part.

    absolute  standard deviation at h = 0, in the unit of the quantity. If `absolute` is 0, igpe
              sets a lower limit for |h|: a tenth of the smallest nonzero absolute value among the
              measurements of the column. A note lists the points at which this limit changes the
              standard deviation
    relative  coefficient of variation, e.g. 0.05 for 5 %
    raises    DataError unless both parts are 0 or more, at least one part is positive, and relative
              < 1
    """

    absolute: float = 0.0
    relative: float = 0.0

    def __post_init__(self) -> None:
        given = self.absolute, self.relative
        if not (is_finite(*given) and min(given) >= 0 and max(given) > 0 and self.relative < 1):
            raise DataError(
                f"Noise has absolute={shown(self.absolute)} and relative={shown(self.relative)}. "
                "Both must be at least 0, and at least one must be positive. Give `absolute` in "
                "the unit of the column, and `relative` as a fraction below 1: "
                "igpe.Noise(relative=0.05) is 5 %."
            )

    def deviation(self, predicted: FloatArray) -> FloatArray:
        """Return the standard deviations at the predictions h, in the unit of h."""
        return np.hypot(self.absolute, self.relative * predicted)

    def slope(self, predicted: FloatArray) -> FloatArray:
        """Return the derivatives of `deviation` with respect to h; 0 where the deviation is 0."""
        sigma = self.deviation(predicted)
        return np.asarray(self.relative**2 * predicted / np.where(sigma > 0, sigma, np.inf))

    def scaled(self, factor: float) -> "Noise":
        """Return the noise model for another unit; one old unit equals `factor` new units."""
        return replace(self, absolute=abs(factor) * self.absolute)

    @property
    def follows(self) -> bool:
        """Return True if the standard deviation depends on the prediction."""
        return self.relative > 0

    @property
    def remedy(self) -> str:
        """Advice for the user if measurements are 0 and the standard deviation would also be 0."""
        return f"Give an absolute part: igpe.Noise(absolute=..., relative={self.relative:g})."

    def least(self, values: FloatArray) -> float:
        """Return the lower limit of |h| for a column with the measurements `values`."""
        sizes = np.abs(values[values != 0])
        return NEAR_ZERO * float(sizes.min(initial=np.inf)) if self.absolute == 0 else 0.0


TRACY_WIDOM = 3.2724  # 0.999 quantile of the law of order one


def noise_level(singular: FloatArray, shape: tuple[int, int], few: int) -> float:
    """Standard deviation of what is beyond the first `few` singular values."""
    degrees = (shape[0] - few) * (shape[1] - few)
    return float(np.sqrt((singular[few:] ** 2).sum() / degrees)) if degrees > 0 else 0.0


def edge(shape: tuple[int, int], few: int) -> float:
    """Largest singular value that unit noise beside `few` contributions has in 999 of 1000 cases.

    Johnstone's centre and scale of the largest eigenvalue of a Wishart matrix, and the 0.999
    quantile of the Tracy-Widom law of order one (Ann. Statist. 29 (2001), 295).
    """
    n, m = (max(size - few, 1) for size in shape)
    a, b = np.sqrt(max(n - 1, 0.0)), np.sqrt(m)
    centre = (a + b) ** 2
    scale = (a + b) * (1 / max(a, 1.0) + 1 / b) ** (1 / 3)
    return float(np.sqrt(centre + TRACY_WIDOM * scale))


def contributions(
    singular: FloatArray, shape: tuple[int, int], sigma: float | None
) -> tuple[int, float]:
    """The first count beyond which the next singular value may be noise; and the noise's level."""
    floor = np.finfo(float).eps * max(shape) * float(singular[0] if len(singular) else 0.0)
    for few in range(len(singular)):
        level = noise_level(singular, shape, few) if sigma is None else sigma
        if singular[few] <= max(level * edge(shape, few), floor):
            return few, level
    return len(singular), 0.0 if sigma is None else sigma
