"""Joint likelihood-ratio regions of two unknowns, the others at their best.

The first unknown's profile is followed until the sum of squares has risen by what chance explains
of two unknowns; at each of its points the second one goes both ways until it has. This follows bent
regions, as long as what there is of them at each value of the first unknown is one piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from scipy.linalg import eigh

from igpe.core.errors import ProblemError
from igpe.core.markup import Rows, Shown
from igpe.dynamics.likelihood import allowed_rise
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.numerics.covariance import Uncertainty, ellipse
from igpe.problem.problem import Problem, takes_problem
from igpe.results.plots.axes import Plot
from igpe.results.plots.uncertainty import plot_region
from igpe.uncertainty.likelihood import (
    NO_ERRORS,
    Likelihood,
    at_estimate,
    chosen,
    left_out,
    quick,
    require_confidence,
    size_of,
)
from igpe.uncertainty.path import End, HeldLine, PathPoint, ShootingPath, WalkSteps, walk

ALONG, ACROSS = 10, 2  # increments of the sum of squares, on each side
INEXACT = 1e-3  # of the rise: what one Gauss-Newton correction may still promise


@dataclass(frozen=True, repr=False)
class Region(Shown):
    """Joint confidence region of two unknowns, from the likelihood ratio.

    names       names of the two unknowns
    estimate    estimates of the two unknowns
    units       units of the two unknowns
    edge        a table of points on the edge of the region, which is a closed curve. The table has
                one column for each of the two unknowns. Its column `end` is "" where the likelihood
                ratio determines the edge, and otherwise "bound reached", "open" or "no solution
                beyond"
    linearised  the linearised region: points on the ellipse, one column for each unknown; empty if
                a standard error is not defined
    confidence  confidence level of the region
    rise        increase in the sum of squares at the boundary of the region
    notes       constraints of the model that the region does not use
    integrations  number of integrations of the full model with derivatives
    """

    names: tuple[str, str]
    estimate: tuple[float, float]
    edge: pd.DataFrame = field(repr=False)
    linearised: pd.DataFrame = field(repr=False)
    confidence: float
    rise: float
    integrations: int
    units: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()

    def _shown(self) -> tuple[list[Rows], list[str]]:
        rows: list[tuple[str, ...]] = [("", "estimate", "from", "to", "unit")]
        for name, value, unit in zip(self.names, self.estimate, self.units, strict=True):
            along = self.edge[name]
            rows.append((name, *(f"{v:.6g}" for v in (value, along.min(), along.max())), unit))
        ends = ", ".join(sorted({str(e) for e in self.edge["end"]} - {""}))
        words = f"{100 * self.confidence:g} % joint region from the likelihood ratio."
        return [rows], [
            words,
            *self.notes,
            *[f"Parts of the region's edge do not lie on the likelihood contour: {ends}."]
            * bool(ends),
        ]

    def plot(self, axes: Any = None) -> Plot:
        """Plot the region, the linearised ellipse and the estimate."""
        return plot_region(self, axes)


@takes_problem
def region(
    problem: Problem,
    estimate: Any,
    names: Sequence[str],
    *,
    confidence: float = 0.95,
    method: SingleShooting = SingleShooting(),
) -> Region:
    """Compute the joint confidence region of two unknowns from the likelihood ratio.

    problem     the problem whose parameters were estimated
    estimate    a Result or Estimate of the problem, or a dict {unknown: value}
    names       names of the two unknowns, which must not be fixed
    confidence  confidence level of the region
    method      method whose integrator solves the model
    raises      ProblemError unless `names` contains two free unknowns and there is at least one
                degree of freedom; Unsupported and EstimationFailed as in `igpe.profile`
    """
    require_confidence("region", confidence)
    pair = chosen(problem, names)
    if len(set(pair)) != 2:  # noqa: PLR2004
        raise ProblemError(f"A region needs two different unknowns; got {list(pair)}.")
    base = at_estimate(problem, estimate, method, "igpe.uncertainty.region", confidence=confidence)
    i, j = (problem.box.names.index(n) for n in pair)
    rise = allowed_rise(base.errors, base.problem.sigma_known, confidence, 2)
    rise *= _inflation(base.errors, [i, j])
    if not np.isfinite(rise):
        raise ProblemError(NO_ERRORS)
    ridge = _ridge(base, i, rise)
    slices = [_slice(base, point, (i, j), rise) for point in ridge]
    upper, lower = [s.upper for s in slices], [s.lower for s in reversed(slices)]
    points = [p.x for one in (ridge, *(s.points for s in slices)) for p in one]
    block = base.errors.covariance[np.ix_([i, j], [i, j])]
    degrees = None if base.problem.sigma_known else base.errors.degrees
    linearised = np.zeros((0, 2))
    if np.isfinite(block).all():
        linearised = ellipse(block, confidence, degrees) + base.x[[i, j]]
    return Region(
        names=(pair[0], pair[1]),
        estimate=(float(base.x[i]), float(base.x[j])),
        edge=pd.DataFrame([*upper, *lower, upper[0]], columns=[*pair, "end"]),
        linearised=pd.DataFrame(linearised, columns=list(pair)),
        confidence=confidence,
        rise=rise,
        integrations=base.residuals.calls,
        units=(problem.unit(pair[0]), problem.unit(pair[1])),
        notes=tuple(left_out(problem, "igpe.uncertainty.region", "points of the region", points)),
    )


def _inflation(errors: Uncertainty, pair: list[int]) -> float:
    """By how much more than for all alike the sum of squares may rise.

    Where quantities have errors of their own: in the direction of the plane where it may rise most.
    """
    root, own = errors.spread.root.root[pair], errors.covariance[np.ix_(pair, pair)]
    alike = errors.variance * root @ root.T
    if not np.isfinite(own).all() or np.linalg.matrix_rank(alike, hermitian=True) < len(pair):
        return float(errors.inflation[pair].max())
    longer = float(eigh(own, alike, eigvals_only=True).max())
    quantiles = errors.inflation[pair] * np.diag(alike) / np.diag(own)
    return longer * float(quantiles.max())


Corner: TypeAlias = tuple[float, float, str]
"""The two unknowns, and why the region ends there."""


class Slice(NamedTuple):
    """The lowest and highest second unknown at a value of the first, and all unknowns there."""

    lower: Corner
    upper: Corner
    points: tuple[PathPoint, ...] = ()


def _ridge(base: Likelihood, i: int, rise: float) -> list[PathPoint]:
    """The profile of the first unknown, as far as the joint region goes, exactly to its tips."""
    path = ShootingPath(base, HeldLine((i,), np.ones(1)), quick(base, INEXACT * rise))
    low, high = path.reach
    first = size_of(base.problem, base.x, i)
    steps = WalkSteps(rise, ALONG, first, longest=(high - low) / (2 * ALONG))
    origin, sides = path.origin, []
    for sign in (-1, 1):
        side = walk(path, origin, sign, steps)
        points = list(side.points)
        if side.end is End.FOUND:
            points[-1] = path.point(side.at, points[-1]) or points[-1]
        sides.append(points)
    return [*reversed(sides[0]), origin, *sides[1]]


def _slice(base: Likelihood, point: PathPoint, held: tuple[int, int], rise: float) -> Slice:
    """The lowest and highest second unknown at a point of the ridge."""
    x, there = point.state.x, point.state.there
    line = HeldLine(held, np.array([0.0, 1.0]))
    path = ShootingPath(replace(base, x=x, at=there), line, quick(base, INEXACT * rise))
    origin, (i, j) = path.origin, held
    left = base.at.cost + rise - origin.cost
    first, second = float(origin.x[i]), float(origin.x[j])
    if left <= INEXACT * rise:  # the tip of the region
        return Slice((first, second, ""), (first, second, ""))
    steps = WalkSteps(left, ACROSS, size_of(base.problem, base.x, j))
    low, high = (walk(path, origin, sign, steps) for sign in (-1, 1))
    lower, upper = ((first, second + side.at, side.end.value) for side in (low, high))
    return Slice(lower, upper, (*low.points[-1:], *high.points[-1:]))
