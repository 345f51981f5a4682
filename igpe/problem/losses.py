"""What is minimised: how residuals count."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from igpe.core.arguments import is_finite, is_number, shown
from igpe.core.errors import ProblemError
from igpe.core.fields import Checked, Positive, Rule

__all__ = ["L1", "Huber", "LeastSquares", "NormalPrior", "PiecewiseConstant"]

ROUNDING = 1e-9  # of an experiment's length: times so close are the same


@dataclass(frozen=True)
class LeastSquares:
    """Sum of squared residuals divided by their standard deviations: maximum likelihood for normal
    errors (Michalik et al. 2009, IGPE, eq. 3)."""


@dataclass(frozen=True)
class L1:
    """Sum of absolute residuals divided by their standard deviations: ignores outliers."""


@dataclass(frozen=True)
class Huber(Checked):
    """Squares up to `delta` standard deviations, linear beyond.

    raises ProblemError unless delta is a positive number
    """

    delta: Positive = 1.345


Loss: TypeAlias = LeastSquares | L1 | Huber


@dataclass(frozen=True)
class NormalPrior(Checked):
    """What is known of a parameter beforehand: a mean and a standard deviation.

    raises ProblemError unless both are finite and the deviation is positive
    """

    mean: Annotated[float, Rule(is_finite, "a finite number")]
    deviation: Positive


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
