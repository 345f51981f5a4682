"""Gross errors among the measurements of one quantity, left out before a robust fit is begun.

A curve is fitted, measurements further from it than CUT typical deviations are left out, and so on
until the same are left out twice. That ends in one of two ways, by where it begins: a curve through
all measurements may follow gross errors, one that minimises absolute distances may cut off a narrow
peak (Huber & Ronchetti, Robust Statistics (2009), section 7.8, for the weights). Of both the end
with the smaller

    n log s + sum min((y - f)^2 / s^2, CUT^2) / 2

over all n measurements is taken, s being the deviation that the kept ones tell. Distances of those
are as large as if each was left out, by the mean leverage.

Gross errors are single: RUN neighbours that are off to the same side are a feature, and stay.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, typical
from igpe.smoothing.base import LEAST_FREEDOM, Smoother

CUT = 4.0  # deviations: one good measurement in 16 000 is so far off
ROUNDS = 8  # of either iteration
KEPT = 0.7  # of the measurements, at least
RUN = 3  # neighbours: by chance once among 1000, where one measurement in ten is a gross error
SMALL = 1e-3  # of the largest value: closer to the curve is no gross error
FEWEST = 10  # measurements: gross errors among fewer cannot be told from features


class _End(NamedTuple):
    """Measurements (m,) that are kept, and what they cost."""

    kept: BoolArray
    cost: float


def without_gross_errors(
    smoother: Smoother,
    times: FloatArray,
    values: FloatArray,
    *,
    sigma: FloatArray | None = None,
    exact: BoolArray | None = None,
) -> FloatArray:
    """(m,) the values, NaN where they are gross errors; arguments as in `Smoother.smooth`."""
    search = _Search(smoother, times, values, sigma, exact)
    if search.free.sum() < FEWEST:
        return values
    ends = [search.rejected(search.free), search.rejected(search.near_absolute())]
    kept = min(ends, key=lambda end: end.cost).kept
    return np.where(kept | ~search.free, values, np.nan)


class _Search:
    """One quantity, and how far its measurements are from curves.

    free  (m,) which are measurements, neither missing nor exact
    """

    def __init__(
        self,
        smoother: Smoother,
        times: FloatArray,
        values: FloatArray,
        sigma: FloatArray | None,
        exact: BoolArray | None,
    ) -> None:
        self.smoother, self.times, self.values, self.sigma = smoother, times, values, sigma
        self.exact = np.zeros(len(values), dtype=bool) if exact is None else exact
        self.free = np.isfinite(values) & ~self.exact
        self.unit = np.ones(len(values)) if sigma is None else sigma
        self.least = SMALL / CUT * float(np.max(np.abs(values[self.free] / self.unit[self.free])))

    def rejected(self, kept: BoolArray) -> _End:
        """What is kept in the end, from those that are `kept` at first."""
        end = self._judged(kept)
        for _ in range(ROUNDS):
            following = self._judged(end.kept)
            if (following.kept == end.kept).all():
                return following
            end = following
        return end

    def near_absolute(self) -> BoolArray:
        """(m,) measurements near the curve of least absolute distances."""
        weighted, distance, spread = self.unit, np.zeros(len(self.values)), 1.0
        for _ in range(ROUNDS):
            curve = self.smoother.smooth(self.times, self.values, sigma=weighted, exact=self.exact)
            distance = np.abs(self.values - curve.value(self.times)) / self.unit
            spread = max(typical(distance[self.free]), self.least)
            weighted = self.unit * np.sqrt(np.fmax(distance / spread, 1.0))
        return self.free & (distance <= CUT * spread)

    def _judged(self, kept: BoolArray) -> _End:
        """The measurements that agree with the curve through those that are kept."""
        if kept.sum() < max(KEPT * self.free.sum(), FEWEST / 2):
            return _End(self.free, np.inf)
        used = np.where(kept | self.exact, self.values, np.nan)
        curve = self.smoother.smooth(self.times, used, sigma=self.sigma, exact=self.exact)
        freedom = kept.sum() - (curve.degrees_of_freedom - self.exact.sum())
        if freedom < LEAST_FREEDOM:
            return _End(kept, np.inf)  # it goes through all of them
        left = (self.values - curve.value(self.times)) / self.unit
        left[kept] *= kept.sum() / freedom
        spread = max(typical(left[kept]), self.least)
        off = np.minimum(np.abs(left[self.free]) / spread, CUT)
        cost = len(off) * np.log(spread) + float(off @ off) / 2
        near = np.abs(left[self.free]) <= CUT * spread
        single = self.free.copy()
        single[self.free] = near | _in_runs(np.where(near, 0.0, np.sign(left[self.free])))
        return _End(single, float(cost))


def _in_runs(side: FloatArray) -> BoolArray:
    """(m,) which are in runs of RUN or more equal ones other than 0."""
    ends = np.flatnonzero(np.diff(side, prepend=np.nan, append=np.nan) != 0)
    lengths = np.diff(ends)
    return np.asarray(np.repeat(lengths >= RUN, lengths) & (side != 0))
