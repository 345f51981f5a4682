"""Routes without branching: least squares where it is linear, else searches from many starts.

Bounded linear least squares is global by convexity. Of local searches nothing is proved; they serve
where a proof would take too long, and to give a global solver a good incumbent.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import lsq_linear

from igpe.algebraic.base import Regression, RouteResult
from igpe.core.deadline import interruptible, stopped
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.numerics import optima
from igpe.numerics.covariance import determined
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import Landscape, spread


@dataclass(frozen=True)
class LinearRoute:
    """Closed form for regressions that are linear in all parameters.

    Parameters that the data do not determine are left out of the answer.
    """

    def estimate(self, regression: Regression) -> RouteResult:
        """The global optimum within the bounds (BVLS on scaled columns)."""
        began = time.perf_counter()
        box = regression.box
        origin = box.clip(np.zeros(len(box)))
        at = regression.linearised(origin)
        if at is None:
            failed = Estimate({}, np.inf, Status.FAILED, "linear least squares")
            return RouteResult(failed, box.names)
        scale = np.linalg.norm(at.jacobian, axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        matrix = at.jacobian / scale
        bounds = ((box.lower - origin) * scale, (box.upper - origin) * scale)
        right, beyond = -at.residual, 0.0
        if len(matrix) > len(box):  # as many rows as parameters, for the many problems inside
            factors = np.asarray(np.linalg.qr(np.column_stack([matrix, right]), mode="r"))
            matrix, right = factors[:-1, :-1], factors[:-1, -1]
            beyond = float(factors[-1, -1] ** 2)
        answer = lsq_linear(matrix, right, bounds, method="bvls", tol=1e-14)
        values, known = box.clip(origin + answer.x / scale), determined(matrix)
        cost = 2 * float(answer.cost) + beyond
        estimate = Estimate(
            {n: float(v) for n, v, k in zip(box.names, values, known, strict=True) if k},
            cost,
            Status.GLOBAL_BY_CONVEXITY,
            "linear least squares",
            lower_bound=cost,
            seconds=time.perf_counter() - began,
        )
        lost = tuple(n for n, k in zip(box.names, known, strict=True) if not k)
        return RouteResult(estimate, lost)


WORST = 10.0  # times the best objective: optima beyond explain nothing and are not compared
ROUNDING = 1e-12  # of the targets' own squares: objectives below it are all zero


def rounding(regression: Regression) -> float:
    """Differences of the objective below this mean nothing."""
    return ROUNDING * sum(float(np.sum((p.weight * p.target) ** 2)) for p in regression.pieces)


def distinct(regression: Regression, fits: Iterable[Fit]) -> list[Fit]:
    """One fit for each optimum, the best first, as far as `WORST` times its objective."""
    some, least = [f for f in fits if f.at is not None], rounding(regression)
    level = WORST * min((f.cost for f in some), default=0.0) + least
    landscape = Landscape(regression.linearised, regression.box, least)
    return optima.distinct(landscape, (f for f in some if f.cost <= level))


@dataclass(frozen=True)
class LocalSearch:
    """Gauss-Newton searches from good Sobol points that are far apart.

    trials  number of Sobol points at which the objective is evaluated
    starts  number of local searches; they start at the best of these points
    seed    seed of the random points; the same seed gives the same result
    search  method of the local searches
    """

    trials: int = 256
    starts: int = 12
    seed: int = 0
    search: GaussNewton = GaussNewton()

    def seeded(self, seed: int) -> "LocalSearch":
        """Return a copy of the search with another seed, which gives other start points."""
        return replace(self, seed=seed)

    def estimate(self, regression: Regression) -> RouteResult:
        """Return the best local optimum and other good optima.

        Each optimum contains only the parameters that the data determine at this optimum.
        """
        began = time.perf_counter()
        fits = self.fits(regression)
        method = f"Gauss-Newton from {self.starts} starts"
        if not fits:
            seconds = time.perf_counter() - began
            lost = Estimate({}, np.inf, Status.FAILED, method, seconds=seconds)
            return RouteResult(lost, regression.box.names)
        status = Status.INTERRUPTED if stopped() else Status.BEST_OF_SEVERAL
        return route_result(regression, fits, Estimate({}, np.inf, status, method), began)

    def fits(self, regression: Regression) -> list[Fit]:
        """Return all distinct local optima, best first; an empty list if no point can be evaluated.

        After Ctrl-C the method returns the optima found so far, or raises KeyboardInterrupt if
        there are none.
        """
        box = regression.box
        points = box.sobol(self.trials, self.seed)
        costs = np.array([regression.cost(p) for p in points])
        able = list(points[np.argsort(costs, kind="stable")[: np.isfinite(costs).sum()]])
        result: list[Fit] = []
        try:
            with interruptible():
                for i in spread(able, self.starts):
                    result.append(self.search.fit(regression.linearised, able[i], box))
        except KeyboardInterrupt:
            if not result:
                raise
        return distinct(regression, result)


def route_result(
    regression: Regression, fits: Sequence[Fit], outcome: Estimate, began: float
) -> RouteResult:
    """Distinct fits, the best first, as a route's answer: only what their data determine.

    outcome  method, status and bound of the answer
    began    when the route began, by `time.perf_counter`
    """
    landscape = Landscape(regression.linearised, regression.box, rounding(regression))
    best, *others = (
        {
            name: float(x)
            for name, x, yes in zip(
                regression.box.names, fit.x, optima.known(landscape, fit), strict=True
            )
            if yes
        }
        for fit in fits
    )
    seconds = time.perf_counter() - began
    return RouteResult(
        replace(outcome, parameters=best, objective=fits[0].cost, seconds=seconds),
        tuple(n for n in regression.box.names if n not in best),
        tuple(
            Estimate(parameters, fit.cost, Status.CONVERGED, outcome.method)
            for parameters, fit in zip(others, fits[1:], strict=True)
        ),
    )
