"""Which equation contains which unknown, and which must be differentiated.

What incidence alone says is Dulmage and Mendelsohn's decomposition. The work is done by CasADi's
`Sparsity.btf`, which is CSparse's `cs_dmperm` (Davis 2006): ten to a hundred times as fast as
graphs of Python objects (`benchmarks/structure.py`). SciPy's `maximum_bipartite_matching` may take
exponential time (SciPy issue 26147).

Equations of higher index are differentiated exactly. Where equations constrain states alone, slopes
and algebraic variables do not follow from them at one time. Sets of equations that hold fewer
highest derivatives than they are (the overdetermined part of Dulmage and Mendelsohn) are
differentiated until none is left (Pantelides 1988, SIAM J. Sci. Stat. Comput. 9, 213): the smallest
number of times that structure asks for.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.sparse import coo_matrix, csc_array, hstack

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import ModelError
from igpe.equations.operations import in_words, operation_names
from igpe.equations.symbols import Symbols, stack


class DulmageMendelsohn(NamedTuple):
    """Dulmage-Mendelsohn parts of a system, as indices of its equations (rows) and unknowns.

    under_rows, under_columns   more unknowns than equations: not computable
    well_rows, well_columns     square: may stand alone; matched in this order
    over_rows, over_columns     more equations than unknowns: redundant, or contradictory
    spare_rows                  among over_rows: equations left without an unknown
    spare_columns               among under_columns: unknowns left without an equation
    """

    under_rows: list[int]
    under_columns: list[int]
    well_rows: list[int]
    well_columns: list[int]
    over_rows: list[int]
    over_columns: list[int]
    spare_rows: list[int]
    spare_columns: list[int]


class Block(NamedTuple):
    """Equations and as many unknowns that must be solved together."""

    rows: list[int]
    columns: list[int]


def incidence(residual: Any, unknowns: Any) -> coo_matrix:
    """Pattern of the derivative of `residual` with respect to `unknowns` (CasADi SX vectors)."""
    pattern = ca.jacobian_sparsity(residual, unknowns)
    rows, columns = (np.array(index, dtype=int) for index in pattern.get_triplet())
    return coo_matrix((np.ones(len(rows)), (rows, columns)), shape=pattern.shape)


def parts(pattern: coo_matrix) -> DulmageMendelsohn:
    """The under-, well- and over-constrained parts of a pattern."""
    rows, columns, coarse_rows, coarse_columns, _ = _decomposed(pattern)
    # CasADi's order: unmatched rows, over with its columns, well, under, unmatched columns.
    spare_rows, over, well, under = (rows[a:b] for a, b in pairwise(coarse_rows))
    over_columns, well_columns, under_columns, spare_columns = (
        columns[a:b] for a, b in pairwise(coarse_columns)
    )
    order = np.argsort(well)
    return DulmageMendelsohn(
        under_rows=sorted(under.tolist()),
        under_columns=sorted([*spare_columns.tolist(), *under_columns.tolist()]),
        well_rows=well[order].tolist(),
        well_columns=well_columns[order].tolist(),
        over_rows=sorted([*spare_rows.tolist(), *over.tolist()]),
        over_columns=sorted(over_columns.tolist()),
        spare_rows=sorted(spare_rows.tolist()),
        spare_columns=sorted(spare_columns.tolist()),
    )


def blocks(pattern: coo_matrix, rows: Sequence[int], columns: Sequence[int]) -> list[Block]:
    """Block triangular form of a square part with a perfect matching: solvable one by one.

    Of blocks that could come next, the one with the first row does.
    """
    if not rows:
        return []
    own, theirs = np.array(rows), np.array(columns)
    square = csc_array(pattern)[:, theirs].tocsr()[own].tocsc()
    in_rows, in_columns, _, _, edges = _decomposed(square)
    n = len(edges) - 1
    block = np.repeat(np.arange(n), np.diff(edges))  # of each place in the order
    of_row, of_column = np.empty_like(block), np.empty_like(block)
    of_row[in_rows], of_column[in_columns] = block, block
    entries = square.tocoo()
    needs = np.divmod(np.unique(n * of_column[entries.col] + of_row[entries.row]), n)
    i, j = own[in_rows], theirs[in_columns]
    order = np.lexsort((i, block))
    i, j = i[order].tolist(), j[order].tolist()
    gathered = [Block(i[a:b], j[a:b]) for a, b in pairwise(edges)]
    return [gathered[k] for k in _in_turn(needs, [b.rows[0] for b in gathered])]


def matching(pattern: coo_matrix) -> dict[int, int]:
    """A largest matching, row -> column."""
    rows, columns, coarse_rows, _, _ = _decomposed(pattern)
    return dict(sorted(zip(rows[coarse_rows[1] :].tolist(), columns.tolist(), strict=False)))


def dependent(residual: Any, unknowns: Any) -> Iterator[Block]:
    """Linear blocks with singular matrices: combinations of their equations lose the unknowns.

    Incidence does not see that: each block is looked at where all quantities are random. Blocks
    that jump are left out, as random values may see a branch that the model never takes.
    """
    pattern = incidence(residual, unknowns)
    pairs = matching(pattern)
    rng = np.random.default_rng(0)
    for block in blocks(pattern, [*pairs], [*pairs.values()]):
        equations = stack(residual[r] for r in block.rows)
        own = stack(unknowns[c] for c in block.columns)
        if len(block.rows) == 1 or any(ca.which_depends(equations, own, 2)):
            continue
        by = ca.jacobian(equations, own)
        there = ca.symvar(by)
        matrix = ca.Function("matrix", [stack(there)], [ca.densify(by)])
        if ABRUPT & {*operation_names(matrix)}:
            continue
        at = [matrix(rng.uniform(0.5, 1.5, len(there))).full() for _ in range(2)]
        if all(np.isfinite(m).all() and _is_singular(m) for m in at):
            yield block


CANCELLED = 1e-10  # a difference of so little, relative to its terms, is 0


def combinations(block: Block, residual: Any, unknowns: Any, p: Any) -> dict[int, Any] | None:
    """Combinations of equations of a `dependent` block that are free of its unknowns.

    p        symbols on which the factors of a combination may depend
    returns  row -> an expression that is zero where the block's equations hold, and that may take
             the place of this row; None where factors depend on anything else

    Gaussian elimination in symbols. What is zero is seen where all quantities are random, and
    factors that are the same at two such places are numbers.
    """
    own, equations = unknowns[block.columns], residual[block.rows]
    a, n = ca.densify(ca.jacobian(equations, own)), len(block.rows)
    b, there = ca.substitute(equations, own, ca.SX.zeros(n)), ca.symvar(a)
    rng, matrix = np.random.default_rng(0), ca.Function("matrix", [stack(there)], [a])
    numbers = np.array([matrix(rng.uniform(0.5, 1.5, len(there))).full() for _ in range(2)])
    left = list(range(n))
    for j in range(n):
        pivots = [i for i in left if numbers[:, i, j].all()]
        if not pivots:
            continue
        left.remove(pivot := pivots[0])
        for i in (i for i in left if numbers[:, i, j].any()):
            ratio = numbers[:, i, j] / numbers[:, pivot, j]
            is_number = bool(np.ptp(ratio) <= CANCELLED * np.abs(ratio[0]))
            factor = ca.SX(float(ratio[0])) if is_number else a[i, j] / a[pivot, j]
            if any(ca.which_depends(factor, stack(v for v in there if not ca.depends_on(p, v)))):
                return None
            terms = numbers[:, i], ratio[:, None] * numbers[:, pivot]
            difference = terms[0] - terms[1]
            zero = np.abs(difference) <= CANCELLED * (np.abs(terms[0]) + np.abs(terms[1]))
            numbers[:, i] = np.where(zero, 0.0, difference)
            for k in np.flatnonzero(~zero.all(axis=0)).tolist():
                a[i, k] -= factor * a[pivot, k]
            b[i] -= factor * b[pivot]
    return {block.rows[i]: b[i] for i in left}


def _is_singular(matrix: FloatArray) -> bool:
    """Whether a matrix is, whatever the units of its rows and columns are."""
    for axis in (0, 1):
        size = np.abs(matrix).max(axis=axis, keepdims=True)
        matrix = matrix / np.where(size > 0, size, 1.0)
    return bool(np.linalg.matrix_rank(matrix) < len(matrix))


def _decomposed(pattern: Any) -> tuple[IntArray, IntArray, list[int], list[int], list[int]]:
    """Rows and columns in the order of the decomposition; where its parts begin and end.

    The parts are four of rows, four of columns, and the blocks of the block triangular form.
    """
    by_column = csc_array(pattern)
    by_column.sum_duplicates()  # and sorted, as CasADi needs it
    sparsity = ca.Sparsity(*by_column.shape, by_column.indptr.tolist(), by_column.indices.tolist())
    _, rows, columns, fine, _, coarse_rows, coarse_columns = sparsity.btf()
    return np.array(rows, int), np.array(columns, int), coarse_rows, coarse_columns, fine


def _in_turn(needs: tuple[IntArray, IntArray], first: Sequence[int]) -> list[int]:
    """Topological order of blocks; where there is a choice, that of the least `first`.

    needs  ascending pairs: a block, and one that contains its unknowns, also itself
    """
    n = len(first)
    others = needs[0] != needs[1]
    solved, containing = needs[0][others], needs[1][others]
    left = np.bincount(containing, minlength=n).tolist()
    begins = np.searchsorted(solved, np.arange(n + 1)).tolist()
    later = containing.tolist()
    ready = sorted((first[k], k) for k in range(n) if not left[k])
    order = []
    while ready:
        _, k = heapq.heappop(ready)
        order.append(k)
        for other in later[begins[k] : begins[k + 1]]:
            left[other] -= 1
            if not left[other]:
                heapq.heappush(ready, (first[other], other))
    return order


MOST = 10  # times that an equation is differentiated
ABRUPT = frozenset([
    "LT",
    "LE",
    "EQ",
    "NE",
    "NOT",
    "AND",
    "OR",
    "IF_ELSE_ZERO",
    "FLOOR",
    "CEIL",
    "SIGN",
    "FABS",
    "FMIN",
    "FMAX",
    "FMOD",
    "REMAINDER",
])
"""Operations whose results jump, or whose slopes do."""


class Row(NamedTuple):
    """An equation, or its derivative by time.

    name        of the model's constraint
    level       how often it was differentiated
    expression  SX, zero where the model holds
    """

    name: str
    level: int
    expression: Any

    @property
    def full_name(self) -> str:
        """The constraint's name with a stroke for each derivative."""
        return self.name + "'" * self.level


@dataclass
class DerivativeArray:
    """Equations with all derivatives that they need.

    rows       all of them, in the order of the equations
    levels     equation -> how often it was differentiated, where it was
    further    name -> symbol of derivatives that the model does not have: d(d(x)), d(z)
    inputs     (input, order) -> the symbol of its derivative
    has_algebraic  whether an algebraic variable itself is among the highest derivatives
    """

    rows: list[Row] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)
    further: dict[str, Any] = field(default_factory=dict)
    inputs: dict[tuple[int, int], Any] = field(default_factory=dict)
    has_algebraic: bool = False

    @property
    def are_highest(self) -> list[bool]:
        """Of each row whether no higher derivative of its equation is left."""
        highest = {row.name: row.level for row in self.rows}
        return [row.level == highest[row.name] for row in self.rows]

    @property
    def index(self) -> int:
        """The structural index."""
        return max(self.levels.values(), default=0) + self.has_algebraic


def at_any_order(residual: Any, symbols: Symbols) -> DulmageMendelsohn:
    """Which equation holds which variable, be it as itself or as its slope."""
    states = incidence(residual, symbols.x) + incidence(residual, symbols.dx)
    return parts(coo_matrix(hstack([states, incidence(residual, symbols.z)])))


def differentiated(names: tuple[str, ...], residual: Any, symbols: Symbols) -> DerivativeArray:
    """The equations with their derivatives, for a system that `at_any_order` is square.

    raises ModelError if one of those to be differentiated is not smooth
    """
    growing = _Array(residual, symbols)
    while spare := parts(growing.pattern()):
        if not spare.spare_rows:
            break
        for i in spare.over_rows:
            if len(growing.rows[i]) > MOST:
                raise ModelError(
                    f"The equation '{names[i]}' would have to be differentiated more than "
                    f"{MOST} times; igpe does not support such a high index."
                )
            growing.rows[i].append(growing.derivative(names[i], growing.rows[i][-1]))
    array = DerivativeArray(inputs=growing.inputs)
    array.levels = {n: len(r) - 1 for n, r in zip(names, growing.rows, strict=True) if len(r) > 1}
    array.has_algebraic = any(len(chain) == 1 for chain in growing.chains)
    array.rows = [
        Row(name, level, expression)
        for name, levels in zip(names, growing.rows, strict=True)
        for level, expression in enumerate(levels)
    ]
    own = len(symbols.states)
    for k, chain in enumerate(growing.chains):
        name = symbols.states[k] if k < own else symbols.algebraics[k - own]
        for order, symbol in enumerate(chain):
            if order > (k < own):
                array.further["d(" * order + name + ")" * order] = symbol
    _substitute(array)
    return array


def abrupt(expression: Any) -> frozenset[str]:
    """Names of the expression's operations whose results or slopes jump."""
    function = ca.Function("e", [stack(ca.symvar(expression))], [expression])
    return ABRUPT.intersection(operation_names(function))


class _Array:
    """Derivatives as they are needed.

    chains  of each variable its symbol and those of its derivatives, as far as they occur
    rows    of each equation its expression and those of its derivatives
    """

    def __init__(self, residual: Any, symbols: Symbols) -> None:
        pairs = zip(ca.vertsplit(symbols.x), ca.vertsplit(symbols.dx), strict=True)
        self.chains = [*map(list, pairs), *([z] for z in ca.vertsplit(symbols.z))]
        self.rows = [[e] for e in ca.vertsplit(residual)]
        self.inputs: dict[tuple[int, int], Any] = {}
        self.symbols = symbols

    def pattern(self) -> coo_matrix:
        """Which highest row holds which highest derivative."""
        return incidence(stack(r[-1] for r in self.rows), stack(c[-1] for c in self.chains))

    def derivative(self, name: str, expression: Any) -> Any:
        """The total derivative by time."""
        held = ca.symvar(expression)
        if jumps := abrupt(expression):
            raise ModelError(
                f"The model has a higher index, so the equation '{name}' must be "
                f"differentiated with respect to time, but it contains {in_words(jumps)}, "
                "which is not smooth. Write a smooth transition, for example 1/(1 + "
                "pyo.exp(-(a - b)/width))."
            )
        slopes = ca.jacobian(expression, stack(held))
        total = ca.SX(0)
        for j in slopes.sparsity().get_col() if slopes.nnz() else ():
            total += slopes[0, j] * self._next(held[j])
        return total

    def _next(self, symbol: Any) -> Any:
        """The time derivative of a symbol; one that did not occur is made."""

        def is_it(one: Any) -> bool:
            return bool(one.element_hash() == symbol.element_hash())

        if is_it(self.symbols.t):
            return ca.SX(1)
        for chain in self.chains:
            for order in (k for k, one in enumerate(chain) if is_it(one)):
                if order == len(chain) - 1:
                    chain.append(ca.SX.sym(f"d({symbol})"))
                return chain[order + 1]
        given = {(i, 0): u for i, u in enumerate(ca.vertsplit(self.symbols.u))} | self.inputs
        for i, order in (key for key, u in given.items() if is_it(u)):
            return self.inputs.setdefault((i, order + 1), ca.SX.sym(f"d({symbol})"))
        return ca.SX(0)  # parameters and start values stay


def _substitute(array: DerivativeArray) -> None:
    """Leave out further derivatives that a derivative of an equation gives with a number as factor.

    d(d(x)) = d(u) where d(x) = u.
    """
    changed = True
    while changed:
        changed = False
        for name, symbol in list(array.further.items()):
            place = next((k for k, r in enumerate(array.rows) if r.level and _gives(r, symbol)), -1)
            if place < 0:
                continue
            row = array.rows.pop(place)
            rest = ca.substitute(row.expression, symbol, 0)
            value = -rest / ca.jacobian(row.expression, symbol)
            del array.further[name]
            array.rows = [
                r._replace(expression=ca.substitute(r.expression, symbol, value))
                for r in array.rows
            ]
            changed = True


def _gives(row: Row, symbol: Any) -> bool:
    factor = ca.jacobian(row.expression, symbol)
    return bool(factor.nnz() and factor.is_constant() and float(factor) != 0)
