"""Telling a waiting user what is being done, and for how long each step took."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], None]
"""Is told a sentence whenever a step begins."""

log = logging.getLogger("igpe")


class Clock:
    """Times the steps, and tells of each."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def step(self, name: str, sentence: str) -> Iterator[None]:
        """Time what happens inside under `name`."""
        log.info(sentence)
        if self._progress is not None:
            self._progress(sentence)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
