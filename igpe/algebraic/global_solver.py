"""Subsystems that are nonlinear in their parameters, by a deterministic global solver.

The solver gets a scaled copy: parameters of order one, residuals of order one at the best point a
local search knows, and that point's sum of squares as a cut-off. What it reports is not believed:
the residuals are evaluated again, exactly, at the point it returns; and a claim that the gap is
closed counts only as far as a second run, with another seed and tolerance, comes to it as well.
(At a feasibility of 1e-9 SCIP's linear programs now and then cut off the whole tree in one node, of
problems whose gap otherwise takes minutes: about one run in twenty on the methanol problem. Looser
feasibility makes bounds weaker, never wrong: the relaxed constraints only lower the minimum.)

Rate constants given by their value amid the measurements instead of at infinite temperature.

In k*exp(-E/(R*T)) the data determine the product near their own temperatures, and k and E lie on a
narrow ridge over many decades of k. With c the mean factor of E in the exponents and E0 a value of
E, the new parameter

    k' = k*exp(c*(E - E0))       so that     k*exp(a*E + b) = k'*exp(a*E + b - c*(E - E0))

is exact, one to one, and nearly independent of E. The bounds of k become constraints. It is used
where the equations allow it: k occurs in them only together with exponentials of E.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.algebraic.base import Regression, RouteResult
from igpe.algebraic.local import LocalSearch, route_result
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.equations.operations import Graph, apply_to_sx
from igpe.equations.symbols import stack
from igpe.equations.translate import to_pyomo
from igpe.numerics.least_squares.base import Fit
from igpe.solvers.base import Answer, Solver, confirmed_status, name_of, solve_confirmed
from igpe.solvers.programs import Scip

SAME = 1e-9  # relative difference of residuals that are the same
TRIALS = 4  # points at which sameness is tried


class Centring(NamedTuple):
    """k' = k*exp(slope*(E - amid)).

    factor, energy  places of k and E among the parameters
    slope, amid     the mean factor of E in the exponents, and E0
    """

    factor: int
    energy: int
    slope: float
    amid: float

    def ratio(self, energy: float) -> float:
        """k' over k."""
        return float(np.exp(self.slope * (energy - self.amid)))


def centred(residual: Any, p: Any, box: Box, at: FloatArray) -> tuple[Any, list[Centring]]:
    """The residuals in centred parameters, and which these are.

    residual  SX column of the symbols p;  at: (n,) values that E0 is taken from
    returns   SX column of the same symbols, where each `factor` now stands for its k'
    """
    result: list[Centring] = []
    for energy, slope in _mean_slopes(residual, p).items():
        shifted = _shifted(residual, p, energy, slope, float(at[energy]))
        taken = {c.factor for c in result} | {energy}
        for factor in sorted(set(range(p.numel())) - taken):
            one = Centring(factor, energy, slope, float(at[energy]))
            if _same(residual, shifted, p, box, one):
                residual = shifted
                result.append(one)
                break
    return residual, result


def to_centred(centrings: list[Centring], values: FloatArray) -> FloatArray:
    """(n,) parameters -> with k' in the place of each k."""
    new = np.array(values, dtype=float)
    for c in centrings:
        new[c.factor] *= c.ratio(values[c.energy])
    return new


def from_centred(centrings: list[Centring], values: FloatArray) -> FloatArray:
    """(n,) with k' in the place of each k -> parameters."""
    new = np.array(values, dtype=float)
    for c in centrings:
        new[c.factor] /= c.ratio(values[c.energy])
    return new


def centred_bounds(centrings: list[Centring], box: Box) -> FloatArray:
    """(2, n) what centred parameters can be while the parameters are in their box."""
    lower, upper = np.array(box.lower, dtype=float), np.array(box.upper, dtype=float)
    for c in centrings:
        ratios = [c.ratio(box.lower[c.energy]), c.ratio(box.upper[c.energy])]
        products = np.outer([box.lower[c.factor], box.upper[c.factor]], ratios)
        lower[c.factor], upper[c.factor] = products.min(), products.max()
    return np.array([lower, upper])


def _mean_slopes(residual: Any, p: Any) -> Mapping[int, float]:
    """Parameter -> its mean factor in exponents that are linear in it and hold no other."""
    slopes: dict[int, list[float]] = {}
    for exponent in _exponents(residual, p):
        by_p = ca.jacobian(exponent, p)
        columns = by_p.sparsity().get_triplet()[1]
        if len(columns) == 1 and by_p[0, columns[0]].is_constant():
            slopes.setdefault(columns[0], []).append(float(by_p[0, columns[0]]))
    return {j: float(np.mean(a)) for j, a in slopes.items() if np.mean(a) != 0}


def _exponents(residual: Any, p: Any) -> list[Any]:
    result: list[Any] = []

    def keep(exponent: Any) -> Any:
        result.append(exponent)
        return exponent

    _rebuilt(residual, p, keep)
    return result


def _shifted(residual: Any, p: Any, energy: int, slope: float, amid: float) -> Any:
    """With -slope*(E - amid) in every exponent that holds E and nothing else."""

    def shift(exponent: Any) -> Any:
        columns = ca.jacobian(exponent, p).sparsity().get_triplet()[1]
        return exponent - slope * (p[energy] - amid) if columns == [energy] else exponent

    return _rebuilt(residual, p, shift)


def _rebuilt(residual: Any, p: Any, change: Any) -> Any:
    """The residuals, with every exponent changed."""

    def apply(name: str, operands: list[Any]) -> Any:
        if name == "EXP":
            return ca.exp(change(operands[0]))
        return apply_to_sx(name, operands)

    # Each occurrence of an exponent counts in the mean slope: equal ones stay apart.
    function = ca.Function("residual", [p], [ca.densify(residual)])
    graph = Graph.of_function(function, merged=False)
    return stack(graph.evaluate(lambda _, i: p[i], ca.SX, apply))


def _same(old: Any, new: Any, p: Any, box: Box, centring: Centring) -> bool:
    """Whether the new residuals at centred parameters are the old ones, at a few points."""
    both = ca.Function("both", [p], [old]), ca.Function("both", [p], [new])
    for point in box.sobol(TRIALS, 0):
        a = np.asarray(both[0](point)).ravel()
        b = np.asarray(both[1](to_centred([centring], point))).ravel()
        if not np.isfinite([a, b]).all() or abs(a - b).max() > SAME * abs(a).max():
            return False
    return True


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
    """A global solver behind igpe's wall, started from the best local optimum.

    solver      gives incumbent and bound;  witness: confirms a closed gap
    time_limit  s; when it is reached, or at Ctrl-C, the best point and bound so far are returned
    local       finds the incumbent, and answers alone where the solver cannot
    """

    solver: Solver = Scip(feasibility=1e-7)
    witness: Solver = Scip(feasibility=1e-6, seed=1)
    time_limit: float = 20.0
    local: LocalSearch = LocalSearch()

    def seeded(self, seed: int) -> "GlobalSolver":
        """The same route with another seed of its local search (a proof needs none)."""
        return replace(self, local=self.local.seeded(seed))

    def estimate(self, regression: Regression) -> RouteResult:
        """The best point known and the bound that is proved."""
        began = time.perf_counter()
        fits = self.local.fits(regression)
        if not fits or not regression.box.bounded:
            return self.local.estimate(regression)
        fit = fits[0]
        scaled = _Scaled(regression, fit)
        answer = self._answer(scaled, began)
        if answer.status not in BOUNDED:
            return self._unproved(self.local.estimate(regression), answer)
        fit = self._better(regression, fit, scaled.point(answer))
        bound = min(scaled.bound(answer), fit.cost)
        name, status = name_of(self.solver), confirmed_status(answer, fit.cost - bound, scaled.cost)
        said = Estimate({}, fit.cost, status, f"global search by {name}", bound)
        return route_result(regression, fit, said, began, fits)

    def _unproved(self, local: RouteResult, answer: Answer) -> RouteResult:
        """The local search's answer, with why there is no proof."""
        name, reason = name_of(self.solver), answer.message or answer.status.value
        method = f"{local.estimate.method}; nothing is proved, as {name} says: {reason}"
        return local._replace(estimate=replace(local.estimate, method=method))

    def _answer(self, scaled: "_Scaled", began: float) -> Answer:
        """The solver's answer; a closed gap with the weaker of two bounds."""
        left = max(self.time_limit - (time.perf_counter() - began), 0.0)
        try:
            with interruptible():
                return solve_confirmed(self.solver, self.witness, scaled.model, left)
        except KeyboardInterrupt:
            return Answer(Status.INTERRUPTED)

    def _better(self, regression: Regression, fit: Fit, point: FloatArray | None) -> Fit:
        if point is None:
            return fit
        polished = self.local.search.fit(regression.linearised, point, regression.box)
        return polished if polished.cost < fit.cost else fit


class _Scaled:
    """The regression as a Pyomo model of order one, in centred parameters (see `centring`).

    Residuals are variables without bounds. Nodes and seconds that SCIP needs to a gap of 1e-3 on
    step 3 of `models/methanol.py` and `models/cops_methanol.py` (two shared cores):

        as here                                               951, 15 s      693, 17 s
        with bounds on the residuals (the cut-off's)         2319, 57 s      487, 14 s
        shared products and quotients as variables            951, 22 s      693, 15 s
        no variables for residuals, their squares summed     bound -400 after 60 s

    so it finds shared terms itself. MAiNGO has 0.77 and 0.60 of the objective as bound after 60 s.
    Centring: k*exp(-E/(R*T)) on 12 points, 10 decades of k, is closed in 0.4 s and 21 nodes; as
    written its bound is 0 after 20 s and 20000 nodes. On the 480 residuals of `models/urethane.py`
    the bound after 60 s is 0.080 of the objective instead of 0.002.
    """

    def __init__(self, regression: Regression, fit: Fit) -> None:
        box, (p, residual) = regression.box, regression.symbolic()
        residual, self.centrings = centred(residual, p, box, fit.x)
        new = to_centred(self.centrings, fit.x)
        self.size = np.maximum(np.abs(new), 1e-3 * (box.upper - box.lower))
        for c in self.centrings:
            self.size[c.factor] = abs(new[c.factor]) or self.size[c.factor]
        self.cost = max(fit.cost, 1e-12)
        self.model: Any = pyo.ConcreteModel()
        lower, upper = (centred_bounds(self.centrings, box) / self.size).tolist()
        self.model.v = pyo.Var(
            range(len(box)),
            bounds=lambda _, i: (lower[i], upper[i]),
            initialize=lambda _, i: float(new[i] / self.size[i]),
        )
        v = ca.SX.sym("v", len(box))
        scaled = ca.substitute(residual, p, v * self.size) / np.sqrt(self.cost)
        rows = to_pyomo(scaled, v, list(self.model.v.values()))
        # At the start the objective has its size, 1, which the absolute gap of solvers follows.
        self.model.r = pyo.Var(range(len(rows)), initialize=1 / np.sqrt(max(len(rows), 1)))
        self.model.residual = pyo.Constraint(range(len(rows)), rule=lambda m, i: m.r[i] == rows[i])
        self._keep_box(box)
        squares = sum(r**2 for r in self.model.r.values())
        self.model.cut_off = pyo.Constraint(expr=squares <= 1 + SLACK)
        self.model.objective = pyo.Objective(expr=squares)

    def _keep_box(self, box: Box) -> None:
        """Bounds of parameters that are centred, as constraints that hold to their order one."""
        self.model.box = pyo.ConstraintList()
        v, size = self.model.v, self.size
        for c in self.centrings:
            exponent = c.slope * (v[c.energy] * size[c.energy] - c.amid)
            for bound, sign in ((box.lower[c.factor], 1), (box.upper[c.factor], -1)):
                if bound != 0.0:
                    limit = pyo.exp(exponent + float(np.log(abs(bound) / size[c.factor])))
                    self.model.box.add(sign * (v[c.factor] - np.sign(bound) * limit) >= 0)

    def point(self, answer: Answer) -> FloatArray | None:
        """Parameters in their own units at the solver's incumbent; None if it has none."""
        if not np.isfinite(answer.objective):
            return None
        values = np.array([pyo.value(x) for x in self.model.v.values()])
        return from_centred(self.centrings, self.size * values)

    def bound(self, answer: Answer) -> float:
        """The proven lower bound on the regression's sum of squares."""
        if not np.isfinite(answer.lower_bound):
            return -np.inf
        return max(answer.lower_bound - BOUND_TOLERANCE, 0.0) * self.cost
