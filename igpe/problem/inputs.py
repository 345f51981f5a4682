"""Known inputs of an experiment: constants, tables and expressions of time.

A table is split at its breaks into segments on which the input is a + b t, so that an integrator
never steps across a jump and every derivative stays exact.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyomo.environ import value as pyomo_value

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.core.markup import closest
from igpe.problem.tables import numbers

SAME = 4  # units in the last place: times as close are one
SMALLEST = 1e-3  # a time nearer to 0 is as uncertain as this one


@dataclass(frozen=True)
class Table:
    """An input whose values are known at certain times.

    times   (n,), strictly increasing, in the unit of the model's time
    values  (n,), in the unit of the model's variable
    hold    False: linear between the times; True: each value is held until the next time
    of_rows  whether the times are those of the experiment's own table, and in their unit
    """

    times: FloatArray
    values: FloatArray
    hold: bool = False
    of_rows: bool = False

    def at_times(self, factor: float, offset: float) -> "Table":
        """Return the input with the times of the experiment's table in the model's unit."""
        times = factor * self.times + offset
        return replace(self, times=times, of_rows=False) if self.of_rows else self

    def segment(self, time: float) -> tuple[float, float]:
        """Return (a, b) of a + b t on the segment that begins at or before `time`.

        Before the first and after the last time of the table, the input keeps its end value.
        """
        k = int(np.searchsorted(self.times, time, side="right")) - 1
        if k < 0:
            return float(self.values[0]), 0.0
        if self.hold or k >= len(self.times) - 1:
            return float(self.values[k]), 0.0
        slope = (self.values[k + 1] - self.values[k]) / (self.times[k + 1] - self.times[k])
        return float(self.values[k] - slope * self.times[k]), float(slope)

    def at(self, time: float, *, before: bool = False) -> float:
        """Return the value at `time`; with `before`, the limit from the left where the input
        jumps."""
        a, b = self.segment(np.nextafter(time, -np.inf) if before else time)
        return a + b * time


def linear_input(times: npt.ArrayLike, values: npt.ArrayLike) -> Table:
    """An input that is interpolated linearly between the given points.

    times   (n,) times of the points, in increasing order
    values  (n,) values at these times
    raises  DataError if the points are not finite or the times do not increase
    """
    return _table(times, values, hold=False)


def step_input(times: npt.ArrayLike, values: npt.ArrayLike) -> Table:
    """An input that jumps at the given times and is constant between them.

    times   (n,) times of the jumps, in increasing order
    values  (n,) values, each of which is valid from its time until the next time
    raises  DataError if the points are not finite or the times do not increase

    Before the first given time, the input has its first value. If the input jumps at the start of
    the experiment, the model uses the new value there. A measurement at the time of a jump is
    compared with the model just before the jump (the limit from the left).
    """
    return _table(times, values, hold=True)


TimeExpression: TypeAlias = Callable[[Any], Any]
Input: TypeAlias = float | Table | TimeExpression
"""A number, a table, or a function of time written with Pyomo's functions (`pyo.exp(-t)`)."""

InputValue: TypeAlias = "float | str | Table | TimeExpression | pd.Series[float] | pd.DataFrame"
"""What a user may give: an `Input`; a pandas Series whose index holds the times; a column of the
experiment's own table; a DataFrame with a column `time` and one for the input. What pandas gives is
linear between its points."""


def read_inputs(
    inputs: Mapping[str, InputValue], measured: pd.DataFrame | None = None
) -> dict[str, Input]:
    """The user's inputs in one of the three forms. Raises DataError for anything else.

    measured  the experiment's table with its column `time`: a Series that carries the row labels of
              this table, as one of its columns does, belongs to the times of these rows. None
              if there is no table: the index must hold the times
    """
    return {name: _read(name, value, measured) for name, value in inputs.items()}


def input_columns(inputs: Mapping[str, InputValue]) -> set[str]:
    """Names of the columns of the experiment's table that are inputs."""
    named = {str(v.name) for n, v in inputs.items() if isinstance(v, pd.Series) and v.name == n}
    return named | {v for v in inputs.values() if isinstance(v, str)}


def _column(name: str, column: str, measured: pd.DataFrame) -> float | Table:
    """A column of the experiment's table: a number where it does not change."""
    if column not in measured.columns or column == "time":
        raise DataError(
            f"Input '{name}' refers to the column '{column}', but the table's columns are "
            f"{list(measured.columns)}.{closest(column, map(str, measured.columns))}"
        )
    over_time = pd.Series(numbers(measured, column), index=measured["time"]).dropna()
    over_time = over_time[~over_time.index.duplicated()]
    if len(over_time) and over_time.nunique() == 1:
        return float(over_time.iloc[0])
    return replace(_read_series(name, over_time), of_rows=True)


def require_overlap(name: str, table: Table, begin: float, last: float) -> None:
    """Refuse an input none of whose times lies in the experiment: its index is something else."""
    first, end = float(table.times[0]), float(table.times[-1])
    if len(table.times) > 1 and (end < begin or first > last):
        raise DataError(
            f"The Series of input '{name}' runs from time {first:g} to {end:g}, but the "
            f"experiment runs from {begin:g} to {last:g}. The index of the Series must hold the "
            "times, in the unit of the model's time. If these times are correct, use "
            "igpe.linear_input(times, values)."
        )


def evaluate(value: Input, time: float, *, before: bool = False) -> float:
    """The input's number at `time` (`before`: its limit from the left)."""
    if isinstance(value, Table):
        return value.at(just_before(time) if before and value.hold else time, before=before)
    if callable(value):
        return float(pyomo_value(value(just_before(time) if before else time)))
    return value


def just_before(time: float) -> float:
    """A time before any jump that lies at `time` up to rounding."""
    return float(time - SAME * np.spacing(abs(time)))


def just_after(time: float) -> float:
    """A time after any jump that lies at `time` up to rounding; after 0 no denormal number."""
    return float(time + SAME * np.spacing(max(abs(time), SMALLEST)))


def _read(name: str, value: Any, measured: pd.DataFrame | None) -> Input:
    if isinstance(value, pd.DataFrame):
        others = [c for c in value.columns if c != "time"]
        if "time" not in value.columns or not (name in others or len(others) == 1):
            raise DataError(
                f"The DataFrame of input '{name}' has the columns {list(value.columns)}; igpe "
                f"needs 'time' and '{name}'. Rename its columns, or give a Series over time: "
                f"frame.set_index('t')['{name}']."
            )
        value = value.set_index("time")[name if name in others else others[0]]
        return _of_rows(_read_series(name, value), measured)
    if isinstance(value, pd.Series):
        return _of_rows(_read_series(name, _over_time(name, value, measured)), measured)
    if isinstance(value, str) and measured is not None:
        return _column(name, value, measured)
    if isinstance(value, Table) or callable(value):
        return value  # type: ignore[no-any-return]
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"Input '{name}' is a {type(value).__name__}; expected a number, "
            "igpe.linear_input(times, values), igpe.step_input(times, values), a pandas Series "
            "over time, a DataFrame with a column 'time', or a function of time."
        ) from None
    if not np.isfinite(number):
        raise DataError(f"Input '{name}' is {number}; expected a finite value.")
    return number


def _of_rows(table: Table, measured: pd.DataFrame | None) -> Table:
    """The input, marked if it has the times of the experiment's own table."""
    times = () if measured is None else np.unique(numbers(measured, "time"))
    return replace(table, of_rows=np.array_equal(table.times, times))


def _over_time(
    name: str, series: "pd.Series[float]", measured: pd.DataFrame | None
) -> "pd.Series[float]":
    """The Series over times, where its index may hold row labels of the experiment's table.

    A Series numbered 0, 1, 2, ... holds labels if it has the name of one of the table's columns.
    Labels of one table are of one kind; numbers with decimals are times.
    """
    is_numbered, are_times = isinstance(series.index, pd.RangeIndex), False
    if measured is not None:
        labels, times = measured.index, measured["time"]
        by_name = is_numbered and series.name in measured.columns
        has_labels = by_name and bool(labels.isin(series.index).all())
        if series.index.equals(labels) and not pd.api.types.is_float_dtype(series.index):
            is_of_one_kind = is_numbered == isinstance(labels, pd.RangeIndex)
            has_labels, is_numbered = has_labels or is_of_one_kind, True
        has_labels &= series.index.is_unique
        if has_labels and not np.array_equal(labels, times):
            at_rows = pd.Series(series.loc[labels].to_numpy(), index=times)
            replicates_agree = (at_rows.groupby(level=0).nunique(dropna=False) <= 1).all()
            return at_rows[~at_rows.index.duplicated()] if replicates_agree else at_rows
        are_times = series.index.equals(pd.Index(times))
    if is_numbered and not are_times:
        raise DataError(
            f"The index of the Series of input '{name}' is 0, 1, 2, ..., so the times are "
            f"unknown. Give the times as its index: table.set_index('time')['{name}'], or use "
            "igpe.linear_input(times, values)."
        )
    return series


def _read_series(name: str, series: "pd.Series[float]") -> Table:
    try:
        if series.index.dtype.kind in "mM":  # pandas would count dates in microseconds
            raise ValueError(f"the index holds {series.index.dtype}")
        return linear_input(series.index.to_numpy(dtype=float), series.to_numpy(dtype=float))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"The Series of input '{name}' does not contain numbers ({error}). Its index must "
            "hold the times, in the unit of the model's time."
        ) from None
    except DataError as error:
        raise DataError(f"Input '{name}': {error}") from None


def _table(times: npt.ArrayLike, values: npt.ArrayLike, *, hold: bool) -> Table:
    try:
        t, v = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"This input table has entries that are not numbers ({error}). Remove or correct them."
        ) from None
    if t.ndim != 1 or t.shape != v.shape or len(t) == 0:
        raise DataError(
            f"The number of times in this input table is {t.size}, but the number of values is "
            f"{v.size}. Give one value for each time."
        )
    if not np.isfinite([t, v]).all():
        raise DataError(
            "This input table has NaN or infinite entries. Inputs must be known at all times: "
            "fill the gaps."
        )
    if len(falls := t[1:][np.diff(t) <= 0]):
        raise DataError(
            f"In this input table, the time {falls[0]:g} is not later than the time before it. "
            "Sort the times and remove duplicates (for jumps, use igpe.step_input)."
        )
    return Table(t, v, hold)
