"""A Pyomo model as an AMPL `.nl` file, and such a file in CasADi, scaled."""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException
from pyomo.repn.plugins.nl_writer import NLWriter

from igpe.arrays import FloatArray
from igpe.solvers.base import Answer, Solver, no_solver, objective_of
from igpe.status import Status


@dataclass(frozen=True)
class Written:
    """What stands in the file.

    variables    the free Pyomo variables, in the file's order
    refusal      why the model cannot be solved: a constraint without free variables is violated;
                 empty if there is none
    constraints  the active Pyomo constraints, in the file's order
    """

    variables: tuple[Any, ...]
    refusal: str = ""
    constraints: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Sizes:
    """Typical magnitudes, in the model's own units.

    IPOPT's tolerances are absolute: a model in units of 1e-12 is solved before it has begun.

    variables  Pyomo variable -> magnitude, > 0; variables left out have 1
    objective  > 0
    """

    variables: Mapping[Any, float] = field(default_factory=pyo.ComponentMap)
    objective: float = 1.0


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


def write_nl(model: Any, path: Path) -> Written:
    """Write the active part of the model; fixed variables become numbers.

    Neither presolve nor scaling is asked for, so that columns and variables correspond.
    """
    with path.open("w", newline="\n") as stream:
        try:
            info = NLWriter().write(
                model,
                stream,
                linear_presolve=False,
                scale_model=False,
                symbolic_solver_labels=False,
            )
        except InfeasibleConstraintException as error:
            return Written((), str(error))
    return Written(tuple(info.variables), constraints=tuple(info.constraints))


def load(variables: tuple[Any, ...], values: Any) -> None:
    """Give the variables their values; what the solver leaves outside a bound is moved onto it."""
    for variable, value in zip(variables, values, strict=True):
        number = float(value)
        if variable.lb is not None:
            number = max(number, variable.lb)
        if variable.ub is not None:
            number = min(number, variable.ub)
        variable.set_value(number, skip_validation=True)


def read_scaled(path: Path, written: Written, sizes: Sizes | None) -> Scaled:
    """Read an `.nl` file into CasADi; without sizes nothing is scaled."""
    model = ca.NlpBuilder()
    model.import_nl(str(path), {})
    bounds = np.array([model.g_lb, model.g_ub], dtype=float).reshape(2, -1)
    # Scalar operations instead of MX: five times faster to evaluate.
    columns, constraints = ca.vertcat(*model.x), ca.vertcat(*model.g)
    whole = ca.Function("model", [columns], [model.f, constraints]).expand()
    x = ca.SX.sym("x", len(model.x))
    size, rows = np.ones(len(model.x)), np.ones(bounds.shape[1])
    if sizes is None:
        f, g = whole(x)
    else:
        size = np.array([sizes.variables.get(v, 1.0) for v in written.variables])
        f, g = whole(ca.DM(size) * x)
        rows = _row_factors(x, g, columns_of(written.variables)[0] / size)
        f, g = f / sizes.objective, g * ca.DM(rows)
    unit = 1.0 if sizes is None else sizes.objective
    return Scaled({"x": x, "f": f, "g": g}, size, rows, bounds * rows, unit)


def _row_factors(x: Any, g: Any, point: FloatArray) -> FloatArray:
    """What makes every constraint's largest derivative 1; 1 where there is none."""
    jacobian = ca.Function("jacobian", [x], [ca.jacobian(g, x)])(point)
    largest = np.zeros(g.numel())
    entries = np.abs(np.array(jacobian.nonzeros(), dtype=float))
    with np.errstate(invalid="ignore"):  # a row with nan is not usable
        np.maximum.at(largest, np.array(jacobian.sparsity().row(), dtype=np.intp), entries)
    usable = np.isfinite(largest) & (largest > 0)
    return np.where(usable, 1 / np.where(usable, largest, 1.0), 1.0)


def columns_of(variables: tuple[Any, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values, lower and upper bounds; 0 where there is no value."""
    value = [0.0 if v.value is None else v.value for v in variables]
    lower = [v.value if v.fixed else -np.inf if v.lb is None else v.lb for v in variables]
    upper = [v.value if v.fixed else np.inf if v.ub is None else v.ub for v in variables]
    return np.array(value, float), np.array(lower, float), np.array(upper, float)


def solve_in_folder(
    solver: Solver, model: Any, solve: Callable[[Path, Written, Any], Answer]
) -> Answer:
    """The answer of a solver that reads the model from `model.nl` in a folder of its own.

    solve  (folder, what stands in the file, the model's objective) -> Answer; not called if the
           solver is not there or the file cannot be written. The folder is removed.
    """
    if not solver.available():
        return no_solver(solver)
    begun = time.perf_counter()
    objective = objective_of(model)
    with tempfile.TemporaryDirectory(prefix="igpe") as folder:
        written = write_nl(model, Path(folder) / "model.nl")
        if written.refusal:
            answer = Answer(Status.INFEASIBLE, message=written.refusal)
        else:
            answer = solve(Path(folder), written, objective)
    return replace(answer, seconds=time.perf_counter() - begun)
