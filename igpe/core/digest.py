"""A hash of plain values, the same in every process and session."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

SHORT = 16  # letters that tell apart what belongs to one work


def digest(*values: Any) -> str:
    """Hexadecimal SHA-256 of numbers, texts, arrays, mappings, sequences and objects made of them.

    An object counts as its class with its fields, a function as its name.
    """
    told = hashlib.sha256()
    for piece in _pieces(values):
        told.update(len(piece).to_bytes(8))
        told.update(piece)
    return told.hexdigest()


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
    """The kind of what has parts, and these."""
    if isinstance(value, Mapping):
        return "mapping", [part for pair in value.items() for part in pair]
    if isinstance(value, (set, frozenset)):
        return "set", sorted(value, key=repr)
    if isinstance(value, (list, tuple)):
        return "sequence", list(value)
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}", []
    kind = type(value)
    fields = sorted(getattr(value, "__dict__", {}).items())
    return f"{kind.__module__}.{kind.__qualname__}", [part for pair in fields for part in pair]
