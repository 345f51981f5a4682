"""A method that cannot integrate a problem says so: as a status, when it is asked to run."""

from dataclasses import dataclass, replace

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Trajectory
from igpe.dynamics.integrators.prepared import Prepared


@dataclass(frozen=True)
class Refused:
    """A simulation that reaches nothing but its start, for the `reason`."""

    whole: Prepared
    reason: str
    status: Status = Status.INTEGRATION_BROKE

    def run(self, q: FloatArray) -> Trajectory:
        """Not a number at any time."""
        times, layout = self.whole.times, self.whole.system.layout
        rows = np.full((len(times), layout.width), np.nan)
        return layout.trajectory(times, rows, self.status, self.whole.ivp.t0, self.reason)

    def until(self, last: float) -> "Refused":
        """The same for times up to `last`."""
        return replace(self, whole=self.whole.until(last))


def implicit_refused(method: str, whole: Prepared) -> str:
    """That a method cannot do without explicit algebraic variables."""
    return (
        f"{method} cannot integrate equations with the implicit algebraic variables "
        f"{list(whole.ivp.implicit)}; igpe.integrators.Sundials can, and "
        "igpe.integrators.Automatic chooses it."
    )
