"""Errors for the bootstrap: how other measurements might have come out.

All in units of the residuals: (drawn - fitted) / sigma, or / 1 where sigma is unknown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import ProblemError
from igpe.numerics.statistics.covariance import influence, leverage
from igpe.uncertainty.likelihood import Likelihood

LEAST = 5  # measurements of a column, to draw its residuals from

Draw: TypeAlias = Callable[[np.random.Generator], FloatArray]
"""Errors (m,) of one replication."""


class Kind(Protocol):
    """How errors are drawn."""

    def draw(self, base: Likelihood) -> Draw:
        """Made ready for a problem at its estimate."""
        ...

    def acceleration(self, base: Likelihood) -> FloatArray:
        """(n,) of BCa intervals: how the standard error changes with the estimate."""
        ...


@dataclass(frozen=True)
class Parametric:
    """Normal errors with the standard deviations given, or the one that the residuals tell."""

    def draw(self, base: Likelihood) -> Draw:
        """See `Kind`."""
        spread = _spread(base)
        return lambda random: spread * random.standard_normal(len(spread))

    def acceleration(self, base: Likelihood) -> FloatArray:
        """See `Kind`: normal errors have no skewness."""
        return np.zeros(len(base.x))


@dataclass(frozen=True)
class Residual:
    """Residuals drawn with replacement, each column's from its own.

    They are standardised first, r / sqrt(1 - leverage), as a fit makes them too small, and centred
    (Davison & Hinkley, Bootstrap Methods and their Application, 1997, section 6.2.3). Nothing is
    assumed of their distribution, nor of sigma but its proportions within a column.
    """

    def draw(self, base: Likelihood) -> Draw:
        """See `Kind`. Raises ProblemError if a column has fewer than 5 measurements."""
        pool, spread = self._pool(base), _spread(base)
        groups = [np.flatnonzero(_column(base) == k) for k in range(len(_names(base)))]

        def draw(random: np.random.Generator) -> FloatArray:
            found = spread * random.standard_normal(len(spread))  # of priors
            for members in groups:
                found[members] = random.choice(pool[members], len(members))
            return found

        return draw

    def acceleration(self, base: Likelihood) -> FloatArray:
        """See `Kind`: a sixth of the skewness of the linearised estimate."""
        pool, column = self._pool(base), _column(base)
        second, third = (np.zeros(len(pool)) for _ in range(2))
        for k in range(len(_names(base))):
            mine = column == k
            second[mine], third[mine] = np.mean(pool[mine] ** 2), np.mean(pool[mine] ** 3)
        weight = influence(base.at.jacobian, base.held)
        variance = weight**2 @ second
        with np.errstate(divide="ignore", invalid="ignore"):
            skewness = (weight**3 @ third) / variance**1.5
        return np.asarray(np.where(variance > 0, skewness, 0.0) / 6)

    def _pool(self, base: Likelihood) -> FloatArray:
        """(m,) centred standardised errors; 0 for priors."""
        column, names = _column(base), _names(base)
        counts = {name: int(np.sum(column == k)) for k, name in enumerate(names)}
        few = {name: count for name, count in counts.items() if count < LEAST}
        if few:
            raise ProblemError(
                f"Residual() draws each column's errors from its own residuals and wants {LEAST} "
                f"or more; it found {few}. Use igpe.Parametric()."
            )
        left = 1 - leverage(base.at.jacobian, base.held)
        errors = -base.at.residual / np.sqrt(np.maximum(left, 1e-8))
        for k in range(len(names)):
            errors[column == k] -= np.mean(errors[column == k])
        return np.where(column >= 0, errors, 0.0)


def _spread(base: Likelihood) -> FloatArray:
    """(m,) standard deviation of each residual; priors have their own."""
    known = base.problem.sigma_known
    sigma = 1.0 if known else float(np.sqrt(base.errors.variance))
    if not np.isfinite(sigma):
        raise ProblemError(
            "There are not more measurements than unknowns, so nothing tells the errors; give "
            "sigma= to the experiments."
        )
    return np.where(_column(base) >= 0, sigma, 1.0)


def _names(base: Likelihood) -> list[str]:
    """Of the measured columns in all experiments."""
    return list(dict.fromkeys(n for r in base.residuals.all_of.runs for n in r.measurements.names))


def _column(base: Likelihood) -> IntArray:
    """(m,) which of `_names` each residual belongs to; -1 for priors."""
    names = _names(base)
    found = np.full(len(base.at.residual), -1, dtype=np.intp)
    begin = 0
    for m in (run.measurements for run in base.residuals.all_of.runs):
        place = np.array([names.index(n) for n in m.names], dtype=np.intp)
        found[begin : begin + len(m.value)] = place[m.column]
        begin += len(m.value)
    return found
