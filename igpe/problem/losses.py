"""What is minimised: how residuals count."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.special import ndtr

from igpe.core.arguments import is_finite, is_number, shown
from igpe.core.errors import ProblemError
from igpe.core.fields import Checked, Positive, Rule
from igpe.problem.priors import Bend, Prior

__all__ = ["L1", "Huber", "LeastSquares", "Loss", "NormalPrior", "PiecewiseConstant", "Prior"]

ROUNDING = 1e-9  # of an experiment's length: times so close are the same


class Loss:
    """What residuals, divided by their standard deviations, add to the objective.

    A residual counts as its square up to a limit and linearly beyond (igpe/numerics/least_squares/
    base.py). A loss is one class: these attributes, and the limits.

    is_squares   whether there is no limit, so that the objective is a sum of squares
    is_absolute  whether the objective is the sum of absolute residuals, the limits being small ones
                 of a smooth form
    criterion    name of the objective in results; empty for sums of squares

    Any other loss has limits in standard deviations, `needs_deviations`: unknown ones are taken
    from the residuals, by their median.
    """

    is_squares: bool = False
    is_absolute: bool = False
    criterion: str = ""

    @property
    def needs_deviations(self) -> bool:
        """Return True if the optimum depends on how large the standard deviations are."""
        return not (self.is_squares or self.is_absolute)

    def limits(self, spread: float) -> tuple[float, ...]:
        """Return the limits that are used one after the other.

        spread  typical deviation of residuals: 1 where standard deviations are known
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LeastSquares(Loss):
    """Sum of squared residuals divided by their standard deviations: maximum likelihood for normal
    errors (Michalik et al. 2009, IGPE, eq. 3)."""

    is_squares = True

    def limits(self, spread: float) -> tuple[float, ...]:
        """Return no limit."""
        return (np.inf,)


@dataclass(frozen=True)
class L1(Loss):
    """Sum of absolute residuals divided by their standard deviations: ignores outliers."""

    is_absolute = True
    criterion = "Sum of absolute residuals"

    def limits(self, spread: float) -> tuple[float, ...]:
        """Return smaller and smaller limits; the last moves an estimate by less than a hundredth
        of its error."""
        return (spread, 0.1 * spread, 0.01 * spread)


@dataclass(frozen=True)
class Huber(Checked, Loss):
    """Squares up to `delta` standard deviations, linear beyond.

    Without standard deviations each quantity has one of its own, the median of its residuals / 0.67
    (Huber & Ronchetti, Robust Statistics (2009), section 7.8), taken anew until it stands still.
    With `sigma="equal"` delta is in the measurements' unit.

    raises ProblemError unless delta is a positive number
    """

    delta: Positive = 1.345

    @property
    def criterion(self) -> str:  # type: ignore[override]
        """Name of the objective in results."""
        return f"Huber's loss (delta = {self.delta:g})"

    def limits(self, spread: float) -> tuple[float, ...]:
        """Return the limit."""
        return (self.delta,)


@dataclass(frozen=True)
class NormalPrior(Checked):
    """What is known of a parameter beforehand: a mean and a standard deviation.

    lower, upper  where the density is cut off, which changes its constant alone
    raises ProblemError unless mean and deviation are finite and the deviation is positive
    """

    mean: Annotated[float, Rule(is_finite, "a finite number")]
    deviation: Positive
    lower: float = -np.inf
    upper: float = np.inf

    def log_density(self, x: float) -> float:
        """Natural logarithm of the density at x."""
        z, low, high = ((v - self.mean) / self.deviation for v in (x, self.lower, self.upper))
        constant = np.log(np.sqrt(2 * np.pi) * self.deviation * (ndtr(high) - ndtr(low)))
        return float(-(z**2) / 2 - constant)

    def bend(self, x: float) -> Bend:
        """See `Bend`."""
        return Bend((x - self.mean) / self.deviation**2, 1 / self.deviation**2)


@dataclass(frozen=True)
class PiecewiseConstant:
    """An unknown function of time, constant between breaks.

    breaks        (n,), increasing times at which it may jump; those not inside an experiment's time
                  have no effect there
    lower, upper  bounds of its values
    penalty       weight of the squared jumps in the objective; 0 leaves them free
    raises        ProblemError if breaks do not increase, bounds are crossed or the penalty negative
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float
    penalty: float = 0.0

    def __post_init__(self) -> None:
        breaks = list(self.breaks) if isinstance(self.breaks, Iterable) else [self.breaks]
        if not (breaks and is_finite(*breaks) and (np.diff(breaks) > 0).all()):
            raise ProblemError(
                f"The breaks {breaks} of a time-varying unknown do not increase; give a tuple of "
                "numbers, each time once, in order."
            )
        object.__setattr__(self, "breaks", tuple(float(b) for b in breaks))
        sound = is_number(self.lower, self.upper) and is_finite(self.penalty)
        if not (sound and self.lower < self.upper and self.penalty >= 0):
            raise ProblemError(
                f"A time-varying unknown has bounds [{shown(self.lower)}, {shown(self.upper)}] and "
                f"penalty {shown(self.penalty)}; give lower < upper and a penalty of 0 or more."
            )

    def begins(self, first: float, last: float) -> tuple[float, ...]:
        """When each piece begins that an experiment from `first` to `last` sees."""
        rounding = ROUNDING * (last - first)
        return (first, *(b for b in self.breaks if first + rounding < b < last - rounding))
