"""Which local optima of a group of step 3 are worth keeping."""

from collections.abc import Iterable

import numpy as np

from igpe.algebraic.regression import Regression
from igpe.core.arrays import BoolArray
from igpe.numerics import optima
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.optima import Landscape

WORST = 10.0  # times the best objective: optima beyond explain nothing and are not compared
ROUNDING = 1e-12  # of the targets' own squares: objectives below it are all zero


def distinct(regression: Regression, fits: Iterable[Fit]) -> list[Fit]:
    """One fit for each optimum, the best first, as far as `WORST` times its objective."""
    some = [f for f in fits if f.at is not None]
    best = min((f.cost for f in some), default=0.0)
    level = WORST * best + rounding(regression)
    return optima.distinct(_landscape(regression), (f for f in some if f.cost <= level))


def known(regression: Regression, fit: Fit) -> BoolArray:
    """(n,) which parameters the data determine there; see `igpe.numerics.optima.known`."""
    return optima.known(_landscape(regression), fit)


def rounding(regression: Regression) -> float:
    """Differences of the objective below this mean nothing."""
    return ROUNDING * sum(float(np.sum((p.weight * p.target) ** 2)) for p in regression.pieces)


def _landscape(regression: Regression) -> Landscape:
    return Landscape(regression.linearised, regression.box, rounding(regression))
