"""The integrator that suits a problem, chosen by rules that depend on nothing but problem and q."""

import logging
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from igpe.core.arguments import Positive
from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Integrator, Intervals
from igpe.dynamics.integrators.lock_step import LockStep, LockStepIntervals
from igpe.dynamics.integrators.runge_kutta import RungeKutta, RungeKuttaIntervals
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.integrators.switched import switched
from igpe.equations.initial_value import InitialValueProblem

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Automatic(Integrator):
    """Automatic choice of an integrator that suits the equations.

    - `RungeKutta` integrates the equations, if a C compiler is found and the equations are short
      enough to compile. `RungeKutta` chooses between its explicit and implicit pairs within each
      interval. If a trajectory reaches the step limit, or fails with implicit algebraic variables,
      `Sundials` integrates it again from its start; any other failure is final. Each run repeats
      these attempts independently of earlier runs, so the same values of the unknowns always give
      the same results.
    - If the equations are not compiled, `Sundials` integrates those with implicit algebraic
      variables. For all others, the message `slow` says why. If there is only one interval,
      `Sundials` integrates it. Otherwise igpe uses NumPy to integrate several intervals at once; if
      NumPy fails on an interval, `Sundials` integrates this interval.

    slack    as for `RungeKutta`: factor by which errors in sensitivities may exceed errors in
             states
    seconds  limit on the wall time of each attempt by one integrator, in seconds
    """

    compiles: ClassVar[bool] = True

    slack: Positive = 1.0

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Choose the integrator that suits the equations, the available compiler and the number
        of intervals."""
        given = asdict(self)
        quick = RungeKutta(**given)
        stiff = Sundials(**{name: v for name, v in given.items() if name != "slack"})
        if not quick.carries_out(ivp):
            return switched(self, ivp, nodes, times)
        compiled = quick.prepare(ivp, nodes, times)
        if isinstance(compiled, RungeKuttaIntervals):
            return replace(compiled, otherwise=stiff)
        if ivp.y.numel():
            return stiff.prepare(ivp, nodes, times)
        if ivp.switching is not None:
            return switched(self, ivp, nodes, times)
        slow = (
            "igpe integrated the equations without compiling them, which is many times slower. "
            f"{compiled.refused}"
        )
        LOG.info(slow)
        if compiled.cut.intervals == 1:
            return replace(stiff.prepare(ivp, nodes, times), slow=slow)
        side = LockStep(**given).prepare(ivp, nodes, times)
        assert isinstance(side, LockStepIntervals), "LockStep supports all explicit equations"
        return replace(side, otherwise=stiff, slow=slow)
