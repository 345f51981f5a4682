"""Time limits and Ctrl-C: one mechanism that ends a computation.

A public function opens a session, in which linear algebra has one thread. Ctrl-C, and a clock when
the time limit is reached, send SIGINT; the session's handler remembers that and raises
KeyboardInterrupt in the main thread. Whoever holds something worth keeping catches it and returns
that. From then on every further integration raises again (`require_going_on`), so that an outer
search cannot go on by mistake. Compiled code that must not be left by an exception runs in
`deferred`, and looks at `stopped` in its callbacks. What makes an answer of what there is runs in
`finishing`, where a second Ctrl-C is remembered only.

Other libraries may turn the exception into one of their own, or print it and go on. So while one of
them is at work it is raised a little later, as soon as igpe's own code runs; and what they make of
it is KeyboardInterrupt again in `interruptible`. Where Python ignores exceptions (`__del__`,
callbacks of weak references) it is raised once more.

In other threads than the main one there are no signals: there `require_going_on` alone ends a
search.

Linear algebra has one thread while igpe computes. igpe factorises many small matrices. OpenBLAS and
MKL share each one out among all processors, which then wait for one another: a search for
Bachmann's 113 unknowns took 60 s of a processor by two threads of a busy machine, and 3.7 s by one.
Parallel work is that of processes (`igpe.tasks`).
"""

import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from igpe.core.status import Status

At = TypeVar("At")
Found = TypeVar("Found")

NOTHING_YET = "Interrupted before any result was available."
PATIENCE = 5.0  # s after the first Ctrl-C in which a further one is not heeded: it would come
# between what the first one left, and the answer that is made of it
ENDING = 1.0  # s after a first Ctrl-C in which parts of the answer begin that it can do without
OURS = str(Path(__file__).parents[1])
ELSEWHERE, AGAIN = 0.5, 0.005  # s for which it is not raised in other libraries, and between looks


@dataclass(frozen=True)
class Deadline:
    """A time of the wall clock, by `time.perf_counter`; infinite where there is none."""

    until: float = float("inf")

    @classmethod
    def after(cls, seconds: float | None) -> "Deadline":
        """The deadline a number of seconds from now; None: never."""
        return cls() if seconds is None else cls(time.perf_counter() + seconds)

    @property
    def over(self) -> bool:
        """Return True if the time limit has passed."""
        return self.until < float("inf") and time.perf_counter() >= self.until

    def keeping(self, evaluate: Callable[[At], Found | None]) -> Callable[[At], Found | None]:
        """Wrap a function that returns None after the time limit, except in its first call."""
        called = False

        def within(at: At) -> Found | None:
            nonlocal called
            if called and self.over:
                return None
            called = True
            return evaluate(at)

        return within


NEVER = Deadline()


@dataclass
class Session:
    """One call of a public function, which Ctrl-C or a time limit may end.

    deadline  of the whole call
    outer     the session it is part of
    pressed   time of the request to end, by `time.perf_counter`; None: there is none
    by_clock  whether the time limit did, not Ctrl-C
    quiet     how many `deferred` and `finishing` are open: KeyboardInterrupt is not raised in them
    last      how many of these are `finishing`
    due       whether KeyboardInterrupt is still to be raised, when igpe's own code runs
    """

    deadline: Deadline = NEVER
    outer: "Session | None" = None
    pressed: float | None = None
    by_clock: bool = False
    quiet: int = 0
    last: int = 0
    due: bool = False
    closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def over(self) -> bool:
        """Whether the computation must end."""
        return self.pressed is not None or self.deadline.over

    @property
    def ended_at(self) -> float:
        """Return when the computation had to end, by `time.perf_counter`."""
        return self.deadline.until if self.pressed is None else self.pressed

    @property
    def status(self) -> Status:
        """Reason for the end, as a status."""
        by_clock = self.by_clock or self.pressed is None
        return Status.TIME_LIMIT if by_clock else Status.INTERRUPTED

    def handle(self, _: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        now, before = time.perf_counter(), self.pressed
        self._end(now)
        late = before is not None and now - before > PATIENCE
        self.due = not self.quiet and (self.due or late or before is None)
        if self.closed or not (late or self.due):
            return
        if not late and now - (before or now) < ELSEWHERE and _is_elsewhere(frame):
            self.again()
            return
        self.due = False
        raise KeyboardInterrupt

    def _end(self, now: float) -> None:
        self.pressed = now if self.pressed is None else self.pressed
        if self.outer is not None and not self.by_clock:
            self.outer._end(now)

    def ring(self) -> None:
        """Send SIGINT to the main thread, as Ctrl-C does; called in the thread of the clock."""
        with self._lock:
            if self.closed or self.pressed is not None:
                return
            self.by_clock = True
        self._send()

    def _send(self) -> None:
        with self._lock:
            if self.closed:
                return
            if hasattr(signal, "pthread_kill"):  # wakes it in waits as well
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                signal.raise_signal(signal.SIGINT)

    def again(self) -> None:
        """Send SIGINT once more a little later: KeyboardInterrupt cannot be raised here."""
        self.due = True
        _later(AGAIN, self._send)

    def close(self) -> None:
        """Raise no further KeyboardInterrupt."""
        with self._lock:
            self.closed = True


def _later(seconds: float, function: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer


def _is_elsewhere(frame: FrameType | None) -> bool:
    """Return True while another library, called by igpe, is running."""
    if frame is None or frame.f_code.co_filename.startswith(OURS):
        return False
    frames = (caller for caller, _ in traceback.walk_stack(frame))
    return any(caller.f_code.co_filename.startswith(OURS) for caller in frames)


_current: ContextVar[Session | None] = ContextVar("igpe_session", default=None)


@contextmanager
def session(time_limit: float | None = None) -> Iterator[Session]:
    """The session of a public function; that of its caller where igpe itself calls it.

    time_limit  s of the wall clock for all that is done inside; None: no limit
    """
    outer = _current.get()
    if outer is not None and time_limit is None:
        yield outer
        return
    own = Session(Deadline.after(at_most(time_limit)), outer)
    if outer is not None:
        own.quiet, own.last = outer.quiet, outer.last
    token = _current.set(own)
    try:
        with one_thread(), _heeding(own):
            yield own
    except KeyboardInterrupt as error:
        error.args = error.args or (NOTHING_YET,)
        raise
    finally:
        _current.reset(token)


@contextmanager
def _heeding(own: Session) -> Iterator[None]:
    """Let the session handle SIGINT, if SIGINT would otherwise raise KeyboardInterrupt."""
    is_main = threading.current_thread() is threading.main_thread()
    before: Any = signal.getsignal(signal.SIGINT) if is_main else None
    is_ours = isinstance(getattr(before, "__self__", None), Session)
    if not (is_ours or before is signal.default_int_handler):
        yield
        return
    clock, others = None, sys.unraisablehook

    def ignored(what: "sys.UnraisableHookArgs") -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            own.again()
        else:
            others(what)

    signal.signal(signal.SIGINT, own.handle)
    sys.unraisablehook = ignored
    try:
        if own.deadline.until < float("inf"):
            clock = _later(own.deadline.until - time.perf_counter(), own.ring)
        yield
    finally:
        own.close()
        if clock is not None:
            clock.cancel()
        sys.unraisablehook = others
        signal.signal(signal.SIGINT, before)  # which handles a pending signal before


def in_session() -> bool:
    """Whether a session handles SIGINT in this thread."""
    handler = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return in_call() and isinstance(handler, Session)


def in_call() -> bool:
    """Return True inside a call of a public function of igpe."""
    return _current.get() is not None


def stopped() -> bool:
    """Whether the current call must end."""
    current = _current.get()
    if current is None or not current.over or current.last:
        return False
    current.due = False  # the caller knows
    return True


def ended_by() -> Status:
    """Reason for the end of the current call."""
    current = _current.get()
    return Status.INTERRUPTED if current is None else current.status


def require_going_on() -> None:
    """Raise KeyboardInterrupt if the current call must end."""
    current = _current.get()
    if current is not None and current.over and not current.quiet:
        current.due = False
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn an exception that another library made from KeyboardInterrupt back into it."""
    try:
        yield
    except Exception as error:
        if stopped():
            raise KeyboardInterrupt from error
        raise


def if_in_time(make: Callable[[], Found]) -> Found | None:
    """Return what `make` gives; None if Ctrl-C or the time limit leaves no time for it.

    For parts of an answer that it can do without. Ctrl-C ends them, also inside `finishing`; where
    the call must end already they have until `ENDING` seconds after that.
    """
    outer = _current.get()
    limit = Deadline(outer.ended_at + ENDING) if outer is not None and outer.over else NEVER
    own = Session(limit, outer)
    token = _current.set(own)
    try:
        with _heeding(own), interruptible():
            require_going_on()
            return make()
    except KeyboardInterrupt:
        return None
    finally:
        _current.reset(token)


def waited() -> float:
    """Seconds since the current call had to end; 0 if it does not."""
    current = _current.get()
    if current is None or not current.over:
        return 0.0
    return time.perf_counter() - current.ended_at


def at_most(seconds: float | None) -> float | None:
    """A time limit for a part of the current call; None: none."""
    current = _current.get()
    if current is None or current.deadline == NEVER:
        return seconds
    left = max(current.deadline.until - time.perf_counter(), 0.0)
    return left if seconds is None else min(seconds, left)


@contextmanager
def deferred(*, last: bool = False) -> Iterator[None]:
    """Ctrl-C inside makes `stopped` true and is raised at the end, unless it is the `last`."""
    with session() as current:
        current.quiet += 1
        current.last += last
        try:
            yield
        finally:
            current.quiet -= 1
            current.last -= last
        if not last:
            require_going_on()


def finishing() -> AbstractContextManager[None]:
    """Ctrl-C inside is remembered only: what is done inside makes an answer of what there is."""
    return deferred(last=True)


_lock = threading.Lock()
_inside: list[Any] = []  # limits of the calls at work; the first one knows how many threads were


@contextmanager
def one_thread() -> Iterator[None]:
    """Give BLAS one thread in the block; the last overlapping call restores its threads."""
    with _lock:
        _inside.append(None if _inside else _libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            if len(_inside) == 1:
                _inside[0].restore_original_limits()
            _inside.pop()


@cache
def _libraries() -> Any:
    """The libraries that are loaded: NumPy's and SciPy's, which has one of its own."""
    import scipy.linalg  # noqa: F401, PLC0415 - loads it
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - takes 0.1 s, with the search

    return ThreadpoolController()
