"""Relative standard deviations of several quantities, where none are given: one a quantity.

With normal errors and a variance of its own for each quantity, the likelihood is highest at

    s_k^2 = sum over the n_k measurements of quantity k of (h - y)^2 / n_k.

Only their ratios matter to a fit. They are scaled so that the sum of log w over all n measurements
is 0: then -2 log L = n log(S / n) + constant with the weighted sum of squares S, as for one
quantity (Bates & Watts, Nonlinear Regression Analysis and Its Applications (1988), section 4.2,
with a diagonal covariance).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.problem.experiment import Measurements

EXACT = 1e-6  # of the largest measurement: errors of integration, where data have none
MOST_DECIMALS = 8
FEWEST = 5  # measurements of a quantity from which its residuals have a size


def pooled(
    measurements: Sequence[Measurements], values: Sequence[FloatArray]
) -> dict[str, FloatArray]:
    """Quantity -> its entries of `values`, one for each measurement, in all experiments."""
    parts: dict[str, list[FloatArray]] = {}
    for m, own in zip(measurements, values, strict=True):
        for k in np.unique(m.column):
            parts.setdefault(m.names[k], []).append(own[m.column == k])
    return {name: np.concatenate(own) for name, own in parts.items()}


def least_sizes(measurements: Sequence[Measurements]) -> dict[str, float]:
    """Quantity -> the smallest error it can have: that of rounding, and of integration."""
    every = pooled(measurements, [m.value for m in measurements])
    return {
        name: max(_resolution(value) / np.sqrt(12), EXACT * float(np.max(np.abs(value)))) or 1.0
        for name, value in every.items()
    }


def _resolution(values: FloatArray) -> float:
    """The decimal place that all values are rounded to; 0 if there is none."""
    for decimals in range(MOST_DECIMALS):
        steps = values * 10.0**decimals
        if np.all(np.abs(steps - np.round(steps)) <= 1e-9 * np.maximum(np.abs(steps), 1)):
            return 10.0**-decimals
    return 0.0


def sizes_of(
    measurements: Sequence[Measurements],
    residuals: Sequence[FloatArray],
    least: Mapping[str, float],
    *,
    robust: bool,
) -> dict[str, float]:
    """Quantity -> size of its residuals, root mean square, and no smaller than `least`.

    What is measured fewer than five times has the average relative size of the others.

    robust  by the median of their sizes, of which outliers are no part
    """
    values = pooled(measurements, [m.value for m in measurements])
    scale = {name: float(np.sqrt(np.mean(v**2))) or 1.0 for name, v in values.items()}
    sizes = {
        name: max(_size(r, robust=robust), least[name])
        for name, r in pooled(measurements, residuals).items()
        if len(r) >= FEWEST
    }
    shares = [np.log(size / scale[name]) for name, size in sizes.items()]
    share = float(np.exp(np.mean(shares))) if shares else 1.0
    return {name: sizes.get(name, share * scale[name]) for name in values}


def _size(residuals: FloatArray, *, robust: bool) -> float:
    if robust:
        return float(np.median(np.abs(residuals))) / 0.6745  # of normal errors
    return float(np.sqrt(np.mean(residuals**2)))


def relative_sigma(
    measurements: Sequence[Measurements], sizes: Mapping[str, float]
) -> list[FloatArray]:
    """For each experiment (m,): sizes as relative standard deviations, as above."""
    logs = [np.log([sizes.get(n, 1.0) for n in m.names])[m.column] for m in measurements]
    mean = np.mean(np.concatenate(logs))
    return [np.exp(own - mean) for own in logs]
