"""The C source of the batch integrator: the model as CasADi writes it, its sizes, the driver."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.augmented import lifted
from igpe.dynamics.integrators.batch.runge_kutta_directions import directional, directions
from igpe.dynamics.integrators.tableaux import DORMAND_PRINCE, KENNEDY_CARPENTER, STAGES, Tableau
from igpe.equations.initial_value import InitialValueProblem

DRIVER = tuple(
    Path(__file__).with_name(f"runge_kutta_{part}.c") for part in ("model", "steps", "run", "back")
)
WRITTEN_OUT = 500  # entries of Jacobians up to which products are: they run faster, build longer


class Written(NamedTuple):
    """A C text, how many operations the model's functions have, and the numbers in them."""

    source: str
    length: int
    numbers: FloatArray


def written(ivp: InitialValueProblem) -> Written:
    """The source for a problem without implicit algebraic variables."""
    plain, jacobians = model_functions(ivp)
    (*functions, along), numbers = lifted([*plain, directional(plain[0])])
    generator = ca.CodeGenerator("igpe", {"with_header": False})
    for function in functions:
        generator.add(function)
    sizes = {
        "N_X": ivp.x.numel(),
        "N_Q": ivp.q.numel(),
        "N_U": ivp.u.numel(),
        "N_H": ivp.measured.numel(),
        "ARG": max(f.sz_arg() for f in functions),
        "RES": max(f.sz_res() for f in functions),
        "WORK": max(f.sz_w() for f in functions),
        "IWORK": max(f.sz_iw() for f in functions),
        "STAGES": STAGES,
    }
    lines = [f"#define {name} {size}" for name, size in sizes.items()]
    lines += [line for name, matrix in jacobians.items() for line in _places(name, matrix)]
    lines.append(f"#define PRODUCTS {_products(jacobians['FX'], jacobians['FQ'])}")
    lines += [*_numbers("DP", DORMAND_PRINCE), *_numbers("KC", KENNEDY_CARPENTER)]
    model = _unasked(generator.dump())
    lines += directions(along, plain[1], model)
    driver = (part.read_text() for part in DRIVER)
    source = "\n".join([model, *lines, *driver])
    return Written(source, sum(f.n_instructions() for f in plain), numbers)


def _unasked(text: str) -> str:
    """CasADi's C text without its question before each number whether its place is given: all are.

    It is 3 to 5 % of an integration with few directions, and some of the compiler's time.
    """
    read = re.sub(r"arg\[(\d+)\]\? (arg\[\1\]\[\d+\]) : 0", r"\2", text)
    return re.sub(r"if \(res\[\d+\]!=0\) ", "", read)


def model_functions(ivp: InitialValueProblem) -> tuple[list[Any], dict[str, Any]]:
    """Functions of (t, x, q, ab), with u = a + b t: f and h without and with their Jacobians.

    The Jacobians, by name, are sparse and transposed: C gives their entries row by row.
    """
    a, b = ca.SX.sym("a", ivp.u.numel()), ca.SX.sym("b", ivp.u.numel())
    f, h = ca.substitute([ivp.f, ivp.measured], [ivp.u], [a + b * ivp.t])
    given = [ivp.t, ivp.x, ivp.q, ca.vertcat(a, b)]
    names = {"FX": (f, ivp.x), "FQ": (f, ivp.q), "HX": (h, ivp.x), "HQ": (h, ivp.q)}
    jacobians = {name: ca.jacobian(*pair).T for name, pair in names.items()}
    f, h = ca.densify(f), ca.densify(h)
    functions = [
        ca.Function("igpe_slope", given, [f]),
        ca.Function("igpe_slopes", given, [f, jacobians["FX"], jacobians["FQ"]]),
        ca.Function("igpe_told", given, [h]),
        ca.Function("igpe_tolds", given, [h, jacobians["HX"], jacobians["HQ"]]),
    ]
    return functions, jacobians


def _places(name: str, transposed: Any) -> list[str]:
    """How many entries a sparse matrix has, their rows and columns, and where each row begins."""
    columns, rows = transposed.sparsity().get_triplet()
    lists = {"ROW": rows, "COL": columns, "FIRST": transposed.sparsity().colind()}
    return [f"#define {name}_N {len(rows)}"] + [
        f"static const int {name}_{kind}[] = {{{', '.join(map(str, places)) or '0'}}};"
        for kind, places in lists.items()
    ]


def _products(by_x: Any, by_q: Any) -> str:
    """All rows of f_x S + f_q D, written out unless they are long."""
    if by_x.nnz() + by_q.nnz() > WRITTEN_OUT:
        return "LOOPED"
    words = []
    for row in range(by_x.size2()):
        words.append(f"ROW({row})")
        for macro, matrix in (("BY_X", by_x), ("BY_Q", by_q)):
            first, columns = matrix.sparsity().colind(), matrix.sparsity().row()
            words += [f"{macro}({m}, {columns[m]})" for m in range(first[row], first[row + 1])]
        words.append(f"ENDS({row})")
    return " ".join(words)


def _numbers(name: str, pair: Tableau) -> list[str]:
    """A Runge-Kutta pair: A, C, E (error), D (dense output), P (predictors)."""
    matrices = {"A": pair.a, "D": pair.dense, "P": pair.predictors}
    lines = [f"#define {name}_STAGES {pair.stages}"]
    lines += [
        f"static const double {name}_{letter}[{len(m)}][{m.shape[1]}] = {_rows(m)};"
        for letter, m in matrices.items()
    ]
    vectors = {"C": pair.c, "E": pair.error}
    lines += [f"static const double {name}_{n}[] = {_row(v)};" for n, v in vectors.items()]
    return lines


def _rows(matrix: FloatArray) -> str:
    return "{" + ", ".join(_row(row) for row in matrix) + "}"


def _row(numbers: FloatArray) -> str:
    return "{" + ", ".join(repr(float(v)) for v in np.asarray(numbers)) + "}"
