"""What switches of an initial value problem need at one point: functions, times and crossings."""

from dataclasses import replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.dynamics.integrators.augmented import augmented
from igpe.dynamics.integrators.base import Intervals
from igpe.dynamics.integrators.consistent import Consistent
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.switching import Switching
from igpe.problem.inputs import Table

MOST_KEPT = 50  # stretches between switches

DELAYED = (
    "Multiple shooting does not support an event with both `when` and a delay, because the delay "
    "may reach into the next interval. Use igpe.SingleShooting or igpe.IncrementalShooting."
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
ENDLESS = "More than {} events occurred."


class BrokenError(Exception):
    """An interval cannot be integrated; the message is the reason."""


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


class Crossing(NamedTuple):
    """A gap passes through 0, or only touches it."""

    time: float
    gap: int
    grazes: bool = False


def timed(function: Any, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A time, for a gap also its slope, and their derivatives by the unknowns."""
    value, by = function(q)
    return np.asarray(value).ravel(), np.asarray(by).reshape(value.numel(), len(q))
