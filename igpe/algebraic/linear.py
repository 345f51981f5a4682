"""Subsystems linear in their parameters: bounded linear least squares, global by convexity."""

import time
from dataclasses import dataclass

import numpy as np
from scipy.optimize import lsq_linear

from igpe.algebraic.base import Found
from igpe.algebraic.regression import Regression
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.numerics.statistics.covariance import determined


@dataclass(frozen=True)
class Linear:
    """Closed form for regressions that are linear in all parameters.

    Parameters that the data do not determine are left out of the answer.
    """

    def estimate(self, regression: Regression) -> Found:
        """The global optimum within the bounds (BVLS on scaled columns)."""
        began = time.perf_counter()
        box = regression.box
        origin = box.clip(np.zeros(len(box)))
        at = regression.linearised(origin)
        if at is None:
            lost = Estimate({}, np.inf, Status.FAILED, "linear least squares")
            return Found(lost, box.names)
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
        return Found(estimate, tuple(n for n, k in zip(box.names, known, strict=True) if not k))
