"""Checks of arguments, with helpful messages; a hash of values, the same in every session."""

import hashlib
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from igpe.core.errors import IgpeError, ProblemError

LONGEST = 80  # letters of a value shown in a message


def is_finite(*values: Any) -> bool:
    """Return True if all values are finite numbers; a string is not a number."""
    return all(isinstance(v, Real) and np.isfinite(float(v)) for v in values)


def is_number(*values: Any) -> bool:
    """Return True if all values are numbers, including infinite values and NaN."""
    return all(isinstance(v, Real) for v in values)


def is_count(value: Any) -> bool:
    """Return True for an integer that is not negative."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def require(ok: bool, owner: str, field: str, given: Any, wanted: str) -> None:
    """Raise ProblemError unless ok; the message has the given value and what is expected."""
    if not ok:
        raise ProblemError(f"{field} is {shown(given)}; {owner} needs {wanted}.")


def shown(value: Any) -> str:
    """Format a value for a message: numbers with few digits, all else as Python writes it."""
    if isinstance(value, Real):
        return f"{float(value):g}"
    written = repr(value)
    return written if len(written) <= LONGEST else f"{written[:LONGEST]}..."


def require_mapping(role: str, given: Any, example: str, error: type[IgpeError]) -> None:
    """Raise the error unless `given` is a mapping from names; `example` shows one."""
    needed = f"expected a mapping with names as keys, for example {example}."
    if not isinstance(given, Mapping):
        raise error(f"{role} is {shown(given)}; {needed}")
    if others := [name for name in given if not isinstance(name, str)]:
        raise error(f"{role} has the keys {others}, which are not names; {needed}")


SHORT = 16  # letters that tell apart what belongs to one work


def digest(*values: Any) -> str:
    """Hexadecimal SHA-256 of numbers, texts, arrays, mappings, sequences and objects made of them.

    An object counts as its class with its fields, a function as its name.
    """
    content = hashlib.sha256()
    for piece in _pieces(values):
        content.update(len(piece).to_bytes(8) + piece)
    return content.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield f"array {value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        yield repr(value).encode()
    else:
        kind, parts = _parts(value)
        yield f"{kind} {len(parts)}".encode()
        for part in parts:
            yield from _pieces(part)


def _parts(value: Any) -> tuple[str, list[Any]]:
    """Return the kind of a compound value, and its parts."""
    if isinstance(value, Mapping):
        return "mapping", [part for pair in value.items() for part in pair]
    if isinstance(value, (set, frozenset)):
        return "set", sorted(value, key=repr)
    if isinstance(value, (list, tuple)):
        return "sequence", list(value)
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}", []
    kind, fields = type(value), sorted(getattr(value, "__dict__", {}).items())
    return f"{kind.__module__}.{kind.__qualname__}", [part for pair in fields for part in pair]
