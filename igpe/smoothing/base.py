"""What a smoother is given, and what it gives back: a curve with slopes and honest errors."""

from typing import Protocol

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
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
