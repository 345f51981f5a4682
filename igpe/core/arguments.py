"""Checks of arguments and of fields, with helpful messages; a hash of values for every session.

The annotation of a field contains a type and a rule:

    @dataclass(frozen=True)
    class Method(Checked):
        rtol: Positive = 1e-8
        trials: CountFrom1 = 20
        form: Annotated[str, one_of("linear", "log")] = "linear"

A value that breaks its rule raises ProblemError with the field, the value and what is needed.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from inspect import get_annotations
from numbers import Integral, Real
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args

import numpy as np

from igpe.core.errors import IgpeError, ProblemError
from igpe.core.markup import Suggesting

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


def require(ok: bool, owner: str, field: str, given: Any, expected: str) -> None:
    """Raise ProblemError unless ok; the message has the given value and what is expected."""
    if not ok:
        raise ProblemError(f"{field} is {shown(given)}; {owner} needs {expected}.")


def shown(value: Any) -> str:
    """Format a value for a message: numbers with few digits, all else as Python writes it."""
    if isinstance(value, Real) and not isinstance(value, bool):
        return f"{float(value):g}"
    if getattr(value, "shape", ()):  # a table or an array
        return f"a {type(value).__name__} of the shape {value.shape}"
    written = " ".join(repr(value).split())
    return written if len(written) <= LONGEST else f"{written[:LONGEST]}..."


def require_mapping(role: str, given: Any, example: str, error: type[IgpeError]) -> None:
    """Raise the error unless `given` is a mapping from names; `example` shows one."""
    needed = f"expected a mapping with names as keys, for example {example}."
    if not isinstance(given, Mapping):
        raise error(f"{role} is {shown(given)}; {needed}")
    if others := [name for name in given if not isinstance(name, str)]:
        raise error(f"{role} has the keys {others}, which are not names; {needed}")


SHORT = 16  # letters of a digest that suffice within one work


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


class Rule(NamedTuple):
    """A rule for a field: a predicate, and its description for messages."""

    holds: Callable[[Any], bool]
    expected: str


def or_none(rule: Rule) -> Rule:
    """Return the rule that also accepts None."""
    return Rule(lambda v: v is None or rule.holds(v), f"{rule.expected}, or None")


def one_of(*choices: Any) -> Rule:
    """Return the rule that accepts only these values."""
    shown = " or ".join(repr(c) for c in choices)
    return Rule(lambda v: any(v is c or (type(v) is type(c) and v == c) for c in choices), shown)


def _count_from(least: int) -> Rule:
    """Return the rule for whole numbers that are not below `least`."""
    return Rule(lambda v: is_count(v) and v >= least, f"a whole number, {least} or more")


def instance_of(*kinds: type) -> Rule:
    """Return the rule for objects of these classes."""
    names = " or ".join(kind.__name__ for kind in kinds)
    return Rule(lambda v: isinstance(v, kinds), f"an object of class {names}")


POSITIVE = Rule(lambda v: is_finite(v) and v > 0, "a positive number")
NOT_NEGATIVE = Rule(lambda v: is_finite(v) and v >= 0, "a number, 0 or more")
FRACTION = Rule(lambda v: is_finite(v) and 0 < v < 1, "a number between 0 and 1")
FLAG = one_of(True, False)

Positive: TypeAlias = Annotated[float, POSITIVE]
PositiveOrNone: TypeAlias = Annotated[float | None, or_none(POSITIVE)]
NotNegative: TypeAlias = Annotated[float, NOT_NEGATIVE]
Fraction: TypeAlias = Annotated[float, FRACTION]
Flag: TypeAlias = Annotated[bool, FLAG]
Count: TypeAlias = Annotated[int, _count_from(0)]
CountFrom1: TypeAlias = Annotated[int, _count_from(1)]
CountOrNone: TypeAlias = Annotated[int | None, or_none(_count_from(1))]


class Checked(Suggesting):
    """Base of dataclasses that check their fields by annotated rules when an object is created."""

    def __post_init__(self) -> None:
        owner = type(self)
        for base in reversed(owner.__mro__):
            for field, annotation in get_annotations(base).items():
                for rule in get_args(annotation)[1:]:
                    if isinstance(rule, Rule):
                        value = getattr(self, field)
                        require(rule.holds(value), owner.__name__, field, value, rule.expected)
