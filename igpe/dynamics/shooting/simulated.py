"""Trajectories of all experiments at given values, for reports and as guesses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.shooting.base import Profile
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem
from igpe.smoothing.base import Smooth

BESIDE = 1e-6  # of the duration: how near to a jump both its sides are shown
POINTS = 200  # places at which a simulation is kept for a guess


def simulate(
    problem: Problem,
    integrator: Integrator,
    values: Mapping[str, float],
    times: tuple[FloatArray, ...],
) -> tuple[tuple[InitialValueProblem, Trajectory], ...]:
    """Integrate every experiment at given unknowns, reporting at its own `times`.

    Where equations are compiled free unknowns stay free, as the compiler has seen these equations;
    but 0 is put in, since what it multiplies may have no value.
    """
    free = problem.box.names if integrator.compiles else ()
    known = {n: v for n, v in values.items() if n in problem.unknowns.names}
    put = {n: v for n, v in known.items() if n not in free or v == 0}
    held = problem.fixing(put) if put else problem
    found = []
    for k, grid in enumerate(times):
        ivp = compiled(held).initial_value_problem(k, until=float(grid[-1]), switching=True)
        simulation = integrator.simulation(ivp, grid, sensitivities=False)
        found.append((ivp, simulation.run(np.array([values[n] for n in ivp.unknowns]))))
    return tuple(found)


@dataclass(frozen=True)
class Simulated:
    """All experiments simulated once, on first use."""

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
        if name not in ivp.states and name not in ivp.algebraic:
            return None
        if name in ivp.states:
            values = run.states[:, ivp.states.index(name)]
        else:
            arguments = [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q]
            output = [ivp.algebraic[name]]
            rows = np.array([[table.at(t) for table in ivp.tables] for t in run.times])
            inputs = rows.reshape(len(run.times), -1).T
            q = np.array([self.values[n] for n in ivp.unknowns]).reshape(-1, 1)
            at = run.times[None], run.states.T, run.implicit.T, inputs, np.tile(q, len(run.times))
            values = np.asarray(ca.Function("algebraic", arguments, output)(*at)).ravel()
        there = np.isfinite(values)
        return (run.times[there], values[there]) if there.any() else None


def fine_grid(problem: Problem, experiment: int, points: int = POINTS) -> FloatArray:
    """Evenly spread times of an experiment, its measured ones, and both sides of known jumps."""
    e = problem.experiments[experiment]
    first, last = e.start_time, float(e.times[-1])
    steps = [table.times for table in e.inputs.values() if isinstance(table, Table) and table.hold]
    doses = [
        event.at + event.delay
        for event in e.events
        if isinstance(event.at, (int, float)) and isinstance(event.delay, (int, float))
    ]
    jumps = np.unique(np.concatenate([doses, *steps]))
    if len(jumps) > points:  # they look like a curve
        jumps = jumps[:0]
    near = BESIDE * (last - first)
    sides = np.concatenate([jumps - near, jumps + near])
    inside = sides[(sides > first) & (sides < last)]
    return np.unique(np.concatenate([np.linspace(first, last, points), e.times, inside]))


def profiles(simulated: Simulated, curves: Sequence[Mapping[str, Smooth]]) -> list[Profile]:
    """For each experiment: (name, times) -> smoothed values, else simulated ones, else None.

    Trajectories to begin the correction with.
    """

    def guess(k: int, name: str, times: FloatArray) -> FloatArray | None:
        if name in curves[k]:
            return curves[k][name].value(times)
        series = simulated.series(k, name)
        return None if series is None else np.interp(times, *series)

    return [partial(guess, k) for k in range(len(curves))]
