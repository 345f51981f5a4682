"""What an experiment is given: arguments of the right kind, a start before the measurements."""

from collections.abc import Iterable
from typing import Any

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError

EXAMPLES = {
    "start": "start={'A': 1.0, 'B': igpe.Unknown(0, 5)}",
    "inputs": "inputs={'feed': igpe.steps(times, values)}",
    "units": "units={'A': 'mol/L'}",
    "columns": "columns={'t / h': 'time', 'c(A)': 'A'}",
}


def check_kinds(name: Any, only: Any, **mappings: Any) -> None:
    """Raise DataError unless the arguments of an experiment have the right kind."""
    if not isinstance(name, str):
        raise DataError(f"name is {shown(name)}; an experiment's name is a text: name='run1'.")
    for role, given in mappings.items():
        require_mapping(role, given, EXAMPLES[role], DataError)
    if isinstance(only, str):
        raise DataError(f"only={only!r} is one text; wanted a list of columns: only=[{only!r}].")
    if only is not None and not isinstance(only, Iterable):
        raise DataError(f"only is {shown(only)}; wanted a list of columns: only=['A', 'B'].")


def start_time_of(times: FloatArray, given: float | None) -> float:
    """When an experiment starts: as given, or where that is clear by itself."""
    first, last = float(times[0]), float(times[-1])
    begin = _default_start(first, last) if given is None else given
    if not is_finite(begin) or begin > first:
        raise DataError(
            f"start_time is {shown(begin)}, but the first measurement is at {first:g}; give a "
            "number: an experiment starts no later than its first measurement."
        )
    if begin == last:
        raise DataError(
            f"The only measurements are at {last:g}, where the experiment starts, so nothing is "
            "seen of what happens; add later ones, or give the earlier start: start_time=..."
        )
    return float(begin)


def _default_start(first: float, last: float) -> float:
    if first <= 0:
        return first
    if first <= last - first:
        return 0.0
    raise DataError(
        f"The measurements run from {first:g} to {last:g}; it is not clear when the experiment "
        f"started. Say it: start_time=0.0, or start_time={first:g}."
    )
