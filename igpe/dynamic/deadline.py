"""When a search must end: evaluations after it are failures, which searches bear by stopping."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

At = TypeVar("At")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Deadline:
    """A time of the wall clock, by `time.perf_counter`; infinite where there is none."""

    until: float = float("inf")

    @classmethod
    def after(cls, seconds: float | None) -> "Deadline":
        """So many seconds from now; None: never."""
        return cls() if seconds is None else cls(time.perf_counter() + seconds)

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return time.perf_counter() >= self.until

    def keeping(self, evaluate: Callable[[At], Found | None]) -> Callable[[At], Found | None]:
        """What gives None once the time is over, but for a first call: the worth of the start."""
        called = False

        def within(at: At) -> Found | None:
            nonlocal called
            if called and self.over:
                return None
            called = True
            return evaluate(at)

        return within


NEVER = Deadline()
