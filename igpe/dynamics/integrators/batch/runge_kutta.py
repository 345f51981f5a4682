"""All intervals with all derivatives by Runge-Kutta pairs in C, compiled with the equations.

One call of C does it (`runge_kutta_model.c`, `..._steps.c`, `..._run.c`, `..._back.c`): Dormand and
Prince's explicit pair 5(4) where nothing is stiff, Kennedy and Carpenter's implicit one 4(3) where
it is. Derivatives are those of the very steps that are taken (internal differentiation), what is
measured between them comes from the same polynomials, and the step control looks at all of it.
"""

import ctypes
import enum
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arguments import require
from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.batch.runge_kutta_source import Batch, Plan, Sweep, Tape, written
from igpe.dynamics.integrators.compiler import built
from igpe.dynamics.integrators.cut import Cut, cut
from igpe.dynamics.integrators.intervals import Along, Intervals, Recorded, Shots, Swept
from igpe.dynamics.integrators.limits import NO_START, TOO_MANY, Limits, at, no_number
from igpe.dynamics.integrators.method import Tolerances
from igpe.dynamics.integrators.no_shots import NoShots, check_shapes, implicit_sentence
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


@dataclass(frozen=True)
class RungeKutta(Tolerances):
    """Runge-Kutta pairs in C, for equations without implicit algebraic variables.

    Others are refused, as is all where no C compiler is found (NO_SOLVER), and equations of more
    than `LONGEST` operations. Each interval depends on its own start and q alone.

    pair       BY_STIFFNESS begins every interval with the explicit pair and changes to the implicit
               one where that is found to take steps so much longer that it pays
    """

    pair: Pair = Pair.BY_STIFFNESS

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = "one of " + ", ".join(f"Pair.{pair.name}" for pair in Pair)
        require(isinstance(self.pair, Pair), "RungeKutta", "pair", self.pair, wanted)

    def prepare_intervals(
        self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
    ) -> "RungeKuttaIntervals | NoShots":
        """Generate the Jacobians, compile them, cut the intervals where inputs jump."""
        pieces = cut(ivp, nodes, times)
        if ivp.y.numel():
            return NoShots(ivp, pieces, implicit_sentence("RungeKutta", ivp))
        model = written(ivp)
        if model.length > LONGEST:
            why = f"The equations are too long to compile: {model.length} operations, at most "
            return NoShots(ivp, pieces, f"{why}{LONGEST}.")
        library, why = built(model.source)
        if library is None:
            return NoShots(ivp, pieces, why, Status.NO_SOLVER)
        return RungeKuttaIntervals(ivp, pieces, self, library, model.numbers)


@dataclass(frozen=True)
class RungeKuttaIntervals(Intervals):
    """See `igpe.dynamics.integrators.intervals.Intervals`."""

    ivp: InitialValueProblem
    cut: Cut
    method: RungeKutta
    library: ctypes.CDLL
    numbers: FloatArray  # of the equations, see `igpe.dynamics.integrators.augmented`

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        n_x, n_q = len(self.ivp.states), len(self.ivp.unknowns)
        return self._run(starts, q, _Columns(n_x + n_q if derivatives else 0)).shots(n_x)

    def along(
        self, starts: FloatArray, q: FloatArray, directions: FloatArray, *, probed: bool = False
    ) -> Along:
        """With derivatives along some directions only, at the cost of these alone.

        directions  (K, n_x + n_q, n_d) for each interval the changes of start and q, in columns
        probed      see `chained`
        """
        wanted = (self.cut.intervals, self._width)
        given = np.asarray(directions, dtype=float)
        if given.ndim != 3 or given.shape[:2] != wanted:  # noqa: PLR2004 - intervals, rows, columns
            raise ValueError(f"Expected directions of shape {(*wanted, 'n')}, got {given.shape}.")
        return self._run(starts, q, self._columns(given, q, probed=probed))

    def chained(
        self,
        starts: FloatArray,
        q: FloatArray,
        first: FloatArray,
        *,
        gaps: FloatArray | None = None,
        probed: bool = False,
    ) -> Along:
        """See `igpe.dynamics.integrators.intervals.Chaining`."""
        return self._run(starts, q, self._through(first, np.shape(starts), gaps, q, probed=probed))

    def recorded(self, starts: FloatArray, q: FloatArray, first: FloatArray) -> Recorded:
        """See `igpe.dynamics.integrators.intervals.Sweeping`."""
        columns = self._through(first, np.shape(starts), None, q, probed=True)
        tape = Tape.of(self.cut, len(self.ivp.states), self._room[0])
        along = self._run(starts, q, columns, tape)
        if tape.count > tape.room:
            self._room[0] = 2 * tape.count
            tape = Tape.of(self.cut, len(self.ivp.states), self._room[0])
            along = self._run(starts, q, columns, tape)
        return Recorded(along, np.array(q, dtype=float), tape)

    def swept(self, recorded: Recorded, weights: FloatArray) -> Swept:
        """See `igpe.dynamics.integrators.intervals.Sweeping`."""
        n_k, n_x, n_q = self.cut.intervals, len(self.ivp.states), len(self.ivp.unknowns)
        wanted = (len(self.cut.times), self.ivp.measured.numel())
        if np.shape(weights) != wanted:
            raise ValueError(f"Expected weights of shape {wanted}, got {np.shape(weights)}.")
        given = np.ascontiguousarray(weights, dtype=float)
        by_node, by_q = np.empty((n_k, n_x)), np.empty(n_q)
        places = [v.ctypes.data for v in (given, by_node, by_q)]
        sweep = Sweep(recorded.q.ctypes.data, ctypes.addressof(recorded.tape), *places)
        back = self.library.igpe_back
        back.argtypes = [ctypes.c_void_p] * 2
        here = self.at(recorded.q)
        if here is None or back(ctypes.byref(here._plan), ctypes.byref(sweep)):
            by_node[:], by_q[:] = np.nan, np.nan
        return Swept(by_node, by_q)

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

    def _columns(self, wanted: FloatArray, q: FloatArray, *, probed: bool) -> "_Columns":
        """The wanted directions; zeros before them, as four columns are faster than two or three.

        The probe is a change of all by their sizes, with signs that conserve nothing.
        """
        after = 1 if probed else 0
        before = max(FEWEST - after - wanted.shape[-1], 0)
        found = np.zeros((*wanted.shape[:-1], before + wanted.shape[-1] + after))
        found[..., before : found.shape[-1] - after] = wanted
        if probed:
            nearest = self.ivp.unknown_scale
            size = np.concatenate([self.ivp.scale, np.maximum(np.abs(q), nearest)])
            found[..., -1] = size * self._signs
        return _Columns(found.shape[-1], found, before, after)

    @cached_property
    def _signs(self) -> FloatArray:
        return np.random.default_rng(0).choice([-1.0, 1.0], self._width)

    @property
    def _width(self) -> int:
        return len(self.ivp.states) + len(self.ivp.unknowns)

    @cached_property
    def _room(self) -> list[int]:
        """Steps there is room for in a record; the last one that was too long doubled it."""
        return [32 * self.cut.intervals]

    def _run(
        self, starts: FloatArray, q: FloatArray, columns: "_Columns", tape: Tape | None = None
    ) -> Along:
        n_k, n_t, n_x = self.cut.intervals, len(self.cut.times), len(self.ivp.states)
        n_h, n_d = self.ivp.measured.numel(), columns.number
        check_shapes(self.ivp, self.cut, starts, q)
        parts = (starts, q, columns.along, columns.gaps)
        given = [None if v is None else np.ascontiguousarray(v, dtype=float) for v in parts]
        ends, ends_by = np.empty((n_k, n_x)), np.empty((n_k, n_x, n_d))
        measured, measured_by = np.empty((n_t, n_h)), np.empty((n_t, n_h, n_d))
        reached, told = np.empty(n_k), np.empty((n_k, 4), dtype=np.int64)
        here = self.at(q)
        if here is None:
            return columns.nothing(self.cut, self.ivp, TOO_MANY)
        found = (ends, ends_by, measured, measured_by, reached, told)
        places = [None if v is None else v.ctypes.data for v in given]
        ways = (bool(columns.after), columns.chained)
        kept = None if tape is None else ctypes.addressof(tape)
        batch = Batch(n_d, *places, *ways, *(v.ctypes.data for v in found), kept)
        self._call(ctypes.byref(here._plan), ctypes.byref(batch))
        reasons = [""] * n_k
        for k in told[:, 0].nonzero()[0]:
            reasons[k] = self._why(Ended(told[k, 0]), float(reached[k]), int(told[k, 1]))
        status = tuple(Status.INTEGRATION_BROKE if r else Status.CONVERGED for r in reasons)
        asked = slice(columns.before, n_d - columns.after)
        by = ends_by[:, :, asked], measured_by[:, :, asked]
        return Along(ends, by[0], measured, by[1], told[:, 2:], status, tuple(reasons))

    def _why(self, ended: Ended, reached: float, state: int) -> str:
        limits, when = Limits.of(self.method, self.ivp), at(reached)
        if ended is Ended.LARGE:
            return limits.size_sentence(self.ivp.states[state - 1], when)
        return {
            Ended.STEPS: limits.steps_sentence(when),
            Ended.NO_NUMBER: no_number(when),
            Ended.TOO_SMALL: f"No step is small enough {when}.",
            Ended.START: NO_START,
            Ended.BEFORE: "An interval before this one broke down.",
            Ended.MEMORY: "There was not enough memory for the integration.",
        }[ended]

    @cached_property
    def _call(self) -> Any:
        """The C function of the addresses of a plan and a batch."""
        function = self.library.igpe_intervals
        function.argtypes = [ctypes.c_void_p] * 2
        return function

    @cached_property
    def _plan(self) -> "Plan":
        return Plan.of(self.ivp, self.cut, self.method, self.method.pair, self.numbers)


class _Columns(NamedTuple):
    """Derivatives to be computed.

    number   how many;  along: the directions, None for all unit vectors
    before   columns that nobody asked for: zeros in front;  after: 1 if the last is a probe
    chained  whether directions are of the first interval and go through all, with such `gaps`
    """

    number: int
    along: FloatArray | None = None
    before: int = 0
    after: int = 0
    chained: bool = False
    gaps: FloatArray | None = None

    def nothing(self, pieces: Cut, ivp: InitialValueProblem, why: str) -> Along:
        """Not a number anywhere, as no interval is integrated."""
        n_k, n_t, n_h = pieces.intervals, len(pieces.times), ivp.measured.numel()
        n_x, n_d = len(ivp.states), self.number - self.before - self.after
        return Along(
            np.full((n_k, n_x), np.nan),
            np.full((n_k, n_x, n_d), np.nan),
            np.full((n_t, n_h), np.nan),
            np.full((n_t, n_h, n_d), np.nan),
            np.zeros((n_k, 2), dtype=np.int64),
            (Status.INTEGRATION_BROKE,) * n_k,
            (why,) * n_k,
        )
