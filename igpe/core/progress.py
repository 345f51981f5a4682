"""Progress of long computations: a bar in notebooks and terminals, or a function of the caller.

A computation says a sentence whenever it has something to say. A `Share` is a sentence that knows
which share of the work is done.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from html import escape
from typing import Any, ParamSpec, TypeAlias, TypeVar

from igpe.core.markup import one_line

Tell: TypeAlias = Callable[[str], None]
Progress: TypeAlias = Tell | bool | None
"""A function that is called with sentences; True: a bar; None: a bar in notebooks; False: none."""

SOON = 0.02  # share below which the time left is not known
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
_receiver: ContextVar[Tell | None] = ContextVar("igpe_progress", default=None)


class Share(str):
    """A sentence with the share of the work that is done.

    share   0 to 1
    steady  whether the rest takes as long as its share, so that the time left follows
    """

    share: float
    steady: bool

    def __new__(cls, sentence: str, share: float, *, steady: bool = True) -> "Share":
        """The sentence with its share."""
        made = super().__new__(cls, sentence)
        made.share, made.steady = min(max(share, 0.0), 1.0), steady
        return made


def teller(progress: Progress) -> Tell:
    """The function to be called; one that does nothing if there is none."""
    return progress if callable(progress) else lambda sentence: None


def with_bar(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """The function, whose argument `progress` is shown as a bar unless it is a function."""

    @wraps(function)
    def wrapped(*args: Arguments.args, **given: Arguments.kwargs) -> Answer:
        progress: Any = given.get("progress")
        with reported(progress) as tell:
            given["progress"] = tell
            return function(*args, **given)

    return wrapped


@contextmanager
def reported(progress: Progress) -> Iterator[Tell]:
    """Yield the function that receives messages; of nested computations only one has the bar."""
    outer = _receiver.get()
    if callable(progress) or progress is False or outer is not None:
        shown: AbstractContextManager[Tell] = nullcontext(teller(progress))
    elif _in_notebook():
        shown = _notebook()
    else:
        shown = _terminal() if progress else nullcontext(teller(None))
    with shown as tell:
        token = _receiver.set(tell if callable(progress) or outer is None else outer)
        try:
            yield tell
        finally:
            _receiver.reset(token)


def say(sentence: str) -> None:
    """Report progress to the function or bar of the surrounding public call, if there is one.

    For what lies too deep to be handed a function.
    """
    if (tell := _receiver.get()) is not None:
        tell(sentence)


def _in_notebook() -> bool:
    """Return True in a notebook with a frontend that can show progress."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _notebook() -> Iterator[Tell]:
    from IPython import display  # noqa: PLC0415 - not needed elsewhere

    began, shown = time.perf_counter(), {"text/html": "", "text/plain": ""}
    show: Any = display.display
    handle = show(shown, raw=True, display_id=True)

    def tell(sentence: str) -> None:
        share = getattr(sentence, "share", None)
        value = "" if share is None else f' value="{share:.3f}"'
        words = f"{sentence}{_left(sentence, began)}"
        html = f"<progress{value}></progress> {escape(one_line(words))}"
        handle.update({"text/html": html, "text/plain": words}, raw=True)

    try:
        yield tell
    finally:
        handle.update(shown, raw=True)


@contextmanager
def _terminal() -> Iterator[Tell]:
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar  # noqa: PLC0415

    bar, words = BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)
    console, began = Console(stderr=True), time.perf_counter()
    hidden = not console.is_terminal  # else a log would begin with an empty line
    columns = SpinnerColumn(), bar, TimeElapsedColumn(), words
    with Bar(*columns, console=console, transient=True, disable=hidden) as shown:
        task = shown.add_task("Reading the model", total=None)

        def tell(sentence: str) -> None:
            share = getattr(sentence, "share", None)
            total = None if share is None else 1.0
            text = one_line(f"{sentence}{_left(sentence, began)}")
            shown.update(task, description=text, total=total, completed=share or 0.0)

        yield tell


def _left(sentence: str, began: float) -> str:
    """Estimate the remaining time, if possible."""
    if not isinstance(sentence, Share) or not sentence.steady or not SOON < sentence.share < 1:
        return ""
    seconds = (time.perf_counter() - began) * (1 / sentence.share - 1)
    return f", about {seconds:.0f} s left"
