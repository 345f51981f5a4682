"""The variational equations, generated once and integrated along with the states.

With S = dx/dq W and Y = dy/dq W, where W = diag(scale) makes the columns comparable,

    dS/dt = f_x S + f_y Y + f_q W,     0 = g_x S + g_y Y + g_q W,     S(t0) = dx0/dq W.

Measured on the project's models this is three to six times faster than CVODES' own forward
sensitivities, which besides are wrong for right-hand sides without states (CasADi issue 4383).

All is without dimension: x and y are divided by their sizes, so that one absolute tolerance suits
them all, and time runs from 0 to 1 on each piece, as CasADi passes over steps below 1e-9.

Functions in which numbers are an input: problems that differ in numbers alone share one library.

Constant inputs, unknowns that are held and the model's own numbers come as constants of the
functions' operations. Here each use of a constant becomes an entry of a new last input, after
derivatives were taken and with the operations as they are, so that nothing computed changes by a
bit. Where CasADi simplifies (products with 0 or 1, half of twice something) the formula is another
one, and rightly so: with an input of 0 a product with log(0) is not there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Trajectory
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.operations import OPERATION_NAMES, apply_to_sx


@dataclass(frozen=True)
class Layout:
    """Which numbers a row tells of one time: how many of each, in this order.

    states, implicit, measured, d states / d unknowns and d measured / d unknowns, each row by row
    """

    states: int
    implicit: int
    measured: int
    unknowns: int

    @property
    def width(self) -> int:
        """Numbers in a row."""
        plain = self.states + self.implicit + self.measured
        return plain + (self.states + self.measured) * self.unknowns

    def trajectory(
        self, times: FloatArray, rows: FloatArray, status: Status, reached: float, reason: str
    ) -> Trajectory:
        """The rows (n_times, width) by name; all are views."""
        n, n_q, n_x, n_h = len(times), self.unknowns, self.states, self.measured
        a, b = n_x + self.implicit, n_x + self.implicit + n_h
        c = b + n_x * n_q
        return Trajectory(
            times=times,
            states=rows[:, :n_x],
            implicit=rows[:, n_x:a],
            measured=rows[:, a:b],
            by_unknown=rows[:, b:c].reshape(n, n_x, n_q),
            measured_by_unknown=rows[:, c:].reshape(n, n_h, n_q),
            status=status,
            reached=reached,
            reason=reason,
        )


@dataclass(frozen=True)
class Augmented:
    """An initial value problem and its variational equations as one; SX symbols.

    tau        time on a piece: t = begin + span tau
    x, z       differential and algebraic variables, divided by their sizes: [x, vec S], [y, vec Y]
    p          [q, scale, a, b, rows, begin, span]: unknowns, scale of the sensitivities, inputs as
               u = a + b t, what the algebraic equations are divided by, the piece
    ode, alg   their right-hand sides; ode by tau
    start      function (q, scale) -> initial x
    slope      function (tau, x, z, p) -> ode
    outputs    function (t, x, z, [q, scale, a, b]) -> one row of numbers in the model's units, as
               `Layout` places them
    layout     where they are
    """

    tau: Any
    x: Any
    z: Any
    p: Any
    ode: Any
    alg: Any
    start: Any
    slope: Any
    outputs: Any
    layout: Layout


def augmented(ivp: InitialValueProblem, *, sensitivities: bool) -> Augmented:
    """Append the variational equations to the problem (or nothing, without `sensitivities`)."""
    n_x, n_y = ivp.x.numel(), ivp.y.numel()
    n_q = ivp.q.numel() if sensitivities else 0
    tau, begin, span = (ca.SX.sym(n) for n in ("tau", "begin", "span"))
    scale = ca.SX.sym("scale", ivp.q.numel())
    a, b = ca.SX.sym("a", ivp.u.numel()), ca.SX.sym("b", ivp.u.numel())
    x, y = ca.SX.sym("x", n_x), ca.SX.sym("y", n_y)
    s, y_s = ca.SX.sym("S", n_x, n_q), ca.SX.sym("Y", n_y, n_q)
    size, size_y = (ca.DM(v.reshape(-1, 1)) for v in (ivp.scale, ivp.implicit_scale))

    def scaled(expression: Any, time: Any) -> Any:
        old = ca.vertcat(ivp.t, ivp.x, ivp.y, ivp.u)
        new = ca.vertcat(time, x * size, y * size_y, a + b * time)
        return ca.substitute(expression, old, new)

    def varied(expression: Any, product: Any = ca.mtimes) -> Any:
        if not n_q:
            return ca.SX(expression.numel(), 0)
        by_q = ca.jacobian(expression, ivp.q) @ ca.diag(scale)
        by_x, by_y = ca.jacobian(expression, x), ca.jacobian(expression, y)
        return product(by_x, s) + product(by_y, y_s) + by_q

    known, rows = ca.vertcat(ivp.q, scale, a, b), ca.SX.sym("rows", n_y)
    f, g = (scaled(e, begin + span * tau) for e in (ivp.f, ivp.g))
    f, g, h = span * f / size, g / rows, scaled(ivp.measured, ivp.t)
    start = ivp.start / size
    seed = ca.jacobian(start, ivp.q) @ ca.diag(scale) if n_q else ca.SX(n_x, 0)
    row = _row([x * size, y * size_y, s, h, varied(h, _without_rest)], size, scale[:n_q])
    xs, zs = ca.vertcat(x, ca.vec(s)), ca.vertcat(y, ca.vec(y_s))
    p = ca.vertcat(known, rows, begin, span)
    ode = ca.densify(ca.vertcat(f, ca.vec(varied(f))))
    columns = {
        "start": ([ivp.q, scale], ca.densify(ca.vertcat(start, ca.vec(seed)))),
        "slope": ([tau, xs, zs, p], ode),
        "outputs": ([ivp.t, xs, zs, known], row),
    }
    return Augmented(
        tau=tau,
        x=xs,
        z=zs,
        p=p,
        ode=ode,
        alg=ca.vertcat(g, ca.vec(varied(g))),
        layout=Layout(n_x, n_y, h.numel(), n_q),
        **{n: ca.Function(n, given, [formula]) for n, (given, formula) in columns.items()},
    )


def _row(parts: list[Any], size: Any, scale: Any) -> Any:
    """The numbers of one time as `Layout` has them; derivatives with their scaling taken back."""
    x, y, s, h, h_s = parts
    by_rows = [ca.vec((m @ ca.diag(1 / scale)).T) for m in (ca.diag(size) @ s, h_s)]
    return ca.densify(ca.vertcat(x, y, h, *by_rows))


def _without_rest(matrix: Any, change: Any) -> Any:
    """matrix @ change, in which what does not change counts as 0 even times infinity."""
    product = ca.SX.zeros(matrix.shape[0], change.shape[1])
    sparsity = matrix.sparsity()
    for i, k, slope in zip(*sparsity.get_triplet(), matrix.nonzeros(), strict=True):
        rest = change[k, :] == 0
        product[i, :] += ca.if_else(rest, 0, slope * change[k, :])
    return product


def started_anywhere(ivp: InitialValueProblem) -> InitialValueProblem:
    """The same equations with unknowns [start of each state, q]."""
    start = ca.SX.sym("s", ivp.x.numel())
    names = tuple(f"start of {n}" for n in ivp.states)
    return replace(
        ivp,
        unknowns=(*names, *ivp.unknowns),
        q=ca.vertcat(start, ivp.q),
        start=start,
        unknown_scale=np.concatenate([ivp.scale, ivp.unknown_scale]),
    )


class NumberedFunctions(NamedTuple):
    """Functions with the same last input, which is to be `numbers` (n,)."""

    functions: tuple[Any, ...]
    numbers: FloatArray


def lifted(functions: Sequence[Any]) -> NumberedFunctions:
    """The SX functions with their constants as an input; names and other inputs stay."""
    found: list[float] = []
    symbols: list[Any] = []
    given = [function.sx_in() for function in functions]
    results = [_without(f, g, found, symbols) for f, g in zip(functions, given, strict=True)]
    numbers = ca.vertcat(*symbols) if symbols else ca.SX(0, 1)
    made = (
        ca.Function(f.name(), [*g, numbers], r)
        for f, g, r in zip(functions, given, results, strict=True)
    )
    return NumberedFunctions(tuple(made), np.array(found, dtype=float))


def _without(function: Any, given: list[Any], found: list[float], symbols: list[Any]) -> list[Any]:
    """The results with a symbol for each use of a constant, which are added to both lists."""
    work: dict[int, Any | float] = {}
    entries: list[list[Any]] = [[None] * function.nnz_out(i) for i in range(function.n_out())]

    def operand(place: int) -> Any:
        value = work[place]
        if not isinstance(value, float):
            return value
        found.append(value)
        symbols.append(ca.SX.sym("number"))
        return symbols[-1]

    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if operation == ca.OP_OUTPUT:
            entries[outputs[0]][outputs[1]] = operand(inputs[0])
        elif operation == ca.OP_CONST:
            work[outputs[0]] = float(function.instruction_constant(k))
        elif operation == ca.OP_INPUT:
            work[outputs[0]] = given[inputs[0]].nz[inputs[1]]
        else:
            operands = [operand(i) for i in inputs]
            work[outputs[0]] = apply_to_sx(OPERATION_NAMES[operation], operands)
    patterns = (function.sparsity_out(i) for i in range(function.n_out()))
    return [
        ca.SX(pattern, ca.vertcat(*own)) if own else ca.SX(pattern)
        for pattern, own in zip(patterns, entries, strict=True)
    ]
