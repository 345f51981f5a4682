"""Small convex quadratic programs, by daqp. No bound depends on their answers being right."""

import daqp
import numpy as np

from igpe.core.arrays import FloatArray

FREE = 1e30  # no bound


def minimum(
    square: FloatArray, linear: FloatArray, rows: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray | None:
    """Where 1/2 x.square.x + linear.x is least; None if the solver gives up.

    rows       (m, n) of constraints
    low, high  (n + m,) of x, then of rows x; infinite where there is none
    """
    answer = daqp.solve(
        square,
        linear,
        rows,
        np.minimum(high, FREE),
        np.maximum(low, -FREE),
        np.zeros(len(low), dtype=np.int32),
    )
    return np.asarray(answer[0]) if answer[2] > 0 else None
