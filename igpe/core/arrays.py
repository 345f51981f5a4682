"""Arrays: the words of our signatures, and a robust size of residuals."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.intp]

MAD = 1.4826  # standard deviations in a median absolute one, of normal errors


def typical(residuals: FloatArray) -> float:
    """The standard deviation of normal errors with the median size of these residuals."""
    return MAD * float(np.median(np.abs(residuals)))
