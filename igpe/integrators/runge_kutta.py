"""All intervals with all derivatives by Runge-Kutta pairs in C, compiled with the equations.

One call of C does it (`runge_kutta_model.c`, `..._steps.c`, `..._run.c`): Dormand and Prince's
explicit pair 5(4) where nothing is stiff, Kennedy and Carpenter's implicit one 4(3) where it is.
Derivatives are those of the very steps that are taken (internal differentiation), what is measured
between them comes from the same polynomials, and the step control looks at all of it.
"""

import ctypes
import enum
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from igpe.arguments import require
from igpe.arrays import FloatArray, IntArray
from igpe.equations.initial_value import InitialValueProblem
from igpe.integrators.compiler import built
from igpe.integrators.cut import Cut, cut
from igpe.integrators.intervals import Intervals, Shots
from igpe.integrators.limits import NO_START, Limits, at, no_number
from igpe.integrators.no_shots import NoShots, check_shapes, implicit_sentence
from igpe.integrators.runge_kutta_source import written
from igpe.integrators.tolerances import Tolerances
from igpe.status import Status

LONGEST = 8_000  # operations of the equations that are compiled


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
class Along:
    """What came of K intervals along some directions of (start, q).

    ends         (K, n_x);  ends_by (K, n_x, n_d) their derivatives
    measured     (n_times, n_h);  measured_by (n_times, n_h, n_d)
    steps        (K, 2) explicit and implicit steps that were taken
    status, reason   (K,) as in `Shots`
    """

    ends: FloatArray
    ends_by: FloatArray
    measured: FloatArray
    measured_by: FloatArray
    steps: IntArray
    status: tuple[Status, ...]
    reason: tuple[str, ...]

    def shots(self, n_x: int) -> Shots:
        """Directions that are the unit vectors of start (n_x) and q, by name; all are views."""
        ends_by, by = self.ends_by, self.measured_by
        return Shots(
            self.ends,
            ends_by[:, :, :n_x],
            ends_by[:, :, n_x:],
            self.measured,
            by[:, :, :n_x],
            by[:, :, n_x:],
            self.status,
            self.reason,
        )


@dataclass(frozen=True)
class RungeKuttaIntervals(Intervals):
    """See `igpe.integrators.intervals.Intervals`."""

    ivp: InitialValueProblem
    cut: Cut
    method: RungeKutta
    library: ctypes.CDLL
    numbers: FloatArray  # of the equations, see `igpe.integrators.numbers`

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        n_x, n_q = len(self.ivp.states), len(self.ivp.unknowns)
        return self._run(starts, q, n_x + n_q if derivatives else 0).shots(n_x)

    def along(self, starts: FloatArray, q: FloatArray, directions: FloatArray) -> Along:
        """With derivatives along some directions only, at the cost of these alone.

        directions  (K, n_x + n_q, n_d) for each interval the changes of start and q, in columns
        """
        wanted = (self.cut.intervals, len(self.ivp.states) + len(self.ivp.unknowns))
        given = np.ascontiguousarray(directions, dtype=float)
        if given.ndim != 3 or given.shape[:2] != wanted:  # noqa: PLR2004 - intervals, rows, columns
            raise ValueError(f"Expected directions of shape {(*wanted, 'n')}, got {given.shape}.")
        return self._run(starts, q, given.shape[2], given)

    def chained(self, starts: FloatArray, q: FloatArray, first: FloatArray) -> Along:
        """With derivatives along directions that go through all intervals (Schloeder's trick).

        Those of an interval begin where those of the one before ended, and the last takes up the
        gaps between them: ds[k+1] = X[k] ds[k] + P[k] dq + (end[k] - start[k+1]). With columns for
        what is free of (start, q) and a last one of zeros this is the condensed problem, without
        the n_x + n_q derivatives of each interval. What follows a broken interval is broken too.

        first  (n_x + n_q, n_d) the changes of the first start and of q, in columns
        """
        wanted = len(self.ivp.states) + len(self.ivp.unknowns)
        given = np.ascontiguousarray(first, dtype=float)
        if given.ndim != 2 or len(given) != wanted or not given.shape[1]:  # noqa: PLR2004 - a matrix
            raise ValueError(f"Expected directions of shape ({wanted}, 'n'), got {given.shape}.")
        return self._run(starts, q, given.shape[1], given, chained=True)

    def _run(
        self,
        starts: FloatArray,
        q: FloatArray,
        n_d: int,
        along: FloatArray | None = None,
        *,
        chained: bool = False,
    ) -> Along:
        n_k, n_t, n_x = self.cut.intervals, len(self.cut.times), len(self.ivp.states)
        n_h = self.ivp.measured.numel()
        check_shapes(self.ivp, self.cut, starts, q)
        given = [np.ascontiguousarray(v, dtype=float) for v in (starts, q)]
        ends, ends_by = np.empty((n_k, n_x)), np.empty((n_k, n_x, n_d))
        measured, measured_by = np.empty((n_t, n_h)), np.empty((n_t, n_h, n_d))
        reached, told = np.empty(n_k), np.empty((n_k, 4), dtype=np.int64)
        found = (ends, ends_by, measured, measured_by, reached, told)
        places = [None if v is None else v.ctypes.data for v in (*given, along)]
        batch = _Batch(n_d, *places, chained, *(v.ctypes.data for v in found))
        self._call(ctypes.byref(self._plan), ctypes.byref(batch))
        reasons = [""] * n_k
        for k in np.flatnonzero(told[:, 0]):
            reasons[k] = self._why(Ended(told[k, 0]), float(reached[k]), int(told[k, 1]))
        status = tuple(Status.INTEGRATION_BROKE if r else Status.CONVERGED for r in reasons)
        steps = told[:, 2:]
        return Along(ends, ends_by, measured, measured_by, steps, status, tuple(reasons))

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
    def _plan(self) -> "_Plan":
        return _Plan.of(self.ivp, self.cut, self.method, self.numbers)


class _Plan(ctypes.Structure):
    """`Plan` of the C code: the intervals and the limits."""

    _fields_ = (
        ("intervals", ctypes.c_longlong),
        ("first", ctypes.c_void_p),
        ("edges", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("times", ctypes.c_void_p),
        ("row_inputs", ctypes.c_void_p),
        ("size", ctypes.c_void_p),
        ("most", ctypes.c_void_p),
        ("nearest", ctypes.c_void_p),
        ("numbers", ctypes.c_void_p),
        ("rtol", ctypes.c_double),
        ("atol", ctypes.c_double),
        ("slack", ctypes.c_double),
        ("max_steps", ctypes.c_longlong),
        ("pair", ctypes.c_longlong),
    )

    @classmethod
    def of(
        cls, ivp: InitialValueProblem, pieces: Cut, method: RungeKutta, numbers: FloatArray
    ) -> "_Plan":
        """The plan; it keeps the arrays it points at."""
        arrays = {
            "first": pieces.first.astype(np.int64),
            "edges": pieces.edges,
            "inputs": pieces.inputs,
            "rows": pieces.rows.astype(np.int64),
            "times": pieces.times,
            "row_inputs": pieces.row_inputs,
            "size": np.ascontiguousarray(ivp.scale, dtype=float),
            "nearest": np.ascontiguousarray(ivp.unknown_scale, dtype=float),
            "most": np.ascontiguousarray(Limits.of(method, ivp).most * ivp.scale),
            "numbers": numbers,
        }
        plan = cls(
            intervals=pieces.intervals,
            rtol=method.rtol,
            atol=method.atol,
            slack=method.slack,
            max_steps=method.max_steps,
            pair=method.pair,
            **{name: array.ctypes.data for name, array in arrays.items()},
        )
        plan.kept = arrays
        return plan


class _Batch(ctypes.Structure):
    """`Batch` of the C code: starts, unknowns, directions, and where results go."""

    _fields_ = (
        ("directions", ctypes.c_longlong),
        ("starts", ctypes.c_void_p),
        ("q", ctypes.c_void_p),
        ("along", ctypes.c_void_p),
        ("chained", ctypes.c_longlong),
        ("ends", ctypes.c_void_p),
        ("ends_by", ctypes.c_void_p),
        ("measured", ctypes.c_void_p),
        ("measured_by", ctypes.c_void_p),
        ("reached", ctypes.c_void_p),
        ("told", ctypes.c_void_p),
    )
