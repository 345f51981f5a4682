"""First numbers for a problem: when it starts, from which values, and within which bounds."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from igpe.core.errors import DataError
from igpe.formats.draft.sheet import Run
from igpe.problem.experiment import start_time_of

FASTEST = 10.0  # turns of a reaction between two measurements: faster ones cannot be seen


class Start(NamedTuple):
    """A start value as Python text, and why it is so."""

    value: str
    why: str


def start_time(runs: Sequence[Run]) -> float:
    """When the start values hold: 0 where that is plausible for all runs, else the first time."""
    firsts = [float(run.table["time"].iloc[0]) for run in runs]
    try:
        begins = {start_time_of(run.table["time"].to_numpy(dtype=float), None) for run in runs}
    except DataError:
        begins = set(firsts)
    return min(begins)


def measured_start(
    run: Run, name: str, begin: float, factor: float = 1.0, least: float = -np.inf
) -> Start:
    """To be estimated, from what is measured when the run starts; 0 if exactly that is measured.

    A first measurement has an error like all others. To take it as exact would make the intervals
    of the other unknowns too narrow.

    factor  from the table's unit to the model's;  least: no start value is below it
    """
    values = run.table[name].to_numpy(dtype=float) * factor
    there = np.isfinite(values) & (run.table["time"].to_numpy(dtype=float) == begin)
    if there.any() and not values[there].any():
        return Start("0.0", "assumed exact: measured as 0")
    most = round_up(2 * float(np.nanmax(np.abs(values))))
    low = 0.0 if np.nanmin(values) >= 0 else max(-most, least)
    if not there.any():
        return Start(f"igpe.Unknown({short(low)}, {short(most)})", "estimated: not measured there")
    value = float(values[there].mean())
    guess = min(max(value, low), most)
    return Start(
        f"igpe.Unknown({short(low)}, {short(most)}, guess={short(guess)})",
        f"estimated: measured as {short(value)}",
    )


def unmeasured_start(size: float) -> Start:
    """To be estimated, up to twice what is measured elsewhere."""
    return Start(
        f"igpe.Unknown(0.0, {short(round_up(2 * size))})",
        "estimated: not measured; give the number if you know it",
    )


def largest(runs: Iterable[Run], name: str) -> float:
    """The largest size that was measured; 1 where all is zero."""
    sizes = [np.nanmax(np.abs(r.table[name])) for r in runs if name in r.table.columns]
    return float(max(sizes)) or 1.0


def fastest(runs: Iterable[Run], begin: float) -> float:
    """A rate, in one over the table's time, beyond which measurements cannot tell how fast."""
    gaps = [
        float(np.diff(np.unique([begin, *run.table["time"].to_numpy(dtype=float)])).min())
        for run in runs
    ]
    return FASTEST / min(gaps)


def round_up(number: float) -> float:
    """To one digit that is 1, 2 or 5."""
    if not (number > 0 and math.isfinite(number)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    digit = next(d for d in (1, 2, 5, 10) if d * power >= number * (1 - 1e-12))
    return float(f"{digit * power:.1g}")


def short(number: float) -> str:
    """A number as Python text, to ten digits: 0.5, 2.0, 1e-06."""
    return repr(float(f"{number:.10g}"))
