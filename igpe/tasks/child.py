"""The other end of `igpe.tasks.children`: waits for items, does them, and answers."""

import os
import pickle
import queue
import sys
import threading
from typing import Any, BinaryIO

from igpe.core.errors import IgpeError
from igpe.tasks.children import Function, NotReady, Outcome, Packed, function_of
from igpe.tasks.perform import done


def main(told: BinaryIO) -> None:
    """Answer what is `told` until the parent closes that pipe, or ends."""
    answers = _answers()
    asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(told, asked), daemon=True).start()
    function: Function | None = None
    answer: Outcome | IgpeError | NotReady | None
    while True:
        what, answer = asked.get(), None
        try:
            if isinstance(what, Packed):
                function = function_of(what)
            else:
                assert function is not None, "the work comes before its items"
                answer = done(function, what)
        except (IgpeError, NotReady) as error:
            answer = error
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except OSError:
            os._exit(0)  # nobody waits for it any more


def _listen(told: BinaryIO, asked: "queue.SimpleQueue[Any]") -> None:
    """Hears at once when the parent ends, also in the midst of an item: nobody waits for it."""
    while True:
        try:
            asked.put(pickle.load(told))
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(0)


def _answers() -> BinaryIO:
    """The pipe to the parent, out of reach of models that read or print."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers
