"""Solvers that igpe knows how to speak to: SCIP, Couenne, Bonmin as programs, SCIP from its wheel.

Couenne's AMPL interface: BonAmplTMINLP.cpp (solve codes 3, 220, 300, 421 or 410 at a limit, 422 or
411 if interrupted, 500) and BonCouenne.cpp.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException, PyomoException
from pyomo.contrib.solver.common.factory import SolverFactory
from pyomo.contrib.solver.common.results import TerminationCondition

from igpe.core.status import Status
from igpe.solvers.base import Answer, no_solver, objective_of
from igpe.solvers.closing import MARGIN, Goal, divided, solve_closed
from igpe.solvers.program import AmplProgram

CUTOFF = 1e-5  # Bonmin's `cutoff_decr`: by how much better Couenne's next incumbent must be

IDAES = (
    "`pip install idaes-pse`, then `idaes get-extensions` (on Debian `idaes get-extensions "
    "--distro ubuntu2204`), brings it."
)


def Couenne(
    gap: float = 1e-4, feasibility: float = 1e-7, absolute: float | None = None
) -> AmplProgram:
    """Couenne: spatial branch and bound, as a program.

    gap          relative distance of incumbent and bound at which it stops
    feasibility  tolerance of the constraints
    absolute     gap in the objective's unit, for an optimum near 0; None: about 1e-6, times the
                 objective's size where that is below 1

    A time limit is one of processor time to it. At wall time it is interrupted.
    Belotti, Lee, Liberti, Margot, Waechter, "Branching and bounds tightening techniques for
    non-convex MINLP", Optim. Methods Softw. 24 (2009).
    """
    return AmplProgram(
        "couenne",
        files=(("couenne.opt", f"allowable_fraction_gap {gap}\nfeas_tolerance {feasibility}\n"),),
        time_line="time_limit {}",
        gap_line="allowable_gap {}",
        proven_gap=gap,
        absolute=absolute,
        bound_label="Lower bound",
        margin=MARGIN + CUTOFF,
        how=f"Couenne is a program, on PATH or in the IDAES folder: {IDAES}",
    )


def Bonmin() -> AmplProgram:
    """Bonmin as a program: a local solver, as its bounds hold for convex problems only.

    Bonami et al., "An algorithmic framework for convex mixed integer nonlinear programs", Discrete
    Optim. 5 (2008).
    """
    return AmplProgram(
        "bonmin",
        files=(("bonmin.opt", ""),),
        time_line="bonmin.time_limit {}",
        how=f"Bonmin is a program, on PATH or in the IDAES folder: {IDAES}",
    )


def ScipProgram(
    gap: float = 1e-4, feasibility: float = 1e-7, absolute: float | None = None
) -> AmplProgram:
    """SCIP as a program, where there is no wheel.

    gap          relative distance of incumbent and bound at which it stops
    feasibility  tolerance of the constraints
    absolute     gap in the objective's unit, for an optimum near 0; None: about 1e-6, times the
                 objective's size where that is below 1
    """
    return AmplProgram(
        "scip",
        files=(("scip.set", f"limits/gap = {gap}\nnumerics/feastol = {feasibility}\n"),),
        time_line="limits/time = {}",
        gap_line="limits/absgap = {}",
        proven_gap=gap,
        absolute=absolute,
        bound_label="Dual Bound",
        how="SCIP is a program, which must be on PATH: `conda install -c conda-forge scip`.",
    )


STATUSES = {
    TerminationCondition.convergenceCriteriaSatisfied: Status.OPTIMAL_WITHIN_GAP,
    TerminationCondition.provenInfeasible: Status.INFEASIBLE,
    TerminationCondition.maxTimeLimit: Status.TIME_LIMIT,
    TerminationCondition.iterationLimit: Status.ITERATION_LIMIT,
    TerminationCondition.interrupted: Status.INTERRUPTED,
}
"""Pyomo's termination conditions; every other is a failure."""


@dataclass(frozen=True)
class Scip:
    """SCIP: spatial branch and bound over the variables' bounds, from the PySCIPOpt wheel.

    gap          relative distance of incumbent and bound at which it stops
    absolute     the same in the objective's unit, for an optimum near 0; None: 1e-6, or 1e-6 times
                 the objective's size where that is below 1
    feasibility  tolerance of the constraints. SCIP's own 1e-6 is too loose for least squares: the
                 objective is a constraint to it, and small residuals come out too small
    threads      of the linear solver
    seed         of SCIP's random choices; the same seed gives the same run
    options      more of SCIP's parameters: (("limits/nodes", 1000), ...)
    """

    gap: float = 1e-4
    absolute: float | None = None
    feasibility: float = 1e-9
    threads: int = 1
    seed: int = 0
    options: tuple[tuple[str, str | int | float | bool], ...] = ()

    @property
    def install(self) -> str:
        """The sentence that says how to install it."""
        return "SCIP comes with PySCIPOpt: `pip install pyscipopt`."

    def available(self) -> bool:
        """Return True if PySCIPOpt is installed, in a version that Pyomo knows."""
        return bool(SolverFactory("scip_direct").available())

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """See `igpe.solvers.base.Solver.solve`. It has no asin, sinh and the like."""
        if not self.available():
            return no_solver(self)
        start = time.perf_counter()
        once, goal = partial(self._once, model), Goal(self.gap, self.absolute)
        answer = solve_closed(once, model, goal, time_limit)
        return replace(answer, seconds=time.perf_counter() - start)

    def _once(self, model: Any, unit: float, absolute: float, left: float | None) -> Answer:
        objective = objective_of(model)
        options = {
            # Pyomo reads SCIP's output through a pipe that nobody empties while SCIP holds
            # Python's lock: a long log would block it for ever, time limit or not.
            "display/verblevel": 0,
            "numerics/feastol": self.feasibility,
            "randomization/randomseedshift": self.seed,
            **dict(self.options),
        }
        try:
            with divided(objective, unit):
                results = SolverFactory("scip_direct").solve(
                    model,
                    time_limit=left,
                    rel_gap=self.gap,
                    abs_gap=absolute,
                    threads=self.threads,
                    load_solutions=False,
                    raise_exception_on_nonoptimal_result=False,
                    solver_options=options,
                )
        except InfeasibleConstraintException as error:
            return Answer(Status.INFEASIBLE, message=str(error))
        except (PyomoException, NotImplementedError, AttributeError, TypeError) as error:
            return Answer(Status.FAILED, message=f"SCIP cannot take this model: {error}")
        condition, bound, value = results.termination_condition, results.objective_bound, np.nan
        status = STATUSES.get(condition, Status.FAILED)
        if results.solution_loader.get_number_of_solutions() > 0:
            results.solution_loader.load_solution()
            value = float(pyo.value(objective))
        lower = -np.inf if bound is None or status is Status.INFEASIBLE else float(bound) * unit
        nodes = int(results.extra_info["NNodes"])
        return Answer(status, value, lower, f"SCIP: {condition.name}", iterations=nodes)
