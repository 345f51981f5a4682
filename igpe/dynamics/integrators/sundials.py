"""CVODES and IDAS through CasADi, on the augmented system."""

import io
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import in_session, require_going_on
from igpe.dynamics.integrators.augmented import Augmented
from igpe.dynamics.integrators.cut import Piece
from igpe.dynamics.integrators.limits import (
    MOST_STEPS,
    StepLimits,
    allowed,
    allowed_between,
    at,
    between,
    no_number,
)
from igpe.dynamics.integrators.piecewise import Advance, Piecewise, Reached
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem


@dataclass(frozen=True)
class Sundials(Piecewise):
    """Variable-order BDF: CVODES for ordinary, IDAS for algebraic-differential equations.

    The size of states is looked at where they are reported, the time between outputs; with a limit
    of time each output is a start of its own, which costs about twice the time.
    """

    implicit = True

    def advancing(self, ivp: InitialValueProblem, system: Augmented) -> Advance:
        """See `Piecewise`."""
        return _Multistep(ivp, system, Solvers(self, system), StepLimits.of(self, ivp))


@dataclass(frozen=True)
class _Multistep:
    """CVODES or IDAS on the pieces of one system."""

    ivp: InitialValueProblem
    system: Augmented
    solvers: "Solvers"
    limits: StepLimits

    def __call__(
        self, deadline: float, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> Reached:
        """See `Advance`."""
        reached = _nothing(x, z)
        if math.isinf(deadline) and not piece.moving:
            reached = self._at_once(piece, x, z, p)
            if reached.why and allowed() is not None:
                return self._checked(reached, piece)  # a trial that is not worth another attempt
            if not reached.why or self.limits.first_too_large(self._states(reached)):
                return self._checked(reached, piece)
        # afresh from the last output that was reached
        return self._checked(self._one_by_one(reached, deadline, piece, (x, z, p)), piece)

    def _states(self, reached: Reached) -> FloatArray:
        return reached.x[:, : self.system.layout.states]

    def _at_once(self, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray) -> Reached:
        """All outputs of a piece, or those before CVODES or IDAS gave up."""
        xs, zs, said = self.solvers(piece.places)(x, z, p)
        finite = np.isfinite(xs).all(axis=1) & np.isfinite(zs).all(axis=1)
        done = len(xs) if finite.all() else int(np.argmin(finite))
        begin = piece.begin if done == 0 else float(piece.outputs[done - 1])
        why = ""
        if said or done < len(xs):
            done = min(done, len(xs) - 1)
            why = self._why(said, between(begin, float(piece.outputs[done])))
        return Reached(xs[:done], zs[:done], why)

    def _one_by_one(
        self,
        reached: Reached,
        deadline: float,
        piece: Piece,
        start: tuple[FloatArray, FloatArray, FloatArray],
    ) -> Reached:
        """The outputs that did not come yet, each integrated for itself."""
        x, z, p = start
        for part in piece.parts(len(reached.x)):
            if time.monotonic() > deadline:
                return reached._replace(why=self.limits.seconds_sentence(at(part.begin)))
            if len(reached.x):
                x, z = reached.x[-1], reached.z[-1]
            here = np.concatenate([p[:-2], [part.begin, part.span]])
            new = self._at_once(part, x, z, here)
            reached = Reached(np.vstack([reached.x, new.x]), np.vstack([reached.z, new.z]), new.why)
            if new.why:
                return reached
        return reached

    def _checked(self, reached: Reached, piece: Piece) -> Reached:
        """Only the outputs before the first that is too large."""
        found = self.limits.first_too_large(self._states(reached))
        if found is None:
            return reached
        row, state = found
        when = at(float(piece.outputs[row]))
        why = self.limits.size_sentence(self.ivp.states[state], when)
        return Reached(reached.x[:row], reached.z[:row], why)

    def _why(self, said: str, when: str) -> str:
        if "TOO_MUCH_WORK" in said:
            return self.limits.steps_sentence(when)
        code = re.search(r'"((?:CV|IDA)_\w+)"', said)
        name = "IDAS" if self.system.z.numel() else "CVODES"
        return f"{name} broke down {when} ({code[1]})." if code else no_number(when)


@dataclass(frozen=True)
class Solvers:
    """CasADi's integrators of one system, by the places (from 0 to 1) where they report."""

    method: Sundials
    system: Augmented
    made: dict[tuple[bytes, int], "_Solver"] = field(default_factory=dict)

    def __call__(self, places: FloatArray) -> "_Solver":
        steps = min(self.method.max_steps, allowed_between(len(places)) or MOST_STEPS)
        key = (places.tobytes(), steps)
        if key not in self.made:
            made = self._make([float(v) for v in places], steps)
            self.made[key] = _Solver(made, len(places))
        return self.made[key]

    def _make(self, places: list[float], steps: int) -> Any:
        system = self.system
        dae = {"t": system.tau, "x": system.x, "p": system.p, "ode": system.ode}
        options = {
            "abstol": self.method.atol,
            "reltol": self.method.rtol,
            "max_num_steps": steps,
            "show_eval_warnings": False,
            "disable_internal_warnings": True,
        }
        if system.z.numel() == 0:
            return ca.integrator("piece", "cvodes", dae, 0.0, places, options)
        dae |= {"z": system.z, "alg": system.alg}
        return ca.integrator("piece", "idas", dae, 0.0, places, options)


class _Solver:
    """One of CasADi's integrators, called without conversions."""

    def __init__(self, function: Any, outputs: int) -> None:
        self._function = InPlace(function)
        self._given = tuple(function.index_in(name) for name in ("x0", "z0", "p"))
        self._found = tuple(function.index_out(name) for name in ("xf", "zf"))
        self._outputs = outputs

    def __call__(
        self, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> tuple[FloatArray, FloatArray, str]:
        """(n, n_x), (n, n_z) at the outputs, NaN after a break-down; and CasADi's words on it."""
        found = [np.full((self._outputs, len(v)), np.nan) for v in (x, z)]
        for index, given in zip(self._given, (x, z, p), strict=True):
            self._function.read(index, given)
        for index, wanted in zip(self._found, found, strict=True):
            self._function.write(index, wanted)
        return found[0], found[1], _heeding_interrupts(self._function.evaluate)


def _heeding_interrupts(evaluate: Callable[[], None]) -> str:
    """What CasADi says when it fails, or nothing. An interrupt (Ctrl-C) is heeded afterwards.

    CasADi would take the exception of Python's handler for a failure of the equations, and go on.
    """
    if in_session():
        with redirect_stderr(_OfOthers()):
            said = _failure(evaluate)
        require_going_on()  # the session remembers what CasADi took for a failure
        return said
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        return _failure(evaluate)
    heard: list[FrameType | None] = []

    def hear(_: int, frame: FrameType | None) -> None:
        heard.append(frame)
        if before is signal.default_int_handler:
            raise KeyboardInterrupt  # the equations fail, which ends the run early

    signal.signal(signal.SIGINT, hear)
    try:
        with redirect_stderr(_OfOthers()):
            said = _failure(evaluate)
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        before(signal.SIGINT, heard[0])
    return said


def _failure(evaluate: Callable[[], None]) -> str:
    try:
        evaluate()
    except RuntimeError as error:
        return str(error)
    return ""


class _OfOthers(io.TextIOBase):
    """Standard error for other threads: CasADi would print the interrupt in this one."""

    def __init__(self) -> None:
        self._inner, self._own = sys.stderr, threading.get_ident()

    def write(self, text: str) -> int:
        """Pass on what another thread says."""
        if threading.get_ident() == self._own or self._inner is None:
            return len(text)
        return int(self._inner.write(text))


def _nothing(x: FloatArray, z: FloatArray) -> Reached:
    return Reached(np.zeros((0, len(x))), np.zeros((0, len(z))), "")
