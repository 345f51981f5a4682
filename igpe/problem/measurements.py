"""The numbers measured in one experiment: read from its table, converted to the model's units."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from pyomo.core.base.units_container import InconsistentUnitsError, UnitsError
from pyomo.environ import units as pyomo_units

from igpe.core.arguments import shown
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import DataError
from igpe.problem.inputs import InputValue, input_columns
from igpe.problem.members import in_logarithms
from igpe.problem.noise.correlated import Correlation, Layout
from igpe.problem.noise.sigma import (
    Sigma,
    censored,
    check_sigma,
    estimated_sigma,
    is_unknown,
    log_normal,
    logarithms,
    sigma_columns,
    sigma_of,
    with_limits,
)
from igpe.problem.spectra import Spectra, with_spectral_times
from igpe.problem.tables import select_columns, time_column


@dataclass(frozen=True)
class Measurements:
    """The numbers measured in one experiment, one row each (missing ones left out).

    times   (n_times,), distinct and increasing
    names   (n_columns,), what was measured
    row     (n,), index into times;  column  (n,), index into names
    value   (n,), unit of the column
    sigma   (n,), standard deviation in the same unit; where unknown a relative one, 1 until it is
            estimated; of the whole column where it follows the model
    censored  (n,), whether the value is a limit, and what was measured below it; None: none is
    correlation  of the errors; None: they are independent
    """

    times: FloatArray
    names: tuple[str, ...]
    row: IntArray
    column: IntArray
    value: FloatArray
    sigma: FloatArray
    censored: BoolArray | None = None
    correlation: Correlation | None = None

    def whitening(self) -> Any:
        """(n, n) sparse matrix that makes errors in standard deviations independent; or None."""
        return None if self.correlation is None else self.correlation.whitening(self.layout)

    @property
    def layout(self) -> Layout:
        """Which quantity was measured when."""
        return Layout(self.times, self.times[self.row], self.column)

    @property
    def is_limit(self) -> BoolArray:
        """(n,) which values are limits."""
        return np.zeros(len(self.value), bool) if self.censored is None else self.censored

    @property
    def known(self) -> "Measurements":
        """Those that are not censored."""
        return self if self.censored is None else self.where(~self.censored)

    def where(self, kept: BoolArray) -> "Measurements":
        """Some of the measurements, at the same times."""
        parts = ("row", "column", "value", "sigma", "censored")
        own = {n: getattr(self, n) for n in parts}
        return replace(self, **{n: v[kept] for n, v in own.items() if v is not None})

    def of(self, name: str) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Times, values, standard deviations of one quantity, replicates in a row; no limits."""
        m = self.known
        mine = m.column == m.names.index(name)
        return m.times[m.row[mine]], m.value[mine], m.sigma[mine]

    def table(self, experiment: str) -> pd.DataFrame:
        """One row for each number that is not censored: experiment, name, time, measured."""
        m, names = self.known, np.array(self.names, dtype=object)
        columns = {"name": names[m.column], "time": m.times[m.row]}
        return pd.DataFrame({"experiment": experiment, **columns, "measured": m.value})


NOTHING = Measurements(
    np.zeros(0),
    (),
    np.zeros(0, dtype=np.intp),
    np.zeros(0, dtype=np.intp),
    np.zeros(0),
    np.zeros(0),
)


def read_measured(
    table: pd.DataFrame,
    spectra: Spectra | None,
    inputs: Mapping[str, InputValue],
    sigma: Sigma,
    conditions: Mapping[str, Any],
) -> tuple[FloatArray, list[str], Measurements]:
    """All times, the columns that are measured, and the measurements, at the spectra's times too.

    raises DataError for what cannot be weighed against spectra
    """
    chosen, measurements = list[str](), NOTHING
    table, limits = with_limits(table, sigma)
    if len(table) or spectra is None:
        times = time_column(table, replicates=conditions["replicates"], name=conditions["name"])
        leave = sigma_columns(sigma) | input_columns(inputs)
        chosen = select_columns(table, conditions["only"], leave=leave)
        measurements = _measurements(table, times, chosen, sigma, limits)
    if (correlation := conditions["correlation"]) is not None:
        is_apart = spectra is None and not estimated_sigma(chosen, sigma)
        measurements = _correlated(measurements, chosen, correlation, is_apart=is_apart)
    if spectra is None:
        return times, chosen, measurements
    if chosen and (is_unknown(sigma) or estimated_sigma(chosen, sigma)):
        raise DataError(
            f"The measurements of {chosen} have no numeric standard deviations, so igpe cannot "
            "weight them against the spectra. Give numbers: igpe.Experiment(..., sigma=...)."
        )
    measurements = with_spectral_times(measurements, spectra)
    return measurements.times, chosen, measurements


def _measurements(
    table: pd.DataFrame,
    times: FloatArray,
    columns: list[str],
    sigma: Sigma,
    limits: Mapping[str, FloatArray],
) -> Measurements:
    values = table[columns].to_numpy(dtype=float, copy=True)
    is_below, in_logarithms_too = np.zeros(values.shape, dtype=bool), log_normal(columns, sigma)
    sigmas = np.column_stack([sigma_of(table, c, sigma) for c in columns])
    distinct, row_of = np.unique(times, return_inverse=True)
    row, column = np.nonzero(np.isfinite(values))
    check_sigma(columns, sigmas[row, column], column)
    for place, name in enumerate(columns):
        if name in in_logarithms_too:
            values[:, place] = logarithms(name, values[:, place])
    for name, model in censored(columns, sigma).items():
        place = columns.index(name)
        values[:, place], is_below[:, place] = model.read(name, values[:, place], limits[name])
    names = tuple(in_logarithms(n) if n in in_logarithms_too else n for n in columns)
    is_limit = is_below[row, column] if is_below.any() else None
    return Measurements(
        distinct, names, row_of[row], column, values[row, column], sigmas[row, column], is_limit
    )


def _correlated(
    m: Measurements, columns: list[str], correlation: Any, *, is_apart: bool
) -> Measurements:
    """The measurements with correlated errors.

    is_apart  whether there are neither spectra nor estimated standard deviations
    raises    DataError for what cannot be correlated
    """
    if not isinstance(correlation, Correlation):
        raise DataError(
            f"`correlation` is {shown(correlation)}; expected igpe.losses.AR1(0.7) or "
            "igpe.losses.Correlated({('A', 'B'): 0.5}). To estimate the correlation, pass "
            "igpe.losses.AR1() or igpe.losses.Correlated()."
        )
    if not is_apart or m.censored is not None:
        raise DataError(
            "Correlated errors cannot be combined with spectra, values below a limit of "
            "detection, or standard deviations that are estimated (igpe.EstimatedSigma). "
            "Leave out correlation=, or pass numbers, igpe.Noise(...) or None as sigma=."
        )
    if len(np.unique([m.row, m.column], axis=1).T) < len(m.row):
        raise DataError(
            "Correlated errors cannot be combined with several values of a quantity at one "
            "time: igpe cannot tell which errors are correlated. Give each repetition its own "
            "experiment."
        )
    return replace(m, correlation=correlation.of(columns, m.layout))


_UNIT = re.compile(r"[\w%µΩ°/*().+\- ]{1,80}")
LITRE = re.compile(r"\b([m\u00b5udck]?)l\b")  # as pint writes it, easily taken for a one
_POWER = re.compile(r"\*\*\s*\(?\s*[-+]?\d{1,2}(\.\d{1,3}|/\d{1,2})?\s*\)?(?!\s*\*\*|[\d.\w])")


def require_unit(text: str) -> str:
    """The text, if pint may get it: it passes over texts in quotes, and powers take forever.

    raises ValueError for other characters than those of units, or powers of more than two digits
    """
    if not isinstance(text, str):
        raise TypeError("it is not a string")
    powers = text.count("**")
    if not _UNIT.fullmatch(text) or len(_POWER.findall(text)) != powers:
        raise ValueError("it is not a unit; expected names, *, /, and powers such as m**2")
    if len(re.findall(r"\)\s*\*\*", text)) > 1:
        raise ValueError("it contains powers of powers; expand them")
    return text


def unit_name(component: Any) -> str:
    """The unit of a Pyomo component as text; empty if it has none, or units that do not fit."""
    # Pyomo would load pint to say that there is none.
    if hasattr(component, "get_units") and component.get_units() is None:
        return ""
    try:
        unit = str(pyomo_units.get_units(component))
    except (UnitsError, InconsistentUnitsError):
        return ""
    return "" if unit in ("None", "dimensionless") else LITRE.sub(r"\1L", unit)


def time_unit(instance: Any) -> str:
    """Unit of a model's time: of a state over that of its `DerivativeVar`; empty without units."""
    for name, series in instance.slopes.items():
        slope = next(iter(series.values()))
        if slope.get_units() is not None:
            return unit_name(next(iter(instance.states[name].values())) / slope)
    return ""


def conversion(name: str, given: str, wanted: str) -> tuple[float, float]:
    """Factor and offset that turn numbers in the unit `given` into the unit `wanted`.

    raises DataError if a unit is unknown or the two do not fit
    """
    import pint  # noqa: PLC0415 - slow to load, and not needed without units

    quantity = pyomo_units.pint_registry.Quantity
    try:
        require_unit(given)
        ends = (quantity(v, given).to(wanted or "dimensionless").magnitude for v in (0.0, 1.0))
        offset, one = map(float, ends)
    except (pint.PintError, TypeError, ValueError, AssertionError, ArithmeticError) as error:
        mend = "give the model's variable its unit"
        if name == "time" and not wanted:  # Pyomo's ContinuousSet has no unit
            mend = "give a derivative its unit: m.dA = DerivativeVar(m.A, units=units.mol/units.s)"
        raise DataError(
            f"The data give '{name}' in '{given}', but the model uses '{wanted or 'no unit'}': "
            f"{error}. Give a unit that can be converted, or {mend}."
        ) from None
    return one - offset, offset


def converted(measurements: Measurements, name: str, factor: float, offset: float) -> Measurements:
    """The measurements with one column (or "time") in another unit."""
    if name == "time":
        times, correlation = factor * measurements.times + offset, measurements.correlation
        correlation = None if correlation is None else correlation.scaled(factor)
        return replace(measurements, times=times, correlation=correlation)
    mine = measurements.column == measurements.names.index(name)
    value, sigma = measurements.value.copy(), measurements.sigma.copy()
    value[mine] = factor * value[mine] + offset
    sigma[mine] = abs(factor) * sigma[mine]
    return replace(measurements, value=value, sigma=sigma)
