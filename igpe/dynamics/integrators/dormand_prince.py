"""Dormand and Prince's explicit Runge-Kutta method, compiled together with the equations.

The whole run, from the unknowns to all rows that are told, is one call of C (`dormand_prince.c`).
"""

import ctypes
import enum
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import deferred, stopped
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Augmented, lifted
from igpe.dynamics.integrators.base import Trajectory
from igpe.dynamics.integrators.compiler import built
from igpe.dynamics.integrators.limits import (
    MOST_STEPS,
    NO_START,
    TOO_MANY,
    Limits,
    allowed,
    at,
    no_number,
)
from igpe.dynamics.integrators.method import Method
from igpe.dynamics.integrators.prepared import Prepared
from igpe.dynamics.integrators.refused import Refused, implicit_refused

DRIVER = Path(__file__).with_suffix(".c")
POSIX = "#define _POSIX_C_SOURCE 199309L"  # declares a clock that nobody sets
LONGEST = 8_000  # operations of the equations that are compiled; gcc 12 -O2 takes 4 s for them


_Question = ctypes.CFUNCTYPE(ctypes.c_int)
_STOPPED = _Question(stopped)  # while Python runs it, a signal reaches the session


class Ended(enum.IntEnum):
    """How the C code ended; in its order."""

    DONE = 0
    STEPS = enum.auto()
    STIFF = enum.auto()
    LARGE = enum.auto()
    NO_NUMBER = enum.auto()
    TOO_SMALL = enum.auto()
    SECONDS = enum.auto()
    MEMORY = enum.auto()
    START = enum.auto()
    STOPPED = enum.auto()


@dataclass(frozen=True)
class DormandPrince(Method):
    """Explicit Runge-Kutta pair 5(4) in C, for non-stiff equations without implicit variables.

    Others are refused, as is all where no C compiler is found (NO_SOLVER), and equations of more
    than `LONGEST` operations. Stiff ones break down. Size and time
    are looked at after each step, Ctrl-C after some thousands.
    """

    def made_of(self, whole: Prepared) -> "DormandPrinceSimulation | Refused":
        """The same for equations that are already generated."""
        if whole.system.layout.implicit:
            return Refused(whole, implicit_refused("DormandPrince", whole))
        functions = whole.system.general
        length = sum(f.n_instructions() for f in functions)
        if length > LONGEST:
            why = f"The equations are too long to compile: {length} operations, at most {LONGEST}."
            return Refused(whole, why)
        model = lifted(functions)
        library, why = built(_source(whole.system, model.functions), "igpe_run")
        if library is None:
            return Refused(whole, why, Status.NO_SOLVER)
        limits = Limits.of(self, whole.ivp)
        return DormandPrinceSimulation(whole, self, limits, library, model.numbers)


class Ran(NamedTuple):
    """A trajectory, and how the run ended."""

    trajectory: Trajectory
    ended: Ended


@dataclass(frozen=True)
class DormandPrinceSimulation:
    """A prepared initial value problem; see `igpe.dynamics.integrators.base.Simulation`."""

    whole: Prepared
    method: DormandPrince
    limits: Limits
    library: ctypes.CDLL
    numbers: FloatArray  # of the equations, see `igpe.dynamics.integrators.augmented`

    def run(self, q: FloatArray) -> Trajectory:
        """Integrate the pieces in turn, as far as they go."""
        return self.ran(q).trajectory

    def until(self, last: float) -> "DormandPrinceSimulation":
        """The same for times up to `last`."""
        return replace(self, whole=self.whole.until(last))

    def ran(self, q: FloatArray) -> Ran:
        """As `run`, and how it ended."""
        whole, layout = self.whole, self.whole.system.layout
        unknowns = np.ascontiguousarray(q, dtype=float)
        if unknowns.shape != (len(whole.ivp.unknowns),):
            raise ValueError(f"Expected one number for each of {whole.ivp.unknowns}, got {q}.")
        rows, told = np.empty((len(whole.times), layout.width)), np.zeros(3)
        simulation = self
        if whole.stops.moving:
            here = whole.at(q)
            if here is None:
                return Ran(Refused(whole, TOO_MANY).run(q), Ended.NO_NUMBER)
            simulation = replace(self, whole=here)
        steps = allowed()
        simulation._plan.most_steps = MOST_STEPS if steps is None else steps
        with deferred():  # C code cannot be left by an exception
            ended = Ended(simulation._call(*(v.ctypes.data for v in (unknowns, rows, told))))
        done, time, state = int(told[0]), float(told[1]), int(told[2])
        reached = float(whole.times[done - 1]) if done else whole.ivp.t0
        status = Status.CONVERGED if ended is Ended.DONE else Status.INTEGRATION_BROKE
        why = self._why(ended, at(time), state)
        return Ran(layout.trajectory(whole.times, rows, status, reached, why), ended)

    def _why(self, ended: Ended, when: str, state: int) -> str:
        limits = self.limits
        if ended is Ended.LARGE:
            return limits.size_sentence(self.whole.ivp.states[state - 1], when)
        return {
            Ended.DONE: "",
            Ended.STEPS: limits.steps_sentence(when),
            Ended.STIFF: f"The equations are stiff {when}: an explicit method needs tiny steps.",
            Ended.NO_NUMBER: no_number(when),
            Ended.TOO_SMALL: f"No step is small enough {when}.",
            Ended.SECONDS: limits.seconds_sentence(when),
            Ended.MEMORY: "There was not enough memory for the integration.",
            Ended.START: NO_START,
            Ended.STOPPED: f"The integration was interrupted {when}.",
        }[ended]

    @cached_property
    def _call(self) -> Any:
        """The C function of (q, rows, told), given as addresses."""
        function = self.library.igpe_run
        function.argtypes = [ctypes.c_void_p] * 4
        return partial(function, ctypes.byref(self._plan))

    @cached_property
    def _plan(self) -> "_Plan":
        return _Plan.of(self.whole, self.limits, self.method, self.numbers)


class _Plan(ctypes.Structure):
    """`Plan` of the C code: the horizon and the limits."""

    _fields_ = (
        ("pieces", ctypes.c_longlong),
        ("numbers", ctypes.c_void_p),
        ("first", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("times", ctypes.c_void_p),
        ("n_times", ctypes.c_longlong),
        ("at_start", ctypes.c_longlong),
        ("most", ctypes.c_void_p),
        ("nearest", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("rtol", ctypes.c_double),
        ("atol", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("max_steps", ctypes.c_longlong),
        ("most_steps", ctypes.c_longlong),
        ("stopped", _Question),
    )

    @classmethod
    def of(
        cls, whole: Prepared, limits: Limits, method: DormandPrince, numbers: FloatArray
    ) -> "_Plan":
        """The plan; it keeps the arrays it points at."""
        pieces, times = whole.pieces, np.ascontiguousarray(whole.times)
        counts = [len(p.outputs) for p in pieces]
        rows = np.full(sum(counts), -1, dtype=np.int64)
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        for piece, begin in zip(pieces, first, strict=False):
            rows[begin : begin + len(piece.rows)] = piece.rows
        arrays = {
            "numbers": np.array([[p.begin, p.span, *p.inputs] for p in pieces], dtype=float),
            "first": first,
            "places": np.concatenate([p.places for p in pieces]),
            "rows": rows,
            "times": times,
            "most": np.ascontiguousarray(limits.most),
            "nearest": np.ascontiguousarray(whole.ivp.unknown_scale),
            "sizes": whole.system.numbers,
            "constants": numbers,
        }
        plan = cls(
            pieces=len(pieces),
            n_times=len(times),
            at_start=int(times[0] <= whole.ivp.t0),
            rtol=method.rtol,
            atol=method.atol,
            seconds=limits.seconds,
            max_steps=limits.max_steps,
            stopped=_STOPPED,
            **{name: array.ctypes.data for name, array in arrays.items()},
        )
        plan.kept = arrays
        return plan


def _source(system: Augmented, functions: tuple[Any, ...]) -> str:
    """The C text: the model's functions, their sizes, the method."""
    generator = ca.CodeGenerator("igpe", {"with_header": False})
    for function in functions:
        generator.add(function)
    n_q, n = system.start.numel_in(0), system.x.numel()
    sizes = {
        "N_Q": n_q,
        "N_U": (system.told.numel_in(3) - 2 * n_q) // 2,
        "N_X": system.layout.states,
        "N": n,
        "N_ROW": system.layout.width,
        "ARG": max(f.sz_arg() for f in functions),
        "RES": max(f.sz_res() for f in functions),
        "WORK": max(f.sz_w() for f in functions),
        "IWORK": max(f.sz_iw() for f in functions),
    }
    defined = "".join(f"#define {name} {size}\n" for name, size in sizes.items())
    return f"{POSIX}\n{generator.dump()}\n{defined}\n{DRIVER.read_text()}"
