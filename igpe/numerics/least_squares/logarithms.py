"""Unknowns between positive bounds that are sought by their logarithms.

u = log x where the box says so: one step of 0.1 is 10 % of x wherever it lies, so that 1e-6 and 1e6
look alike, and the linear model does not predict negative rate constants.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.numerics.least_squares.base import Fit, Linearised, Residual


class Logarithms:
    """The way there and back for one box.

    box    of u
    which  (n,) unknowns that are logarithms there
    """

    def __init__(self, box: Box) -> None:
        self.own = box
        self.which = box.in_logarithms
        self.box = Box(box.names, self.there(box.lower), self.there(box.upper))

    def there(self, x: FloatArray) -> FloatArray:
        """(n,) u of x."""
        return np.where(self.which, np.log(np.where(self.which, x, 1.0)), x)

    def home(self, u: FloatArray) -> FloatArray:
        """(n,) x of u; a bound is that bound, whatever the rounding."""
        x = self.own.clip(np.where(self.which, np.exp(np.where(self.which, u, 0.0)), u))
        x = np.where(u <= self.box.lower, self.own.lower, x)
        return np.where(u >= self.box.upper, self.own.upper, x)

    def seen(self, residual: Residual) -> Residual:
        """The residual as a function of u."""

        def told(u: FloatArray) -> Linearised | None:
            x = self.home(u)
            at = residual(x)
            return None if at is None else at._replace(jacobian=at.jacobian * self._slope(x))

        return told

    def back(self, fit: Fit) -> Fit:
        """What was found, in x."""
        x, at = self.home(fit.x), fit.at
        if at is not None:
            at = at._replace(jacobian=at.jacobian / self._slope(x))
        return fit._replace(x=x, at=at)

    def _slope(self, x: FloatArray) -> FloatArray:
        """(n,) dx / du."""
        return np.where(self.which, x, 1.0)
