"""Processes of our own, each of which does one item at a time and can be ended.

Work as bytes that travel to another process, and made ready there once.

What is done many times: one function made ready once, and the items it is applied to.
"""

import hashlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import cloudpickle

from igpe.core.errors import IgpeError, ProblemError
from igpe.core.status import Status

Row: TypeAlias = dict[str, Any]
"""What an item gives: plain values, as `igpe.core.json_form.plain` makes them."""

Function: TypeAlias = Callable[[Any], Row]
"""From what an item is given to its row."""


@dataclass(frozen=True)
class Work:
    """What all items share.

    make    asked -> the function of one item. It is called once in every process that works, so
            that models are translated and compiled once there. A function of a module
    asked   what it needs; both are pickled where the work is done elsewhere
    series  a hash of all that a row depends on beside its item; "" if nothing is stored
    here    the function, where this process has made it already
    """

    make: Callable[[Any], Function]
    asked: Any
    series: str = ""
    here: Function | None = None

    def function(self) -> Function:
        """Made ready in this process."""
        return self.make(self.asked) if self.here is None else self.here


class Item(NamedTuple):
    """One application of the function; no two items of a work have the same key."""

    key: str
    given: Any


class Outcome(NamedTuple):
    """What became of an item.

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


MOST = 4  # functions that a process keeps ready; compiled models are large


class NotReady(Exception):
    """The work could not be made ready in one worker; `args[0]` is the IgpeError that says why.

    Another worker may be able to: it may have the memory, the file or the package that this one
    lacks.
    """


class Packed(NamedTuple):
    """Work on its way: `name` is the hash of its `content`."""

    name: str
    content: bytes


def pack(work: Work) -> Packed:
    """The work as bytes; functions that no module holds (notebooks, lambdas) travel as code.

    raises ProblemError, naming what cannot be pickled
    """
    try:
        content = cloudpickle.dumps((work.make, work.asked))
    except Exception as error:
        raise ProblemError(
            f"The problem cannot be sent to another process ({type(error).__name__}: {error}). Its "
            "model, the functions in it and the method must be such as can be pickled: make what "
            "cannot (open files, locks, solvers at work) inside of the function model(times), or "
            "leave out executor= and timeout=."
        ) from error
    return Packed(hashlib.sha256(content).hexdigest(), content)


_ready: OrderedDict[str, Function] = OrderedDict()


def function_of(packed: Packed) -> Function:
    """The function, made ready in this process the first time it is asked for.

    raises NotReady if it cannot be
    """
    if packed.name not in _ready:
        while len(_ready) >= MOST:
            _ready.popitem(last=False)
        try:
            _ready[packed.name] = _made(packed)
        except IgpeError as error:
            raise NotReady(error) from error
    _ready.move_to_end(packed.name)
    return _ready[packed.name]


def _made(packed: Packed) -> Function:
    try:
        make, asked = cloudpickle.loads(packed.content)
        function: Function = make(asked)
    except IgpeError:
        raise
    except Exception as error:
        raise ProblemError(
            f"The problem could not be made ready in a worker ({type(error).__name__}: {error}). "
            "Workers must be able to import what the model imports: install it there, or send the "
            "file (dask: client.upload_file('model.py'))."
        ) from error
    return function


BEGIN = (
    "import os, pickle, sys; told = os.fdopen(os.dup(0), 'rb'); sys.path[:] = pickle.load(told); "
    "from igpe.tasks.child import main; main(told)"
)
THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}

BEGINNINGS = 10  # of an item whose children die before they are ready
NOT_READY = (
    f"{BEGINNINGS} processes in a row ended while the problem was made ready in them (out of "
    "memory, or a crash in compiled code). Try it here first, without executor= and timeout=."
)


class Died(Exception):
    """The child ended without an answer."""


class Unready(Exception):
    """The child ended before it had begun an item."""


class Child:
    """One process. What it is told and answers are pickles in its pipes."""

    def __init__(self) -> None:
        self._known, self._ended = "", False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", BEGIN],  # -P: nothing from the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=THREADS | os.environ,
            start_new_session=True,  # Ctrl-C is for us: we end it
        )
        with suppress(Died):  # it is found dead when it is asked
            self._tell(sys.path)

    def ready(self, packed: Packed) -> None:
        """Make the work ready there, unless it is.

        raises Unready if the child ends;  NotReady if it cannot make the work ready
        """
        if self._known != packed.name:
            try:
                self._ask(packed)
            except Died as error:
                raise Unready from error
            self._known = packed.name

    def done(self, item: Item, timeout: float | None) -> Outcome | None:
        """The item's outcome; None if the time was over, and the child is ended.

        raises Died; IgpeError as the item does
        """
        if timeout is None:
            return self._ask(item)  # type: ignore[no-any-return]
        over = threading.Event()

        def end() -> None:
            over.set()
            self.end()

        clock = threading.Timer(timeout, end)
        clock.daemon = True
        clock.start()
        try:
            return self._ask(item)  # type: ignore[no-any-return]
        except Died:
            if over.is_set():
                return None
            raise
        finally:
            clock.cancel()
            clock.join()

    def end(self) -> None:
        """At once."""
        self._ended = True
        self._process.kill()

    def bury(self) -> None:
        """End it and free what it held."""
        self.end()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not yet written cannot be
                pipe.close()  # type: ignore[union-attr]

    @property
    def alive(self) -> bool:
        """Whether the process runs, and answers."""
        return not self._ended and self._process.poll() is None

    def _tell(self, what: Any) -> None:
        assert self._process.stdin is not None, "opened as a pipe"
        try:
            pickle.dump(what, self._process.stdin)
            self._process.stdin.flush()
        except OSError as error:
            raise self._died() from error

    def _ask(self, what: Any) -> Any:
        self._tell(what)
        try:
            answer = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise self._died() from error
        if isinstance(answer, (IgpeError, NotReady)):
            raise answer
        return answer

    def _died(self) -> Died:
        self._ended = True
        return Died()


class Children:
    """As many children as threads ask at the same time; what is idle is used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._closed = False

    def done(self, packed: Packed, item: Item, timeout: float | None, retries: int) -> Outcome:
        """The item done by a child; by another one if it dies, `retries` times.

        raises NotReady if the work cannot be made ready; IgpeError if the item raises one
        """
        died = unready = 0
        while died <= retries:
            try:
                with self._one() as child:
                    try:
                        child.ready(packed)
                    except NotReady:
                        child.end()  # a new process may be able to
                        raise
                    began = time.perf_counter()
                    found = child.done(item, timeout)
            except Unready as error:  # which is no fault of the item's
                unready += 1
                if unready == BEGINNINGS:
                    raise NotReady(ProblemError(NOT_READY)) from error
            except Died:
                died += 1
            else:
                if found is not None:
                    return found
                seconds = time.perf_counter() - began
                return Outcome(
                    item.key, Status.TIMED_OUT, {}, seconds, f"It was ended after {timeout:g} s."
                )
        said = f"Its process died {died} times (out of memory, or a crash in compiled code)."
        return Outcome(item.key, Status.WORKER_DIED, {}, time.perf_counter() - began, said)

    def close(self) -> None:
        """End all of them; who waits for one gets no answer, and no other child begins."""
        with self._lock:
            self._closed = True
            for child in self._all:
                child.end()
            for child in self._idle:
                child.bury()

    @contextmanager
    def _one(self) -> Iterator[Child]:
        """A child for one item; a dead one is buried."""
        with self._lock:
            if self._closed:
                raise ProblemError("The work was ended.")
            child = self._next()
            self._all.add(child)
        try:
            yield child
        finally:
            with self._lock:
                if child.alive and not self._closed:
                    self._idle.append(child)
                else:
                    self._all.discard(child)
                    child.bury()

    def _next(self) -> Child:
        """An idle one that is alive, else a new one."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._all.discard(child)
            child.bury()
        return Child()
