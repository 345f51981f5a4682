"""Linear algebra with one thread while igpe computes.

igpe factorises many small matrices. OpenBLAS and MKL share each one out among all processors, which
then wait for one another: a search for Bachmann's 113 unknowns took 60 s of a processor by two
threads of a busy machine, and 3.7 s by one. Parallel work is that of processes (`igpe.tasks`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

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
