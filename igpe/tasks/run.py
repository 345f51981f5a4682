"""Run many items: a bounded number in flight, each finished one kept at once in an SQLite file.

Executors of every kind have one interface: worker processes of our own, or the user's. Both pools
have `submit`, which takes items and returns a future of their outcomes (it raises ProblemError if
no more work is taken); `ahead`, how many tasks keep it busy; `stranded`, whether all that is in
flight must be submitted again because who had it is gone (reported once); and `close`, which ends
what is our own.
"""

import json
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures import ThreadPoolExecutor as Threads
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from igpe.core.arguments import Checked, PositiveOrNone, Rule, instance_of, is_count, or_none, shown
from igpe.core.errors import DataError, IgpeError, ProblemError
from igpe.core.files import read_json
from igpe.core.json_form import plain
from igpe.core.status import Status
from igpe.tasks.workers import (
    RETRIES,
    Item,
    ItemOutcome,
    NotReady,
    Packed,
    Work,
    WorkerPool,
    done,
    pack,
    perform,
)

LOG = logging.getLogger(__name__)

Report: TypeAlias = Callable[[str], None]

Workers: TypeAlias = Executor | int | None
"""Where work is done: here (None), in a number of own processes, or by an executor."""

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


class _OwnPool:
    """Processes of our own: what is stuck is ended, what dies is replaced."""

    def __init__(self, count: int, timeout: float | None) -> None:
        self._threads, self._count, self._timeout = Threads(count), count, timeout
        self._workers = WorkerPool()

    def submit(
        self, packed: Packed, items: Sequence[Item], attempt: int, *, local: bool = False
    ) -> Future[list[ItemOutcome]]:
        """Submit items as one task."""
        each = partial(self._workers.done, packed, timeout=self._timeout)
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


class _LentPool:
    """The user's executor. A process pool that broke is replaced by one like it.

    A cluster without workers is replaced by processes of this machine, for as long as that lasts.
    """

    def __init__(self, executor: Executor, timeout: float | None, report: Report) -> None:
        self._executor, self._timeout, self._report = executor, timeout, report
        self._replacement: ProcessPoolExecutor | None = None
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
        task = partial(perform, packed, tuple(items), self._timeout, attempt)
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
    def _local(self) -> _OwnPool:
        return _OwnPool(_processors(), self._timeout)


Pool: TypeAlias = _OwnPool | _LentPool


def _pool_of(workers: Executor | int, timeout: float | None, report: Report) -> Pool:
    """Return the pool for what a user gives as `executor`.

    report  called when work goes elsewhere
    raises ProblemError for what is no executor
    """
    if is_count(workers) and workers:
        return _OwnPool(int(workers), timeout)  # type: ignore[arg-type]
    executor: Any = workers
    if hasattr(executor, "get_executor"):  # dask's client
        executor = executor.get_executor()
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        raise ProblemError(
            f"`executor` is {shown(workers)}; expected a number of processes "
            f"(executor={os.cpu_count()}), an executor of concurrent.futures, or "
            "dask_client.get_executor()."
        )
    return _LentPool(executor, timeout, report)


def _size(executor: Any) -> int:
    """Number of tasks that an executor can do at once; 0 for a cluster without workers."""
    client: Any = getattr(executor, "_client", None)
    if hasattr(client, "nthreads"):  # dask's
        if client.status != "running":
            return 0
        try:
            threads = client.sync(client.scheduler.ncores, workers=None, callback_timeout=AGAIN)
        except Exception:  # any failure means that there is no worker
            return 0
        return int(sum(threads.values()))
    return int(getattr(executor, "_max_workers", None) or UNKNOWN)


def _processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


MARK = int.from_bytes(b"igpe", "big")  # application_id: what SQLite files say they are
TABLE = """CREATE TABLE outcomes (
    series TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL, seconds REAL NOT NULL,
    message TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (series, key)) WITHOUT ROWID"""
ADD = """INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    status = excluded.status, seconds = excluded.seconds, message = excluded.message,
    row = excluded.row WHERE status <> 'DONE'"""
GET = "SELECT status, seconds, message, row FROM outcomes WHERE series = ? AND key = ?"
DONE = "DONE"  # stands for the status None
KNOWN = {DONE, *Status.__members__}
DAMAGED = "The stored result of task {} is damaged. Delete the store's file to repeat all tasks."
WAIT = 30.0  # s, for another process that writes to the same file


class Store:
    """The outcomes of one series; several series live in one file.

    A committed outcome survives the end of this process, however sudden (a write-ahead log).

    series  what the outcomes depend on, as a hash
    raises  DataError if the file cannot be made, or is no SQLite file
    """

    def __init__(self, path: str | Path, series: str) -> None:
        self._series = series
        try:
            self._file = sqlite3.connect(Path(path), timeout=WAIT)
            self._file.execute("PRAGMA trusted_schema = OFF")
            self._require_own()
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            with self._file:
                self._file.execute(f"PRAGMA application_id = {MARK}")
                self._file.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise DataError(
                f"The store '{path}' cannot be used ({error}); give the path of a new file in "
                "an existing folder, or of a store that igpe created."
            ) from None

    def _require_own(self) -> None:
        """Raise ValueError for another program's file, before anything is written in it.

        A store holds one table and nothing else: no view that never ends, no trigger.
        """
        (mark,) = self._file.execute("PRAGMA application_id").fetchone()
        parts = self._file.execute("SELECT type, sql FROM sqlite_master LIMIT 3").fetchall()
        if mark not in (0, MARK) or parts not in ([], [("table", TABLE)]):
            raise ValueError("it belongs to another program, or was changed")

    def get(self, key: str, timeout: float | None) -> ItemOutcome | None:
        """Return the outcome of an item; None if it is to be done (again).

        An item that failed is done again, one that timed out where it may take longer now.

        raises DataError if the file cannot be read
        """
        entry = self._run(GET, (self._series, key)).fetchone()
        if entry is None:
            return None
        status, seconds, message, row = entry
        if status not in KNOWN or not isinstance(seconds, float) or not isinstance(message, str):
            raise DataError(DAMAGED.format(key))
        try:
            kept = dict(read_json(row.encode()))
        except (ValueError, TypeError, AttributeError):
            raise DataError(DAMAGED.format(key)) from None
        if status == DONE:
            return ItemOutcome(key, None, kept, seconds, message)
        if status != Status.TIMED_OUT.name or timeout is None or seconds < timeout:
            return None
        return ItemOutcome(key, Status.TIMED_OUT, {}, seconds, message)

    def add(self, outcomes: Iterable[ItemOutcome]) -> None:
        """Keep some more; one that is there and did not fail stays as it is.

        raises DataError if the file cannot be written
        """
        with self._file:
            for one in outcomes:
                status = DONE if one.status is None else one.status.name
                row = json.dumps(plain(one.row), allow_nan=False)
                self._run(ADD, (self._series, one.key, status, one.seconds, one.message, row))

    def close(self) -> None:
        """Leave one file, without its log."""
        self._file.close()

    def _run(self, words: str, given: tuple[object, ...]) -> sqlite3.Cursor:
        try:
            return self._file.execute(words, given)
        except sqlite3.Error as error:
            raise DataError(
                f"The store can no longer be read or written ({error}); finished tasks are "
                "kept. Check whether the disk is full or another program has opened the file."
            ) from error


AT_ONCE = 100  # outcomes read from the store before they are passed on
STORE = or_none(instance_of(str, Path))._replace(expected="the path of a file, or None")
EXECUTOR = Rule(lambda v: not is_count(v) or v != 0, "one or more processes, or None")


@dataclass(frozen=True)
class Backend(Checked):
    """Where and how items are done.

    executor  None: here; a number of own processes; or an executor
    store     file in which finished items are kept, and not done again
    timeout   s for each item; what takes longer is ended and recorded
    chunk     items of one task of an executor
    report    called when work goes elsewhere than to the executor; by default a warning is logged
    """

    executor: Annotated[Workers, EXECUTOR] = None
    store: Annotated[str | Path | None, STORE] = None
    timeout: PositiveOrNone = None
    chunk: int = 1
    report: Report = LOG.warning


def run(work: Work, items: Iterable[Item], backend: Backend = Backend()) -> Generator[ItemOutcome]:
    """The outcomes of all items, as they become known.

    An item whose worker dies is tried again, and recorded if that does not help. If the iteration
    ends early, what has started is given up; what has ended is in the store, but for rows whose own
    "status" is INTERRUPTED.
    An item for which one worker cannot make the work ready goes to another process of this machine.
    raises  ProblemError if the work cannot be sent or made ready anywhere, or the executor ends;
            DataError by the store; what the work raises of igpe's own errors
    """
    store = None if backend.store is None else Store(backend.store, work.series)
    stored: list[ItemOutcome] = []

    todo = _missing(items, store, backend.timeout, stored)
    try:
        for portion in _portions(work, todo, backend):
            if store is not None:
                store.add(o for o in portion if o.row.get("status") != Status.INTERRUPTED.name)
            yield from [*stored, *portion]
            stored.clear()
    finally:
        if store is not None:
            store.close()


def _missing(
    items: Iterable[Item], store: Store | None, timeout: float | None, stored: list[ItemOutcome]
) -> Iterator[Item | None]:
    """Items to be done; None where stored outcomes must be passed on before."""
    for item in items:
        known = None if store is None else store.get(item.key, timeout)
        if known is not None:
            stored.append(known)
        if stored and (known is None or len(stored) >= AT_ONCE):
            yield None
        if known is None:
            yield item
    if stored:
        yield None


def _portions(
    work: Work, todo: Iterator[Item | None], backend: Backend
) -> Iterator[list[ItemOutcome]]:
    """Outcomes that were known at the same time; for None of what is to do an empty list."""
    if backend.executor is None and backend.timeout is None:
        function = None
        for item in todo:
            function = work.function() if function is None and item is not None else function
            yield [] if item is None or function is None else [done(function, item)]
        return
    workers = 1 if backend.executor is None else backend.executor
    pool = _pool_of(workers, backend.timeout, backend.report)
    flight = _Flight(work, todo, pool, backend.chunk)
    try:
        while flight.more or flight.flying or flight.suspects:
            yield flight.next()
    finally:
        for future in flight.flying:
            future.cancel()
        pool.close()


class _Task(NamedTuple):
    """Items on their way; after the first attempt alone, so that a worker's death is theirs.

    not_ready  whether a worker could not make the work ready for them
    """

    items: Sequence[Item]
    attempt: int = 0
    not_ready: bool = False


@dataclass
class _Flight:
    """Tasks in flight. What was there when a worker died is tried again alone, at the end.

    more    whether there are items that were never sent
    landed  whether anything came back that did not fail
    """

    work: Work
    todo: Iterator[Item | None]
    pool: Pool
    chunk: int
    flying: dict[Future[list[ItemOutcome]], _Task] = field(default_factory=dict)
    suspects: deque[_Task] = field(default_factory=deque)
    more: bool = True
    landed: bool = False

    def next(self) -> list[ItemOutcome]:
        """Keep the pool busy, and wait for an outcome; an empty list if there is none yet.

        Nothing more is sent while all that came back so far failed.
        """
        doubtful = bool(self.suspects) and not self.landed
        while self.more and not doubtful and len(self.flying) < self.pool.ahead():
            portion = list(islice(self.todo, self.chunk))
            self.more = len(portion) == self.chunk
            if items := [item for item in portion if item is not None]:
                self._send(_Task(items))
            if None in portion:
                return []
        if not self.flying and self.suspects:
            self._send(self.suspects.popleft())
        return self._landed() if self.flying else []

    @cached_property
    def _packed(self) -> Packed:
        return pack(self.work)

    def _send(self, task: _Task) -> None:
        future = self.pool.submit(self._packed, task.items, task.attempt, local=task.not_ready)
        self.flying[future] = task

    def _landed(self) -> list[ItemOutcome]:
        known: list[ItemOutcome] = []
        arrived = wait(self.flying, AGAIN, FIRST_COMPLETED).done
        if not arrived and self.pool.stranded():
            lost = list(self.flying.items())
            self.flying.clear()  # what comes back from the first time counts no more
            for future, task in lost:
                future.cancel()
                self._send(task)
        for future in arrived:
            task = self.flying.pop(future)
            error = CancelledError() if future.cancelled() else future.exception()
            if error is None:
                known += future.result()
                self.landed = True
            elif isinstance(error, IgpeError):
                raise error
            else:
                known += self._failed(task, error)
        return known

    def _failed(self, task: _Task, error: BaseException) -> list[ItemOutcome]:
        """Try each item again alone, or record it as failed after enough attempts."""
        not_ready = isinstance(error, NotReady)
        if task.attempt < RETRIES and not (not_ready and task.not_ready):
            self.suspects += [_Task([i], task.attempt + 1, not_ready) for i in task.items]
            return []
        if not self.landed:
            if not_ready:
                raise error.args[0]
            raise ProblemError(
                f"No worker of the executor returned a result ({type(error).__name__}: "
                f"{error}). Workers need igpe and everything the model imports. To use "
                "processes on this machine instead, pass executor=2."
            ) from error
        status = Status.RAISED if not_ready else Status.WORKER_DIED
        reason = str(error.args[0]) if not_ready else f"{type(error).__name__}: {error}"
        return [ItemOutcome(item.key, status, {}, 0.0, reason) for item in task.items]
