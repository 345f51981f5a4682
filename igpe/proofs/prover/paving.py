"""Pavings of the plane of two unknowns: boxes proved in a region, proved out, and its edge.

A likelihood region reaches along each unknown as far as points on its edge. The point with the
largest (least) value of one unknown, the sum of squares being at most a level, comes from residuals
that are linearised again and again (Venzon & Moolgavkar, Appl. Statist. 37 (1988) 87, with
Gauss-Newton's curvature). No proof hangs on it: the search of the tree meets what it misses, and
the points are proved to lie in the region afterwards.
"""

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from igpe.core.arguments import is_count, require
from igpe.core.arrays import BoolArray, FloatArray, column_sizes
from igpe.core.deadline import require_going_on, session
from igpe.core.errors import ProblemError
from igpe.core.markup import Rows, Shown, Suggesting
from igpe.dynamics.shooting.reweighting import held_weights
from igpe.problem.problem import Problem, takes_problem
from igpe.proofs.compiled import require_numba
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.posed import Dynamic, posed
from igpe.proofs.prover.search import proved_objective, split
from igpe.results.certificates import CertifiedRegion
from igpe.results.plots.axes import Plot, plot_paving

ORDER, STEPS = 12, 20_000  # in time, and steps at most, of an integration
APART = 1e-7  # of an unknown: radius of the box that stands for a point
NEAR_ZERO = 1e-3  # of an unknown's range: smaller values are as large as that
FARTHEST = 2.0  # a step, relative to the unknown
MOST_STEPS, MOST_HALVINGS = 30, 6
RANK = 1e-9  # smaller singular values, relative to the largest, count as large as that
FAR_ABOVE = 3.0  # rises that a step may lead above the level


@dataclass(frozen=True)
class RegionPoint:
    """Parameters x (n,), residuals (m,) and their derivative (m, n) there, in plain doubles."""

    x: FloatArray
    residual: FloatArray
    jacobian: FloatArray

    @property
    def cost(self) -> float:
        """Sum of squares."""
        return float(self.residual @ self.residual)


@dataclass
class Extents:
    """Points on the edge of the region of a problem.

    level   that the sum of squares reaches there;  rise: of it from the optimum
    digits  how near a point must be to the edge, as a share of the region's width
    """

    dynamic: Dynamic
    level: float
    rise: float
    digits: float
    _enclosure: BoxEnclosure = field(init=False)

    def __post_init__(self) -> None:
        self._enclosure = BoxEnclosure(self.dynamic, 1, ORDER, tolerance=0.0, directions=1)
        lower, upper = self.dynamic.lower, self.dynamic.upper
        self.range = np.where(upper > lower, upper - lower, 1.0)

    def at(self, x: FloatArray) -> RegionPoint | None:
        """Residuals and derivative at a point; None if the model cannot be integrated there."""
        require_going_on()
        given, n = self.dynamic, len(x)
        size = np.maximum(np.abs(x), NEAR_ZERO * self.range)
        low, high = x - APART * size, x + APART * size
        low, high = np.maximum(low, given.lower), np.minimum(high, given.upper)
        found = self._enclosure.examine(low, high, np.inf, with_tube=False, most=STEPS)
        radius = 0.5 * (high - low)
        rows = self._enclosure.rows.c
        jacobian = rows[:, 1 : 1 + n] / np.where(radius > 0, radius, 1.0)
        known = found.rows == self._enclosure.size
        if not (known and np.isfinite(rows[:, 0]).all() and np.isfinite(jacobian).all()):
            return None
        shift = x - 0.5 * (low + high)
        return RegionPoint(x, rows[:, 0] + jacobian @ shift, jacobian)

    def optimum(self, start: RegionPoint) -> RegionPoint:
        """The least sum of squares near a point, by Gauss-Newton with halved steps."""
        point = start
        for _ in range(MOST_STEPS):
            step = self._step(point, None, 1.0)
            gain = point.cost - float(np.sum((point.residual + point.jacobian @ step) ** 2))
            trial = self._tried(point, step, point.cost) if gain > 1e-4 * self.rise else None
            if trial is None or not trial.cost < point.cost:
                break
            point = trial
        return point

    def edge(self, start: RegionPoint, axis: int, sign: float, width: float) -> list[RegionPoint]:
        """Points of the region that lie further and further along an axis from the start.

        width  of the region along the axis, where it is known; else 0
        """
        point, inside = start, [start] if start.cost <= self.level else []
        allowed = self.level + FAR_ABOVE * self.rise
        for _ in range(MOST_STEPS):
            step = self._step(point, axis, sign)
            size = abs(point.x[axis] - start.x[axis]) + width
            ahead = sign * step[axis]
            if point.cost <= self.level and ahead <= self.digits * size:
                break
            trial = self._tried(point, step, max(allowed, point.cost))
            if trial is None:
                break
            still = np.abs(trial.x - point.x).max(initial=0.0) <= 0
            point = trial
            best = sign * inside[-1].x[axis] if inside else -np.inf
            if point.cost <= self.level and sign * point.x[axis] > best:
                inside.append(point)
            if still:
                break
        return inside

    def _tried(self, point: RegionPoint, step: FloatArray, most: float) -> RegionPoint | None:
        """The point after a step, halved until the sum of squares is at most `most`."""
        limit = FARTHEST * np.maximum(np.abs(point.x), NEAR_ZERO * self.range)
        share = np.max(np.abs(step) / limit, initial=1.0)
        for k in range(MOST_HALVINGS):
            x = np.clip(point.x + step / share * 0.5**k, self.dynamic.lower, self.dynamic.upper)
            trial = self.at(x)
            if trial is not None and trial.cost <= most:
                return trial
        return None

    def _step(self, point: RegionPoint, axis: int | None, sign: float) -> FloatArray:
        """To the edge of the linearised region along an axis; to its optimum without one.

        What would leave the bounds is held there, and the rest follows.
        """
        n = len(point.x)
        low, high = self.dynamic.lower - point.x, self.dynamic.upper - point.x
        step, free = np.zeros(n), high > low
        for _ in range(n + 1):
            if not free.any():
                break
            step[free] = self._free_step(point, step, free, axis, sign)
            beyond = free & ((step < low) | (step > high))
            if not beyond.any():
                break
            if axis is not None and beyond[axis]:  # the others may come to other places then
                beyond = np.arange(n) == axis
            step[beyond] = np.clip(step, low, high)[beyond]
            free = free & ~beyond
        return np.clip(step, low, high)

    def _free_step(
        self, point: RegionPoint, held: FloatArray, free: BoolArray, axis: int | None, sign: float
    ) -> FloatArray:
        r = point.residual + point.jacobian[:, ~free] @ held[~free]
        j = point.jacobian[:, free]
        scale = column_sizes(j)
        short = max(j.shape[1] - len(j), 0)  # rows of zeros: no direction is left out
        j, r = np.pad(j / scale, ((0, short), (0, 0))), np.pad(r, (0, short))
        u, s, v = np.linalg.svd(j, full_matrices=False)
        s = np.maximum(s, RANK * s.max(initial=1e-300))
        along = u.T @ r
        z = -(v.T / s) @ along
        if axis is not None and free[axis]:
            room = self.level - float(r @ r - along @ along)
            k = int(np.count_nonzero(free[:axis]))
            w = (v.T / s**2) @ v[:, k]
            if room > 0 and w[k] > 0:
                z = z + sign * np.sqrt(room / w[k]) * w
        return np.asarray(z / scale)


PLANE, DEGREE = 2, 3
ROOM = 0.15  # of the regions' width, around them
POINTS = 200  # of an ellipse
ALIKE = 1e-6  # relative, of the same sum of squares on two machines
ROUNDING = 1e-11  # relative, of sums over some thousand residuals


@dataclass(frozen=True, repr=False)
class Paving(Shown, Suggesting):
    """The plane of two unknowns around a certified region, divided into boxes.

    names         names of the two unknowns
    level         confidence level
    lower, upper  (k, 2) lower and upper corners of the boxes
    kinds         "in": the box provably lies inside the region; "out": it provably lies outside;
                  "edge": neither is proved
    best          (r, 2) the best parameter values in each separate region
    ellipses      r arrays (m, 2): points on the edges of the linearised confidence regions
    """

    names: tuple[str, str]
    level: float
    lower: FloatArray = field(repr=False)
    upper: FloatArray = field(repr=False)
    kinds: tuple[str, ...] = field(repr=False)
    best: FloatArray
    ellipses: tuple[FloatArray, ...] = field(repr=False)

    def area(self, kind: str) -> float:
        """Total area of the boxes of one kind."""
        of = np.array([k == kind for k in self.kinds])
        return float(np.prod(self.upper - self.lower, axis=1)[of].sum())

    def _shown(self) -> tuple[list[Rows], list[str]]:
        least, most = self.area("in"), self.area("in") + self.area("edge")
        words = (
            f"The {100 * self.level:g} % likelihood region of {self.names[0]} and {self.names[1]} "
            f"has an area between {least:.4g} and {most:.4g} (proved, {len(self.kinds)} boxes)."
        )
        return [], [words]

    def plot(self, axes: Any = None, profiles: Any = None) -> Plot:
        """Plot the boxes, the ellipses and the best parameters.

        profiles  a result of `igpe.profile`, whose paths are plotted as well; None: no paths
        """
        return plot_paving(self, axes, profiles)


@takes_problem
@session()
def pave(problem: Problem, region: CertifiedRegion, boxes: int = 2000) -> Paving:
    """Divide the plane of two unknowns into boxes inside and outside a certified region.

    A box is proved to lie inside if the sum of squares does not exceed the region's `inner_level`
    anywhere in the box. A box is proved to lie outside if the sum of squares exceeds the region's
    `cut` everywhere in the box (set inversion, Jaulin & Walter, Automatica 29 (1993) 1053).

    problem  the problem for which the region was certified
    region   a finished result of `igpe.certify_region`
    boxes    maximum number of boxes to examine; boxes outside all parts of the region do not count
    raises   ProblemError if there are not exactly two unknowns, or if the region is not finished
    """
    require(is_count(boxes) and boxes > 0, "pave", "boxes", boxes, "a positive whole number")
    if len(region.unknowns) != PLANE or region.unknowns != problem.box.names:
        raise ProblemError(
            "A paving needs exactly two unknowns. The unknowns of the region are "
            f"{', '.join(region.unknowns)}; those of the problem are "
            f"{', '.join(problem.box.names)}. Fix the others: problem.fixing({{...}})."
        )
    bounds = tuple(problem.box.lower.tolist()), tuple(problem.box.upper.tolist())
    if bounds != (region.lower, region.upper):
        raise ProblemError(
            f"The region was certified with the lower bounds {region.lower} and the upper bounds "
            f"{region.upper}, but the problem has the lower bounds {bounds[0]} and the upper "
            f"bounds {bounds[1]}. Give the problem that was certified."
        )
    if not region.closed or not region.regions:
        raise ProblemError(
            "The proof of the region is not finished, so igpe does not know which boxes around "
            "the region are excluded. Run igpe.certify_region with a larger time_limit."
        )
    require_numba()
    values = dict(zip(region.unknowns, region.parameters, strict=True))
    if region.sigma:
        problem = problem.weighted(list(map(np.array, region.sigma)), at=region.sigma_at)
    else:
        problem = held_weights(problem, region if region.relative_sigma else values)
    dynamic = posed(problem)
    _require_same(region, proved_objective(dynamic, np.array(region.parameters)))
    parts = [(np.array(r.lower), np.array(r.upper)) for r in region.regions]
    low, high = np.min([a for a, _ in parts], axis=0), np.max([b for _, b in parts], axis=0)
    room = ROOM * (high - low)
    window = np.maximum(low - room, dynamic.lower), np.minimum(high + room, dynamic.upper)
    enclosure = BoxEnclosure(dynamic, DEGREE)
    inner = region.inner_level
    todo: list[tuple[float, int, FloatArray, FloatArray]] = [(-1.0, 0, *window)]
    done: list[tuple[FloatArray, FloatArray, str]] = []
    count, order = 0, itertools.count(1)
    while todo and count < boxes:
        require_going_on()
        _, _, a, b = heapq.heappop(todo)
        kind, halves = "out", None  # as the region's certificate proves
        if any((a <= high).all() and (low <= b).all() for low, high in parts):
            kind, count = _kind(enclosure, a, b, (inner, region.cut)), count + 1
        if kind == "edge":
            halves = split(a, b, int(np.argmax((b - a) / (window[1] - window[0]))))
        if halves is None:
            done.append((a, b, kind))
            continue
        for half in halves:
            size = float(np.prod((half[1] - half[0]) / (window[1] - window[0])))
            heapq.heappush(todo, (-size, next(order), *half))
    done += [(a, b, "edge") for _, _, a, b in todo]
    extents = Extents(dynamic, region.cut, region.rise, region.precision)
    best = np.array([r.parameters for r in region.regions])
    return Paving(
        (region.unknowns[0], region.unknowns[1]),
        region.level,
        np.array([a for a, _, _ in done]),
        np.array([b for _, b, _ in done]),
        tuple(kind for _, _, kind in done),
        best,
        tuple(_ellipse(extents, x) for x in best),
    )


def _require_same(region: CertifiedRegion, objective: float) -> None:
    """Refuse other data, or another model, by the sum of squares at the best parameters."""
    if not abs(objective - region.objective) <= ALIKE * region.objective:
        raise ProblemError(
            "For this problem, the sum of squares at the region's best parameter values is "
            f"{objective:.9g}; the region was certified with {region.objective:.9g}. Give the "
            "problem that was certified."
        )


def _kind(
    enclosure: BoxEnclosure, lower: FloatArray, upper: FloatArray, levels: tuple[float, float]
) -> str:
    inner, cut = levels
    bounds = enclosure.examine(lower, upper, cut, most=STEPS)
    if bounds.is_empty or bounds.bound > cut:
        return "out"
    bounds = enclosure.examine(lower, upper, np.inf, with_tube=False, most=STEPS)
    if bounds.rows < enclosure.size:
        return "edge"
    return "in" if _at_most(enclosure, len(lower)) <= inner else "edge"


def _at_most(enclosure: BoxEnclosure, n: int) -> float:
    """Upper bound on the sum of squares over the box that was enclosed last.

    With residuals c + G d + e, |d_j| <= 1, it is |c|^2 + 2 c'G d + d'G'G d + terms in e; sums over
    the residuals come before absolute values.
    """
    c = enclosure.rows.c
    constant, linear = c[:, 0], c[:, 1 : 1 + n]
    error = np.abs(c[:, 1 + n :]).sum(axis=1) + enclosure.rows.error
    size = np.abs(constant) + np.abs(linear).sum(axis=1) + error
    exact = constant @ constant + 2 * np.abs(constant @ linear).sum()
    exact += np.abs(linear.T @ linear).sum() + 2 * size @ error
    return float(exact + ROUNDING * size @ size)


def _ellipse(extents: Extents, x: FloatArray) -> FloatArray:
    """Of the linearised residuals at one region's best parameters; empty if it has none."""
    at = extents.at(x)
    if at is None or at.cost >= extents.level or np.linalg.matrix_rank(at.jacobian) < len(x):
        return np.zeros((0, len(x)))
    angle = np.linspace(0.0, 2 * np.pi, POINTS)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    r = np.linalg.qr(at.jacobian, mode="r")
    return np.asarray(x + np.sqrt(extents.level - at.cost) * np.linalg.solve(r, circle).T)
