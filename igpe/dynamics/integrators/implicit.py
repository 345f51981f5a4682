"""Implicit algebraic variables: without dimension, and eliminated from compiled functions.

A function [h; g] of (t, [x, z], q, ab), where g = 0 gives z, becomes one of (t, x, q, ab) in C
(`runge_kutta_implicit.c`): Newton's method inside solves for z, and the derivatives of h are
h_x - h_z g_z^-1 g_x. Only the diagonal blocks of the block triangular form of g_z are factorised
(Dulmage and Mendelsohn), so that what each tray of a column solves for itself stays its own.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.equations.initial_value import InitialValueProblem

DECADES = 1e3  # ratio of positive bounds from which an implicit variable is a logarithm
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


def blocks_of(g_z: Any) -> list[tuple[list[int], list[int]]] | None:
    """Equations and variables of each diagonal block, those first that others need.

    g_z  a sparsity (n_z, n_z), equations by variables
    None where it is structurally singular, or where a block is too large
    """
    n, rows, columns, row_begins, column_begins, *_ = g_z.btf()
    square = list(row_begins) == list(column_begins) and ca.sprank(g_z) == g_z.size1()
    if not square or np.diff(row_begins).max() > LARGEST_BLOCK:
        return None
    ends = [slice(row_begins[k], row_begins[k + 1]) for k in range(n)]
    return [(list(rows[own]), list(columns[own])) for own in ends]


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
    blocks = blocks_of(ca.DM(by_x.sparsity(), 1.0)[n_x:, n_h:].sparsity().T)
    if blocks is None:
        return None
    table = _Table(n_x, n_h, blocks)
    table.add(by_x, 0, 0)
    table.add(by_q, n_x, by_x.nnz())
    table.close()
    entries, (work, iwork) = by_x.nnz() + by_q.nnz(), memory
    sizes = [n_x, n_q, n_z, n_h, len(blocks), entries, by_x.nnz(), work, iwork]
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

    def __init__(self, n_x: int, n_h: int, made: list[tuple[list[int], list[int]]]) -> None:
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
