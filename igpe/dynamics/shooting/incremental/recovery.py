"""What helps an estimate over to the next horizon.

An early horizon with as many residuals as unknowns is fitted exactly, noise and all, and its
optimum may have a pole soon after: then no start reaches the next horizon. Two remedies together:
a weak prior where residuals are few, and, where an estimate still cannot be integrated, a place
between it and an earlier one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from igpe.core.arguments import is_finite, require
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.numerics.least_squares.base import Linearised

BACK = (0.9, 0.7, 0.5, 0.3, 0.1, 0.0)  # of the way from an earlier estimate to the present one
SHRINK, SHRINKS = 0.3, 8  # of a start that cannot be integrated even to the first measurement


@dataclass(frozen=True)
class Recovery:
    """How estimates are kept where the model can be integrated.

    deviations  kappa: the prior's standard deviation, in sizes of the start; of one at zero in
                ranges between its bounds, and without bounds there is no prior on it
    """

    deviations: float = 3.0

    def __post_init__(self) -> None:
        ok = is_finite(self.deviations) and self.deviations > 0
        require(ok, "Recovery", "deviations", self.deviations, "a positive number")

    def places(self, x: FloatArray, earlier: Sequence[FloatArray]) -> Iterator[FloatArray]:
        """Where the next horizon may begin instead of at x (n,): nearest first.

        earlier  estimates before x, oldest first; none: x is the start
        """
        if not earlier:
            yield from (x * SHRINK**k for k in range(1, SHRINKS + 1))
        for g in reversed(earlier):
            yield from (g + theta * (x - g) for theta in BACK)

    def prior(self, x: FloatArray, start: FloatArray, box: Box) -> Linearised:
        """Rows (x - start) / (kappa size), that hold what few measurements do not determine.

        box  the user's bounds
        """
        size = np.where(start != 0, np.abs(start), box.upper - box.lower)
        weight = 1 / (self.deviations * np.where(size > 0, size, np.inf))
        return Linearised((x - start) * weight, np.diag(weight))
