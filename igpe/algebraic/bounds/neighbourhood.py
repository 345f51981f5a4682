"""An ellipsoid around an optimum in which nothing is better: boxes inside it need no bound.

Near an optimum the relaxation of a box loses as much as the sum of squares grows, so boxes would be
halved there once for each digit of the gap. Instead the residual is expanded around the optimum:
with theta = theta^ + T z and linear parameters that follow,

    rho(z) = d - sum_k (beta^_k + B_k z) phi_k(theta) = rho^ + L z + q(z)

has a rest q that vanishes with |z|^2, by bounds on second derivatives, and

    | d - Phi beta |^2  >=  | rho |^2 - | Phi' rho |^2 / (least singular value of Phi)^2

for every beta, where Phi' rho is of second order too. The section *The neighbourhood of an optimum*
of `docs/projection.md` has the proof; the letters are its.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.growth import Bound, Growth
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.taylor.curvature import at_point, missed, over_box
from igpe.algebraic.bounds.taylor.derivatives import Derivatives, differences
from igpe.algebraic.bounds.taylor.expansion import Expansion, expanded, lengths, scaled
from igpe.algebraic.bounds.taylor.tape import UnknownOperation
from igpe.algebraic.bounds.taylor.taylor import GROWTH, UNIT
from igpe.core.arrays import BoolArray, FloatArray

SIZES = (1.0, 0.7, 0.45, 0.3, 0.2, 0.12, 0.07, 0.04)  # of the radius hoped for, enclosed together
WIDEST = 0.7  # of |rho^|: a radius that is enough, where what the data hold is not exact
EXACT = 0.1  # of the radius hoped for: that is not made smaller
COARSE, MOST_STEPS = 1.4, 40  # ratio and number of radii that are hoped for,
FINE, MOST_FINE = 1.15, 4  # and tried with one enclosure
INVERSE = 1e-9  # by which whiten and scale may miss being inverse
INSIDE = 0.999  # of the largest box


@dataclass(frozen=True)
class Neighbourhood:
    """All theta^ + T z with |z| <= radius; no sum of squares there is below `lower_bound`.

    theta    (J,)
    whiten   (J, J) the inverse of T, but for rounding
    lengths  (J,) of the rows of T, a box around the ellipsoid
    share    of that box, which is inside
    """

    theta: FloatArray
    whiten: FloatArray
    lengths: FloatArray
    share: float
    radius: float
    lower_bound: float

    def covers(self, lower: FloatArray, upper: FloatArray) -> bool:
        """Whether all theta between lower and upper (J,) belong to it."""
        middle, half = (lower + upper) / 2 - self.theta, (upper - lower) / 2
        half = half + 4 * UNIT * (np.abs(self.theta) + np.abs(lower) + np.abs(upper))
        rounding = 4 * len(half) * UNIT * np.abs(self.whiten) @ (np.abs(middle) + half)
        far = np.abs(self.whiten @ middle) + np.abs(self.whiten) @ half + rounding
        return bool(np.linalg.norm(far) * (1 + 2 * INVERSE) <= self.radius)

    @cached_property
    def half(self) -> FloatArray:
        """(J,) half widths of a box in it, its shape that of the box around it."""
        return self.share * self.radius * self.lengths

    @property
    def growth(self) -> float:
        """About how much larger than at theta^ the sum of squares is outside of that box."""
        return (self.share * self.radius) ** 2


def neighbourhood(
    problem: Separable, theta: FloatArray, goal: float, worth: float = 0.0
) -> Neighbourhood | None:
    """The largest found in which nothing is below the goal; None if there is none.

    theta  (J,) nearly an optimum
    worth  growth of the sum of squares up to the edge of `half`, below which it is of no use
    """
    ends = [(a.lower, a.upper) for a in problem.axes]
    lowest, highest = np.array(ends).T
    theta, derivatives = np.clip(theta, lowest, highest), Derivatives(problem)
    rough = expanded(problem, theta, differences(problem, theta))
    tried = [] if rough is None else _tried(rough, _held(rough, lowest, highest), worth)
    around = _expanded(derivatives, theta) if tried else None
    if around is None:
        return None
    held = _held(around, lowest, highest)
    widths = np.array([np.zeros_like(theta), *(t.width * GROWTH for t in tried)])
    widths[1:] += 8 * UNIT * np.abs(theta)
    over = np.maximum(theta - widths, lowest), np.minimum(theta + widths, highest)
    enclosed = [(f, f.enclosed(*over)) for f in derivatives.families]
    unknown = missed(enclosed, around.at)
    smaller = [t.radius for t in tried[1:]] + [0.0]
    for box, (one, least) in enumerate(zip(tried, smaller, strict=True), start=1):
        growth = Growth.of(around, held, one.scale)
        if growth is None:
            continue
        curvature = over_box(enclosed, box, growth.directions, around.factors, len(theta))
        if not np.isfinite(curvature.radius).all():
            continue
        found = _largest(Bound(growth, curvature, unknown), (one.radius, least), goal)
        if found is not None:
            return _found(theta, one.scale, *found)
    return None


def _held(around: Expansion, lowest: FloatArray, highest: FloatArray) -> BoolArray:
    """(J,) which theta are on an end of their axes, from which the gradient points inward."""
    theta, gradient = around.theta, around.gradient
    return ((theta <= lowest) & (gradient > 0)) | ((theta >= highest) & (gradient < 0))


def _expanded(derivatives: Derivatives, theta: FloatArray) -> Expansion | None:
    try:
        return expanded(derivatives.problem, theta, derivatives.at(theta))
    except UnknownOperation:  # such as the sign, of the derivative of an absolute value
        return None


def _largest(bound: Bound, radii: tuple[float, float], goal: float) -> tuple[float, float] | None:
    """The largest radius (at most the first, above the second) that reaches the goal, its bound."""
    for radius in (radii[0] / FINE ** np.arange(MOST_FINE)).tolist():
        lower = bound.proved(radius)[1]
        if radius > radii[1] and lower >= goal:
            return radius, lower
    return None


class _Tried(NamedTuple):
    """An ellipsoid whose box is enclosed; scale: T."""

    radius: float
    scale: FloatArray

    @property
    def width(self) -> FloatArray:
        """(J,) half widths of its box."""
        return self.radius * lengths(self.scale)


def _tried(around: Expansion, held: BoolArray, worth: float) -> list[_Tried]:
    """Ellipsoids of several sizes, the largest first; none if the optimum is none."""
    hoped = _hoped(around, held, worth)
    radii = [size * hoped for size in SIZES if hoped > 0]
    scales = ((radius, scaled(around, held, radius)) for radius in radii)
    return [_Tried(radius, scale) for radius, scale in scales if scale is not None]


def _hoped(around: Expansion, held: BoolArray, worth: float) -> float:
    """The radius that the curvature at theta^ alone would allow; 0 if there is none worth it."""
    norm = float(np.linalg.norm(around.residual))
    z = WIDEST * norm if held.any() else np.inf
    nothing = np.zeros(len(around.at.value)), np.zeros(around.at.slope.shape[:2])
    bound, share = None, 1.0
    for _ in range(MOST_STEPS):
        if bound is None or held.any():
            scale = scaled(around, held, z)
            growth = None if scale is None else Growth.of(around, held, scale)
            if growth is None:
                return 0.0
            curvature = at_point(around.at, growth.directions, around.factors)
            bound, share = Bound(growth, curvature, nothing), _share(growth.scale)
            z = min(z, bound.hopeless())
        enough = bound.proved(z)[0] > 0
        radius = min(z, max(WIDEST * norm, EXACT * z)) if enough else z
        if (enough or not held.any()) and (share * radius) ** 2 < worth:
            return 0.0
        if enough:
            return radius
        z /= COARSE
    return 0.0


def _found(
    theta: FloatArray, scale: FloatArray, radius: float, lower: float
) -> Neighbourhood | None:
    whiten = np.asarray(np.linalg.inv(scale))
    rounding = 4 * len(theta) * UNIT * np.abs(whiten) @ np.abs(scale)
    apart = np.abs(whiten @ scale - np.eye(len(theta))) + rounding
    if not np.linalg.norm(apart) < INVERSE / 2:
        return None
    return Neighbourhood(theta, whiten, lengths(scale), _share(scale), radius, lower)


def _share(scale: FloatArray) -> float:
    """See `Neighbourhood.share`."""
    return INSIDE / float(np.linalg.norm(np.abs(np.linalg.inv(scale)) @ lengths(scale)))
