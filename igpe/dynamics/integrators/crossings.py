"""Where a gap passes through 0: between which places, and at what time.

A gap is known at places with its rate there; between them a cubic through both shows a dip.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from igpe.core.arrays import FloatArray

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
