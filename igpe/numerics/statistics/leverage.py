"""What single residuals weigh in a linearised fit.

x - x* = W e,   W = (J'J)^-1 J'      influence of errors e on the estimate
h_i = (J W)_ii                       leverage: how far a fit follows its i-th measurement
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.numerics.statistics.rank import RANK, directions

FAINT = 1e-6  # share of a change in directions that are lost, up to which it is rounding


class Root(NamedTuple):
    """(J'J)^-1 = root root' on the directions that J determines.

    root  (n, r); rows of unknowns on a bound are 0
    lost  (n, k) the others, each unknown in its size;  size: (n,) of an unknown, 1 / |column of J|
    """

    root: FloatArray
    lost: FloatArray
    size: FloatArray

    def error(self, change: FloatArray) -> FloatArray:
        """(...,) standard error of what changes by `change` (..., n), in units of residuals.

        Infinite where it changes along a direction that is not determined.
        """
        known = np.linalg.norm(change @ self.root, axis=-1)
        unknown = np.linalg.norm(change @ self.lost, axis=-1)
        faint = unknown <= FAINT * np.linalg.norm(change * self.size, axis=-1)
        return np.asarray(np.where(faint, known, np.inf))


def root(jacobian: FloatArray, held: BoolArray) -> Root:
    """Of a derivative (m, n); held (n,) unknowns on a bound."""
    n, free = jacobian.shape[1], np.flatnonzero(~held)
    length = np.linalg.norm(jacobian, axis=0)
    size = 1 / np.where(length > 0, length, 1.0)
    if len(free) == 0:
        return Root(np.zeros((n, 0)), np.zeros((n, 0)), size)
    known = directions(jacobian[:, free] * size[free])
    found, lost = np.zeros((n, len(known.known))), np.zeros((n, len(known.lost)))
    found[free] = size[free, None] * known.known.T / known.singular
    lost[free] = size[free, None] * known.lost.T
    return Root(found, lost, size)


def influence(jacobian: FloatArray, held: BoolArray) -> FloatArray:
    """(n, m) W of a derivative (m, n); rows of unknowns that are held, or undetermined, are 0."""
    of = root(jacobian, held)
    lost = np.sum((of.lost / of.size[:, None]) ** 2, axis=1) > RANK
    weight = of.root @ (jacobian @ of.root).T
    return np.asarray(np.where(lost[:, None], 0.0, weight))


def leverage(jacobian: FloatArray, held: BoolArray) -> FloatArray:
    """(m,) between 0 (the fit does not care) and 1 (it goes through the measurement)."""
    image = jacobian @ root(jacobian, held).root
    return np.asarray(np.minimum(np.sum(image**2, axis=1), 1.0))
