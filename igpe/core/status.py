"""How a computation ended, as a sentence; a clock that reports what is being done."""

import enum
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from igpe.core.progress import Tell


class Status(enum.Enum):
    """How a computation ended. The value of each member is the sentence that the user reads."""

    OPTIMAL_WITHIN_GAP = "The gap is closed: no better parameter values exist within the bounds."
    GLOBAL_BY_CONVEXITY = "The problem is linear in the parameters: its optimum is global."
    CONVERGED = "A local optimum was reached."
    STAGED = (
        "Each stage reached its optimum with the parameters of earlier stages held fixed; a fit of "
        "all stages together may be better."
    )
    BEST_OF_SEVERAL = "The best result of several local searches was taken."
    TIME_LIMIT = "The time limit was reached; the parameter values are the best found so far."
    ITERATION_LIMIT = (
        "The iteration limit was reached; the parameter values are the best found so far."
    )
    STALLED = "The search stopped here because the integration failed at every further step."
    INTERRUPTED = "The computation was interrupted; the parameter values are the best found so far."
    NOTHING_TO_DO = "No unknowns were left to estimate."
    # The parameters that come with these may not be used.
    UNDETERMINED = "The measurements do not determine these parameters."
    INTEGRATION_BROKE = "The model could not be integrated to the last measurement."
    INFEASIBLE = "No parameter values within the bounds satisfy the model equations."
    NO_SOLVER = "The required solver is not installed."
    FAILED = "The solver stopped without a result."
    TIMED_OUT = "The time limit was reached; the computation was stopped without a result."
    WORKER_DIED = "The process that ran this computation died on every attempt."
    RAISED = "The computation ended with an unexpected error."

    @property
    def usable(self) -> bool:
        """Return True if the parameter values of an estimate with this status can be used."""
        return self not in _UNUSABLE

    @property
    def is_early(self) -> bool:
        """Return True if the user or a time limit ended the computation."""
        return self in {Status.INTERRUPTED, Status.TIME_LIMIT}


_UNUSABLE = frozenset(list(Status)[list(Status).index(Status.UNDETERMINED) :])

log = logging.getLogger("igpe")


class Clock:
    """Measures the time of the steps, and reports each step."""

    def __init__(self, tell: Tell) -> None:
        self.seconds: dict[str, float] = {}
        self._tell = tell

    @contextmanager
    def step(self, name: str, sentence: str) -> Iterator[None]:
        """Measure the time of the block under `name`."""
        log.info(sentence)
        self._tell(sentence)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
