"""Who does the work: an executor of any kind behind one interface."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor as Threads
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from igpe.core.arguments import is_count, shown
from igpe.core.errors import ProblemError
from igpe.tasks.children import Children, Item, Outcome, Packed
from igpe.tasks.perform import perform

LOG = logging.getLogger(__name__)

Report: TypeAlias = Callable[[str], None]

Workers: TypeAlias = Executor | int | None
"""Where work is done: here (None), in so many processes of our own, or by an executor."""

AHEAD = 4  # tasks for each worker: one is done, others wait (a cluster takes its time)
UNKNOWN = 64  # workers of an executor that does not say how many it has
AGAIN = 5.0  # s until a cluster is asked again how large it is
PATIENCE = 30.0  # s without any worker until processes of this machine do the work of a cluster
REROUTED = (
    "The cluster has had no worker for {:.0f} s, so {} processes of this machine do its work until "
    "workers come back."
)
GONE = (
    "The executor takes no more work ({}). What is finished is kept in the store, if there is one: "
    "call again with a new executor."
)


class Crew(Protocol):
    """Takes tasks and gives futures of their outcomes."""

    def submit(
        self, packed: Packed, items: Sequence[Item], attempt: int, *, local: bool = False
    ) -> Future[list[Outcome]]:
        """Raises ProblemError if no more work is taken.

        local  whether to use a process of this machine, as the executor's cannot do it
        """
        ...

    def stranded(self) -> bool:
        """Whether all that is in flight must be submitted again: who had it is gone. Told once."""
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

    def submit(
        self, packed: Packed, items: Sequence[Item], attempt: int, *, local: bool = False
    ) -> Future[list[Outcome]]:
        """See `Crew`."""
        return self._threads.submit(self._each, packed, items)

    def stranded(self) -> bool:
        """See `Crew`."""
        return False

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
    """The user's executor. A process pool that broke is replaced by one like it.

    A cluster without workers is replaced by processes of this machine, for as long as that lasts.
    """

    def __init__(
        self, executor: Executor, timeout: float | None, retries: int, report: Report
    ) -> None:
        self._executor, self._report = executor, report
        self._replacement: ProcessPoolExecutor | None = None
        self._limits = timeout, retries
        self._size, self._asked, self._alive = 0, -np.inf, time.monotonic()
        self._is_empty = self._is_told = False

    def submit(
        self, packed: Packed, items: Sequence[Item], attempt: int, *, local: bool = False
    ) -> Future[list[Outcome]]:
        """See `Crew`."""
        if local or self._is_empty:
            return self._local.submit(packed, items, attempt)
        task = partial(perform, packed, tuple(items), *self._limits, attempt)
        try:
            return (self._replacement or self._executor).submit(task)
        except BrokenExecutor as error:
            if not isinstance(self._executor, ProcessPoolExecutor):
                raise ProblemError(GONE.format(error)) from error
        except Exception as error:  # each kind of executor has its own
            raise ProblemError(GONE.format(error)) from error
        if self._replacement is not None:
            self._replacement.shutdown(wait=False)
        self._replacement = _like(self._executor)
        return self._replacement.submit(task)

    def ahead(self) -> int:
        """See `Crew`."""
        self._look()
        return self._local.ahead() if self._is_empty else AHEAD * max(self._size, 1)

    def stranded(self) -> bool:
        """See `Crew`."""
        self._look()
        now, self._is_told = self._is_empty and not self._is_told, self._is_empty
        return now

    def close(self) -> None:
        """End the replacements, if there are any."""
        if self._replacement is not None:
            self._replacement.shutdown(cancel_futures=True)
        if "_local" in self.__dict__:
            self._local.close()

    def _look(self) -> None:
        """Count the workers, not too often."""
        now = time.monotonic()
        if now - self._asked < AGAIN:
            return
        self._size, self._asked = _workers(self._executor), now
        if self._size > 0:
            self._alive, self._is_empty = now, False
        elif not self._is_empty and now - self._alive >= PATIENCE:
            self._is_empty = True
            self._report(REROUTED.format(now - self._alive, _processors()))

    @cached_property
    def _local(self) -> Own:
        return Own(_processors(), *self._limits)


def crew(
    workers: Executor | int, timeout: float | None, retries: int, report: Report = LOG.warning
) -> Crew:
    """The crew of what a user gives as `executor`.

    report  is told when work goes elsewhere
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
    return Lent(executor, timeout, retries, report)


def _workers(executor: Any) -> int:
    """How many tasks it can do at the same time; 0 for a cluster that has none, or is gone."""
    client: Any = getattr(executor, "_client", None)
    if hasattr(client, "nthreads"):  # dask's
        if client.status != "running":
            return 0
        try:
            threads = client.sync(client.scheduler.ncores, workers=None, callback_timeout=AGAIN)
        except Exception:  # whatever it is, nobody can be asked to work
            return 0
        return int(sum(threads.values()))
    return int(getattr(executor, "_max_workers", None) or UNKNOWN)


def _processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _like(pool: ProcessPoolExecutor) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        pool._max_workers,  # type: ignore[attr-defined]
        getattr(pool, "_mp_context", None),
        getattr(pool, "_initializer", None),
        getattr(pool, "_initargs", ()),
    )
