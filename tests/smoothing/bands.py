"""The full matrix of a band, to compare band algebra with."""

import numpy as np


def dense(band):
    """The symmetric matrix of a lower band."""
    n = band.shape[1]
    full = np.diag(band[0])
    for k in range(1, len(band)):
        full += np.diag(band[k, : n - k], -k) + np.diag(band[k, : n - k], k)
    return full
