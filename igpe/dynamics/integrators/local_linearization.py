"""Local Linearization: steps that are exact for the linearised equations, by matrix exponentials.

From t_n, y_n a step of length h solves y' = f + f_x (y - y_n) + f_t (t - t_n) and the variational
equations with f_x and f_q held at the step's beginning (Carbonell et al., section 3.1, equations 22
to 24). With

    C = [ f_x  f_q  f_t  f ]
        [  0    0    0   0 ]        exp(h C) = [ E11  E12  E13  E14 ]   in its first rows,
        [  0    0    0   1 ]
        [  0    0    0   0 ]

the new state is y_n + E14, and the derivatives are E11 Y by the start, E11 Y + E12 by the unknowns
(25 to 27); states within a step are those of a shorter one. States are of order 2, derivatives of
order 1. The exponentials are SciPy's (Pade).
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import casadi as ca
import numpy as np
from scipy.linalg import expm

from igpe.core.arguments import Positive, Rule, is_number
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.dynamics.integrators.augmented import Augmented, Batched
from igpe.dynamics.integrators.lock_step import LockStep, PieceState, Step, Stepper

LENGTH = Rule(lambda v: is_number(v) and v > 0, "a number above 0")


class LinearStepper(Stepper):
    """Computes steps of the linearised equations.

    n_q  number of unknowns that are not start values
    """

    def function(self, system: Augmented) -> Batched:
        """(tau, x, z, p) -> f, f_t, f_x, f_q, each row by row."""
        n_x, x, ode = self.n_x, system.x, system.ode
        self.n_q, f, f_q = max(system.sizes[3] - n_x, 0), ode[:n_x], ca.SX(n_x, 0)
        if self.n_q:
            by = ca.substitute(ode[n_x:], x[n_x:], ca.SX.zeros(x.numel() - n_x))
            f_q = ca.reshape(by, n_x, system.sizes[3])[:, n_x:]
        parts = (f, ca.jacobian(f, system.tau), ca.jacobian(f, x[:n_x]).T, f_q.T)
        rows = ca.densify(ca.vertcat(*(ca.vec(part) for part in parts)))
        return Batched(ca.Function("linearised", [system.tau, x, system.z, system.p], [rows]))

    def first(self, now: PieceState) -> FloatArray:
        """See `Stepper`."""
        slope = self.in_tolerances(now.k[:, : self.n_x], now.x, now.x)
        return np.where(slope > 1, slope, 1.0) ** (-1 / 3)

    def length(self, now: PieceState) -> tuple[FloatArray, FloatArray]:
        """See `Stepper`; no step is longer than `longest`."""
        now.h = np.minimum(now.h, self.method.longest / now.span)  # type: ignore[attr-defined]
        return super().length(now)

    def step(self, now: PieceState) -> Step:
        """See `Stepper`. What the linearisation leaves out, d at the end, grows like (s / h)^2.

        That gives the error 2 h phi_3(h f_x) d; and 1 / (3 - z) is 2 phi_3(z) at 0 and far to the
        left. Derivatives take no part in it, as in the paper.
        """
        h, after = self.length(now)
        n_x, wide = self.n_x, h[:, None, None]
        end = self._moved(now.x, now.k, h)
        k = self.at(after, end, now.p)
        f, f_t, f_x, _ = self._parts(now.k)
        change = (end - now.x)[:, :n_x, None]
        left_out = k[:, :n_x, None] - f - f_t * wide - f_x @ change
        matrix = 3 * np.eye(n_x) - wide * f_x
        matrix[~np.isfinite(matrix).all(axis=(1, 2))] = np.eye(n_x)
        error = self.in_tolerances((wide * np.linalg.solve(matrix, left_out))[:, :, 0], now.x, end)
        return Step(h, after, error, end, k, [], np.zeros(len(h), dtype=bool))

    def between(self, now: PieceState, step: Step, due: IntArray, share: FloatArray) -> FloatArray:
        """See `Stepper`."""
        return self._moved(now.x[due], now.k[due], share * step.h[due])

    def factor(self, error: FloatArray, before: FloatArray, good: BoolArray) -> FloatArray:
        """See `Stepper`."""
        return np.clip(0.9 * np.maximum(error, 1e-10) ** (-1 / 3), 0.2, 5.0)

    def _parts(self, k: FloatArray) -> list[FloatArray]:
        """f and f_t (n, n_x, 1), f_x (n, n_x, n_x), f_q (n, n_x, n_q)."""
        widths = np.array([1, 1, self.n_x, self.n_q])
        parts = np.split(k, self.n_x * np.cumsum(widths)[:-1], axis=1)
        return [v.reshape(len(k), self.n_x, w) for v, w in zip(parts, widths, strict=True)]

    def _moved(self, x: FloatArray, k: FloatArray, h: FloatArray) -> FloatArray:
        """(n, N) after steps h (n,) from x."""
        n, n_x, n_q = len(h), self.n_x, self.n_q
        f, f_t, f_x, f_q = self._parts(k)
        c = np.zeros((n, n_x + n_q + 2, n_x + n_q + 2))
        c[:, :n_x], c[:, -2, -1] = np.concatenate([f_x, f_q, f_t, f], axis=2), 1.0
        c *= h[:, None, None]
        finite = np.isfinite(c).all(axis=(1, 2))
        c[~finite] = 0.0
        e = expm(c)[:, :n_x]
        e[~finite] = np.nan
        by = e[:, :, :n_x] @ x[:, n_x:].reshape(n, -1, n_x).transpose(0, 2, 1)
        by[:, :, by.shape[2] - n_q :] += e[:, :, n_x : n_x + n_q]
        return np.hstack([x[:, :n_x] + e[:, :, -1], by.transpose(0, 2, 1).reshape(n, -1)])


@dataclass(frozen=True)
class LocalLinearization(LockStep):
    """Integrator with matrix exponentials, for equations without implicit algebraic variables.

    The method is stable for stiff equations and exact for linear equations. For nonlinear
    equations, this method is much slower than `RungeKutta` at the same accuracy, especially for
    sensitivities, which are only first-order accurate. The step size depends only on the states,
    not on the sensitivities, as in the paper (Carbonell et al. 2014). Sensitivities may therefore
    be wrong by half, also for linear equations and at any `rtol`: estimates then miss the optimum,
    and intervals are wrong. A small `longest` makes sensitivities accurate.

    rtol, atol  relative and absolute tolerance, defined as in the paper
    longest     maximum step size, in the unit of the model's time
    """

    stepper: ClassVar[type[Stepper]] = LinearStepper
    is_rough: ClassVar[bool] = True

    rtol: Positive = 1e-3
    atol: Positive = 1e-6
    longest: Annotated[float, LENGTH] = np.inf
