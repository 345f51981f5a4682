"""Subsystems that are nonlinear in their parameters, by local searches from many starts.

Nothing is proved; it serves where a proof would take too long, and to give a global solver a good
incumbent.

Subsystems linear in their parameters: bounded linear least squares, global by convexity.

Which local optima of a group of step 3 are worth keeping.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import lsq_linear

from igpe.algebraic.base import Regression, RouteResult
from igpe.core.arrays import BoolArray
from igpe.core.deadline import interruptible, stopped
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.numerics import optima
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import Landscape, spread
from igpe.numerics.statistics.covariance import determined


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
            lost = Estimate({}, np.inf, Status.FAILED, "linear least squares")
            return RouteResult(lost, box.names)
        scale = np.linalg.norm(at.jacobian, axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        matrix = at.jacobian / scale
        bounds = ((box.lower - origin) * scale, (box.upper - origin) * scale)
        answer = lsq_linear(matrix, -at.residual, bounds, method="bvls", tol=1e-14)
        values = box.clip(origin + answer.x / scale)
        known = determined(matrix)
        cost = 2 * float(answer.cost)
        estimate = Estimate(
            {n: v for n, v in box.mapping(values).items() if known[box.names.index(n)]},
            cost,
            Status.GLOBAL_BY_CONVEXITY,
            "linear least squares",
            lower_bound=cost,
            seconds=time.perf_counter() - began,
        )
        return RouteResult(
            estimate, tuple(n for n, k in zip(box.names, known, strict=True) if not k)
        )


WORST = 10.0  # times the best objective: optima beyond explain nothing and are not compared
ROUNDING = 1e-12  # of the targets' own squares: objectives below it are all zero


def distinct(regression: Regression, fits: Iterable[Fit]) -> list[Fit]:
    """One fit for each optimum, the best first, as far as `WORST` times its objective."""
    some = [f for f in fits if f.at is not None]
    best = min((f.cost for f in some), default=0.0)
    level = WORST * best + rounding(regression)
    return optima.distinct(_landscape(regression), (f for f in some if f.cost <= level))


def known(regression: Regression, fit: Fit) -> BoolArray:
    """(n,) which parameters the data determine there; see `igpe.numerics.optima.known`."""
    return optima.known(_landscape(regression), fit)


def rounding(regression: Regression) -> float:
    """Differences of the objective below this mean nothing."""
    return ROUNDING * sum(float(np.sum((p.weight * p.target) ** 2)) for p in regression.pieces)


def _landscape(regression: Regression) -> Landscape:
    return Landscape(regression.linearised, regression.box, rounding(regression))


@dataclass(frozen=True)
class LocalSearch:
    """Gauss-Newton from the best of many Sobol points, none near a better one.

    trials  points that are evaluated;  starts: how many of them are searched from
    seed    of the points; the same seed gives the same result
    search  from each start
    """

    trials: int = 256
    starts: int = 12
    seed: int = 0
    search: GaussNewton = GaussNewton()

    def seeded(self, seed: int) -> "LocalSearch":
        """The same search from other points."""
        return replace(self, seed=seed)

    def estimate(self, regression: Regression) -> RouteResult:
        """The best local optimum found, and the others; what is not determined is left out."""
        began = time.perf_counter()
        fits = self.fits(regression)
        method = f"Gauss-Newton from {self.starts} starts"
        if not fits:
            seconds = time.perf_counter() - began
            lost = Estimate({}, np.inf, Status.FAILED, method, seconds=seconds)
            return RouteResult(lost, regression.box.names)
        status = Status.INTERRUPTED if stopped() else Status.BEST_OF_SEVERAL
        outcome = Estimate({}, fits[0].cost, status, method)
        return _route_result(regression, fits, outcome, began)

    def best(self, regression: Regression) -> Fit | None:
        """The best local optimum found; None if no point could be evaluated."""
        return min(self._searched(regression), key=lambda f: f.cost, default=None)

    def fits(self, regression: Regression) -> list[Fit]:
        """All local optima found, each once, the best first; empty if nothing can be evaluated.

        At Ctrl-C those that are there; raises KeyboardInterrupt if none is.
        """
        return distinct(regression, self._searched(regression))

    def _searched(self, regression: Regression) -> list[Fit]:
        box = regression.box
        judged = [
            (regression.cost(p), k, p) for k, p in enumerate(box.sobol(self.trials, self.seed))
        ]
        able = [one for one in judged if one[0] < np.inf]
        points = [p for _, _, p in sorted(able, key=lambda item: item[:2])]
        starts = [points[i] for i in spread(points, self.starts)]
        result: list[Fit] = []
        try:
            with interruptible():
                for p in starts:
                    result.append(self.search.fit(regression.linearised, p, box))
        except KeyboardInterrupt:
            if not result:
                raise
        return result


def route_result(
    regression: Regression, fit: Fit, outcome: Estimate, began: float, others: Iterable[Fit] = ()
) -> RouteResult:
    """The fit as a route's answer: only the parameters that its data determine.

    outcome  method, status and bound of the answer
    began    when the route began, by `time.perf_counter`
    others   fits from other starts, in any order; those that are not the same optimum are kept
    """
    worse = [f for f in others if f.cost >= fit.cost]
    return _route_result(regression, distinct(regression, [fit, *worse]), outcome, began)


def _route_result(
    regression: Regression, fits: Sequence[Fit], outcome: Estimate, began: float
) -> RouteResult:
    best = _determined(regression, fits[0])
    estimate = replace(outcome, parameters=best, objective=fits[0].cost)
    others = tuple(
        Estimate(_determined(regression, fit), fit.cost, Status.CONVERGED, outcome.method)
        for fit in fits[1:]
    )
    return RouteResult(
        replace(estimate, seconds=time.perf_counter() - began),
        tuple(n for n in regression.box.names if n not in best),
        others,
    )


def _determined(regression: Regression, fit: Fit) -> dict[str, float]:
    values = regression.box.mapping(fit.x)
    both = zip(values.items(), known(regression, fit), strict=True)
    return {name: value for (name, value), yes in both if yes}
