"""The standard deviation of the measurements, from what the curve leaves over."""

import numpy as np

from igpe.smoothing.measurements import Measurements

LEAST_FREEDOM = 0.1  # residual degrees of freedom below which residuals tell nothing
JUDGED_FREEDOM = 8.0  # residual degrees of freedom from which on a given sigma can be judged
SURPRISE = 2.0  # a given sigma that is off by more than this factor is worth a note


def noise(data: Measurements, rss: float, freedom: float) -> tuple[float, tuple[str, ...]]:
    """sigma as in `Smooth`, and what there is to say about it.

    sigma^2 = (residual + scatter sum of squares) / (measurements - degrees of freedom)

    rss      weighted sum of squares of the residuals of the means, without exact values
    freedom  trace of the smoother, which exact values have raised by one each
    """
    left = data.count - (freedom - float(data.exact.sum()))
    if left < LEAST_FREEDOM:
        if data.sigma_given:
            return 1.0, ()
        return np.inf, (
            "The measurements are too few to tell their noise, so all errors are infinite: "
            "give standard deviations.",
        )
    estimate = float(np.sqrt((rss + data.scatter) / left))
    if not data.sigma_given:
        return estimate, ()
    odd = left >= JUDGED_FREEDOM and not 1.0 / SURPRISE <= estimate <= SURPRISE
    note = f"The residuals are {estimate:.2g} times as large as the standard deviations given."
    return 1.0, (note,) if odd else ()
