"""One trajectory by an integrator of intervals: the whole horizon is its only interval.

Compiled Runge-Kutta pairs with internal differentiation cost a tenth of CVODES on the augmented
system, and less, where equations are stiff and few digits are asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator, Simulation, Trajectory
from igpe.dynamics.integrators.batch.automatic_intervals import AutomaticIntervals
from igpe.dynamics.integrators.intervals import Along, Chaining
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem


@dataclass(frozen=True)
class WholeHorizon:
    """An integrator made of one of intervals; a run that breaks down tells nothing but why.

    intervals  whose fields say how exactly is integrated
    otherwise  what integrates where the intervals cannot tell a few derivatives: where there is no
               compiler, and implicit algebraic variables
    """

    intervals: AutomaticIntervals = AutomaticIntervals()
    otherwise: Integrator = Automatic()

    def prepare(
        self, ivp: InitialValueProblem, times: Sequence[float] | FloatArray, *, sensitivities: bool
    ) -> Simulation:
        """See `igpe.dynamics.integrators.base.Integrator`."""
        grid = np.array(times, dtype=float)
        if grid[-1] <= ivp.t0 or not sensitivities:
            return self.otherwise.prepare(ivp, times, sensitivities=sensitivities)
        whole = replace(ivp, measured=ca.vertcat(ivp.measured, ivp.x))
        found = self.intervals.prepare_intervals(whole, np.array([ivp.t0, grid[-1]]), grid)
        if not hasattr(found, "chained"):
            return self.otherwise.prepare(ivp, times, sensitivities=sensitivities)
        start = ca.densify(ca.vertcat(ivp.start.T, ca.jacobian(ivp.start, ivp.q).T))
        begun = InPlace(ca.Function("start", [ivp.q], [start]))
        return WholeSimulation(self, ivp, grid, cast(Chaining, found), begun)


@dataclass(frozen=True)
class WholeSimulation:
    """See `igpe.dynamics.integrators.base.Simulation`.

    begun  function q -> (1 + n_q, n_x) by columns: the start and its derivative
    """

    method: WholeHorizon
    ivp: InitialValueProblem
    times: FloatArray
    intervals: Chaining
    begun: InPlace

    def run(self, q: FloatArray) -> Trajectory:
        """Integrate for unknowns q (n_unknowns,)."""
        n_x, n_q = len(self.ivp.states), len(self.ivp.unknowns)
        begun = np.empty((n_x, 1 + n_q))
        self.begun.read(0, np.ascontiguousarray(q, dtype=float))
        self.begun.write(0, begun)
        self.begun.evaluate()
        first = np.vstack([begun[:, 1:], np.eye(n_q)])
        return self._told(self.intervals.chained(begun[None, :, 0], q, first))

    def until(self, last: float) -> Simulation:
        """The same for times up to `last`."""
        times = self.times[self.times <= last]
        if len(times) == 0:
            raise ValueError(f"No time is reported up to {last:g}; the first is {self.times[0]:g}.")
        return self.method.prepare(self.ivp, times, sensitivities=True)

    def _told(self, along: Along) -> Trajectory:
        n_h, status, ivp = self.ivp.measured.numel(), along.status[0], self.ivp
        whole = status is Status.CONVERGED
        told: list[Any] = [along.measured, along.measured_by]
        if not whole:
            told = [np.full_like(part, np.nan) for part in told]
        return Trajectory(
            times=self.times,
            states=told[0][:, n_h:],
            implicit=np.empty((len(self.times), 0)),
            measured=told[0][:, :n_h],
            by_unknown=told[1][:, n_h:],
            measured_by_unknown=told[1][:, :n_h],
            status=status,
            reached=float(self.times[-1]) if whole else ivp.t0,
            reason=along.reason[0],
        )
