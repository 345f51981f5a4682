"""A hash of the code that an outcome depends on, so that failures are tried again once it changed.

It covers igpe itself, the user's own modules that are loaded (not those installed with Python or
into its environment), and the classes and functions that the work is made of, with what they
enclose: those of a notebook are in no file. A hash that changes for nothing costs a second attempt.
"""

import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from igpe.tasks.digest import SHORT, digest

INSTALLED = [
    Path(sysconfig.get_path(name)).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
]
OURS = Path(__file__).resolve().parents[1]
MOST = 10_000  # objects that are looked at


def code_of(*values: Any) -> str:
    """The hash for work made of these values (what pickle would send of them)."""
    return digest(_package(), _own_modules(), list(_pieces(values)))[:SHORT]


@cache
def _package() -> str:
    told = hashlib.sha256(sys.version.encode())
    for path in sorted(OURS.rglob("*.[pc]*")):
        if path.suffix in {".py", ".c"}:
            told.update(path.read_bytes())
    return told.hexdigest()


def _own_modules() -> list[tuple[str, str]]:
    """Name and hash of the file of each module that is neither installed nor igpe's."""
    found = []
    for name, module in sorted(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "/").resolve()
        if path.suffix == ".py" and not _is_installed(path):
            with suppress(OSError):
                found.append((name, hashlib.sha256(path.read_bytes()).hexdigest()))
    return found


def _is_installed(path: Path) -> bool:
    return any(folder in path.parents for folder in (*INSTALLED, OURS))


def _pieces(values: Any) -> Iterator[str]:
    """Code and plain values of classes and functions that are the user's, breadth first."""
    waiting, seen = [values], dict[int, Any]()
    while waiting and len(seen) < MOST:
        value = waiting.pop(0)
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
    return _of_class(value) if isinstance(value, type) else _of_object(value)


def _of_function(function: FunctionType) -> list[Any]:
    enclosed = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a cell that is still empty
            enclosed.append(cell.cell_contents)
    return [function.__code__, function.__defaults__, enclosed]


def _of_class(kind: type) -> list[Any]:
    """Its members and bases, unless it is installed: the version of those is not looked at."""
    if not _is_own(kind):
        return []
    members = (getattr(v, "__func__", getattr(v, "fget", v)) for v in vars(kind).values())
    return [*(m for m in members if isinstance(m, (FunctionType, str, float))), *kind.__bases__]


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
    return path is None or not _is_installed(Path(path).resolve())
