"""Dataclasses that check their fields: each annotation contains a type and a rule.

    @dataclass(frozen=True)
    class Method(Checked):
        rtol: Positive = 1e-8
        trials: CountFrom1 = 20
        form: Annotated[str, one_of("linear", "log")] = "linear"

A value that breaks its rule raises ProblemError with the field, the value and what is needed.
"""

from collections.abc import Callable
from inspect import get_annotations
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args

from igpe.core.arguments import is_count, is_finite, require
from igpe.core.names import Suggesting


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


def count_from(least: int) -> Rule:
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
Count: TypeAlias = Annotated[int, count_from(0)]
CountFrom1: TypeAlias = Annotated[int, count_from(1)]
CountOrNone: TypeAlias = Annotated[int | None, or_none(count_from(1))]


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
