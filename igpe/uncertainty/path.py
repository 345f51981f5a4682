"""The likelihood along a line of some unknowns, with the others at their best, and steps along it.

    PL(t) = min |r(x)|^2   with x_i = x_i* + t u_i for the unknowns i that are held, the others free

By shooting, each step uses the residuals' exact derivative J. At the solution of one t the
linearised problem

    min |r + J_held u dt + J_free d|^2   inside the bounds

gives the tangent of the path (active bounds included) and, with d, the last Gauss-Newton
correction. Its slope dPL/dt = 2 r' J_held u is exact there, as the free unknowns are at their best.

By collocation, constraints are kept. One nonlinear program is built and compiled, on the mesh that
the trajectories at the estimate need. Along the path the held unknowns are fixed variables in it,
and each solve starts from an extrapolation of the last two.

Steps along a path aim at equal increments of the sum of squares: from the value, slope and
curvature at the last point, or from a parabola through the last points where the method gives no
derivatives. A path ends where its likelihood is as low as chance explains, between the last two
points by a cubic with their values and slopes.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box, is_reached
from igpe.core.markup import listed
from igpe.core.status import Status
from igpe.numerics.least_squares.active import bounded_solution, on_bounds
from igpe.numerics.least_squares.base import Linearised, Search
from igpe.numerics.optima import Landscape, profiled
from igpe.uncertainty.likelihood import Collocated, Likelihood, unknowns_in


class PathPoint(NamedTuple):
    """A point of a path.

    at         t
    cost       PL(t)
    slope      dPL/dt; NaN where the method does not give it
    curvature  d2PL/dt2 of the linearised problem; NaN likewise
    x          (n,) all unknowns
    state      what the method needs to go on from here
    """

    at: float
    cost: float
    slope: float
    curvature: float
    x: FloatArray
    state: Any = None


class LikelihoodPath(Protocol):
    """A line of some unknowns, along which the others are optimised.

    reach   the least and largest t that the bounds allow
    origin  the point at t = 0, the estimate
    jumps   whether events or conditions may make PL jump
    """

    @property
    def jumps(self) -> bool: ...

    @property
    def reach(self) -> tuple[float, float]: ...

    @property
    def origin(self) -> PathPoint: ...

    def point(self, at: float, near: PathPoint) -> PathPoint | None:
        """PL(at), searched from a point solved before; None if it cannot be computed."""
        ...

    def anew(self, at: float) -> PathPoint | None:
        """PL(at), searched from the other unknowns' estimates, beside the path."""
        ...


class HeldLine(NamedTuple):
    """x[held] = origin + t * direction.

    held  places of the unknowns;  direction  (k,), in their units
    """

    held: tuple[int, ...]
    direction: FloatArray

    def reach(self, x: FloatArray, box: Box) -> tuple[float, float]:
        """The t that keep all held unknowns in their bounds."""
        held = list(self.held)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.array([box.lower[held] - x[held], box.upper[held] - x[held]])
            ends = np.where(self.direction == 0, [[-np.inf], [np.inf]], ends / self.direction)
        return float(ends.min(axis=0).max()), float(ends.max(axis=0).min())


class _Shot(NamedTuple):
    """The last integration at a point of a path, and at the one it came from, if any.

    at  its t;  x: its unknowns (n,);  there: residuals and derivative
    """

    at: float
    x: FloatArray
    there: Linearised
    before: "_Shot | None" = None


@dataclass(frozen=True)
class ShootingPath:
    """A path whose points are found by Gauss-Newton on the compiled residuals.

    search  of the free unknowns; its `absolute` is what matters in PL
    """

    base: Likelihood
    line: HeldLine
    search: Search

    @property
    def reach(self) -> tuple[float, float]:
        return self.line.reach(self.base.x, self.base.box)

    @cached_property
    def box(self) -> Box:
        """Bounds within which unknowns that are not held do not pass a jump of the objective."""
        smooth, held = self.base.smooth, list(self.line.held)
        lower, upper = smooth.lower.copy(), smooth.upper.copy()
        lower[held], upper[held] = self.base.box.lower[held], self.base.box.upper[held]
        return replace(smooth, lower=lower, upper=upper)

    @cached_property
    def jumps(self) -> bool:
        """See `LikelihoodPath`."""
        return self.base.switches

    @property
    def origin(self) -> PathPoint:
        return self._corrected(0.0, self.base.x, self.base.at)

    def point(self, at: float, near: PathPoint) -> PathPoint | None:
        """See `LikelihoodPath`; None too if the search came to no end: a shorter step may help.

        The last Gauss-Newton correction is counted into the cost, not integrated.
        """
        point = self._searched(at, self._predicted(at, near))
        last = near.state._replace(before=None)
        return point and point._replace(state=point.state._replace(before=last))

    def anew(self, at: float) -> PathPoint | None:
        """See `LikelihoodPath`."""
        return self._searched(at, self._on_line(at, self.base.x))

    def _searched(self, at: float, start: FloatArray) -> PathPoint | None:
        landscape = Landscape(self.base.residuals, self.box)
        fit = profiled(landscape, start, self.line.held, search=self.search)
        if fit.at is None or fit.status is Status.ITERATION_LIMIT:
            return None
        return self._corrected(at, fit.x, fit.at)

    def _on_line(self, at: float, x: FloatArray) -> FloatArray:
        """(n,) x with the held unknowns where the line has them."""
        held, values = list(self.line.held), x.copy()
        values[held] = self.base.x[held] + at * self.line.direction
        return self.box.clip(values)

    def _predicted(self, at: float, near: PathPoint) -> FloatArray:
        """(n,) where a parabola of the path through two points expects the optimum.

        Its slope at `near` is that of the linearised problem. What this misses at the point before
        grows with the square of the distance, as long as that is no larger than the step itself.
        """
        ahead, before = self._tangent(at, near), near.state.before
        if before is None:
            return ahead
        wrong = before.x - self._tangent(before.at, near)
        bent = wrong * ((at - near.at) / (before.at - near.at)) ** 2
        size = np.maximum(np.abs(ahead), np.abs(near.state.x))
        size = np.where(size > 0, size, 1.0)
        if np.abs(bent / size).max() > np.abs((ahead - near.state.x) / size).max():
            return ahead
        bent[list(self.line.held)] = 0.0
        return self.box.clip(ahead + bent)

    def _tangent(self, at: float, near: PathPoint) -> FloatArray:
        """(n,) where the problem linearised at `near` has its optimum."""
        there, (held, direction) = near.state.there, self.line
        box, x = self.box, near.state.x.copy()
        free = np.delete(np.arange(len(x)), held)
        moved = there.residual + there.jacobian[:, held] @ direction * (at - near.at)
        low, high = box.lower[free] - x[free], box.upper[free] - x[free]
        if len(free):
            x[free] += bounded_solution(there.jacobian[:, free], -moved, low, high)
        return self._on_line(at, x)

    def _corrected(self, at: float, x: FloatArray, there: Linearised) -> PathPoint:
        held, direction = self.line
        free = np.delete(np.arange(len(x)), held)
        along, by_free = there.jacobian[:, held] @ direction, there.jacobian[:, free]
        residual, left = there.residual, along
        if len(free):
            box = self.box.select(self.box.names[i] for i in free)
            step = bounded_solution(by_free, -residual, box.lower - x[free], box.upper - x[free])
            residual = residual + by_free @ step
            end = box.clip(x[free] + step)
            moving = by_free[:, ~on_bounds(end, Linearised(residual, by_free), box)]
            if moving.shape[1]:
                loose = np.full(moving.shape[1], np.inf)
                left = along + moving @ bounded_solution(moving, -along, -loose, loose)
        slope, curvature = 2 * float(residual @ along), 2 * float(left @ left)
        cost = float(residual @ residual) + there.offset
        return PathPoint(at, cost, slope, curvature, x, _Shot(at, x, there))


class _Start(NamedTuple):
    """All variables at a point of a path by collocation, and at the one it came from, if any."""

    at: float
    values: FloatArray
    before: "_Start | None" = None


@dataclass(frozen=True)
class CollocatedPath:
    """A path whose points are solutions of the compiled program; it knows no slopes."""

    base: Collocated
    line: HeldLine
    jumps: ClassVar[bool] = False

    @property
    def reach(self) -> tuple[float, float]:
        return self.line.reach(self.base.x, self.base.problem.box)

    @property
    def origin(self) -> PathPoint:
        state = _Start(0.0, self.base.values)
        return PathPoint(0.0, self.base.cost, np.nan, np.nan, self.base.x, state)

    def point(self, at: float, near: PathPoint) -> PathPoint | None:
        """PL(at), searched from where the way to `near` leads; None if IPOPT finds nothing."""
        program, last = self.base.program, near.state
        ahead, before = last.values, last.before
        if before is not None and before.at != last.at:
            ahead = ahead + (ahead - before.values) * (at - last.at) / (last.at - before.at)
        where = self.base.x[list(self.line.held)] + at * self.line.direction
        cost = self.base.solved(ahead, dict(zip(self.line.held, where.tolist(), strict=True)))
        if cost is None:
            return None
        state = _Start(at, program.values, last._replace(before=None))
        return PathPoint(at, cost, np.nan, np.nan, unknowns_in(program), state)

    def anew(self, at: float) -> PathPoint | None:
        """See `LikelihoodPath`."""
        return self.point(at, self.origin)


ENOUGH = 1e-3  # of the distance from the estimate: how exactly the end is found
WIDEN = 4.0  # of the step before: the longest next one
EAGER = 1.4  # times longer may the longest be again after a step that could not be made
TOO_MUCH = 2.5  # of the increment aimed at: a step that rises more is made again, shorter
SHORTEST = 1e-9  # of the way so far, or the first step: one that cannot be made even so ends it
MOST = 200  # tried steps on one side, whether they could be made or not
ENDLESS = 1e4  # of the first step: as far as is looked where there is no bound
JUMP = 0.5  # of the rise: where the cost jumps so far above the target, it has no root there
TRIES = 30  # of root finding
AWAY = 2.0  # times the way so far: a limit expected further away than this is not in sight


class End(enum.Enum):
    """Why a profile ends where it does. The value is what the user reads."""

    FOUND = ""
    BOUND = "bound reached"
    OPEN = "open"
    BROKEN = "no further solution"
    UNKNOWN = "no degrees of freedom"
    LOWER = "a better optimum"


@dataclass(frozen=True)
class Walk:
    """One side of a path.

    points  in the order of their distance, without the origin; the last one is the end's
    at      t of the end: at the bound, or infinite without one, if the path stays low
    end     why there
    """

    points: tuple[PathPoint, ...]
    at: float
    end: End


class WalkSteps(NamedTuple):
    """How a path is walked.

    rise        of the sum of squares at the end
    increments  in so many steps, about
    scale       a first step, where the path's curvature does not tell one
    longest     no step is longer
    lowest      cost below which the path ends: it has met a better optimum
    """

    rise: float
    increments: int
    scale: float
    longest: float = np.inf
    lowest: float = -np.inf


def walk(path: LikelihoodPath, origin: PathPoint, sign: int, steps: WalkSteps) -> Walk:
    """From the origin in one direction (sign 1 or -1) of t."""
    limit = abs(path.reach[sign > 0])
    if np.isnan(steps.rise):
        return Walk((), np.nan, End.UNKNOWN)
    if not steps.rise > 0 or limit <= 0:  # a level of 0 (exact data), or a bound at once
        return Walk((), 0.0, End.BOUND if steps.rise > 0 else End.FOUND)
    aim = _rising(steps.rise / steps.increments, sign * origin.slope, origin.curvature)
    first = aim if origin.curvature > 0 and np.isfinite(aim) else steps.scale
    return _walked(path, origin, sign, steps, min(first, limit, steps.longest))


def _walked(
    path: LikelihoodPath, origin: PathPoint, sign: int, steps: WalkSteps, step: float
) -> Walk:
    """See `walk`; with the first step."""
    points, target, limit = [origin], origin.cost + steps.rise, abs(path.reach[sign > 0])
    farthest, widen, first = limit if np.isfinite(limit) else ENDLESS * step, WIDEN, step
    for _ in range(MOST):
        at = min(abs(points[-1].at) + step, farthest)
        point = path.point(sign * at, points[-1])
        if point is None or _too_far(point, points[-1], target, steps):
            step = (at - abs(points[-1].at)) / (WIDEN if point is None else 2)
            if step < SHORTEST * max(at, first):
                is_jump = point is not None and _is_jump(path, point, target)
                return _at_last(points, is_jump=is_jump)
            widen = 1.0
            continue
        points.append(point)
        if point.cost >= target:
            closed = _closed(path, points, steps.rise)
            further = _behind_jump(path, points[-2], closed) or _beside(path, closed, steps.rise)
            if further is None or further.cost >= target:
                is_jump = further is not None and _is_jump(path, further, target)
                return replace(closed, end=End.FOUND) if is_jump else closed
            # The search from afar had lost its way: go on by steps that had not.
            kept = [p for p in closed.points[:-1] if p.cost <= further.cost]
            points, widen = [origin, *kept, further], 1.0
        at = abs(points[-1].at)
        if at >= farthest or points[-1].cost < steps.lowest:
            return _short(points, sign, limit, target, steps.lowest)
        step = min(_next(points, sign, steps, widen), farthest - at, steps.longest)
        widen = min(EAGER * widen, WIDEN)
    return _at_last(points, is_jump=False)


def _at_last(points: Sequence[PathPoint], *, is_jump: bool) -> Walk:
    return Walk(tuple(points[1:]), points[-1].at, End.FOUND if is_jump else End.BROKEN)


def _is_jump(path: LikelihoodPath, point: PathPoint, target: float) -> bool:
    """Whether PL itself is above the target just behind the end of a walk, as it may jump."""
    if not path.jumps or point.cost < target:
        return False
    anew = path.anew(point.at)
    return anew is not None and anew.cost >= target


def _behind_jump(path: LikelihoodPath, passed: PathPoint, closed: Walk) -> PathPoint | None:
    """A point just behind a jump of the cost that ends a walk, searched from just before it.

    passed  the last point of the walk before it looked for its end
    """
    if closed.end is not End.BROKEN or abs(closed.at) <= abs(passed.at):
        return None
    low, high = path.reach
    return path.point(min(max(closed.at * (1 + ENOUGH / 10), low), high), closed.points[-1])


def _beside(path: LikelihoodPath, closed: Walk, rise: float) -> PathPoint | None:
    """A lower point at the end of a walk, searched anew: the walk may have followed a groove."""
    if closed.end is not End.FOUND:
        return None
    end = closed.points[-1]
    point = path.anew(end.at)
    return point if point and point.cost < end.cost - JUMP / 10 * rise else None


def _closed(path: LikelihoodPath, points: Sequence[PathPoint], rise: float) -> Walk:
    """The walk whose last point is above the target: to where it meets the target, if it does."""
    origin, *inner, last = points
    low, end = _root(path, points[-2], last, rise, origin.cost)
    risen = end.cost - origin.cost
    is_low = risen < (1 - JUMP / 10) * rise and not _near(end, origin.cost + rise)
    if is_low or risen > (1 + JUMP) * rise:  # the other unknowns lose their best values
        reached = [*inner, *[low] * (low is not points[-2])]
        return Walk(tuple(reached), low.at, End.BROKEN)
    kept = [p for p in inner if abs(p.at) < abs(end.at)]
    return Walk((*kept, end), _exact(end, rise, origin.cost), End.FOUND)


def _short(
    points: Sequence[PathPoint], sign: int, limit: float, target: float, lowest: float
) -> Walk:
    """The walk that did not come to its target: is it in sight behind the bound?"""
    last, walked = points[-1], tuple(points[1:])
    if last.cost < lowest:
        return Walk(walked, last.at, End.LOWER)
    if abs(last.at) >= limit * (1 - 1e-12):
        there = _rising(target - last.cost, *_local(points, sign))
        return Walk(walked, last.at, End.BOUND if there <= AWAY * abs(last.at) else End.OPEN)
    return Walk(walked, sign * limit, End.OPEN)


def _too_far(point: PathPoint, before: PathPoint, target: float, steps: WalkSteps) -> bool:
    """Whether the path rose far more than it should: its shape would be lost."""
    most = TOO_MUCH * max(steps.rise / steps.increments, target - before.cost)
    return point.cost - min(before.cost, target) > most


def _next(points: Sequence[PathPoint], sign: int, steps: WalkSteps, widen: float) -> float:
    """To the next of the equal increments; the last one aims a little beyond the target."""
    risen = points[-1].cost - points[0].cost
    part = steps.rise / steps.increments
    aim = (np.floor(risen / part + 0.5) + 1) * part
    if aim > steps.rise * (1 - 0.5 / steps.increments):
        aim = steps.rise * 1.02
    done = abs(points[-1].at) - abs(points[-2].at)
    return min(_rising(aim - risen, *_local(points, sign)), widen * done)


def _local(points: Sequence[PathPoint], sign: int) -> tuple[float, float]:
    """Slope and curvature along the walk at the last of two or more points."""
    before, last = points[-2:]
    gap = abs(last.at) - abs(before.at)
    if np.isfinite(last.slope):
        # what the slope really changed by knows more than the linearised problem
        return sign * last.slope, sign * (last.slope - before.slope) / gap
    rate = (last.cost - before.cost) / gap
    if len(points) == 2:  # noqa: PLR2004 - the estimate: an optimum, if it is not on a bound
        return 2 * rate, 2 * rate / gap
    earlier = points[-3]
    rate_before = (before.cost - earlier.cost) / (abs(before.at) - abs(earlier.at))
    curvature = 2 * (rate - rate_before) / (abs(last.at) - abs(earlier.at))
    return rate + curvature * gap / 2, curvature


def _rising(rise: float, slope: float, curvature: float) -> float:
    """The step s > 0 with slope s + curvature s^2 / 2 = rise; infinite if there is none."""
    if not np.isfinite([slope, curvature]).all() or rise <= 0:
        return np.inf if rise > 0 else 0.0
    inside = slope**2 + 2 * curvature * rise
    below = slope + np.sqrt(inside) if inside >= 0 else 0.0
    return float(2 * rise / below) if below > 0 else np.inf


def _root(
    path: LikelihoodPath, inner: PathPoint, outer: PathPoint, rise: float, floor: float
) -> tuple[PathPoint, PathPoint]:
    """The point between two where the cost has risen so much above the floor.

    Before it, the last one below.
    """
    best, target, failed = outer, floor + rise, False
    for turn in range(TRIES):
        if _near(best, target) or abs(best.cost - target) <= ENOUGH * rise:
            break
        at = _between(inner, outer, rise, floor, halve=failed or turn % 4 == 3)  # noqa: PLR2004
        point = path.point(at, inner)  # the outer one may be on another branch
        failed = point is None
        if point is None:
            outer = outer._replace(at=at)
        else:
            best = point
            inner, outer = (point, outer) if point.cost < target else (inner, point)
        if abs(outer.at - inner.at) <= ENOUGH / 10 * abs(outer.at):
            break
    return inner, best


def _near(p: PathPoint, target: float) -> bool:
    """Whether one Newton step from here is exact enough: its error is of second order."""
    rate = p.slope * p.at
    return bool(rate > 0 and abs(p.cost - target) <= 10 * ENOUGH * rate)


def _exact(p: PathPoint, rise: float, floor: float) -> float:
    """One Newton step to the end on the root of the rise, which is nearly a line."""
    if not _near(p, floor + rise):
        return p.at
    root = np.sqrt(p.cost - floor)
    return float(p.at + (np.sqrt(rise) - root) * 2 * root / p.slope)


def _between(
    inner: PathPoint, outer: PathPoint, rise: float, floor: float, *, halve: bool
) -> float:
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


def complete(made: Any) -> dict[str, Any]:
    """The profiles that could be computed to their ends, by unknown."""
    broken = End.BROKEN.value
    return {p.name: p for p in made.profiles if broken not in (p.lower_end, p.upper_end)}


def limits(made: Any, bounds: Mapping[str, tuple[float, float]]) -> dict[str, tuple[set[str], ...]]:
    """Which bounds end an interval below and above: of others, where the optimum is inside them.

    made    `igpe.uncertainty.profile.Profiles`, which stand above this module
    bounds  unknown -> its bounds
    """

    def on_bounds(values: Iterable[float]) -> set[str]:
        ends = zip(made.names, values, strict=True)
        return {n for n, v in ends if any(is_reached(v, end) for end in bounds[n])}

    already = on_bounds(made.parameters[n] for n in made.names)
    return {
        p.name: tuple(
            set() if end else on_bounds(row) - already - {p.name}
            for end, row in zip((p.lower_end, p.upper_end), p.others[[0, -1]].tolist(), strict=True)
        )
        for p in made.profiles
    }


def limited(made: Any, box: Box) -> list[str]:
    """Sentences on intervals that bounds of other unknowns end; see `limits`.

    Profiles that broke have no interval.
    """
    own = box.select(made.names)
    ends = zip(own.lower.tolist(), own.upper.tolist(), strict=True)
    by_bounds: dict[str, list[str]] = {}
    whole = complete(made)
    for name, sides in limits(made, dict(zip(made.names, ends, strict=True))).items():
        if any(sides) and name in whole:
            by_bounds.setdefault(listed(sorted(set().union(*sides))), []).append(name)
    return [
        f"The interval of {names[0]} depends on the bounds of {bounds}: wider bounds may widen the "
        "interval."
        if len(names) == 1
        else f"The intervals of {listed(names)} depend on the bounds of {bounds}: wider bounds may "
        "widen these intervals."
        for bounds, names in by_bounds.items()
    ]
