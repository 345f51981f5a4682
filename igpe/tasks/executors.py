"""Executors of every kind behind one interface: worker processes of our own, or the user's.

Both pools have `submit`, which takes items and returns a future of their outcomes (it raises
ProblemError if no more work is taken); `ahead`, how many tasks keep it busy; `stranded`, whether
all that is in flight must be submitted again because who had it is gone (reported once); and
`close`, which ends what is our own.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor as Threads
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from igpe.core.arguments import is_count, shown
from igpe.core.errors import ProblemError
from igpe.tasks.workers import Item, ItemOutcome, Packed, WorkerPool, perform

LOG = logging.getLogger(__name__)

Report: TypeAlias = Callable[[str], None]

Workers: TypeAlias = Executor | int | None
"""Where work is done: here (None), in so many processes of our own, or by an executor."""

AHEAD = 4  # tasks for each worker: one is done, others wait (a cluster takes its time)
UNKNOWN = 64  # workers of an executor that does not say how many it has
AGAIN = 5.0  # s until a cluster is asked again how large it is
PATIENCE = 30.0  # s without any worker until processes of this machine do the work of a cluster
REROUTED = (
    "The cluster has had no worker for {:.0f} s, so {} processes on this machine do the work "
    "until workers return."
)
NOT_READY = (
    "A worker of the executor could not prepare the problem, so processes on this machine run the "
    "tasks instead."
)
GONE = (
    "The executor accepts no more work ({}). If there is a store, it contains the "
    "finished tasks: call again with a new executor."
)


class OwnPool:
    """Processes of our own: what is stuck is ended, what dies is replaced."""

    def __init__(self, count: int, timeout: float | None, retries: int) -> None:
        self._threads, self._count = Threads(count), count
        self._workers = WorkerPool()
        self._limits = timeout, retries

    def submit(
        self, packed: Packed, items: Sequence[Item], attempt: int, *, local: bool = False
    ) -> Future[list[ItemOutcome]]:
        """Submit items as one task."""
        each = partial(self._workers.done, packed, timeout=self._limits[0], retries=self._limits[1])
        return self._threads.submit(lambda: [each(item) for item in items])

    def stranded(self) -> bool:
        """Return False: no task gets lost."""
        return False

    def ahead(self) -> int:
        """Return how many tasks keep the processes busy."""
        return AHEAD * self._count

    def close(self) -> None:
        """End the processes, also in the midst of an item."""
        self._workers.close()
        self._threads.shutdown(cancel_futures=True)


class LentPool:
    """The user's executor. A process pool that broke is replaced by one like it.

    A cluster without workers is replaced by processes of this machine, for as long as that lasts.
    """

    def __init__(
        self, executor: Executor, timeout: float | None, retries: int, report: Report
    ) -> None:
        self._executor, self._report = executor, report
        self._replacement: ProcessPoolExecutor | None = None
        self._limits = timeout, retries
        self._size, self._counted, self._alive = 0, -np.inf, time.monotonic()
        self._is_empty = self._is_reported = False

    def submit(
        self, packed: Packed, items: Sequence[Item], attempt: int, *, local: bool = False
    ) -> Future[list[ItemOutcome]]:
        """Submit items as one task.

        local  whether to use a process of this machine, as the executor's cannot do it
        """
        if local and "_local" not in self.__dict__:
            self._report(NOT_READY)
        if local or self._is_empty:
            return self._local.submit(packed, items, attempt)
        task = partial(perform, packed, tuple(items), *self._limits, attempt)
        pool = self._executor
        try:
            return (self._replacement or pool).submit(task)
        except Exception as error:  # each kind of executor has its own
            if not (isinstance(error, BrokenExecutor) and isinstance(pool, ProcessPoolExecutor)):
                raise ProblemError(GONE.format(error)) from error
        if self._replacement is not None:
            self._replacement.shutdown(wait=False)
        self._replacement = ProcessPoolExecutor(
            pool._max_workers,  # type: ignore[attr-defined]
            getattr(pool, "_mp_context", None),
            getattr(pool, "_initializer", None),
            getattr(pool, "_initargs", ()),
        )
        return self._replacement.submit(task)

    def ahead(self) -> int:
        """Return how many tasks keep the executor busy."""
        self._count_workers()
        return self._local.ahead() if self._is_empty else AHEAD * max(self._size, 1)

    def stranded(self) -> bool:
        """Return True once after the last worker is gone."""
        self._count_workers()
        is_new, self._is_reported = self._is_empty and not self._is_reported, self._is_empty
        return is_new

    def close(self) -> None:
        """End the replacements, if there are any."""
        if self._replacement is not None:
            self._replacement.shutdown(cancel_futures=True)
        if "_local" in self.__dict__:
            self._local.close()

    def _count_workers(self) -> None:
        """Count the workers, not too often."""
        now = time.monotonic()
        if now - self._counted < AGAIN:
            return
        self._size, self._counted = _size(self._executor), now
        if self._size > 0:
            self._alive, self._is_empty = now, False
        elif not self._is_empty and now - self._alive >= PATIENCE:
            self._is_empty = True
            self._report(REROUTED.format(now - self._alive, _processors()))

    @cached_property
    def _local(self) -> OwnPool:
        return OwnPool(_processors(), *self._limits)


Pool: TypeAlias = OwnPool | LentPool


def pool_of(
    workers: Executor | int, timeout: float | None, retries: int, report: Report = LOG.warning
) -> Pool:
    """Return the pool for what a user gives as `executor`.

    report  called when work goes elsewhere
    raises ProblemError for what is no executor
    """
    if is_count(workers) and workers:
        return OwnPool(int(workers), timeout, retries)  # type: ignore[arg-type]
    executor: Any = workers
    if hasattr(executor, "get_executor"):  # dask's client
        executor = executor.get_executor()
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        raise ProblemError(
            f"`executor` is {shown(workers)}; expected a number of processes "
            f"(executor={os.cpu_count()}), an executor of concurrent.futures, or "
            "dask_client.get_executor()."
        )
    return LentPool(executor, timeout, retries, report)


def _size(executor: Any) -> int:
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
