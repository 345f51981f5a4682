"""What helps an estimate over to the next horizon.

An early horizon with as many residuals as unknowns is fitted exactly, noise and all, and its
optimum may have a pole soon after: then no start reaches the next horizon. Two remedies together:
a weak prior where residuals are few, and, where an estimate still cannot be integrated, a place
between it and an earlier one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from igpe.arrays import FloatArray
from igpe.least_squares.base import Linearised

BACK = (0.9, 0.7, 0.5, 0.3, 0.1, 0.0)  # of the way from an earlier estimate to the present one
SHRINK, SHRINKS = 0.3, 8  # of a start that cannot be integrated even to the first measurement
FLOOR = 1e-2  # size of a start at zero


@dataclass(frozen=True)
class Recovery:
    """How estimates are kept where the model can be integrated.

    deviations  kappa: the prior's standard deviation, in sizes of the start
    """

    deviations: float = 3.0

    def places(self, x: FloatArray, earlier: Sequence[FloatArray]) -> Iterator[FloatArray]:
        """Where the next horizon may begin instead of at x (n,): nearest first.

        earlier  estimates before x, oldest first; none: x is the start
        """
        if not earlier:
            yield from (x * SHRINK**k for k in range(1, SHRINKS + 1))
        for g in reversed(earlier):
            yield from (g + theta * (x - g) for theta in BACK)

    def prior(self, x: FloatArray, start: FloatArray) -> Linearised:
        """Rows (x - start) / (kappa size), that hold what few measurements do not determine."""
        width = self.deviations * np.maximum(np.abs(start), FLOOR)
        return Linearised((x - start) / width, np.diag(1 / width))
