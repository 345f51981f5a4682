"""What integrators of all intervals are asked: tolerances and limits."""

from dataclasses import dataclass

from igpe.dynamics.integrators.limits import LARGEST, check


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
