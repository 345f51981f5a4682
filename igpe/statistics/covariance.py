"""How sure the estimates are: linearised covariance, and what the data do not determine.

    V = s^2 (J' J)^-1        J = d residual / d unknown at the optimum
                             (Michalik et al. 2009, ISS, eq. 9; Peifer & Timmer 2007, eq. 22)

with residuals already divided by their standard deviations; s^2 = 1 where those were given, else
s^2 = sum of squares / (measurements - unknowns). Unknowns on a bound do not move with the data:
they are held, and their errors are not defined.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.linalg import null_space

from igpe.arrays import BoolArray, FloatArray
from igpe.statistics.rank import RANK, directions

NOTHING = 1e-8  # effect of an unknown, in units of the residuals' spread, that is rounding


@dataclass(frozen=True)
class Uncertainty:
    """Errors of n unknowns.

    covariance       (n, n), NaN in rows of unknowns on a bound, infinite where undetermined
    standard_error   (n,)
    lower, upper     (n,) confidence limits (not cut at the bounds)
    confidence       e.g. 0.95
    held             (n,) which unknowns lie on a bound
    undetermined     (n,) which unknowns the measurements do not determine
    degrees          degrees of freedom: residuals - determined directions of unknowns not held
    variance         s^2 above
    """

    covariance: FloatArray
    standard_error: FloatArray
    lower: FloatArray
    upper: FloatArray
    confidence: float
    held: BoolArray
    undetermined: BoolArray
    degrees: int
    variance: float


def uncertainty(
    x: FloatArray,
    residual: FloatArray,
    jacobian: FloatArray,
    *,
    held: BoolArray,
    sigma_known: bool,
    confidence: float = 0.95,
    active: FloatArray | None = None,
) -> Uncertainty:
    """Linearised errors at an optimum x (n,) with residual (m,) and jacobian (m, n).

    held    (n,) unknowns on a bound
    active  (k, n) derivative of active constraints: the unknowns move only along them, and
            V = s^2 Z (Z' J' J Z)^-1 Z' with Z their null space

    A column that would move no residual by a part in 1e8 of its spread, were its unknown doubled,
    is rounding: that unknown is undetermined.
    """
    n, free = len(x), np.flatnonzero(~held)
    spread = 1.0 if sigma_known else float(np.sqrt(np.mean(residual**2)))
    effect = np.linalg.norm(jacobian, axis=0) * np.maximum(np.abs(x), np.finfo(float).tiny)
    told = np.where((effect > NOTHING * spread) | (x == 0), 1.0, 0.0)
    along = null_space(active[:, free]) if active is not None and len(active) else np.eye(len(free))
    inverse, lost, rank = _inverse_normal_matrix((jacobian * told)[:, free], along)
    degrees = len(residual) - rank
    variance = (
        1.0 if sigma_known else float(residual @ residual) / degrees if degrees > 0 else np.nan
    )
    covariance = np.full((n, n), np.nan)
    covariance[np.ix_(free, free)] = variance * inverse
    undetermined = np.zeros(n, dtype=bool)
    undetermined[free] = lost
    covariance[undetermined, undetermined] = np.inf
    error = np.sqrt(np.diag(covariance))
    quantile = _quantile(confidence, degrees, sigma_known=sigma_known)
    half = quantile * error
    return Uncertainty(
        covariance, error, x - half, x + half, confidence, held, undetermined, degrees, variance
    )


def correlation(covariance: FloatArray) -> FloatArray:
    """(n, n) correlation matrix; NaN where an error is not defined."""
    with np.errstate(invalid="ignore"):
        error = np.sqrt(np.diag(covariance))
    error = np.where(np.isfinite(error) & (error > 0), error, np.nan)
    return np.asarray(covariance / np.outer(error, error))


def chi_squared_probability(chi2: float, degrees: int) -> float:
    """Probability of a larger chi squared if model and standard deviations are right."""
    return float(special.chdtrc(degrees, chi2)) if degrees > 0 else float("nan")


class _Inverse(NamedTuple):
    """(J'J)^-1 on the determined directions, which columns reach into others, and the rank."""

    inverse: FloatArray
    lost: BoolArray
    rank: int


def _inverse_normal_matrix(jacobian: FloatArray, along: FloatArray) -> _Inverse:
    """Of the directions `along` (n, k), those that J determines."""
    n, k = along.shape
    if k == 0:
        return _Inverse(np.zeros((n, n)), np.zeros(n, dtype=bool), 0)
    moved = jacobian @ along
    norm = np.linalg.norm(moved, axis=0)
    norm = np.where(norm > 0, norm, 1.0)  # scaled columns: rank does not depend on units
    found = directions(moved / norm)
    root = (along / norm) @ (found.known.T / found.singular)
    lost = np.sum((along @ found.lost.T) ** 2, axis=1) > RANK
    return _Inverse(root @ root.T, lost, len(found.known))


def _quantile(confidence: float, degrees: int, *, sigma_known: bool) -> float:
    if sigma_known:
        return float(special.ndtri(0.5 + confidence / 2))
    return float(special.stdtrit(degrees, 0.5 + confidence / 2)) if degrees > 0 else float("nan")
