"""How many steps an integration may take in all, while points are only tried.

A trial far from the optimum may be stiff, or swing a thousand times as fast as the right one, and
cost as much as all others together. Steps are counted, not seconds: the same seed gives the same
result on every machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
