"""One experiment's equations on one Radau element, and its measurements, with exact derivatives.

    sum_k D_jk x_k = h f(t_j, x_j, y_j, u_j, q),   0 = g(t_j, x_j, y_j, u_j, q)

at the collocation points j = 1 ... n of an element of width h (Biegler, "Nonlinear Programming"
(2010), eq. 10.8). All elements have the same functions: they are made once, whatever the mesh.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.collocation.mesh import Radau
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.symbols import stack


class Pattern(NamedTuple):
    """Where the nonzeros of a derivative stand, in the order they are told."""

    rows: IntArray
    columns: IntArray


@dataclass(frozen=True)
class Piece:
    """m functions of n variables v and some numbers d, twice differentiated. All are CasADi's.

    values     (v, d) -> (m,)
    jacobian   (v, d) -> its nonzeros
    hessian    (v, d, lam) -> nonzeros of the upper triangle of the second derivative of lam'values
    """

    n: int
    m: int
    values: Any
    jacobian: Any
    hessian: Any
    of_jacobian: Pattern
    of_hessian: Pattern


def piece(v: Any, d: Any, values: Any) -> Piece:
    """SX expressions with their derivatives."""
    lam = ca.SX.sym("lam", values.numel())
    jacobian = ca.jacobian(values, v)
    hessian = ca.triu(ca.hessian(ca.dot(lam, values), v)[0])
    return Piece(
        v.numel(),
        values.numel(),
        ca.Function("values", [v, d], [values]),
        ca.Function("jacobian", [v, d], [_nonzeros(jacobian)]),
        ca.Function("hessian", [v, d, lam], [_nonzeros(hessian)]),
        _pattern(jacobian),
        _pattern(hessian),
    )


def element(ivp: InitialValueProblem, radau: Radau, bounded: Sequence[str]) -> Piece:
    """The equations of an element, then the values of bounded algebraic variables at its points.

    variables  states at all nodes, implicit variables at the points, unknowns
    numbers    times of the points, inputs there, width
    """
    n, n_x, n_y, n_u = radau.points, ivp.x.numel(), ivp.y.numel(), ivp.u.numel()
    x, y = ca.SX.sym("x", n_x, n + 1), ca.SX.sym("y", n_y, n)
    t, u, h = ca.SX.sym("t", n), ca.SX.sym("u", n_u, n), ca.SX.sym("h")
    told = stack(ivp.algebraic[name] for name in bounded)
    at_point = ca.Function("point", [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q], [ivp.f, ivp.g, told])
    slopes, remaining, values = [], [], []
    for j in range(n):
        f, g, z = at_point(t[j], x[:, j + 1], y[:, j], u[:, j], ivp.q)
        slopes.append(ca.mtimes(x, ca.DM(radau.slopes[j + 1])) - h * f)
        remaining.append(g)
        values.append(z)
    v = ca.vertcat(ca.vec(x), ca.vec(y), ivp.q)
    return piece(v, ca.vertcat(t, ca.vec(u), h), ca.vertcat(*slopes, *remaining, *values))


class Linear(NamedTuple):
    """A measured quantity that is constant + factors' x."""

    constant: float
    factors: FloatArray


def linear(ivp: InitialValueProblem, told: int) -> Linear | None:
    """The quantity as a linear function of the states with numbers as factors, if it is one."""
    expression = ivp.measured[told]
    factors = ca.jacobian(expression, ivp.x)
    others = ca.vertcat(ivp.t, ivp.y, ivp.u, ivp.q)
    if not factors.is_constant() or any(ca.which_depends(expression, others, 1)):
        return None
    rest = ca.substitute(expression, ivp.x, ca.DM.zeros(ivp.x.numel()))
    return Linear(float(ca.evalf(rest)), np.array(ca.DM(factors), dtype=float).ravel())


def residual(ivp: InitialValueProblem, told: int) -> Piece:
    """((measured - value) / sigma)^2 of one quantity at one time.

    variables  states, implicit variables, unknowns;  numbers  time, inputs, value, 1/sigma
    """
    value, weight = ca.SX.sym("value"), ca.SX.sym("weight")
    squared = ((ivp.measured[told] - value) * weight) ** 2
    v = ca.vertcat(ivp.x, ivp.y, ivp.q)
    return piece(v, ca.vertcat(ivp.t, ivp.u, value, weight), squared)


def start(ivp: InitialValueProblem, bounded: Sequence[str]) -> Piece:
    """States at the start, less their start values; then bounded algebraic variables there.

    variables  states there, unknowns;  numbers  inputs there
    """
    at_start = stack(ivp.algebraic[name] for name in bounded)
    told = ca.substitute(at_start, ivp.t, ivp.t0)
    return piece(ca.vertcat(ivp.x, ivp.q), ivp.u, ca.vertcat(ivp.x - ivp.start, told))


def _nonzeros(matrix: Any) -> Any:
    return matrix.nz[:]


def _pattern(matrix: Any) -> Pattern:
    rows, columns = matrix.sparsity().get_triplet()
    return Pattern(np.array(rows, dtype=np.intp), np.array(columns, dtype=np.intp))
