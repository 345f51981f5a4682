"""Standard deviations that follow the model: first of smoothed measurements, then at unknowns."""

from collections.abc import Mapping

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.residuals import Residuals
from igpe.equations.reading.read import read_systems
from igpe.equations.system import System
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.smoothing.gcv_spline import GcvSpline

ROUNDS = 5  # of smoothing: each tells the weights of the next


def first_weighted(problem: Problem) -> Problem:
    """The problem with standard deviations of smoothed measurements where they follow the model."""
    if not problem.sigma_follows_model:
        return problem
    return problem.weighted([_smoothed(e) for e in problem.experiments])


def weighted_at(
    problem: Problem, parameters: Mapping[str, float], integrator: Integrator = Automatic()
) -> Problem | None:
    """The problem with the standard deviations of the model at a value of each free unknown.

    None where the model cannot be integrated. Objectives with different ones cannot be compared.
    """
    weights = Weights(problem, problem, read_systems(problem), integrator)
    told = weights.at(parameters)
    return None if told is None else problem.weighted(told)


class Weights:
    """Standard deviations of a problem as a function of its unknowns.

    weighted  the same problem with standard deviations that are numbers, for the integration
    """

    def __init__(
        self,
        weighted: Problem,
        problem: Problem,
        systems: tuple[System, ...],
        integrator: Integrator,
    ) -> None:
        self.problem = problem
        self._residuals = Residuals(weighted, systems, integrator)

    def at(self, parameters: Mapping[str, float]) -> list[FloatArray] | None:
        """For each experiment (m,); None where the model cannot be integrated."""
        predicted = self._predicted(parameters)
        if predicted is None:
            return None
        pairs = zip(self.problem.experiments, predicted, strict=True)
        return [e.sigma_at(h) for e, h in pairs]

    def limits(self, parameters: Mapping[str, float]) -> tuple[str, ...]:
        """Where predictions were nearly 0, unlike measurements, and the least size counted."""
        found: list[str] = []
        for e, h in zip(self.problem.experiments, self._predicted(parameters) or (), strict=True):
            m = e.measurements
            for name, model in e.error_models.items():
                mine = m.column == m.names.index(name)
                small = np.abs(h[mine]) < model.least(m.value[mine])
                count = int(np.sum(small & (h[mine] != m.value[mine])))
                if count:
                    found.append(
                        f"The model is nearly 0 at {count} measurement{'s' * (count > 1)} of "
                        f"{name} in experiment {e.name}, where {model.share:g} of it is no "
                        "standard deviation; a tenth of the smallest measurement counted instead. "
                        f"Give a floor: igpe.Proportional({model.share:g}, floor=...)."
                    )
        return tuple(found)

    def _predicted(self, parameters: Mapping[str, float]) -> list[FloatArray] | None:
        x = np.array([parameters[n] for n in self._residuals.names], dtype=float)
        found = []
        for run in self._residuals.runs:
            trajectory = run.simulation.run(x[run.index])
            m = run.measurements
            predicted = trajectory.measured[m.row, m.column]
            if not (trajectory.status.usable and np.isfinite(predicted).all()):
                return None
            found.append(predicted)
        return found


def _smoothed(experiment: Experiment) -> FloatArray:
    """(m,) standard deviations of smoothed measurements.

    A smoothed value counts with its standard error, sqrt(f^2 + error^2): where the curve crosses 0
    by chance, nothing is known exactly.
    """
    m, predicted = experiment.measurements, np.zeros(len(experiment.measurements.value))
    sigma = m.sigma
    for _ in range(ROUNDS):
        for name in experiment.error_models:
            mine = m.column == m.names.index(name)
            if not mine.any():
                continue
            times = m.times[m.row[mine]]
            curve = GcvSpline().smooth(times, m.value[mine], sigma=sigma[mine])
            size = np.hypot(curve.value(times), curve.value_error(times))
            level = np.sqrt(np.mean(m.value[mine] ** 2))
            predicted[mine] = np.where(np.isfinite(size), size, level)
        sigma = experiment.sigma_at(predicted)
    return sigma
