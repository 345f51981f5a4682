"""What the statistics of a fit ask to be told in its result."""

from dataclasses import replace

import numpy as np

from igpe.arrays import FloatArray
from igpe.least_squares.base import Linearised
from igpe.problem import Problem
from igpe.residual_table import clear_failures
from igpe.result import Result
from igpe.statistics.leverage import leverage
from igpe.statistics.weakness import weak_sentences


def with_findings(result: Result, problem: Problem, at: Linearised | None) -> Result:
    """The result with leverages in its points, and notes on poor directions and odd residuals.

    at  residuals and derivative at the estimate, as `igpe.dynamic.residuals` has them; or None
    """
    if at is None or not np.isfinite(at.jacobian).all():
        return result
    points = result.points.assign(leverage=_leverages(result, problem, at))
    told = replace(result, points=points)
    free = result.estimates[: len(result.covariance)]
    notes = weak_sentences(
        [p.name for p in free], np.array([p.value for p in free]), result.covariance
    )
    odd = clear_failures(told.residual_tests())
    return replace(told, notes=(*result.notes, *notes, *odd))


def _leverages(result: Result, problem: Problem, at: Linearised) -> FloatArray:
    """(m,) in the order of the result's points: by experiment, column and time."""
    held = np.isnan(np.diag(result.covariance))
    all_of = leverage(at.jacobian, held)
    pieces, begin = [], 0
    for m in (e.measurements for e in problem.experiments):
        mine = all_of[begin : begin + len(m.value)]
        pieces.append(mine[np.lexsort((m.times[m.row], m.column))])
        begin += len(m.value)
    return np.concatenate(pieces)
