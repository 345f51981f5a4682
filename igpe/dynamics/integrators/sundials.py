"""CVODES and IDAS through CasADi, on the augmented system."""

import io
import math
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import in_session, require_going_on, session
from igpe.dynamics.integrators.augmented import Augmented
from igpe.dynamics.integrators.cut import Piece
from igpe.dynamics.integrators.limits import (
    allowed,
    allowed_between,
    at,
    between,
    first_beyond,
    no_number,
)
from igpe.dynamics.integrators.piecewise import Advance, Piecewise, Reached
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem

GIVEN = [ca.integrator_in().index(name) for name in ("x0", "z0", "p")]
ATTEMPTS: tuple[dict[str, Any], ...] = (
    {"linear_solver": "csparse"},
    {"linear_solver": "qr"},
    {"linear_solver": "csparse", "step0": 1e-12},
)
"""Options in the order of trial. CasADi's own QR fails at states of 1e12 beside 1e-12, sparse LU at
derivatives beyond 1e100. IDAS begins as if algebraic variables stood still, and shortens its first
step ten times at most: too seldom where they leave 0 quickly, as a diode's current does."""
COST = 8  # explicit steps that take as long as one of CVODES, by a number that both move
BUFFERED = 1  # where CasADi keeps the statistics of calls through a function's first buffer
RESULTS = [ca.integrator_out().index(name) for name in ("xf", "zf")]


@dataclass(frozen=True)
class Sundials(Piecewise):
    """Variable-order BDF: CVODES for ordinary differential equations, and IDAS for DAEs.

    igpe checks at each output whether the states are too large, and between outputs whether the
    time limit has passed. If there is a time limit, the integration restarts at each output and
    takes about twice as long.
    """

    implicit = True

    def advancing(self, ivp: InitialValueProblem, system: Augmented) -> Advance:
        """See `Piecewise`."""
        return _Multistep(self, ivp, system, self.most(ivp))


@dataclass(frozen=True)
class _Multistep:
    """CVODES or IDAS on the pieces of one system.

    most  (n_x,) how large states may be
    made  CasADi's integrators, by the places (from 0 to 1) of their outputs, steps, attempt
    """

    method: Sundials
    ivp: InitialValueProblem
    system: Augmented
    most: FloatArray
    made: dict[tuple[bytes, int, int], InPlace] = field(default_factory=dict)

    def __call__(
        self, deadline: float, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> Reached:
        """See `Advance`."""
        reached = Reached(np.zeros((0, len(x))), np.zeros((0, len(z))), "")
        is_final = False
        if math.isinf(deadline) and not piece.moving:
            reached = self._at_once(piece, x, z, p)
            # a trial that broke down is not worth another attempt
            is_final = not reached.why or allowed() is not None or self._too_large(reached.x)
        if not is_final:  # afresh from the last output that was reached
            reached = self._one_by_one(reached, deadline, piece, (x, z, p))
        beyond = first_beyond(reached.x[:, : len(self.most)], self.most)
        if beyond is None:
            return reached
        row, state = beyond
        why = self.method.too_large(self.ivp.states[state], at(float(piece.outputs[row])))
        return Reached(reached.x[:row], reached.z[:row], why, reached.steps)

    def _too_large(self, x: FloatArray) -> bool:
        return first_beyond(x[:, : len(self.most)], self.most) is not None

    def _at_once(
        self, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray, attempt: int = 0
    ) -> Reached:
        """All outputs of a piece, or those before CVODES or IDAS gave up."""
        xs, zs = (np.full((len(piece.outputs), len(v)), np.nan) for v in (x, z))
        solver = self._solver(piece.places, attempt)
        for index, given in zip(GIVEN, (x, z, p), strict=True):
            solver.read(index, given)
        for index, result in zip(RESULTS, (xs, zs), strict=True):
            solver.write(index, result)
        error = _heeding_interrupts(solver.evaluate)
        finite = np.isfinite(xs).all(axis=1) & np.isfinite(zs).all(axis=1)
        done = len(xs) if finite.all() else int(np.argmin(finite))
        begin = piece.begin if done == 0 else float(piece.outputs[done - 1])
        why = ""
        if error or done < len(xs):
            done = min(done, len(xs) - 1)
            is_first = "FIRST_RHSFUNC_ERR" in error  # the equations fail where the piece begins
            when = at(begin) if is_first else between(begin, float(piece.outputs[done]))
            why = self._why("" if is_first else error, when)
            steps = self._most_steps(len(xs)) + done  # CasADi counts those of a success alone
        else:
            steps = int(solver.function.stats(BUFFERED)["nsteps"])
        return Reached(xs[:done], zs[:done], why, COST * steps)

    def _most_steps(self, outputs: int) -> int:
        return min(self.method.max_steps, allowed_between(outputs))

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
                return reached._replace(why=self.method.too_late(at(part.begin)))
            if len(reached.x):
                x, z = reached.x[-1], reached.z[-1]
            parameters = np.concatenate([p[:-2], [part.begin, part.span]])
            for attempt in range(len(ATTEMPTS)):
                new = self._at_once(part, x, z, parameters, attempt)
                if not new.why:
                    break
            states = np.vstack([reached.x, new.x]), np.vstack([reached.z, new.z])
            reached = Reached(*states, new.why, reached.steps + new.steps)
            if new.why:
                break
        return reached

    def _why(self, error: str, when: str) -> str:
        if "TOO_MUCH_WORK" in error:
            return self.method.out_of_steps(when)
        code = re.search(r'"((?:CV|IDA)_\w+)"', error)
        name = "IDAS" if self.system.z.numel() else "CVODES"
        return f"{name} failed {when} ({code[1]})." if code else no_number(when)

    def _solver(self, places: FloatArray, attempt: int) -> InPlace:
        steps = self._most_steps(len(places))
        key, system = (places.tobytes(), steps, attempt), self.system
        if key not in self.made:
            dae = {"t": system.tau, "x": system.x, "p": system.p, "ode": system.ode}
            if system.z.numel():
                dae |= {"z": system.z, "alg": system.alg}
            options: dict[str, Any] = {
                "abstol": self.method.atol,
                "reltol": self.method.rtol,
                "max_num_steps": steps,
                **ATTEMPTS[attempt],
                "show_eval_warnings": False,
                "disable_internal_warnings": True,
            }
            name = "idas" if system.z.numel() else "cvodes"
            solver = ca.integrator("piece", name, dae, 0.0, places.tolist(), options)
            self.made[key] = InPlace(solver)
        return self.made[key]


def _heeding_interrupts(evaluate: Callable[[], None]) -> str:
    """What CasADi says when it fails, or nothing. An interrupt (Ctrl-C) is heeded afterwards.

    CasADi would take the exception of Python's handler for a failure of the equations, and go on.
    """
    if threading.current_thread() is not threading.main_thread():
        return _failure(evaluate)
    with session():
        with redirect_stderr(_OfOthers()):
            error = _failure(evaluate)
        if in_session():  # no handler of the user's
            require_going_on()  # the session remembers what CasADi took for a failure
        return error


def _failure(evaluate: Callable[[], None]) -> str:
    try:
        evaluate()
    except RuntimeError as error:
        return str(error)
    return ""


class _OfOthers(io.TextIOBase):
    """Standard error for other threads: in this one, CasADi would print interrupts, and failed
    factorisations."""

    def __init__(self) -> None:
        self._inner, self._own = sys.stderr, threading.get_ident()

    def write(self, text: str) -> int:
        """Pass on what another thread says."""
        if threading.get_ident() == self._own or self._inner is None:
            return len(text)
        return int(self._inner.write(text))
