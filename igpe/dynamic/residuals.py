"""The residuals of a problem by integration, with exact sensitivities.

r = (h(t; q) - measured) / sigma for every measurement of every experiment, and
(q - mean) / deviation for every prior (Michalik et al. 2009, IGPE, eq. 3, W = diag(1/sigma^2)).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from igpe.arrays import FloatArray, IntArray
from igpe.equations.initial_value import InitialValueProblem, initial_value_problem
from igpe.equations.system import System
from igpe.experiment import Measurements
from igpe.integrators.base import Integrator, Simulation, Trajectory
from igpe.least_squares.base import Linearised
from igpe.problem import Problem


@dataclass(frozen=True)
class Run:
    """One experiment made ready: `index` (n_q,) places its unknowns among the problem's."""

    measurements: Measurements
    ivp: InitialValueProblem
    simulation: Simulation
    index: IntArray

    def linearised(self, trajectory: Trajectory, size: int) -> Linearised:
        """(m,) residuals and (m, size) derivative, from the run's trajectory."""
        m = self.measurements
        residual = (trajectory.measured[m.row, m.column] - m.value) / m.sigma
        jacobian = np.zeros((len(m.value), size))
        by_unknown = trajectory.measured_by_unknown[m.row, m.column]
        # sqrt(k B) at B = 0 gives 0 / 0, but nothing moves where no state does
        resting = np.isnan(by_unknown) & (trajectory.by_unknown[m.row] == 0).all(axis=1)
        by_unknown = np.where(resting, 0.0, by_unknown)
        jacobian[:, self.index] = by_unknown / m.sigma[:, None]
        return Linearised(residual, jacobian)


class Residuals:
    """A problem's residuals as a function of its free unknowns (in the order of `problem.box`)."""

    def __init__(
        self, problem: Problem, systems: tuple[System, ...], integrator: Integrator
    ) -> None:
        self.names = problem.box.names
        self.runs = tuple(_run(problem, k, system, integrator) for k, system in enumerate(systems))
        self._priors = [(n, p) for n, p in problem.priors.items() if n in self.names]

    def __call__(self, x: FloatArray) -> Linearised | None:
        """Residuals and derivative at x (n,), or None if an integration broke down.

        None as well where one of their numbers is not finite.
        """
        pieces = []
        for run in self.runs:
            trajectory = run.simulation.run(x[run.index])
            if not trajectory.status.usable:
                return None
            pieces.append(run.linearised(trajectory, len(x)))
        if self._priors:
            pieces.append(self._prior(x))
        found = Linearised(
            np.concatenate([p.residual for p in pieces]), np.vstack([p.jacobian for p in pieces])
        )
        return found if all(np.isfinite(part).all() for part in found) else None

    def _prior(self, x: FloatArray) -> Linearised:
        jacobian = np.zeros((len(self._priors), len(x)))
        residual = np.zeros(len(self._priors))
        for row, (name, prior) in enumerate(self._priors):
            column = self.names.index(name)
            residual[row] = (x[column] - prior.mean) / prior.deviation
            jacobian[row, column] = 1 / prior.deviation
        return Linearised(residual, jacobian)


def simulate(
    problem: Problem,
    systems: tuple[System, ...],
    integrator: Integrator,
    values: Mapping[str, float],
    times: tuple[FloatArray, ...],
) -> tuple[tuple[InitialValueProblem, Trajectory], ...]:
    """Integrate every experiment at given unknowns, reporting at its own `times`."""
    found = []
    whole = problem.fixing({n: v for n, v in values.items() if n in problem.unknowns.names})
    for experiment, system, grid in zip(problem.experiments, systems, times, strict=True):
        ivp = initial_value_problem(whole, experiment, system)
        simulation = integrator.prepare(ivp, grid, sensitivities=False)
        found.append((ivp, simulation.run(np.zeros(0))))
    return tuple(found)


def _run(problem: Problem, k: int, system: System, integrator: Integrator) -> Run:
    experiment = problem.experiments[k]
    ivp = initial_value_problem(problem, experiment, system)
    names = problem.box.names
    return Run(
        measurements=experiment.measurements,
        ivp=ivp,
        simulation=integrator.prepare(ivp, experiment.times, sensitivities=True),
        index=np.array([names.index(n) for n in ivp.unknowns], dtype=np.intp),
    )
