"""Names in messages: lists of names, and the valid name nearest to a wrong one."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

MOST, FIRST = 30, 8  # names that a message lists; of more


def closest(name: str, known: Iterable[str]) -> str:
    """A sentence, after a space, with the known name that was probably meant; empty if none was."""
    lower = {k.lower(): k for k in known}
    matches = get_close_matches(name.lower(), lower, n=1)
    return f" Did you mean '{lower[matches[0]]}'?" if matches else ""


def listed(names: Iterable[str]) -> str:
    """Names as a message lists them: the first of many, and how many there are."""
    every = list(names)
    if len(every) <= MOST:
        return str(every)
    return f"[{', '.join(map(repr, every[:FIRST]))}, ... {len(every)} in all]"


def in_words(names: Sequence[str], most: int = FIRST) -> str:
    """The first names as a sentence lists them: a, b and 3 more."""
    more = len(names) - most
    return ", ".join(names[:most]) + f" and {more} more" * (more > 0)


def closest_file(path: Path) -> str:
    """Suggest the nearest file in the folder of a missing file."""
    try:
        beside = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        return ""
    return closest(path.name, beside)


class Suggesting:
    """Base of public classes: the error for a wrong attribute suggests the nearest valid name."""

    if not TYPE_CHECKING:  # a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if name.startswith("_") or hasattr(kind, name):  # of a property: its own error
                return object.__getattribute__(self, name)
            known = [n for n in dir(self) if not n.startswith("_")]
            hint = closest(name, known) or f" It has {', '.join(known)}."
            # With an object, Python would add a suggestion of its own.
            raise AttributeError(f"{kind.__name__} has no attribute '{name}'.{hint}", name=name)
