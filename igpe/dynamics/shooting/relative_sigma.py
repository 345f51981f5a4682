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

from igpe.core.arrays import FloatArray, typical
from igpe.problem.experiment import Experiment
from igpe.problem.measurements import Measurements

EXACT = 1e-6  # of the largest value, a known start included: errors of integration
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


def least_sizes(experiments: Sequence[Experiment]) -> dict[str, float]:
    """Quantity -> the smallest error it can have: that of rounding, and of integration."""
    runs, scales = [e.measurements for e in experiments], _scales(experiments)
    return {
        name: max(_resolution(value) / np.sqrt(12), EXACT * scales[name])
        for name, value in pooled(runs, [m.value for m in runs]).items()
    }


def _scales(experiments: Sequence[Experiment]) -> dict[str, float]:
    """Quantity -> its largest value, known starts included; 1 if all are 0."""
    runs = [e.measurements for e in experiments]
    scales = {}
    for name, value in pooled(runs, [m.value for m in runs]).items():
        starts = [abs(v) for e in experiments if isinstance(v := e.start.get(name), float)]
        scales[name] = max([float(np.max(np.abs(value))), *starts]) or 1.0
    return scales


def _resolution(values: FloatArray) -> float:
    """The decimal place that all values are rounded to; 0 if there is none."""
    for decimals in range(MOST_DECIMALS):
        steps = values * 10.0**decimals
        if np.all(np.abs(steps - np.round(steps)) <= 1e-9 * np.abs(steps)):
            return 10.0**-decimals
    return 0.0


def sizes_of(
    experiments: Sequence[Experiment],
    residuals: Sequence[FloatArray],
    least: Mapping[str, float],
    *,
    robust: bool,
) -> dict[str, float]:
    """Quantity -> size of its residuals, root mean square, and no smaller than `least`.

    What has fewer than five has the average of the others, relative to the largest values.

    residuals  for each experiment (m,); NaN where there is none
    robust     by the median of their sizes, of which outliers are no part
    """
    scales, sizes = _scales(experiments), {}
    for name, left in pooled([e.measurements for e in experiments], residuals).items():
        known = left[np.isfinite(left)]
        if len(known) >= FEWEST:
            sizes[name] = max(_size(known, robust=robust), least[name])
    shares = [np.log(size / scales[name]) for name, size in sizes.items()]
    share = float(np.exp(np.mean(shares))) if shares else 1.0
    return {name: sizes.get(name, share * scale) for name, scale in scales.items()}


def _size(residuals: FloatArray, *, robust: bool) -> float:
    if robust:
        return typical(residuals)
    return float(np.sqrt(np.mean(residuals**2)))


def relative_sigma(
    measurements: Sequence[Measurements], sizes: Mapping[str, float], *, absolute: bool = False
) -> list[FloatArray]:
    """For each experiment (m,): sizes as relative standard deviations, as above.

    absolute  whether they stay as large as they are: a robust loss has limits in them
    """
    logs = [np.log([sizes.get(n, 1.0) for n in m.names])[m.column] for m in measurements]
    mean = 0.0 if absolute else np.mean(np.concatenate(logs))
    return [np.exp(own - mean) for own in logs]
