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
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import deferred, stopped
from igpe.core.fields import Positive, instance_of
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
from igpe.dynamics.integrators.limits import MOST_STEPS, NO_START, TOO_MANY, allowed, at, no_number
from igpe.dynamics.integrators.runge_kutta_source import (
    QUESTION,
    BatchStruct,
    PlanStruct,
    Sweep,
    Tape,
    written,
)
from igpe.dynamics.integrators.switched import switched
from igpe.equations.initial_value import InitialValueProblem

LONGEST = 8_000  # operations of the equations that are compiled
FEWEST = 4  # columns of derivatives that are computed at once

OUT_OF_STEPS = 1  # how the C code ended an interval: 0 if nothing happened, see `_why`


class Pair(enum.IntEnum):
    """Which Runge-Kutta pair integrates; in the order of the C code."""

    EXPLICIT = 0
    IMPLICIT = 1
    BY_STIFFNESS = 2


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

    slack: Positive = 1.0
    pair: Annotated[Pair, instance_of(Pair)] = Pair.BY_STIFFNESS

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Generate the Jacobians, compile them, cut the intervals where inputs jump."""
        if ivp.switching is not None:
            return switched(self, ivp, nodes, times)
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
        for function in (library.igpe_intervals, library.igpe_back):
            function.argtypes = [ctypes.c_void_p] * 2
        return RungeKuttaIntervals(ivp, pieces, self, some, library, model.numbers)


class _Clock:
    """When a run must end, which the C code asks now and then.

    out_of_steps  whether an interval of the last run stopped at its step limit
    """

    def __init__(self) -> None:
        self.until, self.out_of_steps = math.inf, False
        self.question: Callable[[], int] = QUESTION(lambda: int(stopped() or self.late))

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.until


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
    _own: list[Any] = field(default_factory=list)

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        n_d = len(self.needed.rows) if derivatives else 0
        return self.needed.wide(self._run(starts, q, _Columns(n_d)), len(self.ivp.unknowns))

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`; only the derivatives by the unknowns are computed."""
        start, by_unknown = self.start(q)
        columns = _Columns(0)
        if derivatives and len(q):
            own = self._own  # the last derivative and its directions: most starts are fixed
            if not own or (by_unknown is not own[0] and not (by_unknown == own[0]).all()):
                directions = np.vstack([by_unknown, np.eye(len(q))])[None]
                own[:] = by_unknown, self._columns(directions, q, False)
            columns = own[1]
        return self._run(start[None], q, columns, states=True)

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
        return self._run(starts, q, self._through(first, np.shape(starts), gaps, q, probed))

    def recorded(self, starts: FloatArray, q: FloatArray, first: FloatArray) -> Recorded:
        """See `Intervals`."""
        columns = self._through(first, np.shape(starts), None, q, True)
        while True:
            tape = Tape.of(self.cut, len(self.ivp.states), self._room[0])
            along = self._run(starts, q, columns, tape)
            if tape.count <= tape.room:
                return Recorded(along, np.array(q, dtype=float), tape)
            self._room[0] = 2 * tape.count

    def swept(self, recorded: Recorded, weights: FloatArray) -> Swept:
        """See `Intervals`."""
        n_k, n_x, places = self.cut.intervals, len(self.ivp.states), self.needed.places
        expected = (len(self.cut.times), self.ivp.measured.numel())
        if np.shape(weights) != expected:
            raise ValueError(f"Expected weights of shape {expected}, got {np.shape(weights)}.")
        given, q = np.ascontiguousarray(weights, dtype=float), recorded.q[places]
        by_node, by_q, by_unknown = (
            np.empty((n_k, n_x)),
            np.empty(len(q)),
            np.zeros(recorded.q.size),
        )
        arrays = [v.ctypes.data for v in (given, by_node, by_q)]
        sweep = Sweep(q.ctypes.data, ctypes.addressof(recorded.tape), *arrays)
        here = self.at(recorded.q)
        if here is None or self.library.igpe_back(ctypes.byref(here._plan), ctypes.byref(sweep)):
            by_node[:], by_q[:] = np.nan, np.nan
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
        probed: bool,
    ) -> _Columns:
        """Directions that go through all intervals, with starts of such a shape."""
        given, width = np.asarray(first, float), len(self.ivp.states) + len(self.ivp.unknowns)
        if given.ndim != 2 or len(given) != width or not given.shape[1]:  # noqa: PLR2004 - a matrix
            raise ValueError(f"Expected directions of shape ({width}, 'n'), got {given.shape}.")
        if gaps is not None and np.shape(gaps) != shape:
            raise ValueError(f"Expected gaps of shape {shape}, got {np.shape(gaps)}.")
        return self._columns(given, q, probed)._replace(chained=True, gaps=gaps)

    def _columns(self, directions: FloatArray, q: FloatArray, probed: bool) -> _Columns:
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

    @cached_property
    def _room(self) -> list[int]:
        """Steps there is room for in a record; the last one that was too long doubled it."""
        return [32 * self.cut.intervals]

    def _run(
        self,
        starts: FloatArray,
        q: FloatArray,
        columns: _Columns,
        tape: Tape | None = None,
        *,
        states: bool = False,
    ) -> Shots:
        n_d, before, after = columns.number, columns.before, columns.after
        self.check_shapes(starts, q)
        if (here := self.at(q)) is None:
            return self.nothing(n_d - before - after, TOO_MANY)
        own = np.asarray(q, dtype=float)[self.needed.places]
        parts = (starts, own, columns.along, columns.gaps)
        given = [None if v is None else np.ascontiguousarray(v, dtype=float) for v in parts]
        layout, size = self._layout(n_d, states)
        room = np.empty(size)  # one for all: many small arrays take longer than a short run
        first = room.ctypes.data
        views: Any = [np.ndarray(shape, kind, room, offset) for shape, kind, offset in layout]
        places = [first + offset if shape[1] else None for shape, _, offset in layout]
        batch = BatchStruct(
            n_d,
            *(None if v is None else v.ctypes.data for v in given),
            bool(after),
            columns.chained,
            *places,
            None if tape is None else ctypes.addressof(tape),
        )
        steps = allowed()
        here._plan.most_steps = MOST_STEPS if steps is None else steps
        self._clock.until = time.monotonic() + self.method.seconds
        with deferred():  # C code cannot be left by an exception
            self.library.igpe_intervals(ctypes.byref(here._plan), ctypes.byref(batch))
        *numbers, reached, told = views
        if before or after:
            kept = slice(before, n_d - after)
            numbers[1::2] = [v[:, :, kept] for v in numbers[1::2]]
        ended, n_k = told[:, 0], self.cut.intervals
        self._clock.out_of_steps = bool((ended == OUT_OF_STEPS).any())
        status, reasons = [Status.CONVERGED] * n_k, [""] * n_k
        for k in ended.nonzero()[0]:
            status[k] = Status.INTEGRATION_BROKE
            reasons[k] = self._why(int(ended[k]), float(reached[k, 0]), int(told[k, 1]))
        a, b, c, d, e, f = numbers
        return Shots(a, b, c, d, e, f, tuple(status), tuple(reasons), told[:, 2:])

    def _layout(self, n_d: int, states: bool) -> tuple[list[tuple[Any, Any, int]], int]:
        """Shape, kind and offset in bytes of each array of results, and how many numbers they have.

        The arrays of `Shots`, the times reached (K, 1), and how intervals ended (K, 4).
        """
        if (n_d, states) not in self._layouts:
            n_k, n_t, n_x = self.cut.intervals, len(self.cut.times), len(self.ivp.states)
            shapes = ((n_k, n_x), (n_t, self.ivp.measured.numel()), (n_t, n_x if states else 0))
            every: list[Any] = [s for shape in shapes for s in (shape, (*shape, n_d))]
            every += [(n_k, 1), (n_k, 4)]
            ends = np.cumsum([math.prod(s) for s in every]).tolist()
            offsets = [8 * end for end in [0, *ends[:-1]]]
            kinds: list[Any] = [*[float] * 7, np.int64]
            layout = list(zip(every, kinds, offsets, strict=True))
            self._layouts[n_d, states] = layout, ends[-1]
        return self._layouts[n_d, states]

    @cached_property
    def _layouts(self) -> dict[tuple[int, bool], tuple[list[tuple[Any, Any, int]], int]]:
        return {}

    def _why(self, ended: int, reached: float, state: int) -> str:
        """Why the C code ended an interval, in the order of its enumeration."""
        when, method = at(reached), self.method
        interrupted = f"The integration was interrupted {when}."
        return (
            "",
            method.out_of_steps(when),
            method.too_large(self.ivp.states[state - 1], when),
            no_number(when),
            f"No step is small enough {when}.",
            "There was not enough memory for the integration.",
            NO_START,
            "An interval before this one broke down.",
            method.too_late(when) if self._clock.late else interrupted,
        )[ended]

    @cached_property
    def _plan(self) -> PlanStruct:
        return PlanStruct.of(
            self.needed.ivp, self.cut, self.method, self.numbers, self._clock.question
        )
