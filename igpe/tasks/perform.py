"""Items done where the work is: in this process, or in one of its children."""

import atexit
import threading
import time
from collections.abc import Sequence

from igpe.core.errors import EstimationFailed, IgpeError
from igpe.core.status import Status
from igpe.tasks.children import Children, Function, Item, Outcome, Packed, function_of

_alone = threading.Lock()
_children = Children()
atexit.register(_children.close)


def perform(
    packed: Packed, items: Sequence[Item], timeout: float | None, retries: int, attempt: int
) -> list[Outcome]:
    """The task that an executor is given.

    With a time-out every item is done in a child, which can be ended. So is what a second thread
    of this process does at the same time: models are neither built nor integrated by two threads.

    timeout  s for each item
    retries  of an item whose child dies
    attempt  how often these items were submitted before; it makes each submission another one
    raises   NotReady if the work cannot be made ready; IgpeError if an item raised one
    """
    if timeout is None and _alone.acquire(blocking=False):
        try:
            function = function_of(packed)
            return [done(function, item) for item in items]
        finally:
            _alone.release()
    return [_children.done(packed, item, timeout, retries) for item in items]


def done(function: Function, item: Item) -> Outcome:
    """The function applied to an item.

    What an item raises is its outcome; but a refusal of igpe's concerns all items, and is raised.
    """
    began = time.perf_counter()
    try:
        row = function(item.given)
    except Exception as error:
        if isinstance(error, IgpeError) and not isinstance(error, EstimationFailed):
            raise
        said = f"{type(error).__name__}: {error}"
        return Outcome(item.key, Status.RAISED, {}, time.perf_counter() - began, said)
    return Outcome(item.key, None, row, time.perf_counter() - began)
