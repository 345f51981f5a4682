"""A second bound, for parameters that several columns share.

The bound of `bound` lets each column choose its own theta. Where columns share a parameter that
costs a first order in the size of the box, and boxes cluster around the optimum. Once the linear
parameters are known to ranges m_k +- h_k, the columns can be made to agree: with
g_k(s) = u . phi_k(s) on the box, s in [-1, 1]^J,

    sum_k beta_k g_k(s)  <=  max over s of sum_k m_k g_k(s)  +  sum_k h_k max over s of |g_k(s)|

where the second term is small, a product of two small numbers, for the residual's direction u.

The ranges hold for points whose residual has at most the norm `cutoff`. For such a point, with
r = d - sum_k beta_k phi_k, any direction u with u . r >= low on the box and any vector w,

    | w . r - (w . u)(u . r) |  <=  | w - (w . u) u |  sqrt(cutoff^2 - low^2)

and w = a row of the pseudo-inverse of the columns at the box's middle makes of w . r a statement
about one linear parameter. What is bounded with these ranges is therefore at least the smaller of
the bound and the cutoff.
"""

from dataclasses import dataclass

import numpy as np

from igpe.algebraic.bounds.bound import minimum
from igpe.algebraic.bounds.columns import ColumnCells, SearchBox
from igpe.algebraic.bounds.taylor.taylor import UNIT, pairs, peak
from igpe.core.arrays import BoolArray, FloatArray

PASSES = 3  # each narrows the ranges with those of the pass before
ROOM = 1e-9  # for the rounding of a range, relative to the numbers it is made of
RIDGE = 1e-10

Factors = tuple[FloatArray, FloatArray]
"""Lower and upper ends (n,) of the factors of a joint's columns."""


@dataclass(frozen=True)
class Joint:
    """All columns on a box as polynomials of the same offsets s, in rows known of all.

    target  (r,);  usable: (r,) the rows known of all
    middle  (n, r);  slope: (n, J, r);  curvature: (n, J(J+1)/2, r) in the order of `pairs(J)`
    error   (n,) norm of what they leave out
    """

    target: FloatArray
    usable: BoolArray
    middle: FloatArray
    slope: FloatArray
    curvature: FloatArray
    error: FloatArray

    def spread(self, u: FloatArray) -> FloatArray:
        """(n,) upper bounds on |u . (column_k - middle_k)| over the box."""
        polynomial = np.abs(self.slope @ u).sum(axis=1) + np.abs(self.curvature @ u).sum(axis=1)
        return np.asarray(polynomial + self.error * float(np.sqrt(u @ u)))

    def extent(self, factor: FloatArray, u: FloatArray) -> float:
        """Upper bound on u . sum_k factor_k column_k over the box, |u| <= 1, remainders apart."""
        linear = factor @ (self.slope @ u)
        quadratic = factor @ (self.curvature @ u)
        total = float(factor @ (self.middle @ u))
        for q, (i, j) in enumerate(pairs(self.slope.shape[1])):
            total += float(peak(linear[i], quadratic[q])) if i == j else abs(quadratic[q])
        return total


def joint(columns: ColumnCells, box: SearchBox, active: list[int]) -> Joint:
    """The active columns on the box."""
    n, target = len(box.spans), columns.problem.target
    cells = [columns.cells(box.key(columns.problem, k), 0) for k in active]
    usable = np.logical_and.reduce([c.usable for c in cells])
    position = {pair: q for q, pair in enumerate(pairs(n))}
    middle = np.zeros((len(active), len(target)))
    slope = np.zeros((len(active), n, len(target)))
    curvature = np.zeros((len(active), len(position), len(target)))
    for i, (k, cell) in enumerate(zip(active, cells, strict=True)):
        own, parts = columns.problem.depends[k], cell.parts[0] * usable
        middle[i], slope[i, list(own)] = parts[0], parts[1 : 1 + len(own)]
        for q, (a, b) in enumerate(pairs(len(own)), start=1 + len(own)):
            curvature[i, position[own[a], own[b]]] = parts[q]
    errors = np.concatenate([c.errors for c in cells])
    return Joint(target * usable, usable, middle, slope, curvature, errors)


def _middle_and_half(ranges: Factors) -> tuple[FloatArray, FloatArray]:
    """Half widths outward."""
    lower, upper = ranges
    middle = (lower + upper) / 2
    return middle, np.maximum(upper - middle, middle - lower) * (1 + 4 * UNIT)


def narrowed(j: Joint, ranges: Factors, u: FloatArray, low: float, cutoff: float) -> Factors | None:
    """Ranges of points in the box with a residual of at most the cutoff; None if there are none.

    u, low  u . residual >= low for all such points, |u| <= 1
    """
    if not np.isfinite(ranges).all():
        return ranges
    try:
        rows = np.linalg.pinv(j.middle.T, rcond=1e-8) * j.usable
    except np.linalg.LinAlgError:
        return ranges
    length = float(np.sqrt(u @ u))
    aside = np.sqrt(max(cutoff**2 - low**2, 0.0)) * (1 + 1e-12)
    lower, upper = ranges[0].copy(), ranges[1].copy()
    for _ in range(PASSES):
        for k, w in enumerate(rows):
            if lower[k] == upper[k]:
                continue
            along = float(w @ u) / length**2
            rest = w - along * u
            other = np.sqrt(rest @ rest) * aside
            ends = sorted((along * low, along * cutoff))
            result = _solved(j, w, k, (lower, upper), (ends[0] - other, ends[1] + other))
            lower[k], upper[k] = max(lower[k], result[0]), min(upper[k], result[1])
            if lower[k] > upper[k]:
                return None
    return lower, upper


def _solved(
    j: Joint,
    w: FloatArray,
    k: int,
    ranges: tuple[FloatArray, FloatArray],
    residual: tuple[float, float],
) -> tuple[float, float]:
    """Range of beta_k in  w . d - sum_i beta_i w . phi_i = w . r, all else in ranges."""
    middle, spread = j.middle @ w, j.spread(w)
    products = np.array([
        [a * b for a in (middle[i] - spread[i], middle[i] + spread[i]) for b in (lo, hi)]
        for i, (lo, hi) in enumerate(zip(*ranges, strict=True))
    ])
    least, most = products.min(axis=1), products.max(axis=1)
    least[k] = most[k] = 0.0
    d = float(w @ j.target)
    top = (d - residual[1] - most.sum(), d - residual[0] - least.sum())
    size = abs(d) + np.abs(products).max(axis=1).sum() + max(map(abs, residual))
    length = float(np.sqrt(w @ w))
    room = ROOM * (size + length * float(np.sqrt(j.target @ j.target)))
    a, b = middle[k] - spread[k], middle[k] + spread[k]
    if a <= 0:
        return -np.inf, np.inf
    low, high = top[0] - room, top[1] + room
    return (low / b if low > 0 else low / a), (high / a if high > 0 else high / b)


def coupled(j: Joint, ranges: Factors) -> float:
    """Lower bound on the norm of the residual over the box, with factors in their ranges."""
    if not np.isfinite(ranges).all():
        return 0.0
    middle, half = _middle_and_half(ranges)
    residual = _relaxed(j, middle, half)
    norm = float(np.sqrt(residual @ residual))
    if norm == 0.0:
        return 0.0
    u = residual / (norm * (1 + 4 * UNIT * len(residual)))
    largest = np.abs(j.middle @ u) + j.spread(u)
    most = j.extent(middle, u) + float(half @ largest) + float(np.abs(middle) @ j.error)
    sizes = np.sqrt((j.middle**2).sum(axis=1)) + np.sqrt((j.slope**2).sum(axis=(1, 2)))
    size = float(np.sqrt(j.target @ j.target)) + float((np.abs(middle) + half) @ sizes)
    return max(float(u @ j.target) - most - 1e-14 * len(residual) * size, 0.0)


def _relaxed(j: Joint, middle: FloatArray, half: FloatArray) -> FloatArray:
    """Residual of the linear problem in factors and offsets: its direction is a good one."""
    matrix = np.vstack([j.middle * half[:, None], np.tensordot(middle, j.slope, axes=1)])
    size = np.sqrt((matrix**2).sum(axis=1))
    size = np.maximum(size, 1e-9 * np.sqrt(j.target @ j.target) + 1e-300)
    unit = matrix / size[:, None]
    d = j.target - middle @ j.middle
    square = unit @ unit.T + RIDGE * np.eye(len(unit))
    x = minimum(square, -(unit @ d), np.zeros((0, len(unit))), -size, size)
    return d if x is None else np.asarray(d - x @ unit)
