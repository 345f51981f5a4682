"""Errors of a curve by bootstrap instead of by formula.

Efron (1979); Härdle & Bowman (1988) for curves. Smoothing is repeated on the curve plus noise made
of its own residuals; how far the repetitions miss the curve they came from tells how far the curve
misses the truth, bias and choice of the penalty included, which no formula holds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.smoothing.base import Smooth, Smoother, description
from igpe.smoothing.gcv_spline import GcvSpline

LEAST_FREEDOM = 0.5  # residual degrees of freedom below which residuals tell no noise


@dataclass(frozen=True)
class BootstrapErrors:
    """Any smoother, with errors from smoothing again and again.

    smoother  what it repeats
    samples   number of repetitions; 50 give errors within 10 %
    seed      of the noise; the same seed gives the same errors

    The noise is normal where standard deviations are given; else the residuals, widened by the
    degrees of freedom the curve has taken, are drawn with replacement. Where they tell no noise,
    the errors stay the smoother's own.
    """

    smoother: Smoother = GcvSpline()
    samples: int = 50
    seed: int = 0

    @property
    def description(self) -> str:
        """What the smoother that it repeats makes of the data."""
        return f"{description(self.smoother)} (errors by bootstrap)"

    def smooth(
        self,
        times: FloatArray,
        values: FloatArray,
        *,
        sigma: FloatArray | None = None,
        exact: BoolArray | None = None,
    ) -> Smooth:
        """As in `Smoother.smooth`."""
        times, values = np.asarray(times, float), np.asarray(values, float)
        curve = self.smoother.smooth(times, values, sigma=sigma, exact=exact)
        fitted = curve.value(times)
        known = np.isnan(values) if exact is None else np.isnan(values) | exact
        noise = _noise(curve, (values - fitted)[~known], sigma if sigma is None else sigma[~known])
        if noise is None:
            return curve
        random = np.random.default_rng(self.seed)
        again = []
        for _ in range(self.samples):
            sample = np.where(np.isnan(values), np.nan, fitted)
            sample[~known] += noise(random)
            again.append(self.smoother.smooth(times, sample, sigma=sigma, exact=exact))
        return BootstrapCurve(curve, tuple(again))


@dataclass(frozen=True)
class BootstrapCurve:
    """A curve with the errors of its repetitions; for the rest see `Smooth`."""

    curve: Smooth
    again: tuple[Smooth, ...]

    @property
    def degrees_of_freedom(self) -> float:
        """As in `Smooth`."""
        return self.curve.degrees_of_freedom

    @property
    def sigma(self) -> float:
        """As in `Smooth`."""
        return self.curve.sigma

    @property
    def penalty(self) -> float:
        """As in `Smooth`."""
        return self.curve.penalty

    @property
    def notes(self) -> tuple[str, ...]:
        """As in `Smooth`."""
        return self.curve.notes

    def value(self, t: FloatArray) -> FloatArray:
        """As in `Smooth`."""
        return self.curve.value(t)

    def slope(self, t: FloatArray) -> FloatArray:
        """As in `Smooth`."""
        return self.curve.slope(t)

    def value_error(self, t: FloatArray) -> FloatArray:
        """Root mean square miss of the repeated curves at t, (n,)."""
        return _miss(self.curve.value(t), [c.value(t) for c in self.again])

    def slope_error(self, t: FloatArray) -> FloatArray:
        """Root mean square miss of the repeated slopes at t, (n,)."""
        return _miss(self.curve.slope(t), [c.slope(t) for c in self.again])


def _noise(
    curve: Smooth, residual: FloatArray, sigma: FloatArray | None
) -> Callable[[np.random.Generator], FloatArray] | None:
    """Draws errors of the inexact measurements; None if nothing tells them."""
    n = len(residual)
    if sigma is not None:
        return lambda random: sigma * random.standard_normal(n)
    if n - curve.degrees_of_freedom < LEAST_FREEDOM:
        return None
    centred = residual - residual.mean()
    squares = float(centred @ centred)
    widened = centred * np.sqrt(n / squares) * curve.sigma if squares > 0 else centred
    return lambda random: random.choice(widened, n)


def _miss(value: FloatArray, again: list[FloatArray]) -> FloatArray:
    errors: FloatArray = np.sqrt(np.mean((np.array(again) - value) ** 2, axis=0))
    return errors
