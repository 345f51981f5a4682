"""A constant standard deviation, a share of the predicted value, or both."""

from dataclasses import dataclass, replace

import numpy as np

from igpe.core.arguments import is_finite, shown
from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.problem.noise.sigma import NoiseModel

NEAR_ZERO = 0.1  # of a column's smallest measurement: predictions count as no smaller


@dataclass(frozen=True)
class Noise(NoiseModel):
    """A standard deviation with a constant part and a part proportional to the predicted value.

        sigma = sqrt(absolute^2 + (relative h)^2)

    Here h is the prediction of the model, not the measurement. This is the "combined" (additive and
    proportional) error model of pharmacokinetics (Beal & Sheiner, Estimating heteroscedastic
    variances, Technometrics 30 (1988)). With only a relative part, the coefficient of variation is
    constant; with only an absolute part, the standard deviation is constant.

    Without an absolute part, the estimated unknowns do not depend on the size of the relative part.
    If this size is not known, give a guess and multiply it by sqrt(result.reduced_chi_squared) to
    get an estimate of the relative part.

    absolute  standard deviation at h = 0, in the unit of the quantity. If `absolute` is 0, igpe
              sets a lower limit for |h|: a tenth of the smallest nonzero absolute value among the
              measurements of the column. A note lists the points at which this limit changes the
              standard deviation
    relative  coefficient of variation, e.g. 0.05 for 5 %
    raises    DataError unless both parts are 0 or more, at least one part is positive, and relative
              < 1
    """

    absolute: float = 0.0
    relative: float = 0.0

    def __post_init__(self) -> None:
        given = self.absolute, self.relative
        if not (is_finite(*given) and min(given) >= 0 and max(given) > 0 and self.relative < 1):
            raise DataError(
                f"Noise has absolute={shown(self.absolute)} and relative={shown(self.relative)}. "
                "Both must be at least 0, and at least one must be positive. Give `absolute` in "
                "the unit of the column, and `relative` as a fraction below 1: "
                "igpe.Noise(relative=0.05) is 5 %."
            )

    def deviation(self, predicted: FloatArray) -> FloatArray:
        """Return the standard deviations at the predictions h, in the unit of h."""
        return np.hypot(self.absolute, self.relative * predicted)

    def slope(self, predicted: FloatArray) -> FloatArray:
        """Return the derivatives of `deviation` with respect to h; 0 where the deviation is 0."""
        sigma = self.deviation(predicted)
        return np.asarray(self.relative**2 * predicted / np.where(sigma > 0, sigma, np.inf))

    def scaled(self, factor: float) -> "Noise":
        """Return the noise model for another unit; one old unit equals `factor` new units."""
        return replace(self, absolute=abs(factor) * self.absolute)

    @property
    def follows(self) -> bool:
        """Return True if the standard deviation depends on the prediction."""
        return self.relative > 0

    @property
    def remedy(self) -> str:
        """Advice for the user if measurements are 0 and the standard deviation would also be 0."""
        return f"Give an absolute part: igpe.Noise(absolute=..., relative={self.relative:g})."

    def least(self, values: FloatArray) -> float:
        """Return the lower limit of |h| for a column with the measurements `values`."""
        sizes = np.abs(values[values != 0])
        return NEAR_ZERO * float(sizes.min(initial=np.inf)) if self.absolute == 0 else 0.0
