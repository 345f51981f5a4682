"""Singular values of a table of measurements: how many are above the noise, and its level."""

import numpy as np

from igpe.core.arrays import FloatArray

TRACY_WIDOM = 3.2724  # 0.999 quantile of the law of order one


def noise_level(singular: FloatArray, shape: tuple[int, int], few: int) -> float:
    """Standard deviation of what is beyond the first `few` singular values."""
    degrees = (shape[0] - few) * (shape[1] - few)
    return float(np.sqrt((singular[few:] ** 2).sum() / degrees)) if degrees > 0 else 0.0


def edge(shape: tuple[int, int], few: int) -> float:
    """Largest singular value that unit noise beside `few` contributions has in 999 of 1000 cases.

    Johnstone's centre and scale of the largest eigenvalue of a Wishart matrix, and the 0.999
    quantile of the Tracy-Widom law of order one (Ann. Statist. 29 (2001), 295).
    """
    n, m = (max(size - few, 1) for size in shape)
    a, b = np.sqrt(max(n - 1, 0.0)), np.sqrt(m)
    centre = (a + b) ** 2
    scale = (a + b) * (1 / max(a, 1.0) + 1 / b) ** (1 / 3)
    return float(np.sqrt(centre + TRACY_WIDOM * scale))


def contributions(
    singular: FloatArray, shape: tuple[int, int], sigma: float | None
) -> tuple[int, float]:
    """The first count beyond which the next singular value may be noise; and the noise's level."""
    floor = np.finfo(float).eps * max(shape) * float(singular[0] if len(singular) else 0.0)
    for few in range(len(singular)):
        level = noise_level(singular, shape, few) if sigma is None else sigma
        if singular[few] <= max(level * edge(shape, few), floor):
            return few, level
    return len(singular), 0.0 if sigma is None else sigma
