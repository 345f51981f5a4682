"""Planting a fault: public functions, methods and attributes of igpe replaced by wrong ones.

Public names are looked up at the top of the package and in its namespaces, so that a fault does not
depend on where a name stands or is defined.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import ModuleType
from typing import Any, NamedTuple

import igpe


class Fault(NamedTuple):
    """A wrong behaviour.

    sentence  what is wrong
    tests     folders or files of tests that should fail, by their names without ending
    plant     replaces what is right
    """

    sentence: str
    tests: tuple[str, ...]
    plant: Callable[[], None]


FAULTS: dict[str, Fault] = {}
"""Name -> fault, of all modules of `house.wrong` that were imported."""


def fault(tests: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function that plants a fault; its docstring says what is wrong."""

    def register(plant: Callable[[], None]) -> Callable[[], None]:
        FAULTS[plant.__name__] = Fault(str(plant.__doc__), tuple(tests.split()), plant)
        return plant

    return register


def public(names: str) -> Any:
    """The object of a public name, or of one of several: "Estimated EstimatedSigma".

    raises  LookupError if no namespace has any of them
    """
    for name in names.split():
        for place in _namespaces():
            found = getattr(place, name, None)
            if found is not None and not isinstance(found, ModuleType):
                return found
    raise LookupError(f"igpe has none of the public names {names}")


def _namespaces() -> Iterator[Any]:
    yield igpe
    for name in (*dir(igpe), "kinetics"):
        found = getattr(igpe, name, None)
        if isinstance(found, ModuleType):
            yield found


def around(names: str, wrong: Callable[..., Any]) -> None:
    """Replace a public function by `wrong(right, *arguments)`, wherever it was imported."""
    right = public(names)
    planted = replacement(right, wrong)
    for module in [m for n, m in sys.modules.items() if n.partition(".")[0] == "igpe"]:
        for name, value in list(vars(module).items()):
            if value is right:
                setattr(module, name, planted)


def method(names: str, attribute: str, wrong: Callable[..., Any]) -> None:
    """Replace a method or property of a public class by `wrong(right, self, *arguments)`.

    attribute  its name, or several of which the class has one
    """
    kind = public(names)
    name = next((n for n in attribute.split() if hasattr(kind, n)), "")
    if not name:
        raise LookupError(f"{kind.__name__} has no {attribute}")
    right = inspect.getattr_static(kind, name)
    if isinstance(right, property):
        setattr(kind, name, property(replacement(right.fget, wrong)))
    elif isinstance(right, classmethod):
        setattr(kind, name, classmethod(replacement(right.__func__, wrong)))
    else:
        setattr(kind, name, replacement(right, wrong))


def replacement(right: Any, wrong: Callable[..., Any]) -> Any:
    """A function that looks like `right` and calls `wrong(right, *arguments)`."""

    @wraps(right)
    def planted(*arguments: Any, **named: Any) -> Any:
        return wrong(right, *arguments, **named)

    return planted


def answering(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """What does the right thing, and then changes the answer."""
    return lambda right, *arguments, **named: change(right(*arguments, **named))


def given(**changes: Callable[[Any], Any]) -> Callable[..., Any]:
    """What does the right thing, with some of the arguments that it is given changed."""

    def wrong(right: Any, *arguments: Any, **named: Any) -> Any:
        signature = inspect.signature(right)
        lost = changes.keys() - signature.parameters.keys()
        if lost:
            raise LookupError(f"{right.__name__} has no arguments {sorted(lost)}")
        bound = signature.bind(*arguments, **named)
        for name in changes.keys() & bound.arguments.keys():
            bound.arguments[name] = changes[name](bound.arguments[name])
        return right(*bound.args, **bound.kwargs)

    return wrong


def fixed(value: Any) -> Callable[[Any], Any]:
    """A function of one argument that is always this value."""
    return lambda _: value


def overwritten(made: Any, **values: Any) -> Any:
    """An object, frozen or not, with other attributes."""
    for name, value in values.items():
        if not hasattr(made, name):
            raise LookupError(f"{type(made).__name__} has no {name}")
        object.__setattr__(made, name, value)
    return made
