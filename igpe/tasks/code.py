"""A hash of the code that an outcome depends on, so that failures are tried again once it changed.

It covers igpe itself and the user's classes and functions that the work is made of, with what they
enclose and the globals that they name, as they are loaded (a file may have changed since). What is
installed with Python or into its environment is not looked at. A hash that changes for nothing
costs a second attempt.
"""

import hashlib
import os
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from igpe.core.arguments import SHORT, digest

OURS = Path(__file__).resolve().parents[1]
_KINDS = ("stdlib", "platstdlib", "purelib", "platlib")
_FOLDERS = [Path(sysconfig.get_path(kind)) for kind in _KINDS]
INSTALLED = tuple({f"{p}{os.sep}" for f in (*_FOLDERS, OURS) for p in (f, f.resolve())})
MOST = 100_000  # objects that are looked at


def code_of(*values: Any) -> str:
    """The hash for work made of these values (what pickle would send of them)."""
    return digest(_package(), list(_pieces(values)))[:SHORT]


@cache
def _package() -> str:
    told = hashlib.sha256(sys.version.encode())
    for path in sorted(OURS.rglob("*.[pc]*")):
        if path.suffix in {".py", ".c"}:
            told.update(path.read_bytes())
    return told.hexdigest()


def _is_installed(path: str) -> bool:
    return path.startswith(INSTALLED) or os.path.realpath(path).startswith(INSTALLED)


def _pieces(values: Any) -> Iterator[str]:
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
            waiting += _parts(value)


def _parts(value: Any) -> Iterable[Any]:
    """What a container, a function, a class or an object is made of."""
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
    """Its code, what it encloses, and the globals that it names, if it is the user's."""
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
    """Its members and bases, unless it is installed: the version of those is not looked at."""
    if not _is_own(kind):
        return []
    members = (getattr(v, "__func__", getattr(v, "fget", v)) for v in vars(kind).values())
    return [
        *(m for m in members if isinstance(m, (FunctionType, str, int, float, tuple))),
        *kind.__bases__,
    ]


def _of_object(value: Any) -> list[Any]:
    """What pickle would send of an object that is igpe's or the user's."""
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
