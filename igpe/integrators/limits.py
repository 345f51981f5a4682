"""How far an integration may go before it counts as broken down, and the sentences that say so."""

import math
from dataclasses import dataclass

import numpy as np

from igpe.arrays import FloatArray

LARGEST = 1e15
"""Times its size that a state may be. Near 1 / machine epsilon: beyond it, adding to a state all
that it normally is changes nothing. Growth from traces of 1e-12 must pass."""
NO_START = "The start values are not finite."


@dataclass(frozen=True)
class Limits:
    """What an integration may use.

    max_steps  between two outputs
    largest    times its size (`InitialValueProblem.scale`) that a state may be
    seconds    wall time of one run
    """

    max_steps: int
    largest: float = LARGEST
    seconds: float = math.inf

    def steps_sentence(self, time: str) -> str:
        """That the steps were used up; `time` says when."""
        return f"The step limit of {self.max_steps} was reached {time}."

    def size_sentence(self, state: str, time: str) -> str:
        """That a state grew beyond the limit."""
        return f"State {state} exceeded {self.largest:g} times its size {time}."

    def seconds_sentence(self, time: str) -> str:
        """That the time was used up."""
        return f"The time limit of {self.seconds:g} s was reached {time}."

    def first_too_large(self, states: FloatArray) -> tuple[int, int] | None:
        """Row and column of the first of `states` (n, n_x), in their sizes, beyond the limit."""
        beyond = np.abs(states) > self.largest
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
