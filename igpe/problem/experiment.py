"""One experiment: measurements over time, start values, inputs, and standard deviations."""

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import DataError
from igpe.core.markup import Suggesting, closest
from igpe.problem.card import experiment_html
from igpe.problem.events import Event, read_events
from igpe.problem.inputs import Input, InputValue, Table, read_inputs, require_overlap
from igpe.problem.losses import NormalPrior
from igpe.problem.measurements import read_measured
from igpe.problem.noise.correlated import Correlation
from igpe.problem.noise.sigma import (
    NoiseModel,
    Sigma,
    censored,
    deviation_slopes,
    deviations,
    error_models,
    estimated_sigma,
    is_unknown,
    sigma_columns,
)
from igpe.problem.spectra import Spectra, check_spectra
from igpe.problem.tables import (
    SOURCE,
    Data,
    experiment_name,
    experiments_in,
    read_table,
    renamed,
    rows_of,
)

_MAPPINGS = {"start", "inputs", "steady", "sigma", "units"}  # arguments of one experiment
EXAMPLES = {
    "start": "start={'A': 1.0, 'B': igpe.Unknown(0, 5)}",
    "inputs": "inputs={'feed': igpe.step_input(times, values)}",
    "units": "units={'A': 'mol/L'}",
    "columns": "columns={'t / h': 'time', 'c(A)': 'A'}",
}


def check_kinds(name: Any, only: Any, **mappings: Any) -> None:
    """Raise DataError unless the arguments of an experiment have the right kind."""
    if not isinstance(name, str):
        raise DataError(f"`name` is {shown(name)}; expected a string: name='run1'.")
    if mappings.get("start") == "steady":
        raise DataError(
            "`start` is 'steady'; expected a mapping. For a start at the steady state pass "
            "steady=True, and in `start` the values from which the model reaches it."
        )
    for role, given in mappings.items():
        require_mapping(role, given, EXAMPLES[role], DataError)
    if isinstance(only, str):
        raise DataError(f"only={only!r} is a string; expected a list of columns: only=[{only!r}].")
    if only is not None and not isinstance(only, Iterable):
        raise DataError(f"`only` is {shown(only)}; expected a list of columns: only=['A', 'B'].")


def _as_mapping(role: str, given: Any) -> Any:
    """A row of a table (a Series), or the names of input columns, as a mapping; else as it is."""
    is_list = role == "inputs" and isinstance(given, list | tuple)
    if is_list and all(isinstance(n, str) for n in given):
        return {n: n for n in given}
    if not isinstance(given, pd.Series):
        return given
    if twice := given.index[given.index.duplicated()].tolist():
        raise DataError(f"`{role}` has {twice} more than once. Keep one value of each.")
    return given.to_dict()


def start_time_of(times: FloatArray, given: float | None, *, at_rest: bool = False) -> float:
    """Return the start time of an experiment: as given, or the default if it is unambiguous.

    at_rest  whether it begins at a steady state, which lasts: any earlier time is one
    """
    first, last = float(times[0]), float(times[-1])
    begin = first - 1.0 if given is None and at_rest and first == last else given
    if begin is None:
        if last - first < first > 0:
            raise DataError(
                f"The measurements run from {first:g} to {last:g}; igpe does not know when the "
                f"experiment started. Pass start_time=0.0, or start_time={first:g}."
            )
        begin = min(first, 0.0)
    if not is_finite(begin) or begin > first:
        raise DataError(
            f"`start_time` is {shown(begin)}, but the first measurement is at {first:g}; expected "
            f"a finite number no greater than {first:g}."
        )
    if begin == last:
        raise DataError(
            f"All measurements are at {last:g}, the start of the experiment. Add later "
            "measurements, or pass an earlier start_time=..."
        )
    return float(begin)


@dataclass(frozen=True)
class Unknown(Suggesting):
    """A start value that igpe estimates.

    lower, upper  bounds of the start value, in the unit of the state
    guess         value at which a search may start; by default a value from the smoothed data, or
                  the middle of the bounds
    raises        DataError if the bounds are reversed or not finite, or if the guess lies outside
                  them
    """

    lower: float
    upper: float
    guess: float | None = None

    def __post_init__(self) -> None:
        if not (is_finite(self.lower, self.upper) and self.lower < self.upper):
            raise DataError(
                f"An unknown start value has bounds [{shown(self.lower)}, {shown(self.upper)}]; "
                "expected finite bounds with lower < upper. If the value is known, give a number."
            )
        g = self.guess
        if g is not None and not (is_finite(g) and self.lower <= g <= self.upper):
            raise DataError(
                f"The guess {shown(g)} of an unknown start value lies outside its bounds "
                f"[{self.lower:g}, {self.upper:g}]. Give a guess within the bounds, or omit it."
            )


REACH = 8.0  # deviations about the mean, to which a number known with an error is sought


@dataclass(frozen=True)
class Uncertain(Unknown):
    """An unknown that is known with an error: its bounds hold all that the prior leaves likely."""

    prior: NormalPrior = field(kw_only=True)

    @classmethod
    def of(cls, prior: NormalPrior) -> "Uncertain":
        """The unknown of a prior, within its limits."""
        near = (prior.mean - REACH * prior.deviation, prior.mean + REACH * prior.deviation)
        low, high = max(near[0], prior.lower), min(near[1], prior.upper)
        return cls(low, high, float(np.clip(prior.mean, low, high)), prior=prior)


Start: TypeAlias = float | str | Unknown | NormalPrior
"""A start value: a number (known), the name of a parameter, `Unknown` (estimated), or a
`NormalPrior`: known with an error, and estimated with that knowledge."""
StartProfile: TypeAlias = Callable[..., float] | Mapping[Any, float]
"""Start values of all members of an indexed variable by their indices, such as positions: a
function, or a mapping or Series, which is linear between positions."""


class Experiment(Suggesting):
    """The measurements and the conditions of one run.

    data        a DataFrame with a column `time` and one column for each measured quantity (NaN:
                missing), or the path of a CSV, Excel or Parquet file with such a table; None if
                only spectra were measured
    start       a dict {state: start value}; a start value is a number (known), the name of a
                parameter, `Unknown(lower, upper)` (estimated), or `igpe.losses.NormalPrior(mean,
                deviation)` (known with this standard deviation). Omit a state if the model gives
                its start value (by a fixed value or an equation). A value given here replaces that
                of the model. The name of an indexed variable stands for all its members: give it a
                number or a profile over the indices, as in {"c": 0.0}, {"c": lambda x: 1 - x} or
                {"c[:,A]": series}
    start_time  time to which the start values refer. The default is the first measured time if that
                is 0 or negative, otherwise 0. `start_time` is required if the first measured time
                is larger than the time span of the measurements. With steady=True and constant
                inputs, all measurements may be at one time
    inputs      a list of inputs that are columns of `data`: ["T"]; or a dict {input: values}. The
                values can be the name of a column of `data`, a number, `igpe.linear_input(...)`,
                `igpe.step_input(...)`, a function of time written with Pyomo's functions, a pandas
                Series whose index holds the times, or a DataFrame with a column `time`. igpe
                interpolates columns, Series and DataFrames linearly; for jumps, use
                `igpe.step_input(...)`. Give the times of inputs in the unit of the model's time;
                igpe converts only the times in the table `data`. A `NormalPrior` stands for a
                constant input whose value is uncertain; each experiment has its own value. A column
                that is an input is not a measurement
    events      a list of `Event` objects: doses, injections and other jumps of states, at known or
                unknown times or when a condition becomes true; for example [igpe.Event(at=2.0,
                add={"A": 10.0})]
    steady      True: the experiment starts at the steady state that the model reaches from `start`
                with the inputs at the start of the experiment. If inputs had other values before
                the start, give a dict {input: number}: {"feed": 0.0}. Before the start, only events
                with before=True happen
    sigma       standard deviations: a number or `Noise(absolute, relative)` for all columns; or a
                dict {column: value}, where the value is one of these, an array with one number for
                each row, or the name of the column that holds the standard deviations. Relative
                standard deviations refer to the predictions of the model, never to the
                measurements. Other possibilities: with `EstimatedSigma(name)`, the model computes
                the standard deviation, and igpe estimates the unknowns in it together with the
                others; `igpe.losses.LogNormal(deviation)` compares logarithms;
                `igpe.losses.Censored(deviation, below=limit)` allows values below a limit of
                detection. None: the standard deviations are unknown; if several quantities are
                measured, igpe weights each quantity in inverse proportion to the size of its
                residuals in all experiments (maximum likelihood). "equal": the standard deviations
                are unknown but equal for all columns
    correlation  correlation of the errors: `igpe.losses.Correlated({("A", "B"): 0.6})` between
                different quantities at the same time, or `igpe.losses.AR1(0.7)` between different
                times for the same quantity. If you omit the number, igpe estimates the
                correlation. Steps 1 and 3 treat the errors as independent in any case. None:
                independent errors
    units       a dict {measured column or "time": unit}, for example {"A": "mol/L"}; igpe converts
                the values to the model's units. Inputs need the model's units
    columns     a dict {column of the table: name that igpe uses for it}, where the name is a name
                in the model, `time` or `experiment`; for example {"t / h": "time", "c(A)": "A"}.
                Omitted columns keep their names
    only        a list of the measured columns to use; by default, all columns except `time`,
                `experiment`, inputs and standard deviations
    replicates  whether several rows of the table can have the same time
    spectra     `Spectra` of the same run, at the times of `data` or at other times
    raises      DataError for invalid data; the message names the invalid columns and rows
    """

    def __init__(
        self,
        data: Data | None = None,
        *,
        name: str = "",
        start: Mapping[str, Start | StartProfile] = MappingProxyType({}),
        start_time: float | None = None,
        inputs: Mapping[str, InputValue] | Iterable[str] = MappingProxyType({}),
        events: Iterable[Event] = (),
        steady: bool | Mapping[str, float] = False,
        sigma: Sigma = None,
        units: Mapping[str, str] = MappingProxyType({}),
        columns: Mapping[str, str] = MappingProxyType({}),
        only: Iterable[str] | None = None,
        replicates: bool = False,
        spectra: Spectra | None = None,
        correlation: Correlation | None = None,
    ) -> None:
        check_spectra(data, spectra)
        start, inputs, sigma = map(
            _as_mapping, ("start", "inputs", "sigma"), (start, inputs, sigma)
        )
        check_kinds(name, only, start=start, inputs=inputs, units=units, columns=columns)
        units = {n: str(u) if hasattr(u, "is_expression_type") else u for n, u in units.items()}
        given: Mapping[str, InputValue] = inputs  # type: ignore[assignment]
        nothing = pd.DataFrame({"time": pd.Series(dtype=float)})
        table = _of_one_run(renamed(read_table(nothing if data is None else data), columns))
        self._conditions: dict[str, Any] = {
            "name": name,
            "start": dict(start),
            "start_time": start_time,
            "sigma": dict(sigma) if isinstance(sigma, Mapping) else sigma,
            "units": units,
            "columns": dict(columns),
            "only": None if only is None else tuple(only),
            "replicates": replicates,
            "spectra": spectra,
            "correlation": correlation,
        }
        self.name, self.spectra = name, spectra
        self.start: Mapping[str, Start] = MappingProxyType(_read_start(start))
        self.units: Mapping[str, str] = MappingProxyType(units)
        times, chosen, self.measurements = read_measured(
            table, spectra, given, sigma, self._conditions
        )
        self._file = str(table.attrs.get(SOURCE, ""))
        self.error_models: Mapping[str, NoiseModel] = MappingProxyType(error_models(chosen, sigma))
        self.estimated_sigma: Mapping[str, str] = MappingProxyType(estimated_sigma(chosen, sigma))
        is_given = not is_unknown(sigma) or not chosen  # spectra have theirs
        self.sigma_known = is_given and not self.estimated_sigma
        self.weights_unknown, self.has_relative_sigma = sigma is None and bool(chosen), False
        lasting = steady is True and not events and _are_constant(given)
        self.start_time = start_time_of(times, start_time, at_rest=lasting)
        self.events = read_events(events, self.start_time)
        self.steady = read_steady(steady)
        self._conditions |= {"events": self.events, "steady": steady}
        self.uncertain_inputs = _uncertain(given)
        exact = {n: v for n, v in given.items() if n not in self.uncertain_inputs}
        self.inputs: Mapping[str, Input] = MappingProxyType(read_inputs(exact, table))
        self._input_columns = {n: v for n, v in given.items() if isinstance(v, str)}
        self._conditions["inputs"] = {  # other data have other rows
            n: self.inputs.get(n, v) for n, v in given.items()
        }
        for role, one in self.inputs.items():
            if isinstance(given[role], (pd.Series, pd.DataFrame)) and isinstance(one, Table):
                require_overlap(role, one, self.start_time, float(self.times[-1]))

    def __getstate__(self) -> dict[str, Any]:
        """What pickle and copy keep: pickle cannot read a mapping that is closed to changes."""
        state = self.__dict__.items()
        return {n: dict(v) if isinstance(v, MappingProxyType) else v for n, v in state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        closed = (
            *("start", "inputs", "uncertain_inputs"),
            *("units", "error_models", "estimated_sigma"),
        )
        self.__dict__.update(state | {n: MappingProxyType(state[n]) for n in closed})

    def with_data(
        self, data: Data, *, one_of_several: bool = False, sigma: Any = None
    ) -> "Experiment":
        """Return a copy of the experiment with other measurements.

        data            a table with the new measurements, or its path. Inputs that are columns of
                        the present table come from the new table if it has these columns;
                        otherwise these inputs do not change
        one_of_several  whether the table has a column `experiment`; if so, igpe uses only the rows
                        with the name of this experiment
        sigma           standard deviations of the new measurements, as for `Experiment`; None:
                        unchanged
        """
        columns = self._conditions["columns"]
        table = renamed(read_table(data), columns)
        rows = rows_of(table, self.name) if one_of_several else table
        own = {n: c for n, c in self._input_columns.items() if c in rows.columns}
        inputs = self._conditions["inputs"] | own
        other = {"name": self.name, "inputs": inputs} | ({} if sigma is None else {"sigma": sigma})
        made = experiment_of(rows, columns, {**self._conditions, **other})
        made._input_columns = self._input_columns
        return made

    def with_columns(self, table: pd.DataFrame) -> "Experiment":
        """Return a copy of the experiment with another table, for a model with more quantities.

        The copy has no spectra, and all its standard deviations are 1.

        table  table of measurements, with the column names and units of the model
        """
        unused = dict.fromkeys(("spectra", "only", "correlation"))
        held: dict[str, Any] = {"inputs": dict(self.inputs), "units": {}, "columns": {}}
        held["sigma"] = 1.0
        held |= {"name": self.name, "start": dict(self.start), "start_time": self.start_time}
        return Experiment(table, **{**self._conditions, **unused, **held})

    def where(self, kept: BoolArray) -> "Experiment":
        """Return a copy with only those measurements for which `kept` (n,) is True."""
        held = copy(self)
        held.measurements, held._file = self.measurements.where(kept), ""
        return held

    def weighted(
        self,
        sigma: FloatArray | None,
        *,
        relative: bool = False,
        correlation: Correlation | None = None,
    ) -> "Experiment":
        """Return a copy with numeric standard deviations (n,), in the order of the measurements.

        sigma        standard deviations; None leaves them unchanged
        relative     whether only the ratios of the standard deviations are known
        correlation  correlation of the errors; None leaves it unchanged
        """
        held = copy(self)
        if correlation is not None:
            held.measurements = replace(held.measurements, correlation=correlation)
        if sigma is None:
            return held
        held.measurements = replace(held.measurements, sigma=sigma)
        held.sigma_known, held.has_relative_sigma = not relative, relative
        held.error_models, held.weights_unknown = MappingProxyType({}), False
        held.estimated_sigma = MappingProxyType({})
        return held

    def sigma_at(self, predicted: FloatArray) -> FloatArray:
        """Return the standard deviations (n,) at the predictions (n,), in the order of the
        measurements."""
        m = self.measurements
        models = {m.names.index(n): model for n, model in self.error_models.items()}
        return deviations(models, m.column, m.value, predicted, m.sigma)

    def sigma_slope_at(self, predicted: FloatArray) -> FloatArray:
        """Return the derivatives (n,) of `sigma_at` with respect to the predictions."""
        m = self.measurements
        models = {m.names.index(n): model for n, model in self.error_models.items()}
        return deviation_slopes(models, m.column, m.value, predicted)

    def at_rest(self) -> "Experiment":
        """Return the phase before this experiment, in which the model reaches a steady state.

        The phase is an experiment with its own inputs and events.
        """
        rested = copy(self)
        first = {
            n: v.at(self.start_time) if isinstance(v, Table) else v for n, v in self.inputs.items()
        }
        rested.inputs = MappingProxyType({**first, **(self.steady or {})})
        rested.events, rested.steady = tuple(e for e in self.events if e.before), None
        return rested

    @property
    def times(self) -> FloatArray:
        """(n_times,) distinct times of the measurements and spectra, in increasing order."""
        return self.measurements.times

    @property
    def columns(self) -> Mapping[str, str]:
        """Map each renamed column of the table to its name in the model."""
        return MappingProxyType(self._conditions["columns"])

    @property
    def sigma_columns(self) -> frozenset[str]:
        """Columns of the table that hold standard deviations."""
        return frozenset(sigma_columns(self._conditions["sigma"]))

    @property
    def limited(self) -> frozenset[str]:
        """Measured columns with a limit of detection (`igpe.losses.Censored`)."""
        return frozenset(censored(list(self.measured), self._conditions["sigma"]))

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the measured columns."""
        return self.measurements.names

    def only_reports(self, name: str) -> bool:
        """Return True if a column has no measured values, because it is a species of spectra, was
        added by `reporting`, or all its values are below a limit of detection."""
        m = self.measurements.known
        return m.names.index(name) not in m.column

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model's outputs: measured columns, then estimated standard deviations."""
        return tuple(dict.fromkeys((*self.measured, *self.estimated_sigma.values())))

    @property
    def source(self) -> str:
        """Name and SHA-256 of the data file; for a DataFrame, the SHA-256 of its values.

        The checksum covers the table as CSV text, followed by the times, wavelengths and values of
        any spectra as eight-byte numbers.
        """
        if self._file:
            return self._file
        m = self.measurements
        names = np.array(m.names, dtype=object)[m.column]
        columns = {"time": m.times[m.row], "name": names, "value": m.value}
        columns |= {} if m.censored is None else {"censored": m.censored}
        text = pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")
        seen = sha256(text.encode())
        if (one := self.spectra) is not None:  # as text they would take seconds
            for part in (one.times, one.wavelengths, one.values):
                seen.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
        return f"table of measurements, SHA-256 {seen.hexdigest()}"

    def reporting(self, names: Iterable[str]) -> "Experiment":
        """Return a copy with additional columns that have no measurements."""
        renamed = copy(self)
        columns = tuple(dict.fromkeys((*self.measured, *names)))
        renamed.measurements = replace(self.measurements, names=columns)
        return renamed

    def table(self) -> pd.DataFrame:
        """Measurements, one column per quantity, indexed by time; replicates are averaged."""
        m = self.measurements.known
        keys = [pd.Index(m.times[m.row], name="time"), pd.Index(np.array(m.names)[m.column])]
        means = pd.Series(m.value).groupby(keys).mean()
        return means.unstack().reindex(columns=pd.Index(m.names, name="name"))

    def _repr_html_(self) -> str:
        return experiment_html(self)

    def __repr__(self) -> str:
        return (
            f"Experiment({self.name or 'unnamed'}: {len(self.measurements.value)} measurements of "
            f"{', '.join(self.measured)} at {len(self.times)} times from {self.times[0]:g} "
            f"to {self.times[-1]:g}{'' if self.spectra is None else f'; {self.spectra!r}'})"
        )


def read_experiments(
    data: Data, *, columns: Mapping[str, str] = MappingProxyType({}), **conditions: Any
) -> list[Experiment]:
    """Return one `Experiment` for each value in the table's column `experiment`.

    data        DataFrame or path, as for `Experiment`, with a column `experiment`
    columns     as for `Experiment`, for example {"Run": "experiment", "t / h": "time"}
    conditions  other arguments of `Experiment`; to give each experiment its own value, pass a dict
                whose keys are the names of all experiments: start={"run1": {...}, "run2": {...}}
    raises      DataError if the table has no column `experiment`, or if such a dict lacks one of
                its experiments
    """
    check_kinds("", None, columns=columns)
    table = renamed(read_table(data), columns)
    names = [str(name) for name in experiments_in(table).unique()]
    owns = [{k: own_of(k, v, names, name) for k, v in conditions.items()} for name in names]
    experiments = []
    for name, own in zip(names, owns, strict=True):
        rows = rows_of(table, name)
        gone = set(table.columns) - set(rows.columns)
        if "units" in own:
            own["units"] = {n: unit for n, unit in own["units"].items() if n not in gone}
        if own.get("only") is not None and not isinstance(own["only"], str):
            own["only"] = [n for n in own["only"] if n not in gone]
        experiments.append(experiment_of(rows, columns, own | {"name": name}))
    return experiments


def experiment_of(
    table: pd.DataFrame, columns: Mapping[str, str], conditions: Mapping[str, Any]
) -> Experiment:
    """Return an experiment for a table that already has the names of the model.

    columns     column of tables with other measurements -> its name in the model
    conditions  arguments of `Experiment`
    """
    made = Experiment(table, **{**conditions, "columns": {}})
    made._conditions["columns"] = dict(columns)  # other measurements may come without them
    return made


def own_of(key: str, value: Any, names: Collection[str], name: str) -> Any:
    """The value of an argument for one of several experiments, which may each have its own.

    raises DataError for a dict that has not the names of all experiments, and cannot be the value
           of each of them
    """
    if not isinstance(value, Mapping) or not names:
        return value
    own = {experiment_name(n): v for n, v in value.items()}
    nested = all(isinstance(v, Mapping | list) for v in own.values())
    if own.keys() == {*names} and (nested or key != "start"):
        return own[name]
    if key in _MAPPINGS and not (nested and own.keys() & {*names}):
        return value
    if unknown := [n for n in own if n not in names]:
        raise DataError(
            f"`{key}` has an entry for '{unknown[0]}', but the table has no experiment "
            f"'{unknown[0]}'; it has {[*names]}.{closest(unknown[0], names)}"
        )
    missing = next(n for n in names if n not in own)
    raise DataError(
        f"`{key}` has no entry for experiment '{missing}'. Give one for each of {[*names]}."
    )


def _are_constant(inputs: Mapping[str, Any]) -> bool:
    """Whether no input changes with time; a column has one value where all is at one time."""
    return all(isinstance(given, (int, float, str, NormalPrior)) for given in inputs.values())


def _uncertain(inputs: Mapping[str, Any]) -> Mapping[str, Uncertain]:
    """The inputs that are known with an error."""
    known = {n: Uncertain.of(v) for n, v in inputs.items() if isinstance(v, NormalPrior)}
    return MappingProxyType(known)


def _of_one_run(table: pd.DataFrame) -> pd.DataFrame:
    if "experiment" in table.columns and table["experiment"].nunique() > 1:
        raise DataError(
            f"The table contains several experiments, {list(experiments_in(table).unique())}. "
            "Use igpe.read_experiments(table, ...) instead."
        )
    return table


def _read_start(start: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in start.items():
        is_profile = callable(value) or isinstance(value, (Mapping, pd.Series))
        if not (is_profile or isinstance(value, (str, Unknown, NormalPrior)) or is_finite(value)):
            raise DataError(
                f"The start value of '{name}' is {value!r}; expected a finite number, the name of "
                "a parameter or igpe.Unknown(lower, upper). For all members of an indexed "
                "variable, pass a function of the indices, or a Series indexed by them."
            )
    read: dict[str, Any] = {
        n: Uncertain.of(v) if isinstance(v, NormalPrior) else v for n, v in start.items()
    }
    return {n: float(v) if is_finite(v) else v for n, v in read.items()}


def read_steady(given: Any) -> Mapping[str, float] | None:
    """Inputs that differ before a steady-state start; None if the start is not steady.

    raises DataError for anything but a flag or numbers by name
    """
    if isinstance(given, bool):
        return {} if given else None
    example = "steady={'feed': 0.0}; or steady=True to use the inputs at the experiment's start"
    require_mapping("steady", given, example, DataError)
    if lost := {n: v for n, v in given.items() if not is_finite(v)}:
        raise DataError(
            f"`steady` contains {lost}; expected a finite number for each input, for example "
            f"{example}."
        )
    return {n: float(v) for n, v in given.items()}
