"""What all smoothers share: what they are given and give back, and gross errors left out before.

A smoother gives a curve with slopes and honest errors.

Gross errors among the measurements of one quantity are left out before a robust fit is begun.
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

from typing import NamedTuple, Protocol

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, typical
from igpe.smoothing.penalised import CurveData


class Smooth(Protocol):
    """One measured quantity as a smooth function of time.

    Beyond the first and the last time the curve goes on as its tangent.
    """

    @property
    def degrees_of_freedom(self) -> float:
        """Trace of the smoother: how many numbers the curve was free to choose, -."""

    @property
    def sigma(self) -> float:
        """Standard deviation of one measurement of weight 1, by which the errors are scaled.

        Without given standard deviations every measurement has weight 1: the estimated noise, in
        the unit of the values, or inf if nothing tells it. With them the weights are their inverse
        squares, they are taken at their word, and this is 1.
        """

    @property
    def penalty(self) -> float:
        """lambda of  sum w (y - f)^2 + lambda integral f''^2 dt,  unit of time cubed x weight.

        For a penalty on a higher derivative: the one on f'' whose curve reaches as far.
        """

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences worth telling the user; empty if there is nothing to worry about."""

    def value(self, t: FloatArray) -> FloatArray:
        """The curve at times t, shape (n,)."""

    def slope(self, t: FloatArray) -> FloatArray:
        """Its derivative by time at t, shape (n,), unit of values / unit of time."""

    def value_error(self, t: FloatArray) -> FloatArray:
        """Standard errors of `value`, shape (n,); inf where the data do not tell."""

    def slope_error(self, t: FloatArray) -> FloatArray:
        """Standard errors of `slope`, shape (n,); inf where the data do not tell."""


class Smoother(Protocol):
    """Turns the measurements of one quantity into a curve; knows no model.

    A smoother may have a property `description`, a noun phrase for what it makes of the data, such
    as "smoothed data"; certificates quote it.
    """

    def smooth(
        self,
        times: FloatArray,
        values: FloatArray,
        *,
        sigma: FloatArray | None = None,
        exact: BoolArray | None = None,
    ) -> Smooth:
        """The curve behind the measurements.

        times   (n,), ascending; repeated times are replicates
        values  (n,), NaN where missing
        sigma   (n,), standard deviations in the unit of the values; None: equal and unknown
        exact   (n,), True where a value is known without error; None: nowhere
        raises  DataError if no value is left, or a number is not usable
        """


def description(smoother: Smoother) -> str:
    """A noun phrase for what a smoother makes of the data; one that has none is named."""
    return str(getattr(smoother, "description", f"data smoothed by {type(smoother).__name__}"))


LEAST_FREEDOM = 0.1  # residual degrees of freedom below which residuals tell nothing
JUDGED_FREEDOM = 8.0  # residual degrees of freedom from which on a given sigma can be judged
SURPRISE = 2.0  # a given sigma that is off by more than this factor is worth a note
TOO_FEW = (
    "There are too few measurements to estimate their noise, so all standard errors are "
    "infinite. Pass standard deviations."
)


def noise(data: CurveData, residuals: FloatArray, freedom: float) -> tuple[float, tuple[str, ...]]:
    """sigma as in `Smooth`, and what there is to say about it.

    sigma^2 = (residual + scatter sum of squares) / (measurements - degrees of freedom)

    residuals  of the means
    freedom    trace of the smoother, which exact values have raised by one each
    """
    left = data.count - (freedom - float(data.exact.sum()))
    if left < LEAST_FREEDOM:
        return (1.0, ()) if data.sigma_given else (np.inf, (TOO_FEW,))
    rss = float((data.weights * residuals**2)[~data.exact].sum())
    estimate = float(np.sqrt((rss + data.scatter) / left))
    if not data.sigma_given:
        return estimate, ()
    if left < JUDGED_FREEDOM or 1.0 / SURPRISE <= estimate <= SURPRISE:
        return 1.0, ()
    return 1.0, (
        f"The residuals are {estimate:.2g} times as large as the given standard deviations.",
    )


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
