"""An ellipsoid around an optimum in which nothing is better: boxes inside it need no bound.

Near an optimum the relaxation of a box loses as much as the sum of squares grows, so boxes would be
halved there once for each digit of the gap. Instead the residual is expanded around the optimum:
with theta = theta^ + T z and linear parameters that follow,

    rho(z) = d - sum_k (beta^_k + B_k z) phi_k(theta) = rho^ + L z + q(z)

has a rest q that vanishes with |z|^2, by bounds on second derivatives, and

    | d - Phi beta |^2  >=  | rho |^2 - | Phi' rho |^2 / (least singular value of Phi)^2

for every beta, where Phi' rho is of second order too. The section *The neighbourhood of an optimum*
of `docs/projection.md` has the proof; the letters are its.

What a search does around the best point known: cut its neighbourhood out of boxes.

Boxes inside a neighbourhood (`neighbourhood.py`) have its bound. A box that is larger is not halved
towards it, once for each axis and digit of the gap, but cut along its edges in one go.

How the sum of squares grows around an optimum: what an expansion leaves out, bounded.

The letters are those of *The neighbourhood of an optimum* in `docs/projection.md`, all norms are
Euclidean, those of matrices and tensors Frobenius. Every upper bound holds for all |z| <= radius.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.columns import SearchBox
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.taylor.expansion import (
    ColumnCurvature,
    Derivatives,
    Expansion,
    at_point,
    differences,
    expanded,
    lengths,
    missed,
    over_box,
    relative_rounding,
    scaled,
)
from igpe.algebraic.bounds.taylor.taylor import GROWTH, UNIT
from igpe.core.arrays import BoolArray, FloatArray
from igpe.equations.operations import UnknownOperation

LEAST = 0.05  # of the growth by |z|^2 at the optimum: so much must be left
REST = 101.0  # (a + b)^2 <= REST a^2 + MOST b^2
MOST = 1.01


@dataclass(frozen=True)
class Growth:
    """An expansion by z, and the directions in which it has to be known.

    around  the expansion by theta;  scale: T
    held    (J,) theta on an end of its axis, which the gradient holds there
    mix     (K, K) G: columns of Phi G are nearly orthonormal
    """

    around: Expansion
    held: BoolArray
    scale: FloatArray
    mix: FloatArray

    @classmethod
    def of(cls, around: Expansion, held: BoolArray, scale: FloatArray) -> "Growth | None":
        """None where the columns are not independent."""
        columns = around.at.value[1:]
        size = np.linalg.norm(columns, axis=1)
        if not size.all():
            return None
        unit = columns / size[:, None]
        try:
            upper = np.linalg.cholesky(unit @ unit.T).T
        except np.linalg.LinAlgError:
            return None
        return cls(around, held, scale, np.linalg.inv(upper) / size[:, None])

    @cached_property
    def by_z(self) -> Expansion:
        return self.around.along(self.scale)

    @cached_property
    def tests(self) -> FloatArray:
        """(K, K + h) of columns that shall be orthogonal to rho: G of the free ones, then those
        that are held by an end of their range, which rho shall not favour."""
        ends = self.around.ends
        return np.hstack([self.mix * ends.free[:, None], np.diag(ends.sign)[:, ends.sign != 0]])

    @cached_property
    def turn(self) -> FloatArray:
        """(K + h, J, r) how the tested columns change with z."""
        return np.tensordot(self.tests.T, self.by_z.at.slope[1:], axes=1)

    @cached_property
    def directions(self) -> FloatArray:
        """(D, r): rho^, L, the tested columns, and how these change."""
        rows = self.tests.T @ self.by_z.at.value[1:]
        changes = self.turn.reshape(-1, rows.shape[1])
        return np.vstack([self.by_z.residual, self.by_z.slope, rows, changes])


class Bound:
    """Lower bounds on the sum of squares near the optimum.

    growth     the expansion
    curvature  along its directions
    missed     (1 + K,), (1 + K, J): what may be wrong with its numbers
    """

    def __init__(
        self, growth: Growth, curvature: ColumnCurvature, missed: tuple[FloatArray, FloatArray]
    ) -> None:
        self.given, self.missed = growth, missed
        e, self.lengths = growth.by_z, lengths(growth.scale)
        n, t = len(self.lengths), growth.tests.shape[1]
        self.rows, self.turns = slice(1 + n, 1 + n + t), slice(1 + n + t, None)
        self.eps = relative_rounding(e.residual)
        self.norm = self.lengths @ curvature.norm @ self.lengths  # of c_k, twice
        self.slope, self.residual = (float(np.linalg.norm(x)) for x in (e.slope, e.residual))
        middle = growth.scale.T @ curvature.middle @ growth.scale
        radius = self.lengths @ curvature.radius @ self.lengths
        self._rest(middle, radius)
        self._tests(middle, radius)
        self._columns()

    def _rest(self, middle: FloatArray, radius: FloatArray) -> None:
        """v . q for all directions v, and |q|; and Q, by which tests have no second order."""
        e, v = self.given.by_z, self.given.directions
        turned = np.einsum("ka,kbr->abr", e.follow, e.at.slope)
        turned = (turned + turned.transpose(1, 0, 2)) / 2
        quadratic = -middle[:, -1] / 2 - np.moveaxis(turned @ v.T, -1, 0)
        onto = v @ e.at.value.T  # D, 1 + K
        self.bending = bend = self._bend(quadratic, middle[0], onto)
        self.quadratic = quadratic - np.tensordot(onto, bend, axes=1)
        by_v = np.moveaxis(e.at.slope @ v.T, -1, 0)  # D, 1 + K, J
        cubic = np.einsum("ka,dkbc->dabc", e.follow, middle[:, :-1]) / 2
        cubic += np.einsum("kab,dkc->dabc", bend, by_v)
        self.follow = b = np.linalg.norm(e.follow, axis=1)
        self.bent = c = np.linalg.norm(bend, axis=(1, 2))
        each = radius[:, :-1]
        self.error = radius[:, -1] / 2
        self.error_by_z = np.linalg.norm(cubic.reshape(len(v), -1), axis=1) + each @ b / 2
        self.error_by_z2 = (np.linalg.norm(middle[:, :-1], axis=(2, 3)) + each) @ c / 2
        self.sizes = np.linalg.norm(v, axis=1)
        whole = turned + np.tensordot(bend, e.at.value, axes=(0, 0))
        slopes = np.linalg.norm(e.at.slope, axis=(1, 2))
        self.cancelled = float(b @ slopes + c @ np.linalg.norm(e.at.value, axis=1))
        self.rest = float(np.abs(e.factors) @ self.norm / 2 + np.linalg.norm(whole))
        self.rest_by_z = float(b @ self.norm / 2 + c @ slopes)
        self.rest_by_z2 = float(c @ self.norm / 2)

    def _bend(self, quadratic: FloatArray, middle: FloatArray, onto: FloatArray) -> FloatArray:
        """(1 + K, J, J) Q."""
        given, k = self.given, len(self.given.mix)
        second = self._second(quadratic[self.rows], middle)[:k]
        free = given.around.ends.free
        result = np.zeros((1 + k, *quadratic.shape[1:]))
        if not free.any():
            return result
        onto_free = onto[self.rows][:k, 1:][:, free]
        solved = np.linalg.lstsq(onto_free, second.reshape(k, -1), rcond=None)[0]
        result[1:][free] = solved.reshape(-1, *quadratic.shape[1:])
        return (result + result.transpose(0, 2, 1)) / 2

    def _second(self, quadratic: FloatArray, middle: FloatArray) -> FloatArray:
        """(K + h, J, J) second order of psi . rho at the centre."""
        across = self.given.turn @ self.given.by_z.slope.T
        bent = np.tensordot(self.given.tests.T, middle[1:-1], axes=1)
        return np.asarray(quadratic + (across + across.transpose(0, 2, 1) + bent) / 2)

    def _tests(self, middle: FloatArray, radius: FloatArray) -> None:
        """psi . rho for the columns psi that are tested."""
        e, mix, n = self.given.by_z, self.given.tests, len(self.lengths)
        rows, turn = self.given.directions[self.rows], self.given.turn
        t = len(rows)
        self.at = rows @ e.residual
        self.first = np.linalg.norm(rows @ e.slope.T + turn @ e.residual, axis=1)
        second = self._second(self.quadratic[self.rows], middle[0])
        self.second = np.linalg.norm(second, axis=(1, 2)) + np.abs(mix).T @ radius[0, 1:-1] / 2
        bent = np.einsum("kt,akbc->tabc", mix, middle[1 : 1 + n, 1:-1]) / 2
        third = self.quadratic[self.turns].reshape(t, n, n, n) + bent
        bound = np.einsum("kt,ak->ta", np.abs(mix), radius[1 : 1 + n, 1:-1]) / 2
        self.third = np.linalg.norm(third.reshape(t, n**3), axis=1) + np.linalg.norm(bound, axis=1)
        self.turn = np.linalg.norm(turn, axis=(1, 2))
        self.bend = np.abs(mix).T @ self.norm[1:] / 2

    def _columns(self) -> None:
        """How far Phi G is from orthonormal columns."""
        e, mix = self.given.by_z, self.given.mix
        rows = mix.T @ e.at.value[1:]
        k = len(rows)
        self.skew = float(np.linalg.norm(rows @ rows.T - np.eye(k))) + 4 * k * self.eps
        self.skew_by_z = float(np.linalg.norm(np.tensordot(mix.T, e.at.slope[1:], axes=1)))
        self.skew_by_z2 = float(np.linalg.norm(np.abs(mix).T @ self.norm[1:])) / 2

    def hopeless(self) -> float:
        """A radius for which no growth is left."""
        n, free = len(self.lengths), len(self.given.mix)
        first = np.linalg.norm(self.quadratic[1 : 1 + n]) / 2
        second = np.sqrt(np.linalg.norm(self.third[:free])) / 4
        return 1 / max(float(first + second), self.skew_by_z, 1e-300)

    def proved(self, z: float) -> tuple[float, float]:
        """For |z| up to a radius: growth by |z|^2, and a lower bound; both 0 if none is left."""
        e, n = self.given.by_z, len(self.lengths)
        kappa, (q, rho, omega) = self.kappa(z), self._sizes(z)
        if not kappa < 1:
            return 0.0, 0.0
        error, (c0, c1) = self._error(z, q), self.tested(z)
        tangential = np.linalg.norm(self.quadratic[1 : 1 + n]) + np.linalg.norm(error[1 : 1 + n])
        growth = e.slope @ e.slope.T + 2 * self.quadratic[0] + self._held(z)
        slack = self.eps * (np.linalg.norm(growth) + self.slope**2 + self.residual * q)
        left = float(
            np.linalg.eigvalsh(growth)[0]
            - slack - 2 * error[0] - 2 * z * tangential - MOST * (c1 / (1 - kappa)) ** 2
        )  # fmt: skip
        if not left >= LEAST:
            return 0.0, 0.0
        lost = self._gradient() ** 2 / (4 * left) + REST * (c0 / (1 - kappa)) ** 2 + 2 * omega * rho
        return left, max(self.residual**2 * (1 - self.eps) - lost, 0.0)

    def kappa(self, z: float) -> float:
        """How far the singular values of Phi G may be below one."""
        of_columns = self.skew + z * (self.skew_by_z + z * self.skew_by_z2)
        return of_columns + float(np.linalg.norm(np.abs(self.given.mix).T @ self._missed(z)[1:]))

    def _sizes(self, z: float) -> tuple[float, float, float]:
        """|q| / |z|^2, |rho|, and how much of rho is missed."""
        around = self.given.around
        q = self.rest + z * (self.rest_by_z + z * self.rest_by_z2)
        factors = np.abs(around.factors)
        # the target is not longer than what is taken off it and what is left
        target = self.residual + factors @ np.linalg.norm(around.at.value, axis=1)
        factors = factors + z * (self.follow + z * self.bent)
        omega = float(factors @ self._missed(z) + self.eps * target)
        return q, self.residual + z * (self.slope + z * q), omega

    def _error(self, z: float, q: float) -> FloatArray:
        """(D,) |v . q - its quadratic form| / |z|^2."""
        error = self.error + z * (self.error_by_z + z * self.error_by_z2)
        return np.asarray(error + self.eps * (q + self.cancelled) * self.sizes)

    def _missed(self, z: float) -> FloatArray:
        """(1 + K,) norms of what is wrong with columns, by rounding or from the start."""
        at = self.given.around.at
        slopes = np.linalg.norm(at.slope, axis=2) @ self.lengths
        size = np.linalg.norm(at.value, axis=1) + z * (slopes + z * self.norm)
        return np.asarray(self.missed[0] + z * self.missed[1] @ self.lengths + self.eps * size)

    def tested(self, z: float) -> tuple[float, float]:
        """c0 and c1: psi . rho is at most c0 + c1 |z|, of all tests together."""
        (q, rho, omega), free = self._sizes(z), len(self.given.mix)
        error, missed = self._error(z, q), self._missed(z)[1:]
        psi = self.sizes[self.rows] + z * (self.turn + z * self.bend)
        doubt = psi * (omega + self.eps * rho) + np.abs(self.given.tests).T @ missed * (rho + omega)
        along = np.linalg.norm(error[self.turns].reshape(len(psi), len(self.lengths)), axis=1)
        second = self.second + error[self.rows] + z * (self.third + along + z * self.bend * q)
        second = second + self.eps * (self.turn * self.slope + self.bend * self.residual)
        first = self.first + self.eps * (psi * self.slope + self.turn * self.residual) + z * second
        c0 = float(np.linalg.norm(np.abs(self.at[:free]) + doubt[:free]))
        c1 = float(np.linalg.norm(first[:free]))
        favoured, weight = self.at[free:] + doubt[free:], np.linalg.norm(self.given.mix, axis=1)
        weight = weight[self.given.around.ends.sign != 0]
        gain = np.maximum(np.minimum(favoured, 0.0) / z + first[free:], 0.0)
        return c0 + float(weight @ np.maximum(favoured, 0.0)), c1 + float(weight @ gain)

    def _held(self, z: float) -> FloatArray:
        """What the gradient by held theta adds: g delta >= g delta^2 / its largest delta."""
        held, scale = self.given.held, self.given.scale
        if not held.any():
            return np.zeros_like(scale)
        rate = np.where(held, np.abs(self.given.around.gradient), 0.0) / (z * self.lengths)
        return np.asarray(scale.T @ (rate[:, None] * scale))

    def _gradient(self) -> float:
        """Norm of the rest of the gradient, by z."""
        given, around = self.given, self.given.around
        free = given.scale.T @ np.where(given.held, 0.0, around.gradient)
        size = np.abs(around.factors) @ np.linalg.norm(around.at.slope, axis=2)
        size = size + np.linalg.norm(around.at.value, axis=1) @ np.abs(around.follow)
        rounding = 4 * self.eps * self.residual * float(size @ self.lengths)
        return float(np.linalg.norm(free)) + rounding


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
        result = _largest(Bound(growth, curvature, unknown), (one.radius, least), goal)
        if result is not None:
            return _found(theta, one.scale, *result)
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


SMALL = 0.1  # of the goal: a box around the best point with such a bound is small
EXPENSIVE = 5  # boxes, that cost as much as to find a neighbourhood
FINENESS = 16  # cells into which a neighbourhood falls, at least, where it is cut out
DEEPEST = 50  # level of a span beyond which rounding rules
SMALLEST = 1e-15  # gap, for what it costs to close it


class Gap(NamedTuple):
    """Sums of squares: of the best point, the bound that is required, and a box's."""

    objective: float
    goal: float
    lower: float

    @property
    def allowed(self) -> float:
        """What may be left."""
        return self.objective - self.goal

    def halves(self, n_axes: int) -> float:
        """About how many boxes it takes to halve one around the optimum until it is closed.

        What a bound loses falls to a quarter when all axes are halved, two boxes for each.
        """
        lost = self.objective - self.lower
        if lost <= self.allowed or self.allowed < SMALLEST * self.objective:
            return 0.0
        return 2 * n_axes * math.log(lost / self.allowed, 4)


class Surroundings:
    """The neighbourhood of the best point, once it is worth looking for.

    best  () -> theta of the best point known; None if there is none
    """

    def __init__(self, problem: Separable, best: Callable[[], FloatArray | None]) -> None:
        self.problem, self.best = problem, best
        self._found: Neighbourhood | None = None
        self._objective = math.inf

    def look(self, box: SearchBox, gap: Gap) -> None:
        """Find it, if the box is small, around the best point, and far from closed."""
        n = len(self.problem.axes)
        worth = 2 * n + EXPENSIVE  # boxes, as many as it will cost to find it and to cut it out
        if (
            gap.halves(n) < worth
            or gap.lower < SMALL * gap.goal
            or self._objective <= gap.objective
        ):
            return
        theta = self.best()
        if theta is None or not box.holds(self.problem, theta):
            return
        self._objective = gap.objective
        growth = 4 ** (worth / (2 * n)) * gap.allowed
        self._found = neighbourhood(self.problem, theta, gap.goal, growth)

    def lower_bound(self, box: SearchBox) -> float:
        """Of a box inside the neighbourhood; 0 of others."""
        if self._found is None or not self._found.covers(*box.ends(self.problem)):
            return 0.0
        return self._found.lower_bound

    def pieces(self, box: SearchBox, gap: Gap) -> tuple[SearchBox, ...]:
        """What is around the neighbourhood, and what is in it; nothing where that does not pay.

        It pays if the sum of squares has grown there by all that the box's bound lacks, so that
        what is around can be expected to need no more, and if halves would be more.
        """
        result = self._found
        if result is None or result.growth < gap.goal - gap.lower:
            return ()
        pieces: list[SearchBox] = []
        low, high = result.theta - result.half, result.theta + result.half
        for j, axis in enumerate(self.problem.axes):
            a, b = axis.coordinate(low[j]), axis.coordinate(high[j])
            level = max(box.spans[j].level, math.ceil(-math.log2((b - a + 1e-15) / FINENESS)))
            if level > DEEPEST:
                return ()
            cells = math.ceil(a * 2**level), math.floor(b * 2**level)
            before, between, after = box.spans[j].cut(level, cells)
            if between is None:
                return ()
            pieces += [box.with_span(j, s) for s in (before, after) if s is not None]
            box = box.with_span(j, between)
        worth = 0 < len(pieces) <= gap.halves(len(self.problem.axes))
        return (*pieces, box) if worth else ()
