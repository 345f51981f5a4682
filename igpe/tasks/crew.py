"""Who does the work: an executor of any kind behind one interface."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor as Threads
from functools import partial
from typing import Any, Protocol, TypeAlias

from igpe.arguments import is_count, shown
from igpe.errors import ProblemError
from igpe.tasks.children import Children
from igpe.tasks.packed import Packed
from igpe.tasks.perform import perform
from igpe.tasks.work import Item, Outcome

Workers: TypeAlias = Executor | int | None
"""Where work is done: here (None), in so many processes of our own, or by an executor."""

AHEAD = 4  # tasks for each worker: one is done, others wait (a cluster takes its time)
UNKNOWN = 64  # workers of an executor that does not say how many it has
AGAIN = 5.0  # s until a cluster is asked again how large it is
GONE = (
    "The executor takes no more work ({}). What is finished is kept in the store, if there is one: "
    "call again with a new executor."
)


class Crew(Protocol):
    """Takes tasks and gives futures of their outcomes."""

    def submit(self, packed: Packed, items: Sequence[Item], attempt: int) -> Future[list[Outcome]]:
        """Raises ProblemError if no more work is taken."""
        ...

    def ahead(self) -> int:
        """So many tasks keep it busy."""
        ...

    def close(self) -> None:
        """End what is our own; all else goes on."""
        ...


class Own:
    """Processes of our own: what is stuck is ended, what dies is replaced."""

    def __init__(self, count: int, timeout: float | None, retries: int) -> None:
        self._threads, self._count = Threads(count), count
        self._children = Children()
        self._limits = timeout, retries

    def submit(self, packed: Packed, items: Sequence[Item], attempt: int) -> Future[list[Outcome]]:
        """See `Crew`."""
        return self._threads.submit(self._each, packed, items)

    def ahead(self) -> int:
        """See `Crew`."""
        return AHEAD * self._count

    def close(self) -> None:
        """End the processes, also in the midst of an item."""
        self._children.close()
        self._threads.shutdown(cancel_futures=True)

    def _each(self, packed: Packed, items: Sequence[Item]) -> list[Outcome]:
        return [self._children.done(packed, item, *self._limits) for item in items]


class Lent:
    """The user's executor. A process pool that broke is replaced by one like it."""

    def __init__(self, executor: Executor, timeout: float | None, retries: int) -> None:
        self._executor = executor
        self._replacement: ProcessPoolExecutor | None = None
        self._limits = timeout, retries
        self._size, self._asked = 0, -AGAIN

    def submit(self, packed: Packed, items: Sequence[Item], attempt: int) -> Future[list[Outcome]]:
        """See `Crew`."""
        task = partial(perform, packed, tuple(items), *self._limits, attempt)
        try:
            return (self._replacement or self._executor).submit(task)
        except BrokenExecutor as error:
            if not isinstance(self._executor, ProcessPoolExecutor):
                raise ProblemError(GONE.format(error)) from error
        except RuntimeError as error:
            raise ProblemError(GONE.format(error)) from error
        if self._replacement is not None:
            self._replacement.shutdown(wait=False)
        self._replacement = _like(self._executor)
        return self._replacement.submit(task)

    def ahead(self) -> int:
        """See `Crew`."""
        if time.monotonic() - self._asked >= AGAIN:
            self._size, self._asked = _workers(self._executor), time.monotonic()
        return AHEAD * self._size

    def close(self) -> None:
        """End the replacement, if there is one."""
        if self._replacement is not None:
            self._replacement.shutdown(cancel_futures=True)


def crew(workers: Executor | int, timeout: float | None, retries: int) -> Crew:
    """The crew of what a user gives as `executor`.

    raises ProblemError for what is none
    """
    if is_count(workers) and workers:
        return Own(int(workers), timeout, retries)  # type: ignore[arg-type]
    executor: Any = workers
    if hasattr(executor, "get_executor"):  # dask's client
        executor = executor.get_executor()
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        raise ProblemError(
            f"executor is {shown(workers)}; wanted a number of processes (executor={os.cpu_count()}"
            "), an executor of concurrent.futures, or dask_client.get_executor()."
        )
    return Lent(executor, timeout, retries)


def _workers(executor: Any) -> int:
    """How many tasks it can do at the same time."""
    client = getattr(executor, "_client", None)
    ask: Callable[[], dict[str, int]] | None = getattr(client, "nthreads", None)  # dask
    if ask is not None:
        return max(1, sum(ask().values()))
    return int(getattr(executor, "_max_workers", None) or UNKNOWN)


def _like(pool: ProcessPoolExecutor) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        pool._max_workers,  # type: ignore[attr-defined]
        getattr(pool, "_mp_context", None),
        getattr(pool, "_initializer", None),
        getattr(pool, "_initargs", ()),
    )
