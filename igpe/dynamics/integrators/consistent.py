"""Consistent algebraic variables: roots y of 0 = g(t, x, y) inside the model's bounds.

Newton's method begins at the last known values, then at places inside the bounds, then at a few
plain guesses. Sensitivities Y follow from one linear system. All in the units without dimension of
`Augmented`.
"""

from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.augmented import Augmented, ImplicitUnits
from igpe.dynamics.integrators.limits import BEYOND, INCONSISTENT, at
from igpe.equations.initial_value import InitialValueProblem

PLAIN_GUESSES = (1.0, 1e-2, 1e2, 0.0, -1.0)
SHARES = (0.5, 0.9, 0.1, 0.99, 0.01)  # of the way from the lower to the upper bound
TOLERANCE = 1e-10  # last step of a variable, relative to its size
SLACK = 1e-6  # how far beyond a bound a root may lie, relative to its size
ITERATIONS, HALVINGS = 100, 12


class Consistent:
    """Solves the algebraic part of an augmented system."""

    def __init__(self, system: Augmented, ivp: InitialValueProblem) -> None:
        self.n_y, self._ivp = ivp.y.numel(), ivp
        self._beyond: FloatArray | None = None
        self.guess: FloatArray = np.zeros(system.z.numel())
        if self.n_y == 0:
            return
        self.units = ImplicitUnits.of(ivp)
        self.guess[: self.n_y] = self.units.there(ivp.guess)
        self.lower, self.upper = self.units.there(ivp.lower), self.units.there(ivp.upper)
        self._starts = [self.guess[: self.n_y], *self._inside(ivp.implicit_scale)]
        known = ca.vertcat(system.tau, system.x, system.p)
        y, y_s = system.z[: self.n_y], system.z[self.n_y :]
        g, varied = system.alg[: self.n_y], system.alg[self.n_y :]
        self._g: Any = ca.Function("g", [y, known], [g, ca.jacobian(g, y)])
        if y_s.numel() == 0:
            return
        linear = [ca.jacobian(varied, y_s), ca.substitute(varied, y_s, ca.SX.zeros(y_s.numel()))]
        self._linear: Any = ca.Function("linear", [system.z, known], linear)

    def __call__(self, x: FloatArray, z: FloatArray, p: FloatArray) -> FloatArray | None:
        """(n_z,) consistent values near z where a piece begins, or None if none were found."""
        if self.n_y == 0:
            return z
        known, self._beyond = np.concatenate([[0.0], x, p]), None
        for guess in (z[: self.n_y], *self._starts):
            y = self._newton(guess, known)
            if y is None:
                continue
            slack = SLACK * np.maximum(1.0, np.abs(y))
            if (y >= self.lower - slack).all() and (y <= self.upper + slack).all():
                return self._with_sensitivities(y, len(z), known)
            self._beyond = y
        return None

    def reason(self, time: float) -> str:
        """Why no consistent values were found at the last call."""
        why = INCONSISTENT.format(at(time))
        if self._beyond is None:
            return why
        y, low, high = map(self.units.back, (self._beyond, self.lower, self.upper))
        k = int(np.argmax(np.maximum(self.lower - self._beyond, self._beyond - self.upper)))
        name = self._ivp.implicit[k]
        return f"{why} {BEYOND.format(name, y[k], low[k], high[k])}"

    def rows(self, x: FloatArray, z: FloatArray, p: FloatArray) -> FloatArray:
        """(n_y,) largest slope of each equation at z, so that divided by it none is tiny."""
        if self.n_y == 0:
            return np.zeros(0)
        _, slope = self._evaluate(z[: self.n_y], np.concatenate([[0.0], x, p]))
        largest = np.max(np.abs(slope), axis=1)
        return np.where(largest > 0, largest, 1.0)

    def _inside(self, scale: FloatArray) -> list[FloatArray]:
        """Places inside the bounds; a variable without both bounds takes the plain guesses."""
        both = np.isfinite(self.lower) & np.isfinite(self.upper)
        lower, width = np.where(both, self.lower, 0.0), np.zeros(self.n_y)
        width[both] = self.upper[both] - self.lower[both]
        plain = [np.full(self.n_y, v) for v in PLAIN_GUESSES]
        plain += [guess / scale for guess in plain if (scale != 1).any()]
        spread = zip(SHARES, plain, strict=False)
        places = [np.where(both, lower + share * width, guess) for share, guess in spread]
        return [np.clip(guess, self.lower, self.upper) for guess in [*places, *plain]]

    @np.errstate(over="ignore", invalid="ignore")  # squares of gaps, far from a root
    def _newton(self, y: FloatArray, known: FloatArray) -> FloatArray | None:
        """A root of g near y, by damped Newton steps; None if it is not reached."""
        g, slope = self._evaluate(y, known)
        for _ in range(ITERATIONS):
            if not (np.isfinite(g).all() and np.isfinite(slope).all()):
                return None
            if not g.any():
                return y
            rows = np.max(np.abs(slope), axis=1)
            if not rows.all():
                return None
            step = np.linalg.lstsq(slope / rows[:, None], -g / rows, rcond=None)[0]
            if (np.abs(step) <= TOLERANCE * np.maximum(1.0, np.abs(y))).all():
                solved = np.abs((slope @ step + g) / rows).max() <= TOLERANCE
                return y + step if solved else None
            size = np.linalg.norm(g / rows)
            for k in range(HALVINGS):
                trial = y + step / 2**k
                g, slope = self._evaluate(trial, known)
                if np.linalg.norm(g / rows) < size:
                    break
            else:
                return None
            y = trial
        return None

    def _evaluate(self, y: FloatArray, known: FloatArray) -> tuple[FloatArray, FloatArray]:
        g, slope = self._g(y, known)
        return np.asarray(g).ravel(), np.asarray(slope)

    def _with_sensitivities(self, y: FloatArray, size: int, known: FloatArray) -> FloatArray | None:
        z = np.concatenate([y, np.zeros(size - self.n_y)])
        if size > self.n_y:
            matrix, constant = (np.asarray(v) for v in self._linear(z, known))
            if not (np.isfinite(matrix).all() and np.isfinite(constant).all()):
                return None
            z[self.n_y :] = np.linalg.lstsq(matrix, -constant.ravel(), rcond=None)[0]
        return z
