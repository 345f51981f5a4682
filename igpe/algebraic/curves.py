"""Step 1 for a whole problem: every measured quantity of every experiment as a smooth curve."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.problem.experiment import Experiment
from igpe.problem.model import ModelStarts
from igpe.problem.problem import Problem
from igpe.smoothing.base import Smooth, Smoother


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


def smooth_measurements(problem: Problem, smoother: Smoother) -> Curves:
    """Smooth every measured quantity; a start value known as a number is an exact datum."""
    return Curves(
        smoother,
        tuple(
            {name: _smooth(e, starts, name, smoother) for name in e.measured}
            for e, starts in zip(problem.experiments, problem.starts, strict=True)
        ),
    )


def known_start(experiment: Experiment, starts: ModelStarts, state: str) -> float | None:
    """A state's start value where it is known as a number."""
    value = experiment.start.get(state, starts.fixed.get(state))
    return value if isinstance(value, float) else None


def _smooth(experiment: Experiment, starts: ModelStarts, name: str, smoother: Smoother) -> Smooth:
    times, values, sigma = experiment.measurements.of(name)
    start = known_start(experiment, starts, name)
    given = sigma if experiment.sigma_known else None
    if start is None:
        return smoother.smooth(times, values, sigma=given)
    later = times > experiment.start_time
    exact = np.concatenate([[True], np.zeros(int(later.sum()), dtype=bool)])
    return smoother.smooth(
        np.concatenate([[experiment.start_time], times[later]]),
        np.concatenate([[start], values[later]]),
        sigma=None if given is None else np.concatenate([[np.min(given)], given[later]]),
        exact=exact,
    )
