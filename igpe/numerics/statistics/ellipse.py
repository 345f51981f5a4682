"""Joint confidence of two linearised estimates: an ellipse."""

import numpy as np
from scipy import special

from igpe.core.arrays import FloatArray


def ellipse(
    covariance: FloatArray, confidence: float, degrees: int | None, points: int = 100
) -> FloatArray:
    """(points, 2) of d V^-1 d = chi2(confidence, 2), or 2 F(confidence, 2, degrees); closed.

    covariance  (2, 2);  degrees  None if sigma is known
    """
    if degrees is None:
        level = float(special.chdtri(2, 1 - confidence))
    else:
        level = 2 * float(special.fdtri(2, degrees, confidence)) if degrees > 0 else np.nan
    angle = np.linspace(0.0, 2 * np.pi, points)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.sqrt(level) * circle @ root.T)
