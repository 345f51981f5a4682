"""Values with derivatives, over intervals (forward differentiation)."""

from dataclasses import dataclass

import numpy as np

from igpe.proofs.checker.functions import Coefficients, log
from igpe.proofs.checker.interval import Interval, point


@dataclass(frozen=True)
class Dual:
    """A value and its derivatives by some variables; those that are 0 are left out."""

    value: Interval
    slope: dict[int, Interval]

    def __add__(self, other: "Dual") -> "Dual":
        shared = self.slope | other.slope
        for k in self.slope.keys() & other.slope.keys():
            shared[k] = self.slope[k] + other.slope[k]
        return Dual(self.value + other.value, shared)

    def __sub__(self, other: "Dual") -> "Dual":
        return self + -other

    def __neg__(self) -> "Dual":
        return Dual(-self.value, {k: -s for k, s in self.slope.items()})

    def __mul__(self, other: "Dual") -> "Dual":
        left = {k: s * other.value for k, s in self.slope.items()}
        right = {k: s * self.value for k, s in other.slope.items()}
        for k in left.keys() & right.keys():
            right[k] = left[k] + right[k]
        return Dual(self.value * other.value, left | right)

    def square(self) -> "Dual":
        """x * x."""
        twice = self.value + self.value
        return Dual(self.value.square(), {k: s * twice for k, s in self.slope.items()})

    def power(self, exponent: "Dual") -> "Dual":
        """To an exponent; 0, as its derivatives are, where it is not positive.

        Where it reaches 0 the derivatives hold on either side of it, and the power is continuous if
        exponents are positive; if one is not, the power jumps and no slope bounds it.
        """
        value = self.value.power(exponent.value)
        by_base = exponent.value * self.value.power(exponent.value - point(1.0))
        smooth = (self.value.low > 0) | (exponent.value.low > 0)
        by_base = Interval(
            np.where(smooth, by_base.low, -np.inf), np.where(smooth, by_base.high, np.inf)
        )
        slope = {k: s * by_base for k, s in self.slope.items()}
        by_exponent = value * self.value.through(log)
        for k, s in exponent.slope.items():
            slope[k] = slope[k] + s * by_exponent if k in slope else s * by_exponent
        return Dual(value, slope)

    def through(self, function: Coefficients) -> "Dual":
        """An elementary function of it."""
        value, by_value = function(self.value, 1)
        return Dual(value, {k: s * by_value for k, s in self.slope.items()})


def constant(value: float) -> Dual:
    """A number."""
    return Dual(point(value), {})
