"""Many items: a bounded number in flight, each finished one kept at once."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from igpe.core.arguments import is_count, is_finite, require
from igpe.core.errors import IgpeError, ProblemError
from igpe.core.status import Status
from igpe.tasks.children import NotReady, Packed, pack
from igpe.tasks.code import code_of
from igpe.tasks.crew import AGAIN, LOG, Crew, Report, Workers, crew
from igpe.tasks.perform import done
from igpe.tasks.store import Store
from igpe.tasks.work import Item, Outcome, Work

RETRIES = 3  # of an item whose worker died
AT_ONCE = 100  # outcomes read from the store before they are passed on


@dataclass(frozen=True)
class Place:
    """Where and how items are done.

    executor  None: here; a number: so many processes of our own; or an executor
    store     file in which finished items are kept, and not done again
    timeout   s for each item; what takes longer is ended and recorded
    chunk     items of one task of an executor
    report    is told when work goes elsewhere than to the executor; by default a warning is logged
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


def run(work: Work, items: Iterable[Item], place: Place = Place()) -> Generator[Outcome]:
    """The outcomes of all items, as they become known.

    An item whose worker dies is tried again, and recorded if that does not help. What was begun is
    given up if the iteration ends early; what has ended is in the store, but for rows whose own
    "status" is INTERRUPTED.
    An item for which one worker cannot make the work ready goes to another process of this machine.
    raises  ProblemError if the work cannot be sent or made ready anywhere, or the executor ends;
            DataError by the store; what the work raises of igpe's own errors
    """
    if place.store is None:
        for portion in _portions(work, iter(items), place):
            yield from portion
        return
    store = Store(place.store, work.series, code_of(work.make, work.asked))
    try:
        yield from _with_store(work, items, place, store)
    finally:
        store.close()


def _with_store(work: Work, items: Iterable[Item], place: Place, store: Store) -> Iterator[Outcome]:
    there: list[Outcome] = []

    def missing() -> Iterator[Item | None]:
        """Those to be done; None where what is there must be passed on before."""
        for item in items:
            found = store.get(item.key, place.timeout)
            if found is not None:
                there.append(found)
            if there and (found is None or len(there) >= AT_ONCE):
                yield None
            if found is None:
                yield item
        if there:
            yield None

    for portion in _portions(work, missing(), place):
        store.add(one for one in portion if one.row.get("status") != Status.INTERRUPTED.name)
        yield from [*there, *portion]
        there.clear()


def _portions(work: Work, todo: Iterator[Item | None], place: Place) -> Iterator[list[Outcome]]:
    """Outcomes that were known at the same time; for None of what is to do an empty list."""
    if place.executor is None and place.timeout is None:
        function = None
        for item in todo:
            function = work.function() if function is None and item is not None else function
            yield [] if item is None or function is None else [done(function, item)]
        return
    workers = 1 if place.executor is None else place.executor
    hands = crew(workers, place.timeout, RETRIES, place.report)
    flight = _Flight(work, todo, hands, place.chunk)
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
    crew: Crew
    chunk: int
    flying: dict[Future[list[Outcome]], _Task] = field(default_factory=dict)
    suspects: deque[_Task] = field(default_factory=deque)
    more: bool = True
    landed: bool = False

    def goes_on(self) -> bool:
        """Whether anything is left."""
        return self.more or bool(self.flying or self.suspects)

    def next(self) -> list[Outcome]:
        """Keep the crew busy, and wait for an outcome; an empty list if there is none yet.

        Nothing more is sent while all that came back so far failed.
        """
        doubtful = bool(self.suspects) and not self.landed
        while self.more and not doubtful and len(self.flying) < self.crew.ahead():
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
        """Give up what has not begun, and end what is our own."""
        for future in self.flying:
            future.cancel()
        self.crew.close()

    @cached_property
    def _packed(self) -> Packed:
        return pack(self.work)

    def _send(self, task: _Task) -> None:
        local = task.not_ready and self.landed  # others could: it is this work's worker
        future = self.crew.submit(self._packed, task.items, task.attempt, local=local)
        self.flying[future] = task

    def _landed(self) -> list[Outcome]:
        known: list[Outcome] = []
        arrived = wait(self.flying, AGAIN, FIRST_COMPLETED).done
        if not arrived and self.crew.stranded():
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

    def _failed(self, task: _Task, error: BaseException) -> list[Outcome]:
        """Each item again, until it is to blame often enough."""
        not_ready = isinstance(error, NotReady)
        if task.attempt < RETRIES and not (not_ready and task.not_ready):
            self.suspects += [_Task([i], task.attempt + 1, not_ready) for i in task.items]
            return []
        if isinstance(error, NotReady):
            if not self.landed:
                raise error.args[0]
            said = str(error.args[0])
            return [Outcome(item.key, Status.RAISED, {}, 0.0, said) for item in task.items]
        said = f"{type(error).__name__}: {error}"
        if not self.landed:
            raise ProblemError(
                f"No worker of the executor comes back with anything ({said}). Workers need igpe "
                "and what the model imports; executor=2 uses processes of this machine."
            ) from error
        return [Outcome(item.key, Status.WORKER_DIED, {}, 0.0, said) for item in task.items]
