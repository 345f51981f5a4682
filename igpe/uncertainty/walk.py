"""Walking along a path until its likelihood is as low as chance explains.

Steps aim at equal increments of the sum of squares: from the value, slope and curvature at the last
point, or from a parabola through the last points where the method gives no derivatives. The end is
found between the last two points by a cubic with their values and slopes.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from igpe.uncertainty.path import Path, Point

ENOUGH = 1e-3  # of the distance from the estimate: how exactly the end is found
WIDEN = 4.0  # of the step before: the longest next one
TOO_MUCH = 2.5  # of the increment aimed at: a step that rises more is made again, shorter
SHORTEST = 1e-9  # of the way so far: a step that cannot be made even so is the end
MOST = 60  # points on one side
ENDLESS = 1e4  # of the first step: as far as is looked where there is no bound
TRIES = 30  # of root finding
AWAY = 2.0  # times the way so far: a limit expected further away than this is not in sight


class End(enum.Enum):
    """Why a profile ends where it does. The value is what the user reads."""

    FOUND = ""
    BOUND = "bound reached"
    OPEN = "open"
    BROKEN = "no solution beyond"
    UNKNOWN = "no degrees of freedom"


@dataclass(frozen=True)
class Walk:
    """One side of a path.

    points  in the order of their distance, without the origin; the last one is the end's
    at      t of the end: at the bound, or infinite without one, if the path stays low
    end     why there
    """

    points: tuple[Point, ...]
    at: float
    end: End


class Steps(NamedTuple):
    """How a path is walked.

    rise        of the sum of squares at the end
    increments  in so many steps, about
    scale       a first step, where the path's curvature does not tell one
    longest     no step is longer
    """

    rise: float
    increments: int
    scale: float
    longest: float = np.inf


def walk(path: Path, origin: Point, sign: int, steps: Steps) -> Walk:
    """From the origin in one direction (sign 1 or -1) of t."""
    low, high = path.reach
    limit = abs(high if sign > 0 else low)
    if not steps.rise > 0 or limit <= 0:
        return _no_walk(steps.rise)
    points, target = [origin], origin.cost + steps.rise
    step = min(_first(origin, sign, steps), limit, steps.longest)
    farthest = limit if np.isfinite(limit) else ENDLESS * step
    while len(points) <= MOST:
        at = min(abs(points[-1].at) + step, farthest)
        found = path.point(sign * at, points[-1])
        if found is None or _too_far(found, points[-1], target, steps):
            step = (at - abs(points[-1].at)) / (WIDEN if found is None else 2)
            if step < SHORTEST * at:
                return Walk(tuple(points[1:]), points[-1].at, End.BROKEN)
            continue
        points.append(found)
        if found.cost >= target:
            end = _root(path, points[-2], found, steps.rise, origin.cost)
            kept = [p for p in points[1:-1] if abs(p.at) < abs(end.at)]
            return Walk((*kept, end), _exact(end, steps.rise, origin.cost), End.FOUND)
        if at >= farthest:
            break
        step = min(_next(points, sign, steps), farthest - at, steps.longest)
    return _short(points, sign, limit, target)


def _no_walk(rise: float) -> Walk:
    """Where there is nothing to walk: no level, a level of 0 (exact data), or a bound at once."""
    if np.isnan(rise):
        return Walk((), np.nan, End.UNKNOWN)
    return Walk((), 0.0, End.BOUND if rise > 0 else End.FOUND)


def _short(points: Sequence[Point], sign: int, limit: float, target: float) -> Walk:
    """The walk that did not come to its target: is it in sight behind the bound?"""
    last = points[-1]
    _, slope, curvature = _local(points, sign)
    there = _rising(target - last.cost, slope, curvature)
    reached = abs(last.at) >= limit * (1 - 1e-12)
    in_sight = there <= AWAY * abs(last.at)
    if reached:
        return Walk(tuple(points[1:]), last.at, End.BOUND if in_sight else End.OPEN)
    if np.isfinite(limit):  # so many steps, and yet no bound
        return Walk(tuple(points[1:]), last.at, End.BROKEN)
    return Walk(tuple(points[1:]), sign * limit, End.OPEN)


def _too_far(found: Point, before: Point, target: float, steps: Steps) -> bool:
    """Whether the path rose far more than it should: its shape would be lost."""
    return found.cost - min(before.cost, target) > TOO_MUCH * max(
        steps.rise / steps.increments, target - before.cost
    )


def _first(origin: Point, sign: int, steps: Steps) -> float:
    if np.isfinite(origin.curvature) and origin.curvature > 0:
        aim = _rising(steps.rise / steps.increments, sign * origin.slope, origin.curvature)
        if np.isfinite(aim):
            return aim
    return steps.scale


def _next(points: Sequence[Point], sign: int, steps: Steps) -> float:
    """To the next of the equal increments; the last one aims a little beyond the target."""
    last, origin = points[-1], points[0]
    done = abs(last.at) - abs(points[-2].at)
    value, slope, curvature = _local(points, sign)
    parts = steps.rise / steps.increments
    aim = (np.floor((value - origin.cost) / parts + 0.5) + 1) * parts
    if aim > steps.rise * (1 - 0.5 / steps.increments):
        aim = steps.rise * 1.02
    return min(_rising(origin.cost + aim - value, slope, curvature), WIDEN * done)


def _local(points: Sequence[Point], sign: int) -> tuple[float, float, float]:
    """Value, slope and curvature along the walk at the last point."""
    last = points[-1]
    if len(points) == 1:
        return last.cost, sign * last.slope, last.curvature
    before = points[-2]
    gap = abs(last.at) - abs(before.at)
    if np.isfinite(last.slope):
        # what the slope really changed by knows more than the linearised problem
        return last.cost, sign * last.slope, sign * (last.slope - before.slope) / gap
    rate = (last.cost - before.cost) / gap
    if len(points) == 2:  # noqa: PLR2004 - the estimate: an optimum, if it is not on a bound
        return last.cost, 2 * rate, 2 * rate / gap
    earlier = points[-3]
    rate_before = (before.cost - earlier.cost) / (abs(before.at) - abs(earlier.at))
    curvature = 2 * (rate - rate_before) / (abs(last.at) - abs(earlier.at))
    return last.cost, rate + curvature * gap / 2, curvature


def _rising(rise: float, slope: float, curvature: float) -> float:
    """The step s > 0 with slope s + curvature s^2 / 2 = rise; infinite if there is none."""
    if not np.isfinite([slope, curvature]).all() or rise <= 0:
        return np.inf if rise > 0 else 0.0
    inside = slope**2 + 2 * curvature * rise
    if inside < 0:
        return np.inf
    below = slope + np.sqrt(inside)
    return float(2 * rise / below) if below > 0 else np.inf


def _root(path: Path, inner: Point, outer: Point, rise: float, floor: float) -> Point:
    """The point between two where the cost has risen so much above the floor."""
    best, target = outer, floor + rise
    for turn in range(TRIES):
        if _near(best, target) or abs(best.cost - target) <= ENOUGH * rise:
            return best
        at = _between(inner, outer, rise, floor, halve=turn % 4 == 3)  # noqa: PLR2004
        found = path.point(at, min(inner, outer, key=lambda p: abs(p.at - at)))
        if found is None:
            return best
        best = found
        if found.cost < target:
            inner = found
        else:
            outer = found
        if abs(outer.at - inner.at) <= ENOUGH / 10 * abs(outer.at):
            return best
    return best


def _near(p: Point, target: float) -> bool:
    """Whether one Newton step from here is exact enough: its error is of second order."""
    if not np.isfinite(p.slope) or p.slope * p.at <= 0:
        return False
    return abs(p.cost - target) <= 10 * ENOUGH * abs(p.slope * p.at)


def _exact(p: Point, rise: float, floor: float) -> float:
    """One Newton step to the end on the root of the rise, which is nearly a line."""
    if not _near(p, floor + rise):
        return p.at
    root = np.sqrt(p.cost - floor)
    return float(p.at + (np.sqrt(rise) - root) * 2 * root / p.slope)


def _between(inner: Point, outer: Point, rise: float, floor: float, *, halve: bool) -> float:
    """Where a cubic meets the target; without slopes, a line through the roots of the rises."""
    gap = outer.at - inner.at
    share = 0.5
    if not halve and np.isfinite([inner.slope, outer.slope]).all():
        a, b = inner.slope * gap, outer.slope * gap
        up, goal = outer.cost - inner.cost, floor + rise - inner.cost
        roots = np.roots([a + b - 2 * up, 3 * up - 2 * a - b, a, -goal])
        real = [float(r.real) for r in roots if abs(r.imag) < 1e-9 and 0 < r.real < 1]  # noqa: PLR2004
        share = min(real, default=0.5)
    elif not halve:
        z = [float(np.sqrt(max(p.cost - floor, 0.0))) for p in (inner, outer)]
        share = (np.sqrt(rise) - z[0]) / (z[1] - z[0])
    return float(inner.at + min(max(share, 0.01), 0.99) * gap)
