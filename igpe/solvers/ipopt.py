"""IPOPT: the program where there is one, else the IPOPT inside CasADi.

Waechter and Biegler, "On the implementation of an interior-point filter line-search algorithm for
large-scale nonlinear programming", Math. Program. 106 (2006).
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.arrays import FloatArray
from igpe.solvers.base import Answer, no_solver, objective_of
from igpe.solvers.nl import Scaled, Sizes, Written, columns_of, load, read_scaled, write_nl
from igpe.solvers.program import AmplProgram, locate
from igpe.status import Status

KNOWN = "This optimum is known already."
ASTRAY = "It went astray: the equations pull apart, and an optimum is known from another start."
PULL = 1e8  # largest multiplier of a solve that is not astray, where all is scaled to magnitude 1
THERE = 1e-3  # scaled violation of constraints on the last steps to a known optimum
STATUSES = {
    "Solve_Succeeded": Status.CONVERGED,
    "Solved_To_Acceptable_Level": Status.CONVERGED,
    "Feasible_Point_Found": Status.CONVERGED,
    "Search_Direction_Becomes_Too_Small": Status.ITERATION_LIMIT,
    "Infeasible_Problem_Detected": Status.INFEASIBLE,
    "Maximum_Iterations_Exceeded": Status.ITERATION_LIMIT,
    "User_Requested_Stop": Status.TIME_LIMIT,
    KNOWN: Status.CONVERGED,
    ASTRAY: Status.FAILED,
}
"""IPOPT's return statuses, KNOWN and ASTRAY; every other is a failure."""


@dataclass(frozen=True)
class Known:
    """An optimum found before: the values of some variables there, and what counts as there.

    variables        Pyomo variables
    values, reach    (n,) a point is there if no variable is farther than its reach,
    objective        the objective is not farther than objective_reach,
    objective_reach  and the constraints hold to 1e-3 of their magnitude
    """

    variables: tuple[Any, ...]
    values: FloatArray
    reach: FloatArray
    objective: float
    objective_reach: float


class Prepared(Protocol):
    """A model that is solved again and again."""

    def solve(self, time_limit: float | None = None, known: Sequence[Known] = ()) -> Answer:
        """Solve from the variables' present values; see `igpe.solvers.base.Solver.solve`.

        known  a solve that gets to one of them may end there: CONVERGED, with message KNOWN; one
               whose multipliers grow beyond measure may be given up: FAILED, with message ASTRAY

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

    def prepare(self, model: Any, sizes: Sizes | None = None) -> Prepared:
        """Translate the model once, for several solves.

        sizes   with them variables, objective and constraints are scaled to magnitude 1, the
                constraints by their derivatives at the present values. A program is told by a
                Suffix `scaling_factor`, which then is in the model.
        raises  ModelError unless there is exactly one active objective, to be minimised
        """
        objective = objective_of(model)
        settings = {"tol": self.tolerance, "max_iter": self.max_iterations, **dict(self.options)}
        if locate(self.program) is not None:
            if sizes is not None:
                _tell_scaling(model, objective, sizes)
                settings = {"nlp_scaling_method": "user-scaling", **settings}
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
            return _embedded(read_scaled(path, written, sizes), written, objective, settings)


@dataclass(frozen=True)
class _Refused:
    """Nothing to solve: the answer is known beforehand."""

    answer: Answer

    def solve(self, time_limit: float | None = None, known: Sequence[Known] = ()) -> Answer:
        return self.answer


@dataclass(frozen=True)
class _WithProgram:
    model: Any
    program: str
    settings: dict[str, Any]

    def solve(self, time_limit: float | None = None, known: Sequence[Known] = ()) -> Answer:
        words = tuple(f"{k}={v}" for k, v in self.settings.items())
        program = AmplProgram(self.program, words, time_option="max_wall_time")
        return program.solve(self.model, time_limit=time_limit)


@dataclass(frozen=True)
class _Embedded:
    """CasADi's IPOPT with compiled functions of the model."""

    solver: Any
    clock: "_Watch"
    written: Written
    objective: Any
    scaled: Scaled

    def solve(self, time_limit: float | None = None, known: Sequence[Known] = ()) -> Answer:
        begun = time.perf_counter()
        self.clock.deadline = np.inf if time_limit is None else begun + time_limit
        column = {id(v): i for i, v in enumerate(self.written.variables)} if known else {}
        self.clock.known = [(k, [column[id(v)] for v in k.variables]) for k in known]
        self.clock.ended = ""
        size, (lbg, ubg) = self.scaled.variables, self.scaled.bounds
        start, lower, upper = (c / size for c in columns_of(self.written.variables))
        found = self.solver(x0=start, lbx=lower, ubx=upper, lbg=lbg, ubg=ubg)
        said = self.solver.stats()
        message = self.clock.ended or str(said["return_status"])
        point = np.asarray(found["x"]).ravel() * size
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


class _Watch(ca.Callback):
    """Stops IPOPT at a deadline (an option could not be changed), at a known optimum, or astray.

    Solves that go astray cost a hundred times the others: factors fill up with delayed pivots.

    known  each with the places of its variables among the columns
    ended  why it was stopped: KNOWN or ASTRAY, or nothing
    """

    def __init__(self, scaled: Scaled) -> None:
        ca.Callback.__init__(self)
        n_variables, n_constraints = len(scaled.variables), len(scaled.rows)
        self.scaled = scaled
        self.deadline = np.inf
        self.known: list[tuple[Known, list[int]]] = []
        self.ended = ""
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
        if self.known:
            x, f, g, _, pulls = (np.asarray(a).ravel() for a in arguments[:5])
            if any(self._there(k, at, x, float(f[0]), g) for k, at in self.known):
                self.ended = KNOWN
            elif np.abs(pulls).max(initial=0.0) > PULL:
                self.ended = ASTRAY
        return [float(bool(self.ended) or time.perf_counter() > self.deadline)]

    def _there(
        self, known: Known, columns: list[int], x: FloatArray, f: float, g: FloatArray
    ) -> bool:
        there = x[columns] * self.scaled.variables[columns]
        if (abs(there - known.values) > known.reach).any():
            return False
        if abs(f * self.scaled.objective - known.objective) > known.objective_reach:
            return False
        lower, upper = self.scaled.bounds
        return bool(np.maximum(lower - g, g - upper).max(initial=0.0) <= THERE)


def _tell_scaling(model: Any, objective: Any, sizes: Sizes) -> None:
    """Leave the factors in the model, where the writer of `.nl` files finds them."""
    with tempfile.TemporaryDirectory(prefix="igpe") as folder:
        path = Path(folder) / "model.nl"
        written = write_nl(model, path)
        if not written.variables:
            return
        scaled = read_scaled(path, written, sizes)
    if model.component("scaling_factor") is not None:
        model.del_component("scaling_factor")
    model.scaling_factor = pyo.Suffix(direction=pyo.Suffix.EXPORT, datatype=pyo.Suffix.FLOAT)
    told = model.scaling_factor
    told[objective] = 1 / sizes.objective
    told.update(zip(written.variables, (1 / scaled.variables).tolist(), strict=True))
    told.update(zip(written.constraints, scaled.rows.tolist(), strict=True))


def _embedded(
    scaled: Scaled, written: Written, objective: Any, settings: dict[str, Any]
) -> Prepared:
    clock = _Watch(scaled)
    options = {
        "print_time": False,
        "show_eval_warnings": False,
        "iteration_callback": clock,
        **{f"ipopt.{k}": v for k, v in {"print_level": 0, "sb": "yes", **settings}.items()},
    }
    solver = ca.nlpsol("ipopt", "ipopt", scaled.program, options)
    return _Embedded(solver, clock, written, objective, scaled)
