"""One experiment's equations on one Radau element, and its measurements, with exact derivatives.

    sum_k D_jk x_k = h f(t_j, x_j, y_j, u_j, q),   0 = g(t_j, x_j, y_j, u_j, q)

at the collocation points j = 1 ... n of an element of width h (Biegler, "Nonlinear Programming"
(2010), eq. 10.8). All elements have the same functions: they are made once, whatever the mesh.

A nonlinear program put together from many equal pieces, with its derivatives.

minimise |A x - b|^2 + sum of pieces, subject to lower <= pieces <= upper. CasADi would find the
derivatives of the program itself, but it takes longer to do so than to solve.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy import sparse

from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.collocation.mesh import Radau
from igpe.dynamics.shooting.limits_of_model import ModelLimits
from igpe.dynamics.simulation import quantities
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.symbols import stack


class Pattern(NamedTuple):
    """Where the nonzeros of a derivative stand, in the order of its values."""

    rows: IntArray
    columns: IntArray


@dataclass(frozen=True)
class Piece:
    """m functions of some variables v and numbers d, twice differentiated. All are CasADi's.

    values     (v, d) -> (m,)
    jacobian   (v, d) -> its nonzeros
    hessian    (v, d, lam) -> nonzeros of the upper triangle of the second derivative of lam'values
    """

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
    triplets = (matrix.sparsity().get_triplet() for matrix in (jacobian, hessian))
    patterns = (Pattern(*(np.array(p, dtype=np.intp) for p in both)) for both in triplets)
    return Piece(
        values.numel(),
        ca.Function("values", [v, d], [values]),
        ca.Function("jacobian", [v, d], [jacobian.nz[:]]),
        ca.Function("hessian", [v, d, lam], [hessian.nz[:]]),
        *patterns,
    )


def element(ivp: InitialValueProblem, radau: Radau, bounded: Sequence[str]) -> Piece:
    """The equations of an element, then the values of bounded algebraic variables at its points.

    variables  states at all nodes, implicit variables at the points, unknowns
    numbers    times of the points, inputs there, width
    """
    n, n_x, n_y, n_u = radau.points, ivp.x.numel(), ivp.y.numel(), ivp.u.numel()
    x, y = ca.SX.sym("x", n_x, n + 1), ca.SX.sym("y", n_y, n)
    t, u, h = ca.SX.sym("t", n), ca.SX.sym("u", n_u, n), ca.SX.sym("h")
    output = stack(ivp.algebraic[name] for name in bounded)
    at_point = ca.Function("point", [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q], [ivp.f, ivp.g, output])
    slopes, remaining, values = [], [], []
    for j in range(n):
        f, g, z = at_point(t[j], x[:, j + 1], y[:, j], u[:, j], ivp.q)
        slopes.append(ca.mtimes(x, ca.DM(radau.slopes[j + 1])) - h * f)
        remaining.append(g)
        values.append(z)
    v = ca.vertcat(ca.vec(x), ca.vec(y), ivp.q)
    return piece(v, ca.vertcat(t, ca.vec(u), h), ca.vertcat(*slopes, *remaining, *values))


def linear(ivp: InitialValueProblem, output: int) -> tuple[float, FloatArray] | None:
    """The constant and the factors (n_x,) of a quantity that is linear in the states; else None."""
    expression = ivp.measured[output]
    factors = ca.jacobian(expression, ivp.x)
    others = ca.vertcat(ivp.t, ivp.y, ivp.u, ivp.q)
    if not factors.is_constant() or any(ca.which_depends(expression, others, 1)):
        return None
    rest = ca.substitute(expression, ivp.x, ca.DM.zeros(ivp.x.numel()))
    return float(ca.evalf(rest)), np.array(ca.DM(factors), dtype=float).ravel()


def residual(ivp: InitialValueProblem, output: int) -> Piece:
    """((measured - value) / sigma)^2 of one quantity at one time.

    variables  states, implicit variables, unknowns;  numbers  time, inputs, value, 1/sigma
    """
    value, weight = ca.SX.sym("value"), ca.SX.sym("weight")
    squared = ((ivp.measured[output] - value) * weight) ** 2
    v = ca.vertcat(ivp.x, ivp.y, ivp.q)
    return piece(v, ca.vertcat(ivp.t, ivp.u, value, weight), squared)


def start(ivp: InitialValueProblem, bounded: Sequence[str], *, implicit: bool) -> Piece:
    """States at the start, less their start values; then bounded algebraic variables there.

    variables  states there, unknowns;  numbers  inputs there
    implicit   whether implicit variables are among the variables, after the states, and their
               equations among the values, after the states
    """
    y, g = (ivp.y, ivp.g) if implicit else (stack([]), stack([]))
    rest = ca.substitute(stack([g, *(ivp.algebraic[name] for name in bounded)]), ivp.t, ivp.t0)
    return piece(ca.vertcat(ivp.x, y, ivp.q), ivp.u, ca.vertcat(ivp.x - ivp.start, rest))


def at_times(ivp: InitialValueProblem, limits: ModelLimits) -> Piece:
    """The model's constraints as functions of what the program has at the times they read.

    variables  states at each of `limits.times`, implicit variables there, unknowns
    numbers    these times, inputs at each
    """
    count, known = len(limits.times), quantities(ivp)
    watched = [ca.SX(known[name]) for name in limits.watched]
    look = ca.Function("look", [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q], [stack(watched)])
    t, x, y, u = (
        ca.SX.sym(name, rows, count)
        for name, rows in zip("txyu", (1, *(s.numel() for s in (ivp.x, ivp.y, ivp.u))), strict=True)
    )
    seen = [look(t[j], x[:, j], y[:, j], u[:, j], ivp.q) for j in range(count)]
    rows = np.searchsorted(limits.times, [r.time for r in limits.readings])
    columns = [limits.watched.index(r.name) for r in limits.readings]
    readings = stack(seen[i][j] for i, j in zip(rows, columns, strict=True))
    v = ca.vertcat(ca.vec(x), ca.vec(y), ivp.q)
    values = limits.function(readings, ivp.q)[0]
    return piece(v, ca.vertcat(ca.vec(t), ca.vec(u)), values)


class Copies(NamedTuple):
    """A piece, N times.

    at       (n, N) which of the program's variables are the piece's
    numbers  (n_d, N)
    """

    piece: Piece
    at: IntArray
    numbers: FloatArray


class Squares(NamedTuple):
    """|matrix x - known|^2; matrix (m, n) is sparse."""

    matrix: Any
    known: FloatArray


@dataclass(frozen=True)
class Assembly:
    """The program in scaled variables x = variables / size.

    size       (n,) of the variables;  rows (m,) factors of the constraints;  unit of the objective
    """

    squares: Squares
    costs: Sequence[Copies]
    constraints: Sequence[Copies]
    size: FloatArray
    rows: FloatArray
    unit: float

    @property
    def program(self) -> dict[str, Any]:
        """As `casadi.nlpsol` needs it."""
        x = self._x
        return {"x": x, "f": self._objective(x), "g": self._values(x)}

    @property
    def functions(self) -> dict[str, Any]:
        """Derivatives as options of `casadi.nlpsol`."""
        x, none = self._x, ca.MX.sym("p", 0)
        f, g = self._objective(x), self._values(x)
        lam_f, lam_g = ca.MX.sym("lam_f"), ca.MX.sym("lam_g", len(self.rows))
        names = ["x", "p"], ["f", "grad_f_x"]
        return {
            "grad_f": ca.Function("nlp_grad_f", [x, none], [f, self._gradient(x)], *names),
            "jac_g": ca.Function("nlp_jac_g", [x, none], [g, self._jacobian(x)]),
            "hess_lag": ca.Function(
                "nlp_hess_l", [x, none, lam_f, lam_g], [self._hessian(x, lam_f, lam_g)]
            ),
        }

    def row_factors(self, variables: FloatArray) -> FloatArray:
        """(m,) what makes every constraint's largest derivative 1 there; 1 where there is none."""
        largest, places = np.zeros(len(self.rows)), self.jacobian_places
        values = [
            np.asarray(_called(c, c.piece.jacobian, ca.DM(variables))).ravel(order="F")
            for c in self.constraints
        ]
        entries = abs(np.concatenate(values) * self.size[places.columns])
        with np.errstate(invalid="ignore"):  # a row with nan is not usable
            np.maximum.at(largest, places.rows, entries)
        usable = np.isfinite(largest) & (largest > 0)
        return np.where(usable, 1 / np.where(usable, largest, 1.0), 1.0)

    @property
    def _x(self) -> Any:
        return ca.MX.sym("x", len(self.size))

    def _objective(self, x: Any) -> Any:
        costs = (ca.sum2(_called(c, c.piece.values, x * ca.DM(self.size))) for c in self.costs)
        return sum(costs, start=ca.sumsqr(self._linear(x))) / self.unit

    def _linear(self, x: Any) -> Any:
        scaled = _dm(self.squares.matrix @ sparse.diags(self.size))
        return ca.mtimes(scaled, x) - ca.DM(self.squares.known)

    def _values(self, x: Any) -> Any:
        unscaled = x * ca.DM(self.size)
        every = [ca.vec(_called(c, c.piece.values, unscaled)) for c in self.constraints]
        return ca.vertcat(*every) * ca.DM(self.rows)

    def _gradient(self, x: Any) -> Any:
        n, unscaled = len(self.size), x * ca.DM(self.size)
        scaled = _dm((self.squares.matrix @ sparse.diags(self.size)).T)
        gradient = 2 * ca.mtimes(scaled, self._linear(x))
        for c in self.costs:
            to = c.at[c.piece.of_jacobian.columns].ravel(order="F")
            values = ca.vec(_called(c, c.piece.jacobian, unscaled))
            gradient += ca.mtimes(_gathering(to, n), values) * ca.DM(self.size)
        return ca.densify(gradient / self.unit)

    def _jacobian(self, x: Any) -> Any:
        unscaled = x * ca.DM(self.size)
        values = [ca.vec(_called(c, c.piece.jacobian, unscaled)) for c in self.constraints]
        places = self.jacobian_places
        factors = self.rows[places.rows] * self.size[places.columns]
        shape = len(self.rows), len(self.size)
        return _matrix(ca.vertcat(*values) * ca.DM(factors), places, shape)

    @property
    def jacobian_places(self) -> Pattern:
        """Where the constraints' derivatives stand, piece after piece."""
        rows, columns, first = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)], 0
        for c in self.constraints:
            count = c.at.shape[1]
            own = c.piece.of_jacobian
            begins = first + c.piece.m * np.arange(count)
            rows.append((own.rows[:, None] + begins).ravel(order="F"))
            columns.append(c.at[own.columns].ravel(order="F"))
            first += c.piece.m * count
        return Pattern(np.concatenate(rows), np.concatenate(columns))

    def _hessian(self, x: Any, lam_f: Any, lam_g: Any) -> Any:
        unscaled, weighted = x * ca.DM(self.size), lam_g * ca.DM(self.rows)
        lam_f /= self.unit
        linear = sparse.triu(2 * self.squares.matrix.T @ self.squares.matrix).tocoo()
        multipliers, first = [lam_f] * len(self.costs), 0
        for c in self.constraints:
            count = c.at.shape[1]
            size = c.piece.m * count
            multipliers.append(ca.reshape(weighted[first : first + size], c.piece.m, count))
            first += size
        values = [ca.DM(linear.data) * lam_f]
        places = [Pattern(linear.row, linear.col)]
        for c, lam in zip((*self.costs, *self.constraints), multipliers, strict=True):
            values.append(ca.vec(_called(c, c.piece.hessian, unscaled, lam)))
            one, other = (c.at[part].ravel(order="F") for part in c.piece.of_hessian)
            places.append(Pattern(np.minimum(one, other), np.maximum(one, other)))
        all_places = Pattern(*(np.concatenate(part) for part in zip(*places, strict=True)))
        factors = self.size[all_places.rows] * self.size[all_places.columns]
        n = len(self.size)
        return _matrix(ca.vertcat(*values) * ca.DM(factors), all_places, (n, n))


def _called(copies: Copies, function: Any, variables: Any, lam: Any = None) -> Any:
    """The function of every copy, side by side."""
    n, count = copies.at.shape
    taken = ca.reshape(variables[copies.at.ravel(order="F").tolist()], n, count)
    arguments = [taken, ca.DM(copies.numbers)]
    if lam is not None:
        arguments.append(ca.repmat(lam, 1, count) if lam.shape[1] != count else lam)
    return function.map(count)(*arguments)


def _matrix(values: Any, places: Pattern, shape: tuple[int, int]) -> Any:
    """A sparse matrix; values at the same place are added."""
    key = places.columns.astype(np.int64) * shape[0] + places.rows
    distinct, which = np.unique(key, return_inverse=True)
    rows, columns = distinct % shape[0], distinct // shape[0]
    sparsity = ca.Sparsity.triplet(*shape, rows.tolist(), columns.tolist())
    return ca.MX(sparsity, ca.mtimes(_gathering(which, len(distinct)), values))


def _gathering(to: IntArray, size: int) -> Any:
    """The 0-1 matrix that adds each entry to its place."""
    ones = sparse.csc_matrix((np.ones(len(to)), (to, np.arange(len(to)))), (size, len(to)))
    return _dm(ones)


def _dm(matrix: Any) -> Any:
    columns = sparse.csc_matrix(matrix)
    columns.sort_indices()
    sparsity = ca.Sparsity(*columns.shape, columns.indptr.tolist(), columns.indices.tolist())
    return ca.DM(sparsity, columns.data)
