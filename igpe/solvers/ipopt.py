"""IPOPT inside CasADi on a compiled program, with an eye on where it goes.

Waechter and Biegler, "On the implementation of an interior-point filter line-search algorithm for
large-scale nonlinear programming", Math. Program. 106 (2006).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.core.arrays import FloatArray
from igpe.core.deadline import at_most, deferred, stopped
from igpe.core.status import Status
from igpe.solvers.base import Answer
from igpe.solvers.nl import NlFile, Scaled, columns_of, load, read, solve_in_folder

REFUSED = "CasADi cannot read the model, so IPOPT cannot solve it: {}"
KNOWN = "This optimum is already known."
ASTRAY = "The search diverged, and another start has already reached an optimum."
PULL = 1e8  # largest multiplier of a solve that is not astray, where all is scaled to magnitude 1
THERE = 1e-3  # scaled violation of constraints on the last steps to a known optimum
SCALED: dict[str, Any] = {"mumps_permuting_scaling": 0}
"""For programs of magnitude 1: MUMPS need not scale, and where it does it may lose its pivots."""
SEALED = {"option_file_name": ""}
"""IPOPT would read `ipopt.opt` in the current folder, which may load libraries and write files."""
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
class KnownOptimum:
    """An optimum of an earlier search: values of the first variables, and what counts as there.

    values, reach    (n,) a point is there if none of the first n variables is farther than its
                     reach,
    objective        the objective is not farther than objective_reach,
    objective_reach  and the constraints hold to 1e-3 of their magnitude
    """

    values: FloatArray
    reach: FloatArray
    objective: float
    objective_reach: float


class IpoptResult(NamedTuple):
    """End of a solve; the point, in the units of the variables, if there is a usable one."""

    status: Status
    message: str
    point: FloatArray | None
    iterations: int

    def answer(self, objective: float, seconds: float) -> Answer:
        """The answer in the form of all solvers."""
        numbers = objective, -np.inf, self.message, seconds, self.iterations
        return Answer(self.status, *numbers)


class CompiledProgram:
    """A program that is solved again and again.

    settings     options of IPOPT
    derivatives  CasADi functions that it need not make itself: options of `nlpsol`
    """

    def __init__(
        self,
        scaled: Scaled,
        settings: Mapping[str, Any],
        derivatives: Mapping[str, Any] | None = None,
    ) -> None:
        self.scaled, self._clock = scaled, IpoptMonitor(scaled)
        of_ipopt = {"print_level": 0, "sb": "yes", **SEALED, **settings}
        options = {
            "print_time": False,
            "show_eval_warnings": False,
            "iteration_callback": self._clock,
            **{f"ipopt.{k}": v for k, v in of_ipopt.items()},
            **(derivatives or {}),
        }
        self._solver = ca.nlpsol("ipopt", "ipopt", scaled.program, options)

    def solve(
        self,
        columns: Sequence[FloatArray],
        time_limit: float | None,
        known: Sequence[KnownOptimum] = (),
    ) -> IpoptResult:
        """Solve from a point within bounds.

        columns  values, lower and upper bounds of the variables
        known    a solve that gets to one of them may end there: CONVERGED, with message KNOWN; one
                 whose multipliers grow beyond measure may be given up: FAILED, with message ASTRAY
        raises   KeyboardInterrupt after the iteration in which Ctrl-C was pressed
        """
        time_limit = at_most(time_limit)
        self._clock.deadline = np.inf if time_limit is None else time.perf_counter() + time_limit
        self._clock.known, self._clock.ended = list(known), ""
        start, lower, upper = (c / self.scaled.variables for c in columns)
        lbg, ubg = self.scaled.bounds
        with deferred():  # IPOPT would take the exception for a failure of the functions
            solution = self._solver(x0=start, lbx=lower, ubx=upper, lbg=lbg, ubg=ubg)
        stats = self._solver.stats()
        message = self._clock.ended or str(stats["return_status"])
        point = np.asarray(solution["x"]).ravel() * self.scaled.variables
        status, iterations = STATUSES.get(message, Status.FAILED), int(stats.get("iter_count", 0))
        usable = status.usable and bool(np.isfinite(point).all())
        return IpoptResult(status, message, point if usable else None, iterations)


class IpoptMonitor(ca.Callback):
    """Stops IPOPT at a deadline (an option could not be changed), at a known optimum, or astray.

    Solves that go astray cost a hundred times the others: factors fill up with delayed pivots.

    known  see `CompiledProgram.solve`
    ended  why it was stopped: KNOWN or ASTRAY, or nothing
    """

    def __init__(self, scaled: Scaled) -> None:
        ca.Callback.__init__(self)
        n, m = len(scaled.variables), len(scaled.rows)
        self.scaled, self.deadline, self.ended = scaled, np.inf, ""
        self.known: list[KnownOptimum] = []
        self.sizes = {"x": n, "lam_x": n, "g": m, "lam_g": m, "f": 1}
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
            if any(self._there(k, x, float(f[0]), g) for k in self.known):
                self.ended = KNOWN
            elif np.abs(pulls).max(initial=0.0) > PULL:
                self.ended = ASTRAY
        late = time.perf_counter() > self.deadline
        return [float(bool(self.ended) or late or stopped())]

    def _there(self, known: KnownOptimum, x: FloatArray, f: float, g: FloatArray) -> bool:
        point = (x * self.scaled.variables)[: len(known.values)]
        if (abs(point - known.values) > known.reach).any():
            return False
        if abs(f * self.scaled.objective - known.objective) > known.objective_reach:
            return False
        lower, upper = self.scaled.bounds
        return bool(np.maximum(lower - g, g - upper).max(initial=0.0) <= THERE)


@dataclass(frozen=True)
class Ipopt:
    """Local optimisation by an interior point method, with exact second derivatives.

    tolerance       tolerance of the scaled optimality conditions
    max_iterations  maximum number of iterations
    options         additional options for IPOPT: (("mu_strategy", "adaptive"), ...)
    """

    tolerance: float = 1e-9
    max_iterations: int = 500
    options: tuple[tuple[str, str | int | float], ...] = ()

    @property
    def install(self) -> str:
        """Installation instructions for the solver, in one sentence."""
        return "IPOPT comes with CasADi: `pip install casadi`."

    @property
    def settings(self) -> dict[str, Any]:
        """Options that are passed to IPOPT."""
        return {"tol": self.tolerance, "max_iter": self.max_iterations, **dict(self.options)}

    def available(self) -> bool:
        """Return True if CasADi includes IPOPT."""
        return bool(ca.has_nlpsol("ipopt"))

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """See `igpe.solvers.base.Solver.solve`."""
        started = time.perf_counter()

        def solve(folder: Path, written: NlFile, objective: Any) -> Answer:
            if not written.variables:
                return Answer(Status.CONVERGED, float(pyo.value(objective)))
            try:
                program = read(folder / "model.nl")
            except RuntimeError as error:  # CasADi's reader, of conditions (Expr_if)
                return Answer(Status.FAILED, message=REFUSED.format(error))
            columns, value = columns_of(written.variables), np.nan
            result = CompiledProgram(program, self.settings).solve(columns, time_limit)
            if result.point is not None:
                load(written.variables, result.point)
                value = float(pyo.value(objective))
            return result.answer(value, time.perf_counter() - started)

        return solve_in_folder(self, model, solve)
