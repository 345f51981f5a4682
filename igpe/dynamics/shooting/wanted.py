"""Starts that are checked where they are given."""

from collections.abc import Mapping

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.box import Box
from igpe.core.errors import ProblemError


def require_start(start: Mapping[str, float], box: Box, method: str, number: str = "") -> None:
    """Refuse a start that leaves out an unknown or is no number there.

    number  of the start, where there are several
    raises  ProblemError, naming what was found, what is wanted and what to do
    """
    example = "{" + ", ".join(f"{n!r}: 1.0" for n in box.names[:2]) + "}"
    which = f"Start {number}" if number else "The start"
    require_mapping(which, start, example, ProblemError)
    missing = [n for n in box.names if n not in start]
    if missing:
        where = f" in start {number}" if number else ""
        raise ProblemError(
            f"{method} starts from a value for each of {list(box.names)}, but {missing} have none"
            f"{where}; give them: start={{{missing[0]!r}: 1.0, ...}}."
        )
    for name in box.names:
        if not is_finite(start[name]):
            raise ProblemError(
                f"{which} of '{name}' is {shown(start[name])}; {method} needs a finite number."
            )
