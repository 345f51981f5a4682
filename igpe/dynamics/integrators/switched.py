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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import augmented
from igpe.dynamics.integrators.base import Integrator, Intervals, Refused, Shots
from igpe.dynamics.integrators.consistent import Consistent
from igpe.dynamics.integrators.crossings import GRAZING, HALVINGS, ZERO, bottom, candidates, root
from igpe.dynamics.integrators.cut import cut
from igpe.dynamics.integrators.limits import NO_START, at
from igpe.dynamics.integrators.steady import Resting
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.switching import Switching
from igpe.problem.inputs import Table

WATCHED = 80  # places of the horizon at which gaps are looked at; between them by their slopes
FEWEST = 4  # of them between two switches
MOST = 1_000  # switches in one interval
SETTLING = 20  # modes that may change one another at one time


class Rates(NamedTuple):
    """What is known at one point: slopes of the states, gaps and how fast they change."""

    f: FloatArray
    gaps: FloatArray
    rates: FloatArray


class Local:
    """CasADi functions of an initial value problem that switches need."""

    def __init__(self, ivp: InitialValueProblem) -> None:
        assert ivp.switching is not None, "only such problems have switches"
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
            return ca.Function(name, point, [ca.densify(r) for r in rows])

        rates = along(given.gaps) + by(given.gaps, ivp.x) @ ivp.f
        self.slopes = function("slopes", ivp.f, given.gaps, rates)
        self.gap_by = function("gap_by", *(by(given.gaps, v) for v in (ivp.x, ivp.q)))
        self.jumps = [
            function("jump", h, by(h, ivp.x), along(h), by(h, ivp.q))
            for h in (jump.after for jump in given.jumps)
        ]
        self.implicit = Implicit(ivp)

        def timed(e: Any) -> Any:
            return ca.Function("time", [ivp.q], [ca.densify(e), ca.densify(ca.jacobian(e, ivp.q))])

        self.times = [None if e is None else timed(e) for e in given.times]
        self.at = [None if j.at is None else timed(j.at + j.delay) for j in given.jumps]
        self.delay = [timed(j.delay) for j in given.jumps]
        self.watched = [j for j in range(n) if given.times[j] is None]
        """Gaps whose zeros are looked for along the trajectory."""


class Implicit:
    """Implicit algebraic variables (n_y,) as a function of time, states, inputs and unknowns."""

    def __init__(self, ivp: InitialValueProblem) -> None:
        self.ivp, self.size = ivp, ivp.implicit_scale
        if len(self.size):
            self._consistent = Consistent(augmented(ivp, sensitivities=False), ivp)
            self._last = self._consistent.guess

    def __call__(
        self, t: float, x: FloatArray, u: FloatArray, b: FloatArray, q: FloatArray
    ) -> FloatArray:
        """The root next to the last one; raises BrokenError if there is none inside the bounds."""
        if not len(self.size):
            return np.zeros(0)
        scale, rows = np.maximum(np.abs(q), self.ivp.unknown_scale), np.ones(len(self.size))
        p = np.concatenate([q, scale, u - b * t, b, rows, [t, 1.0]])
        root = self._consistent(x / self.ivp.scale, self._last, p)
        if root is None:
            raise BrokenError(f"No consistent algebraic variables {at(t)}.")
        self._last = root
        return root * self.size


class Due(NamedTuple):
    """Something that happens at a known time; sorted by time, then in their order.

    order   0 for modes, 1 + place of a jump;  by (n_d,): derivative of the time
    which   the gap that changes sign, or None;  jump: the jump, or None
    """

    time: float
    order: int
    by: FloatArray
    which: int | None = None
    jump: int | None = None


class Crossing(NamedTuple):
    """A gap passes through 0, or only touches it."""

    time: float
    gap: int
    grazes: bool = False


DELAYED = (
    "An event with when= and a delay cannot be followed across the intervals of multiple shooting. "
    "Use igpe.SingleShooting or igpe.IncrementalShooting."
)


class BrokenError(Exception):
    """An interval cannot be integrated; the message is the reason."""


@dataclass(frozen=True)
class SwitchedIntervals(Intervals):
    """See `igpe.dynamics.integrators.base.Intervals`.

    inner    the same equations without switches, over all of the horizon; it reports the states
             behind what is measured
    resting  where they start, if that is at rest
    """

    inner: Intervals
    resting: Resting | None = None

    def start(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Intervals`; NaN where the model does not come to rest before."""
        if self.resting is None:
            return super().start(q)
        self.check_unknowns(q)
        return self.resting(q)[:2]

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        before = 0 if self.resting is None else self.resting.steps
        found = super().from_start(q, derivatives=derivatives)
        if self.resting is not None and found.steps is not None:
            found.steps[0, 0] += self.resting.steps - before
        if self.resting is None or found.status[0].usable or np.isfinite(self.start(q)[0]).all():
            return found
        return replace(found, reason=(self.resting(np.asarray(q, dtype=float)).why,))

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        self.check_shapes(starts, q)
        shots = self.nothing(None if derivatives else 0, "")
        status, reasons = [Status.CONVERGED] * len(starts), [""] * len(starts)
        for k, start in enumerate(starts):
            course = _Course(self, k, np.asarray(q, dtype=float), shots, derivatives=derivatives)
            try:
                if not np.isfinite(start).all():
                    raise BrokenError(NO_START)
                course.run(np.asarray(start, dtype=float))
            except BrokenError as error:
                status[k], reasons[k] = Status.INTEGRATION_BROKE, str(error)
        return replace(shots, status=tuple(status), reason=tuple(reasons))

    def switch_times(self, q: FloatArray) -> list[tuple[float, FloatArray]]:
        """See `Intervals`; gaps come first, then jumps."""
        given = [f for f in (*self.local.times, *self.local.at) if f is not None]
        return [(float(value[0]), by[0]) for value, by in (_timed(f, q) for f in given)]

    @cached_property
    def local(self) -> Local:
        """Functions for the switches."""
        return Local(self.ivp)

    @cached_property
    def moded(self) -> dict[bytes, InitialValueProblem]:
        """The inner problem with the modes as tables, by the modes."""
        return {}


def switched(
    integrator: Integrator, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
) -> Intervals:
    """Intervals with switches, which an integrator integrates between these."""
    plain = _without_switches(ivp)
    pieces = cut(plain, nodes, times)
    inner = integrator.prepare(plain, pieces.nodes[[0, -1]], pieces.times)
    if isinstance(inner, Refused):
        return Refused(ivp, pieces, inner.refused, inner.status)
    duration = float(pieces.nodes[-1]) - ivp.t0
    resting = None if ivp.rest is None else Resting(ivp, integrator, duration or 1.0)
    return SwitchedIntervals(ivp, pieces, inner, resting, slow=inner.slow)


def _without_switches(ivp: InitialValueProblem) -> InitialValueProblem:
    """What is between switches; it reports states and implicit variables too."""
    shared = None if ivp.shared is None else _without_switches(ivp.shared)
    outputs = ca.vertcat(ivp.measured, ivp.x, ivp.y)
    return replace(ivp, switching=None, rest=None, measured=outputs, shared=shared)


def _timed(function: Any, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A time, for a gap also its slope, and their derivatives by the unknowns."""
    value, by = function(q)
    return np.asarray(value).ravel(), np.asarray(by).reshape(value.numel(), len(q))


class _Course:
    """One interval, from switch to switch.

    x, by   states (n_x,), and their derivatives (n_x, n_d) by its start and the unknowns
    true    (n_gaps,) whether each gap is positive
    size    (n_gaps,) how large each gap is: by the sizes of its states, and the largest met so far
    """

    def __init__(
        self, of: SwitchedIntervals, k: int, q: FloatArray, shots: Shots, *, derivatives: bool
    ) -> None:
        self.of, self.ivp, self.local, self.q, self.shots = of, of.ivp, of.local, q, shots
        self.k, self.derivatives = k, derivatives
        assert of.ivp.switching is not None, "only such problems have switches"
        self.given = of.ivp.switching
        self.t, self.end = (float(v) for v in of.cut.nodes[k : k + 2])
        self.rows = np.arange(*of.cut.rows[k : k + 2])
        self.n_x = len(of.ivp.states)
        self.n_d = self.n_x + len(q) if derivatives else 0
        self.pending: list[Due] = []
        self.size = np.zeros(self.given.gaps.numel())
        self.x, self.by = np.zeros(0), np.zeros((0, 0))
        self.true = np.zeros(len(self.size), dtype=bool)

    def run(self, start: FloatArray) -> None:
        """Integrate to the end; raises BrokenError."""
        self.x, self.by = start, np.eye(self.n_x, self.n_d)
        self._begin()
        for _ in range(MOST):
            due = min([self.end, *(d.time for d in self.pending)])
            crossing = self._watch(due) if self.local.watched and due > self.t else None
            if crossing is not None:
                self._advance(crossing.time, is_after=self._is_seen(crossing.gap))
                self._cross(crossing)
                continue
            now = [d for d in self.pending if d.time <= due]
            is_after = any(self._is_seen(d.which, d.jump) for d in now)
            self._advance(due, is_after=is_after)
            if not now or (due >= self.end and not is_after):
                self._require_nothing_waits()
                self.shots.ends[self.k], self.shots.ends_by[self.k] = self.x, self.by
                return
            self.pending = [d for d in self.pending if d.time > due]
            self._act(sorted(now, key=lambda d: d.order))
        raise BrokenError(
            f"More than {MOST} events happen up to {at(self.t).removeprefix('at ')}: they become "
            "ever denser, or the model switches to and fro. Add hysteresis or a delay."
        )

    def _begin(self) -> None:
        """What is true at the start, and what happens at times that are known."""
        for j, function in enumerate(self.local.times):
            if function is not None:
                (time, slope), by = _timed(function, self.q)
                is_past = math.isfinite(time) and time < self.t
                self.true[j] = (slope > 0) == is_past
                self._plan(Due(time, 0, self._wide(by[0]), which=j))
        for j, function in enumerate(self.local.at):
            if function is not None:
                (time,), by = _timed(function, self.q)
                if time < self.ivp.t0:
                    raise BrokenError(
                        f"An event lies at t = {time:.6g}, before the start at t = "
                        f"{self.ivp.t0:g}; give its time bounds after the start."
                    )
                self._plan(Due(time, 1 + j, self._wide(by[0]), jump=j))
        if self.local.watched:
            self._look()
        if self.t == self.ivp.t0:
            self._begin_with()

    def _begin_with(self) -> None:
        """Events whose condition is true at the start and counts there."""
        for j, jump in enumerate(self.given.jumps):
            if jump.at_start and self.true[jump.gap]:
                (delay,), by = _timed(self.local.delay[j], self.q)
                self._plan(Due(self.t + delay, 1 + j, self._wide(by[0]), jump=j))

    def _is_seen(self, gap: int | None, jump: int | None = None) -> bool:
        """Whether what is measured at a switch or jump is measured after it."""
        return any(
            one.is_measured_after and (j == jump or (gap is not None and one.gap == gap))
            for j, one in enumerate(self.given.jumps)
        )

    def _look(self) -> None:
        """What is true at the start of the gaps that states move."""
        for time in self.ivp.breaks(float(self.of.cut.nodes[-1])):
            self._plan(Due(time, 0, np.zeros(self.n_d)))
        by_x, _ = self.local.gap_by(*self._point(after=True))
        self.size = np.abs(np.asarray(by_x)) @ self.ivp.scale
        for _ in range(SETTLING):
            before, found = self.true.copy(), self._slopes(after=True)
            is_zero = found.gaps == 0
            true = np.where(is_zero, found.rates >= 0, found.gaps > 0)
            self.true[self.local.watched] = true[self.local.watched]
            if (before == self.true).all():
                break

    def _plan(self, due: Due) -> None:
        is_last = self.end == self.of.cut.nodes[-1] and self._is_seen(due.which, due.jump)
        at_end = due.time == self.end and (is_last or self.t == self.end)
        if self.t <= due.time < self.end or at_end:
            self.pending.append(due)

    def _wide(self, by_unknown: FloatArray) -> FloatArray:
        """A derivative by the unknowns as one by start and unknowns."""
        return np.concatenate([np.zeros(self.n_x), by_unknown])[: self.n_d]

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
        found = self.local.slopes(*self._point(after=after))
        return Rates(*(np.asarray(v).ravel() for v in found))

    def _integrated(self, stop: float, times: FloatArray, *, derivatives: bool) -> Shots:
        return self._from(self.t, self.x, stop, times, derivatives=derivatives)

    def _from(
        self, begin: float, x: FloatArray, stop: float, times: FloatArray, *, derivatives: bool
    ) -> Shots:
        modes = self.true[: self.given.modes]
        key = modes.tobytes()
        if key not in self.of.moded:
            tables = list(self.of.inner.ivp.tables)
            for i, value in enumerate(modes, start=len(tables) - len(modes)):
                tables[i] = Table(np.array([self.ivp.t0]), np.array([float(value)]), hold=True)
            self.of.moded[key] = replace(self.of.inner.ivp, tables=tuple(tables))
        over = self.of.inner.over(self.of.moded[key], np.array([begin, stop]), times)
        return over.run(x[None], self.q, derivatives=derivatives)

    def _advance(self, stop: float, *, is_after: bool) -> None:
        """Integrate to a time, which nothing interrupts, and report what is measured till then.

        is_after  whether what is measured at the time itself is left for the next stretch
        """
        times = self.of.cut.times[self.rows]
        taken = times < stop if is_after else times <= stop
        if stop == self.t and not taken.any():
            return
        shots = self._integrated(stop, times[taken], derivatives=self.derivatives)
        if shots.steps is not None and self.shots.steps is not None:
            self.shots.steps[self.k] += shots.steps[0]
        if self.derivatives:
            below = np.eye(len(self.q), self.n_d, self.n_x)
            shots = shots.along(np.vstack([self.by, below]))
        n_h, rows = self.ivp.measured.numel(), self.rows[taken]
        out, ends = self.shots, [n_h, n_h + self.n_x]
        out.measured[rows], out.states[rows], _ = np.split(shots.measured, ends, axis=1)
        out.measured_by[rows], out.states_by[rows], _ = np.split(shots.measured_by, ends, axis=1)
        if not shots.status[0].usable:
            raise BrokenError(shots.reason[0])
        self.t, self.x, self.by = stop, shots.ends[0], shots.ends_by[0]
        self.rows = self.rows[~taken]

    def _require_nothing_waits(self) -> None:
        """A jump that states bring about must not wait beyond an interval's end."""
        if self.end < self.of.cut.nodes[-1] and self.given.has_delayed and self.pending:
            raise BrokenError(DELAYED)

    # Switches

    def _act(self, due: Sequence[Due]) -> None:
        """What happens now, at times that are known."""
        while due:
            by = due[0].by
            together = [d for d in due if np.array_equal(d.by, by)]
            due = [d for d in due if not np.array_equal(d.by, by)]
            self._switch(together, by)

    def _cross(self, crossing: Crossing) -> None:
        """A gap crosses 0 now."""
        j, found = crossing.gap, self._slopes(after=False)
        rate = found.rates[j]
        horizon = float(self.of.cut.nodes[-1]) - self.ivp.t0
        if crossing.grazes or not abs(rate) * horizon > GRAZING * self.size[j]:
            raise BrokenError(
                f"A condition that states decide is only touched, not crossed, {at(self.t)} "
                "(grazing): what follows depends on the unknowns without derivatives there."
            )
        by = np.zeros(self.n_d)
        if self.derivatives:
            g_x, g_q = (np.asarray(v) for v in self.local.gap_by(*self._point(after=False)))
            by = -(g_x[j] @ self.by + self._wide(g_q[j])) / rate
        self._switch([Due(self.t, 0, by, which=j)], by, crossed=j)

    def _switch(self, due: Sequence[Due], by: FloatArray, crossed: int | None = None) -> None:
        """Modes change and states jump, at a time with derivative `by`."""
        self.by = self.by + np.outer(self._slopes(after=False).f, by)
        jumped = False
        for one in due:
            if one.which is not None:
                self.true[one.which] = not self.true[one.which]
                jumped |= self.true[one.which] and self._triggered(one.which, by)
            if one.jump is not None:
                self._jump(one.jump, by)
                jumped = True
        self._settle(by, None if jumped else crossed, crossed)
        self.by = self.by - np.outer(self._slopes(after=True).f, by)

    def _triggered(self, gap: int, by: FloatArray) -> bool:
        """Carry out or plan the jumps that wait for a gap; whether one was carried out."""
        now = False
        for j, jump in enumerate(self.given.jumps):
            if jump.gap != gap:
                continue
            (delay,), by_q = _timed(self.local.delay[j], self.q)
            if delay > 0:
                self.pending.append(Due(self.t + delay, 1 + j, by + self._wide(by_q[0]), jump=j))
            else:
                self._jump(j, by)
                now = True
        return now

    def _jump(self, j: int, by: FloatArray) -> None:
        here = self.local.jumps[j](*self._point(after=True))
        after, by_x, by_t, by_q = (np.asarray(v) for v in here)
        if self.derivatives:
            own = np.hstack([np.zeros((self.n_x, self.n_x)), by_q])
            self.by = by_x @ self.by + np.outer(by_t, by) + own
        self.x = after.ravel()
        if not np.isfinite(self.x).all():
            raise BrokenError(f"An event gives a state no finite value {at(self.t)}.")

    def _settle(self, by: FloatArray, held: int | None, crossed: int | None) -> None:
        """Modes that other modes and jumps change at the same time.

        held     a gap that has just crossed 0 and keeps its new sign, as the states did not jump
        crossed  the same, whether or not they jumped
        """
        for _ in range(SETTLING):
            found, changed = self._slopes(after=True), False
            for j in self.local.watched:
                is_zero = abs(found.gaps[j]) <= ZERO * self.size[j]
                if j == held or (is_zero and j != crossed):
                    continue
                value = found.rates[j] if is_zero else found.gaps[j]
                if value == 0 or (value > 0) == self.true[j]:
                    continue
                self.true[j] = value > 0
                changed = True
                if self.true[j] and self._triggered(j, by):
                    break
            if not changed:
                break
        else:
            raise BrokenError(f"Conditions on states change each other without end {at(self.t)}.")
        if held is not None and found.rates[held] * (1 if self.true[held] else -1) < 0:
            raise BrokenError(
                f"A condition that states decide switches back at once {at(self.t)} (sliding): "
                "both branches lead back to the other. Add hysteresis, for example two igpe.Event "
                "that set a state of its own, or write a smooth transition."
            )

    # Crossings

    def _watch(self, stop: float) -> Crossing | None:
        """The first time up to `stop` at which a gap changes its sign."""
        horizon = float(self.of.cut.nodes[-1]) - self.ivp.t0
        count = FEWEST + math.ceil(WATCHED * (stop - self.t) / horizon)
        times = self.of.cut.times[self.rows]
        grid = np.linspace(self.t, stop, count + 1)[1:]
        grid = np.union1d(grid, times[(times > self.t) & (times < stop)])
        states = self._moving(self._integrated(stop, grid, derivatives=False))
        reached = int(np.isfinite(states).all(axis=1).sum())
        places = np.concatenate([[self.t], grid[:reached]])
        now = np.concatenate([self.x, self._point(after=True)[2]])
        rows = np.vstack([now, states[:reached]])
        a, b = self._segment()
        inputs = a[:, None] + b[:, None] * places
        held = (np.tile(v[:, None], len(places)) for v in (b, self.q))
        x, y = np.split(rows.T, [self.n_x])
        many = self.local.slopes(places[None], x, y, inputs, *held)
        _, gaps, rates = (np.asarray(v) for v in many)
        self.size = np.maximum(self.size, np.abs(gaps).max(axis=1))
        sign = np.where(self.true, 1.0, -1.0)[:, None]
        return self._first(places, rows, sign * gaps, sign * rates)

    def _moving(self, shots: Shots) -> FloatArray:
        """(n_times, n_x + n_y) states and implicit variables."""
        return shots.measured[:, self.ivp.measured.numel() :]

    def _segment(self) -> tuple[FloatArray, FloatArray]:
        u, b = self._inputs(after=True)
        return u - b * self.t, b

    def _first(
        self, times: FloatArray, states: FloatArray, gaps: FloatArray, rates: FloatArray
    ) -> Crossing | None:
        """See `_watch`; gaps and rates (n_gaps, n) are positive where their sign is as before."""
        found: Crossing | None = None
        for j in self.local.watched:
            for p, q, is_end in candidates(times, gaps[j], rates[j], self.size[j]):
                if found is not None and times[p] > found.time:
                    break
                one = self._zero(j, times[[p, q]], states[p], is_end=is_end)
                if one is not None:
                    found = one if found is None else min(found, one)
                    break
        return found

    def _zero(  # noqa: C901 - each way to cross or to touch is a case
        self, j: int, between: FloatArray, first: FloatArray, *, is_end: bool
    ) -> Crossing | None:
        """Where gap j crosses 0 between two times, from states and implicit variables at the first.

        is_end  whether it has at the second; else it may dip below 0 between them
        """
        begin, end = between.tolist()
        sign, (a, b) = (1.0 if self.true[j] else -1.0), self._segment()

        def there(time: float) -> tuple[float, float]:
            """The gap and its rate."""
            here = first
            if time > begin:
                x, times = first[: self.n_x], np.array([time])
                here = self._moving(self._from(begin, x, time, times, derivatives=False))[0]
            x, y = np.split(here, [self.n_x])
            _, gaps, rates = self.local.slopes(time, x, y, a + b * time, b, self.q)
            return sign * float(gaps[j]), sign * float(rates[j])

        low, zero = begin, ZERO * self.size[j] if begin == self.t else 0.0
        if there(begin)[0] <= zero:  # it has just crossed
            later = (begin + (end - begin) * 0.5**k for k in range(HALVINGS, -1, -1))
            low = next((time for time in later if there(time)[0] > 0), begin)
            if low == begin:
                return Crossing(begin, j)
        if not is_end:
            if low >= end or not there(low)[1] < 0:
                return None
            end = bottom(lambda time: there(time)[1], low, end)
            least = there(end)[0]
            if abs(least) <= GRAZING * self.size[j]:
                return Crossing(end, j, grazes=True)
            if least > 0:
                return None
        return Crossing(root(there, low, end), j) if low < end else None
