"""Moving the times of switches across measurements.

Where states jump at an unknown time, what is measured next jumps once that time passes it: the sum
of squares is only smooth while each such time stays between two measurements, and Gauss-Newton does
not get beyond. After a local search every such time is tried between all pairs of measurements.
What the other unknowns could gain there is estimated by their Gauss-Newton step, and the best few
are searched, with all times kept between their measurements.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.dynamics.shooting.residuals import Residuals
from igpe.numerics.least_squares.base import Fit, Linearised, Search

ROUNDS = 6
FEW = 3  # searches in one round
GAIN = 1e-6  # relative decrease of the sum of squares that is worth another round
INSIDE = 1e-7  # of the distance of two measurements: so much earlier than the later one


def moved_across(residuals: Residuals, search: Search, fit: Fit, box: Box) -> Fit:
    """The best fit, with the times of switches between any two measurements."""
    if fit.at is None or not _switches(residuals, fit.x, box):
        return fit
    fit = _smaller(fit, _within(residuals, search, fit.x, box))
    for _ in range(ROUNDS):
        every = ((i, x, residuals(x)) for i, x in _moves(residuals, fit.x, box))
        tried = [(_promise(at, i), x) for i, x, at in every if at is not None]
        better = fit
        for promise, x in sorted(tried, key=lambda one: one[0])[:FEW]:
            if promise < better.cost:
                better = _smaller(better, _within(residuals, search, x, box))
        if not better.cost < (1 - GAIN) * fit.cost:
            return better
        fit = better
    return fit


def _smaller(one: Fit, other: Fit) -> Fit:
    return other if other.at is not None and other.cost < one.cost else one


def _within(residuals: Residuals, search: Search, x: FloatArray, box: Box) -> Fit:
    """A search from x in which no time of a switch passes a measurement."""
    lower, upper = box.lower.copy(), box.upper.copy()
    for one in _switches(residuals, x, box):
        k = int(np.searchsorted(one.times, one.time, side="right"))
        low = one.times[k - 1] if k else -np.inf
        high = one.times[k] if k < len(one.times) else np.inf
        if np.isfinite([low, high]).all():
            high -= INSIDE * (high - low)
        ends = sorted(x[one.unknown] + (np.array([low, high]) - one.time) / one.by)
        lower[one.unknown] = max(lower[one.unknown], ends[0])
        upper[one.unknown] = min(upper[one.unknown], ends[1])
    return search.fit(residuals, x, replace(box, lower=lower, upper=np.maximum(lower, upper)))


def _promise(at: Linearised, held: int) -> float:
    """The sum of squares that a Gauss-Newton step of all unknowns but one predicts."""
    others = np.delete(at.jacobian, held, axis=1)
    size = np.linalg.norm(others, axis=0)
    scaled = others / np.where(size > 0, size, 1.0)
    step = np.linalg.lstsq(scaled, -at.residual, rcond=1e-8)[0]
    return float(np.sum((at.residual + scaled @ step) ** 2)) + at.offset


class _Switch(NamedTuple):
    """A switch that an unknown moves: its time, the slope of this, and what is measured when."""

    unknown: int
    number: int
    time: float
    by: float
    times: FloatArray


def _moves(residuals: Residuals, x: FloatArray, box: Box) -> Iterator[tuple[int, FloatArray]]:
    """An unknown, and points at which it has moved a switch between two measurements."""
    for i, time, along, times in _directions(residuals, x, box):
        for shift in (times[1:] + times[:-1]) / 2 - time:
            moved = x + shift * along
            if ((moved >= box.lower) & (moved <= box.upper)).all():
                yield i, moved


def _directions(
    residuals: Residuals, x: FloatArray, box: Box
) -> Iterator[tuple[int, float, FloatArray, FloatArray]]:
    """An unknown, and a direction that moves a switch by 1: alone, or with no other switch."""
    free = _switches(residuals, x, box)
    unknowns = sorted({one.unknown for one in free})
    matrix = np.zeros((1 + max((one.number for one in free), default=-1), len(unknowns)))
    for one in free:
        matrix[one.number, unknowns.index(one.unknown)] = one.by
    for i, number, time, by, times in free:
        single, unit = np.zeros(len(x)), np.zeros(len(matrix))
        single[i], unit[number] = 1 / by, 1.0
        yield i, time, single, times
        step = np.linalg.lstsq(matrix, unit, rcond=None)[0]
        if np.count_nonzero(step) > 1 and np.allclose(matrix @ step, unit):
            several = np.zeros(len(x))
            several[unknowns] = step
            yield i, time, several, times


def _switches(residuals: Residuals, x: FloatArray, box: Box) -> list[_Switch]:
    """Every switch whose time unknowns give, once for each of them that is free."""
    every = [
        (run.index, np.union1d(run.ivp.t0, run.measurements.times), *one)
        for run in residuals.runs
        for one in run.simulation.intervals.switch_times(x[run.index])
    ]
    return [
        _Switch(int(index[own]), number, time, float(by[own]), times)
        for number, (index, times, time, by) in enumerate(every)
        for own in np.flatnonzero(by)
        if box.lower[index[own]] < box.upper[index[own]]
    ]
