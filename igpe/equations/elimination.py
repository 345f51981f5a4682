"""Solving the equations for slopes and algebraic variables, explicitly where that is possible.

The block triangular form says in which order; a block that is linear in its few unknowns is solved
with symbols. Of any other block those unknowns are eliminated that an equation gives from the
others, as a difference quotient in space; the rest stays implicit and becomes the algebraic
variables y of

    dx = f(t, x, y, u, p),    0 = g(t, x, y, u, p).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.incidence import blocks, incidence, matching
from igpe.equations.symbols import stack

LARGEST_SYMBOLIC = 3  # blocks up to this size are solved by symbols; larger ones grow too long
PIVOT = 1e-6  # of the largest factor in an equation, by which it may be divided
INDEPENDENT = 1e-7  # of the longest: what others leave of a row that is independent of them
SWEEPS = 3  # over rows and columns, to give them equal lengths
ROUNDS = 3  # of eliminations in a block; more would be Gauss's algorithm without pivots


@dataclass(frozen=True)
class Solved:
    """Unknowns as expressions of known symbols and of those unknowns that stayed implicit.

    expressions  one for each unknown asked for, in their order; an implicit one stands for itself
    implicit     indices of the unknowns that stayed implicit
    remaining    SX vector, zero at the solution, as long as `implicit`
    """

    expressions: tuple[Any, ...]
    implicit: tuple[int, ...]
    remaining: Any


def solve_for(
    residual: Any,
    unknowns: Any,
    rows: Sequence[int],
    columns: Sequence[int],
    *,
    any_value: Set[int] = frozenset(),
    squares: bool = False,
) -> Solved:
    """Solve the equations `rows` for the unknowns `columns`: a square part with a matching.

    any_value  unknowns that neither bounds nor a start value tell from another root: they may be
             eliminated from blocks that stay implicit
    squares  also through square roots: the square of a negative value is no solution, so only
             where that value is known to be a root, as a measured one is
    """
    pattern = incidence(residual, unknowns)
    adjacent = pattern.tocsr()
    solved: dict[int, Any] = {}
    implicit: list[int] = []
    remaining: list[Any] = []
    for block in blocks(pattern, list(rows), list(columns)):
        needed = sorted({int(j) for r in block.rows for j in adjacent[r].indices} & solved.keys())
        equations = stack(residual[r] for r in block.rows)
        if needed:
            old, new = stack(unknowns[j] for j in needed), stack(solved[j] for j in needed)
            equations = ca.substitute(equations, old, new)
        own = stack(unknowns[j] for j in block.columns)
        given: dict[int, Any] = {}
        left = list(range(own.numel()))
        answer = _solve_block(equations, own, squares=squares)
        if answer is None:
            eligible = [k for k, j in enumerate(block.columns) if j in any_value]
            given, equations = _eliminated(equations, own, eligible)
            left = [k for k in left if k not in given]
            answer = _solve_block(equations, own[left], squares=squares) if given else None
        if answer is None:
            implicit += [block.columns[k] for k in left]
            remaining.append(equations)
        else:
            given = {k: ca.substitute(e, own[left], answer) for k, e in given.items()}
            given |= {k: answer[i] for i, k in enumerate(left)}
        solved |= {block.columns[k]: e for k, e in given.items()}
    return Solved(
        expressions=tuple(solved.get(j, unknowns[j]) for j in columns),
        implicit=tuple(implicit),
        remaining=stack(remaining),
    )


def solve_all(residual: Any, unknowns: Any, any_value: Set[int] = frozenset()) -> Solved:
    """Solve a whole square system, in the order of its unknowns; `any_value` as in `solve_for`."""
    rows = {c: r for r, c in matching(incidence(residual, unknowns)).items()}
    columns = range(unknowns.numel())
    return solve_for(residual, unknowns, [rows[j] for j in columns], columns, any_value=any_value)


def _eliminated(
    equations: Any, unknowns: Any, eligible: Sequence[int]
) -> tuple[dict[int, Any], Any]:
    """Unknowns as expressions of those that are left, and the equations that these are to meet.

    An equation gives an unknown that it holds with a number as factor.
    """
    given: dict[int, Any] = {}
    for _ in range(ROUNDS):
        definitions = _definitions(equations, unknowns, [k for k in eligible if k not in given])
        if not definitions:
            break
        old = stack(unknowns[k] for k in definitions)
        new = stack(expression for _, expression in definitions.values())
        rows = {r for r, _ in definitions.values()}
        equations = stack(equations[r] for r in range(equations.numel()) if r not in rows)
        equations = ca.substitute(equations, old, new)
        given = {k: ca.substitute(e, old, new) for k, e in given.items()}
        given |= {k: e for k, (_, e) in definitions.items()}
    return given, equations


def _definitions(
    equations: Any, unknowns: Any, eligible: Sequence[int]
) -> dict[int, tuple[int, Any]]:
    """Unknown -> row that gives it, and its expression, which holds none of the others."""
    matrix = ca.jacobian(equations, unknowns)
    held: list[set[int]] = [set() for _ in range(equations.numel())]
    for r, k in zip(*matrix.sparsity().get_triplet(), strict=True):
        held[r].add(k)
    definitions: dict[int, tuple[int, Any]] = {}
    others = set[int]()
    for r, inside in enumerate(held):
        if inside & definitions.keys() or len(inside) == 1:
            continue
        factors = {k: abs(float(matrix[r, k])) for k in inside if matrix[r, k].is_constant()}
        candidates = [k for k in sorted(inside - others) if k in eligible and k in factors]
        k = max(candidates, key=lambda k: factors[k], default=None)
        if k is not None and factors[k] > PIVOT * max(factors.values()):
            rest = ca.substitute(equations[r], unknowns[k], 0)
            definitions[k] = r, -rest / matrix[r, k]
            others |= inside - {k}
    return definitions


def _solve_block(equations: Any, unknowns: Any, *, squares: bool) -> Any | None:
    """The unknowns of a linear block, or the one that can be isolated; None of any other block."""
    answer = _solve_linear(equations, unknowns)
    if answer is None and unknowns.numel() == 1:
        return inverted(equations, unknowns, squares=squares)
    return answer


def _solve_linear(equations: Any, unknowns: Any) -> Any | None:
    if unknowns.numel() > LARGEST_SYMBOLIC or any(ca.which_depends(equations, unknowns, 2)):
        return None
    matrix = ca.jacobian(equations, unknowns)
    constant = ca.substitute(equations, unknowns, ca.SX.zeros(unknowns.numel()))
    return -constant / matrix if unknowns.numel() == 1 else ca.solve(matrix, -constant)


def _exponential(logarithm: Any) -> Any:
    """exp(logarithm), where n log(x) in the sum becomes a factor x^n."""
    factors, others, todo = ca.SX(1), ca.SX(0), [(logarithm, 1)]
    while todo:
        term, sign = todo.pop()
        op, parts = term.op(), [term.dep(i) for i in range(term.n_dep())]
        if op in (ca.OP_ADD, ca.OP_SUB):
            todo += [(parts[1], sign if op == ca.OP_ADD else -sign), (parts[0], sign)]
        elif op == ca.OP_NEG:
            todo.append((parts[0], -sign))
        elif (power := _power(term)) is not None:
            factors = factors * power if sign > 0 else factors / power
        else:
            others = others + term if sign > 0 else others - term
    return factors * ca.exp(others)


def _power(term: Any) -> Any | None:
    """x of log(x), x^n of n log(x) and of log(x) / n; None of other terms."""
    op, parts = term.op(), [term.dep(i) for i in range(term.n_dep())]
    if op == ca.OP_LOG:
        return parts[0]
    if op == ca.OP_TWICE and parts[0].op() == ca.OP_LOG:
        return parts[0].dep(0) ** 2
    if op == ca.OP_DIV and parts[0].op() == ca.OP_LOG:
        return parts[0].dep(0) ** (1 / parts[1])
    if op == ca.OP_MUL:
        for logarithm, n in (parts, parts[::-1]):
            if logarithm.op() == ca.OP_LOG:
                return logarithm.dep(0) ** n
    return None


INVERSES: Mapping[int, Callable[[Any, Any, bool], Any]] = {
    ca.OP_ADD: lambda right, other, _: right - other,
    ca.OP_SUB: lambda right, other, first: right + other if first else other - right,
    ca.OP_MUL: lambda right, other, _: right / other,
    ca.OP_DIV: lambda right, other, first: right * other if first else other / right,
    ca.OP_NEG: lambda right, *_: -right,
    ca.OP_INV: lambda right, *_: 1 / right,
    ca.OP_TWICE: lambda right, *_: right / 2,
    ca.OP_EXP: lambda right, *_: ca.log(right),
    ca.OP_LOG: lambda right, *_: _exponential(right),
}
"""Operation -> its operand from (value, other operand, whether the operand is the first)."""
WITH_SQUARES = {**INVERSES, ca.OP_SQRT: lambda right, *_: right**2}


def inverted(equation: Any, unknown: Any, *, squares: bool = False) -> Any | None:
    """The unknown from an equation = 0 in which it stands once; None if it cannot be isolated.

    squares  see `solve_for`
    """
    left, right = equation, ca.SX(0)
    while not ca.is_equal(left, unknown):
        parts = [left.dep(i) for i in range(left.n_dep())]
        having = [i for i, part in enumerate(parts) if any(ca.which_depends(part, unknown))]
        inverse = (WITH_SQUARES if squares else INVERSES).get(left.op())
        if inverse is None or len(having) != 1:
            return None
        place = having[0]
        right = inverse(right, parts[1 - place] if len(parts) > 1 else None, place == 0)
        left = parts[place]
    return right


def independent_rows(rows: FloatArray, ranks: Sequence[Any], number: int) -> list[int]:
    """Choose so many rows that do not depend on each other; of low rank first, then the longest.

    rows    (n, m);  ranks: of each, sorted
    returns fewer where there are no more
    """
    chosen = _greedy(rows, ranks, number)
    return chosen if len(chosen) == number else _greedy(_equilibrated(rows), ranks, number)


def _equilibrated(rows: FloatArray) -> FloatArray:
    """Rows and columns of about equal lengths; those as short as dependent rows stay as they are.

    Derivatives in space are large on fine grids, and those of derivatives far larger.
    """
    for _ in range(SWEEPS):
        for axis in (1, 0):
            length = np.linalg.norm(rows, axis=axis, keepdims=True)
            rows = rows / np.where(length > INDEPENDENT, length, 1.0)
    return rows


def _greedy(rows: FloatArray, ranks: Sequence[Any], number: int) -> list[int]:
    rest, chosen = rows, list[int]()
    least = INDEPENDENT * float(np.linalg.norm(rows, axis=1).max(initial=0.0))
    for rank in sorted(set(ranks)):
        own = [i for i, r in enumerate(ranks) if r == rank]
        while len(chosen) < number:
            left = np.linalg.norm(rest[own], axis=1)
            best = own[int(np.argmax(left))]
            if not left.max() > least:
                break
            chosen.append(best)
            axis = rest[best] / left.max()
            rest = rest - np.outer(rest @ axis, axis)
    return chosen


class InPlace:
    """A CasADi function called on arrays in place, without the conversions of an ordinary call.

    Every result must be given a place.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self._buffer, self.evaluate = function.buffer()
        self._kept: dict[tuple[str, int], Any] = {}  # CasADi holds addresses alone

    def read(self, index: int, array: FloatArray) -> None:
        """Where an argument stands from now on; in memory in CasADi's order, column by column."""
        kept: Any = np.ascontiguousarray(array)
        self._kept["read", index] = kept
        self._buffer.set_arg(index, memoryview(kept))

    def write(self, index: int, array: Any) -> None:
        """Where a result goes from now on."""
        self._kept["write", index] = array
        self._buffer.set_res(index, memoryview(array))


TOGETHER = 16  # points: functions of so many, or twice as many, ..., are kept


class AtPoint:
    """A CasADi function of dense columns, called at single points, some thirty times as fast."""

    def __init__(self, function: Any) -> None:
        self.function, self._mapped = function, dict[int, AtPoint]()
        self._call = InPlace(function)
        n, m = function.n_in(), function.n_out()
        self._read = [np.zeros(function.numel_in(k)) for k in range(n)]
        self._written = [np.zeros(function.size_out(k)[::-1]) for k in range(m)]
        for k, array in enumerate(self._read):
            if array.size:
                self._call.read(k, array)
        for k, array in enumerate(self._written):
            if array.size:
                self._call.write(k, array)

    def __reduce__(self) -> tuple[type["AtPoint"], tuple[Any]]:
        return AtPoint, (self.function,)

    def at(self, n: int, *arguments: FloatArray) -> list[FloatArray]:
        """The results (rows, n) at n points; arguments (n, columns), or (columns,) for all."""
        size = -(-n // TOGETHER) * TOGETHER
        if size not in self._mapped:
            self._mapped[size] = AtPoint(self.function.map(size))
        given = []
        for k, argument in enumerate(arguments):
            given.append(np.empty((size, self.function.numel_in(k))))
            given[k][:n] = argument
            given[k][n:] = given[k][n - 1]
        return [rows[:, :n] for rows in self._mapped[size](*(v.ravel() for v in given))]

    def __call__(self, *arguments: FloatArray | float) -> list[FloatArray]:
        """The results (rows, columns) for columns, or numbers."""
        for array, given in zip(self._read, arguments, strict=True):
            array[:] = given
        self._call.evaluate()
        return [array.T.copy() for array in self._written]
