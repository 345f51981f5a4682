"""What all integrators of one trajectory are asked: tolerances and limits.

What integrators of all intervals are asked: tolerances and limits.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Simulation
from igpe.dynamics.integrators.limits import LARGEST, check
from igpe.dynamics.integrators.prepared import Prepared, prepared
from igpe.equations.initial_value import InitialValueProblem


@dataclass(frozen=True)
class Method(ABC):
    """An integrator on the augmented system.

    rtol       local error tolerance relative to the present value
    atol       the same relative to the size of each state (`InitialValueProblem.scale`), for
               states, algebraic variables and scaled sensitivities
    max_steps  steps allowed between two outputs; more is a break-down
    largest    times its size that a state may be
    seconds    wall time allowed for one run
    """

    rtol: float = 1e-8
    atol: float = 1e-10
    max_steps: int = 20_000
    largest: float = LARGEST
    seconds: float = math.inf

    def __post_init__(self) -> None:
        check(self)

    def prepare(
        self, ivp: InitialValueProblem, times: Sequence[float] | FloatArray, *, sensitivities: bool
    ) -> Simulation:
        """Generate the augmented system, cut the horizon into pieces, and make ready."""
        return self.made_of(prepared(ivp, times, sensitivities=sensitivities))

    @abstractmethod
    def made_of(self, whole: Prepared) -> Simulation:
        """Make ready with equations that are already generated."""


@dataclass(frozen=True)
class Tolerances:
    """Of Runge-Kutta methods.

    rtol       local error relative to the present value, of states and derivatives
    atol       the same relative to the size of each state (`InitialValueProblem.scale`) and, for
               derivatives, of what they are taken by
    slack      times that derivatives may err more than states: Gauss-Newton steps need few digits,
               but without any control they are wrong by orders of magnitude where it is stiff
    max_steps  steps allowed in an interval; more is a break-down
    largest    times its size that a state may be, looked at after each step
    """

    rtol: float = 1e-6
    atol: float = 1e-8
    slack: float = 100.0
    max_steps: int = 20_000
    largest: float = LARGEST

    def __post_init__(self) -> None:
        check(self)
