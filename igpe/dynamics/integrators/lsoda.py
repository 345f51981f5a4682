"""LSODA, which changes between Adams and BDF by itself, on the augmented system.

`scipy.integrate.odeint` on a right-hand side that CasADi evaluates in place.
"""

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import odeint

from igpe.core.arrays import BoolArray, FloatArray
from igpe.dynamics.integrators.augmented import Augmented
from igpe.dynamics.integrators.cut import Piece
from igpe.dynamics.integrators.limits import StepLimits, allowed, at, between, no_number
from igpe.dynamics.integrators.piecewise import Advance, Piecewise, Reached
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem

CALLS = 2  # evaluations of a step
LOOK = 64  # evaluations between two looks at size and time
SAME = 1e-12  # of a time: what LSODA passes
COMPLETE, USED_UP = "Integration successful.", "Excess work"  # what odeint says then


@dataclass(frozen=True)
class Lsoda(Piecewise):
    """Variable-order Adams and BDF, for equations without implicit algebraic variables.

    Others are refused, as a status. Size and time are looked at every few steps.
    """

    def advancing(self, ivp: InitialValueProblem, system: Augmented) -> Advance:
        """See `Piecewise`."""
        return _Multistep(self, ivp, StepLimits.of(self, ivp), Slope(system))


@dataclass(frozen=True)
class _Multistep:
    """LSODA on the pieces of one system."""

    method: Lsoda
    ivp: InitialValueProblem
    limits: StepLimits
    slope: "Slope"

    def __call__(
        self, deadline: float, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> Reached:
        """The outputs of a piece, those before a break-down if there was one.

        One step of LSODA may pass many outputs and leave the equations' domain: what it tried there
        does not count against outputs before. So each is tried afresh from the one before it.
        """
        reached, final = self._at_once(deadline, piece, x, p)
        if not reached.why or final or len(piece.outputs) == 1:
            return reached
        for part in piece.parts(len(reached.x)):
            begin = reached.x[-1] if len(reached.x) else x
            here = np.concatenate([p[:-2], [part.begin, part.span]])
            new, _ = self._at_once(deadline, part, begin, here)
            xs = np.vstack([reached.x, new.x])
            reached = Reached(xs, np.zeros((len(xs), 0)), new.why)
            if new.why:
                break
        return reached

    def _at_once(
        self, deadline: float, piece: Piece, x: FloatArray, p: FloatArray
    ) -> tuple[Reached, bool]:
        """As `__call__`, in one go; and whether a limit was passed."""
        watch = Watch(self.limits, len(self.ivp.states), deadline)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a break-down is a value here
            found, said = odeint(
                self.slope.on(p, watch),
                x,
                np.concatenate([[0.0], piece.places]),
                tfirst=True,
                tcrit=[1.0],  # the equations may have no value beyond the end
                full_output=True,
                rtol=self.method.rtol,
                atol=self.method.atol,
                mxstep=self.limits.max_steps,
            )
        xs: FloatArray = np.asarray(found)[1:]
        good: BoolArray = np.asarray(np.isfinite(xs).all(axis=1))
        # LSODA passes an output before it tells it; what stands behind the first it did not pass
        # was never written, or is where steps of length 0 ended, which it calls success
        with np.errstate(invalid="ignore"):
            good &= said["tcur"] >= piece.places * (1 - SAME)
        watch.look_at(xs, piece.places, good)
        done = len(xs) if good.all() else int(np.argmin(good))
        why = "" if done == len(xs) else self._why(piece, done, said, watch)
        final = watch.late or watch.large is not None or said["message"].startswith(USED_UP)
        return Reached(xs[:done], np.zeros((done, 0)), why), final

    def _why(self, piece: Piece, done: int, said: Mapping[str, Any], watch: "Watch") -> str:
        """Why the output after `done` others was not reached."""
        ivp, limits = self.ivp, self.limits
        # what LSODA tried may lie beyond the output it was on its way to
        seen = at(piece.begin + piece.span * min(watch.time, float(piece.places[done])))
        if watch.large is not None:
            return limits.size_sentence(ivp.states[watch.large], seen)
        if watch.spent:
            return limits.steps_sentence(seen)
        if watch.late:
            return limits.seconds_sentence(seen)
        begin = piece.begin if done == 0 else float(piece.outputs[done - 1])
        place = float(said["tcur"][done])
        if said["message"].startswith(USED_UP) and 0 <= place <= 1:
            return limits.steps_sentence(at(piece.begin + piece.span * place))
        when = between(begin, float(piece.outputs[done]))
        if said["message"] == COMPLETE:
            return no_number(when)
        return f"LSODA broke down {when} ({said['message'].rstrip('.')})."


class Watch:
    """Looks at size and time now and then, and at the size of what was reached.

    late, large, time  whether a limit was passed; which state; when, in the piece's own time
    """

    def __init__(self, limits: StepLimits, n_x: int, deadline: float) -> None:
        self._limits, self._n_x, self._deadline = limits, n_x, deadline
        self.late, self.time = False, 0.0
        steps = allowed()
        self.spent = False
        self.calls, self.most = 0, math.inf if steps is None else CALLS * steps
        self.large: int | None = None

    def __call__(self, tau: float, x: FloatArray) -> bool:
        """Whether a limit is passed at x."""
        if self.late or self.large is not None:
            return True
        found = self._limits.first_too_large(x[None, : self._n_x])
        self.large = None if found is None else found[1]
        self.calls += LOOK
        self.spent = self.calls > self.most
        self.late, self.time = self.spent or time.monotonic() > self._deadline, tau
        return self.late or found is not None

    def look_at(self, xs: FloatArray, places: FloatArray, good: BoolArray) -> None:
        """Take back outputs (n, n_x) that are `good` but too large."""
        first = xs[: len(xs) if good.all() else int(np.argmin(good))]
        found = self._limits.first_too_large(first[:, : self._n_x])
        if found is not None:
            good[found[0] :] = False
            self.large, self.time, self.late = found[1], float(places[found[0]]), False


class Slope:
    """The augmented right-hand side, evaluated by CasADi in the same memory each time."""

    def __init__(self, system: Augmented) -> None:
        self._function = InPlace(system.slope)
        self._tau, self._x = np.zeros(1), np.zeros(system.x.numel())
        self._found = np.zeros(system.x.numel())
        self._function.read(0, self._tau)
        self._function.read(1, self._x)
        self._function.write(0, self._found)

    def on(self, p: FloatArray, watch: Watch) -> Callable[[float, FloatArray], FloatArray]:
        """The function (tau, x) -> slope for numbers p; no number at all once a limit is passed."""
        self._function.read(3, p)
        place, state, found = self._tau, self._x, self._found
        evaluate = self._function.evaluate
        calls = 0

        def slope(tau: float, x: FloatArray) -> FloatArray:
            nonlocal calls
            calls += 1
            if calls % LOOK == 0 and watch(tau, x):
                found[:] = np.nan  # LSODA gives up at once
                return found
            place[0], state[:] = tau, x
            evaluate()
            return found

        return slope
