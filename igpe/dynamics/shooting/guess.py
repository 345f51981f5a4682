"""Trajectories to begin the correction with: smoothed data if there are any, else a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.shooting.base import Profile
from igpe.dynamics.shooting.residuals import simulate
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.problem import Problem
from igpe.smoothing.base import Smooth

POINTS = 200  # places at which a simulation is kept for a guess


@dataclass(frozen=True)
class Simulated:
    """All experiments simulated once, when first asked for."""

    problem: Problem
    integrator: Integrator
    values: Mapping[str, float]

    @cached_property
    def runs(self) -> tuple[tuple[InitialValueProblem, Trajectory], ...]:
        """Of each experiment its initial value problem and trajectory on a fine grid."""
        grids = tuple(fine_grid(self.problem, k) for k in range(len(self.problem.experiments)))
        return simulate(self.problem, self.integrator, self.values, grids)

    def series(self, experiment: int, name: str) -> tuple[FloatArray, FloatArray] | None:
        """Times and values of a state or algebraic variable, as far as the simulation came."""
        ivp, run = self.runs[experiment]
        if name in ivp.states:
            values = run.states[:, ivp.states.index(name)]
        elif name in ivp.algebraic:
            values = _algebraic(ivp, run, name)
        else:
            return None
        there = np.isfinite(values)
        return (run.times[there], values[there]) if there.any() else None


def fine_grid(problem: Problem, experiment: int, points: int = POINTS) -> FloatArray:
    """Evenly spread times of an experiment together with its measured ones."""
    e = problem.experiments[experiment]
    return np.union1d(np.linspace(e.start_time, e.times[-1], points), e.times)


def profiles(simulated: Simulated, curves: Sequence[Mapping[str, Smooth]]) -> list[Profile]:
    """For each experiment: (name, times) -> smoothed values, else simulated ones, else None."""
    return [_profile(simulated, k, smooth) for k, smooth in enumerate(curves)]


def _profile(simulated: Simulated, experiment: int, smooth: Mapping[str, Smooth]) -> Profile:
    def guess(name: str, times: FloatArray) -> FloatArray | None:
        if name in smooth:
            return smooth[name].value(times)
        found = simulated.series(experiment, name)
        return None if found is None else np.interp(times, *found)

    return guess


def _algebraic(ivp: InitialValueProblem, run: Trajectory, name: str) -> FloatArray:
    function = ca.Function("algebraic", [ivp.t, ivp.x, ivp.y, ivp.u], [ivp.algebraic[name]])
    inputs = np.array([[table.at(t) for table in ivp.tables] for t in run.times])
    columns = inputs.reshape(len(run.times), -1).T
    return np.asarray(function(run.times[None], run.states.T, run.implicit.T, columns)).ravel()
