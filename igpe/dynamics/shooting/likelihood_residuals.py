"""Residuals of a likelihood whose standard deviations are estimated.

-2 log L, but for a constant, is sum z^2 + 2 log s with z = (h - y) / s. Half its gradient is

    sum  z h'/s + (1 - z^2) s'/s,

and half its expected second derivative is Fisher's information, sum h'h'/s^2 + 2 s's'/s^2 (outer
products; Seber & Wild, Nonlinear Regression (1989), section 2.8).
Two residuals for each measurement have just these as A'r and A'A:

    r = z,                  A = h'/s
    r = (1 - z^2)/sqrt(2),  A = sqrt(2) s'/s

so that Gauss-Newton on them is Fisher's scoring, and A'A the inverse of the estimates' covariance.
Their sum of squares is not the cost; what is missing is the offset.
"""

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.numerics.least_squares.base import Linearised

ROOT = float(np.sqrt(2.0))


def likelihood_residuals(
    plain: Linearised, spread: FloatArray, slope: FloatArray, estimated: BoolArray
) -> Linearised:
    """(m + k,) residuals with (m + k, n) derivative, k measurements having an estimated deviation.

    plain      residuals and derivative, divided by what is known of the deviations
    spread     (m,) s;  slope (m, n) its derivative;  both count only where `estimated`
    NaN where some s is not positive
    """
    s, by_unknown = spread[estimated], slope[estimated]
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.ones(len(spread))
        factor[estimated] = np.where(s > 0, 1 / s, np.nan)
        z = plain.residual * factor
        logarithms = 2 * float(np.log(s).sum())
        own = (1 - z[estimated] ** 2) / ROOT
        relative = by_unknown * factor[estimated][:, None]
    residual = np.concatenate([z, own])
    jacobian = np.vstack([plain.jacobian * factor[:, None], ROOT * relative])
    return Linearised(residual, jacobian, plain.offset + logarithms - float(own @ own))
