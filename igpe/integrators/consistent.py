"""Consistent algebraic variables at the start of an integration.

The values y solve 0 = g(t, x, y) by Newton's method from the last known values, then from a few
plain guesses; their sensitivities Y follow from one linear system.
"""

from typing import Any

import casadi as ca
import numpy as np

from igpe.arrays import FloatArray
from igpe.equations.initial_value import InitialValueProblem
from igpe.integrators.augmented import Augmented

PLAIN_GUESSES = (1.0, 1e-2, 1e2, 0.0, -1.0)
TOLERANCE = 1e-10


class Consistent:
    """Solves the algebraic part of an augmented system."""

    def __init__(self, system: Augmented, ivp: InitialValueProblem) -> None:
        self.n_y = ivp.y.numel()
        self.guess: FloatArray = np.ones(system.z.numel())
        if self.n_y == 0:
            return
        known = ca.vertcat(system.t, system.x, system.p)
        self._root: Any = ca.rootfinder(
            "consistent",
            "newton",
            {"x": system.z[: self.n_y], "p": known, "g": system.alg[: self.n_y]},
            {"abstol": TOLERANCE, "error_on_fail": True, "show_eval_warnings": False},
        )
        if system.z.numel() == self.n_y:
            return
        varied = system.alg[self.n_y :]
        y_s = system.z[self.n_y :]
        linear = ca.substitute(varied, y_s, ca.SX.zeros(y_s.numel()))
        self._linear: Any = ca.Function(
            "linear", [system.z, known], [ca.jacobian(varied, y_s), linear]
        )

    def __call__(
        self, time: float, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> FloatArray | None:
        """(n_z,) consistent values near z, or None if none were found."""
        if self.n_y == 0:
            return z
        known = np.concatenate([[time], x, p])
        for guess in (z[: self.n_y], *(np.full(self.n_y, v) for v in PLAIN_GUESSES)):
            y = self._newton(guess, known)
            if y is not None:
                return self._with_sensitivities(y, len(z), known)
        return None

    def _newton(self, guess: FloatArray, known: FloatArray) -> FloatArray | None:
        try:
            y = np.asarray(self._root(guess, known)).ravel()
        except RuntimeError:
            return None
        return y if np.isfinite(y).all() else None

    def _with_sensitivities(self, y: FloatArray, size: int, known: FloatArray) -> FloatArray:
        z = np.concatenate([y, np.zeros(size - self.n_y)])
        if size > self.n_y:
            matrix, constant = (np.asarray(v) for v in self._linear(z, known))
            z[self.n_y :] = np.linalg.lstsq(matrix, -constant.ravel(), rcond=None)[0]
        return z
