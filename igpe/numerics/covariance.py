"""Uncertainty of the estimates: linearised covariance, and what the data do not determine.

    V = s^2 (J' J)^-1        J = d residual / d unknown at the optimum
                             (Michalik et al. 2009, ISS, eq. 9; Peifer & Timmer 2007, eq. 22)

with residuals already divided by their standard deviations; s^2 = 1 where those were given, else
s^2 = sum of squares / (measurements - unknowns). Unknowns on a bound do not move with the data:
they are held, and their errors are not defined. Their intervals are one-sided, and no interval
leaves the bounds: where the linearised one would, the data exclude nothing on that side. Active
inequalities hold the unknowns in the same way, on one side: intervals extend to where these let
the linearised objective rise as far as chance explains. An inequality of several unknowns counts
in V only where the optimum without it lies clearly beyond it. The interval of an unknown that is
sought in logarithms is that of its logarithm, whose standard error is relative: x exp(-q s / x) to
x exp(q s / x).

Where the size of each quantity's errors is estimated from its own residuals, s^2 of all residuals
is too small for a quantity that many of the unknowns are free to follow. With h_k of the n_k
residuals of quantity k taken by the unknowns (their leverages),

    V = C J' D J C,   C = (J' J)^-1,   D = diag(mean square * n_k / (n_k - h_k))

and each unknown has degrees of freedom of its own (Satterthwaite, Biometrics Bulletin 2 (1946)).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.linalg import null_space, solve_triangular
from scipy.optimize import brentq, nnls

from igpe.core.arrays import BoolArray, FloatArray, IntArray, column_sizes, connected

RANK = 1e-8  # a direction whose singular value is below this fraction of the largest is not known


class Directions(NamedTuple):
    """Right singular directions of a matrix with n columns, as rows.

    known     (r, n), with singular values `singular` (r,)
    lost      (n - r, n), those the matrix does not determine
    """

    known: FloatArray
    singular: FloatArray
    lost: FloatArray

    @property
    def touched(self) -> BoolArray:
        """(n,) which columns take part in a lost direction."""
        return np.asarray(np.sum(self.lost**2, axis=0) > RANK)


def directions(matrix: FloatArray, rank: float = RANK) -> Directions:
    """Split the column space; scale the columns first, so that rank does not depend on units.

    rank  a direction whose singular value is below this fraction of the largest is lost
    """
    short = np.linalg.qr(matrix, mode="r") if len(matrix) > matrix.shape[1] else matrix
    _, singular, rows = np.linalg.svd(short, full_matrices=True)
    singular = np.pad(singular, (0, matrix.shape[1] - len(singular)))
    known = singular > rank * singular.max(initial=1e-300)
    return Directions(rows[known], singular[known], rows[~known])


def determined(matrix: FloatArray) -> BoolArray:
    """(n,) which columns take no part in the directions that the matrix does not determine."""
    return ~directions(matrix).touched


NOTHING = 1e-8  # effect of an unknown, in units of the residuals' spread, that is rounding
EVEN = 1e-6  # relative difference of an interval's two parts that is rounding
CLEARLY = 2.0  # standard errors from which an optimum beyond an inequality is not due to chance
SEEN = 0.1  # effect of an unknown's whole range, in these units, that is not
FAINT = 1e-6  # share of a change in directions that are lost, up to which it is rounding


@dataclass(frozen=True)
class Uncertainty:
    """Errors of n unknowns.

    covariance       (n, n), NaN in rows of unknowns held or tied, infinite where undetermined
    standard_error   (n,)
    lower, upper     (n,) confidence limits inside the bounds; of an unknown on a bound from there
                     to where the linearised objective has risen as far as chance explains
    confidence       e.g. 0.95
    held             (n,) which unknowns lie on a bound
    tied             (n,) which other unknowns active inequalities hold entirely
    undetermined     (n,) which unknowns the measurements do not determine
    degrees          degrees of freedom: residuals - determined directions of unknowns not held
    variance         s^2 above
    linked           groups of unknowns that constraints link: one moves only as the others do
    inflation        (n,) by how much more than for all alike the objective may rise for each
                     unknown, where quantities have errors of their own; 1 elsewhere
    spread           errors of whatever changes with the unknowns
    """

    covariance: FloatArray
    standard_error: FloatArray
    lower: FloatArray
    upper: FloatArray
    confidence: float
    held: BoolArray
    tied: BoolArray
    undetermined: BoolArray
    degrees: int
    variance: float
    linked: tuple[tuple[int, ...], ...]
    inflation: FloatArray
    spread: "Spread"


def uncertainty(
    x: FloatArray,
    residual: FloatArray,
    jacobian: FloatArray,
    *,
    held: BoolArray,
    sigma_known: bool,
    student: bool = False,
    confidence: float = 0.95,
    active: FloatArray | None = None,
    equations: BoolArray | None = None,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    logarithmic: BoolArray | None = None,
    quantities: IntArray | None = None,
) -> Uncertainty:
    """Linearised errors at an optimum x (n,) with residual (m,) and jacobian (m, n).

    student  whether the unit of the residuals is an estimate, so that limits are Student's all the
            same where `sigma_known`
    held    (n,) unknowns on a bound; one that the others make up for is undetermined, as they are
    bounds  lower and upper ones, each (n,); None: there are none
    active  (k, n) derivative of active constraints: the unknowns move only along them, and
            V = s^2 Z (Z' J' J Z)^-1 Z' with Z their null space
    equations  (k,) which of these are equations; the others are inequalities, whose derivative
            points to what they forbid. None: all are
    logarithmic  (n,) unknowns whose interval is that of the logarithm; None: there are none
    quantities  (m,) for each residual which quantity's errors it has, -1: those of all; None: all

    A column that would move no residual by a part in 1e8 of its spread, were its unknown doubled,
    nor by a tenth of it from one bound to the other, is rounding: that unknown is undetermined.
    """
    spread = 1.0 if sigma_known else float(np.sqrt(np.mean(residual**2)))
    lower, upper = (np.full(len(x), s * np.inf) for s in (-1, 1)) if bounds is None else bounds
    jacobian = np.where(_matters(x, jacobian, spread, upper - lower), jacobian, 0.0)
    held = held & ~_replaceable(jacobian, held, active)
    free = np.flatnonzero(~held)
    rows = np.zeros((0, len(x))) if active is None else active
    equal = np.ones(len(rows), dtype=bool) if equations is None else equations
    size = 1 / column_sizes(jacobian[:, free])
    scaled, sides = jacobian[:, free] * size, rows[:, free] * size
    counted = equal | _hold(residual, scaled, sides, equal, sigma_known=sigma_known)
    along, by_equations = (_along(sides[these]) for these in (counted, equal))
    of = root(jacobian, held, along)
    degrees = len(residual) - of.root.shape[1]
    variance = (
        1.0 if sigma_known else float(residual @ residual) / (degrees if degrees > 0 else np.nan)
    )
    of_all = variance, float(degrees) if student or not sigma_known else np.inf
    by_quantity = _spread(of, residual, jacobian @ of.root, of_all, quantities)
    covariance, quantiles, inflation = _covariance(by_quantity, of_all, free, confidence)
    undetermined, tied = of.is_lost, np.zeros(len(x), dtype=bool)
    covariance[undetermined, undetermined] = np.inf
    tied[free] = (np.sum(along**2, axis=1) <= RANK**2) & (np.sum(by_equations**2, axis=1) > RANK)
    covariance[tied] = covariance[:, tied] = np.nan
    shifts = np.outer([-1.0, 1.0], quantiles * np.sqrt(np.diag(covariance)))
    one_sided = held & (bounds is not None) | (not equal.all()) & ~held & ~undetermined
    beyond = np.where(held, np.where(x - lower <= upper - x, -1.0, 1.0), 0.0)
    shifts[:, one_sided] = _Linear(
        *_shortened(residual, jacobian), rows[equal], rows[~equal]
    ).reaches(one_sided, beyond, float(_quantile(confidence, of_all[1])) ** 2 * variance)
    logs = np.zeros(len(x), dtype=bool) if logarithmic is None else _of_logs(shifts, logarithmic)
    low, high = (np.clip(shifted(x, shift, logs), lower, upper) for shift in shifts)
    return Uncertainty(
        covariance,
        np.sqrt(np.diag(covariance)),
        low,
        high,
        confidence,
        held,
        tied,
        undetermined,
        degrees,
        variance,
        _linked(along, free),
        inflation,
        by_quantity,
    )


class Root(NamedTuple):
    """(J'J)^-1 = root root' on the directions that J determines.

    root  (n, r); rows of unknowns on a bound are 0
    lost  (n, k) the others, each unknown in its size;  size: (n,) of an unknown, 1 / |column of J|
    """

    root: FloatArray
    lost: FloatArray
    size: FloatArray

    def error(self, change: FloatArray) -> FloatArray:
        """(...,) standard error of what changes by `change` (..., n), in units of residuals.

        Infinite where it changes along a direction that is not determined.
        """
        known = np.linalg.norm(change @ self.root, axis=-1)
        return np.asarray(np.where(self.is_known(change), known, np.inf))

    @property
    def is_lost(self) -> BoolArray:
        """(n,) which unknowns take part in a direction that is not determined."""
        return np.asarray(np.sum((self.lost / self.size[:, None]) ** 2, axis=1) > RANK)

    def is_known(self, change: FloatArray) -> BoolArray:
        """(...,) whether `change` (..., n) lies in the directions that are determined."""
        unknown = np.linalg.norm(change @ self.lost, axis=-1)
        return np.asarray(unknown <= FAINT * np.linalg.norm(change * self.size, axis=-1))


class Spread(NamedTuple):
    """Errors of whatever changes with the unknowns, as parts from the errors of each quantity.

    numbers   (k,) of the quantities; -1: all whose errors are taken as those of all
    variance  (k,) squared size of their errors
    degrees   (k,) of freedom of these; infinite where the size is known
    products  (k, r, r) U'U of their rows U of J root
    places    (m,) which of the quantities each residual has
    """

    root: Root
    numbers: IntArray
    variance: FloatArray
    degrees: FloatArray
    products: FloatArray
    places: IntArray

    def parts(self, change: FloatArray) -> FloatArray:
        """(..., k) parts of the variance of what changes by `change` (..., n)."""
        image = change @ self.root.root
        each = [np.sum((image @ product) * image, axis=-1) for product in self.products]
        known = self.root.is_known(change)[..., None]
        return np.asarray(np.where(known, self.variance * np.stack(each, axis=-1), np.inf))

    def place(self, quantity: int) -> int:
        """Index of a quantity among `numbers`; 0 if it has no errors of its own."""
        known: list[int] = self.numbers.tolist()
        return known.index(quantity) if quantity in known else 0

    def limits(self, parts: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        """Standard errors (...,), and half the lengths (...,) of intervals.

        parts  (..., k) as of `parts`
        """
        error = np.sqrt(parts.sum(axis=-1))
        return error, error * self.quantiles(parts, level)

    def quantiles(self, parts: FloatArray, level: float) -> FloatArray:
        """(...,) half the length of an interval over its standard error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            own = parts.sum(axis=-1) ** 2 / np.sum(parts**2 / self.degrees, axis=-1)
        return _quantile(level, np.where(np.isnan(own), self.degrees.min(), own))


def _spread(
    root: Root,
    residual: FloatArray,
    image: FloatArray,
    of_all: tuple[float, float],
    quantities: IntArray | None,
) -> Spread:
    """A quantity without a degree of freedom of its own, and what belongs to none, has s^2.

    image  (m, r) change of the residuals (m,) along orthonormal directions
    of_all  s^2 and its degrees
    """
    variance, degrees = of_all
    if quantities is None or not 0 < degrees < np.inf:
        single = np.array([variance]), np.array([degrees]), np.eye(image.shape[1])[None]
        return Spread(root, np.array([-1]), *single, np.zeros(len(residual), dtype=np.intp))
    numbers, place, count = np.unique(quantities, return_inverse=True, return_counts=True)
    images = (image[place == k] for k in range(len(numbers)))
    products = np.array([u.T @ u for u in images])
    left = count - np.trace(products, axis1=1, axis2=2)
    is_own = (numbers >= 0) & (left >= 1)
    mean = np.mean(residual[quantities >= 0] ** 2) if is_own.any() else 0.0
    left = np.where(is_own, left, degrees)
    sizes = np.where(is_own, mean * count / left, variance)
    return Spread(root, numbers, sizes, left, products, place)


def _covariance(
    spread: Spread, of_all: tuple[float, float], free: IntArray, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Covariance (n, n), quantiles (n,) and inflation (n,) of the unknowns that are `free`."""
    root, (variance, degrees) = spread.root.root, of_all
    covariance = np.full((len(root), len(root)), np.nan)
    each = spread.variance[:, None, None] * (root @ spread.products @ root.T)
    covariance[np.ix_(free, free)] = each.sum(axis=0)[np.ix_(free, free)]
    quantiles = spread.quantiles(np.diagonal(each, axis1=1, axis2=2).T, level)
    pooled = variance * np.sum(root**2, axis=1)
    longer = np.divide(np.diag(covariance), pooled, out=np.ones(len(root)), where=pooled > 0)
    inflation = (quantiles / _quantile(level, degrees)) ** 2 * longer
    return covariance, quantiles, inflation


def _hold(
    residual: FloatArray,
    jacobian: FloatArray,
    rows: FloatArray,
    equal: BoolArray,
    *,
    sigma_known: bool,
) -> BoolArray:
    """(k,) which rows chance does not lead away from: the optimum without them is clearly beyond.

    Also those of one unknown alone, which lies on them as on a bound, and those that determine what
    the data do not.
    """
    basis = _along(rows[equal])
    moved = jacobian @ basis
    split = directions(moved)
    to_optimum = split.known / split.singular[:, None]
    pull = -to_optimum @ moved.T @ residual
    degrees = len(residual) - len(pull)
    squares = max(float(residual @ residual - pull @ pull), 0.0)
    error = 1.0 if sigma_known else np.sqrt(squares / max(degrees, 1))
    sides = rows @ basis
    along = sides @ to_optimum.T
    is_clear = along @ pull > CLEARLY * error * np.linalg.norm(along, axis=1)
    size = np.sum(rows**2, axis=1)
    is_of_one = np.max(rows**2, axis=1, initial=0.0) >= (1 - RANK) * size
    is_needed = np.sum((sides @ split.lost.T) ** 2, axis=1) > RANK * size
    return np.asarray(is_clear | is_of_one | is_needed)


def _linked(along: FloatArray, free: IntArray) -> tuple[tuple[int, ...], ...]:
    """Groups of the unknowns that are `free` whose rows of directions (n, r) are parallel."""
    related = np.abs(np.nan_to_num(correlation(along @ along.T))) > 1 - TIED
    return tuple(tuple(free[group].tolist()) for group in _groups(related))


def _of_logs(shifts: FloatArray, logarithmic: BoolArray) -> BoolArray:
    """(n,) which intervals are those of logarithms: not those with an active bound on one side."""
    return np.asarray(logarithmic & np.isclose(-shifts[0], shifts[1], rtol=EVEN))


def _along(rows: FloatArray) -> FloatArray:
    """(n, r) orthonormal directions that the rows (k, n) leave."""
    return null_space(rows / column_sizes(rows.T)[:, None]) if len(rows) else np.eye(rows.shape[1])


def _shortened(residual: FloatArray, jacobian: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Residuals and their derivative in as few rows as give the same sums of squares."""
    both = np.column_stack([jacobian, residual])
    short = np.asarray(np.linalg.qr(both, mode="r")) if len(both) > both.shape[1] else both
    return short[:, -1], short[:, :-1]


def shifted(x: FloatArray, shift: FloatArray, logarithmic: BoolArray) -> FloatArray:
    """x (n,) after a shift to first order, along logarithms of those sought in logarithms."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(logarithmic, x * np.exp(shift / x), x + shift)


def shift_to(x: FloatArray, target: FloatArray, logarithmic: BoolArray) -> FloatArray:
    """The shift (n,) by which `shifted` leads from x (n,) to another point (n,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(logarithmic, x * np.log(target / x), target - x)


def _quantile(confidence: float, degrees: FloatArray | float) -> FloatArray:
    """Quantile of two-sided intervals: Student's t, or normal for infinite degrees of freedom."""
    limit = 0.5 + confidence / 2
    student = special.stdtrit(np.where(np.asarray(degrees) > 0, degrees, np.nan), limit)
    return np.asarray(np.where(np.isinf(degrees), special.ndtri(limit), student))


def correlation(covariance: FloatArray) -> FloatArray:
    """(n, n) correlation matrix; NaN where an error is not defined."""
    with np.errstate(invalid="ignore"):
        error = np.sqrt(np.diag(covariance))
    error = np.where(np.isfinite(error) & (error > 0), error, np.nan)
    return np.asarray(covariance / np.outer(error, error))


def _matters(x: FloatArray, jacobian: FloatArray, spread: float, width: FloatArray) -> BoolArray:
    """(n,) which unknowns have an effect that is not rounding, by their values or by their range.

    The value alone is not enough: it may be near 0 by chance, or on a bound.
    """
    norm = np.linalg.norm(jacobian, axis=0)
    by_value = norm * np.maximum(np.abs(x), np.finfo(float).tiny) > NOTHING * spread
    range_ = np.where(np.isfinite(width), width, 0.0)
    return np.asarray(by_value | (x == 0) | (norm * range_ > SEEN * spread))


def _replaceable(jacobian: FloatArray, held: BoolArray, active: FloatArray | None) -> BoolArray:
    """(n,) unknowns on a bound whose change the free ones make up for: no bound decides there.

    None where constraints are active, which the free ones may not leave.
    """
    if active is not None and len(active):
        return np.zeros(len(held), dtype=bool)
    norm = np.linalg.norm(jacobian, axis=0)
    even = jacobian / np.where(norm > 0, norm, 1.0)
    replaceable, free = np.zeros(len(held), dtype=bool), even[:, ~held]
    for i in np.flatnonzero(held & (norm > 0)) if free.shape[1] else ():
        beyond = even[:, i] - free @ np.linalg.lstsq(free, even[:, i], rcond=RANK)[0]
        replaceable[i] = np.linalg.norm(beyond) <= RANK
    return replaceable


class _Linear(NamedTuple):
    """A linearised problem: |J d + r|^2 is least at d = 0 of all d that constraints allow.

    residual (m,) r;  jacobian (m, n) J
    equal, forbidden  (k, n) each: equal @ d = 0 and forbidden @ d <= 0
    """

    residual: FloatArray
    jacobian: FloatArray
    equal: FloatArray
    forbidden: FloatArray

    def reaches(self, those: BoolArray, beyond: FloatArray, rise: float) -> FloatArray:
        """(2, k) how far k unknowns move down and up until the objective has risen so much.

        beyond  (n,) of those on a bound -1 or 1, on which side it lies; 0 of others
        """
        ends = np.tile([-np.inf, np.inf], (int(those.sum()), 1))
        for end, i in zip(ends, np.flatnonzero(those), strict=True):
            with suppress(RuntimeError, ValueError):  # of `nnls` and `brentq`: nothing is excluded
                end[:] = self._with_bound(i, beyond)._reach(rise)
        return ends.T

    def _with_bound(self, i: np.intp, beyond: FloatArray) -> "_Linear":
        """Unknown i as the first one, with its bound, and those that are on none."""
        order = np.array([i, *(j for j in np.flatnonzero(beyond == 0) if j != i)])
        bound = np.zeros((int(beyond[i] != 0), len(order)))
        bound[:, 0] = beyond[i]
        forbidden = np.vstack([self.forbidden[:, order], bound])
        return _Linear(self.residual, self.jacobian[:, order], self.equal[:, order], forbidden)

    def _reach(self, rise: float) -> tuple[float, float]:
        """Reach of the first unknown; the others adapt as far as constraints allow.

        With J'J = R'R and w = R d, a step t along the unknown is answered by
        w = s + t R'^-1 e - K u, where K = R'^-1 forbidden' and multipliers u >= 0 make |w| least;
        s = K u of the optimum itself.
        """
        size = 1 / column_sizes(self.jacobian)
        basis = _along(self.equal * size)
        moved = self.jacobian * size @ basis
        if not (np.isfinite(rise) and np.isfinite(self.residual).all()):
            return np.nan, np.nan
        if not moved.shape[1]:
            return 0.0, 0.0
        r = np.linalg.qr(np.vstack([moved, RANK * np.eye(moved.shape[1])]), mode="r")
        sides = self.forbidden * size @ basis, [size[0] * basis[0]], [-self.residual @ moved]
        *limits, step, slope = solve_triangular(r, np.vstack(sides).T, trans="T").T
        k = np.column_stack(limits) / column_sizes(np.column_stack(limits))
        start = k @ nnls(k, slope)[0]

        def answer(t: float, step: FloatArray) -> FloatArray:
            goal = start + t * step
            return np.asarray(goal - k @ nnls(k, goal)[0])

        def above(t: float, step: FloatArray) -> float:
            w = answer(t, step)
            return float(w @ w - 2 * start @ w - rise)

        def furthest(step: FloatArray) -> float:
            length = float(np.linalg.norm(step))
            if not (length > 0 and rise > 0) or nnls(k, step)[1] <= RANK * length:
                return 0.0
            t = float(np.sqrt(rise)) / length
            while above(t, step) < 0:
                t *= 2
            t = brentq(above, 0.0, t, args=(step,), rtol=1e-12)
            return float(answer(t, step) @ step)

        return -furthest(-step), furthest(step)


def ellipse(
    covariance: FloatArray, confidence: float, degrees: int | None, points: int = 100
) -> FloatArray:
    """(points, 2) of d V^-1 d = chi2(confidence, 2), or 2 F(confidence, 2, degrees); closed.

    covariance  (2, 2);  degrees  None if sigma is known
    """
    level = float(special.chdtri(2, 1 - confidence))
    if degrees is not None:
        level = 2 * float(special.fdtri(2, degrees, confidence)) if degrees > 0 else np.nan
    angle = np.linspace(0.0, 2 * np.pi, points)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.sqrt(level) * circle @ root.T)


def root(jacobian: FloatArray, held: BoolArray, along: FloatArray | None = None) -> Root:
    """Of a derivative (m, n); held (n,) unknowns on a bound; along (n_free, r), in the sizes of the
    others, what active constraints leave."""
    n, free = jacobian.shape[1], np.flatnonzero(~held)
    size, basis = 1 / column_sizes(jacobian), np.eye(len(free)) if along is None else along
    split = directions(jacobian[:, free] * size[free] @ basis)
    known, lost = np.zeros((n, len(split.known))), np.zeros((n, len(split.lost)))
    known[free] = size[free, None] * basis @ (split.known.T / split.singular)
    lost[free] = size[free, None] * basis @ split.lost.T
    return Root(known, lost, size)


def influence(jacobian: FloatArray, held: BoolArray) -> FloatArray:
    """(n, m) W = (J'J)^-1 J', how errors move the estimate x: x - x* = W e.

    Rows of unknowns that are held, or undetermined, are 0.
    """
    of = root(jacobian, held)
    weight = of.root @ (jacobian @ of.root).T
    return np.asarray(np.where(of.is_lost[:, None], 0.0, weight))


def leverage(jacobian: FloatArray, held: BoolArray) -> FloatArray:
    """(m,) diagonal of J W, between 0 (the fit does not care) and 1 (it goes through the point)."""
    image = jacobian @ root(jacobian, held).root
    return np.asarray(np.minimum(np.sum(image**2, axis=1), 1.0))


TIED = 1e-12  # of 1: nearer to it, rounding is all that a correlation misses
TWINS = 0.99  # a correlation beyond it: the data hardly distinguish two unknowns


class Combination(NamedTuple):
    """A direction, and its standard error.

    components  (n,) of length 1: relative changes of the unknowns
    error       standard error along it, relative
    """

    components: FloatArray
    error: float


def combinations(x: FloatArray, covariance: FloatArray) -> list[Combination]:
    """Eigen-directions of the relative covariance V_ij / (x_i x_j), the poorest determined first.

    Along one with eigenvalue e the unknowns may change by sqrt(e) times its components, as
    fractions of themselves, for one standard error. Unknowns without an error, or with the value 0,
    take no part (their components are 0).
    """
    variance = np.diag(covariance)
    part = np.isfinite(variance) & (variance > 0) & (x != 0)
    if not part.any():
        return []
    size = np.abs(x[part])
    relative = covariance[np.ix_(part, part)] / np.outer(size, size)
    values, vectors = np.linalg.eigh((relative + relative.T) / 2)
    result = []
    for value, vector in zip(values[::-1], vectors.T[::-1], strict=True):
        components = np.zeros(len(x))
        components[part] = vector * np.sign(vector[np.argmax(np.abs(vector))])
        result.append(Combination(components, float(np.sqrt(max(value, 0.0)))))
    return result


def strongly_correlated(
    covariance: FloatArray, links: Sequence[Sequence[int]]
) -> list[tuple[list[int], str]]:
    """Groups of unknowns with correlations beyond 0.99, and the strongest one in each.

    With digits up to the first that is no nine: 0.998, 0.99993; 1 within rounding.

    links  groups of unknowns that constraints link: they are not named
    """
    related = np.abs(np.nan_to_num(correlation(covariance)))
    for link in links:
        related[np.ix_(link, link)] = 0.0
    groups = []
    for members in _groups(related > TWINS):
        missing = 1 - np.max(np.triu(related[np.ix_(members, members)], 1))
        digits = max(2, int(np.ceil(-np.log10(max(missing, TIED)))))
        groups.append((members, "1" if missing < TIED else f"{1 - missing:.{digits}f}"))
    return groups


def _groups(related: BoolArray) -> list[list[int]]:
    pairs = np.argwhere(np.triu(related, 1)).tolist()
    return sorted(sorted(group) for group in connected(pairs))
