"""Bounds that follow the estimates from horizon to horizon.

Michalik et al. (2009), ISS, section 3.1: after each horizon the bounds become the 99 % confidence
limits of its estimate, inside the user's own; where the next estimate meets one, it is moved out,

    UB_new = min(UB_old + BRF (UB_old - LB_old), UB)                                          (10)
    LB_new = max(LB_old - BRF (UB_old - LB_old), LB)                                          (11)

The paper's covariance (S' V_M^-1 S)^-1 (9) believes that the model fits. On an early horizon caught
in a wrong minimum it does not, and its tiny limits would lock the search in: variances are here
multiplied by chi squared per degree of freedom, as far as that exceeds one.

An exact fit of rounded or few measurements has no covariance at all. Limits are never narrower than
rounding, bounds without width go back to the user's at once, and so do those that were relaxed
often enough.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from igpe.core.arguments import is_finite, require
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.numerics.least_squares.base import Fit, Linearised, Search
from igpe.numerics.least_squares.bounded import bounded_solution
from igpe.numerics.statistics.covariance import RANK

NARROWEST = 1e-10  # half width of updated bounds, relative to the estimate: above rounding
NEAR = 1e-9  # of a bound's distance from the other: an estimate that lies on it
MOST = 30  # relaxations of one horizon
SHARPEST = 1e-6  # standard deviations: residuals are never taken to be more exact


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

    def __post_init__(self) -> None:
        ok = is_finite(self.confidence) and 0 <= self.confidence < 1
        wanted = "a number from 0 (the user's bounds stay) to less than 1"
        require(ok, "UpdatedBounds", "confidence", self.confidence, wanted)
        ok = is_finite(self.factor) and self.factor > 0
        require(ok, "UpdatedBounds", "factor", self.factor, "a positive number")

    def around(self, x: FloatArray, at: Linearised, user: Box, *, sigma_known: bool) -> Box:
        """Confidence limits of the estimate x (n,) inside the user's bounds."""
        half = self._half_width(at, sigma_known=sigma_known)
        half = np.maximum(half, NARROWEST * np.abs(x))
        lower, upper = np.maximum(x - half, user.lower), np.minimum(x + half, user.upper)
        return replace(user, lower=lower, upper=upper)

    def relaxed(self, x: FloatArray, box: Box, user: Box) -> Box | None:
        """The box with the updated bounds widened that x lies on; None if it lies on none.

        x  an estimate, or where its next step would lead
        """
        low, high = active(x, box, user)
        if not (low.any() or high.any()):
            return None
        width = self.factor * (box.upper - box.lower)
        width[width == 0] = np.inf
        lower = np.where(low, np.maximum(box.lower - width, user.lower), box.lower)
        upper = np.where(high, np.minimum(box.upper + width, user.upper), box.upper)
        return replace(box, lower=lower, upper=upper)

    def in_the_way(
        self, fit: Fit, box: Box, user: Box, search: Search, *, give_up: bool = False
    ) -> Box | None:
        """The box with those updated bounds widened that keep a search from going on, or None.

        give_up  whether they go back to the user's instead
        """
        for x in (fit.x, beyond(fit, box, user, search)):
            wider = opened(x, box, user) if give_up else self.relaxed(x, box, user)
            if wider is not None:
                return wider
        return None

    def _half_width(self, at: Linearised, *, sigma_known: bool) -> FloatArray:
        """(n,) quantile times standard deviation; infinite where nothing is known."""
        m, n = at.jacobian.shape
        if self.confidence == 0 or (self.scaled and m <= n):
            return np.full(n, np.inf)
        variance = at.cost / (m - n) if m > n else 1.0
        if sigma_known:
            variance = max(variance, 1.0) if self.scaled else 1.0
        variance = max(variance, SHARPEST**2)
        quantile = float(ndtri(0.5 + self.confidence / 2))
        return np.asarray(quantile * np.sqrt(variance) * _deviations(at.jacobian))


def active(x: FloatArray, box: Box, user: Box) -> tuple[BoolArray, BoolArray]:
    """(n,), (n,): which of the lower and upper bounds x lies on, the user's own left out."""
    near = NEAR * (box.upper - box.lower)
    low = (box.lower > user.lower) & (x - box.lower <= near)
    high = (box.upper < user.upper) & (box.upper - x <= near)
    return low, high


def opened(x: FloatArray, box: Box, user: Box) -> Box | None:
    """The box with the user's own bounds where x lies on updated ones; None if on none."""
    low, high = active(x, box, user)
    if not (low.any() or high.any()):
        return None
    lower, upper = np.where(low, user.lower, box.lower), np.where(high, user.upper, box.upper)
    return replace(box, lower=lower, upper=upper)


def held(x: FloatArray, box: Box, user: Box) -> list[str]:
    """Sentences on unknowns that end on a bound which is not the user's."""
    low, high = active(x, box, user)
    return [
        f"{name} ends on {value:g}, a bound that followed from earlier horizons; a better value "
        "may lie beyond. Wider ones: bounds=UpdatedBounds(confidence=0)."
        for name, value, on in zip(box.names, x, low | high, strict=True)
        if on
    ]


def beyond(fit: Fit, box: Box, user: Box, search: Search) -> FloatArray:
    """(n,) where the next step from an estimate in `box` leads if the user's bounds alone hold it.

    The estimate itself if that step promises no more than what ends the search.
    """
    if fit.at is None:
        return fit.x
    size = np.where(np.isfinite(box.upper - box.lower), box.upper - box.lower, np.abs(fit.x))
    size = np.where(size > 0, size, 1.0)
    low, high = (user.lower - fit.x) / size, (user.upper - fit.x) / size
    step = size * bounded_solution(fit.at.jacobian * size, -fit.at.residual, low, high)
    rest = fit.at.residual + fit.at.jacobian @ step
    promised = fit.at.cost - float(rest @ rest)
    enough = promised > search.tolerance * fit.at.cost + search.absolute
    return np.asarray(fit.x + step) if enough else fit.x


def _deviations(jacobian: FloatArray) -> FloatArray:
    """(n,) roots of the diagonal of (J'J)^-1; infinite for who takes part in a lost direction."""
    m, n = jacobian.shape
    norm = np.sqrt((jacobian**2).sum(axis=0))
    norm[norm == 0] = 1.0  # scaled columns: rank does not depend on units
    even = jacobian / norm
    _, singular, rows = np.linalg.svd(np.linalg.qr(even, mode="r") if m > n else even)
    known = np.zeros(n, dtype=bool)
    known[: len(singular)] = singular > RANK * max(singular[0], np.finfo(float).tiny)
    k = int(known.sum())
    found = np.sqrt(((rows[:k] / singular[:k, None]) ** 2).sum(axis=0)) / norm
    found[(rows[k:] ** 2).sum(axis=0) > RANK] = np.inf
    return np.asarray(found)
