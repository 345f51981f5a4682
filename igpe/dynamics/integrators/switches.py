"""What switches of an initial value problem need at one point: functions, times and crossings.

Where a gap passes through 0 is a crossing. A gap is known at places with its rate there; between
them a cubic through both shows a dip.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.optimize import brentq

from igpe.core.arrays import BoolArray, FloatArray
from igpe.dynamics.integrators.augmented import Consistent, augmented
from igpe.dynamics.integrators.base import Intervals
from igpe.dynamics.integrators.limits import STRETCH, BrokenError, allowed, between
from igpe.equations.elimination import AtPoint
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.switching import Switching
from igpe.problem.inputs import Table

MOST_KEPT = 50  # stretches between switches
WATCHED = 80  # places of the horizon at which gaps are looked at; between them by their slopes
FEWEST = 4  # of them between two switches
MANY, BRIEF = 100, 1e-3  # crossings, and the part of the horizon that is too brief for so many
NEAR = 2.0  # times between the last two crossings in which the next one is sought first

DELAYED = (
    "An event with both `when` and a delay may happen in the next interval. Integrate the whole "
    "experiment in one interval."
)
FREQUENT = (
    "{} events occurred {}: they become more and more frequent, or change too little to leave "
    "their condition. Check the units of these changes, or add hysteresis."
)
GRAZES = (
    "A trajectory touches the threshold of a condition on states without crossing it {} (grazing). "
    "Derivatives with respect to the unknowns do not exist there."
)
SLIDES = (
    "A condition on states switches back immediately {} (sliding): each branch leads back to the "
    "other. Add hysteresis, for example two events (igpe.Event) that set an additional state, or "
    "write a smooth transition."
)


def with_crossing(times: list[float], time: float, horizon: float) -> list[float]:
    """Times of the last crossings, and one more.

    raises BrokenError for so many in a brief part of the horizon
    """
    last = [*times[1 - MANY :], time]
    if len(last) == MANY and time - last[0] < BRIEF * horizon:
        raise BrokenError(FREQUENT.format(MANY, between(last[0], time)))
    return last


def require_few(stretches: int, time: float) -> None:
    """Raise BrokenError if more stretches were integrated than the allowance of steps admits."""
    if (steps := allowed()) is not None and STRETCH * stretches > steps:
        raise BrokenError(f"Too many events or switches occurred before t = {time:.6g}.")


class Rates(NamedTuple):
    """What is known at one point: slopes of the states, gaps and how fast they change."""

    f: FloatArray
    gaps: FloatArray
    rates: FloatArray


class Local:
    """CasADi functions of an initial value problem that switches need."""

    def __init__(self, ivp: InitialValueProblem) -> None:
        assert ivp.switching is not None, "called only for problems with switches"
        given: Switching = ivp.switching
        b, n = ca.SX.sym("b", ivp.u.numel()), given.gaps.numel()
        point = [ivp.t, ivp.x, ivp.y, ivp.u, b, ivp.q]
        to_y = ca.jacobian(ivp.g, ivp.y)

        def by(e: Any, v: Any) -> Any:
            """By states or unknowns, implicit variables moving with them."""
            direct = ca.jacobian(e, v)
            if not ivp.y.numel():
                return direct
            return direct - ca.jacobian(e, ivp.y) @ ca.solve(to_y, ca.jacobian(ivp.g, v))

        def along(e: Any) -> Any:
            """By time alone, inputs running with it."""
            return by(e, ivp.t) + by(e, ivp.u) @ b

        def function(name: str, *rows: Any) -> Any:
            return AtPoint(ca.Function(name, point, [ca.densify(r) for r in rows]))

        rates = along(given.gaps) + by(given.gaps, ivp.x) @ ivp.f
        self.slopes = function("slopes", ivp.f, given.gaps, rates)
        self.gap_by = function("gap_by", *(by(given.gaps, v) for v in (ivp.x, ivp.q)))
        self.jumps = [
            function("jump", h, by(h, ivp.x), along(h), by(h, ivp.q))
            for h in (jump.after for jump in given.jumps)
        ]
        self.implicit = Implicit(ivp)

        def timed(e: Any) -> Any:
            rows = [ca.densify(e), ca.densify(ca.jacobian(e, ivp.q))]
            return AtPoint(ca.Function("time", [ivp.q], rows))

        self.times = [None if e is None else timed(e) for e in given.times]
        self.at = [None if j.at is None else timed(j.at + j.delay) for j in given.jumps]
        self.delay = [timed(j.delay) for j in given.jumps]
        self.watched = [j for j in range(n) if given.times[j] is None]
        """Gaps whose zeros are looked for along the trajectory."""


class Implicit:
    """Implicit algebraic variables (n_y,) as a function of time, states, inputs and unknowns."""

    def __init__(self, ivp: InitialValueProblem) -> None:
        self.ivp = ivp
        if ivp.implicit:
            self._consistent = Consistent(augmented(ivp, sensitivities=False), ivp)
            self._last = self._consistent.guess

    def __call__(
        self, t: float, x: FloatArray, u: FloatArray, b: FloatArray, q: FloatArray
    ) -> FloatArray:
        """The root next to the last one; raises BrokenError if there is none inside the bounds."""
        if not self.ivp.implicit:
            return np.zeros(0)
        scale = np.maximum(np.abs(q), self.ivp.unknown_scale)
        rows = np.ones(len(self.ivp.implicit))
        p = np.concatenate([q, scale, u - b * t, b, rows, [t, 1.0]])
        root = self._consistent(x / self.ivp.scale, self._last, p)
        if root is None:
            raise BrokenError(self._consistent.reason(t))
        self._last = root
        return self._consistent.units.back(root)


class Stretches:
    """The intervals from one switch to the next, of equations without switches.

    The last ones are kept: most switches are at the same times in every run.
    """

    def __init__(self, inner: Intervals) -> None:
        self._inner, self._known = inner, dict[Any, Intervals]()
        self._moded: dict[bytes, InitialValueProblem] = {}

    def __call__(self, modes: BoolArray, begin: float, end: float, times: FloatArray) -> Intervals:
        """One interval with such modes (n_modes,), which reports at `times` (n,)."""
        key = modes.tobytes(), begin, end, times.tobytes()
        if key not in self._known:
            if len(self._known) == MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            nodes = np.array([begin, end])
            self._known[key] = self._inner.over(self._with(modes), nodes, times)
        return self._known[key]

    def _with(self, modes: BoolArray) -> InitialValueProblem:
        """The equations with modes as their last tables."""
        if (key := modes.tobytes()) not in self._moded:
            given = self._inner.ivp
            tables = list(given.tables)
            for i, value in enumerate(modes, start=len(tables) - len(modes)):
                tables[i] = Table(np.array([given.t0]), np.array([float(value)]), hold=True)
            self._moded[key] = replace(given, tables=tuple(tables))
        return self._moded[key]


class Due(NamedTuple):
    """Something that happens at a known time; sorted by time, then in their order.

    order   0 for modes, 1 + place of a jump;  by (n_d,): derivative of the time
    which   the gap that changes sign, or None;  jump: the jump, or None
    is_seen whether what is measured then is measured after it, whatever the jump says
    """

    time: float
    order: int
    by: FloatArray
    which: int | None = None
    jump: int | None = None
    is_seen: bool = False


class Seen(NamedTuple):
    """What was seen of gaps before the next switch.

    times        (n,) places;  states (n, n_x + n_y) and implicit variables there
    gaps, rates  (n_gaps, n) positive where their sign is as it was
    why          why it was not seen up to the end; empty if it was
    """

    times: FloatArray
    states: FloatArray
    gaps: FloatArray
    rates: FloatArray
    why: str = ""

    def largest(self, size: FloatArray, watched: Sequence[int]) -> FloatArray:
        """(n_gaps,) sizes of gaps, with those up to the first crossing of one that is watched.

        What lies behind it is no more: it may be larger by powers of ten.
        """
        is_behind = (self.gaps[watched] < -ZERO * size[watched, None]).any(axis=0)
        here = self.gaps[:, : np.append(is_behind, True).argmax()]
        return np.asarray(np.maximum(size, np.abs(here).max(axis=1, initial=0.0)))


class Crossing(NamedTuple):
    """A gap passes through 0, or only touches it."""

    time: float
    gap: int
    grazes: bool = False


def timed(function: AtPoint, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A time, for a gap also its slope, and their derivatives by the unknowns."""
    value, by = function(q)
    return value.ravel(), by


ZERO = 1e-9  # of a gap's size: smaller ones are 0, but for errors of integration
GRAZING = 1e-6  # of a gap's size in the whole horizon: slower crossings are none
DIP = 0.5  # share of a gap that it may lose between two places before it is looked at closely
HALVINGS = 40
CLOSE = 1e-6  # of the bracket: after so small a step of Newton's method its square is left
CLOSELY = 1e-4  # the same where the step is one of Halley's method, which leaves its cube


def root(
    function: Callable[[float], tuple[float, float]],
    low: float,
    high: float,
    time: float,
    bend: Callable[[float], float] | None = None,
) -> float:
    """Where a function with slope, positive at `low`, becomes 0: by Newton's steps, or halving.

    time  where to look first;  bend: about the second derivative there, if it is known
    It ends where errors of integration are larger than what is left.
    """
    width, exact = high - low, 4 * float(np.finfo(float).eps) * max(abs(low), abs(high))
    for _ in range(HALVINGS):
        value, rate = function(time)
        low, high = (time, high) if value > 0 else (low, time)
        step = -value / rate if rate < 0 else np.inf
        is_near = bend is not None and abs(step) <= CLOSELY * width
        if bend is not None and is_near:
            step -= bend(time) / (2 * rate) * step**2
        if is_near or abs(step) <= max(CLOSE * width, exact):
            return min(max(time + step, low), high)
        time = time + step if low < time + step < high else (low + high) / 2
        if high - low <= exact:
            break
    return time


def _bottom(rate: Callable[[float], float], low: float, high: float) -> float:
    """Where a rate becomes positive; `high` if it does not."""
    if rate(low) * rate(high) > 0:
        return high
    exact = 4 * float(np.finfo(float).eps)
    return float(brentq(rate, low, high, xtol=exact * max(abs(high), high - low), rtol=exact))


def _candidates(
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


def watched_places(begin: float, stop: float, horizon: float, times: FloatArray) -> FloatArray:
    """Places from `begin` to `stop` that are close enough to see crossings, and `times` inside."""
    count = FEWEST + math.ceil(WATCHED * (stop - begin) / horizon)
    grid = np.linspace(begin, stop, count + 1)
    return np.union1d(grid, times[(times > begin) & (times < stop)])


def nearest(
    first: Callable[[float], Crossing | None], begin: float, since: float, due: float
) -> Crossing | None:
    """The first crossing up to `due`, sought near first, as many may follow one another.

    since  time between the last two
    """
    near = begin + NEAR * since
    found = first(near) if begin < near < due else None
    return first(due) if found is None else found


def first_crossing(
    seen: Seen, watched: Iterable[int], size: FloatArray, gap: Gap, start: float
) -> Crossing | None:
    """The first time at which a gap changes its sign, or touches 0.

    size   (n_gaps,) how large gaps are;  start: where a gap may be 0, as it has just crossed
    """
    found: Crossing | None = None
    for j in watched:
        for p, q, is_end in _candidates(seen.times, seen.gaps[j], seen.rates[j], size[j]):
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

    low, (value, rate) = begin, there(begin)
    if not is_start and value <= 0 and rate < 0:  # a place at which it crosses, to rounding
        return Crossing(begin, j)
    if value <= (ZERO * size if is_start else 0.0):  # it has just crossed
        later = (begin + (end - begin) * 0.5**k for k in range(HALVINGS, -1, -1))
        low = next((time for time in later if there(time)[0] > 0), begin)
        if low == begin:
            return Crossing(begin, j)
    if low >= end:
        return None
    if is_end:
        return Crossing(root(there, low, end, *_guess(j, seen, between, low)), j)
    return _dip(j, size, there, low, end)


def _dip(
    j: int, size: float, there: Callable[[float], tuple[float, float]], low: float, high: float
) -> Crossing | None:
    """Where gap j crosses 0 on its way to its least value, or touches 0 there."""
    if not there(low)[1] < 0:
        return None
    bottom = _bottom(lambda time: there(time)[1], low, high)
    least = there(bottom)[0]
    if abs(least) <= GRAZING * size:
        return Crossing(bottom, j, grazes=True)
    return None if least > 0 else Crossing(root(there, low, bottom, (low + bottom) / 2), j)


def _guess(
    j: int, seen: Seen, between: tuple[int, int], low: float
) -> tuple[float, Callable[[float], float] | None]:
    """Where gap j crosses 0 between two places if it is a cubic, whose second derivative follows;
    the middle if it is 0 at first."""
    places = list(between)
    begin, stop = (float(v) for v in seen.times[places])
    if low > begin:
        return (low + stop) / 2, None
    (a, end), (b, last) = seen.gaps[j, places].tolist(), seen.rates[j, places].tolist()
    h = stop - begin
    c = (3 * (end - a) / h - 2 * b - last) / h
    d = (b + last - 2 * (end - a) / h) / h**2

    def there(time: float) -> tuple[float, float]:
        return a + time * (b + time * (c + time * d)), b + time * (2 * c + 3 * time * d)

    return begin + root(there, 0.0, h, h / 2), lambda t: 2 * c + 6 * d * (t - begin)


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
