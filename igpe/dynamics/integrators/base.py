"""What every integrator does: all intervals of an initial value problem, with exact derivatives.

Interval k runs from nodes[k] to nodes[k+1] and begins at states of its own, whatever the interval
before ended at (Peifer & Timmer 2007, section 2.2; their equation 8 for the derivatives). A
trajectory is one interval that begins at the problem's own start.

A new integrator is a subclass of `Integrator` whose `prepare` returns a subclass of `Intervals`
with `run`; all else has a default. A method for ordinary equations that need not know of intervals,
derivatives and inputs that jump is a subclass of `igpe.dynamics.integrators.piecewise.Piecewise`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arguments import Checked, Positive, Rule, is_count, is_number
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Batched
from igpe.dynamics.integrators.cut import Cut
from igpe.dynamics.integrators.limits import LARGEST, MOST_STEPS, allowed
from igpe.equations.initial_value import InitialValueProblem


@dataclass(frozen=True)
class Trajectory:
    """States and measured quantities over time with their sensitivities, up to `reached`.

    times                (n_times,), those requested
    states               (n_times, n_states)
    implicit             (n_times, n_implicit) algebraic variables solved numerically
    measured             (n_times, n_measured)
    by_unknown           (n_times, n_states, n_unknowns)    d state / d unknown; may be empty
    measured_by_unknown  (n_times, n_measured, n_unknowns)  d measured / d unknown
    status               CONVERGED; or INTEGRATION_BROKE, or NO_SOLVER if the method's program is
                         missing: then all rows after `reached` are NaN, and none before
    reached              the last time of `times` (or the start) that was reached
    reason               a sentence: why the integration stopped, and when; empty if it did not
    steps                how many were taken; one of CVODES counts as the explicit ones of its cost
    plain                how many of these moved the states alone, without sensitivities
    stretches            how many the integration was made of, from switch to switch, by their cost
    """

    times: FloatArray
    states: FloatArray
    implicit: FloatArray
    measured: FloatArray
    by_unknown: FloatArray
    measured_by_unknown: FloatArray
    status: Status
    reached: float
    reason: str = ""
    steps: int = 0
    plain: int = 0
    stretches: int = 0


@dataclass(frozen=True)
class Shots:
    """Results of K intervals with derivatives along n_d directions; NaN after a break-down.

    Directions are the unit vectors of (start, q) unless others were given.

    ends         (K, n_x) states at the end;  ends_by (K, n_x, n_d) their derivatives
    measured     (n_times, n_h) each time in the interval that begins at or before it, the last
                 node's in the last interval;  measured_by (n_times, n_h, n_d)
    states       (n_times, n_x);  states_by (n_times, n_x, n_d); empty if nobody needs them
    implicit     (n_times, n_y) algebraic variables solved numerically; None if nobody asked
    status       (K,) CONVERGED, INTEGRATION_BROKE or NO_SOLVER
    reason       (K,) sentences; empty where nothing broke down
    steps        (K, 2) explicit and implicit steps that were taken, if they are counted; those of
                 CVODES by their cost
    plain        how many of these moved the states alone, before a start at steady state
    stretches    how many all intervals were made of, from switch to switch, by their cost
    """

    ends: FloatArray
    ends_by: FloatArray
    measured: FloatArray
    measured_by: FloatArray
    states: FloatArray
    states_by: FloatArray
    status: tuple[Status, ...]
    reason: tuple[str, ...]
    steps: IntArray | None = None
    plain: int = 0
    stretches: int = 0
    implicit: FloatArray | None = None

    @property
    def by_start(self) -> FloatArray:
        """(K, n_x, n_x) d end / d start; (K, n_x, 0) without derivatives."""
        return self.ends_by[:, :, : self.ends.shape[1]]

    @property
    def by_unknown(self) -> FloatArray:
        """(K, n_x, n_q) d end / d unknown; (K, n_x, 0) without derivatives."""
        return self.ends_by[:, :, self.ends.shape[1] :]

    @property
    def measured_by_start(self) -> FloatArray:
        """(n_times, n_h, n_x) d measured / d start of that interval."""
        return self.measured_by[:, :, : self.ends.shape[1]]

    @property
    def measured_by_unknown(self) -> FloatArray:
        """(n_times, n_h, n_q) d measured / d unknown."""
        return self.measured_by[:, :, self.ends.shape[1] :]

    def along(self, directions: FloatArray) -> "Shots":
        """Derivatives along (n_x + n_q, n_d) directions instead of the unit vectors.

        What does not change counts as 0 even times infinity.
        """
        used = directions.any(axis=1)
        parts = ("ends_by", "measured_by", "states_by")
        return replace(self, **{n: getattr(self, n)[..., used] @ directions[used] for n in parts})


class Recorded(NamedTuple):
    """A run of all intervals with what a sweep back through its steps needs.

    along  see `Intervals.chained`, probed;  q (n_q,) the unknowns
    tape   the steps, as the integrator keeps them
    """

    along: Shots
    q: FloatArray
    tape: Any


class Swept(NamedTuple):
    """Derivatives of weighted sums of measured quantities, through all intervals.

    by_node     (K, n_x) by the state each interval begins at, the later ones moving with it; of
                several sums (K, n_x, sums)
    by_unknown  (n_q,) by the unknowns, all nodes but the first moving with them; or (n_q, sums)
    """

    by_node: FloatArray
    by_unknown: FloatArray


@dataclass(frozen=True)
class Intervals(ABC):
    """The intervals of one initial value problem, prepared for many starts and unknowns.

    It remembers nothing: the same arguments give the same bits, whatever ran before. It belongs to
    one thread, with all that `until` makes of it, as it works in memory of its own.

    chains    whether `chained` gives few derivatives through all intervals at the cost of these
    sweeps    whether `recorded` and `swept` give the gradient of a weighted sum
    refused   why no interval can be integrated; empty if nothing speaks against it
    slow      why a slower method than usual integrates them; empty if none does
    """

    chains: ClassVar[bool] = False
    sweeps: ClassVar[bool] = False
    refused = ""

    ivp: InitialValueProblem
    cut: Cut
    slow: str = field(default="", kw_only=True)

    @property
    def compiled(self) -> bool:
        """Whether the equations run as machine code."""
        return False

    @property
    def forwards(self) -> "Intervals":
        """The same with derivatives of all states, which sweeps back do not give."""
        return self

    @property
    def share(self) -> float:
        """Predicted time of derivatives, of that which directions forwards take."""
        return 1.0

    @property
    def manner(self) -> str:
        """Sentence on how derivatives are computed, where it is not by directions forwards."""
        return ""

    @abstractmethod
    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """Integrate each interval from its start; one that breaks down leaves the others alone.

        starts  (K, n_x) differential states at nodes[:-1]
        q       (n_q,) unknowns, in the order of the problem's names
        """

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """One interval from the problem's own start; its directions are the unknowns."""
        start, by_unknown = self.start(q)
        return self.from_state(start, by_unknown, q, derivatives=derivatives)

    def from_state(
        self, start: FloatArray, by: FloatArray, q: FloatArray, *, derivatives: bool = True
    ) -> Shots:
        """One interval from a state, with derivatives along directions.

        by  (n_x, n_d) derivatives of the state; the last n_q directions are the unknowns
        """
        shots = self.run(start[None], q, derivatives=derivatives)
        return shots.along(with_unknowns(by, len(q))) if derivatives else shots

    def trajectory(self, q: FloatArray, *, derivatives: bool = True) -> Trajectory:
        """One interval from the problem's own start, as far as it goes."""
        shots, times = self.from_start(q, derivatives=derivatives), self.cut.times
        rest = np.isnan(shots.states).any(axis=1)
        done = int(np.argmax(rest)) if rest.any() else len(times)
        return Trajectory(
            times,
            shots.states,
            np.empty((len(times), 0)) if shots.implicit is None else shots.implicit,
            shots.measured,
            shots.states_by,
            shots.measured_by,
            shots.status[0],
            float(times[done - 1]) if done else self.ivp.t0,
            shots.reason[0],
            0 if shots.steps is None else int(shots.steps.sum()),
            shots.plain,
            shots.stretches,
        )

    def until(self, last: float) -> "Intervals":
        """The same equations with the horizon cut at the last of the times up to `last`.

        raises ValueError if there is no such time
        """
        return replace(self, cut=self.cut.until(last))

    def rougher(self, rtol: float) -> "Intervals":
        """The same with a larger tolerance, if nothing has to be generated or compiled anew."""
        return self

    def switch_times(self, q: FloatArray) -> list[tuple[float, FloatArray]]:
        """Times of switches that unknowns q give, and their derivatives (n_unknowns,)."""
        return self.cut.breaks.times(q)

    def over(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> "Intervals":
        """The same equations over other intervals within the horizon, with the tables of `ivp`."""
        return replace(self, cut=self.cut.over(ivp, nodes, times))

    def chained(
        self,
        starts: FloatArray,
        q: FloatArray,
        first: FloatArray,
        *,
        gaps: FloatArray | None = None,
        probed: bool = False,
    ) -> Shots:
        """Derivatives along directions that go through all intervals (Schloeder's trick).

        Those of an interval begin where those of the one before ended, and the last takes up the
        gaps between them: ds[k+1] = X[k] ds[k] + P[k] dq + gap[k+1] (Houska et al., equations 7 to
        10). With columns for what is free of (start, q) and a last one of zeros this is the
        condensed problem, without the n_x + n_q derivatives of each interval. What follows a broken
        interval is broken too.

        first   (n_x + n_q, n_d) the changes of the first start and of q, in columns
        gaps    (K, n_x) before each interval, the first not being used; by default those that there
                are, end[k] - start[k+1]
        probed  whether step control looks, beside the states, at one direction of its own, a change
                of all there is, in place of the given ones. Then steps depend on starts and q
                alone: two calls give derivatives of the very same steps
        """
        shots, along, n_x = self.run(starts, q), np.array(first, dtype=float), np.shape(starts)[1]
        ends, measured = [], []
        for k, rows in enumerate(map(slice, self.cut.rows, self.cut.rows[1:])):
            ends.append(shots.ends_by[k] @ along)
            measured.append(shots.measured_by[rows] @ along)
            along[:n_x] = ends[-1]
            if k + 1 < len(starts):
                gap = shots.ends[k] - starts[k + 1] if gaps is None else gaps[k + 1]
                along[:n_x, -1] += gap
        none = np.empty((*shots.states.shape, 0))
        by = np.concatenate(measured)
        return replace(shots, ends_by=np.array(ends), measured_by=by, states_by=none)

    def recorded(self, starts: FloatArray, q: FloatArray, first: FloatArray) -> Recorded:
        """`chained`, with a probe, and a record of its steps."""
        raise NotImplementedError

    def swept(self, recorded: Recorded, weights: FloatArray, sums: IntArray | None = None) -> Swept:
        """One sweep back through a run in which no interval broke down (backward lifting).

        It gives what `chained` would give times the weights, to rounding, at a cost that does not
        grow with the number of unknowns: sigma[k] = sigma[k+1] X[k] + mu[k], and the sum of
        sigma[k+1] P[k] (Houska et al., section 4.2). NaN where a matrix is singular.

        weights  (n_times, n_h) of the measured quantities; where one is 0, NaN does not count
        sums     (n_times, n_h) to which sum each counts; sums of later times should come first.
                 None: all to one
        """
        raise NotImplementedError

    def start(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n_x,) the problem's own start, and (n_x, n_q) its derivative."""
        self.check_unknowns(q)
        return self._fixed_start or self._start_at(np.asarray(q, dtype=float))

    def _start_at(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        both = self._start(1, q).reshape(-1, 1 + len(q))
        return both[:, 0], both[:, 1:]

    @cached_property
    def _fixed_start(self) -> tuple[FloatArray, FloatArray] | None:
        """The start and its derivative where no unknown moves it."""
        n = self.ivp.q.numel()
        moves = n and ca.depends_on(self.ivp.start, self.ivp.q)
        return None if moves else self._start_at(np.zeros(n))

    @cached_property
    def _start(self) -> Batched:
        start, q = self.ivp.start, self.ivp.q
        rows = ca.vec(ca.densify(ca.vertcat(start.T, ca.jacobian(start, q).T)))
        return Batched(ca.Function("start", [q], [rows]))

    def check_shapes(self, starts: FloatArray, q: FloatArray) -> None:
        """Raise ValueError unless there is one start for each interval and state, and all of q."""
        expected = (self.cut.intervals, len(self.ivp.states))
        if np.shape(starts) != expected:
            raise ValueError(f"Expected starts of shape {expected}, got {np.shape(starts)}.")
        self.check_unknowns(q)

    def check_unknowns(self, q: FloatArray) -> None:
        """Raise ValueError unless there is one number for each unknown."""
        if np.shape(q) != (len(self.ivp.unknowns),):
            raise ValueError(f"Expected one number for each of {self.ivp.unknowns}, got {q}.")

    def nothing(
        self, directions: int | None, reason: str, status: Status = Status.INTEGRATION_BROKE
    ) -> Shots:
        """NaN everywhere, for the `reason`; None: along all unit directions."""
        n_k, n_t, n_h = self.cut.intervals, len(self.cut.times), self.ivp.measured.numel()
        n_x = len(self.ivp.states)
        n_d = n_x + len(self.ivp.unknowns) if directions is None else directions
        shapes = ((n_k, n_x), (n_t, n_h), (n_t, n_x))
        a, b, c, d, e, f = (np.full(s, np.nan) for shape in shapes for s in (shape, (*shape, n_d)))
        steps = np.zeros((n_k, 2), dtype=np.intp)
        return Shots(a, b, c, d, e, f, (status,) * n_k, (reason,) * n_k, steps)


@dataclass(frozen=True)
class Refused(Intervals):
    """Intervals that a method cannot integrate, for the reason `refused`, with that status."""

    refused: str
    status: Status = Status.INTEGRATION_BROKE

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """NaN everywhere."""
        self.check_shapes(starts, q)
        return self.nothing(None if derivatives else 0, self.refused, self.status)


@dataclass(frozen=True)
class Simulation:
    """One trajectory of an initial value problem, prepared for many values of its unknowns."""

    intervals: Intervals
    sensitivities: bool

    @property
    def compiled(self) -> bool:
        """Whether the equations run as machine code."""
        return self.intervals.compiled

    def run(self, q: FloatArray, *, derivatives: bool = True) -> Trajectory:
        """Integrate for unknowns q (n_unknowns,), in the order of the problem's names.

        derivatives  whether to compute those that it was prepared for
        """
        # Values far from the solution may overflow; the trajectory's status says what is lost.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.intervals.trajectory(q, derivatives=self.sensitivities and derivatives)

    def until(self, last: float) -> "Simulation":
        """The same for those of its times up to `last`; nothing is generated or compiled anew.

        raises ValueError if there is no such time
        """
        return replace(self, intervals=self.intervals.until(last))

    def rougher(self, rtol: float) -> "Simulation":
        """See `Intervals.rougher`."""
        return replace(self, intervals=self.intervals.rougher(rtol))


STEPS = f"a whole number from 1 to {MOST_STEPS}"


@dataclass(frozen=True)
class Integrator(Checked, ABC):
    """Base of integrators, which solve initial value problems with their variational equations.

    If an integration fails, the status says why and at what time; igpe raises no exception.

    rtol       tolerance of the local error, relative to the current value
    atol       tolerance of the local error, relative to the size of each state
               (`InitialValueProblem.scale`); applies to states, algebraic variables and scaled
               sensitivities
    max_steps  maximum number of steps between two outputs or jumps of an input; the integration
               fails if it needs more
    largest    largest allowed value of a state, as a multiple of its size
    seconds    limit on the wall time of one run, in seconds
    compiles   whether the equations are compiled to machine code where possible
    is_rough   whether the error of derivatives does not become smaller with the tolerances
    """

    compiles: ClassVar[bool] = False
    is_rough: ClassVar[bool] = False

    rtol: Positive = 1e-8
    atol: Positive = 1e-10
    max_steps: Annotated[int, Rule(lambda v: is_count(v) and 1 <= v <= MOST_STEPS, STEPS)] = 20_000
    largest: Annotated[float, Rule(lambda v: is_number(v) and v > 1, "a number above 1")] = LARGEST
    seconds: Annotated[float, Rule(lambda v: is_number(v) and v > 0, "a number above 0")] = math.inf

    @abstractmethod
    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Prepare all intervals of a problem.

        nodes  (K + 1,) increasing; the first is the problem's start, the last its end
        times  (n_times,) increasing, within the nodes: where measured quantities are reported
        """

    def simulation(
        self, ivp: InitialValueProblem, times: Sequence[float] | FloatArray, *, sensitivities: bool
    ) -> Simulation:
        """Prepare the simulation from ivp.t0 to all `times` (increasing, none before t0)."""
        grid = np.array(times, dtype=float)
        nodes = np.array([ivp.t0, max(ivp.t0, float(grid[-1]))])
        return Simulation(self.prepare(ivp, nodes, grid), sensitivities)

    def most(self, ivp: InitialValueProblem) -> FloatArray:
        """Return the largest allowed sizes (n_x,) of the states, in units of
        `InitialValueProblem.scale`."""
        with np.errstate(over="ignore"):
            return np.asarray(self.largest * (ivp.largest / ivp.scale), dtype=float)

    def out_of_steps(self, when: str) -> str:
        """Message for a trajectory that reached the step limit."""
        steps = allowed()
        if steps is not None:
            return f"The limit of {steps} steps for a trial was reached {when}."
        return f"The step limit of {self.max_steps} was reached {when}."

    def too_large(self, state: str, when: str) -> str:
        """Message for a state that exceeded the size limit."""
        return f"State {state} exceeded {self.largest:g} times its typical size {when}."

    def too_late(self, when: str) -> str:
        """Message for an integration that reached the time limit."""
        return f"The time limit of {self.seconds:g} s was reached {when}."


def refused_implicit(method: Integrator, ivp: InitialValueProblem, pieces: Cut) -> Refused:
    """The intervals of a method that cannot solve for the implicit algebraic variables."""
    return Refused(
        ivp,
        pieces,
        f"{type(method).__name__} cannot integrate these equations with the implicit algebraic "
        f"variables {list(ivp.implicit)}; use igpe.integrators.Sundials, or "
        "igpe.integrators.Automatic, which then chooses Sundials.",
    )


@dataclass(frozen=True)
class Needed:
    """A problem with only those unknowns that its equations contain, and their places (n,) in q.

    The others are start values: each interval has a start of its own.

    moving  how many move states: these come first, the others are in what is measured alone
    """

    ivp: InitialValueProblem
    places: IntArray
    moving: int

    def wide(self, shots: Shots, size: int) -> Shots:
        """Derivatives by start and all unknowns, from those by start and needed unknowns.

        They are 0 by the other unknowns, and where there is no column; NaN where the values are.
        """
        if not shots.measured_by.shape[2]:
            return shots
        width, rows = len(self.ivp.states) + size, self.rows
        if shots.ends_by.shape[2] == width and (rows == np.arange(width)).all():
            return shots
        parts: dict[str, Any] = {}
        for name in ("ends", "measured", "states"):
            narrow = getattr(shots, f"{name}_by")
            parts[f"{name}_by"] = spread(narrow, getattr(shots, name), width)
            parts[f"{name}_by"][:, :, rows[: narrow.shape[2]]] = narrow
        return replace(shots, **parts)

    @cached_property
    def rows(self) -> IntArray:
        """Places of start and needed unknowns in (start, q)."""
        n_x = len(self.ivp.states)
        return np.concatenate([np.arange(n_x), n_x + self.places]).astype(np.intp)


def with_unknowns(by: FloatArray, n_q: int) -> FloatArray:
    """(n_x + n_q, n_d) directions, of which the last n_q are the unknowns, from those of states."""
    n_d = by.shape[1]
    return np.vstack([by, np.eye(n_q, n_d, n_d - n_q)])


def along_all(shots: Shots, size: int, moving: IntArray, rest: IntArray) -> Shots:
    """Derivatives along all `size` directions, from those along the moving ones and the rest.

    rest  directions that only what is measured depends on; -1 is the last of all
    """
    parts: dict[str, Any] = {}
    for name in ("ends", "measured", "states"):
        narrow = getattr(shots, f"{name}_by")
        parts[f"{name}_by"] = wide = spread(narrow, getattr(shots, name), size)
        wide[:, :, moving] = narrow[:, :, : len(moving)]
    parts["measured_by"][:, :, rest] += shots.measured_by[:, :, len(moving) :]
    return replace(shots, **parts)


def spread(narrow: FloatArray, values: FloatArray, width: int) -> FloatArray:
    """Zeros for derivatives of values along `width` directions; NaN where the values are."""
    wide = np.zeros((*narrow.shape[:2], width))
    lost = np.isnan(values)
    if lost.any():
        wide[lost] = np.nan
    return wide


def needed(ivp: InitialValueProblem) -> Needed:
    """Leave out the unknowns that only the problem's own start depends on."""
    given, breaks = ivp.switching, list[Any]()
    if given is not None and given.is_timed:
        breaks = [given.all_times, *(jump.after for jump in given.jumps)]
    moves, shows = (
        np.asarray(ca.which_depends(e, ivp.q), dtype=bool).reshape(ivp.q.numel())
        for e in (ca.vertcat(ivp.f, ivp.g, *breaks), ivp.measured)
    )
    first, rest = np.flatnonzero(moves), np.flatnonzero(shows & ~moves)
    places = np.concatenate([first, rest]).astype(np.intp)
    if np.array_equal(places, np.arange(len(ivp.unknowns))):
        return Needed(ivp, places, len(first))
    narrow = replace(
        ivp,
        q=ca.vertcat(*(ivp.q[int(i)] for i in places)) if len(places) else ca.SX(0, 1),
        unknowns=tuple(ivp.unknowns[i] for i in places),
        unknown_scale=ivp.unknown_scale[places],
    )
    return Needed(narrow, places, len(first))
