"""Step 3's proven routes: `Projected` and, with an outside solver, `GlobalSolver`.

Subsystems that are linear in some of their parameters: branch and bound over the others alone.
Kinetic models are linear in most of their parameters. For each value of the nonlinear ones the best
linear ones are a small convex problem, so only the nonlinear ones need branching; the bounds, which
are rigorous, are in `igpe.algebraic.bounds`, their proof in `docs/projection.md`.

Subsystems that are nonlinear in their parameters, by a deterministic global solver.

The solver gets a scaled copy: parameters of order one, residuals of order one at the best point a
local search knows, and that point's sum of squares as a cut-off. What it reports is not believed:
the residuals are evaluated again, exactly, at the point it returns; and a claim that the gap is
closed counts only as far as a second run, with another seed and tolerance, comes to it as well.
(At a feasibility of 1e-9 SCIP's linear programs now and then cut off the whole tree in one node, of
problems whose gap otherwise takes minutes: about one run in twenty on the methanol problem. Looser
feasibility makes bounds weaker, never wrong: the relaxed constraints only lower the minimum.)
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.algebraic.base import Regression, Route, RouteResult, reseeded
from igpe.algebraic.bounds.bound import best_linear
from igpe.algebraic.bounds.search import BranchAndBoundResult, ProjectedSearch, SearchLimits
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.separate import Separated, separate
from igpe.algebraic.routes import LocalSearch, distinct, route_result
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible
from igpe.core.errors import ModelError
from igpe.core.estimates import Estimate
from igpe.core.markup import counted
from igpe.core.status import Status
from igpe.equations.operations import UnknownOperation
from igpe.equations.translate import to_pyomo
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import spread
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

    solver      solver that computes the best point and the lower bound
    witness     a second solver, which confirms that the gap is closed
    time_limit  time limit in seconds; when it is reached, or on Ctrl-C, the route returns the best
                point and the best lower bound found so far
    local       local search that finds the solver's start point; its result is returned if the
                solver fails
    """

    solver: Solver = Scip(feasibility=1e-7)
    witness: Solver = Scip(feasibility=1e-6, seed=1)
    time_limit: float = 20.0
    local: LocalSearch = LocalSearch()

    def seeded(self, seed: int) -> "GlobalSolver":
        """Return a copy with another seed for the local search (the proof uses no seed)."""
        return replace(self, local=self.local.seeded(seed))

    def estimate(self, regression: Regression) -> RouteResult:
        """Return the best point found and the proved lower bound."""
        began = time.perf_counter()
        fits = self.local.fits(regression)
        if not fits or not regression.box.bounded:
            return self.local.estimate(regression)
        fit, cost = fits[0], max(fits[0].cost, 1e-12)
        size = _sizes(fit.x, regression.box)
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


def _sizes(x: FloatArray, box: Box) -> FloatArray:
    """(n,) sizes of parameters x: their own, or a share of their range, which may be infinite."""
    width = box.upper - box.lower
    return np.maximum(np.abs(x), 1e-3 * np.where(np.isfinite(width), width, 1.0))


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


AGREE = 1e-6  # of the data's sum of squares: the problem that is solved and the one that was posed
EACH = 16  # samples for each nonlinear parameter, until they are `samples`
ENOUGH = 500  # residuals to judge points by
ROUGH = 1e-4  # tolerance of a search that may lead to an optimum known
PROMISING = 1.1  # times the best objective: points as good as that are searched from,
BRIEF, DEFICIENT = 20_000, 1e-10  # residuals in boxes, where so small a singular value is left
PATIENCE = 0.25  # of the time limit, after which a lower bound must be above 0
SPARE = 2  # but only so often while they are not better than the best


@dataclass(frozen=True)
class Projected:
    """Projected branch and bound, which proves a lower bound on the objective.

    The route proves that no parameter values within the bounds give a weighted sum of squared
    residuals below the estimate's `lower_bound`. The proof applies to the given residuals, with all
    numbers exactly as they are stored. `lower_bound` accounts for the rounding errors of its own
    computation (`docs/projection.md`), but not for errors in the measurements from which the
    residuals were computed.

    gap         relative gap (objective - lower bound) / objective at which the search stops
    absolute    absolute gap (objective - lower bound) at which the search stops, as a fraction of
                the sum of squares of the weighted targets. Exact data need this limit: if
                the objective is 0, the relative gap is not defined
    time_limit  time limit in seconds; when it is reached, or on Ctrl-C, the route returns the best
                point and the best lower bound found so far. After a quarter of it, the route also
                stops if the lower bound is still 0
    samples     maximum number of random points from which igpe chooses the starts; at each point,
                it computes the best values of the linear parameters
    starts      number of these points from which igpe starts a local search; igpe runs at most n +
                1 searches for n nonlinear parameters
    seed        seed of the random points
    search      method of the local searches
    exchange    whether to replace parameters by combinations of them, for example k2/kc or
                Ea2 - dh. igpe chooses combinations that enter the residuals linearly, or that
                are the only parameter in an exponent
    otherwise   route used if residuals contain operations that igpe cannot enclose, or if
                nonlinear parameters have no bounds
    """

    gap: float = 1e-4
    absolute: float = 1e-11
    time_limit: float = 20.0
    samples: int = 48
    starts: int = 3
    seed: int = 0
    exchange: bool = True
    search: GaussNewton = GaussNewton()
    otherwise: Route = GlobalSolver()

    def seeded(self, seed: int) -> "Projected":
        """Return a copy of the route with another seed, which gives other random points."""
        return replace(self, seed=seed, otherwise=reseeded(self.otherwise, seed))

    def estimate(self, regression: Regression) -> RouteResult:
        """Return the best point found and the proved lower bound."""
        began = time.perf_counter()
        try:
            separated = separate(regression.pieces, regression.box, exchange=self.exchange)
        except UnknownOperation:
            return self.otherwise.estimate(regression)
        if not np.isfinite([(a.lower, a.upper) for a in separated.problem.axes]).all():
            return self.otherwise.estimate(regression)
        few, thinned = regression.thinned(ENOUGH, self.seed), separated
        if few is not regression:
            thinned = separate(few.pieces, few.box, exchange=self.exchange)
        local = _LocalSearches((regression, few), thinned, self.search)
        try:
            with interruptible():
                count = min(self.starts, 1 + len(separated.nonlinear))
                local.start(self._samples(thinned.problem), count)
                if local.best is None or not _agree(separated, local.best):
                    return self.otherwise.estimate(regression)
                result = self._proof(separated.problem, local, began)
        except KeyboardInterrupt:
            if local.best is None:
                raise
            status, method, bound = Status.INTERRUPTED, "interrupted local searches", -np.inf
        else:
            status, method = (
                result.status,
                f"projected branch and bound, {counted(result.boxes, 'box')}",
            )
            bound = min(result.lower_bound, local.objective)
        outcome = Estimate({}, local.objective, status, method, bound)
        return route_result(regression, distinct(regression, local.fits), outcome, began)

    def _samples(self, problem: Separable) -> list[FloatArray]:
        """Values of the nonlinear parameters, the best first."""
        n = len(problem.axes)
        if n == 0:
            return [np.zeros(0)]
        count = min(self.samples, EACH * n)
        points = problem.thetas(Box(("",) * n, np.zeros(n), np.ones(n)).sobol(count, self.seed))
        solved = [best_linear(problem, columns) for columns in problem.values(points)]
        able = sorted((one[1], k) for k, one in enumerate(solved) if one is not None)
        return [points[k] for _, k in able]

    def _proof(
        self, problem: Separable, local: "_LocalSearches", began: float
    ) -> BranchAndBoundResult:
        left = max(self.time_limit - (time.perf_counter() - began), 0.0)
        squares = float(problem.target @ problem.target)
        patience = PATIENCE * self.time_limit
        limits = SearchLimits(self.gap, self.absolute * squares, left, patience=patience)
        if local.is_deficient:  # in boxes, so that the result depends on no clock
            limits = replace(limits, boxes=1 + BRIEF // problem.target.size)
        return ProjectedSearch(problem, local.trial).run(local.objective, limits)


def _agree(separated: Separated, best: Fit) -> bool:
    """Whether the separable problem is the posed one, at the best point."""
    assert best.at is not None
    apart = separated.residual(best.x) - best.at.residual[separated.order]
    return bool(np.linalg.norm(apart) <= AGREE * np.linalg.norm(separated.problem.target))


class _LocalSearches:
    """All local searches of one problem, from nonlinear parameters.

    both  the regression, and with some of its residuals, which is enough to say where to search
    few   the latter in linear and nonlinear parameters, where points are judged
    """

    def __init__(
        self, both: tuple[Regression, Regression], few: Separated, search: GaussNewton
    ) -> None:
        self.both, self.few, self.search = both, few, search
        self.fits: list[Fit] = []
        self._rough: list[Fit] = []
        self._spare = SPARE

    @property
    def best(self) -> Fit | None:
        """The best local optimum."""
        return min(self.fits, key=lambda f: f.cost, default=None)

    @property
    def is_deficient(self) -> bool:
        """Whether the residuals determine only combinations at the best point.

        The best points are many then, and seldom can a search exclude all others near them.
        """
        at = None if self.best is None else self.best.at
        if self.best is None or at is None:
            return False
        scaled = at.jacobian * _sizes(self.best.x, self.both[0].box)
        singular = np.linalg.svd(scaled, compute_uv=False)
        return len(singular) < len(self.best.x) or bool(singular[-1] <= DEFICIENT * singular[0])

    @property
    def objective(self) -> float:
        """Sum of squares of the best point."""
        return np.inf if self.best is None else self.best.cost

    def start(self, thetas: Sequence[FloatArray], starts: int) -> None:
        """Search from so many of the points (the best first), none near another."""
        for i in spread(thetas, starts):
            self._search(self._point(thetas[i])[0])

    def trial(self, theta: FloatArray) -> float:
        """Search from a point if it is about as good as the best; the objective then known."""
        p, cost = self._point(theta)
        if self.best is None or p is None:
            return self.objective
        residual = self.few.residual(self.best.x)
        least = float(residual @ residual)
        curious = self._spare > 0 and not any(_arrived(f, p) for f in self.fits)
        if cost < least or (curious and cost < PROMISING * least):
            self._spare -= cost >= least
            self._search(p)
        return self.objective

    def _point(self, theta: FloatArray) -> tuple[FloatArray | None, float]:
        """All parameters that go with nonlinear ones, and their sum of squares."""
        solved = best_linear(self.few.problem, self.few.problem.values(theta[None])[0])
        if solved is None:
            return None, np.inf
        return self.few.parameters(theta, solved[0]), solved[1]

    def _search(self, p: FloatArray | None) -> None:
        if p is None:
            return
        every, few = self.both
        rough = replace(self.search, tolerance=ROUGH).fit(few.linearised, p, few.box)
        if any(_arrived(f, rough.x) for f in (*self._rough, *self.fits)):
            return
        self._rough.append(rough)
        fit = self.search.fit(every.linearised, rough.x, every.box)
        if fit.at is not None:
            self.fits.append(fit)


def _arrived(fit: Fit, p: FloatArray) -> bool:
    """Whether a search from p would end where the fit is, as far as one can tell."""
    size = np.maximum(np.abs(fit.x), 1e-6 * (np.abs(p) + 1e-300))
    return bool(np.all(np.abs(fit.x - p) <= 0.05 * size))
