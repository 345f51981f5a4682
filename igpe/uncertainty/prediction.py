"""Bands around what the fitted model says: of its mean, and of a further measurement.

Linearised, with S = d quantity / d unknown from the integrated sensitivities,

    var(mean) = S V S',     var(measurement) = S V S' + sigma^2

(Seber & Wild, Nonlinear Regression, 1989, section 5.1); or the percentiles over bootstrap refits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arguments import shown
from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.json_form import Form, checked_types, frame, plain, restored, write_json
from igpe.dynamics.shooting.guess import fine_grid
from igpe.dynamics.shooting.residuals import Run
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.problem import Problem
from igpe.results.plots.uncertainty import plot_prediction
from igpe.uncertainty.bands import Band, Course, quantities
from igpe.uncertainty.bootstrapped import Bootstrapped
from igpe.uncertainty.likelihood import likelihood, require_confidence

FORMAT = 1  # of the JSON form
NUMBERS = {
    "table": ("time", "value", "standard_error", "lower", "upper", "band_lower", "band_upper"),
    "measured": ("time", "measured"),
}


@dataclass(frozen=True)
class Prediction:
    """What the model says at the estimate, and how sure it is.

    table       columns experiment, name, time, value, standard_error, lower, upper (of the mean),
                band_lower, band_upper (of a measurement; NaN of what is not measured), unit.
                Infinite where the measurements do not determine it
    measured    columns experiment, name, time, measured
    confidence  of the bands, at each time for itself;  kind: how they were found, in words
    """

    table: pd.DataFrame
    measured: pd.DataFrame = field(repr=False)
    confidence: float
    kind: str

    def plot(self, axes: Any = None) -> Any:
        """Mean with both bands and the measurements, one panel a quantity; returns axes."""
        return plot_prediction(self.table, self.measured, self.confidence, axes)

    def to_dict(self) -> dict[str, Any]:
        """Everything in types that JSON knows."""
        tables = {n: getattr(self, n).to_dict("list") for n in ("table", "measured")}
        told = {"confidence": self.confidence, "kind": self.kind}
        return plain(tables | told | self._form().head())  # type: ignore[no-any-return]

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text; also written to `path` if given."""
        return write_json(self.to_dict(), path)

    @classmethod
    def from_json(cls, source: str | Path) -> "Prediction":
        """What `to_json` wrote, from its text or from the path of its file.

        raises DataError if there is no such file, or it holds no prediction of this form
        """
        stored = cls._form().read(source)
        with cls._form().intact():
            kept = {n: restored(stored[n]) for n in cls.__dataclass_fields__}
            return checked_types(
                cls(
                    **kept
                    | {n: frame(kept[n], ("experiment", "name"), NUMBERS[n]) for n in NUMBERS}
                )
            )

    @classmethod
    def _form(cls) -> Form:
        return Form("prediction", "Prediction", FORMAT, tuple(cls.__dataclass_fields__))

    def _repr_html_(self) -> str:
        return str(self.table.to_html(max_rows=20, float_format="{:.5g}".format))


def predict(
    problem: Problem,
    estimate: Any,
    times: npt.ArrayLike | None = None,
    names: Sequence[str] | str | None = None,
    *,
    confidence: float = 0.95,
    replications: Bootstrapped | None = None,
    method: SingleShooting = SingleShooting(),
) -> Prediction:
    """Bands of states, measured or not, and of measured quantities.

    problem       whose experiments are predicted
    estimate      a Result or Estimate of the problem, or unknown -> value
    times         where; None: 200 times and those measured. They may lie beyond the measurements
    names         of states and measured quantities; None: all
    confidence    of the bands
    replications  of `igpe.bootstrap`: bands are percentiles over them. None: linearised
    method        whose integrator is used
    raises        ProblemError for names or times that do not fit, Unsupported for constraints and
                  robust losses, EstimationFailed if the model cannot be integrated
    """
    require_confidence("predict", confidence)
    base = likelihood(problem, estimate, method, confidence=confidence)
    runs = base.residuals.all_of.runs
    wanted = _wanted(runs, names)
    tables = []
    for k, run in enumerate(runs):
        grid = fine_grid(problem, k) if times is None else _times(times, run)
        course = Course(base, run, grid, [n for n in wanted if n in quantities(run)])
        bands = course.linearised() if replications is None else course.drawn(replications)
        tables += [_table(problem, course, band) for band in bands]
    kind = "linearised" if replications is None else f"{len(replications.parameters)} refits"
    return Prediction(pd.concat(tables, ignore_index=True), _measured(runs), confidence, kind)


def _wanted(runs: Sequence[Run], names: Sequence[str] | str | None) -> list[str]:
    known = list(dict.fromkeys(n for run in runs for n in quantities(run)))
    if names is None:
        return known
    given = [names] if isinstance(names, str) else list(names)
    strangers = [n for n in given if n not in known]
    if strangers or not given:
        raise ProblemError(
            f"{strangers or 'Things without names'} cannot be predicted; there are the states and "
            f"measured quantities {known}."
        )
    return given


def _times(times: npt.ArrayLike, run: Run) -> FloatArray:
    try:
        grid = np.unique(np.asarray(times, dtype=float))
    except (TypeError, ValueError):
        grid = np.array([np.nan])
    if grid.size == 0 or not np.isfinite(grid).all() or grid[0] < run.ivp.t0:
        raise ProblemError(
            f"The times are {shown(times)}; give finite numbers from the start of experiment "
            f"{run.name}, {run.ivp.t0:g}, on."
        )
    return grid


def _table(problem: Problem, course: Course, band: Band) -> pd.DataFrame:
    return pd.DataFrame({
        "experiment": course.run.name,
        "name": band.name,
        "time": course.grid,
        "value": band.value,
        "standard_error": band.error,
        "lower": band.lower,
        "upper": band.upper,
        "band_lower": band.band_lower,
        "band_upper": band.band_upper,
        "unit": problem.unit(band.name),
    })


def _measured(runs: Sequence[Run]) -> pd.DataFrame:
    pieces = [
        pd.DataFrame({
            "experiment": run.name,
            "name": np.array(run.measurements.names)[run.measurements.column],
            "time": run.measurements.times[run.measurements.row],
            "measured": run.measurements.value,
        })
        for run in runs
    ]
    return pd.concat(pieces, ignore_index=True)
