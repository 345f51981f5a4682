"""Run many items: a bounded number in flight, each finished one kept at once in an SQLite file.

A failure is kept with a hash of the code that it depends on, and tried again once that changed. The
hash covers igpe itself and the user's classes and functions that the work is made of, with what
they enclose and the globals that they name, as they are loaded (a file may have changed since). It
leaves out what is installed with Python or into its environment. A hash that changes for nothing
costs a second attempt.
"""

import hashlib
import json
import os
import sqlite3
import sys
import sysconfig
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from igpe.core.arguments import SHORT, digest, is_count, is_finite, require
from igpe.core.errors import DataError, IgpeError, ProblemError
from igpe.core.files import read_json
from igpe.core.json_form import plain
from igpe.core.status import Status
from igpe.tasks.executors import AGAIN, LOG, Pool, Report, Workers, pool_of
from igpe.tasks.workers import Item, ItemOutcome, NotReady, Packed, Work, done, pack

OURS = Path(__file__).resolve().parents[1]
_KINDS = ("stdlib", "platstdlib", "purelib", "platlib")
_FOLDERS = [Path(sysconfig.get_path(kind)) for kind in _KINDS]
INSTALLED = tuple({f"{p}{os.sep}" for f in (*_FOLDERS, OURS) for p in (f, f.resolve())})
MOST = 100_000  # objects that are looked at


def code_of(*values: Any) -> str:
    """The hash for work made of these values (what pickle would send of them)."""
    return digest(_package(), list(_user_code(values)))[:SHORT]


@cache
def _package() -> str:
    content = hashlib.sha256(sys.version.encode())
    for path in sorted(OURS.rglob("*.[pc]*")):
        if path.suffix in {".py", ".c"}:
            content.update(path.read_bytes())
    return content.hexdigest()


def _is_installed(path: str) -> bool:
    return path.startswith(INSTALLED) or os.path.realpath(path).startswith(INSTALLED)


def _user_code(values: Any) -> Iterator[str]:
    """Code and plain values of classes and functions that are the user's, breadth first."""
    waiting, seen = deque([values]), dict[int, Any]()
    while waiting and len(seen) < MOST:
        value = waiting.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept, so that no other object gets its id
        if isinstance(value, (bool, int, float, str, bytes)):
            yield repr(value)
        elif isinstance(value, CodeType):
            yield value.co_code.hex()
            waiting += [value.co_names, value.co_consts]
        else:
            waiting += _members(value)


def _members(value: Any) -> Iterable[Any]:
    """What a container, a function, a class or an object consists of."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, FunctionType):
        return _of_function(value)
    if isinstance(value, ModuleType):
        return []
    return _of_class(value) if isinstance(value, type) else _of_object(value)


def _of_function(function: FunctionType) -> list[Any]:
    """Code, enclosed values and named globals of a function, if it is the user's."""
    if _is_installed(function.__code__.co_filename):
        return []
    enclosed, names = [], sorted(_names(function.__code__))
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a cell that is still empty
            enclosed.append(cell.cell_contents)
    known = [function.__globals__[n] for n in names if n in function.__globals__]
    of_modules = [
        vars(m)[n] for m in known if isinstance(m, ModuleType) for n in names if n in vars(m)
    ]
    return [function.__code__, function.__defaults__, enclosed, known, of_modules]


def _names(code: CodeType) -> set[str]:
    """The names that code uses, that of functions inside of it too."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def _of_class(kind: type) -> list[Any]:
    """Members and bases of a class, unless it is installed: versions of those do not count."""
    if not _is_own(kind):
        return []
    members = (getattr(v, "__func__", getattr(v, "fget", v)) for v in vars(kind).values())
    return [
        *(m for m in members if isinstance(m, (FunctionType, str, int, float, tuple))),
        *kind.__bases__,
    ]


def _of_object(value: Any) -> list[Any]:
    """Parts that pickle would send of an object of igpe or the user."""
    kind = type(value)
    if not (_is_own(kind) or kind.__module__.startswith(("igpe.", "functools"))):
        return []
    try:
        return list(value.__reduce_ex__(4)[:3])
    except Exception:  # what cannot be sent is no part of the work elsewhere
        return []


def _is_own(kind: type) -> bool:
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return path is None or not _is_installed(path)


MARK = int.from_bytes(b"igpe", "big")  # application_id: what SQLite files say they are
TABLE = """CREATE TABLE outcomes (
    series TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL, seconds REAL NOT NULL,
    message TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (series, key)) WITHOUT ROWID"""
ADD = """INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    status = excluded.status, seconds = excluded.seconds, message = excluded.message,
    row = excluded.row WHERE status <> 'DONE'"""
GET = "SELECT status, seconds, message, row FROM outcomes WHERE series = ? AND key = ?"
DONE = "DONE"  # stands for the status None
CODE = "code"  # entry of the row of a failure: with which code it failed
KNOWN = {DONE, *Status.__members__}
DAMAGED = "The store's outcome of the item {} is damaged. Remove the file to do all items again."
WAIT = 30.0  # s, for another process that writes to the same file


class Store:
    """The outcomes of one series; several series live in one file.

    A committed outcome survives the end of this process, however sudden (a write-ahead log).

    series  what the outcomes depend on, as a hash
    code    a hash of the code that does the work: failures are kept for the same code only
    raises  DataError if the file cannot be made, or is no SQLite file
    """

    def __init__(self, path: str | Path, series: str, code: str = "") -> None:
        self._series, self._code = series, code
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
                f"The store '{path}' cannot be used ({error}); give the path of a new file in a "
                "folder that exists, or of one that igpe made as a store."
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

        An item that timed out is done again where it may take longer now, one that failed where the
        code has changed since.

        raises DataError if the file cannot be read
        """
        entry = self._run(GET, (self._series, key)).fetchone()
        if entry is None:
            return None
        status, seconds, message, row = entry
        if status not in KNOWN or not isinstance(seconds, float) or not isinstance(message, str):
            raise DataError(DAMAGED.format(key))
        if status == Status.TIMED_OUT.name and (timeout is None or seconds < timeout):
            return None
        try:
            kept = dict(read_json(row.encode()))
        except (ValueError, TypeError, AttributeError):
            raise DataError(DAMAGED.format(key)) from None
        if status == DONE:
            return ItemOutcome(key, None, kept, seconds, message)
        if status != Status.TIMED_OUT.name and kept.get(CODE) != self._code:
            return None
        return ItemOutcome(key, Status[status], {}, seconds, message)

    def add(self, outcomes: Iterable[ItemOutcome]) -> None:
        """Keep some more; one that is there and did not fail stays as it is.

        raises DataError if the file cannot be written
        """
        with self._file:
            for one in outcomes:
                status = DONE if one.status is None else one.status.name
                kept = one.row if one.status is None else {CODE: self._code}
                row = json.dumps(plain(kept), allow_nan=False)
                given = (self._series, one.key, status, one.seconds, one.message, row)
                self._run(ADD, given)

    def close(self) -> None:
        """Leave one file, without its log."""
        self._file.close()

    def _run(self, words: str, given: tuple[object, ...]) -> sqlite3.Cursor:
        try:
            return self._file.execute(words, given)
        except sqlite3.Error as error:
            raise DataError(
                f"The store cannot be read or written any more ({error}); what was finished before "
                "is kept. Is the disk full, or the file open elsewhere?"
            ) from error


RETRIES = 3  # of an item whose worker died
AT_ONCE = 100  # outcomes read from the store before they are passed on


@dataclass(frozen=True)
class Backend:
    """Where and how items are done.

    executor  None: here; a number: so many processes of our own; or an executor
    store     file in which finished items are kept, and not done again
    timeout   s for each item; what takes longer is ended and recorded
    chunk     items of one task of an executor
    report    called when work goes elsewhere than to the executor; by default a warning is logged
    """

    executor: Workers = None
    store: str | Path | None = None
    timeout: float | None = None
    chunk: int = 1
    report: Report = LOG.warning

    def __post_init__(self) -> None:
        ok = self.timeout is None or (is_finite(self.timeout) and self.timeout > 0)
        require(ok, "the time-out of an item", "timeout", self.timeout, "seconds above 0, or None")
        ok = self.store is None or isinstance(self.store, (str, Path))
        require(ok, "igpe", "store", self.store, "the path of a file")
        ok = not is_count(self.executor) or self.executor != 0
        require(ok, "igpe", "executor", self.executor, "1 process or more, or None")


def run(work: Work, items: Iterable[Item], backend: Backend = Backend()) -> Generator[ItemOutcome]:
    """The outcomes of all items, as they become known.

    An item whose worker dies is tried again, and recorded if that does not help. If the iteration
    ends early, what has started is given up; what has ended is in the store, but for rows whose own
    "status" is INTERRUPTED.
    An item for which one worker cannot make the work ready goes to another process of this machine.
    raises  ProblemError if the work cannot be sent or made ready anywhere, or the executor ends;
            DataError by the store; what the work raises of igpe's own errors
    """
    if backend.store is None:
        for portion in _portions(work, iter(items), backend):
            yield from portion
        return
    store = Store(backend.store, work.series, code_of(work.make, work.arguments))
    try:
        yield from _with_store(work, items, backend, store)
    finally:
        store.close()


def _with_store(
    work: Work, items: Iterable[Item], backend: Backend, store: Store
) -> Iterator[ItemOutcome]:
    stored: list[ItemOutcome] = []

    def missing() -> Iterator[Item | None]:
        """Items to be done; None where stored outcomes must be passed on before."""
        for item in items:
            known = store.get(item.key, backend.timeout)
            if known is not None:
                stored.append(known)
            if stored and (known is None or len(stored) >= AT_ONCE):
                yield None
            if known is None:
                yield item
        if stored:
            yield None

    for portion in _portions(work, missing(), backend):
        store.add(one for one in portion if one.row.get("status") != Status.INTERRUPTED.name)
        yield from [*stored, *portion]
        stored.clear()


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
    pool = pool_of(workers, backend.timeout, RETRIES, backend.report)
    flight = _Flight(work, todo, pool, backend.chunk)
    try:
        while flight.goes_on():
            yield flight.next()
    finally:
        flight.end()


class _Task(NamedTuple):
    """Items on their way; after the first attempt alone, so that a worker's death is theirs.

    not_ready  whether a worker could not make the work ready for them
    """

    items: Sequence[Item]
    attempt: int = 0
    not_ready: bool = False


@dataclass
class _Flight:
    """Tasks in flight. What was there when a worker died is tried again alone, at the end."""

    work: Work
    todo: Iterator[Item | None]
    pool: Pool
    chunk: int
    flying: dict[Future[list[ItemOutcome]], _Task] = field(default_factory=dict)
    suspects: deque[_Task] = field(default_factory=deque)
    more: bool = True
    landed: bool = False

    def goes_on(self) -> bool:
        """Return True if anything is left to do."""
        return self.more or bool(self.flying or self.suspects)

    def next(self) -> list[ItemOutcome]:
        """Keep the pool busy, and wait for an outcome; an empty list if there is none yet.

        Nothing more is sent while all that came back so far failed.
        """
        doubtful = bool(self.suspects) and not self.landed
        while self.more and not doubtful and len(self.flying) < self.pool.ahead():
            portion = list(islice(self.todo, self.chunk))
            self.more = len(portion) == self.chunk
            items = [item for item in portion if item is not None]
            if items:
                self._send(_Task(items))
            if None in portion:
                return []
        if not self.flying and self.suspects:
            self._send(self.suspects.popleft())
        return self._landed() if self.flying else []

    def end(self) -> None:
        """Give up what has not started, and end what is our own."""
        for future in self.flying:
            future.cancel()
        self.pool.close()

    @cached_property
    def _packed(self) -> Packed:
        return pack(self.work)

    def _send(self, task: _Task) -> None:
        local = task.not_ready and self.landed  # others could: it is this work's worker
        future = self.pool.submit(self._packed, task.items, task.attempt, local=local)
        self.flying[future] = task

    def _landed(self) -> list[ItemOutcome]:
        known: list[ItemOutcome] = []
        arrived = wait(self.flying, AGAIN, FIRST_COMPLETED).done
        if not arrived and self.pool.stranded():
            self._send_again()
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

    def _send_again(self) -> None:
        """All that is in flight; what comes back from the first time counts no more."""
        lost = list(self.flying.items())
        self.flying.clear()
        for future, task in lost:
            future.cancel()
            self._send(task)

    def _failed(self, task: _Task, error: BaseException) -> list[ItemOutcome]:
        """Each item again, until it is to blame often enough."""
        not_ready = isinstance(error, NotReady)
        if task.attempt < RETRIES and not (not_ready and task.not_ready):
            self.suspects += [_Task([i], task.attempt + 1, not_ready) for i in task.items]
            return []
        if isinstance(error, NotReady):
            if not self.landed:
                raise error.args[0]
            reason = str(error.args[0])
            return [ItemOutcome(item.key, Status.RAISED, {}, 0.0, reason) for item in task.items]
        reason = f"{type(error).__name__}: {error}"
        if not self.landed:
            raise ProblemError(
                f"No worker of the executor comes back with anything ({reason}). Workers need igpe "
                "and what the model imports; executor=2 uses processes of this machine."
            ) from error
        return [ItemOutcome(item.key, Status.WORKER_DIED, {}, 0.0, reason) for item in task.items]
