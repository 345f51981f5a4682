"""The size of an unknown where its value does not tell it: at zero.

Nothing here is in the unknown's units, so that an unknown of 1e-12 is as good as one of 1: a size
is taken from where the search begins, else from the bounds, else from the residuals themselves.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.numerics.least_squares.base import Linearised

SHARE = 1e-3  # of the range between finite bounds: the size of an unknown that begins at zero
NEAR = 1e-2  # of where it began: the size of an unknown that comes close to zero
FAINT = 1e-9  # of a step that the residuals ask for: a size below is lost in rounding
UNKNOWN = 1e-2  # where nothing is known: neither start nor bounds, and no residual depends on it


def floors(at: Linearised, start: FloatArray, box: Box) -> FloatArray:
    """(n,) positive: the least size of each unknown on a search from `start` (n,).

    at  residuals and derivative at the start; where start and bounds tell nothing, the size is that
        of a step which the residuals' own size asks for
    """
    width = box.upper - box.lower
    ranged = np.where(np.isfinite(width), SHARE * width, 0.0)
    given = np.where(start != 0, NEAR * np.abs(start), ranged)
    slope = np.sqrt((at.jacobian**2).sum(axis=0))
    told = (slope > 0) & (at.squares > 0)
    step = np.sqrt(at.squares) / np.where(told, slope, 1.0)
    found = np.where(given > 0, np.maximum(given, FAINT * step * told), step * told)
    return np.asarray(np.where(found > 0, found, UNKNOWN))
