"""The integrator that suits a problem, chosen by rules that depend on nothing but problem and q."""

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Integrator, Intervals, Refused
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.lsoda import Lsoda
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.sundials import Sundials
from igpe.equations.initial_value import InitialValueProblem

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Automatic(Integrator):
    """Chooses among the integrators.

    - Implicit algebraic variables: `Sundials`.
    - Else `RungeKutta`, if a C compiler is found and the equations are short enough to compile; it
      chooses between its explicit and its implicit pair within each interval. A trajectory that
      uses up its steps is integrated again from its start by `Lsoda`; any other break-down is
      final. Every run begins so, whatever was found before: the same q always gives the same
      numbers.
    - Else `Lsoda` for a trajectory, which is faster than `Sundials` where nothing is stiff. Many
      intervals go side by side in NumPy; one that breaks down is integrated by `Sundials`.

    slack    of `RungeKutta`: times that derivatives may err more than states
    seconds  wall time allowed for each method's attempt
    """

    slack: float = 1.0

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Choose by the equations, by what is installed, and by the number of intervals."""
        fields: dict[str, Any] = asdict(self)
        compiled = None
        if not ivp.y.numel():
            compiled = RungeKutta(**fields).prepare(ivp, nodes, times)
        slack = fields.pop("slack")
        if compiled is None:
            return Sundials(**fields).prepare(ivp, nodes, times)
        if not isinstance(compiled, Refused):
            return replace(compiled, otherwise=Lsoda(**fields))
        LOG.info("Not compiled: %s", compiled.reason)
        if compiled.cut.intervals == 1:
            return Lsoda(**fields).prepare(ivp, nodes, times)
        side = LockStep(**fields, slack=slack).prepare(ivp, nodes, times)
        assert not isinstance(side, Refused), "it refuses implicit variables only"
        return replace(side, otherwise=Sundials(**fields))
