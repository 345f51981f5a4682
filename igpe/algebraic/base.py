"""What the routes of step 3 share.

How the residuals of step 3 count: what each is divided by.

All choices keep the objective in units of chi squared, as far as the errors of step 1 are right and
independent. Slopes of one curve are neither quite: neighbours share their error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from igpe.algebraic.regression import Regression
from igpe.core.arrays import FloatArray
from igpe.core.estimates import Estimate


class Found(NamedTuple):
    """What a route found.

    estimate      of the parameters it could determine; its `lower_bound` says what is proved
    undetermined  parameters of the regression that its data do not determine
    others        further local optima it met, distinct ones up to ten times the objective, best
                  first; each without the parameters that the data do not determine there
    """

    estimate: Estimate
    undetermined: tuple[str, ...]
    others: tuple[Estimate, ...] = ()


class Route(Protocol):
    """Solves an algebraic estimation problem and says what it proved."""

    def estimate(self, regression: Regression) -> Found:
        """Failure is the status of the estimate."""
        ...


@runtime_checkable
class Seeded(Protocol):
    """A route that makes random choices."""

    def seeded(self, seed: int) -> Route:
        """The same route with another seed."""
        ...


def reseeded(route: Route, seed: int) -> Route:
    """The route with another seed, if it has one."""
    return route.seeded(seed) if isinstance(route, Seeded) else route


LEAST_ERROR = 1e-6  # errors below this share of the typical size are not believed


class Target(NamedTuple):
    """What the predictions of one state in one experiment are fitted to.

    value  (n,) slopes, or increments between measurements
    error  (n,) their standard errors from step 1; inf where it cannot tell them
    """

    value: FloatArray
    error: FloatArray

    @property
    def size(self) -> float:
        """Root mean square of the values; 1 if all are zero."""
        return _rms(self.value) or 1.0

    @property
    def typical(self) -> float:
        """Root mean square of the errors, or the size if step 1 cannot tell any."""
        told = self.error[np.isfinite(self.error)]
        return max(_rms(told) if len(told) else self.size, LEAST_ERROR * self.size)


class Weights(Protocol):
    """Gives the residuals of one algebraic problem their weights."""

    def of(self, targets: Sequence[Target]) -> list[FloatArray]:
        """For each target (n,) what its residuals are multiplied by, positive and finite."""
        ...


@dataclass(frozen=True)
class Unweighted:
    """Every slope counts alike, whatever its unit and error (Michalik et al. 2009, eq. 5).

    All are divided by one number, their typical error, which leaves the optimum where it is.
    """

    def of(self, targets: Sequence[Target]) -> list[FloatArray]:
        """As in `Weights.of`."""
        typical = _rms(np.concatenate([np.full(len(t.value), t.typical) for t in targets]))
        return [np.full(len(t.value), 1 / typical) for t in targets]


@dataclass(frozen=True)
class StateErrors:
    """One over the typical standard error of a state's slopes, the same for all of them.

    The default: blind to units, and with slopes as near the truth as errors of each slope, with
    increments nearer (benchmarks/weights.py), because neighbours share their errors.
    """

    def of(self, targets: Sequence[Target]) -> list[FloatArray]:
        """As in `Weights.of`."""
        return [np.full(len(t.value), 1 / t.typical) for t in targets]


@dataclass(frozen=True)
class SlopeErrors:
    """One over the standard error of each slope (the wish of Michalik et al. 2009, section 5).

    least  errors are taken for no smaller than this share of the state's typical one
    """

    least: float = 0.1

    def of(self, targets: Sequence[Target]) -> list[FloatArray]:
        """As in `Weights.of`."""
        return [1 / np.maximum(_finite(t), self.least * t.typical) for t in targets]


def _finite(target: Target) -> FloatArray:
    return np.where(np.isfinite(target.error), target.error, target.typical)


def _rms(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0
