"""IPOPT: the program where there is one, else the IPOPT inside CasADi.

Waechter and Biegler, "On the implementation of an interior-point filter line-search algorithm for
large-scale nonlinear programming", Math. Program. 106 (2006).
"""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.arrays import FloatArray
from igpe.solvers.base import Answer, no_solver, objective_of
from igpe.solvers.nl import Written, load, write_nl
from igpe.solvers.program import AmplProgram, locate
from igpe.status import Status

STATUSES = {
    "Solve_Succeeded": Status.CONVERGED,
    "Solved_To_Acceptable_Level": Status.CONVERGED,
    "Feasible_Point_Found": Status.CONVERGED,
    "Search_Direction_Becomes_Too_Small": Status.ITERATION_LIMIT,
    "Infeasible_Problem_Detected": Status.INFEASIBLE,
    "Maximum_Iterations_Exceeded": Status.ITERATION_LIMIT,
    "User_Requested_Stop": Status.TIME_LIMIT,
}
"""IPOPT's return statuses; every other is a failure."""


class Prepared(Protocol):
    """A model that is solved again and again."""

    def solve(self, time_limit: float | None = None) -> Answer:
        """Solve from the variables' present values; see `igpe.solvers.base.Solver.solve`.

        Between solves values and bounds of variables may change, and variables that were free may
        be fixed (and freed again). Whatever else changes (expressions, mutable Params, variables
        that were fixed when it was prepared, what is active) is not seen: prepare anew.
        """
        ...


@dataclass(frozen=True)
class Ipopt:
    """Local optimisation by an interior point method, with exact second derivatives.

    program         program to prefer if it is on PATH; "" always takes the IPOPT inside CasADi
    tolerance       of the scaled optimality conditions
    max_iterations  before it gives up
    options         more of IPOPT's options: (("mu_strategy", "adaptive"), ...)
    """

    program: str = "ipopt"
    tolerance: float = 1e-9
    max_iterations: int = 500
    options: tuple[tuple[str, str | int | float], ...] = ()

    @property
    def install(self) -> str:
        """The sentence that says how to install it."""
        return "IPOPT comes with CasADi: `pip install casadi`, or `conda install ipopt`."

    def available(self) -> bool:
        """Whether there is a program, or CasADi has IPOPT inside."""
        return locate(self.program) is not None or bool(ca.has_nlpsol("ipopt"))

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """See `igpe.solvers.base.Solver.solve`."""
        if not self.available():
            return no_solver(self)
        begun = time.perf_counter()
        answer = self.prepare(model).solve(time_limit)
        return replace(answer, seconds=time.perf_counter() - begun)

    def prepare(self, model: Any) -> Prepared:
        """Translate the model once, for several solves.

        raises ModelError unless there is exactly one active objective, to be minimised
        """
        objective = objective_of(model)
        settings = {"tol": self.tolerance, "max_iter": self.max_iterations, **dict(self.options)}
        if locate(self.program) is not None:
            return _WithProgram(model, self.program, settings)
        if not ca.has_nlpsol("ipopt"):
            return _Refused(no_solver(self))
        with tempfile.TemporaryDirectory(prefix="igpe") as folder:
            path = Path(folder) / "model.nl"
            written = write_nl(model, path)
            if written.refusal:
                return _Refused(Answer(Status.INFEASIBLE, message=written.refusal))
            if not written.variables:
                return _Refused(Answer(Status.CONVERGED, float(pyo.value(objective))))
            return _embedded(path, written, objective, settings)


@dataclass(frozen=True)
class _Refused:
    """Nothing to solve: the answer is known beforehand."""

    answer: Answer

    def solve(self, time_limit: float | None = None) -> Answer:
        return self.answer


@dataclass(frozen=True)
class _WithProgram:
    model: Any
    program: str
    settings: dict[str, Any]

    def solve(self, time_limit: float | None = None) -> Answer:
        words = tuple(f"{k}={v}" for k, v in self.settings.items())
        program = AmplProgram(self.program, words, time_option="max_wall_time")
        return program.solve(self.model, time_limit=time_limit)


@dataclass(frozen=True)
class _Embedded:
    """CasADi's IPOPT with compiled functions of the model.

    rows  (2, n_constraints), lower and upper bounds of the constraints
    """

    solver: Any
    clock: "_Clock"
    written: Written
    objective: Any
    rows: FloatArray

    def solve(self, time_limit: float | None = None) -> Answer:
        begun = time.perf_counter()
        self.clock.deadline = np.inf if time_limit is None else begun + time_limit
        start, lower, upper = _columns(self.written.variables)
        found = self.solver(x0=start, lbx=lower, ubx=upper, lbg=self.rows[0], ubg=self.rows[1])
        said = self.solver.stats()
        message = str(said["return_status"])
        point = np.asarray(found["x"]).ravel()
        status = STATUSES.get(message, Status.FAILED)
        objective = np.nan
        if status.usable and np.isfinite(point).all():
            load(self.written.variables, point)
            objective = float(pyo.value(self.objective))
        return Answer(
            status,
            objective,
            message=message,
            seconds=time.perf_counter() - begun,
            iterations=int(said.get("iter_count", 0)),
        )


class _Clock(ca.Callback):
    """Stops IPOPT at a deadline: an option could not be changed from solve to solve."""

    def __init__(self, n_variables: int, n_constraints: int) -> None:
        ca.Callback.__init__(self)
        self.deadline = np.inf
        self.sizes = {"x": n_variables, "lam_x": n_variables, "g": n_constraints}
        self.sizes |= {"lam_g": n_constraints, "f": 1}
        self.construct("clock", {})

    def get_n_in(self) -> int:
        return int(ca.nlpsol_n_out())

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> Any:
        return ca.Sparsity.dense(self.sizes.get(ca.nlpsol_out(i), 0), 1)

    def eval(self, arguments: Any) -> list[float]:
        return [float(time.perf_counter() > self.deadline)]


def _embedded(path: Path, written: Written, objective: Any, settings: dict[str, Any]) -> Prepared:
    model = ca.NlpBuilder()
    model.import_nl(str(path), {})
    x, g = ca.vertcat(*model.x), ca.vertcat(*model.g)
    clock = _Clock(len(model.x), len(model.g))
    options = {
        "expand": True,  # scalar operations instead of MX: five times faster to evaluate
        "print_time": False,
        "show_eval_warnings": False,
        "iteration_callback": clock,
        **{f"ipopt.{k}": v for k, v in {"print_level": 0, "sb": "yes", **settings}.items()},
    }
    solver = ca.nlpsol("ipopt", "ipopt", {"x": x, "f": model.f, "g": g}, options)
    rows = np.array([model.g_lb, model.g_ub], dtype=float).reshape(2, -1)
    return _Embedded(solver, clock, written, objective, rows)


def _columns(variables: tuple[Any, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values, lower and upper bounds; 0 where there is no value."""
    value = [0.0 if v.value is None else v.value for v in variables]
    lower = [v.value if v.fixed else -np.inf if v.lb is None else v.lb for v in variables]
    upper = [v.value if v.fixed else np.inf if v.ub is None else v.ub for v in variables]
    return np.array(value, float), np.array(lower, float), np.array(upper, float)
