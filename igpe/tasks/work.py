"""What is done many times: one function made ready once, and the items it is applied to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from igpe.core.status import Status

Row: TypeAlias = dict[str, Any]
"""What an item gives: plain values, as `igpe.core.json_form.plain` makes them."""

Function: TypeAlias = Callable[[Any], Row]
"""From what an item is given to its row."""


@dataclass(frozen=True)
class Work:
    """What all items share.

    make    asked -> the function of one item. It is called once in every process that works, so
            that models are translated and compiled once there. A function of a module
    asked   what it needs; both are pickled where the work is done elsewhere
    series  a hash of all that a row depends on beside its item; "" if nothing is stored
    here    the function, where this process has made it already
    """

    make: Callable[[Any], Function]
    asked: Any
    series: str = ""
    here: Function | None = None

    def function(self) -> Function:
        """Made ready in this process."""
        return self.make(self.asked) if self.here is None else self.here


class Item(NamedTuple):
    """One application of the function; no two items of a work have the same key."""

    key: str
    given: Any


class Outcome(NamedTuple):
    """What became of an item.

    status   None if the function returned; else TIMED_OUT, WORKER_DIED or RAISED
    row      what it returned; empty if it did not
    seconds  wall time
    message  why it did not return, as a sentence
    """

    key: str
    status: Status | None
    row: Row
    seconds: float
    message: str = ""
