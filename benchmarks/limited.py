"""A measurement in a process of its own that is ended after so many seconds of the processor."""

import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
ENOUGH = 0.3  # s of calls that a coarse clock can tell


def ask(file: str, limit: int, *words: Any) -> dict[str, float] | None:
    """What a benchmark's own file answers to some words; None where it was stopped.

    raises  RuntimeError if it broke in another way
    """
    ran = subprocess.run(
        [sys.executable, file, "--limited", str(limit), *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ran.returncode < 0:
        return None
    if ran.returncode:
        raise RuntimeError(f"{words} ended with {ran.returncode}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def answer(work: Callable[..., dict[str, float]]) -> bool:
    """Whether this process was asked; if so it has answered with what `work` makes of the words."""
    if sys.argv[1:2] != ["--limited"]:
        return False
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    print(json.dumps(work(*sys.argv[3:])))
    return True


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of the processor of one call, and what it gave."""
    begun = time.process_time()
    for calls in itertools.count(1):
        told = work()
        if (passed := time.process_time() - begun) >= ENOUGH:
            return passed / calls, told
    raise AssertionError
