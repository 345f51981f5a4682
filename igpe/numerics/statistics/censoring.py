"""Residuals of normal values of which only a limit is known, and what they tell.

With z = (limit - h) / s the value is below its limit with the probability Phi(z). Its residual

    r = sqrt(-2 log Phi(z)),        dr/dh = m / (r s),        m = phi(z) / Phi(z),

has -2 log Phi(z) as its square, so that searches minimise a sum of squares. Half the second
derivative of that square is m (m + z) / s^2, the observed information; (dr/dh)^2 is less, by up to
one half. m by the scaled complementary error function is exact for any z.
"""

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri_exp

from igpe.core.arrays import FloatArray


def mills(z: FloatArray) -> FloatArray:
    """(n,) phi(z) / Phi(z)."""
    return np.asarray(np.sqrt(2 / np.pi) / erfcx(-z / np.sqrt(2)))


def below(away: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(n,) residuals r, and their derivatives by away = (h - limit) / s."""
    r = np.sqrt(-2 * log_ndtr(-away))
    with np.errstate(divide="ignore", invalid="ignore"):
        return r, np.where(r > 0, mills(-away) / r, 0.0)  # r underflows at 38 s below the limit


def information(r: FloatArray) -> FloatArray:
    """(n,) by what the derivative of residuals r is multiplied for its square to be observed
    information."""
    z = ndtri_exp(-(r**2) / 2)
    m = mills(z)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = r * np.sqrt(np.maximum(m + z, 0.0) / m)
    return np.where(np.isfinite(factor), factor, 1.0)
