"""All intervals with all derivatives by Runge-Kutta pairs in C, compiled with the equations.

One call of C does it (`runge_kutta_model.c`, `..._steps.c`, `..._run.c`, `..._back.c`): Dormand and
Prince's explicit pair 5(4) where nothing is stiff, Kennedy and Carpenter's implicit one 4(3) where
it is. Derivatives are those of the very steps that are taken (internal differentiation), what is
measured between them comes from the same polynomials, and the step control looks at all of it.
"""

import ctypes
import enum
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from igpe.core.arguments import require
from igpe.core.arrays import FloatArray
from igpe.core.deadline import deferred, stopped
from igpe.core.status import Status
from igpe.dynamics.integrators.base import (
    Integrator,
    Intervals,
    Needed,
    Recorded,
    Refused,
    Shots,
    Swept,
    Trajectory,
    needed,
    refused_implicit,
)
from igpe.dynamics.integrators.compiler import built
from igpe.dynamics.integrators.cut import cut
from igpe.dynamics.integrators.limits import (
    MOST_STEPS,
    NO_START,
    TOO_MANY,
    StepLimits,
    allowed,
    at,
    no_number,
)
from igpe.dynamics.integrators.runge_kutta_source import (
    QUESTION,
    BatchStruct,
    PlanStruct,
    Sweep,
    Tape,
    written,
)
from igpe.equations.initial_value import InitialValueProblem

LONGEST = 8_000  # operations of the equations that are compiled
FEWEST = 4  # columns of derivatives that are computed at once


class Pair(enum.IntEnum):
    """Which Runge-Kutta pair integrates; in the order of the C code."""

    EXPLICIT = 0
    IMPLICIT = enum.auto()
    BY_STIFFNESS = enum.auto()


class Ended(enum.IntEnum):
    """How the C code ended an interval; in its order."""

    DONE = 0
    STEPS = enum.auto()
    LARGE = enum.auto()
    NO_NUMBER = enum.auto()
    TOO_SMALL = enum.auto()
    MEMORY = enum.auto()
    START = enum.auto()
    BEFORE = enum.auto()
    STOPPED = enum.auto()


@dataclass(frozen=True)
class RungeKutta(Integrator):
    """Runge-Kutta pairs in C, for equations without implicit algebraic variables.

    Others are refused, as is all where no C compiler is found (NO_SOLVER), and equations of more
    than `LONGEST` operations. Each interval depends on its own start and q alone. Size is checked
    after each step, time and Ctrl-C every few hundred.

    slack      times that derivatives may err more than states: Gauss-Newton steps need few digits,
               but without any control they are wrong by orders of magnitude where it is stiff
    pair       BY_STIFFNESS begins every interval with the explicit pair and changes to the implicit
               one where that is found to take steps so much longer that it pays
    """

    slack: float = 1.0
    pair: Pair = Pair.BY_STIFFNESS

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = "one of " + ", ".join(f"Pair.{pair.name}" for pair in Pair)
        require(isinstance(self.pair, Pair), "RungeKutta", "pair", self.pair, expected)

    def prepare(
        self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
    ) -> "RungeKuttaIntervals | Refused":
        """Generate the Jacobians, compile them, cut the intervals where inputs jump."""
        pieces = cut(ivp, nodes, times)
        if ivp.y.numel():
            return refused_implicit(self, ivp, pieces)
        some = needed(ivp)
        model = written(some.ivp)
        if model.length > LONGEST:
            why = f"The equations are too long to compile: {model.length} operations, at most "
            return Refused(ivp, pieces, f"{why}{LONGEST}.")
        library, why = built(model.source, "igpe_intervals")
        if library is None:
            return Refused(ivp, pieces, why, Status.NO_SOLVER)
        return RungeKuttaIntervals(ivp, pieces, self, some, library, model.numbers)


class _Clock:
    """When a run must end, which the C code asks now and then.

    late          whether the time is over
    out_of_steps  whether an interval of the last run stopped at its step limit
    """

    def __init__(self) -> None:
        self.until, self.out_of_steps = math.inf, False
        self.question: Callable[[], int] = QUESTION(self._must_end)

    def begin(self, seconds: float) -> None:
        """Start the time."""
        self.until = time.monotonic() + seconds

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.until

    def _must_end(self) -> int:
        return int(stopped() or self.late)


@dataclass(frozen=True)
class RungeKuttaIntervals(Intervals):
    """See `igpe.dynamics.integrators.base.Intervals`.

    needed     the unknowns that the compiled equations contain
    numbers    in the equations, see `igpe.dynamics.integrators.augmented`
    otherwise  what integrates a trajectory for which this one has too few steps
    """

    chains: ClassVar[bool] = True
    sweeps: ClassVar[bool] = True
    compiled: ClassVar[bool] = True

    method: RungeKutta
    needed: Needed
    library: ctypes.CDLL
    numbers: FloatArray
    otherwise: Integrator | None = None
    _clock: _Clock = field(default_factory=_Clock)

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        n_d = len(self.needed.rows) if derivatives else 0
        return self.needed.wide(self._run(starts, q, _Columns(n_d)), len(self.ivp.unknowns))

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`; only the derivatives by the unknowns are computed."""
        start, by_unknown = self.start(q)
        columns = _Columns(0)
        if derivatives and len(q):
            if not (by_unknown == self._own[0]).all():
                self._own[:] = by_unknown, self._from_start(by_unknown)
            columns = self._own[1]
        return self._run(start[None], q, columns, states=True)

    def _from_start(self, by_unknown: FloatArray) -> "_Columns":
        n_q = by_unknown.shape[1]
        directions = np.vstack([by_unknown, np.eye(n_q)])[None]
        return self._columns(directions, np.zeros(n_q), probed=False)

    @cached_property
    def _own(self) -> list[Any]:
        """The last derivative of the start, and the directions it gives: most starts are fixed."""
        by_unknown = np.zeros((len(self.ivp.states), len(self.ivp.unknowns)))
        return [by_unknown, self._from_start(by_unknown)]

    def trajectory(self, q: FloatArray, *, derivatives: bool = True) -> Trajectory:
        """See `Intervals`."""
        found = super().trajectory(q, derivatives=derivatives)
        few = self._clock.out_of_steps and allowed() is None
        if found.status.usable or self.otherwise is None or not few:
            return found
        return self._second.trajectory(q, derivatives=derivatives)

    @cached_property
    def _second(self) -> Intervals:
        assert self.otherwise is not None, "checked by trajectory"
        return self.otherwise.prepare(self.ivp, self.cut.nodes, self.cut.times)

    def along(
        self, starts: FloatArray, q: FloatArray, directions: FloatArray, *, probed: bool = False
    ) -> Shots:
        """With derivatives along some directions only, at the cost of these alone.

        directions  (K, n_x + n_q, n_d) for each interval the changes of start and q, in columns
        probed      see `chained`
        """
        expected = (self.cut.intervals, self._width)
        given = np.asarray(directions, dtype=float)
        if given.ndim != 3 or given.shape[:2] != expected:  # noqa: PLR2004 - intervals, rows, columns
            raise ValueError(f"Expected directions of shape {(*expected, 'n')}, got {given.shape}.")
        return self._run(starts, q, self._columns(given, q, probed=probed))

    def chained(
        self,
        starts: FloatArray,
        q: FloatArray,
        first: FloatArray,
        *,
        gaps: FloatArray | None = None,
        probed: bool = False,
    ) -> Shots:
        """See `Intervals`."""
        return self._run(starts, q, self._through(first, np.shape(starts), gaps, q, probed=probed))

    def recorded(self, starts: FloatArray, q: FloatArray, first: FloatArray) -> Recorded:
        """See `Intervals`."""
        columns = self._through(first, np.shape(starts), None, q, probed=True)
        tape = Tape.of(self.cut, len(self.ivp.states), self._room[0])
        along = self._run(starts, q, columns, tape)
        if tape.count > tape.room:
            self._room[0] = 2 * tape.count
            tape = Tape.of(self.cut, len(self.ivp.states), self._room[0])
            along = self._run(starts, q, columns, tape)
        return Recorded(along, np.array(q, dtype=float), tape)

    def swept(self, recorded: Recorded, weights: FloatArray) -> Swept:
        """See `Intervals`."""
        n_k, n_x, places = self.cut.intervals, len(self.ivp.states), self.needed.places
        expected = (len(self.cut.times), self.ivp.measured.numel())
        if np.shape(weights) != expected:
            raise ValueError(f"Expected weights of shape {expected}, got {np.shape(weights)}.")
        given, q = np.ascontiguousarray(weights, dtype=float), recorded.q[places]
        by_node, by_q = np.empty((n_k, n_x)), np.empty(len(q))
        arrays = [v.ctypes.data for v in (given, by_node, by_q)]
        sweep = Sweep(q.ctypes.data, ctypes.addressof(recorded.tape), *arrays)
        back = self.library.igpe_back
        back.argtypes = [ctypes.c_void_p] * 2
        here = self.at(recorded.q)
        if here is None or back(ctypes.byref(here._plan), ctypes.byref(sweep)):
            by_node[:], by_q[:] = np.nan, np.nan
        by_unknown = np.zeros(len(recorded.q))
        by_unknown[places] = by_q
        return Swept(by_node, by_unknown)

    def at(self, q: FloatArray) -> "RungeKuttaIntervals | None":
        """The same with the pieces that the unknowns q make; None if these are too many."""
        here = self.cut.at(q)
        if here is None:
            return None
        return self if here is self.cut else replace(self, cut=here)

    def _through(
        self,
        first: FloatArray,
        shape: tuple[int, ...],
        gaps: FloatArray | None,
        q: FloatArray,
        *,
        probed: bool,
    ) -> "_Columns":
        """Directions that go through all intervals, with starts of such a shape."""
        given = np.asarray(first, dtype=float)
        if given.ndim != 2 or len(given) != self._width or not given.shape[1]:  # noqa: PLR2004 - a matrix
            raise ValueError(
                f"Expected directions of shape ({self._width}, 'n'), got {given.shape}."
            )
        if gaps is not None and np.shape(gaps) != shape:
            raise ValueError(f"Expected gaps of shape {shape}, got {np.shape(gaps)}.")
        return self._columns(given, q, probed=probed)._replace(chained=True, gaps=gaps)

    def _columns(self, directions: FloatArray, q: FloatArray, *, probed: bool) -> "_Columns":
        """The directions; zeros before them, as four columns are faster than two or three.

        The probe is a change of all by their sizes, with signs that conserve nothing.
        """
        some = directions[..., self.needed.rows, :]
        after = 1 if probed else 0
        before = max(FEWEST - after - some.shape[-1], 0)
        found = np.zeros((*some.shape[:-1], before + some.shape[-1] + after))
        found[..., before : found.shape[-1] - after] = some
        if probed:
            own = np.abs(np.asarray(q)[self.needed.places])
            size = np.concatenate([self.ivp.scale, np.maximum(own, self.needed.ivp.unknown_scale)])
            found[..., -1] = size * self._signs
        return _Columns(found.shape[-1], found, before, after)

    @cached_property
    def _signs(self) -> FloatArray:
        return np.random.default_rng(0).choice([-1.0, 1.0], len(self.needed.rows))

    @property
    def _width(self) -> int:
        return len(self.ivp.states) + len(self.ivp.unknowns)

    @cached_property
    def _room(self) -> list[int]:
        """Steps there is room for in a record; the last one that was too long doubled it."""
        return [32 * self.cut.intervals]

    def _run(
        self,
        starts: FloatArray,
        q: FloatArray,
        columns: "_Columns",
        tape: Tape | None = None,
        *,
        states: bool = False,
    ) -> Shots:
        n_k, n_t, n_x = self.cut.intervals, len(self.cut.times), len(self.ivp.states)
        n_d, shown = columns.number, n_x if states else 0
        self.check_shapes(starts, q)
        if (here := self.at(q)) is None:
            return self.nothing(n_d - columns.before - columns.after, TOO_MANY)
        own = np.asarray(q, dtype=float)[self.needed.places]
        parts = (starts, own, columns.along, columns.gaps)
        given = [None if v is None else np.ascontiguousarray(v, dtype=float) for v in parts]
        shapes = ((n_k, n_x), (n_t, self.ivp.measured.numel()), (n_t, shown))
        arrays: Any = [np.empty(s) for shape in shapes for s in (shape, (*shape, n_d))]
        reached, ended = np.empty(n_k), np.empty((n_k, 4), dtype=np.int64)
        batch = BatchStruct(
            n_d,
            *(None if v is None else v.ctypes.data for v in given),
            bool(columns.after),
            columns.chained,
            *(v.ctypes.data for v in arrays[:4]),
            *(v.ctypes.data if states else None for v in arrays[4:]),
            reached.ctypes.data,
            ended.ctypes.data,
            None if tape is None else ctypes.addressof(tape),
        )
        steps = allowed()
        here._plan.most_steps = MOST_STEPS if steps is None else steps
        self._clock.begin(self.method.seconds)
        with deferred():  # C code cannot be left by an exception
            self._call(ctypes.byref(here._plan), ctypes.byref(batch))
        self._clock.out_of_steps = bool((ended[:, 0] == Ended.STEPS).any())
        reasons = [""] * n_k
        for k in ended[:, 0].nonzero()[0]:
            reasons[k] = self._why(Ended(ended[k, 0]), float(reached[k]), int(ended[k, 1]))
        if columns.before or columns.after:
            for i in (1, 3, 5):
                arrays[i] = arrays[i][:, :, columns.before : n_d - columns.after]
        status = tuple(Status.INTEGRATION_BROKE if r else Status.CONVERGED for r in reasons)
        a, b, c, d, e, f = arrays
        return Shots(a, b, c, d, e, f, status, tuple(reasons), ended[:, 2:])

    def _why(self, ended: Ended, reached: float, state: int) -> str:
        limits, when = StepLimits.of(self.method, self.ivp), at(reached)
        if ended is Ended.LARGE:
            return limits.size_sentence(self.ivp.states[state - 1], when)
        interrupted = f"The integration was interrupted {when}."
        return {
            Ended.STEPS: limits.steps_sentence(when),
            Ended.NO_NUMBER: no_number(when),
            Ended.TOO_SMALL: f"No step is small enough {when}.",
            Ended.START: NO_START,
            Ended.BEFORE: "An interval before this one broke down.",
            Ended.MEMORY: "There was not enough memory for the integration.",
            Ended.STOPPED: limits.seconds_sentence(when) if self._clock.late else interrupted,
        }[ended]

    @cached_property
    def _call(self) -> Any:
        """The C function of the addresses of a plan and a batch."""
        function = self.library.igpe_intervals
        function.argtypes = [ctypes.c_void_p] * 2
        return function

    @cached_property
    def _plan(self) -> "PlanStruct":
        return PlanStruct.of(
            self.needed.ivp, self.cut, self.method, self.numbers, self._clock.question
        )


class _Columns(NamedTuple):
    """Derivatives to be computed.

    number   how many;  along: the directions, None for all unit vectors
    before   columns of zeros in front, which nobody needs;  after: 1 if the last is a probe
    chained  whether directions are of the first interval and go through all, with such `gaps`
    """

    number: int
    along: FloatArray | None = None
    before: int = 0
    after: int = 0
    chained: bool = False
    gaps: FloatArray | None = None
