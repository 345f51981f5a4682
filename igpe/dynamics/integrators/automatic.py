"""The integrator that suits a problem, chosen by rules that depend on nothing but problem and q."""

import logging
from dataclasses import asdict, dataclass
from typing import Any

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Simulation, Trajectory
from igpe.dynamics.integrators.dormand_prince import DormandPrince, DormandPrinceSimulation, Ended
from igpe.dynamics.integrators.limits import allowed
from igpe.dynamics.integrators.lsoda import Lsoda
from igpe.dynamics.integrators.method import Method
from igpe.dynamics.integrators.prepared import Prepared
from igpe.dynamics.integrators.sundials import Sundials

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Automatic(Method):
    """Chooses among the integrators.

    - Implicit algebraic variables: `Sundials`.
    - Else `DormandPrince`, if a C compiler is found and the equations are short enough to compile.
      A run that turns out stiff is done again from its start by `Sundials`, one that uses up its
      steps by `Lsoda`; any other break-down is final. Every run begins so, whatever was found
      before: the same q always gives the same numbers.
    - Else `Lsoda`, which is faster than `Sundials` where nothing is stiff.

    seconds  wall time allowed for each method's attempt
    """

    def made_of(self, whole: Prepared) -> Simulation:
        """Choose for equations that are already generated."""
        fields: dict[str, Any] = asdict(self)
        sundials, lsoda = Sundials(**fields), Lsoda(**fields)
        if whole.system.layout.implicit:
            return sundials.made_of(whole)
        explicit = DormandPrince(**fields).made_of(whole)
        if not isinstance(explicit, DormandPrinceSimulation):
            LOG.info("LSODA integrates: %s", explicit.reason)
            return lsoda.made_of(whole)
        return AutomaticSimulation(explicit, sundials.made_of(whole), lsoda.made_of(whole))


@dataclass(frozen=True)
class AutomaticSimulation:
    """Explicit first, then what copes with where it broke down; see `Simulation`.

    stiff  CVODES: on Robertson's kinetics with all sensitivities LSODA takes 1.7 times as long
    """

    explicit: DormandPrinceSimulation
    stiff: Simulation
    many_steps: Simulation

    def run(self, q: FloatArray) -> Trajectory:
        """Integrate the pieces in turn, as far as they go."""
        ran = self.explicit.ran(q)
        if ran.ended is Ended.STIFF:
            return self.stiff.run(q)
        if ran.ended is Ended.STEPS and allowed() is None:
            return self.many_steps.run(q)
        return ran.trajectory

    def until(self, last: float) -> "AutomaticSimulation":
        """The same for times up to `last`."""
        return AutomaticSimulation(
            self.explicit.until(last), self.stiff.until(last), self.many_steps.until(last)
        )
