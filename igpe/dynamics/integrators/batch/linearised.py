"""Steps of the linearised equations, exact by matrix exponentials (Carbonell et al., section 3.1).

From t_n, y_n a step of length h solves y' = f + f_x (y - y_n) + f_t (t - t_n) and the variational
equations with f_x and f_q held at the step's beginning (equations 22 to 24). With

    C = [ f_x  f_q  f_t  f ]
        [  0    0    0   0 ]        exp(h C) = [ E11  E12  E13  E14 ]   in its first rows,
        [  0    0    0   1 ]
        [  0    0    0   0 ]

the new state is y_n + E14, and the derivatives are E11 Y by the start, E11 Y + E12 by the unknowns
(25 to 27). States are of order 2, derivatives of order 1. The exponentials are SciPy's (Pade).
"""

from typing import NamedTuple

import casadi as ca
import numpy as np
from scipy.linalg import expm

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.batch.runge_kutta_source import model_functions
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem


class Linear(NamedTuple):
    """f at n places: f (n, n_x), f_t (n, n_x), f_x (n, n_x, n_x), f_q (n, n_x, n_q)."""

    f: FloatArray
    f_t: FloatArray
    f_x: FloatArray
    f_q: FloatArray

    def step(self, h: FloatArray, y: FloatArray, by: FloatArray) -> tuple[FloatArray, FloatArray]:
        """States (n, n_x) and derivatives (n, n_x, n_d) after steps h (n,) from y and by.

        The last n_q directions are the unknowns; without directions nothing of them is computed.
        """
        n, n_x = y.shape
        n_q = self.f_q.shape[2] if by.shape[2] else 0
        c = np.zeros((n, n_x + n_q + 2, n_x + n_q + 2))
        c[:, :n_x, :n_x], c[:, :n_x, n_x : n_x + n_q] = self.f_x, self.f_q[:, :, :n_q]
        c[:, :n_x, -2], c[:, :n_x, -1], c[:, -2, -1] = self.f_t, self.f, 1.0
        c *= h[:, None, None]
        finite = np.isfinite(c).all(axis=(1, 2))
        c[~finite] = 0.0
        e = expm(c)[:, :n_x]
        e[~finite] = np.nan
        after = e[:, :, :n_x] @ by
        after[:, :, by.shape[2] - n_q :] += e[:, :, n_x : n_x + n_q]
        return y + e[:, :, -1], after

    def error(self, h: FloatArray, change: FloatArray, f_after: FloatArray) -> FloatArray:
        """(n, n_x) estimated error of steps that changed y by `change`, to where f is `f_after`.

        What the linearisation leaves out grows like (s / h)^2 to d at the end, which gives
        2 h phi_3(h f_x) d; and 1 / (3 - z) is 2 phi_3(z) at 0 and far to the left.
        """
        left_out = f_after - self.f - self.f_t * h[:, None]
        left_out -= (self.f_x @ change[:, :, None])[:, :, 0]
        matrix = 3 * np.eye(self.f.shape[1]) - h[:, None, None] * self.f_x
        matrix[~np.isfinite(matrix).all(axis=(1, 2))] = np.eye(self.f.shape[1])
        solved = np.linalg.solve(matrix, left_out[:, :, None])[:, :, 0]
        return np.asarray(h[:, None] * solved, dtype=float)


class Linearised:
    """The equations of a problem, linearised at n places as one call of CasADi."""

    def __init__(self, ivp: InitialValueProblem, n: int) -> None:
        function = model_functions(ivp)[0][0]
        given = function.sx_in()
        f = function(*given)
        t, x, q, _ = given
        # CasADi stands column by column: transposed, each place is a C array of its own
        found = [f, ca.jacobian(f, t), ca.jacobian(f, x).T, ca.jacobian(f, q).T]
        whole = ca.Function("linearised", given, [ca.densify(v) for v in found])
        self.n, self.n_x, self.n_q = n, x.numel(), q.numel()
        self._function = InPlace(whole.map(n))

    def __call__(self, t: FloatArray, x: FloatArray, q: FloatArray, ab: FloatArray) -> Linear:
        """At times t (n,), states x (n, n_x), unknowns q (n, n_q), inputs ab (n, 2 n_u)."""
        n, n_x = self.n, self.n_x
        shapes = ((n, n_x), (n, n_x), (n, n_x, n_x), (n, n_x, self.n_q))
        found = Linear(*(np.empty(shape) for shape in shapes))
        for i, given in enumerate((t, x, q, ab)):
            self._function.read(i, given)
        for i, place in enumerate(found):
            self._function.write(i, place)
        self._function.evaluate()
        return found
