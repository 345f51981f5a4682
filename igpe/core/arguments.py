"""What a caller may hand us, where Python itself would fail without a helpful word."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from igpe.core.errors import IgpeError, ProblemError

LONGEST = 80  # letters of a value shown in a message


def is_finite(*values: Any) -> bool:
    """Whether all are numbers, and finite; a text is no number."""
    return all(isinstance(v, Real) and np.isfinite(float(v)) for v in values)


def is_number(*values: Any) -> bool:
    """Whether all are numbers (infinite or NaN ones too)."""
    return all(isinstance(v, Real) for v in values)


def is_count(value: Any) -> bool:
    """Whether it is a whole number, not negative."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def require(ok: bool, owner: str, field: str, given: Any, wanted: str) -> None:
    """Raise ProblemError unless ok, naming what was given for a field and what is wanted."""
    if not ok:
        raise ProblemError(f"{field} is {shown(given)}; {owner} wants {wanted}.")


def shown(value: Any) -> str:
    """A value as a message shows it: numbers short, all else as Python writes it."""
    if isinstance(value, Real):
        return f"{float(value):g}"
    written = repr(value)
    return written if len(written) <= LONGEST else f"{written[:LONGEST]}..."


def closest(name: str, known: Iterable[str]) -> str:
    """A sentence, after a space, with the known name that was probably meant; empty if none was."""
    lower = {k.lower(): k for k in known}
    found = get_close_matches(name.lower(), lower, n=1)
    return f" Did you mean '{lower[found[0]]}'?" if found else ""


def closest_file(path: Path) -> str:
    """The same for a file that is not there, from its neighbours."""
    try:
        beside = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        return ""
    return closest(path.name, beside)


def require_mapping(role: str, given: Any, example: str, error: type[IgpeError]) -> None:
    """Raise the error unless `given` is a mapping from names; `example` shows one."""
    if not isinstance(given, Mapping):
        raise error(
            f"{role} is {shown(given)}; wanted a mapping from names, for example {example}."
        )
    strangers = [name for name in given if not isinstance(name, str)]
    if strangers:
        raise error(
            f"{role} has the keys {strangers}, which are no names; wanted texts, for example "
            f"{example}."
        )
