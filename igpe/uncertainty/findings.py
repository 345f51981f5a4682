"""What the statistics of a fit ask to be told in its result."""

from dataclasses import replace

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.deadline import if_in_time
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.statistics.covariance import leverage
from igpe.numerics.statistics.weakness import weak_sentences
from igpe.problem.problem import Problem
from igpe.results.residual_table import UNJUDGED, Adequacy, clear_failures
from igpe.results.result import Result
from igpe.uncertainty.adequate import NOT_INTEGRATED, Linear, adequacy

NO_TIME = "The interrupt left no time to judge the residuals."


def with_findings(
    result: Result, problem: Problem, at: Linearised | None, active: FloatArray
) -> Result:
    """The result with a verdict on the fit, leverages, and notes on poor directions and outliers.

    at      residuals and derivative at the estimate, as `Residuals` has them; or None
    active  (k, n) derivative of active constraints
    """
    if at is None or not np.isfinite(at.jacobian).all():
        return replace(result, adequacy=Adequacy(UNJUDGED, reasons=(NOT_INTEGRATED,)))
    held, order = np.isnan(np.diag(result.covariance)), _order(problem)
    points = result.points.assign(leverage=leverage(at.jacobian, held)[order])
    others = np.arange(len(order), len(at.residual))
    jacobian = at.jacobian[np.concatenate([order, others])]
    linear = Linear(jacobian, -at.residual[others], held, active)
    verdict = if_in_time(lambda: adequacy(points, linear, result.degrees, result.seed))
    verdict = verdict or Adequacy(UNJUDGED, reasons=(NO_TIME,))
    told = replace(result, points=points, adequacy=verdict)
    free = result.estimates[: len(result.covariance)]
    notes = weak_sentences(
        [p.name for p in free], np.array([p.value for p in free]), result.covariance
    )
    odd = clear_failures(told.residual_tests())
    return replace(told, notes=(*result.notes, *notes, *odd))


def _order(problem: Problem) -> IntArray:
    """(m,) place of each of the result's points (by experiment, column, time) among residuals."""
    pieces, begin = [], 0
    for m in (e.measurements for e in problem.experiments):
        pieces.append(begin + np.lexsort((m.times[m.row], m.column)))
        begin += len(m.value)
    return np.concatenate(pieces)
