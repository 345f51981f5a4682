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
from igpe.core.markup import Rows, Shown, frame_rows, in_words, number
from igpe.planning.information import AOptimal, Criterion, DOptimal, EOptimal, ModifiedE
from igpe.problem.experiment import Experiment, Uncertain, Unknown
from igpe.problem.inputs import Table, linear_input, step_input
from igpe.problem.losses import NormalPrior
from igpe.problem.noise.sigma import Deviation, EstimatedSigma, NoiseModel
from igpe.problem.tables import Data, numbers, read_table, rows_of
from igpe.results.plots.axes import Plot
from igpe.results.plots.uncertainty import plot_plan


@dataclass(frozen=True)
class PlannedExperiment:
    """One planned experiment.

    settings    a dict {name: chosen value}, as in `Plan.settings`
    start, inputs, start_time  as for `Experiment`
    times       (n,) times of the samples; measured: names of the quantities to measure in each
                sample
    """

    name: str
    settings: Mapping[str, float]
    start: Mapping[str, Any]
    inputs: Mapping[str, Any]
    start_time: float
    times: FloatArray
    measured: tuple[str, ...]

    def entries(self) -> dict[str, Any]:
        """Return the fields; functions of time are stored by name."""
        held = {k: {n: _stored(v) for n, v in vars(self)[k].items()} for k in ("start", "inputs")}
        return vars(self) | held

    @classmethod
    def of_entries(
        cls, stored: Mapping[str, Any], functions: Mapping[str, Callable[[Any], Any]]
    ) -> "PlannedExperiment":
        """Recreate a planned experiment from its stored entries.

        functions  a dict {input: function of time}; only the names of the functions are stored
        raises     DataError if one is missing
        """
        start, inputs = (
            {n: _setting(v) for n, v in stored[k].items()} for k in ("start", "inputs")
        )
        lost = {n: v for n, v in inputs.items() if isinstance(v, _Named) and n not in functions}
        if lost:
            raise DataError(
                f"In '{stored['name']}' the inputs {sorted(lost)} are functions of time, and only "
                f"the names of these functions are stored: {sorted(lost.values())}. Pass the "
                f"functions again: Plan.from_json(..., functions={{{next(iter(lost))!r}: ...}})."
            )
        inputs = {n: functions[n] if isinstance(v, _Named) else v for n, v in inputs.items()}
        return made(cls, stored, {"start": start, "inputs": inputs})


class _Named(str):
    """The name of a function, which is all that is known of it."""


def _stored(given: Any) -> Any:
    if isinstance(given, Table):
        kind = "steps" if given.hold else "linear"
        return {kind: {"times": given.times, "values": given.values}}
    if isinstance(given, Uncertain):
        return {"prior": asdict(given.prior)}
    if isinstance(given, Unknown):
        return {"unknown": {"lower": given.lower, "upper": given.upper, "guess": given.guess}}
    if callable(given):
        return {"function": getattr(given, "__name__", "a function of time")}
    return given


def _setting(stored: Any) -> Any:
    """Undo `_stored`; a guess that is not given was restored as NaN."""
    if not isinstance(stored, Mapping):
        return stored
    ((kind, held),) = stored.items()
    if kind == "prior":
        return Uncertain.of(NormalPrior(**held))
    if kind == "unknown":
        guess = None if np.isnan(held["guess"]) else held["guess"]
        return Unknown(held["lower"], held["upper"], guess)
    if kind == "function":
        return _Named(held)
    return (step_input if kind == "steps" else linear_input)(held["times"], held["values"])


class LaboratoryPlan:
    """Base of plans: planned experiments with their settings and tables for the laboratory.

    courses  table with the columns `experiment`, `name`, `time`, `predicted` and `sigma`
    """

    experiments: tuple[PlannedExperiment, ...]
    bounds: Mapping[str, tuple[float, float]]
    courses: pd.DataFrame
    sigma_known: bool
    deviations: Mapping[str, Deviation]

    @property
    def settings(self) -> pd.DataFrame:
        """Table of all settings and their bounds, with one column for each experiment."""
        table = pd.DataFrame({e.name: pd.Series(e.settings) for e in self.experiments})
        table["lower"] = [self.bounds[n][0] for n in table.index]
        table["upper"] = [self.bounds[n][1] for n in table.index]
        return table

    def table(self) -> pd.DataFrame:
        """Return a table for the laboratory, with an empty column for each measured quantity."""
        columns = [{"experiment": e.name, "time": e.times} for e in self.experiments]
        empty = [dict.fromkeys(e.measured, np.nan) for e in self.experiments]
        sheets = [pd.DataFrame(c | e) for c, e in zip(columns, empty, strict=True)]
        return pd.concat(sheets, ignore_index=True)

    def experiment(self, which: int | str, data: Data) -> Experiment:
        """Return a planned experiment with its measurements, for use in `igpe.Problem`.

        which   number of the experiment (starting from 0), or its name
        data    a table, or its path, with the columns of `table`; the column `experiment` may be
                missing
        raises  ProblemError if there is no such experiment, DataError if the table does not fit the
                problem
        """
        names = [e.name for e in self.experiments]
        k = names.index(which) if isinstance(which, str) and which in names else which
        if not (isinstance(k, int) and 0 <= k < len(names)):
            raise ProblemError(
                f"The plan has no experiment {which!r}; give one of the names {names}, or a number "
                f"from 0 to {len(names) - 1}."
            )
        planned = self.experiments[k]
        table = read_table(data)
        rows = rows_of(table, planned.name) if "experiment" in table.columns else table
        measured = [n for n in planned.measured if n in rows.columns]
        if not measured:
            raise DataError(
                f"The table has no values of {in_words(planned.measured)} in '{planned.name}'. "
                "Fill in the empty columns of table()."
            )
        at = numbers(rows, "time") if "time" in rows.columns else np.zeros(len(rows))
        # of the predicted trajectory: measured values would give small ones more weight
        predicted = {n: _interpolated(self.courses, planned, n, at, "sigma") for n in measured}
        sigma = {n: self.deviations.get(n, predicted[n]) for n in measured}
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
    def _samples(self) -> list[str]:
        return [
            f"{e.name}: measure {', '.join(e.measured)} at {', '.join(f'{t:g}' for t in e.times)}"
            for e in self.experiments
        ]

    def _simulated(self, courses: pd.DataFrame, seed: int) -> pd.DataFrame:
        random = np.random.default_rng(seed)
        filled = self.table()
        for e in self.experiments:
            rows = filled["experiment"] == e.name
            for name in e.measured:
                value, sigma = (
                    _interpolated(courses, e, name, e.times, c) for c in ("predicted", "sigma")
                )
                filled.loc[rows, name] = value + sigma * random.standard_normal(len(value))
        return filled


def _interpolated(
    courses: pd.DataFrame, planned: PlannedExperiment, name: str, times: FloatArray, column: str
) -> FloatArray:
    """(n_times,) a column of the predicted trajectory of a quantity."""
    rows = courses[(courses["experiment"] == planned.name) & (courses["name"] == name)]
    return np.asarray(np.interp(times, rows["time"], rows[column]))


NONE: Mapping[str, Any] = MappingProxyType({})
CRITERIA = {c.__name__: c for c in (DOptimal, AOptimal, EOptimal, ModifiedE)}
PROVEN = 0.9999  # an efficiency as high is called the best
ERRORS = Columns(("name", "unit"), ("value", "before", "after", "ratio"), key="name")
WEIGHTS = Columns(("experiment", "name"), ("time", "weight"))
COURSES = Columns(("experiment", "name"), ("time", "predicted", "sigma"))


@dataclass(frozen=True, repr=False)
class Plan(LaboratoryPlan, Shown, Stored, name="plan", number=2):
    """Planned experiments, and the linearised errors of the unknowns before and after them.

    experiments  the planned experiments
    bounds       a dict {free setting: its bounds}
    errors       table indexed by unknown, with own unknowns of planned experiments only where the
                 criterion looks at them, and with the columns `value`, `unit`, `before` and `after`
                 (standard errors before and after the planned experiments), and `ratio` (`before`
                 divided by `after`)
    covariance   (n, n) covariance of the unknowns in `errors`, after the planned experiments
    covariance_before  (n, n) covariance before these experiments; infinite in rows of undetermined
                       unknowns
    criterion    the requested criterion
    before, after  the value of exp(-Φ/2), a relative error, before and after the planned
                 experiments
    efficiency   proved lower bound on a ratio: the information of the chosen samples, divided by
                 the information of the best choice with the same settings. 1 if there was nothing
                 to choose, NaN if there is no proof
    courses      table of the predictions on a fine grid, with the columns `experiment`, `name`,
                 `time`, `predicted` and `sigma`
    sigma_known  whether standard deviations were given; if not, igpe estimates them from residuals,
                 and the planned experiments contain no standard deviations
    starts       values of exp(-Φ/2) that the local searches reached, best first
    seed         seed of the random experiments
    weights      table of the best continuous design with the same settings, in which the numbers
                 of samples need not be integers. The columns are `experiment`, `time`, `name` and
                 `weight` (how often this sample is taken). Empty for the criterion `ModifiedE`
    notes        remarks for the user
    units        units of inputs, measured quantities and "time", if they are known
    deviations   a dict {measured quantity: its error model}, if standard deviations depend on the
                 model or are estimated; the planned experiments use these error models
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
    units: Mapping[str, str] = field(default_factory=dict)
    weights: Annotated[pd.DataFrame, WEIGHTS] = field(
        default_factory=lambda: WEIGHTS.table({n: [] for c in WEIGHTS[:2] for n in c}), repr=False
    )

    def simulated(self, seed: int) -> pd.DataFrame:
        """Return `table` with measurements simulated at the assumed parameter values."""
        return self._simulated(self.courses, seed)

    @property
    def sentence(self) -> str:
        """State the criterion before and after the plan, and what is proved about the samples."""
        ends = [number(v) if v > 1 else f"{100 * v:.3g} %" for v in (self.before, self.after)]
        text = (
            f"{type(self.criterion).__name__}: {self.criterion.meaning}, {ends[0]} before, "
            f"{ends[1]} after the planned experiment{'s' * (len(self.experiments) > 1)}."
        )
        if math.isnan(self.efficiency):
            return f"{text} igpe has no proof of how close these samples are to the best choice."
        more = f" by more than {100 * (1 / self.efficiency - 1):.2g} %"
        return (
            f"{text} With these settings, no other allowed choice of samples is "
            f"better{'' if self.efficiency > PROVEN else more} (equivalence theorem)."
        )

    def plot(self, axes: Any = None) -> Plot:
        """Plot the inputs, the predicted trajectories with the samples, and the errors."""
        return plot_plan(self.experiments, self.courses, self.errors, axes, units=self.units)

    def entries(self) -> dict[str, Any]:
        """Return the stored fields; inputs that are functions of time are stored by name."""
        return super().entries() | {
            "criterion": type(self.criterion).__name__,
            "of": self.criterion.of,
            "sentence": self.sentence,
            "experiments": [e.entries() for e in self.experiments],
            "deviations": {
                n: {"model": type(d).__name__, **asdict(d)} for n, d in self.deviations.items()
            },
        }

    @classmethod
    def from_json(
        cls, source: str | Path, *, functions: Mapping[str, Callable[[Any], Any]] = NONE
    ) -> "Plan":
        """Read a plan that `to_json` wrote, from the text or from the path of the file.

        functions  a dict {input: function of time}; the file contains only the names of the
                   functions
        raises     DataError if there is no such file, if it contains no plan of this format, or if
                   a function is missing
        """
        return cls.from_dict({**cls.form().read(source), "functions": functions})

    @classmethod
    def of_entries(cls, stored: Mapping[str, Any]) -> "Plan":
        """Recreate a plan from its stored entries; `stored["functions"]` contains its functions of
        time."""
        if stored["criterion"] not in CRITERIA:
            raise DataError(
                f"The stored plan has the criterion {stored['criterion']!r}; igpe can read plans "
                f"only with one of the criteria {list(CRITERIA)}."
            )
        kinds: list[Any] = [EstimatedSigma, *NoiseModel.__subclasses__()]
        known = {kind.__name__: kind for kind in kinds}
        deviations = restored(stored.get("deviations", {}))
        special = {
            "experiments": tuple(
                PlannedExperiment.of_entries(e, stored.get("functions", NONE))
                for e in restored(stored["experiments"])
            ),
            "criterion": CRITERIA[stored["criterion"]](tuple(restored(stored["of"]))),
            "deviations": {n: known[d.pop("model")](**d) for n, d in deviations.items()},
        }
        return made(cls, stored, special)

    def _shown(self) -> tuple[list[Rows], list[str]]:
        tables = [self.settings, self.errors] if self.bounds else [self.errors]
        return list(map(frame_rows, tables)), [*self._samples, self.sentence, *self.notes]
