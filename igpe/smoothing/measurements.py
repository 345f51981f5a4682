"""Measurements made ready for smoothing: no gaps, one value for each time, known weights.

Replicates y_j of weights w_j at one time become their mean of weight W = sum w_j. What is lost,
the scatter sum w_j (y_j - mean)^2, is kept with its count: it tells sigma^2 whatever the curve.
"""

from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import DataError

# An exact datum weighs this many times all others together: it is then missed by less than 1e-6
# of the range of the data, and the band matrices keep seven digits for the rest.
EXACT_WEIGHT = 1e9


@dataclass(frozen=True)
class Measurements:
    """One quantity at m distinct times.

    times         (m,), strictly ascending
    values        (m,), means of the replicates
    weights       (m,), 1 / sigma^2 of the means, very large where exact
    exact         (m,), whether the value is known without error
    count         number of measurements the means were made of, without the exact ones
    scatter       sum of w_j (y_j - mean)^2 over replicates
    sigma_given   whether the weights are known absolutely
    total_weight  sum of the weights that are not exact; 1 if all are
    """

    times: FloatArray
    values: FloatArray
    weights: FloatArray
    exact: BoolArray
    count: int
    scatter: float
    sigma_given: bool
    total_weight: float

    @property
    def inexact(self) -> int:
        """Number of distinct times with a value that has an error."""
        return int(self.exact.size - self.exact.sum())


def prepare(
    times: FloatArray,
    values: FloatArray,
    sigma: FloatArray | None,
    exact: BoolArray | None,
) -> Measurements:
    """Drop what is missing, weigh, and average replicates; arguments as in `Smoother.smooth`.

    An exact value makes the other values at its time superfluous.
    """
    times, values = np.asarray(times, float), np.asarray(values, float)
    known = np.zeros(times.size, bool) if exact is None else np.asarray(exact, bool)
    raw = np.ones(times.size) if sigma is None else _inverse_squares(sigma, values, known)
    kept = ~np.isnan(values)
    _check(times[kept], values[kept])
    t, y, w, known = times[kept], values[kept], raw[kept], known[kept]
    first = np.flatnonzero(np.diff(t, prepend=-np.inf) > 0.0)
    group = np.repeat(np.arange(first.size), np.diff(first, append=t.size))
    exact_at = np.logical_or.reduceat(known, first)
    w = np.where(exact_at[group] & ~known, 0.0, np.where(known, 1.0, w))
    weight = np.add.reduceat(w, first)
    mean = np.add.reduceat(w * y, first) / weight
    free = ~exact_at
    total = float(weight[free].sum()) if free.any() else 1.0
    return Measurements(
        times=t[first],
        values=mean,
        weights=np.where(exact_at, EXACT_WEIGHT * total, weight),
        exact=exact_at,
        count=int(free[group].sum()),
        scatter=float((w * (y - mean[group]) ** 2)[free[group]].sum()),
        sigma_given=sigma is not None,
        total_weight=total,
    )


def _inverse_squares(sigma: FloatArray, values: FloatArray, exact: BoolArray) -> FloatArray:
    deviations = np.broadcast_to(np.asarray(sigma, float), values.shape)
    needed = ~np.isnan(values) & ~exact
    wrong = needed & ~(np.isfinite(deviations) & (deviations > 0.0))
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum())} of the standard deviations are not positive numbers "
            f"(the first is {deviations[wrong][0]}). Give each measurement a positive `sigma`, "
            "or mark values known without error as exact."
        )
    return 1.0 / np.where(needed, deviations, 1.0) ** 2


def _check(times: FloatArray, values: FloatArray) -> None:
    if values.size == 0:
        raise DataError(
            "There is no measurement to smooth: none was given, or all are missing (NaN). "
            "Leave this quantity out, or give at least one value."
        )
    if not (np.isfinite(times).all() and np.isfinite(values).all()):
        raise DataError(
            "Some times or values are not finite numbers. "
            "Write missing values as NaN and give every one a finite time."
        )
