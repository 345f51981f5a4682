"""How far an integration may go before it counts as broken down, and the sentences that say so.

How many steps an integration may take in all, while points are only tried.

A trial far from the optimum may be stiff, or swing a thousand times as fast as the right one, and
cost as much as all others together. Steps are counted, not seconds: the same seed gives the same
result on every machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.initial_value import InitialValueProblem

EACH = 4.0  # share of the allowance that CVODES, which counts steps between two outputs only, may
LEAST = 200  # use for each of them, times their number; and the least of that: steps of a start

_steps: ContextVar[int | None] = ContextVar("igpe_allowance", default=None)


@contextmanager
def allowance(steps: int | None) -> Iterator[None]:
    """Inside, an integration that takes more steps than that breaks down. None: no such limit."""
    token = _steps.set(steps)
    try:
        yield
    finally:
        _steps.reset(token)


def allowed() -> int | None:
    """Steps that an integration may take now; None: as many as its method says."""
    return _steps.get()


def allowed_between(outputs: int) -> int | None:
    """The same between two of so many outputs."""
    steps = allowed()
    return None if steps is None else max(LEAST, int(EACH * steps / max(outputs, 1)))


LARGEST = 1e15
"""Times its size that a state may be. Near 1 / machine epsilon: beyond it, adding to a state all
that it normally is changes nothing. Growth from traces of 1e-12 must pass."""
TOO_MANY = "A function of time rises and falls too often for these unknowns to be followed."
NO_START = "The start values are not finite."
MOST_STEPS = 2**31 - 1  # what LSODA can count


@dataclass(frozen=True)
class StepLimits:
    """What an integration may use.

    max_steps  between two outputs
    largest    times its size (`InitialValueProblem.largest`) that a state may be
    seconds    wall time of one run
    most       (n_x,) the same as `largest` in `InitialValueProblem.scale`
    """

    max_steps: int
    largest: float
    seconds: float
    most: FloatArray

    @classmethod
    def of(cls, method: Any, ivp: InitialValueProblem) -> "StepLimits":
        """The limits that an integrator's fields mean for a problem."""
        with np.errstate(over="ignore"):
            most = method.largest * (ivp.largest / ivp.scale)
        return cls(method.max_steps, method.largest, method.seconds, most)

    def steps_sentence(self, time: str) -> str:
        """That the steps were used up; `time` says when."""
        steps = allowed()
        if steps is not None:
            return f"The {steps} steps that a trial may take were used up {time}."
        return f"The step limit of {self.max_steps} was reached {time}."

    def size_sentence(self, state: str, time: str) -> str:
        """That a state grew beyond the limit."""
        return f"State {state} exceeded {self.largest:g} times its size {time}."

    def seconds_sentence(self, time: str) -> str:
        """That the time was used up."""
        return f"The time limit of {self.seconds:g} s was reached {time}."

    def first_too_large(self, states: FloatArray) -> tuple[int, int] | None:
        """Row and column of the first of `states` (n, n_x), in their sizes, beyond the limit."""
        beyond = np.abs(states) > self.most
        if not beyond.any():
            return None
        row = int(np.argmax(beyond.any(axis=1)))
        return row, int(np.argmax(beyond[row]))


def at(time: float) -> str:
    """When, in a sentence."""
    return f"at t = {time:.6g}"


def between(begin: float, end: float) -> str:
    """When, if only known so far."""
    return f"between t = {begin:.6g} and t = {end:.6g}"


def no_number(time: str) -> str:
    """That the equations could not be evaluated."""
    return f"The model's equations have no finite value {time}."
