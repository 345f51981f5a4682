"""Log-normal errors: logarithms of measurements are compared with logarithms of predictions."""

from dataclasses import dataclass

import numpy as np

from igpe.core.arguments import Checked, Positive
from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError


@dataclass(frozen=True)
class LogNormal(Checked):
    """Errors of a positive quantity whose logarithm has normal errors.

    igpe replaces the measured quantity `A` by `ln(A)`, also in results and plots. An Expression
    gives the logarithm of the model's quantity, and igpe compares the values of this Expression
    with the logarithms of the measurements. All numbers for this quantity in a result refer to its
    logarithm.

    deviation  standard deviation of the natural logarithm; a small deviation is about equal to
               the relative error. The true value is the median of the distribution of the
               measurements, not its mean
    raises     ProblemError unless the deviation is positive
    """

    deviation: Positive


def logarithms(name: str, values: FloatArray) -> FloatArray:
    """Natural logarithms of a column; raises DataError where a value has none."""
    if (low := values <= 0).any():
        row = int(np.flatnonzero(low)[0])
        raise DataError(
            f"Column '{name}' has the value {values[row]:g} in row {row}, but log-normal errors "
            "need values above 0. Replace such values by NaN, or give normal errors: "
            f"sigma={{'{name}': igpe.Noise(absolute=..., relative=...)}}."
        )
    return np.log(values)
