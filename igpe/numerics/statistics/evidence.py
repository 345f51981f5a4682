"""How differences of AICc are read (Burnham & Anderson, Model Selection, 2002, section 2.6)."""

import numpy as np

from igpe.core.arrays import FloatArray

CLOSE = 2.0  # models that cannot be told apart
FAR = 10.0  # a model that has no support


def akaike_weights(delta: FloatArray) -> FloatArray:
    """(n,) weights exp(-delta/2) that sum to 1, of differences (n,) to the least AICc."""
    weights = np.exp(-np.asarray(delta, dtype=float) / 2)
    return np.asarray(weights / weights.sum())
