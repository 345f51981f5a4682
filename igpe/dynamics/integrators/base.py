"""Initial value problems with sensitivities: what every integrator gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.equations.initial_value import InitialValueProblem


@dataclass(frozen=True)
class Trajectory:
    """States and measured quantities over time with their sensitivities, as far as they came.

    times                (n_times,), those asked for
    states               (n_times, n_states)
    implicit             (n_times, n_implicit) algebraic variables solved numerically
    measured             (n_times, n_measured)
    by_unknown           (n_times, n_states, n_unknowns)    d state / d unknown; empty if not asked
    measured_by_unknown  (n_times, n_measured, n_unknowns)  d measured / d unknown
    status               CONVERGED; or INTEGRATION_BROKE, or NO_SOLVER if the method's program is
                         missing: then all rows after `reached` are NaN, and none before
    reached              the last time of `times` (or the start) that was reached
    reason               a sentence: why it came no further, and when; empty if it came to the end
    """

    times: FloatArray
    states: FloatArray
    implicit: FloatArray
    measured: FloatArray
    by_unknown: FloatArray
    measured_by_unknown: FloatArray
    status: Status
    reached: float
    reason: str = ""


class Simulation(Protocol):
    """An initial value problem made ready for many values of its unknowns.

    It remembers nothing: the same q gives the same bits, whatever ran before. It belongs to one
    thread, with all that `until` makes of it, as it works in memory of its own.
    """

    def run(self, q: FloatArray) -> Trajectory:
        """Integrate for unknowns q (n_unknowns,), in the order of the problem's names."""
        ...

    def until(self, last: float) -> "Simulation":
        """The same made ready for those of its times up to `last`, from the same equations.

        raises ValueError if there is no such time
        """
        ...


class Integrator(Protocol):
    """Solves initial value problems together with their variational equations.

    A break-down is a status, never an exception, and says how far it came.
    """

    def prepare(
        self, ivp: InitialValueProblem, times: Sequence[float] | FloatArray, *, sensitivities: bool
    ) -> Simulation:
        """Make ready to integrate from ivp.t0 to each of `times` (increasing, none before t0)."""
        ...
