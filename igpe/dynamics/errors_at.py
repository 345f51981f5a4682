"""Linearised errors of a problem's unknowns, the one way that every table takes."""

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.statistics.covariance import Uncertainty, uncertainty
from igpe.problem.problem import Problem


def errors_at(
    problem: Problem,
    x: FloatArray,
    at: Linearised | None,
    confidence: float = 0.95,
    *,
    active: FloatArray | None = None,
    held: BoolArray | None = None,
) -> Uncertainty:
    """Linearised errors of the free unknowns at an optimum x (n,).

    at      residuals and derivative there; None where the model cannot be integrated: then nothing
            is known
    active  (m, n) gradients of the active constraints; None: there are none
    held    (n,) which unknowns a bound holds; None: those that `on_bounds` names
    """
    held = on_bounds(x, at, problem.box) if held is None else held
    if at is None:
        at = Linearised(np.full(problem.size, np.nan), np.zeros((problem.size, len(x))))
        held = np.ones(len(x), dtype=bool)
    return uncertainty(
        x, at.residual, at.jacobian,
        held=held, sigma_known=problem.sigma_known, confidence=confidence, active=active,
        bounds=(problem.box.lower, problem.box.upper),
    )  # fmt: skip
