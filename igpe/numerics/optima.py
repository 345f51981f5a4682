"""When two optima are the same: the one rule that every method and every table uses.

Two optima are the same if the unknowns that the data determine agree, if they differ by a small
part of their standard errors, or if a valley leads from one to the other: an unknown is held at
values in between, the others are fitted again where they must (its profile), and the objective
never rises to speak of. So a direction that is hardly determined is one optimum with a large error.

Where no residuals are at hand, values or objectives alone are compared.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.numerics.covariance import determined
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Fit, Linearised, Residual, Search
from igpe.numerics.least_squares.gauss_newton import GaussNewton

SOUGHT = "The search for other, equally good sets of values"
"""What a note begins with that says why this search was not finished."""
SAME = 1e-3  # relative difference of values, or of objectives, of one optimum
LIKELIHOOD = 0.02  # of -2 log L, whose size says nothing, as units of the measurements shift it
SMALL = 1e-6  # of the bounds' width: below it the difference of an unknown counts absolutely
NEAR = 1e-2  # standard errors between two ends of searches for one optimum
RISE = 1e-2  # of the objective, or RISES of its mean square: what data with noise do not show
RISES = 2.0
STOPS = 5  # values of the held unknown along a valley, the last one included
Item = TypeVar("Item")

SEARCH = GaussNewton(tolerance=1e-3, max_iterations=30)


class Landscape(NamedTuple):
    """An objective by its residuals.

    rounding  differences of the objective below it mean nothing
    most      differences above it are those of two optima, however large the objective is
    """

    residual: Residual
    box: Box
    rounding: float = 0.0
    most: float = np.inf

    def is_level(self, one: Fit, other: Fit) -> bool:
        """Return True if two fits have the same objective."""
        return is_same_objective(one.cost, other.cost, self.rounding, self.most)


def is_same_objective(
    one: float, other: float, rounding: float = 0.0, most: float = np.inf
) -> bool:
    """Return True if two objectives differ by less than optima do; False if one is not finite.

    rounding, most  see `Landscape`
    """
    if not np.isfinite([one, other]).all():
        return False
    return bool(abs(one - other) <= min(SAME * max(abs(one), abs(other)), most) + rounding)


def differences(one: FloatArray, other: FloatArray, box: Box) -> FloatArray:
    """Relative differences (n,) of the values of two optima."""
    width = box.upper - box.lower
    small = np.where(np.isfinite(width), SMALL * width, 0.0).clip(1e-300)
    size = np.maximum(np.maximum(np.abs(one), np.abs(other)), small)
    return np.asarray(np.abs(one - other) / size)


def has_same_values(one: FloatArray, other: FloatArray, box: Box) -> bool:
    """Return True if all unknowns of two optima agree."""
    return not (differences(one, other, box) > SAME).any()


def first_of_each(items: Iterable[Item], is_same: Callable[[Item, Item], bool]) -> list[Item]:
    """The items without those that are the same as an earlier one."""
    kept: list[Item] = []
    for item in items:
        if not any(is_same(other, item) for other in kept):
            kept.append(item)
    return kept


def distinct(landscape: Landscape, fits: Iterable[Fit]) -> list[Fit]:
    """One fit for each optimum, the best first; those without residuals are left out."""
    able = sorted((f for f in fits if f.at is not None), key=lambda f: f.cost)
    return first_of_each(able, partial(is_same_optimum, landscape))


def distinct_estimates(estimates: Iterable[Estimate], box: Box) -> list[Estimate]:
    """Usable estimates that differ in their objectives or their values, best first."""

    def is_same(one: Estimate, other: Estimate) -> bool:
        level = is_same_objective(one.objective, other.objective)
        a, b = (box.vector(e.parameters) for e in (one, other))
        return level and has_same_values(a, b, box)

    usable = sorted((e for e in estimates if e.status.usable), key=lambda e: e.objective)
    return first_of_each(usable, is_same)


def match(landscape: Landscape, optima: Sequence[Fit], fit: Fit) -> int | None:
    """The index of the first of the optima that is the same as a fit; None if it is a new one."""
    for k, one in enumerate(optima):
        better, worse = sorted((one, fit), key=lambda f: f.cost)
        if is_same_optimum(landscape, better, worse):
            return k
    return None


def is_same_optimum(landscape: Landscape, better: Fit, worse: Fit) -> bool:
    """Return True if two searches ended at one optimum; `worse` has the larger objective."""
    if has_same_known(landscape, better, worse):
        return True
    apart = differences(better.x, worse.x, landscape.box)
    both = known(landscape, better) & known(landscape, worse)
    return _valley(landscape, worse, better, int(np.argmax(np.where(both, apart, 0.0))))


def has_same_known(landscape: Landscape, one: Fit, other: Fit) -> bool:
    """Return True if all unknowns agree that the data determine, or by their standard errors."""
    apart = differences(one.x, other.x, landscape.box)
    both = known(landscape, one) & known(landscape, other)
    if not (apart[both] > SAME).any():
        return True
    return all(is_near(fit, other.x - one.x, landscape.rounding) for fit in (one, other))


def known(landscape: Landscape, fit: Fit) -> BoolArray:
    """(n,) which unknowns the data determine there; one on its bound is, if it matters at all."""
    assert fit.at is not None, "a fit without residuals determines nothing"
    norm = np.linalg.norm(fit.at.jacobian, axis=0)
    free = determined(fit.at.jacobian / np.where(norm > 0, norm, 1.0))
    return np.asarray(free | (on_bounds(fit.x, fit.at, landscape.box) & (norm > 0)))


def spread(points: Sequence[FloatArray], count: int) -> list[int]:
    """Indices of `count` points, none near an earlier one as long as there are such; ascending.

    The starts of multi-level single linkage (Rinnooy Kan & Timmer 1987): where points are ordered
    by their objective, the best ones alone would all lie in one well. Distances are the largest
    difference of ranks, so that scale and unit of a coordinate do not count; `count` cubes of twice
    the least distance fill the space.

    points  m of shape (n,), the best first
    """
    if len(points) <= count:
        return list(range(len(points)))
    ranks = np.argsort(np.argsort(np.array(points), axis=0), axis=0) / len(points)
    least = 0.5 * count ** (-1 / max(ranks.shape[1], 1))
    chosen: list[int] = []
    for i, rank in enumerate(ranks):
        if (np.abs(rank - ranks[chosen]).max(axis=1, initial=0.0) >= least).all():
            chosen.append(i)
        if len(chosen) == count:
            return chosen
    rest = [i for i in range(len(points)) if i not in set(chosen)]
    return sorted((chosen + rest)[:count])


def profiled(
    landscape: Landscape, start: FloatArray, held: Sequence[int], *, search: Search = SEARCH
) -> Fit:
    """The other unknowns, fitted from `start` (n,) with those in `held` at their values there.

    returns  x and residuals with derivatives of all unknowns
    """
    free = np.delete(np.arange(len(start)), held)
    if not len(free):
        return Fit(start, landscape.residual(start), Status.CONVERGED, 0)
    known: dict[bytes, Linearised] = {}

    def full(x: FloatArray) -> FloatArray:
        values = start.copy()
        values[free] = x
        return values

    def residual(x: FloatArray) -> Linearised | None:
        at = landscape.residual(full(x))
        if at is None:
            return None
        known[x.tobytes()] = at
        return at._replace(jacobian=at.jacobian[:, free])

    fit = search.fit(
        residual, start[free], landscape.box.select(landscape.box.names[i] for i in free)
    )
    return fit._replace(x=full(fit.x), at=known.get(fit.x.tobytes()))


def is_near(fit: Fit, step: FloatArray, rounding: float) -> bool:
    """Return True if a step (n,) of the unknowns is a small part of the standard errors at a fit.

    rounding  differences of the objective below it mean nothing
    """
    assert fit.at is not None
    moved = fit.at.jacobian @ step
    mean = fit.at.squares / max(len(moved), 1)
    return float(moved @ moved) <= NEAR**2 * mean + rounding


def _valley(landscape: Landscape, worse: Fit, better: Fit, held: int) -> bool:
    """Return True if the profile of one unknown leads from the worse fit to the better's value."""
    assert worse.at is not None
    share = min(RISE, RISES / max(len(worse.at.residual), 1))
    level = worse.cost + share * abs(worse.cost) + landscape.rounding
    search = replace(SEARCH, enough=level)
    x = worse.x
    for value in np.linspace(worse.x[held], better.x[held], STOPS + 1)[1:]:
        x = np.where(np.arange(len(x)) == held, value, x)
        at = landscape.residual(x)
        if at is None or at.cost > level:
            fit = profiled(landscape, x, [held], search=search)
            if fit.cost > level:
                return False
            x = fit.x
    return True
