"""The scale on which a nonlinear parameter is halved.

The cell `index` of level l covers t in [index, index + 1] / 2^l of a coordinate t in [0, 1]:

    linear       p = lower + t (upper - lower)
    logarithmic  p = lower (upper / lower)^t,  or where the lower bound is zero or near it
                 p = lower + (upper - lower) expm1(a t) / expm1(a)

Neighbouring cells share the same number as their common end, so that cells always cover the box.
"""

from dataclasses import dataclass

import numpy as np

from igpe.arrays import FloatArray, IntArray

DECADES = np.log(1e3)  # a: how much finer the scale is at zero than at the upper bound
SPAN = 1e6  # ratio of the bounds beyond which the scale is the one for zero


@dataclass(frozen=True)
class Axis:
    """A nonlinear parameter.

    logarithmic  whether it is halved on a logarithmic scale
    log_affine   whether cells are enclosed in its logarithm
    """

    lower: float
    upper: float
    logarithmic: bool
    log_affine: bool = False

    def cells(self, level: IntArray, index: IntArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends (n,) of cells."""
        count = 2.0**level
        return self._value(index / count), self._value((index + 1) / count)

    def at(self, t: float) -> float:
        """The parameter at coordinate t."""
        return float(self._value(np.array(t)))

    def _value(self, t: FloatArray) -> FloatArray:
        width = self.upper - self.lower
        if not self.logarithmic:
            p = self.lower + t * width
        elif self.lower > self.upper / SPAN:
            p = self.lower * (self.upper / self.lower) ** t
        else:
            p = self.lower + width * (np.expm1(DECADES * t) / np.expm1(DECADES))
        p = np.where(t <= 0, self.lower, np.where(t >= 1, self.upper, p))
        return np.asarray(np.clip(p, self.lower, self.upper))
