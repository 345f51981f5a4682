"""Standard deviations that depend on what the model predicts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from igpe.core.arguments import is_finite, shown
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import DataError

NEAR_ZERO = 0.1  # of a column's smallest measurement: predictions count as no smaller, floor or not


@dataclass(frozen=True)
class Proportional:
    """Errors proportional to the true value, with a constant part beneath it if there is a floor.

        sigma = sqrt(floor^2 + (share h)^2),    h the model's prediction, not the measurement

    is the additive and proportional ("combined") error model of pharmacokinetics (Beal & Sheiner,
    Estimating heteroscedastic variances, Technometrics 30 (1988)); share alone is a constant
    coefficient of variation. Estimators fit with weights held, take them anew where the model now
    is, and fit again until they stand still: generalised least squares (Carroll & Ruppert,
    Transformation and Weighting in Regression (1988), chapter 2), first weights from smoothed data.
    That solves sum (h - y) / sigma(h)^2 dh/dq = 0, right on average whatever the errors'
    distribution; maximum likelihood would minimise sum ((h - y) / sigma(h))^2 + 2 log sigma(h) and
    also learn from the size of residuals, which is a little more exact for normal errors of just
    this share and wrong for others. Weights from the measurements themselves would favour those
    that are too small by chance.

    Without a floor estimates do not depend on the share: if it is unknown give a guess, of which
    sqrt(result.reduced_chi_squared) times as much is what the measurements tell.

    share   coefficient of variation, e.g. 0.05 for 5 %
    floor   standard deviation at h = 0, in the unit of the column; without one, |h| counts as no
            less than a tenth of the column's smallest measurement that is not 0, and a note tells
            where that mattered
    raises  DataError unless 0 < share < 1 and floor is finite and not negative
    """

    share: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (is_finite(self.share) and 0 < self.share < 1):
            raise DataError(
                f"The share of a proportional error is {shown(self.share)}; give a number between "
                "0 and 1: igpe.Proportional(0.05) is 5 % of the model's value."
            )
        if not (is_finite(self.floor) and self.floor >= 0):
            raise DataError(
                f"The floor of a proportional error is {shown(self.floor)}; give the standard "
                "deviation at 0 in the unit of the column, a number of 0 or more."
            )

    def deviation(self, predicted: FloatArray) -> FloatArray:
        """Standard deviations at predictions h, in their unit."""
        return np.hypot(self.floor, self.share * predicted)

    def level(self, values: FloatArray) -> float:
        """One standard deviation for a whole column, until predictions are known."""
        known = values[np.isfinite(values)]
        return float(self.deviation(np.sqrt(np.mean(known**2)))) if known.size else 1.0

    def least(self, values: FloatArray) -> float:
        """The smallest |h| that counts beside a column of measurements."""
        sizes = np.abs(values[values != 0])
        return NEAR_ZERO * float(sizes.min(initial=np.inf)) if self.floor == 0 else 0.0

    def scaled(self, factor: float) -> "Proportional":
        """The same in a unit of which one old unit holds `factor`."""
        return replace(self, floor=abs(factor) * self.floor)


def deviations(
    models: Mapping[int, Proportional],
    column: IntArray,
    value: FloatArray,
    predicted: FloatArray,
    sigma: FloatArray,
) -> FloatArray:
    """(m,) standard deviations at predictions (m,) of measurements: column, value and old sigma.

    models  column -> its error model; other columns keep `sigma`
    """
    found = sigma.copy()
    for number, model in models.items():
        mine = column == number
        sizes = np.maximum(np.abs(predicted[mine]), model.least(value[mine]))
        found[mine] = model.deviation(sizes)
    return found
