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

from igpe.algebraic.base import Found
from igpe.algebraic.local import Local, found
from igpe.algebraic.regression import Regression
from igpe.arrays import FloatArray
from igpe.equations.to_pyomo import to_pyomo
from igpe.estimates import Estimate
from igpe.least_squares.base import Fit
from igpe.solvers.base import Answer, Solver
from igpe.solvers.scip import Scip
from igpe.status import Status

BOUNDED = (Status.OPTIMAL_WITHIN_GAP, Status.TIME_LIMIT, Status.INTERRUPTED)  # bring a bound
SLACK = 1e-3  # the cut-off lies this much above the incumbent, so that rounding never cuts it off
BOUND_TOLERANCE = 1e-6  # taken off a bound on an objective of order one, for the solver's rounding


@dataclass(frozen=True)
class GlobalSolver:
    """A global solver behind igpe's wall, started from the best local optimum.

    solver      gives incumbent and bound;  witness: confirms a closed gap
    time_limit  s; when it is reached, or at Ctrl-C, the best point and bound so far are returned
    local       finds the incumbent, and answers alone where the solver cannot
    """

    solver: Solver = Scip(feasibility=1e-7)
    witness: Solver = Scip(feasibility=1e-6, seed=1)
    time_limit: float = 20.0
    local: Local = Local()

    def seeded(self, seed: int) -> "GlobalSolver":
        """The same route with another seed of its local search (a proof needs none)."""
        return replace(self, local=self.local.seeded(seed))

    def estimate(self, regression: Regression) -> Found:
        """The best point known and the bound that is proved."""
        began = time.perf_counter()
        fit = self.local.best(regression)
        if fit is None or fit.at is None or not regression.box.bounded:
            return self.local.estimate(regression)
        scaled = _Scaled(regression, fit)
        answer = self._answer(scaled, began)
        if answer.status not in BOUNDED:
            return self.local.estimate(regression)
        fit = self._better(regression, fit, scaled.point(answer))
        bound = min(scaled.bound(answer), fit.cost)
        name = type(self.solver).__name__
        said = Estimate({}, fit.cost, answer.status, f"global search by {name}", bound)
        return found(regression, fit, said, began)

    def _answer(self, scaled: "_Scaled", began: float) -> Answer:
        """The solver's answer; a closed gap with the weaker of two bounds."""
        answer = self.solver.solve(scaled.model, time_limit=self.time_limit)
        if answer.status is not Status.OPTIMAL_WITHIN_GAP:
            return answer
        left = max(self.time_limit - (time.perf_counter() - began), 1.0)
        second = self.witness.solve(scaled.model, time_limit=left)
        return replace(second, objective=min(answer.objective, second.objective))

    def _better(self, regression: Regression, fit: Fit, point: FloatArray | None) -> Fit:
        if point is None:
            return fit
        polished = self.local.search.fit(regression.linearised, point, regression.box)
        return polished if polished.cost < fit.cost else fit


class _Scaled:
    """The regression as a Pyomo model of order one."""

    def __init__(self, regression: Regression, fit: Fit) -> None:
        box = regression.box
        self.size = np.maximum(np.abs(fit.x), 1e-3 * (box.upper - box.lower))
        self.cost = max(fit.cost, 1e-12)
        self.model: Any = pyo.ConcreteModel()
        bounds = np.column_stack([box.lower, box.upper]) / self.size[:, None]
        self.model.v = pyo.Var(
            range(len(box)),
            bounds=lambda _, i: (float(bounds[i, 0]), float(bounds[i, 1])),
            initialize=lambda _, i: float(fit.x[i] / self.size[i]),
        )
        p, residual = regression.symbolic()
        v = ca.SX.sym("v", len(box))
        scaled = ca.substitute(residual, p, v * self.size) / np.sqrt(self.cost)
        rows = to_pyomo(scaled, v, list(self.model.v.values()))
        self.model.r = pyo.Var(range(len(rows)))
        self.model.residual = pyo.Constraint(range(len(rows)), rule=lambda m, i: m.r[i] == rows[i])
        squares = sum(r**2 for r in self.model.r.values())
        self.model.cut_off = pyo.Constraint(expr=squares <= 1 + SLACK)
        self.model.objective = pyo.Objective(expr=squares)

    def point(self, answer: Answer) -> FloatArray | None:
        """Parameters in their own units at the solver's incumbent; None if it has none."""
        if not np.isfinite(answer.objective):
            return None
        values = np.array([pyo.value(x) for x in self.model.v.values()])
        return np.asarray(self.size * values)

    def bound(self, answer: Answer) -> float:
        """The proven lower bound on the regression's sum of squares."""
        if not np.isfinite(answer.lower_bound):
            return -np.inf
        return max(answer.lower_bound - BOUND_TOLERANCE, 0.0) * self.cost
