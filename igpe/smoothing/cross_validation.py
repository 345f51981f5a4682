"""The penalty by generalised cross validation (Craven & Wahba 1979).

    GCV(lambda) = n RSS(lambda) / (n - tr S(lambda))^2

may have several minima, so log10 lambda is scanned over all its sensible range and the best
neighbourhood is scanned again, finer, twice. RSS holds the scatter of replicates and n all
measurements; exact values count in neither.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.smoothing.penalised import Fit, Problem

EXPONENTS = np.arange(-20.0, 0.25, 0.5)  # from interpolating 3000 times to a line
ZOOMS = 2  # each leaves an eighth of the step: log10 lambda to 0.01
ZOOMED = np.linspace(-1.0, 1.0, 17)
LEAST_LEFT = 0.02  # of n: residual degrees of freedom the curve must leave, and at least one
LEVEL = 1e-9  # relative difference of GCV that is rounding; then the larger penalty is taken
NOTHING = 1e-20  # scaled GCV of data without noise


class Choice(NamedTuple):
    """The fit of the chosen penalty; band is of A^-1, at_edge if noise was not found."""

    fit: Fit
    trace: float
    band: FloatArray
    at_edge: bool
    gcv: float


class Counts(NamedTuple):
    """What GCV knows of the data besides the problem: n, exact values, scaled scatter."""

    measurements: int
    exact: int
    scatter: float


def choose(problem: Problem, counts: Counts, factor: float) -> Choice:
    """The fit for `factor` times the penalty of least GCV; deterministic.

    raises  ArithmeticError if no penalty can be fitted, which scaled finite data do not cause
    """
    exponents, step = EXPONENTS, float(EXPONENTS[1] - EXPONENTS[0])
    best, at_edge, gcv = _least(problem, counts, exponents)
    for _ in range(ZOOMS):
        exponents = best + step * ZOOMED
        best, _edge, gcv = _least(problem, counts, exponents)
        step *= float(ZOOMED[1] - ZOOMED[0])
    fit = problem.fit(factor * 10.0**best)
    if fit is None:  # so little penalty was asked for that rounding hides it
        fit = problem.fit(10.0**best)
    if fit is None:
        raise ArithmeticError("The penalised normal equations are not positive definite.")
    traces, bands = problem.traces([fit])
    return Choice(fit, float(traces[0]), bands[0], at_edge, gcv)


def _least(problem: Problem, counts: Counts, exponents: FloatArray) -> tuple[float, bool, float]:
    """The exponent of least GCV, whether it is the smallest that was admissible, and the GCV."""
    tried = [(x, problem.fit(10.0**x)) for x in exponents]
    usable = [(float(x), fit) for x, fit in tried if fit is not None]
    if not usable:
        return float(exponents[-1]), False, np.inf
    fits = [fit for _, fit in usable]
    traces, _ = problem.traces(fits)
    n = counts.measurements
    left = n - (traces - counts.exact)
    scores = n * (problem.squares(fits) + counts.scatter) / np.maximum(left, 1e-3) ** 2
    admissible = left >= max(1.0, LEAST_LEFT * n)
    admissible[-1] = True  # the stiffest curve is always possible
    scores = np.where(admissible, scores, np.inf)
    level = (1.0 + LEVEL) * scores.min() + NOTHING
    chosen = int(np.flatnonzero(scores <= level)[-1])
    first = int(np.flatnonzero(admissible)[0])
    return usable[chosen][0], chosen == first, float(scores[chosen])
