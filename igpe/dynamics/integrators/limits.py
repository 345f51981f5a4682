"""How many steps an integration may take while points are only tried, and why one broke down.

A trial far from the optimum may be stiff, or swing a thousand times as fast as the right one, and
cost as much as all others together. Steps are counted, not seconds: the same seed gives the same
result on every machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from igpe.core.arrays import FloatArray

EACH = 4.0  # share of the allowance that CVODES, which counts steps between two outputs only, may
LEAST = 200  # use for each of them, times their number; and the least of that: steps of a start
STRETCH = 25  # steps that a stretch between switches counts as: a hundred crossings are 10,000
LARGEST = 1e30
"""Times its size that a state may be. Growth from traces must pass, and what is exponential in
others: exp(-E/R/T) as a state of its own grows by 1e18 within a published reactor."""
MOST_STEPS = 2**31 - 1  # what CVODES can count
TOO_MANY = (
    "At these values of the unknowns, a function of time has too many oscillations for igpe to "
    "follow."
)
TOO_EARLY = (
    "An event lies at t = {:.6g}, before the start at t = {:g}; choose bounds for its time that "
    "lie after the start."
)
INCONSISTENT = "No consistent values of the algebraic variables were found {}."
BEYOND = (
    "The equations have no solution within the model's bounds: {0} = {1:.6g} is not between "
    "{2:.6g} and {3:.6g}. Widen the bounds of {0} if this value is possible."
)
OPEN = (
    "The equations do not determine {1} uniquely {0}: one equation follows from others there, or "
    "two solutions meet. Replace an equation that says the same as others."
)
NOT_FINITE = "An event sets a state to a value that is not finite {}."
NO_START = "The start values are not finite."


class BrokenError(Exception):
    """An interval cannot be integrated; the message is the reason."""


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


def allowed_between(outputs: int) -> int:
    """The same between two of so many outputs."""
    steps = allowed()
    return MOST_STEPS if steps is None else max(LEAST, int(EACH * steps / max(outputs, 1)))


def first_beyond(states: FloatArray, most: FloatArray) -> tuple[int, int] | None:
    """Row and column of the first of `states` (n, n_x) beyond the limits `most` (n_x,)."""
    beyond = np.abs(states) > most
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
