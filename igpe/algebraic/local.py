"""Subsystems that are nonlinear in their parameters, by local searches from many starts.

Nothing is proved; it serves where a proof would take too long, and to give a global solver a good
incumbent.
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from igpe.algebraic.base import Found
from igpe.algebraic.regression import Regression
from igpe.estimates import Estimate
from igpe.least_squares.base import Fit
from igpe.least_squares.gauss_newton import GaussNewton
from igpe.statistics.rank import determined
from igpe.status import Status


@dataclass(frozen=True)
class Local:
    """Gauss-Newton from the best of many Sobol points.

    trials  points that are evaluated;  starts: how many of the best are searched from
    seed    of the points; the same seed gives the same result
    """

    trials: int = 256
    starts: int = 12
    seed: int = 0
    search: GaussNewton = GaussNewton()

    def seeded(self, seed: int) -> "Local":
        """The same search from other points."""
        return replace(self, seed=seed)

    def estimate(self, regression: Regression) -> Found:
        """The best local optimum found; parameters the data do not determine are left out."""
        began = time.perf_counter()
        fit = self.best(regression)
        method = f"Gauss-Newton from {self.starts} starts"
        seconds = time.perf_counter() - began
        if fit is None or fit.at is None:
            lost = Estimate({}, np.inf, Status.FAILED, method, seconds=seconds)
            return Found(lost, regression.box.names)
        return found(regression, fit, Estimate({}, fit.cost, Status.BEST_OF_SEVERAL, method), began)

    def best(self, regression: Regression) -> Fit | None:
        """The best local optimum found; None if no point could be evaluated."""
        box = regression.box
        judged = [(regression.linearised(p), p) for p in box.sobol(self.trials, self.seed)]
        able = [(at.cost, k, p) for k, (at, p) in enumerate(judged) if at is not None]
        points = [p for _, _, p in sorted(able, key=lambda item: item[:2])[: self.starts]]
        fits = [self.search.fit(regression.linearised, p, box) for p in points]
        return min(fits, key=lambda f: f.cost, default=None)


def found(regression: Regression, fit: Fit, said: Estimate, began: float) -> Found:
    """The fit as a route's answer: only what its data determine, with what was `said` of it."""
    box = regression.box
    assert fit.at is not None, "a fit without residuals is no answer"
    norm = np.linalg.norm(fit.at.jacobian, axis=0)
    known = determined(fit.at.jacobian / np.where(norm > 0, norm, 1.0)) | box.at_bound(fit.x)
    values = box.mapping(fit.x)
    estimate = Estimate(
        {n: values[n] for n, k in zip(box.names, known, strict=True) if k},
        fit.cost,
        said.status,
        said.method,
        lower_bound=said.lower_bound,
        seconds=time.perf_counter() - began,
    )
    return Found(estimate, tuple(n for n, k in zip(box.names, known, strict=True) if not k))
