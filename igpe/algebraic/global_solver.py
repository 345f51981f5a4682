"""Subsystems that are nonlinear in their parameters, by a deterministic global solver.

The solver gets a scaled copy: parameters of order one, residuals of order one at the best point a
local search knows, and that point's sum of squares as a cut-off. What it reports is not believed:
the residuals are evaluated again, exactly, at the point it returns; and a claim that the gap is
closed counts only as far as a second run, with another seed and tolerance, comes to it as well.
(At a feasibility of 1e-9 SCIP's linear programs now and then cut off the whole tree in one node, of
problems whose gap otherwise takes minutes: about one run in twenty on the methanol problem. Looser
feasibility makes bounds weaker, never wrong: the relaxed constraints only lower the minimum.)
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.algebraic.base import Regression, RouteResult
from igpe.algebraic.local import LocalSearch, distinct, route_result
from igpe.core.arrays import FloatArray
from igpe.core.deadline import interruptible
from igpe.core.errors import ModelError
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.equations.translate import to_pyomo
from igpe.numerics.least_squares.base import Fit
from igpe.solvers.base import Answer, Solver, confirmed_status, name_of, solve_confirmed
from igpe.solvers.program import Scip

BOUNDED = (
    Status.OPTIMAL_WITHIN_GAP,
    Status.TIME_LIMIT,
    Status.ITERATION_LIMIT,
    Status.INTERRUPTED,
)  # bring a bound
SLACK = 1e-3  # the cut-off lies this much above the incumbent, so that rounding never cuts it off
BOUND_TOLERANCE = 1e-6  # taken off a bound on an objective of order one, for the solver's rounding


@dataclass(frozen=True)
class GlobalSolver:
    """A general global solver, started from the best local optimum.

    solver      that gives incumbent and bound; witness: another solver, which confirms a closed gap
    time_limit  s; when it is reached, or at Ctrl-C, the best point and bound so far are returned
    local       finds the incumbent, and is used alone if the solver fails
    """

    solver: Solver = Scip(feasibility=1e-7)
    witness: Solver = Scip(feasibility=1e-6, seed=1)
    time_limit: float = 20.0
    local: LocalSearch = LocalSearch()

    def seeded(self, seed: int) -> "GlobalSolver":
        """Return the route with another seed for its local search (a proof needs none)."""
        return replace(self, local=self.local.seeded(seed))

    def estimate(self, regression: Regression) -> RouteResult:
        """The best point known and the bound that is proved."""
        began = time.perf_counter()
        fits = self.local.fits(regression)
        if not fits or not regression.box.bounded:
            return self.local.estimate(regression)
        fit, cost = fits[0], max(fits[0].cost, 1e-12)
        size = np.maximum(np.abs(fit.x), 1e-3 * (regression.box.upper - regression.box.lower))
        try:
            model = scaled_model(regression, fit.x, size, cost)
        except ModelError as error:  # a condition, or another operation that solvers do not know
            return self._unproved(regression, f": {str(error).rstrip('.')}")
        left = max(self.time_limit - (time.perf_counter() - began), 0.0)
        try:
            with interruptible():
                answer = solve_confirmed(self.solver, self.witness, model, left)
        except KeyboardInterrupt:
            answer = Answer(Status.INTERRUPTED)
        name = name_of(self.solver)
        if answer.status not in BOUNDED:
            return self._unproved(
                regression, f", as {name} says: {answer.message or answer.status.value}"
            )
        if np.isfinite(answer.objective):
            point = size * np.array([pyo.value(x) for x in model.v.values()])
            fit = self._better(regression, fit, point)
        proved = max(answer.lower_bound - BOUND_TOLERANCE, 0.0) * cost
        bound = min(proved, fit.cost) if np.isfinite(answer.lower_bound) else -np.inf
        status = confirmed_status(answer, fit.cost - bound, cost)
        outcome = Estimate({}, fit.cost, status, f"global search by {name}", bound)
        return route_result(regression, distinct(regression, [fit, *fits]), outcome, began)

    def _unproved(self, regression: Regression, reason: str) -> RouteResult:
        """The local search's answer, with why there is no proof."""
        local = self.local.estimate(regression)
        method = f"{local.estimate.method}; nothing is proved{reason}"
        return local._replace(estimate=replace(local.estimate, method=method))

    def _better(self, regression: Regression, fit: Fit, point: FloatArray) -> Fit:
        refined = self.local.search.fit(regression.linearised, point, regression.box)
        return refined if refined.cost < fit.cost else fit


def scaled_model(regression: Regression, at: FloatArray, size: FloatArray, cost: float) -> Any:
    """The regression as a Pyomo model of order one, in the parameters v = p / size.

    at    (n,) parameters to start from;  cost: their sum of squares, about

    Residuals are variables without bounds. Nodes and seconds that SCIP needs to a gap of 1e-3 on
    step 3 of `models/methanol.py` and `models/cops_methanol.py` (two shared cores):

        as here                                               951, 15 s      693, 17 s
        with bounds on the residuals (the cut-off's)         2319, 57 s      487, 14 s
        shared products and quotients as variables            951, 22 s      693, 15 s
        no variables for residuals, their squares summed     bound -400 after 60 s

    so it finds shared terms itself. MAiNGO has 0.77 and 0.60 of the objective as bound after 60 s.
    """
    box, (p, residual) = regression.box, regression.symbolic()
    lower, upper, start = (x.tolist() for x in (box.lower / size, box.upper / size, at / size))
    model: Any = pyo.ConcreteModel()
    model.v = pyo.Var(
        range(len(box)),
        bounds=lambda _, i: (lower[i], upper[i]),
        initialize=lambda _, i: start[i],
    )
    v = ca.SX.sym("v", len(box))
    scaled = ca.substitute(residual, p, v * size) / np.sqrt(cost)
    rows = to_pyomo(scaled, v, list(model.v.values()))
    # At the start the objective has its size, 1, which the absolute gap of solvers follows.
    model.r = pyo.Var(range(len(rows)), initialize=1 / np.sqrt(max(len(rows), 1)))
    model.residual = pyo.Constraint(range(len(rows)), rule=lambda m, i: m.r[i] == rows[i])
    squares = sum(r**2 for r in model.r.values())
    model.cut_off = pyo.Constraint(expr=squares <= 1 + SLACK)
    model.objective = pyo.Objective(expr=squares)
    return model
