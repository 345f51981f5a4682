"""Which of many local optima are different ones.

Two points are one optimum if the parameters that the data determine agree, or if a valley leads
from one to the other: a parameter is held at values in between, the others are fitted again where
they must (its profile), and the objective never rises to speak of. A direction that is hardly
determined is one optimum with a large error, not many.
"""

from collections.abc import Iterable

import numpy as np

from igpe.algebraic.regression import Regression
from igpe.arrays import BoolArray, FloatArray
from igpe.least_squares.base import Fit, Linearised
from igpe.least_squares.gauss_newton import GaussNewton
from igpe.statistics.rank import determined
from igpe.status import Status

SAME = 1e-3  # parameters that differ by less, relatively, are the same
SMALL = 1e-3  # of the bounds' width: below it the difference of a parameter counts absolutely
WORST = 10.0  # times the best objective: optima beyond explain nothing and are not compared
RISE = 1e-2  # of the objective, that data with noise do not see
ROUNDING = 1e-12  # of the targets' own squares: objectives below it are all zero
STOPS = 5  # values of the held parameter, the last one included
SEARCH = GaussNewton(tolerance=1e-3, max_iterations=30)


def distinct(regression: Regression, fits: Iterable[Fit]) -> list[Fit]:
    """One fit for each optimum, the best first, as far as `WORST` times its objective."""
    ordered = sorted((f for f in fits if f.at is not None), key=lambda f: f.cost)
    level = WORST * ordered[0].cost + rounding(regression) if ordered else 0.0
    found: list[Fit] = []
    for fit in ordered:
        if fit.cost <= level and not any(_one(regression, best, fit) for best in found):
            found.append(fit)
    return found


def known(regression: Regression, fit: Fit) -> BoolArray:
    """(n,) which parameters the data determine there; one on its bound is, if it matters at all."""
    assert fit.at is not None, "a fit without residuals determines nothing"
    norm = np.linalg.norm(fit.at.jacobian, axis=0)
    free = determined(fit.at.jacobian / np.where(norm > 0, norm, 1.0))
    return np.asarray(free | (regression.box.at_bound(fit.x) & (norm > 0)))


def rounding(regression: Regression) -> float:
    """Differences of the objective below this mean nothing."""
    return ROUNDING * sum(float(np.sum((p.weight * p.target) ** 2)) for p in regression.pieces)


def _one(regression: Regression, best: Fit, other: Fit) -> bool:
    width = regression.box.upper - regression.box.lower
    small = np.where(np.isfinite(width), SMALL * width, 0.0).clip(1e-300)
    size = np.maximum(np.maximum(np.abs(best.x), np.abs(other.x)), small)
    apart = np.abs(best.x - other.x) / size
    both = known(regression, best) & known(regression, other)
    if not (apart[both] > SAME).any():
        return True
    return _valley(regression, other, best, int(np.argmax(np.where(both, apart, 0.0))))


def _valley(regression: Regression, worse: Fit, better: Fit, held: int) -> bool:
    """Whether the profile of one parameter leads from the worse point to the better one's value."""
    level = (1 + RISE) * worse.cost + rounding(regression)
    x = worse.x
    for value in np.linspace(worse.x[held], better.x[held], STOPS + 1)[1:]:
        x = np.where(np.arange(len(x)) == held, value, x)
        at = regression.linearised(x)
        if at is None or at.cost > level:
            fit = _profile(regression, x, held)
            if fit.cost > level:
                return False
            x = np.insert(fit.x, held, value)
    return True


def _profile(regression: Regression, start: FloatArray, held: int) -> Fit:
    """The other parameters, fitted from `start` with one held."""
    rest = regression.box.without([regression.box.names[held]])

    def residual(x: FloatArray) -> Linearised | None:
        at = regression.linearised(np.insert(x, held, start[held]))
        if at is None:
            return None
        return Linearised(at.residual, np.delete(at.jacobian, held, axis=1))

    if len(rest) == 0:
        return Fit(np.zeros(0), residual(np.zeros(0)), Status.CONVERGED, 0)
    return SEARCH.fit(residual, np.delete(start, held), rest)
