"""Work to be done many times, and processes of our own that do it.

A worker process does one item at a time and can be ended in the midst of it. Neither `pebble` nor
`loky` do that here: processes of `pebble` import the user's script again, and those of `loky` have
no time limit of their own and outlive a parent that was killed.
"""

import atexit
import hashlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

import cloudpickle

from igpe.core.errors import EstimationFailed, IgpeError, ProblemError
from igpe.core.status import Status

Row: TypeAlias = dict[str, Any]
"""What an item returns: plain values, as `igpe.core.json_form.plain` makes them."""

Function: TypeAlias = Callable[[Any], Row]
"""From the argument of an item to its row."""


@dataclass(frozen=True)
class Work:
    """The work that all items share.

    make      arguments -> the function of one item. It is called once in every process that works,
              so that models are translated and compiled once there. A function of a module
    arguments what it needs; both are pickled where the work is done elsewhere
    series    a hash of all that a row depends on beside its item; "" if nothing is stored
    here      the function, where this process has made it already
    """

    make: Callable[[Any], Function]
    arguments: Any
    series: str = ""
    here: Function | None = None

    def function(self) -> Function:
        """Make the function ready in this process."""
        return self.make(self.arguments) if self.here is None else self.here


class Item(NamedTuple):
    """One application of the function; no two items of a work have the same key."""

    key: str
    given: Any


class ItemOutcome(NamedTuple):
    """The outcome of an item.

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


class NotReady(Exception):
    """The work could not be made ready in one worker; `args[0]` is the IgpeError that says why.

    Another worker may be able to: it may have the memory, the file or the package that this one
    lacks.
    """


class Packed(NamedTuple):
    """Pickled work: `name` is the hash of its `content`."""

    name: str
    content: bytes


def pack(work: Work) -> Packed:
    """Pickle the work; functions that no module holds (notebooks, lambdas) travel as code.

    raises ProblemError, naming what cannot be pickled
    """
    try:
        content = cloudpickle.dumps((work.make, work.arguments))
    except Exception as error:
        raise ProblemError(NOT_SENT.format(type(error).__name__, error)) from error
    return Packed(hashlib.sha256(content).hexdigest(), content)


NOT_SENT = (
    "The problem cannot be sent to another process ({}: {}). Its model, its functions and "
    "the method must be picklable. Open files, locks and running solvers are not picklable: "
    "create them inside the function model(times), or omit `executor` and `timeout`."
)
NOT_MADE = (
    "A worker could not prepare the problem ({}: {}). Workers must be able to import everything "
    "that the model imports. Install the missing package on each worker, or send your own file to "
    "the workers (dask: client.upload_file('model.py'))."
)
MOST = 4  # functions that a process keeps ready; compiled models are large
_ready: dict[str, Function] = {}


def function_of(packed: Packed) -> Function:
    """Return the function, made ready in this process the first time.

    raises NotReady if it cannot be
    """
    function = _ready.pop(packed.name, None)
    while len(_ready) >= MOST:  # the one that was not used for longest
        del _ready[next(iter(_ready))]
    try:
        if function is None:
            make, arguments = cloudpickle.loads(packed.content)
            function = make(arguments)
    except IgpeError as error:
        raise NotReady(error) from error
    except Exception as error:
        raise NotReady(ProblemError(NOT_MADE.format(type(error).__name__, error))) from error
    _ready[packed.name] = function
    return function


def done(function: Function, item: Item) -> ItemOutcome:
    """Apply the function to an item.

    What an item raises is its outcome; but a refusal of igpe's concerns all items, and is raised.
    """
    start, status, row, message = time.perf_counter(), None, {}, ""
    try:
        row = function(item.given)
    except Exception as error:
        if isinstance(error, IgpeError) and not isinstance(error, EstimationFailed):
            raise
        status, message = Status.RAISED, f"{type(error).__name__}: {error}"
    return ItemOutcome(item.key, status, row, time.perf_counter() - start, message)


START = (
    "import os, pickle, sys; pipe = os.fdopen(os.dup(0), 'rb'); sys.path[:] = pickle.load(pipe); "
    "from igpe.tasks.workers import main; main(pipe)"
)
THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}

RETRIES = 3  # of an item whose worker died
STARTS = 10  # of an item whose workers die before they are ready
UNREADY = (
    f"{STARTS} consecutive processes died while they prepared the problem (out of memory, or a "
    "crash in compiled code). Solve the problem without `executor` and `timeout` to find "
    "the cause."
)


def main(requests: BinaryIO) -> None:
    """Run in a worker process: answer requests until the parent closes their pipe, or ends."""
    answers = os.fdopen(os.dup(1), "wb")  # out of reach of models that read or print
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        """Queue requests; end this process when the parent ends, also in the midst of an item."""
        while True:
            try:
                waiting.put(pickle.load(requests))
            except (EOFError, OSError, pickle.UnpicklingError):
                os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    function: Any = None
    while True:
        request, answer = waiting.get(), cast("ItemOutcome | Exception | None", None)
        try:
            if isinstance(request, Packed):
                function = function_of(request)
            else:
                answer = done(function, request)
        except (IgpeError, NotReady) as error:
            answer = error
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except OSError:
            os._exit(0)  # the parent has ended


class WorkerDied(Exception):
    """The worker ended without an answer; `unready` if it had not started an item."""

    unready = False


class Worker:
    """One process. Requests and answers are pickles in its pipes."""

    def __init__(self) -> None:
        self._known, self._ended = "", False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START],  # -P: nothing from the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=THREADS | os.environ,
            start_new_session=True,  # Ctrl-C is for us: we end it
        )
        with suppress(WorkerDied):  # the first request will see it
            self._send(sys.path)

    def done(self, packed: Packed, item: Item, timeout: float | None) -> ItemOutcome:
        """Do an item, once the work is ready there; the process is ended at the time limit.

        raises WorkerDied;  NotReady if the work cannot be made ready;  IgpeError as the item does
        """
        self._prepare(packed)
        start, late = time.perf_counter(), threading.Event()

        def end() -> None:
            late.set()
            self.end()

        clock = None if timeout is None else threading.Timer(timeout, end)
        try:
            if clock is not None:
                clock.daemon = True
                clock.start()
            return self._request(item)  # type: ignore[no-any-return]
        except WorkerDied:
            if not late.is_set():
                raise
            seconds, message = time.perf_counter() - start, f"It was stopped after {timeout:g} s."
            return ItemOutcome(item.key, Status.TIMED_OUT, {}, seconds, message)
        finally:
            if clock is not None:
                clock.cancel()
                clock.join()

    def _prepare(self, packed: Packed) -> None:
        if self._known != packed.name:
            try:
                self._request(packed)
            except WorkerDied as error:  # which is no fault of the item's
                error.unready = True
                raise
            except NotReady:
                self.end()  # a new process may be able to
                raise
            self._known = packed.name

    def end(self) -> None:
        """End the process and all that it started, at once."""
        self._ended = True
        if self._process.poll() is None and hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def close(self) -> None:
        """End it and free what it held."""
        self.end()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not yet written cannot be
                pipe.close()  # type: ignore[union-attr]

    @property
    def alive(self) -> bool:
        """Return True if the process runs, and answers."""
        return not self._ended and self._process.poll() is None

    def _send(self, request: Any) -> None:
        assert self._process.stdin is not None, "opened as a pipe"
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
        except OSError as error:
            self._ended = True
            raise WorkerDied from error

    def _request(self, request: Any) -> Any:
        self._send(request)
        try:
            answer = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            self._ended = True
            raise WorkerDied from error
        if isinstance(answer, (IgpeError, NotReady)):
            raise answer
        return answer


class WorkerPool:
    """Worker processes for several threads; idle ones are used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._closed = False

    def done(self, packed: Packed, item: Item, timeout: float | None) -> ItemOutcome:
        """Let a worker do the item; another one if it dies, `RETRIES` times.

        raises NotReady if the work cannot be made ready; IgpeError if the item raises one
        """
        died = unready = 0
        start = time.perf_counter()
        while died <= RETRIES:
            try:
                with self._worker() as worker:
                    return worker.done(packed, item, timeout)
            except WorkerDied as error:
                died += not error.unready
                unready += error.unready
                if unready == STARTS:
                    raise NotReady(ProblemError(UNREADY)) from error
        message = f"Its process died {died} times (out of memory, or a crash in compiled code)."
        return ItemOutcome(item.key, Status.WORKER_DIED, {}, time.perf_counter() - start, message)

    def close(self) -> None:
        """End all workers; threads that wait for one get no answer, and no other worker starts."""
        with self._lock:
            self._closed = True
            for worker in self._all:
                worker.end()
            for worker in self._idle:
                worker.close()

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        """A worker for one item: an idle one that is alive, else a new one."""
        with self._lock:
            if self._closed:
                raise ProblemError("The work was ended.")
            while self._idle and not self._idle[-1].alive:
                self._drop(self._idle.pop())
            worker = self._idle.pop() if self._idle else Worker()
            self._all.add(worker)
        try:
            yield worker
        finally:
            with self._lock:
                if worker.alive and not self._closed:
                    self._idle.append(worker)
                else:
                    self._drop(worker)

    def _drop(self, worker: Worker) -> None:
        self._all.discard(worker)
        worker.close()


_alone = threading.Lock()
_pool = WorkerPool()
atexit.register(_pool.close)


def perform(
    packed: Packed, items: Sequence[Item], timeout: float | None, attempt: int
) -> list[ItemOutcome]:
    """Do items in a worker of the user's executor.

    With a time-out every item is done in a process that can be ended. So is what a second thread
    of this process does at the same time: models are neither built nor integrated by two threads.

    timeout  s for each item
    attempt  how often these items were submitted before; it makes each submission another one
    raises   NotReady if the work cannot be made ready; IgpeError if an item raised one
    """
    if timeout is None and _alone.acquire(blocking=False):
        try:
            function = function_of(packed)
            return [done(function, item) for item in items]
        finally:
            _alone.release()
    return [_pool.done(packed, item, timeout) for item in items]
