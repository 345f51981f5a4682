"""Subsystems that are linear in some of their parameters: branch and bound over the others alone.

Kinetic models are linear in most of their parameters. For each value of the nonlinear ones the best
linear ones are a small convex problem, so only the nonlinear ones need branching; the bounds, which
are rigorous, are in `igpe.algebraic.bounds`, their proof in `docs/projection.md`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from igpe.algebraic.base import Regression, Route, RouteResult, reseeded
from igpe.algebraic.bounds.bound import best_linear
from igpe.algebraic.bounds.search import BranchAndBoundResult, ProjectedSearch, SearchLimits
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.separate import Separated, separate
from igpe.algebraic.global_solver import GlobalSolver
from igpe.algebraic.local import distinct, route_result
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.equations.operations import UnknownOperation
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import spread

AGREE = 1e-6  # of the data's sum of squares: the problem that is solved and the one that was posed
EACH = 16  # samples for each nonlinear parameter, until they are `samples`
ENOUGH = 500  # residuals to judge points by
ROUGH = 1e-4  # tolerance of a search that may lead to an optimum known
PROMISING = 1.1  # times the best objective: points as good as that are searched from,
SPARE = 2  # but only so often while they are not better than the best


@dataclass(frozen=True)
class Projected:
    """Projected branch and bound, which proves its optimum up to a gap.

    What is proved: no parameters within the bounds have a weighted sum of squared residuals below
    the estimate's `lower_bound`, for the given residuals with their floating-point numbers. The
    bound includes the rounding errors of enclosures and bounds (`docs/projection.md`); it says
    nothing about the measurements from which the residuals were computed.

    gap         (objective - lower bound) / objective at which it stops
    absolute    the same in terms of the weighted targets' sum of squares: exact data have no
                relative gap
    time_limit  s; when it is reached, or at Ctrl-C, the best point and bound so far are returned
    samples     largest number of points at which the best linear parameters are computed to find
                starts
    starts      number of local searches from these points; at most one more than the nonlinear
                parameters
    seed        of the samples
    search      the local one
    exchange    whether to search for parameters that separate products and exponents
    otherwise   for residuals with operations that cannot be enclosed, and without bounds on the
                nonlinear parameters
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
        """Return the route with another seed, so with other samples."""
        return replace(self, seed=seed, otherwise=reseeded(self.otherwise, seed))

    def estimate(self, regression: Regression) -> RouteResult:
        """The best point known and the bound that is proved."""
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
            status, method = result.status, f"projected branch and bound, {result.boxes} boxes"
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
        limits = SearchLimits(self.gap, self.absolute * squares, left)
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
