"""Plans as plain data: settings, sampling times, predicted trajectories and errors; no model."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError, ProblemError
from igpe.core.json_form import Columns, Stored, made, restored
from igpe.core.markup import bullets
from igpe.planning.information import AOptimal, Criterion, DOptimal, EOptimal, ModifiedE
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table, linear_input, step_input
from igpe.problem.noise.estimated import EstimatedSigma
from igpe.problem.noise.sigma import Deviation, NoiseModel
from igpe.problem.tables import Data, read_table, rows_of
from igpe.results.plots.uncertainty import plot_plan
from igpe.results.result_data import number


@dataclass(frozen=True)
class PlannedExperiment:
    """One planned experiment.

    settings    name -> number that was chosen, as in `Plan.settings`
    start, inputs, start_time  as for `Experiment`
    times       (n,) when to sample;  measured: what to measure in each sample
    """

    name: str
    settings: Mapping[str, float]
    start: Mapping[str, Any]
    inputs: Mapping[str, Any]
    start_time: float
    times: FloatArray
    measured: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """In types that JSON knows; functions of time by their name."""
        return {
            "name": self.name,
            "settings": dict(self.settings),
            "start": {n: _stored_experiment(v) for n, v in self.start.items()},
            "start_time": self.start_time,
            "inputs": {n: _stored_experiment(v) for n, v in self.inputs.items()},
            "times": self.times.tolist(),
            "measured": list(self.measured),
        }

    @classmethod
    def from_dict(
        cls, stored: Mapping[str, Any], functions: Mapping[str, Callable[[Any], Any]]
    ) -> "PlannedExperiment":
        """The experiment that `to_dict` stored.

        functions  input -> the function of time that it is, of which only the name is stored
        raises     DataError if one is missing
        """
        inputs = {n: _restored_input(v) for n, v in stored["inputs"].items()}
        missing = {n: v.name for n, v in inputs.items() if isinstance(v, _Named)}
        inputs |= {n: functions[n] for n in missing if n in functions}
        lost = {n: name for n, name in missing.items() if n not in functions}
        if lost:
            raise DataError(
                f"In '{stored['name']}' the inputs {sorted(lost)} are functions of time, of which "
                f"only the names {sorted(lost.values())} are stored; give them again: "
                f"Plan.from_json(..., functions={{{next(iter(lost))!r}: ...}})."
            )
        return cls(
            name=stored["name"],
            settings=stored["settings"],
            start={n: _restored_input(v) for n, v in stored["start"].items()},
            inputs=inputs,
            start_time=stored["start_time"],
            times=np.array(stored["times"], dtype=float),
            measured=tuple(stored["measured"]),
        )


@dataclass(frozen=True)
class _Named:
    """A function of which only the name is known."""

    name: str


def _stored_experiment(given: Any) -> Any:
    if isinstance(given, Table):
        kind = "steps" if given.hold else "linear"
        return {kind: {"times": given.times.tolist(), "values": given.values.tolist()}}
    if isinstance(given, Unknown):
        return {"unknown": {"lower": given.lower, "upper": given.upper, "guess": given.guess}}
    if callable(given):
        return {"function": getattr(given, "__name__", "a function of time")}
    return given


def _restored_input(stored: Any) -> Any:
    """Undo `_stored_experiment`; a guess that is not given was restored as NaN."""
    if not isinstance(stored, Mapping):
        return stored
    (kind,) = stored
    held = stored[kind]
    if kind == "unknown":
        guess = None if np.isnan(held["guess"]) else held["guess"]
        return Unknown(held["lower"], held["upper"], guess)
    if kind == "function":
        return _Named(held)
    make = step_input if kind == "steps" else linear_input
    return make(held["times"], held["values"])


NONE: Mapping[str, Any] = MappingProxyType({})
CRITERIA = {c.__name__: c for c in (DOptimal, AOptimal, EOptimal, ModifiedE)}
PROVEN = 0.9999  # an efficiency as high is called the best


ERRORS = Columns(("name", "unit"), ("value", "before", "after", "ratio"), key="name")
COURSES = Columns(("experiment", "name"), ("time", "predicted", "sigma"))


@dataclass(frozen=True)
class Plan(Stored, name="plan", number=2):
    """Planned experiments, and the linearised errors of the unknowns before and after them.

    experiments  what to do
    bounds       setting -> its bounds
    errors       indexed by unknown: value, unit, before, after (standard errors), ratio
    covariance   (n, n) after the planned experiments, of the unknowns in `errors`
    covariance_before  (n, n); infinite in rows of what is not determined
    criterion    that was asked for;  before, after: exp(-Φ/2), a relative error (`criteria.py`)
    efficiency   of the chosen samples: at least so much of what the best choice would tell, with
                 the same settings; 1 where nothing was to be chosen, NaN where nothing is proven
    courses      experiment, name, time, predicted, sigma on a fine grid
    sigma_known  whether standard deviations were given; if residuals told them, planned
                 experiments carry none, like those of the problem
    starts       exp(-Φ/2) of the local searches, best first
    seed         of the random experiments;  notes: sentences worth reading
    deviations   measured quantity -> its error model, where standard deviations follow the model or
                 are estimated; the planned experiments carry it
    """

    experiments: tuple[PlannedExperiment, ...]
    bounds: Mapping[str, tuple[float, float]]
    errors: Annotated[pd.DataFrame, ERRORS]
    covariance: FloatArray
    covariance_before: FloatArray
    criterion: Criterion
    before: float
    after: float
    efficiency: float
    courses: Annotated[pd.DataFrame, COURSES] = field(repr=False)
    sigma_known: bool = True
    starts: tuple[float, ...] = ()
    seed: int = 0
    notes: tuple[str, ...] = ()
    deviations: Mapping[str, Deviation] = field(default_factory=dict)

    @property
    def settings(self) -> pd.DataFrame:
        """What to set: one row for each number, one column for each experiment, and the bounds."""
        table = pd.DataFrame({e.name: pd.Series(e.settings) for e in self.experiments})
        table["lower"] = [self.bounds[n][0] for n in table.index]
        table["upper"] = [self.bounds[n][1] for n in table.index]
        return table

    def table(self) -> pd.DataFrame:
        """The sheet for the laboratory: experiment, time, and an empty column for each quantity."""
        sheets = [
            pd.DataFrame(
                {"experiment": e.name, "time": e.times} | dict.fromkeys(e.measured, np.nan)
            )
            for e in self.experiments
        ]
        return pd.concat(sheets, ignore_index=True)

    def simulated(self, seed: int) -> pd.DataFrame:
        """`table` filled with what would be measured if model and parameters were right."""
        random = np.random.default_rng(seed)
        filled = self.table()
        for e in self.experiments:
            mine = filled["experiment"] == e.name
            for name in e.measured:
                value, sigma = (
                    _course(self.courses, e.name, name, e.times, c) for c in ("predicted", "sigma")
                )
                filled.loc[mine, name] = value + sigma * random.standard_normal(len(value))
        return filled

    def experiment(self, which: int | str, data: Data) -> Experiment:
        """The experiment with what was measured, ready for `igpe.Problem`.

        which   its number, from 0, or its name
        data    a table or its path with the columns of `table`; `experiment` may be missing
        raises  ProblemError if there is no such experiment, DataError if the table does not fit
        """
        planned = self._planned(which)
        table = read_table(data)
        rows = rows_of(table, planned.name) if "experiment" in table.columns else table
        measured = [n for n in planned.measured if n in rows.columns]
        sigma = {n: self.deviations.get(n, self._sigma(planned, n, rows)) for n in measured}
        return Experiment(
            rows,
            name=planned.name,
            start=planned.start,
            start_time=planned.start_time,
            inputs=planned.inputs,
            sigma=sigma if self.sigma_known else None,
            only=measured,
            replicates=len(np.unique(planned.times)) < len(planned.times),
        )

    @property
    def sentence(self) -> str:
        """The criterion before and after, and what is proven of the samples."""
        said = (
            f"{type(self.criterion).__name__}: {self.criterion.meaning}, "
            f"{self._shown(self.before)} before, {self._shown(self.after)} after the planned "
            f"experiment{'s' * (len(self.experiments) > 1)}."
        )
        if math.isnan(self.efficiency):
            return f"{said} Nothing is proven of the choice of samples."
        most = (
            "more"
            if self.efficiency > PROVEN
            else f"more than {1 / self.efficiency:.4g} times as much"
        )
        return (
            f"{said} With these settings no other allowed choice of samples tells {most} "
            "(equivalence theorem)."
        )

    def plot(self, axes: Any = None) -> Any:
        """Inputs, predicted courses with the samples, errors before and after; returns axes."""
        return plot_plan(self.experiments, self.courses, self.errors, axes)

    def entries(self) -> dict[str, Any]:
        """The fields; inputs that are functions of time by their name."""
        return super().entries() | {
            "criterion": type(self.criterion).__name__,
            "of": self.criterion.of,
            "sentence": self.sentence,
            "experiments": [e.to_dict() for e in self.experiments],
            "deviations": {n: _stored_plan(d) for n, d in self.deviations.items()},
        }

    @classmethod
    def from_json(
        cls, source: str | Path, *, functions: Mapping[str, Callable[[Any], Any]] = NONE
    ) -> "Plan":
        """The plan that `to_json` wrote, from its text or from the path of its file.

        functions  input -> the function of time that it is: of these only names are stored
        raises     DataError if there is no such file, it holds no plan of this form, or a
                   function is missing
        """
        return cls.from_dict({**cls.form().read(source), "functions": functions})

    @classmethod
    def of_entries(cls, stored: Mapping[str, Any]) -> "Plan":
        """Undo `entries`; `functions` beside them are those that stored names stand for."""
        if stored["criterion"] not in CRITERIA:
            raise DataError(
                f"The stored plan has the criterion {stored['criterion']!r}; plans can be read "
                f"with one of {list(CRITERIA)}."
            )
        functions = stored.get("functions", NONE)
        experiments = restored(stored["experiments"])
        deviations = restored(stored.get("deviations", {}))
        criterion = CRITERIA[stored["criterion"]](tuple(restored(stored["of"])))
        special = {
            "experiments": tuple(PlannedExperiment.from_dict(e, functions) for e in experiments),
            "criterion": criterion,
            "deviations": {n: _restored(d) for n, d in deviations.items()},
        }
        return made(cls, stored, special)

    @property
    def _samples(self) -> list[str]:
        return [
            f"{e.name}: measure {', '.join(e.measured)} at {', '.join(f'{t:g}' for t in e.times)}"
            for e in self.experiments
        ]

    def __str__(self) -> str:
        settings = [self.settings.to_string(float_format=number), ""] if self.bounds else []
        errors = self.errors.to_string(float_format=number)
        return "\n".join([*settings, *self._samples, "", errors, "", self.sentence, *self.notes])

    def _repr_html_(self) -> str:
        shown = (self.settings, self.errors) if self.bounds else (self.errors,)
        tables = "".join(str(t.to_html(float_format=number)) for t in shown)
        return tables + bullets((*self._samples, self.sentence, *self.notes))

    def _shown(self, value: float) -> str:
        return number(value) if value > 1 else f"{100 * value:.3g} %"

    def _planned(self, which: int | str) -> PlannedExperiment:
        names = [e.name for e in self.experiments]
        if which in names:
            return self.experiments[names.index(str(which))]
        if isinstance(which, int) and 0 <= which < len(names):
            return self.experiments[which]
        raise ProblemError(
            f"The plan has no experiment {which!r}; it has {names}, or 0 to {len(names) - 1}."
        )

    def _sigma(self, planned: PlannedExperiment, name: str, rows: pd.DataFrame) -> FloatArray:
        """(n_rows,) of the predicted course: measured values would give small ones more weight."""
        at = rows["time"].to_numpy(dtype=float) if "time" in rows.columns else np.zeros(len(rows))
        return _course(self.courses, planned.name, name, at, "sigma")


def _stored_plan(deviation: Deviation) -> dict[str, Any]:
    return {"model": type(deviation).__name__, **asdict(deviation)}


def _restored(stored: Mapping[str, Any]) -> Deviation:
    kinds: list[Any] = [EstimatedSigma, *NoiseModel.__subclasses__()]
    known = {kind.__name__: kind for kind in kinds}
    made: Deviation = known[stored["model"]](**{n: v for n, v in stored.items() if n != "model"})
    return made


def _course(
    courses: pd.DataFrame, experiment: str, name: str, times: FloatArray, column: str
) -> FloatArray:
    here = courses[(courses["experiment"] == experiment) & (courses["name"] == name)]
    return np.asarray(np.interp(times, here["time"], here[column]))
