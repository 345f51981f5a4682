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

import casadi as ca
import numpy as np

from igpe.core.arguments import Positive, instance_of
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.deadline import deferred, stopped
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Consistent, augmented
from igpe.dynamics.integrators.base import (
    Integrator,
    Intervals,
    Needed,
    Recorded,
    Refused,
    Shots,
    Swept,
    Trajectory,
    along_all,
    needed,
    refused_implicit,
    with_unknowns,
)
from igpe.dynamics.integrators.compiler import built
from igpe.dynamics.integrators.cut import cut
from igpe.dynamics.integrators.formulas import ImplicitUnits, SharedFormula, singular
from igpe.dynamics.integrators.limits import (
    MOST_STEPS,
    NO_START,
    NOT_FINITE,
    allowed,
    at,
    no_number,
)
from igpe.dynamics.integrators.runge_kutta_source import (
    BACK,
    FORWARDS,
    QUESTION,
    BatchStruct,
    CompiledModel,
    MapStruct,
    ModelStruct,
    PlanStruct,
    Sweep,
    Tape,
    driver,
    model_formulas,
    written,
    written_maps,
)
from igpe.dynamics.integrators.switched import switched
from igpe.equations.initial_value import InitialValueProblem

LONGEST = 200_000  # operations of the equations that are compiled: of 4,000 states, in 20 s
FEWEST = 4  # columns of derivatives that are computed at once

OUT_OF_STEPS = 1  # how the C code ended an interval: 0 if nothing happened, see `_why`
NO_NUMBER = (3, 4)  # no finite value, or no step small enough for one


class Pair(enum.IntEnum):
    """Which Runge-Kutta pair integrates; in the order of the C code."""

    EXPLICIT = 0
    IMPLICIT = 1
    BY_STIFFNESS = 2


@dataclass(frozen=True)
class RungeKutta(Integrator):
    """Runge-Kutta pairs in C.

    Newton's method solves for implicit algebraic variables inside the equations. The integrator
    rejects equations in which more than 100 implicit variables only have a common solution, and
    equations with more than `LONGEST` operations. Without a C compiler, it rejects all equations
    (status NO_SOLVER). The result of an interval depends only on its own start and on the unknowns
    q. The integrator checks the size of the states after each step, and checks for the time limit
    and Ctrl-C every few hundred steps.

    slack      factor by which errors in sensitivities may exceed errors in states. Gauss-Newton
               steps do not need accurate sensitivities, but without error control the
               sensitivities of stiff equations are wrong by orders of magnitude
    pair       Runge-Kutta pair to use. BY_STIFFNESS starts every interval with the explicit pair,
               and changes to the implicit pair if the longer steps of that pair reduce the work
    """

    compiles: ClassVar[bool] = True

    slack: Positive = 1.0
    pair: Annotated[Pair, instance_of(Pair)] = Pair.BY_STIFFNESS

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Generate and compile the Jacobians, and split the intervals where inputs jump."""
        if not self.carries_out(ivp):
            return switched(self, ivp, nodes, times)
        if ivp.shared is not None:
            shared = self._prepared(ivp.shared, nodes, times)
            if isinstance(shared, RungeKuttaIntervals):
                return replace(shared, alone=replace(ivp, shared=None))
        return self._prepared(ivp, nodes, times)

    def carries_out(self, ivp: InitialValueProblem) -> bool:
        """Whether all that happens is at times that the unknowns give, as breaks of inputs."""
        given = ivp.switching
        return ivp.rest is None and (given is None or (given.is_timed and not ivp.y.numel()))

    def _prepared(
        self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
    ) -> Intervals:
        pieces = cut(ivp, nodes, times, jumps=True)
        some, (slope, *maps) = _formulas(ivp)
        model = written(slope, ivp.y.numel())
        if model is None:
            return refused_implicit(self, ivp, pieces)
        kinds = dict.fromkeys([maps[0], *sorted(maps[1:], key=lambda one: one.key)])
        outputs = written_maps(*kinds, implicit=ivp.y.numel())
        if (length := model.length + sum(one.length for one in outputs)) > LONGEST:
            why = f"The equations are too long to compile: they have {length} operations, and the "
            return Refused(ivp, pieces, f"{why}limit is {LONGEST}.")
        libraries = []
        for source, name in (
            (driver(FORWARDS, model.sizes["lu_n"] > 0), FORWARDS),
            (model.source, "igpe_slopes"),
            (outputs[0].source, "igpe_map0s"),
        ):
            library, why = built(source, name)
            if library is None:
                return Refused(ivp, pieces, why, Status.NO_SOLVER)
            libraries.append(library)
        runs, slopes, library = libraries
        runs.igpe_intervals.argtypes = [ctypes.c_void_p] * 2
        of = dict(zip(kinds, outputs, strict=True))
        structs = [MapStruct.of(of[one], library, one.numbers) for one in maps]
        sizes = {"size": ivp.scale, "nearest": some.ivp.unknown_scale}
        sizes["most"] = self.most(ivp) * ivp.scale
        units = ImplicitUnits.of(ivp)
        sizes |= {"lower": units.there(ivp.lower), "upper": units.there(ivp.upper)}
        sizes = {name: np.ascontiguousarray(v, dtype=float) for name, v in sizes.items()}
        room = np.array([one.room for one in structs], dtype=np.int64).max(axis=0)
        first = ModelStruct.of(model, slopes, slope.numbers)
        compiled = CompiledModel(runs, first, structs[0], structs[1:], sizes, room, model.length)
        return RungeKuttaIntervals(ivp, pieces, self, some, compiled)


def _formulas(ivp: InitialValueProblem) -> tuple[Needed, list[SharedFormula]]:
    """What is compiled; made once for problems that share it."""
    of = ivp.f, ivp.g, ivp.measured, ivp.x, ivp.u, ivp.q, ivp.switching
    known = ivp.kept.get(_formulas)
    if known is None or any(a is not b for a, b in zip(known[0], of, strict=True)):
        some = needed(ivp)
        known = ivp.kept[_formulas] = of, some, model_formulas(some.ivp, some.moving)
    _, some, formulas = known
    own = replace(
        ivp,
        q=some.ivp.q,
        unknowns=some.ivp.unknowns,
        unknown_scale=ivp.unknown_scale[some.places],
    )
    return replace(some, ivp=own), formulas


def _numbers(shots: Shots) -> tuple[FloatArray, ...]:
    return shots.ends, shots.ends_by, shots.measured, shots.measured_by


class _Clock:
    """When a run must end, which the C code asks now and then.

    out_of_steps  whether an interval of the last run stopped at its step limit
    no_number     whether one stopped where slopes have no finite value, or might not have
    """

    def __init__(self) -> None:
        self.until, self.out_of_steps, self.no_number = math.inf, False, False
        self.question: Callable[[], int] = QUESTION(lambda: int(stopped() or self.late))

    def heard(self, ended: IntArray) -> None:
        """Note how intervals ended."""
        self.out_of_steps = bool((ended == OUT_OF_STEPS).any())
        self.no_number = any(code in NO_NUMBER for code in ended.tolist())

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.until


class _Columns(NamedTuple):
    """Derivatives to be computed.

    number   how many;  along: the directions, None for all unit vectors
    before   columns of zeros in front, which nobody needs;  after: 1 if the last is a probe
    rest     further columns, of what is measured by the unknowns that move nothing
    chained  whether directions are of the first interval and go through all, with such `gaps`
    """

    number: int
    along: FloatArray | None = None
    before: int = 0
    after: int = 0
    rest: int = 0
    chained: bool = False
    gaps: FloatArray | None = None


@dataclass(frozen=True)
class RungeKuttaIntervals(Intervals):
    """See `igpe.dynamics.integrators.base.Intervals`.

    needed     the unknowns that the compiled equations contain
    model      the compiled functions
    otherwise  what integrates a trajectory for which this one has too few steps
    alone      where the compiled formula serves other experiments too: this one's own, in which
               numbers stand (`InitialValueProblem.shared`). It integrates what is not finite else,
               as 0 times infinity is nothing there
    """

    chains: ClassVar[bool] = True
    sweeps: ClassVar[bool] = True

    method: RungeKutta
    needed: Needed
    model: CompiledModel
    otherwise: Integrator | None = None
    alone: InitialValueProblem | None = None
    _clock: _Clock = field(default_factory=_Clock)
    _own: list[Any] = field(default_factory=list)
    _others: "list[RungeKuttaIntervals]" = field(default_factory=list)
    _layouts: dict[tuple[int, ...], tuple[list[Any], int]] = field(default_factory=dict)

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        some, columns = self.needed, _Columns(0)
        if derivatives:
            columns = _Columns(len(self.ivp.states) + some.moving, rest=self._rest)
        shots = some.wide(self._run(starts, q, columns), len(self.ivp.unknowns))
        if (other := self._instead(*_numbers(shots))) is not None:
            return other.run(starts, q, derivatives=derivatives)
        if self._lost(shots):
            return self._second.run(starts, q, derivatives=derivatives)
        return shots

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`; `trajectory` sees to what is lost."""
        return self._along(*self.start(q), q, derivatives)

    def from_state(
        self, start: FloatArray, by: FloatArray, q: FloatArray, *, derivatives: bool = True
    ) -> Shots:
        """See `Intervals`; only along what moves states are derivatives integrated."""
        shots = self._along(start, by, q, derivatives)
        is_lost = self._lost(shots)
        return self._second.from_state(start, by, q, derivatives=derivatives) if is_lost else shots

    def _along(self, start: FloatArray, by: FloatArray, q: FloatArray, derivatives: bool) -> Shots:
        columns, moving = _Columns(0), np.empty(0, dtype=np.intp)
        if derivatives and by.shape[1]:
            columns, moving = self._moving(by, q)
        shots = self._run(start[None], q, columns, states=True)
        if columns.rest or len(moving) < by.shape[1] * derivatives:
            rest = self.needed.places[self.needed.moving :] - len(q)
            shots = along_all(shots, by.shape[1], moving, rest)
        other = self._instead(*_numbers(shots))
        return shots if other is None else other.from_state(start, by, q, derivatives=derivatives)

    def _moving(self, by: FloatArray, q: FloatArray) -> tuple[_Columns, IntArray]:
        """The directions along which states move, and their places."""
        own = self._own  # those of the last derivative: most starts are fixed
        if not own or (by is not own[0] and not np.array_equal(by, own[0])):
            moving = np.asarray(by.any(axis=0))
            moving[self._places - len(q)] = True
            rows = len(self.ivp.states) + self.needed.moving if self._rest else None
            columns = self._columns(with_unknowns(by, len(q))[:, moving], q, False, rows)
            own[:] = by, columns._replace(rest=self._rest), np.flatnonzero(moving)
        return own[1], own[2]

    @property
    def compiled(self) -> bool:
        """See `Intervals`."""
        return True

    @property
    def _rest(self) -> int:
        return len(self.needed.places) - self.needed.moving

    @property
    def directions(self) -> int:
        """How many directions `from_start` has."""
        start = np.flatnonzero(np.asarray(ca.which_depends(self.ivp.start, self.ivp.q), bool))
        return len(np.union1d(start, self._places))

    @cached_property
    def _places(self) -> IntArray:
        """Places of the unknowns that move states on the way."""
        some = self.needed if self.alone is None else needed(self.alone)
        return some.places[: some.moving]

    def _instead(self, *results: FloatArray) -> Intervals | None:
        """The same by the experiment's own formula, where the shared one may have lost a number."""
        if self.alone is None:
            return None
        is_lost = self._clock.no_number or not all(np.isfinite(v).all() for v in results)
        if not (is_lost and self._may_lose):
            return None
        places = set(self.ivp.constants)
        tables = tuple(t for i, t in enumerate(self.cut.ivp.tables) if i not in places)
        own = replace(self.alone, tables=tables)
        if not self._others:
            made = self.method.prepare(own, self.cut.nodes, self.cut.times)
            if not isinstance(made, RungeKuttaIntervals):
                return None
            self._others.append(replace(made, _clock=self._clock))
        return self._others[0].over(own, self.cut.nodes, self.cut.times)

    @cached_property
    def _may_lose(self) -> bool:
        """Whether the shared formula has an operation without a finite value more than the own."""
        assert self.alone is not None, "called only where a separate formula exists"
        return singular(self.ivp) > singular(self.alone)

    def rougher(self, rtol: float) -> "RungeKuttaIntervals":
        """See `Intervals`; the absolute tolerance grows alike."""
        method = self.method
        factor = max(rtol / method.rtol, 1.0)
        method = replace(method, rtol=factor * method.rtol, atol=factor * method.atol)
        return replace(self, method=method, _clock=_Clock(), _own=[], _others=[])

    def trajectory(self, q: FloatArray, *, derivatives: bool = True) -> Trajectory:
        """See `Intervals`."""
        trajectory = super().trajectory(q, derivatives=derivatives)
        return self.retried(trajectory, q, derivatives=derivatives)

    def retried(self, trajectory: Trajectory, q: FloatArray, *, derivatives: bool) -> Trajectory:
        """The trajectory; that of the other integrator where this one had too few steps."""
        again = self._clock.out_of_steps and allowed() is None
        again |= bool(self.ivp.implicit) and not self._clock.late
        if trajectory.status.usable or self.otherwise is None or not again:
            return trajectory
        return self._second.trajectory(q, derivatives=derivatives)

    @cached_property
    def _second(self) -> Intervals:
        assert self.otherwise is not None, "checked by trajectory"
        ivp = self.ivp if self.alone is None else self.alone
        return self.otherwise.prepare(ivp, self.cut.nodes, self.cut.times)

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
        shots = self._run(starts, q, self._through(first, np.shape(starts), gaps, q, probed))
        if (other := self._instead(*_numbers(shots))) is not None:
            return other.chained(starts, q, first, gaps=gaps, probed=probed)
        if self._lost(shots):
            return self._second.chained(starts, q, first, gaps=gaps)
        return shots

    def _lost(self, shots: Shots) -> bool:
        """Whether implicit variables may be why an interval broke down."""
        broke = not all(status.usable for status in shots.status)
        return bool(self.ivp.implicit) and broke and self.otherwise is not None

    def recorded(self, starts: FloatArray, q: FloatArray, first: FloatArray) -> Recorded:
        """See `Intervals`."""
        columns = self._through(first, np.shape(starts), None, q, True)
        while True:
            here = self.at(q)
            pieces = self.cut if isinstance(here, str) else here.cut
            tape = Tape.of(pieces, len(self.ivp.states), len(self.ivp.implicit), self._room[0])
            along = self._run(starts, q, columns, tape, states=True)
            if tape.count <= tape.room:
                if (other := self._instead(*_numbers(along))) is not None:
                    return other.recorded(starts, q, first)
                return Recorded(along, np.array(q, dtype=float), tape)
            self._room[0] = 2 * tape.count

    def swept(self, recorded: Recorded, weights: FloatArray, sums: IntArray | None = None) -> Swept:
        """See `Intervals`."""
        n_k, n_x, places = self.cut.intervals, len(self.ivp.states), self.needed.places
        expected = (len(self.cut.times), self.ivp.measured.numel())
        if np.shape(weights) != expected:
            raise ValueError(f"Expected weights of shape {expected}, got {np.shape(weights)}.")
        of_outputs = np.zeros((expected[0], expected[1] + len(self.ivp.implicit)))
        of_outputs[:, : expected[1]] = weights
        which = np.zeros(of_outputs.shape, dtype=np.int64)
        count = 1 if sums is None else 1 + int(sums.max(initial=0))
        if sums is not None:
            which[:, : expected[1]] = sums
        q, here = recorded.q[places], self.at(recorded.q)
        by_node, by_q = np.full((n_k, n_x, count), np.nan), np.full((len(q), count), np.nan)
        arrays = [v.ctypes.data for v in (of_outputs, which, by_node, by_q)]
        sweep = Sweep(q.ctypes.data, ctypes.addressof(recorded.tape), count, *arrays)
        if not isinstance(here, str) and self._back is not None:
            with deferred():
                self._back.igpe_back(ctypes.byref(here._plan), ctypes.byref(sweep))
        if (other := self._instead(by_node, by_q)) is not None:
            return other.swept(recorded, weights, sums)
        by_unknown = np.zeros((recorded.q.size, count))
        by_unknown[places] = by_q
        return Swept(
            *((by_node, by_unknown) if sums is not None else (by_node[..., 0], by_unknown[:, 0]))
        )

    @cached_property
    def _back(self) -> ctypes.CDLL | None:
        """The driver of sweeps, compiled when the first one is requested."""
        return built(driver(BACK, self.model.slopes.lu_n > 0), BACK).library

    def at(self, q: FloatArray) -> "RungeKuttaIntervals | str":
        """The same with the pieces that the unknowns q make, or why not."""
        if not self.cut.moving:
            return self
        key = np.asarray(q, dtype=float).tobytes()
        made = self._latest.get(key)
        if made is None:
            here = self.cut.at(q)
            if here is self.cut:
                return self
            made = here if isinstance(here, str) else replace(self, cut=here)
            self._latest.clear()
            self._latest[key] = made
        return made

    @cached_property
    def _latest(self) -> dict[bytes, "RungeKuttaIntervals | str"]:
        """What `at` made last: a run, its recording and its sweep back need the same pieces."""
        return {}

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

    def _columns(
        self, directions: FloatArray, q: FloatArray, probed: bool, rows: int | None = None
    ) -> _Columns:
        """The directions; zeros before them, as four columns are faster than two or three.

        The probe is a change of all by their sizes, with signs that conserve nothing.

        rows  how many of (start, needed unknowns) may change; None: all
        """
        some = directions[..., self.needed.rows[:rows], :]
        after = 1 if probed else 0
        before = max(FEWEST - after - some.shape[-1], 0)
        wide = np.zeros((*some.shape[:-1], before + some.shape[-1] + after))
        wide[..., before : wide.shape[-1] - after] = some
        if probed:
            own = np.abs(np.asarray(q)[self.needed.places])
            size = np.concatenate([self.ivp.scale, np.maximum(own, self.needed.ivp.unknown_scale)])
            wide[..., -1] = size * self._signs
        return _Columns(wide.shape[-1], wide, before, after)

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
        n_d, before, after, rest = columns[0], columns.before, columns.after, columns.rest
        self.check_shapes(starts, q)
        q = np.asarray(q, dtype=float)
        if isinstance(here := self.at(q), str):
            return self.nothing(n_d - before - after + rest, here)
        near = self._consistent.at_starts(starts, q, here.cut) if self.ivp.implicit else None
        parts = (starts, near, q[self.needed.places], columns.along, columns.gaps)
        given = [None if v is None else np.ascontiguousarray(v, dtype=float) for v in parts]
        layout, size = self._layout(n_d, rest, states)
        room = np.empty(size)  # one for all: many small arrays take longer than a short run
        first = room.ctypes.data
        views: Any = [np.ndarray(shape, kind, room, offset) for shape, kind, offset in layout]
        places = [first + offset if shape[1] else None for shape, _, offset in layout]
        batch = BatchStruct(
            n_d,
            rest > 0,
            *(None if v is None else v.ctypes.data for v in given),
            bool(after),
            columns.chained,
            *places,
            None if tape is None else ctypes.addressof(tape),
        )
        here._plan.most_steps = MOST_STEPS if allowed() is None else allowed()
        self._clock.until = time.monotonic() + self.method.seconds
        with deferred():  # C code cannot be left by an exception
            self.model.driver.igpe_intervals(ctypes.byref(here._plan), ctypes.byref(batch))
        *numbers, reached, outcome = views
        if before or after:
            kept = slice(before, n_d - after)
            beyond = numbers[3][:, :, n_d:]
            numbers[1::2] = [v[:, :, kept] for v in numbers[1::2]]
            if rest:
                numbers[3] = np.concatenate([numbers[3], beyond], axis=2)
        self._clock.heard(outcome[:, 0])
        a, b, c, d, e, f = numbers
        shots = Shots(a, b, c, d, e, f, *self._ended(outcome, reached), outcome[:, 2:])
        if not self.ivp.implicit:
            return shots
        n_h = self.ivp.measured.numel()  # implicit variables stand behind what is measured
        return replace(shots, measured=c[:, :n_h], measured_by=d[:, :n_h], implicit=c[:, n_h:])

    def _ended(
        self, outcome: IntArray, end: FloatArray
    ) -> tuple[tuple[Status, ...], tuple[str, ...]]:
        """How intervals ended, and why they broke down."""
        status, reasons = [Status.CONVERGED] * len(outcome), [""] * len(outcome)
        for k in outcome[:, 0].nonzero()[0]:
            status[k] = Status.INTEGRATION_BROKE
            reasons[k] = self._why(int(outcome[k, 0]), float(end[k, 0]), int(outcome[k, 1]))
        return tuple(status), tuple(reasons)

    @cached_property
    def _consistent(self) -> Consistent:
        return Consistent(augmented(self.ivp, sensitivities=False), self.ivp)

    def _layout(self, n_d: int, rest: int, states: bool) -> tuple[list[tuple[Any, Any, int]], int]:
        """Shape, kind and offset in bytes of each array of results, and how many numbers they have.

        The arrays of `Shots`, the times reached (K, 1), and how intervals ended (K, 4).
        """
        n_k, n_t, n_x = self.cut.intervals, len(self.cut.times), len(self.ivp.states)
        if (key := (n_k, n_t, n_d, rest, states)) not in self._layouts:
            n_h = self.ivp.measured.numel() + len(self.ivp.implicit)
            shapes = ((n_k, n_x), (n_t, n_h), (n_t, n_x if states else 0))
            every: list[Any] = [s for shape in shapes for s in (shape, (*shape, n_d))]
            every[3] = (*shapes[1], n_d + rest)
            every += [(n_k, 1), (n_k, 4)]
            ends = np.cumsum([math.prod(s) for s in every]).tolist()
            offsets = [8 * end for end in [0, *ends[:-1]]]
            kinds: list[Any] = [*[float] * 7, np.int64]
            layout = list(zip(every, kinds, offsets, strict=True))
            self._layouts[key] = layout, ends[-1]
        return self._layouts[key]

    def _why(self, ended: int, reached: float, state: int) -> str:
        """Why the C code ended an interval, in the order of its enumeration."""
        when, method = at(reached), self.method
        interrupted = f"The integration was interrupted {when}."
        return (
            "",
            method.out_of_steps(when),
            method.too_large(self.ivp.states[state - 1], when),
            no_number(when),
            f"The step size became too small {when}.",
            "There was not enough memory for the integration.",
            NO_START,
            "The integration failed in an earlier interval.",
            method.too_late(when) if self._clock.late else interrupted,
            NOT_FINITE.format(when),
        )[ended]

    @cached_property
    def _plan(self) -> PlanStruct:
        return PlanStruct.of(self.cut, self.method, self.model, self._clock.question)
