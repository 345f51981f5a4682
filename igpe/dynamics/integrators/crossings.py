"""Where a gap passes through 0: between which places, and at what time.

A gap is known at places with its rate there; between them a cubic through both shows a dip.
"""

from collections.abc import Callable, Iterable

import numpy as np
from scipy.optimize import brentq

from igpe.core.arrays import BoolArray, FloatArray
from igpe.dynamics.integrators.switches import Crossing, Seen

ZERO = 1e-9  # of a gap's size: smaller ones are 0, but for errors of integration
GRAZING = 1e-6  # of a gap's size in the whole horizon: slower crossings are none
DIP = 0.5  # share of a gap that it may lose between two places before it is looked at closely
HALVINGS = 40
CLOSE = 1e-6  # of the bracket: after so small a step of Newton's method its square is left


def root(function: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Where a function with slope, positive at `low`, becomes 0: by Newton's steps, or halving.

    It ends where errors of integration are larger than what is left.
    """
    width, exact = high - low, 4 * float(np.finfo(float).eps) * max(abs(low), abs(high))
    time = (low + high) / 2
    for _ in range(HALVINGS):
        value, rate = function(time)
        low, high = (time, high) if value > 0 else (low, time)
        step = -value / rate if rate < 0 else np.inf
        if abs(step) <= max(CLOSE * width, exact):
            return min(max(time + step, low), high)
        time = time + step if low < time + step < high else (low + high) / 2
        if high - low <= exact:
            break
    return time


def bottom(rate: Callable[[float], float], low: float, high: float) -> float:
    """Where a rate becomes positive; `high` if it does not."""
    if rate(low) * rate(high) > 0:
        return high
    exact = 4 * float(np.finfo(float).eps)
    return float(brentq(rate, low, high, xtol=exact * max(abs(high), high - low), rtol=exact))


def candidates(
    times: FloatArray, gap: FloatArray, rate: FloatArray, size: float
) -> list[tuple[int, int, bool]]:
    """Places between which a gap, positive at first, may be 0; whether it is negative at the last.

    Only what comes from and returns to more than errors of integration counts as a dip.
    """
    below = np.flatnonzero(gap[1:] < -ZERO * size)
    end = len(gap) if not len(below) else int(below[0]) + 1
    kept = np.flatnonzero(gap[:end] > GRAZING * size)
    p, q = kept[:-1], kept[1:]
    least = _least(times[q] - times[p], gap[p], gap[q], rate[p], rate[q])
    dips = (rate[p] < 0) & (rate[q] > 0)
    dips &= (q > p + 1) | (least < DIP * np.minimum(gap[p], gap[q]))
    found = [(int(a), int(b), False) for a, b in zip(p[dips], q[dips], strict=True)]
    return [*found, *([(end - 1, end, True)] if len(below) else [])]


def _least(
    h: FloatArray, left: FloatArray, right: FloatArray, before: FloatArray, after: FloatArray
) -> FloatArray:
    """(n,) the least of cubics over lengths h by their ends and the rates there, at some places."""
    s = np.linspace(0, 1, 9)[1:-1, None]
    value = (1 + 2 * s) * (1 - s) ** 2 * left + s * (1 - s) ** 2 * h * before
    value = value + s**2 * (3 - 2 * s) * right + s**2 * (s - 1) * h * after
    return np.asarray(value.min(axis=0))


Gap = Callable[[int, float, FloatArray, float], tuple[float, float]]
"""(gap, begin, states there, time) -> the gap and its rate, positive where as before."""


def first_crossing(
    seen: Seen, watched: Iterable[int], size: FloatArray, gap: Gap, start: float
) -> Crossing | None:
    """The first time at which a gap changes its sign, or touches 0.

    size   (n_gaps,) how large gaps are;  start: where a gap may be 0, as it has just crossed
    """
    found: Crossing | None = None
    for j in watched:
        for p, q, is_end in candidates(seen.times, seen.gaps[j], seen.rates[j], size[j]):
            if found is not None and seen.times[p] > found.time:
                break
            one = _zero(
                j, seen, (p, q), size[j], gap, is_end=is_end, is_start=seen.times[p] == start
            )
            if one is not None:
                found = one if found is None else min(found, one)
                break
    return found


def _zero(
    j: int,
    seen: Seen,
    between: tuple[int, int],
    size: float,
    gap: Gap,
    *,
    is_end: bool,
    is_start: bool,
) -> Crossing | None:
    """Where gap j crosses 0 between two places.

    is_end    whether it has at the second; else it may dip below 0 between them
    is_start  whether it may have crossed 0 at the first
    """
    begin, end = (float(seen.times[k]) for k in between)
    first = seen.states[between[0]]

    def there(time: float) -> tuple[float, float]:
        return gap(j, begin, first, time)

    low = begin
    if there(begin)[0] <= (ZERO * size if is_start else 0.0):  # it has just crossed
        later = (begin + (end - begin) * 0.5**k for k in range(HALVINGS, -1, -1))
        low = next((time for time in later if there(time)[0] > 0), begin)
        if low == begin:
            return Crossing(begin, j)
    if not is_end:
        if low >= end or not there(low)[1] < 0:
            return None
        end = bottom(lambda time: there(time)[1], low, end)
        least = there(end)[0]
        if abs(least) <= GRAZING * size:
            return Crossing(end, j, grazes=True)
        if least > 0:
            return None
    return Crossing(root(there, low, end), j) if low < end else None


def crossing_with(
    j: int, near: Iterable[int], true: BoolArray, rates: FloatArray, gradient: FloatArray
) -> list[int]:
    """The gaps that cross 0 with gap j, which are it, or it with another sign or size.

    near      gaps at 0;  true (n_gaps,) which were positive;  rates (n_gaps,)
    gradient  (n_gaps, n) by states and unknowns
    """
    crossing = [k for k in near if k != j and rates[k] * (1 if true[k] else -1) < 0]
    own = gradient[j] / rates[j]
    return sorted([j, *(k for k in crossing if np.allclose(gradient[k] / rates[k], own))])
