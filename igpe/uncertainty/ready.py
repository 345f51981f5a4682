"""A problem made ready for profiles, by shooting or by collocation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.likelihood import errors_at
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.shooting.tangent import tangent
from igpe.numerics.statistics.covariance import Uncertainty, allowed_rise
from igpe.problem.problem import Problem
from igpe.uncertainty.likelihood import likelihood, quick, size_of, with_numbers
from igpe.uncertainty.path import CollocatedPath, Line, Path, Point, ShootingPath, collocated
from igpe.uncertainty.profiles import Profiles

INCREMENTS = 4  # of the sum of squares, on each side
INEXACT = 1e-3  # of the rise: what one Gauss-Newton correction may still promise

Method: TypeAlias = SingleShooting | Collocation

Better: TypeAlias = tuple[FloatArray, float]
"""Unknowns (n,) and sum of squares of an optimum that is better than the estimate."""


class Asked(NamedTuple):
    """What is asked for, as it goes to a task.

    leaving  whether to stop as soon as a better optimum is met
    """

    problem: Problem
    method: Method
    confidence: float
    leaving: bool = True


@dataclass(frozen=True)
class Made:
    """A method made ready: the result without profiles, and how paths are made.

    freed  the optimum next to a point of a path;  integrations: so far
    """

    base: Profiles
    path: Callable[[int], Path]
    scale: Callable[[int], float]
    freed: Callable[[Point], Better]
    integrations: Callable[[], int]


def made_ready(asked: Asked, values: dict[str, float]) -> Made:
    """Compile the problem for the method that is asked for, at the optimum next to the values.

    raises ProblemError for a method that is neither `SingleShooting` nor `Collocation`
    """
    asked = asked._replace(problem=with_numbers(asked.problem, values))
    if isinstance(asked.method, Collocation):
        return _by_collocation(asked, asked.method, values)
    if isinstance(asked.method, SingleShooting):
        return _by_shooting(asked, asked.method, values)
    raise ProblemError(
        f"profile was given method={asked.method!r}; it wants igpe.SingleShooting() or "
        "igpe.Collocation()."
    )


def _by_shooting(asked: Asked, method: SingleShooting, values: dict[str, float]) -> Made:
    base = likelihood(asked.problem, values, method, confidence=asked.confidence)
    rise = base.rise(asked.confidence)
    search = quick(base.search, INEXACT * rise)

    def path(i: int) -> Path:
        return ShootingPath(base, Line((i,), np.ones(1)), search)

    def freed(point: Point) -> Better:
        fit = base.fit(base.residuals, point.x)
        return fit.x, fit.cost

    return Made(
        _without_profiles(
            asked, base.x, base.at.cost, rise, (base.errors.lower, base.errors.upper)
        ),
        path,
        lambda i: size_of(asked.problem, base.x, i),
        freed,
        lambda: base.residuals.calls,
    )


def _by_collocation(asked: Asked, method: Collocation, values: dict[str, float]) -> Made:
    base = collocated(asked.problem, method, values)
    errors = _errors_at(asked, base.x)
    rise = allowed_rise(errors, asked.problem.sigma_known, asked.confidence)
    first = np.maximum(errors.upper - base.x, base.x - errors.lower) / np.sqrt(INCREMENTS)

    def scale(i: int) -> float:
        told = np.isfinite(first[i]) and first[i] > 0
        return float(first[i]) if told else size_of(asked.problem, base.x, i)

    return Made(
        _without_profiles(asked, base.x, base.cost, rise, (errors.lower, errors.upper)),
        lambda i: CollocatedPath(base, Line((i,), np.ones(1))),
        scale,
        base.freed,
        lambda: 0,
    )


def _errors_at(asked: Asked, x: FloatArray) -> Uncertainty:
    """Linearised errors by one integration, with active constraints on parameters kept."""
    problem = asked.problem
    at = Residuals(problem, Automatic())(x)
    return errors_at(problem, x, at, asked.confidence, active=tangent(problem, x).rows)


def _without_profiles(
    asked: Asked,
    x: FloatArray,
    objective: float,
    rise: float,
    linearised: tuple[FloatArray, FloatArray],
) -> Profiles:
    names = asked.problem.box.names
    pairs = zip(*(map(float, side) for side in linearised), strict=True)
    return Profiles(
        names=names,
        parameters=asked.problem.box.mapping(x),
        objective=objective,
        rise=rise,
        confidence=asked.confidence,
        profiles=(),
        linearised=dict(zip(names, pairs, strict=True)),
    )
