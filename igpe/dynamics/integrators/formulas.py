"""Formulas before they are C: their numbers apart, implicit variables eliminated, sparse factors.

`SharedFormula` makes each use of a constant an entry of a new last input, before derivatives are
taken, with the operations as they are, so that no value changes by a bit. Constants that
differentiation treats in a way of their own, as exponents, stay in the formula. A number that most
rows of many contain, as the width of a cell, is one entry, and what rows compute of it is computed
once: it is the model's, and no experiment's own. Where CasADi
simplifies (products with 0 or 1) the formula is another one, and rightly so: with an input of 0 a
product with log(0) is not there. Equal formulas are derived and compiled once.

Implicit algebraic variables z: a function [h; g] of (t, [x, z], q, ab), where g = 0 gives z,
becomes one of (t, x, q, ab) in C (`runge_kutta_implicit.c`). Newton's method inside solves for z,
and the derivatives of h are h_x - h_z g_z^-1 g_x. Only the diagonal blocks of the block triangular
form of g_z are factorised (Dulmage and Mendelsohn), so that what each tray of a column solves for
itself stays its own.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.sparse import coo_matrix

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.equations.incidence import Block, blocks
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.operations import OPERATION_NAMES, apply_to_sx, operation_names

LIFTED = {
    getattr(ca, f"OP_{n}")
    for n in ("ADD", "SUB", "MUL", "DIV", "LT", "LE", "EQ", "NE", "IF_ELSE_ZERO", "FMIN", "FMAX")
} | {ca.OP_OUTPUT}
"""Operations whose derivative is the same formula whatever their constants are."""
MANY = 40  # rows from which numbers that they have in common are looked for


class SharedFormula:
    """An SX function with its numbers apart. Equal ones differ in nothing but these.

    plain    the function as it was
    numbers  (n,) what its last input, which `function` has besides, is to be
    """

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self._steps = list(_steps(plain))
        values = [value for *_, lifted in self._steps for value in lifted.values()]
        self._places = _places(values, plain.size1_out(0))
        self.numbers: FloatArray = np.empty(max(self._places, default=-1) + 1)
        self.numbers[self._places] = values
        sizes = [str(plain.sparsity_in(i)) for i in range(plain.n_in())]
        results = [
            (plain.size_out(i), plain.sparsity_out(i).row(), plain.sparsity_out(i).colind())
            for i in range(plain.n_out())
        ]
        built = [
            (operation, inputs, outputs, value, tuple(lifted))
            for operation, inputs, outputs, value, lifted in self._steps
        ]
        parts = sizes, results, built, self._places
        self.key = hashlib.sha256(repr(parts).encode()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharedFormula) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def function(self) -> Any:
        """The function with its numbers as a last input."""
        given, numbers = self.plain.sx_in(), ca.SX.sym("number", len(self.numbers))
        single = ca.vertsplit(numbers) if len(self.numbers) else ()
        left, work = (single[k] for k in self._places), dict[int, Any]()
        results = [[ca.SX(0)] * self.plain.nnz_out(i) for i in range(self.plain.n_out())]
        for operation, inputs, outputs, value, lifted in self._steps:
            if operation == ca.OP_CONST:
                work[outputs[0]] = ca.SX(value)
            elif operation == ca.OP_INPUT:
                work[outputs[0]] = given[inputs[0]].nz[inputs[1]]
            else:
                operands = [next(left) if i in lifted else work[k] for i, k in enumerate(inputs)]
                if operation == ca.OP_OUTPUT:
                    results[outputs[0]][outputs[1]] = operands[0]
                else:
                    work[outputs[0]] = apply_to_sx(OPERATION_NAMES[operation], operands)
        patterns = (self.plain.sparsity_out(i) for i in range(self.plain.n_out()))
        made = [
            ca.SX(pattern, ca.vertcat(*own)) if own else ca.SX(pattern)
            for pattern, own in zip(patterns, results, strict=True)
        ]
        return ca.Function(self.plain.name(), [*given, numbers], self.once(made))

    def once(self, results: Sequence[Any]) -> list[Any]:
        """Results in which what rows have in common is computed once, if numbers are shared."""
        is_shared = len(self._places) > len(self.numbers)
        return list(ca.cse(list(results))) if is_shared else list(results)


def _places(values: Sequence[float], rows: int) -> list[int]:
    """Where each number stands among the different ones; only frequent ones stand together."""
    counts = Counter(values) if rows >= MANY else Counter[float]()
    together: dict[float, int] = {}
    places: list[int] = []
    free = 0
    for value in values:
        place = together.get(value, free)
        if value and 2 * counts[value] >= rows:  # 0 has two signs
            together[value] = place
        free += place == free
        places.append(place)
    return places


def _steps(function: Any) -> Iterator[tuple[int, list[int], list[int], float, dict[int, float]]]:
    """Operation, where it reads and writes, its constant, and operands that are lifted."""
    constants: dict[int, float] = {}
    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        lifted: dict[int, float] = {}
        if operation == ca.OP_CONST:
            constants[outputs[0]] = float(function.instruction_constant(k))
            continue
        if operation != ca.OP_INPUT:
            lifted = {i: constants[n] for i, n in enumerate(inputs) if n in constants}
        if lifted and operation not in LIFTED:
            for i, number in lifted.items():
                yield ca.OP_CONST, [], [inputs[i]], number, {}
            lifted = {}
        if operation != ca.OP_OUTPUT:
            constants.pop(outputs[0], None)
        yield operation, inputs, outputs, 0.0, lifted


DECADES = 1e3  # ratio of positive bounds from which an implicit variable is a logarithm
SLACK = 1e-6  # how far beyond a bound a root may lie, relative to its size
LARGEST_BLOCK = 100  # variables that only a common solution gives: factors of a block are dense


@dataclass(frozen=True)
class ImplicitUnits:
    """Implicit variables y (n_y,) without dimension: y / size, or its logarithm.

    logarithmic  (n_y,) where: see `DECADES`
    """

    size: FloatArray
    logarithmic: BoolArray

    @classmethod
    def of(cls, ivp: InitialValueProblem) -> "ImplicitUnits":
        """Those of a problem."""
        return cls(ivp.implicit_scale, (ivp.lower > 0) & (ivp.upper >= DECADES * ivp.lower))

    def there(self, y: FloatArray) -> FloatArray:
        """Without dimension."""
        z = y / self.size
        return np.where(self.logarithmic, np.log(np.where(self.logarithmic, z, 1.0)), z)

    def back(self, z: FloatArray) -> FloatArray:
        """In the model's units."""
        return self.size * np.where(self.logarithmic, np.exp(np.where(self.logarithmic, z, 0.0)), z)

    def symbols_back(self, z: Any) -> Any:
        """The same of a CasADi vector."""
        every = (ca.exp(z[i]) if log else z[i] for i, log in enumerate(self.logarithmic.tolist()))
        return ca.vertcat(ca.SX(0, 1), *every) * ca.DM(self.size.reshape(-1, 1))


class Eliminated(NamedTuple):
    """What C needs to eliminate z, and what is left.

    source      the tables, and the functions without and with Jacobians
    by_x, by_q  transposed patterns of the Jacobians of h: (n_x, n_h), (n_q, n_h)
    reals, integers  memory of the functions
    """

    source: str
    by_x: Any
    by_q: Any
    reals: int
    integers: int


def blocks_of(g_z: Any) -> list[Block] | None:
    """Equations and variables of each diagonal block, those first that others need.

    g_z  a sparsity (n_z, n_z), equations by variables
    None where it is structurally singular, or where a block is too large
    """
    rows, columns = (np.array(index, dtype=int) for index in g_z.get_triplet())
    if ca.sprank(g_z) < g_z.size1():
        return None
    pattern = coo_matrix((np.ones(len(rows)), (rows, columns)), g_z.shape)
    made = blocks(pattern, range(g_z.size1()), range(g_z.size1()))
    return made if max(len(block.rows) for block in made) <= LARGEST_BLOCK else None


def eliminated(
    name: str, memory: tuple[int, int], by_x: Any, by_q: Any, n_z: int
) -> Eliminated | None:
    """C functions `name` and, with Jacobians, `name`s of (t, x, q, ab); None as in `blocks_of`.

    They call those that stand above them with _raw and _raws behind the name, which are of
    (t, [x, z], q, ab) and give [h; g].

    memory      numbers and integers that these need
    by_x, by_q  their Jacobians, transposed: (n_x + n_z, n_h + n_z), (n_q, n_h + n_z)
    """
    n_x, n_q, n_h = by_x.size1() - n_z, by_q.size1(), by_x.size2() - n_z
    made = blocks_of(ca.DM(by_x.sparsity(), 1.0)[n_x:, n_h:].sparsity().T)
    if made is None:
        return None
    table = _Table(n_x, n_h, made)
    table.add(by_x, 0, 0)
    table.add(by_q, n_x, by_x.nnz())
    table.close()
    entries, (work, iwork) = by_x.nnz() + by_q.nnz(), memory
    sizes = [n_x, n_q, n_z, n_h, len(made), entries, by_x.nnz(), work, iwork]
    reals = work + entries + table.lu_at[-1] + table.by_at[-1] + 2 * n_x + n_q + 3 * n_z + n_h
    return Eliminated(
        table.text(name, sizes),
        _pattern(n_x, [[c for c in row if c < n_x] for row in table.kept]),
        _pattern(n_q, [[c - n_x for c in row if c >= n_x] for row in table.kept]),
        reals,
        iwork + n_z,
    )


def _pattern(size: int, columns: list[list[int]]) -> Any:
    """A matrix (size, columns) of ones, each column with entries in such rows."""
    begins = np.cumsum([0, *map(len, columns)]).tolist()
    every = [row for column in columns for row in column]
    return ca.DM(ca.Sparsity(size, len(columns), begins, every), 1.0)


class _Table:
    """Places of all entries, row by row: the equations in the order of the blocks, then h."""

    def __init__(self, n_x: int, n_h: int, made: list[Block]) -> None:
        self.n_x, self.n_h = n_x, n_h
        self.equation = [k for rows, _ in made for k in rows]
        self.variable = [k for _, columns in made for k in columns]
        sizes = [len(rows) for rows, _ in made]
        self.begin = np.cumsum([0, *sizes]).tolist()
        self.block = np.repeat(np.arange(len(made)), sizes).tolist()
        self.row_of = [*(len(self.equation) + k for k in range(n_h))]
        self.row_of += np.argsort(self.equation).tolist()
        self.place_of = np.argsort(self.variable).tolist()
        n = len(self.row_of)
        self.by_z: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        self.own: list[list[tuple[int, int]]] = [[] for _ in range(n)]

    def add(self, matrix: Any, shift: int, before: int) -> None:
        """Entries of a transposed Jacobian: columns from `shift` on, `before` entries of others."""
        columns, rows = matrix.sparsity().get_triplet()
        for at, (column, row) in enumerate(zip(columns, rows, strict=True), before):
            if not shift and column >= self.n_x:
                self.by_z[self.row_of[row]].append((self.place_of[column - self.n_x], at))
            else:
                self.own[self.row_of[row]].append((column + shift, at))

    def close(self) -> None:
        """Which columns of (x, q) move each block, and each row of h; where numbers stand."""
        moving: list[set[int]] = []
        for first, end in zip(self.begin, self.begin[1:], strict=False):
            moving.append(self._moving(range(first, end), first, moving))
        n_z = len(self.equation)
        kept = [self._moving([n_z + i], n_z, moving) for i in range(self.n_h)]
        self.kept = [sorted(columns) for columns in kept]
        self.some = [*map(sorted, moving), *self.kept]
        sizes = np.diff(self.begin)
        self.lu_at = np.cumsum([0, *(sizes**2)]).tolist()
        self.by_at = np.cumsum([0, *(sizes * [len(m) for m in moving])]).tolist()

    def _moving(self, rows: Any, first: int, moving: list[set[int]]) -> set[int]:
        found = {column for row in rows for column, _ in self.own[row]}
        before = {self.block[place] for row in rows for place, _ in self.by_z[row] if place < first}
        return found.union(*(moving[k] for k in before))

    def text(self, name: str, sizes: list[int]) -> str:
        """The tables as C, and the functions."""
        arrays = {"begin": self.begin, "block": self.block}
        arrays |= {"variable": self.variable, "equation": self.equation}
        for kind, every in (("z", self.by_z), ("own", self.own)):
            flat = [pair for row in every for pair in row]
            arrays[f"{kind}_first"] = np.cumsum([0, *map(len, every)]).tolist()
            arrays[f"{kind}_col"] = [column for column, _ in flat]
            arrays[f"{kind}_at"] = [at for _, at in flat]
        arrays["some_first"] = np.cumsum([0, *map(len, self.some)]).tolist()
        arrays["some"] = [column for row in self.some for column in row]
        arrays |= {"lu_at": self.lu_at, "by_at": self.by_at}
        lines = [
            f"static const int {name}_{array}[] = {{{', '.join(map(str, v)) or '0'}}};"
            for array, v in arrays.items()
        ]
        numbers = [f"{name}_raw", f"{name}_raws", *map(str, sizes)]
        numbers += [f"{name}_{array}" for array in arrays]
        lines.append(f"static const Implicit {name}_all = {{{', '.join(numbers)}}};")
        given = "const double **arg, double **res, casadi_int *iw, double *w, int m"
        for k, function in enumerate((name, f"{name}s")):
            call = f"implicit_call(&{name}_all, arg, res, iw, w, {k})"
            lines.append(f"CASADI_SYMBOL_EXPORT int {function}({given}) {{ return {call}; }}")
        return "\n".join(lines)


FEW = 12  # rows up to which dense factors are as fast
SHARE = 0.3  # of all entries that sparse factors may have


def sparse_factors(by_x: Any) -> dict[str, IntArray]:
    """The places of L and U by the minimum degree; none where they are few or would be dense.

    by_x  a CasADi matrix (n, n): its entries, and those of its transpose, may be other than 0. The
          diagonal is always.

    lu_order     (n,) row and column that comes k-th;  lu_place: its inverse
    lu_first     (n + 1,) where the entries of each row begin
    lu_col       places in the new order of the entries, ascending in each row
    lu_diagonal  (n,) the entry on the diagonal of each row

    The row with the fewest entries in what is left comes next (Tinney and Walker 1967, Proceedings
    of the IEEE 55, 1801-1809, scheme 2), so that elimination adds few. Of several it is the one
    that was not touched for longest: neighbours then seldom follow each other, and a processor
    works at both ends of a band at once, where each row would else wait for the one before.
    """
    n = by_x.size1()
    if n <= FEW:
        return {}
    both = by_x.sparsity() + by_x.sparsity().T
    ends, rows = both.colind(), both.row()
    left = [set(rows[ends[i] : ends[i + 1]]) - {i} for i in range(n)]
    remaining, order, room = set(range(n)), list[int](), SHARE * n * n - n
    touched = [0] * n
    while remaining:
        i = min(remaining, key=lambda k: (len(left[k]), touched[k], -k))
        remaining.remove(i)
        order.append(i)
        room -= 2 * len(left[i])
        if room < 0:
            return {}
        for j in left[i]:
            left[j] |= left[i]
            left[j] -= {i, j}
            touched[j] = len(order)
    place = np.argsort(order)
    entries: list[list[int]] = [[k] for k in range(n)]
    for k, i in enumerate(order):  # what was left of row i when its turn came
        for j in place[list(left[i])].tolist():
            entries[k].append(j)
            entries[j].append(k)
    first = np.cumsum([0, *map(len, entries)])
    below = np.array([sum(j < k for j in row) for k, row in enumerate(entries)])
    return {
        "lu_order": np.array(order),
        "lu_place": place,
        "lu_first": first,
        "lu_col": np.concatenate([np.sort(row) for row in entries]),
        "lu_diagonal": first[:-1] + below,
    }


SINGULAR = {"DIV", "INV", "POW", "CONSTPOW", "SQRT", "LOG", "LOG1P", "TAN", "ASIN", "ACOS", "ATANH"}
SINGULAR |= {"ACOSH", "LGAMMA", "EXP", "EXPM1", "SINH", "COSH"}
"""Operations that may have no finite value, or no finite derivative, where operands are finite."""


def singular(ivp: InitialValueProblem) -> int:
    """How many operations of the formulas may have no finite value."""
    columns = [ca.densify(e) for e in (ivp.f, ivp.g, ivp.measured)]
    function = ca.Function("all", [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q], columns)
    return sum(name in SINGULAR for name in operation_names(function))
