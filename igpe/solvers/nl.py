"""A Pyomo model as an AMPL `.nl` file, such a file in CasADi, and without definitions.

A variable without finite bounds that an equation gives explicitly (it stands there with a constant
factor) is not searched over but substituted: nothing is lost, as nothing bounds it, and a global
solver has fewer variables to branch on. A single finite bound it has becomes a constraint.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException, InvalidValueError
from pyomo.common.log import LoggingIntercept
from pyomo.repn.plugins.nl_writer import NLWriter

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.solvers.base import Answer, Solver, divided, no_solver, objective_of

HEADER, NAMED = 10, 2  # lines before the segments; where a suffix's name stands
SOS = {"sosno", "ref"}


@dataclass(frozen=True)
class NlFile:
    """Contents of the file.

    variables    the free Pyomo variables, in the file's order
    refusal      why the model cannot be solved: a constraint without free variables is violated, or
                 an expression of known numbers has no value; empty if there is none
    constraints  the active Pyomo constraints, in the file's order
    status       where there is a refusal
    """

    variables: tuple[Any, ...]
    refusal: str = ""
    constraints: tuple[Any, ...] = ()
    status: Status = Status.INFEASIBLE


@dataclass(frozen=True)
class Scaled:
    """The program in scaled variables.

    variables  (n,), what to multiply program["x"] with
    rows       (n_constraints,), what constraints have been multiplied with
    bounds     (2, n_constraints), scaled lower and upper bounds of the constraints
    objective  what to multiply program["f"] with
    """

    program: dict[str, Any]
    variables: FloatArray
    rows: FloatArray
    bounds: FloatArray
    objective: float


def write_nl(model: Any, path: Path) -> NlFile:
    """Write the active part of the model; fixed variables become numbers.

    Neither presolve nor scaling is requested, so that columns and variables correspond.
    """
    with path.open("w", newline="\n") as stream:
        try:
            plain = {
                "linear_presolve": False,
                "scale_model": False,
                "symbolic_solver_labels": False,
            }
            with LoggingIntercept(module="pyomo"):  # it would print what it raises
                info = NLWriter().write(model, stream, **plain)
        except InfeasibleConstraintException as error:
            return NlFile((), str(error))
        except InvalidValueError as error:  # K / u at u = 0
            return NlFile((), str(error), status=Status.FAILED)
    return NlFile(tuple(info.variables), constraints=tuple(info.constraints))


def load(variables: tuple[Any, ...], values: Any, outside: float = np.inf) -> str:
    """Give the variables their values; what lies beside a bound is moved onto it.

    outside  by which values may lie outside bounds, relative to bounds above 1
    returns  the first value that lies farther outside, in words; else an empty string
    """
    for variable, value in zip(variables, values, strict=True):
        number, (low, high) = float(value), variable.bounds
        inside = _between(number, low, high)
        if abs(number - inside) > outside * max(1.0, abs(inside)):
            return f"'{variable.name}' = {number:.6g}, bounds {low} and {high}"
        variable.set_value(inside, skip_validation=True)
    return ""


def _between(number: float, low: float | None, high: float | None) -> float:
    return min(max(number, -np.inf if low is None else low), np.inf if high is None else high)


def violation(constraints: tuple[Any, ...], tolerance: float) -> str:
    """Return the first constraint that does not hold at the variables' values, in words.

    tolerance  relative to limits above 1
    """
    for constraint in constraints:
        if not hasattr(constraint, "body"):  # a logical one
            continue
        try:
            body = float(pyo.value(constraint.body))
        except (ArithmeticError, TypeError, ValueError):
            body = np.nan
        low, high = pyo.value(constraint.lb), pyo.value(constraint.ub)
        inside = _between(body, low, high)
        if not abs(body - inside) <= tolerance * max(1.0, abs(inside)):
            return f"'{constraint.name}' is {body:.6g}, limits {low} and {high}"
    return ""


def read(path: Path) -> Scaled:
    """Read an `.nl` file into CasADi; nothing is scaled.

    Suffixes are taken out of the file: CasADi cannot read them. Those of SOS constraints stay.
    """
    lines, k = path.read_text(encoding="utf-8").splitlines(keepends=True), HEADER
    while k < len(lines):
        words = lines[k].split()
        if lines[k].startswith("S") and len(words) > NAMED and words[NAMED] not in SOS:
            del lines[k : k + 1 + int(words[1])]
        else:
            k += 1
    path.write_text("".join(lines), encoding="utf-8")
    model = ca.NlpBuilder()
    model.import_nl(str(path), {})
    bounds = np.array([model.g_lb, model.g_ub], dtype=float).reshape(2, -1)
    # Scalar operations instead of MX: five times faster to evaluate.
    columns, constraints = ca.vertcat(*model.x), ca.vertcat(*model.g)
    program = ca.Function("model", [columns], [model.f, constraints]).expand()
    x = ca.SX.sym("x", len(model.x))
    f, g = program(x)
    size, rows = np.ones(len(model.x)), np.ones(bounds.shape[1])
    return Scaled({"x": x, "f": f, "g": g}, size, rows, bounds, 1.0)


def columns_of(variables: tuple[Any, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values, lower and upper bounds; 0 where there is no value."""
    value = [0.0 if v.value is None else v.value for v in variables]
    lower = [v.value if v.fixed else -np.inf if v.lb is None else v.lb for v in variables]
    upper = [v.value if v.fixed else np.inf if v.ub is None else v.ub for v in variables]
    return np.array(value, float), np.array(lower, float), np.array(upper, float)


def solve_in_folder(
    solver: Solver, model: Any, solve: Callable[[Path, NlFile, Any], Answer], unit: float = 1.0
) -> Answer:
    """The answer of a solver that reads the model from `model.nl` in a folder of its own.

    solve  (folder, what stands in the file, the model's objective) -> Answer; not called if the
           solver is not there or the file cannot be written. The folder is removed.
    unit   what the objective is divided by in the file
    """
    if not solver.available():
        return no_solver(solver)
    start = time.perf_counter()
    objective = objective_of(model)
    with tempfile.TemporaryDirectory(prefix="igpe") as folder:
        with divided(objective, unit):
            written = write_nl(model, Path(folder) / "model.nl")
        if written.refusal:
            answer = Answer(written.status, message=written.refusal)
        else:
            answer = solve(Path(folder), written, objective)
    return replace(answer, seconds=time.perf_counter() - start)


@dataclass(frozen=True)
class ReducedProgram:
    """The program in the n columns that are left, of n_all.

    kept          (n,) their places among all columns
    x, f, g       SX: columns (n,), objective, constraints (m,)
    start         (n,) where the columns stand, scaled
    lower, upper  (n,) their bounds, scaled; infinite where an unbounded one is not defined
    bounds        (2, m) of the constraints
    expand        CasADi function (n,) -> (n_all,)
    """

    kept: tuple[int, ...]
    x: Any
    f: Any
    g: Any
    start: FloatArray
    lower: FloatArray
    upper: FloatArray
    bounds: FloatArray
    expand: Any

    @property
    def unbounded(self) -> tuple[int, ...]:
        """Places among all columns of variables that lack a finite bound."""
        loose = ~(np.isfinite(self.lower) & np.isfinite(self.upper))
        return tuple(k for k, is_loose in zip(self.kept, loose, strict=True) if is_loose)


def reduce(
    scaled: Scaled, start: FloatArray, lower: FloatArray, upper: FloatArray
) -> ReducedProgram:
    """Substitute what equations define.

    start, lower, upper  (n_all,) where the columns stand and their bounds, before scaling
    """
    x, g = scaled.program["x"], scaled.program["g"]
    start, lower, upper = (c / scaled.variables for c in (start, lower, upper))
    loose = ~(np.isfinite(lower) & np.isfinite(upper))
    chosen = _defined(x, g, scaled.bounds, loose)
    columns = [j for j, _, _ in chosen]
    symbols = [x[j] for j in columns]
    rest = [ca.substitute(g[i] - scaled.bounds[0, i], x[j], 0) for j, i, _ in chosen]
    values = [-v / factor for v, (_, _, factor) in zip(rest, chosen, strict=True)]
    f = scaled.program["f"]
    if symbols:
        values, (f, g) = ca.substitute_inplace(symbols, values, [f, g], False)
    rows = sorted(set(range(g.numel())) - {i for _, i, _ in chosen})
    half = [k for k, j in enumerate(columns) if np.isfinite([lower[j], upper[j]]).any()]
    sides = [np.array([[lower[columns[k]]], [upper[columns[k]]]]) for k in half]
    kept = tuple(sorted(set(range(x.numel())) - set(columns)))
    left = x[list(kept)]
    full = ca.SX(x)
    for j, value in zip(columns, values, strict=True):
        full[j] = value
    return ReducedProgram(
        kept,
        left,
        f,
        ca.vertcat(*(g[i] for i in rows), *(values[k] for k in half)),
        start[list(kept)],
        lower[list(kept)],
        upper[list(kept)],
        np.hstack([scaled.bounds[:, rows], *sides]),
        ca.Function("expand", [left], [full]),
    )


def _defined(x: Any, g: Any, bounds: FloatArray, loose: Any) -> list[tuple[int, int, float]]:
    """(column, row, factor) of definitions, so ordered that each needs only earlier ones."""
    jacobian = ca.jacobian(g, x)
    entries: dict[int, dict[int, Any]] = {}
    for i, j in zip(*jacobian.sparsity().get_triplet(), strict=True):
        if bounds[0, i] == bounds[1, i] and loose[j]:
            entries.setdefault(i, {})[j] = jacobian[i, j]
    chosen: dict[int, tuple[int, float]] = {}
    needs: dict[int, set[int]] = {}
    for i, row in entries.items():
        for j, entry in row.items():
            needed = set(row) - {j}
            needed |= {far for k in needed for far in needs.get(k, ())}
            factor = float(entry) if entry.is_constant() else 0.0
            if j in chosen or j in needed or factor == 0.0:
                continue
            chosen[j], needs[j] = (i, factor), needed
            for known in needs.values():
                known.update(needed if j in known else ())
            break
    order = sorted(chosen, key=lambda j: len(needs[j] & chosen.keys()))
    return [(j, *chosen[j]) for j in order]
