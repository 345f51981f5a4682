"""The minimiser of a quadratic function in a box."""

import daqp
import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from igpe.core.arrays import FloatArray

RIDGE = 1e-8  # of the largest curvature: directions that no residual determines have so much


def least(
    curvature: FloatArray, gradient: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """(n,) the minimiser of g'd + d'K d / 2 between the bounds."""
    try:
        free = -cho_solve(cho_factor(curvature), gradient)
    except LinAlgError:  # rounding ate the smallest curvature
        curvature = curvature.copy()
        curvature.flat[:: len(gradient) + 1] += RIDGE * np.max(np.diag(curvature))
        free = np.asarray(-np.linalg.lstsq(curvature, gradient)[0], dtype=np.float64)
    if ((low <= free) & (free <= high)).all():
        return np.asarray(free)
    sense = np.zeros(len(gradient), dtype=np.int32)
    none = np.zeros((0, len(gradient)))
    found, _, flag, _ = daqp.solve(curvature, gradient, none, high, low, sense)
    return np.clip(found if flag > 0 else free, low, high)
