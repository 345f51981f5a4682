"""What a user should know of an optimum by shooting, as sentences."""

from collections.abc import Iterator

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.numerics.least_squares.active import on_bounds, undetermined
from igpe.numerics.least_squares.base import Fit, Linearised
from igpe.problem.problem import Problem

NOTICED = 0.1  # in standard deviations or units of chi squared: what matters to a fit
GUESS = 1e-2  # standard deviation where none is known, in root mean squares of the measurements


def limited(fit: Fit) -> bool:
    """Whether residuals at the optimum are too inexact for its cost to mean something.

    Either the search could not get a decrease that the derivative still promised, or the last digit
    of some unknown already moves a prediction noticeably.
    """
    if fit.at is None:
        return False
    digit = np.finfo(float).eps * np.abs(fit.at.jacobian * fit.x).max()
    broken = fit.status is Status.CONVERGED and fit.promised > NOTICED
    return bool(digit > NOTICED or broken)


def remarks(fit: Fit, box: Box, gate: float) -> Iterator[str]:
    """Sentences on an optimum whose residuals are in standard deviations.

    gate  cost that the measurement errors explain; infinite if they are not known
    """
    if fit.at is None:
        return
    if limited(fit):
        yield (
            "The optimum is limited by the accuracy of the integration: the predictions change "
            "noticeably with the last digits of the parameters. The sum of squares and standard "
            "errors mean little; the parameters themselves are as exact as numbers can be."
        )
    elif fit.cost > gate:
        yield (
            f"The sum of squares {fit.cost:.4g} is more than the measurement errors explain "
            f"({gate:.4g}): a wrong minimum, a wrong model, or too small standard deviations."
        )
    held = on_bounds(fit.x, fit.at, box)
    for name, value in zip(np.array(box.names)[held], fit.x[held], strict=True):
        yield f"{name} ends on its bound {value:g}; a better value may lie beyond."
    lost = undetermined(_with_active(fit.at.jacobian, fit), fit.x, box.names)
    yield from (d.sentence for d in lost)


def _with_active(jacobian: FloatArray, fit: Fit) -> FloatArray:
    """With active constraints as rows of the same size: what they hold is determined."""
    if fit.active is None or len(fit.active) == 0:
        return jacobian
    effect, own = (np.linalg.norm(m * fit.x, axis=1) for m in (jacobian, fit.active))
    whole = effect.max(initial=0.0)
    return np.vstack([jacobian, fit.active * (whole / np.where(own > 0, own, 1.0))[:, None]])


def in_deviations(fit: Fit, spread: float) -> Fit:
    """The fit with residuals in standard deviations; spread: one of them, in their units."""
    if spread == 1.0:
        return fit
    at = fit.at
    if at is not None:
        at = Linearised(at.residual / spread, at.jacobian / spread, at.offset / spread**2)
    return fit._replace(at=at, promised=fit.promised / spread**2)


def spread_of(problem: Problem) -> float:
    """One standard deviation in units of the residuals: 1 where known, else a guess."""
    if problem.sigma_known or problem.sigma_estimated:
        return 1.0
    values = np.concatenate([
        e.measurements.value / e.measurements.sigma for e in problem.experiments
    ])
    return GUESS * float(np.sqrt(np.mean(values**2))) or 1.0
