"""Bounds that follow the estimates from horizon to horizon.

Michalik et al. (2009), ISS, section 3.1: after each horizon the bounds become the 99 % confidence
limits of its estimate, inside the user's own; where the next estimate meets one, it is moved out,

    UB_new = min(UB_old + BRF (UB_old - LB_old), UB)                                          (10)
    LB_new = max(LB_old - BRF (UB_old - LB_old), LB)                                          (11)

The paper's covariance (S' V_M^-1 S)^-1 (9) believes that the model fits. On an early horizon caught
in a wrong minimum it does not, and its tiny limits would lock the search in: variances are here
multiplied by chi squared per degree of freedom, as far as that exceeds one.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from igpe.arrays import BoolArray, FloatArray
from igpe.box import Box
from igpe.least_squares.base import Linearised
from igpe.statistics.rank import RANK

NARROWEST = 1e-10  # half width of updated bounds, relative to the estimate: above rounding
NEAR = 1e-9  # of a bound's distance from the other: an estimate that lies on it
MOST = 30  # relaxations of one horizon


@dataclass(frozen=True)
class UpdatedBounds:
    """How bounds follow the estimates.

    confidence  of the limits that become bounds; 0: the user's bounds stay as they are
    factor      BRF, by how many widths an active bound is moved
    scaled      whether a bad fit widens the limits (else they are the paper's)
    """

    confidence: float = 0.99
    factor: float = 2.0
    scaled: bool = True

    def around(self, x: FloatArray, at: Linearised, user: Box, *, sigma_known: bool) -> Box:
        """Confidence limits of the estimate x (n,) inside the user's bounds."""
        half = self._half_width(at, sigma_known=sigma_known)
        half = np.maximum(half, NARROWEST * np.abs(x))
        lower, upper = np.maximum(x - half, user.lower), np.minimum(x + half, user.upper)
        return replace(user, lower=lower, upper=upper)

    def relaxed(self, x: FloatArray, box: Box, user: Box) -> Box | None:
        """The box with the updated bounds widened that x lies on; None if it lies on none."""
        low, high = active(x, box, user)
        if not (low.any() or high.any()):
            return None
        width = self.factor * (box.upper - box.lower)
        lower = np.where(low, np.maximum(box.lower - width, user.lower), box.lower)
        upper = np.where(high, np.minimum(box.upper + width, user.upper), box.upper)
        return replace(box, lower=lower, upper=upper)

    def _half_width(self, at: Linearised, *, sigma_known: bool) -> FloatArray:
        """(n,) quantile times standard deviation; infinite where nothing is known."""
        m, n = at.jacobian.shape
        if self.confidence == 0 or (self.scaled and m <= n):
            return np.full(n, np.inf)
        variance = at.cost / (m - n) if m > n else 1.0
        if sigma_known:
            variance = max(variance, 1.0) if self.scaled else 1.0
        quantile = float(ndtri(0.5 + self.confidence / 2))
        return np.asarray(quantile * np.sqrt(variance) * _deviations(at.jacobian))


def active(x: FloatArray, box: Box, user: Box) -> tuple[BoolArray, BoolArray]:
    """(n,), (n,): which of the lower and upper bounds x lies on, the user's own left out."""
    near = NEAR * (box.upper - box.lower)
    low = (box.lower > user.lower) & (x - box.lower <= near)
    high = (box.upper < user.upper) & (box.upper - x <= near)
    return low, high


def _deviations(jacobian: FloatArray) -> FloatArray:
    """(n,) roots of the diagonal of (J'J)^-1; infinite for who takes part in a lost direction."""
    norm = np.sqrt((jacobian**2).sum(axis=0))
    norm[norm == 0] = 1.0  # scaled columns: rank does not depend on units
    _, singular, rows = np.linalg.svd(jacobian / norm, full_matrices=True)
    known = np.zeros(len(norm), dtype=bool)
    known[: len(singular)] = singular > RANK * max(singular[0], np.finfo(float).tiny)
    k = int(known.sum())
    found = np.sqrt(((rows[:k] / singular[:k, None]) ** 2).sum(axis=0)) / norm
    found[(rows[k:] ** 2).sum(axis=0) > RANK] = np.inf
    return np.asarray(found)
