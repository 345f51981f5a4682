"""Step 1 for a whole problem: every measured quantity of every experiment as a smooth curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.problem.experiment import Experiment
from igpe.problem.model import ModelStarts
from igpe.problem.problem import Problem
from igpe.smoothing.base import Smooth, Smoother
from igpe.smoothing.gcv_spline import GcvSpline
from igpe.smoothing.gross_errors import without_gross_errors


@dataclass(frozen=True)
class Curves:
    """Smoothed measurements: for each experiment, measured name -> curve."""

    smoother: Smoother
    of: tuple[Mapping[str, Smooth], ...]

    def profile(self, experiment: int, name: str, times: FloatArray) -> FloatArray | None:
        """Smoothed values of a quantity, or None if it was not measured."""
        curve = self.of[experiment].get(name)
        return None if curve is None else curve.value(times)

    def notes(self, problem: Problem) -> tuple[str, ...]:
        """What the smoother needs the user to know, each said once with the curves it is about."""
        said: dict[str, list[str]] = {}
        for e, curves in zip(problem.experiments, self.of, strict=True):
            place = "" if len(self.of) == 1 else f" of {e.name}"
            for name, curve in curves.items():
                for note in curve.notes:
                    said.setdefault(note, []).append(f"{name}{place}")
        return tuple(f"Smoothing {', '.join(names)}: {note}" for note, names in said.items())


class MeasuredSeries(NamedTuple):
    """The measurements of one quantity in one experiment, as `Smoother.smooth` takes them.

    A start value known as a number comes first, as an exact datum.
    """

    times: FloatArray
    values: FloatArray
    sigma: FloatArray | None
    exact: BoolArray | None


AllSeries = Sequence[Mapping[str, MeasuredSeries]]
"""For each experiment, measured name -> series."""


def series_of(problem: Problem) -> AllSeries:
    """Every measured quantity; where the loss is a robust one, without gross errors."""
    each = [
        {name: _series(e, starts, name) for name in e.measured if not e.only_reports(name)}
        for e, starts in zip(problem.experiments, problem.starts, strict=True)
    ]
    if problem.loss.is_squares:
        return each
    return [{name: _trusted(series) for name, series in own.items()} for own in each]


def smooth_measurements(
    problem: Problem, smoother: Smoother, series: AllSeries | None = None
) -> Curves:
    """Smooth every measured quantity.

    series  what `series_of` has of the problem, if it is there already
    """
    each = series_of(problem) if series is None else series
    return Curves(
        smoother, tuple({n: _smooth(s, smoother) for n, s in own.items()} for own in each)
    )


def known_start(experiment: Experiment, starts: ModelStarts, state: str) -> float | None:
    """A state's start value where it is known as a number."""
    value = experiment.start.get(state, starts.fixed.get(state))
    return value if isinstance(value, float) else None


def _series(experiment: Experiment, starts: ModelStarts, name: str) -> MeasuredSeries:
    times, values, sigma = experiment.measurements.of(name)
    start = known_start(experiment, starts, name)
    given = sigma if experiment.sigma_known else None
    if start is None:
        return MeasuredSeries(times, values, given, None)
    later = times > experiment.start_time
    return MeasuredSeries(
        np.concatenate([[experiment.start_time], times[later]]),
        np.concatenate([[start], values[later]]),
        None if given is None else np.concatenate([[np.min(given)], given[later]]),
        np.concatenate([[True], np.zeros(int(later.sum()), dtype=bool)]),
    )


def _trusted(series: MeasuredSeries) -> MeasuredSeries:
    times, values, sigma, exact = series
    trusted = without_gross_errors(GcvSpline(), times, values, sigma=sigma, exact=exact)
    return series._replace(values=trusted)


def _smooth(series: MeasuredSeries, smoother: Smoother) -> Smooth:
    return smoother.smooth(series.times, series.values, sigma=series.sigma, exact=series.exact)
