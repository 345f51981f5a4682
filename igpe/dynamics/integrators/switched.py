"""Intervals with events: integrated from one switch to the next, with exact derivatives.

At the time tau of a switch, where the states x jump to h(t, x, q), their derivatives S become

    S+ = h_x (S- + f- tau') + h_q + h_t tau' - f+ tau'

with the slopes f- and f+ before and after it. tau' is the derivative of a time that the unknowns
give, or where g(t, x, q) passes through 0

    tau' = -(g_x S- + g_q) / (g_t + g_x f-)

(Rozenvasser, Automation and Remote Control 28 (1967) 541; Galan, Feehery & Barton, Applied
Numerical Mathematics 31 (1999) 17.) They do not exist where the denominator is 0: there g touches
0 without crossing it (grazing). That ends the integration with a reason, as does a switch that
switches back at once (sliding).

Implicit algebraic variables y follow the states: in all of this h, f and g mean h(t, x, y(x), q)
and so on, with dy = -e_y^-1 e_v dv from their equations e(t, x, y, q) = 0.

Between switches any integrator integrates; modes are inputs that it holds. So do all intervals of
multiple shooting: what happens at a node belongs to the interval that begins there.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator, Intervals, Refused, Shots
from igpe.dynamics.integrators.cut import cut
from igpe.dynamics.integrators.limits import NO_START, NOT_FINITE, TOO_EARLY, BrokenError, at
from igpe.dynamics.integrators.steady import Approach, Repeats, Rest, Resting, Stage, resting_of
from igpe.dynamics.integrators.switches import (
    DELAYED,
    FREQUENT,
    GRAZES,
    GRAZING,
    SLIDES,
    ZERO,
    Crossing,
    Due,
    Local,
    Rates,
    Seen,
    Stretches,
    crossing_with,
    first_crossing,
    nearest,
    require_few,
    timed,
    watched_places,
    with_crossing,
)
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.inputs import just_after

MOST, MOST_BEFORE = 1_000, 200  # switches in one interval, and on the way to rest
DEARER = 4  # times the cost of a stretch: one that is watched for switches by states
SETTLING = 20  # modes that may change one another at one time
AHEAD = 10.0 ** np.arange(-6, 0)  # of the horizon: where a gap of 0 that rests is looked at


@dataclass(frozen=True)
class SwitchedIntervals(Intervals):
    """See `igpe.dynamics.integrators.base.Intervals`.

    inner    the same equations without switches that states move, over all of the horizon; it
             reports the states behind what is measured
    resting  where they start, if that is at rest
    """

    inner: Intervals
    resting: Resting | None = None

    @property
    def compiled(self) -> bool:
        """See `Intervals`."""
        return self.inner.compiled

    def rougher(self, rtol: float) -> "SwitchedIntervals":
        """See `Intervals`; the state at rest stays as it is."""
        return replace(self, inner=self.inner.rougher(rtol))

    def start(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Intervals`; NaN where the model does not come to rest before."""
        if self.resting is None:
            return super().start(q)
        return self._at_rest(self.resting, q)[:2]

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`; what follows the start moves with the unknowns."""
        rest = None if self.resting is None else self._at_rest(self.resting, q)
        states, by = self.start(q) if rest is None else rest[:2]
        if self.inner.ivp.switching is not None:
            shots = self.reported(self._whole.from_state(states, by, q, derivatives=derivatives))
        else:
            shots = self._run(states[None], q, rest, by if derivatives else by[:, :0])
        if rest is None or self.resting is None:
            return shots
        if shots.steps is not None:
            shots.steps[0, 0] += rest.steps
        reason = (rest.why,) if rest.why else shots.reason
        return replace(shots, reason=reason, plain=rest.steps if self.resting.is_plain else 0)

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        assert self.ivp.switching is not None, "called only for problems with switches"
        carries = self.ivp.switching.carries
        rest = self._at_rest(self.resting, q) if self.resting and carries else None
        n_x = len(self.ivp.states)
        return self._run(starts, q, rest, np.eye(n_x, n_x + len(q) if derivatives else 0))

    def _at_rest(self, resting: Resting, q: FloatArray) -> Rest:
        self.check_unknowns(q)
        return resting.start_of(self._resting_unknowns, q)

    @cached_property
    def _resting_unknowns(self) -> IntArray:
        """Places of the unknowns that the state at rest depends on."""
        assert self.ivp.rest is not None, "called only where the start is at rest"
        return np.array([self.ivp.unknowns.index(n) for n in self.ivp.rest.unknowns], dtype=np.intp)

    def _run(self, starts: FloatArray, q: FloatArray, rest: Rest | None, by: FloatArray) -> Shots:
        """See `run`; what rests before tells which events have already happened.

        by  (n_x, n_d) derivatives of each start, along what moves it and then along all unknowns;
            without columns if no derivatives are needed
        """
        self.check_shapes(starts, q)
        if self.inner.ivp.switching is not None:
            return self.reported(self._whole.run(starts, q, derivatives=by.shape[1] > 0))
        shots = self.nothing(by.shape[1], "")
        status, why, stretches = [Status.CONVERGED] * len(starts), [""] * len(starts), 0
        for k, start in enumerate(starts):
            course = _Course(self, k, np.asarray(q, dtype=float), shots, by)
            try:
                if not np.isfinite(start).all():
                    raise BrokenError(NO_START)
                course.run(np.asarray(start, dtype=float), None if k else rest)
            except BrokenError as error:
                status[k], why[k] = Status.INTEGRATION_BROKE, str(error)
            stretches += course.stretches
        return replace(shots, status=tuple(status), reason=tuple(why), stretches=stretches)

    @cached_property
    def _whole(self) -> Intervals:
        return self.inner.over(self.inner.ivp, self.cut.nodes, self.cut.times)

    def reported(self, shots: Shots) -> Shots:
        """What the inner intervals report, as it is measured and as states."""
        n_h, n_x = self.ivp.measured.numel(), len(self.ivp.states)
        places = {"measured": slice(n_h), "states": slice(n_h, n_h + n_x)}
        parts: dict[str, Any] = {n: shots.measured[:, some] for n, some in places.items()}
        parts |= {f"{n}_by": shots.measured_by[:, some] for n, some in places.items()}
        return replace(shots, **parts)

    def switch_times(self, q: FloatArray) -> list[tuple[float, FloatArray]]:
        """See `Intervals`; gaps come first, then jumps."""
        given = [f for f in (*self.local.times, *self.local.at) if f is not None]
        return [(float(value[0]), by[0]) for value, by in (timed(f, q) for f in given)]

    @cached_property
    def local(self) -> Local:
        """Functions for the switches."""
        return Local(self.ivp)

    @cached_property
    def stretches(self) -> Stretches:
        """Inner intervals from one switch to the next."""
        return Stretches(self.inner)


def switched(
    integrator: Integrator, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
) -> Intervals:
    """Intervals with switches, which an integrator integrates between these."""
    assert ivp.switching is not None, "called only for problems with switches"
    plain = ivp.reporting(breaks=False)
    pieces = cut(plain, nodes, times)
    if ivp.rest is not None and ivp.switching.is_timed:
        plain = ivp.reporting(breaks=True)
    inner = integrator.prepare(plain, pieces.nodes[[0, -1]], pieces.times)
    if isinstance(inner, Refused):
        return Refused(ivp, pieces, inner.refused, inner.status)
    resting = None
    if ivp.rest is not None:
        resting = resting_of(integrator, ivp.rest, SwitchedApproach)
    return SwitchedIntervals(ivp, pieces, inner, resting, slow=inner.slow)


class SwitchedApproach(Approach):
    """The approach to rest of equations that events and states switch.

    intervals  one, with the times at which the stages end
    """

    def __init__(self, intervals: SwitchedIntervals) -> None:
        self.intervals = intervals
        self.lengths = intervals.cut.times - intervals.ivp.t0

    def __call__(self, q: FloatArray) -> Iterator[Stage]:
        """See `Approach`."""
        of, shots = self.intervals, self.intervals.nothing(len(q), "")
        start, by = of.start(q)
        course, repeats = _Course(of, 0, q, shots, by), Repeats(of.ivp.scale)
        try:
            if not np.isfinite(start).all():
                raise BrokenError(NO_START)
            course.begin(start)
            for _ in range(MOST_BEFORE):
                if not course.pending:
                    repeats.look(course.x, course.true)
                yield Stage(course.x, course.by, course.true.copy())
                if not (yield from course.stages(self.lengths)):
                    return
            raise BrokenError(f"More than {MOST_BEFORE} events or switches occurred.")
        except BrokenError as error:
            yield Stage(course.x, why=str(error))
        finally:
            self.steps += 0 if shots.steps is None else int(shots.steps.sum())


class _Course:
    """One interval, from switch to switch.

    x, by   states (n_x,), and their derivatives (n_x, n_d); the last columns are the unknowns'
    true    (n_gaps,) whether each gap is positive
    size    (n_gaps,) how large each gap is: by the sizes of its states, and the largest met so far
    off     (n_gaps,) what gaps at 0 are off it by errors of integration, with the wrong sign
    since   time between the last two crossings
    horizon what is looked at: places are parts of it, and a gap that hardly moves in it is grazing
    """

    def __init__(
        self, of: SwitchedIntervals, k: int, q: FloatArray, shots: Shots, by: FloatArray
    ) -> None:
        self.of, self.ivp, self.local, self.q, self.shots = of, of.ivp, of.local, q, shots
        self.k, self.by, self.n_d, self.derivatives = k, by, by.shape[1], by.shape[1] > 0
        assert of.ivp.switching is not None, "called only for problems with switches"
        self.given, self.n_x = of.ivp.switching, len(of.ivp.states)
        self.t, self.end = (float(v) for v in of.cut.nodes[k : k + 2])
        self.rows = np.arange(*of.cut.rows[k : k + 2])
        self.pending, self.stretches, self.since = list[Due](), 0, math.inf
        self.crossed = list[float]()  # times, of the last crossings
        self.x, self.size = np.zeros(0), np.zeros(self.given.gaps.numel())
        self.true, self.off = np.zeros(len(self.size), dtype=bool), np.zeros(len(self.size))
        self.horizon = float(of.cut.nodes[-1]) - of.ivp.t0

    def run(self, start: FloatArray, rest: Rest | None) -> None:
        """Integrate to the end; `rest` is what rested before, if that tells past events.

        raises BrokenError
        """
        self.begin(start, rest)
        for _ in range(MOST):
            due = self._next()
            crossing, begin = None, self.t
            if self.local.watched and due > self.t:
                crossing = nearest(lambda t: self._first(self._watch(t)), begin, self.since, due)
            self.stretches += DEARER if self.local.watched else 1
            require_few(self.stretches, self.t)
            if crossing is not None:
                self._cross(crossing)
                self.since = self.t - begin
                continue
            now = [d for d in self.pending if d.time <= due]
            is_after = any(d.is_seen or self.given.is_seen(d.which, d.jump) for d in now)
            self._advance(due, is_after=is_after)
            if not now or (due >= self.end and not is_after):
                if self.end < self.of.cut.nodes[-1] and self.given.has_delayed and self.pending:
                    raise BrokenError(DELAYED)  # a jump that states bring about must not wait
                self.shots.ends[self.k], self.shots.ends_by[self.k] = self.x, self.by
                return
            self._act(due)
        raise BrokenError(FREQUENT.format(f"More than {MOST}", f"before t = {self.t:.6g}"))

    def stages(self, lengths: FloatArray) -> Generator[Stage, None, bool]:
        """States at these times from now, as long as nothing switches; whether something does.

        raises BrokenError
        """
        self.rows, since, due = self.rows[:0], self.t, self._next()
        self.horizon = float(lengths[0])
        for length in lengths:
            stop = min(self.t + float(length), due)
            seen = self._watch(stop, (since, float(length)))
            if (crossing := self._first(seen)) is not None:
                self._cross(crossing)
                return True
            if seen.why:
                raise BrokenError(seen.why)
            if self.pending and stop == due:
                self._advance(due, is_after=False)
                self._act(due)
                return True
            if not self.pending:  # what waits will move it
                yield Stage(seen.states[-1, : self.n_x])
            if stop == self.end:
                break
            since = stop
        return False

    def begin(self, start: FloatArray, rest: Rest | None = None) -> None:
        """What is true at the start, and what happens at times that are known; see `run`."""
        self.x = start
        for j, function in enumerate(self.local.times):
            if function is not None:
                (time, slope), by = timed(function, self.q)
                self.true[j] = (slope > 0) == (time < self.t)
                self._plan(Due(time, 0, self._wide(by[0]), which=j))
        for j, function in enumerate(self.local.at):
            if function is not None:
                (time,), by = timed(function, self.q)
                if time < self.ivp.t0:
                    raise BrokenError(TOO_EARLY.format(time, self.ivp.t0))
                self._plan(Due(time, 1 + j, self._wide(by[0]), jump=j))
        if self.local.watched:
            self._look()
        if self.t == self.ivp.t0:
            self._begin_with(rest)

    def _begin_with(self, rest: Rest | None) -> None:
        """Events whose condition is true at the start and counts there, or is true just after."""
        gaps = self._slopes(after=True).gaps if self.local.watched else self.size
        for j, jump in enumerate(self.given.jumps):
            if jump.gap is None or (rest is not None and jump.before):
                continue
            later, is_watched = self.true[jump.gap], jump.gap in self.local.watched
            now = jump.closed if is_watched and gaps[jump.gap] == 0 else later
            if (now and jump.at_start) or (later and not now):
                (delay,), by = timed(self.local.delay[j], self.q)
                time = self.t if now else just_after(self.t)
                self._plan(Due(time + delay, 1 + j, self._wide(by[0]), jump=j))
        if rest is None or not self.given.carries:
            return
        carried = [jump for jump in self.given.jumps if jump.before]
        for jump, was_true in zip(carried, rest.true[-len(carried) :], strict=True):
            self.true[jump.gap] = was_true
        is_seen = any(jump.is_measured_after for jump in carried)
        self._plan(Due(self.t, 0, np.zeros(self.n_d), is_seen=is_seen))

    def _next(self) -> float:
        """When the next happens of what is known to happen, or the end."""
        return min([self.end, *(d.time for d in self.pending)])

    def _look(self) -> None:
        """What is true at the start of the gaps that states move."""
        for time in self.ivp.breaks(float(self.of.cut.nodes[-1])):
            self._plan(Due(time, 0, np.zeros(self.n_d)))
        by_x, _ = self.local.gap_by(*self._point(after=True))
        self.size = np.abs(by_x) @ self.ivp.scale
        for _ in range(SETTLING):
            before, slopes = self.true.copy(), self._slopes(after=True)
            true = np.where(slopes.gaps == 0, slopes.rates > 0, slopes.gaps > 0)
            for j in np.flatnonzero((slopes.gaps == 0) & (slopes.rates == 0)):
                true[j] = self._is_true_later(int(j))
            self.true[self.local.watched] = true[self.local.watched]
            if (before == self.true).all():
                break

    def _is_true_later(self, j: int) -> bool:
        """Whether a gap that is 0 and does not move soon becomes positive, or counts so at 0."""
        span = float(self.of.cut.nodes[-1]) - self.t
        times = self.t + np.minimum(self.horizon, span) * AHEAD
        if not times[-1] > self.t:
            return self.given.closed[j]
        states = self._moving(self._from(self.t, self.x, float(times[-1]), times))
        a, b = self._segment()
        for time, state in zip(times, states, strict=True):
            x, y = np.split(state, [self.n_x])
            gap = float(self.local.slopes(time, x, y, a + b * time, b, self.q)[1][j, 0])
            if abs(gap) > ZERO * self.size[j]:
                return gap > 0
        return self.given.closed[j]

    def _plan(self, due: Due) -> None:
        is_last = self.end in (self.of.cut.nodes[-1], self.t)  # else the next interval has its end
        if self.t <= due.time < self.end or (is_last and due.time == self.end):
            self.pending.append(due)

    def _wide(self, by_unknown: FloatArray) -> FloatArray:
        """(..., n_d) a derivative by the unknowns (..., n_q)."""
        wide = np.zeros((*by_unknown.shape[:-1], self.n_d))
        if self.derivatives:
            wide[..., self.n_d - len(self.q) :] = by_unknown
        return wide

    def _inputs(self, *, after: bool) -> tuple[FloatArray, FloatArray]:
        """Inputs now, and their slopes, just before or just after."""
        when = self.t if after else float(np.nextafter(self.t, -np.inf))
        a, b = self.ivp.input_segment(when)
        if n := self.given.modes:
            a[-n:] = self.true[:n]
        return a + b * self.t, b

    def _point(self, *, after: bool) -> tuple[Any, ...]:
        """Arguments of the functions in `Local`, now, just before or just after."""
        inputs = self._inputs(after=after)
        y = self.local.implicit(self.t, self.x, *inputs, self.q)
        return self.t, self.x, y, *inputs, self.q

    def _slopes(self, *, after: bool) -> Rates:
        values = self.local.slopes(*self._point(after=after))
        f, gaps, rates = (v.ravel() for v in values)
        return Rates(f, gaps + self.off, rates)

    def _between(self, begin: float, stop: float, times: FloatArray) -> Intervals:
        return self.of.stretches(self.true[: self.given.modes], begin, stop, times)

    def _from(self, begin: float, x: FloatArray, stop: float, times: FloatArray) -> Shots:
        return self._between(begin, stop, times).run(x[None], self.q, derivatives=False)

    def _advance(self, stop: float, *, is_after: bool) -> None:
        """Integrate to a time, which nothing interrupts, and report what is measured till then.

        is_after  whether what is measured at the time itself is left for the next stretch
        """
        times = self.of.cut.times[self.rows]
        taken = times < stop if is_after else times <= stop
        if stop == self.t and not taken.any():
            return
        between = self._between(self.t, stop, times[taken])
        shots = between.from_state(self.x, self.by, self.q, derivatives=self.derivatives)
        if shots.steps is not None and self.shots.steps is not None:
            self.shots.steps[self.k] += shots.steps[0]
        shots = self.of.reported(shots)
        for name in ("measured", "states", "measured_by", "states_by"):
            getattr(self.shots, name)[self.rows[taken]] = getattr(shots, name)
        if not shots.status[0].usable:
            raise BrokenError(shots.reason[0])
        self.t, self.x, self.by = stop, shots.ends[0], shots.ends_by[0]
        self.rows = self.rows[~taken]

    def _act(self, time: float) -> None:
        """What happens now, at a time that is known."""
        due = sorted((d for d in self.pending if d.time <= time), key=lambda d: d.order)
        self.pending = [d for d in self.pending if d.time > time]
        while due:
            by = due[0].by
            together = [d for d in due if np.array_equal(d.by, by)]
            due = [d for d in due if not np.array_equal(d.by, by)]
            self._switch(together, by)

    def _cross(self, crossing: Crossing) -> None:
        """A gap crosses 0; others that mean the same cross it with it."""
        self.crossed = with_crossing(self.crossed, crossing.time, self.horizon)
        self._advance(crossing.time, is_after=self.given.is_seen(crossing.gap))
        j, slopes = crossing.gap, self._onto(crossing.gap, crossing.grazes)
        rate, by = slopes.rates[j], np.zeros(self.n_d)
        g_x, g_q = self.local.gap_by(*self._point(after=False))
        if self.derivatives:
            by = -(g_x[j] @ self.by + self._wide(g_q[j])) / rate
        near = [k for k in self.local.watched if abs(slopes.gaps[k]) <= ZERO * self.size[k]]
        same = crossing_with(j, near, self.true, slopes.rates, np.hstack([g_x, g_q]))
        self._switch([Due(self.t, 0, by, which=k) for k in same], by, frozenset(same))

    def _onto(self, j: int, grazes: bool) -> Rates:
        """Slopes where gap j is 0 to rounding: so near it, errors of integration count twice."""
        for _ in range(SETTLING):
            slopes = self._slopes(after=False)
            if grazes or not abs(slopes.rates[j]) * self.horizon > GRAZING * self.size[j]:
                raise BrokenError(GRAZES.format(at(self.t)))
            if abs(slopes.gaps[j]) <= ZERO * self.size[j]:
                break
            step = float(-slopes.gaps[j] / slopes.rates[j])
            last = min([self._next(), *self.of.cut.times[self.rows[:1]]])
            self.t, self.x = min(self.t + step, last), self.x + step * slopes.f
        return slopes

    def _switch(
        self, due: Sequence[Due], by: FloatArray, crossed: frozenset[int] = frozenset()
    ) -> None:
        """Modes change and states jump, at a time with derivative `by`."""
        if by.any():  # else the slope does not count, and may have no value before the event
            self.by = self.by + np.outer(self._slopes(after=False).f, by)
        jumped = False
        for one in due:
            if one.which is not None:
                self.true[one.which] = not self.true[one.which]
                jumped |= self.true[one.which] and self._triggered(one.which, by)
            if one.jump is not None:
                self._jump(one.jump, by)
                jumped = True
        self._settle(by, crossed, jumped=jumped)
        after = self._slopes(after=True)
        self.by = self.by - np.outer(after.f, by)
        gaps = after.gaps - self.off
        is_off = ((gaps > 0) != self.true) & (np.abs(gaps) <= GRAZING * self.size)
        self.off = np.where(is_off, -gaps, 0.0)

    def _triggered(self, gap: int, by: FloatArray) -> bool:
        """Carry out or plan the jumps that wait for a gap; whether one was carried out."""
        now = False
        for j, jump in enumerate(self.given.jumps):
            if jump.gap != gap:
                continue
            (delay,), by_q = timed(self.local.delay[j], self.q)
            if delay > 0:
                self.pending.append(Due(self.t + delay, 1 + j, by + self._wide(by_q[0]), jump=j))
            else:
                self._jump(j, by)
                now = True
        return now

    def _jump(self, j: int, by: FloatArray) -> None:
        after, by_x, by_t, by_q = self.local.jumps[j](*self._point(after=True))
        if self.derivatives:
            self.by = by_x @ self.by + np.outer(by_t, by) + self._wide(by_q)
        self.x, self.off = after.ravel(), np.zeros(len(self.size))
        if not np.isfinite(self.x).all():
            raise BrokenError(NOT_FINITE.format(at(self.t)))

    def _settle(self, by: FloatArray, crossed: frozenset[int], *, jumped: bool) -> None:
        """Modes that other modes and jumps change at the same time.

        crossed  gaps that have just crossed 0; they keep their new sign unless the states jumped
        """
        held = frozenset[int]() if jumped else crossed
        for _ in range(SETTLING):
            slopes, changed = self._slopes(after=True), False
            for j in self.local.watched:
                true = self._holds(j, slopes, crossed, jumped=jumped)
                if j in held or true is None or true == self.true[j]:
                    continue
                self.true[j] = true
                changed = True
                if self.true[j] and self._triggered(j, by):
                    break
            if not changed:
                break
        else:
            raise BrokenError(f"Conditions on states trigger each other endlessly {at(self.t)}.")
        back = np.where(self.true, -1.0, 1.0) * slopes.rates * self.horizon
        if any(back[j] > GRAZING * self.size[j] for j in held):  # else it stays there (rest)
            raise BrokenError(SLIDES.format(at(self.t)))

    def _holds(
        self, j: int, slopes: Rates, crossed: frozenset[int], *, jumped: bool
    ) -> bool | None:
        """Whether a gap is now positive, or becomes so; None where it is 0 and nothing is known."""
        is_zero = abs(slopes.gaps[j]) <= ZERO * self.size[j]
        if is_zero and jumped and slopes.gaps[j] == slopes.rates[j] == 0:
            return self._is_true_later(j)
        if is_zero and j not in crossed:
            return None
        value = slopes.rates[j] if is_zero else slopes.gaps[j]
        return None if value == 0 else bool(value > 0)

    def _watch(self, stop: float, seen: tuple[float, float] | None = None) -> Seen:
        """States and gaps up to `stop`, at places that are close enough to see crossings.

        seen  the time up to which they were seen before, and of what places are parts
        """
        begin, horizon = (self.t, self.horizon) if seen is None else seen
        grid = watched_places(begin, stop, horizon, self.of.cut.times[self.rows])
        grid = grid[grid > self.t]
        shots = self._from(self.t, self.x, stop, grid)
        states = self._moving(shots)
        reached = int(np.isfinite(states).all(axis=1).sum())
        places, rows = grid[:reached], states[:reached]
        if begin == self.t:
            here = np.concatenate([self.x, self._point(after=True)[2]])
            places, rows = np.append(self.t, places), np.vstack([here, rows])
        a, b = self._segment()
        x, y = np.hsplit(rows, [self.n_x])
        point = places[:, None], x, y, a + b * places[:, None], b, self.q
        _, gaps, rates = self.local.slopes.at(len(places), *point)
        why = "" if shots.status[0].usable else shots.reason[0]
        sign = np.where(self.true, 1.0, -1.0)[:, None]
        now = Seen(places, rows, sign * (gaps + self.off[:, None]), sign * rates, why)
        self.size = now.largest(self.size, self.local.watched)
        return now

    def _moving(self, shots: Shots) -> FloatArray:
        """(n_times, n_x + n_y) states and implicit variables."""
        return shots.measured[:, self.ivp.measured.numel() :]

    def _segment(self) -> tuple[FloatArray, FloatArray]:
        u, b = self._inputs(after=True)
        return u - b * self.t, b

    def _first(self, seen: Seen) -> Crossing | None:
        """The first time at which a gap changes its sign."""
        return first_crossing(seen, self.local.watched, self.size, self._gap, self.t)

    def _gap(self, j: int, begin: float, first: FloatArray, time: float) -> tuple[float, float]:
        """A gap and its rate at a time, from states and implicit variables where it begins."""
        (a, b), here = self._segment(), first
        if time > begin:
            x, times = first[: self.n_x], np.array([time])
            here = self._moving(self._from(begin, x, time, times))[0]
        x, y = np.split(here, [self.n_x])
        _, gaps, rates = self.local.slopes(time, x, y, a + b * time, b, self.q)
        sign = 1.0 if self.true[j] else -1.0
        return sign * float(gaps[j, 0] + self.off[j]), sign * float(rates[j, 0])
