"""Branch and bound over the nonlinear parameters.

What is proved. Let L be the `lower_bound` of a `BranchAndBoundResult`. For every theta and beta
that keep the bounds (and those on ratios and differences) of the `Separable`, the sum of squares,
of the numbers that it holds and in exact arithmetic, is at least L. Every box that was put aside
has a lower bound of L or more, every box that is still open has one too, and together they cover
all of the problem. `docs/projection.md` has the whole proof.

A second bound serves parameters that several columns share. The bound of `bound` lets each column
choose its own theta. Where columns share a parameter that costs a first order in the size of the
box, and boxes cluster around the optimum. Once the linear parameters are known to ranges m_k +-
h_k, the columns can be made to agree: with g_k(s) = u . phi_k(s) on the box, s in [-1, 1]^J,

    sum_k beta_k g_k(s)  <=  max over s of sum_k m_k g_k(s)  +  sum_k h_k max over s of |g_k(s)|

where the second term is small, a product of two small numbers, for the residual's direction u.

The ranges hold for points whose residual has at most the norm `cutoff`. For such a point, with
r = d - sum_k beta_k phi_k, any direction u with u . r >= low on the box and any vector w,

    | w . r - (w . u)(u . r) |  <=  | w - (w . u) u |  sqrt(cutoff^2 - low^2)

and w = a row of the pseudo-inverse of the columns at the box's middle makes of w . r a statement
about one linear parameter. What is bounded with these ranges is therefore at least the smaller of
the bound and the cutoff.
"""

import heapq
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.bound import (
    Bounded,
    BoundedColumn,
    Cells,
    ColumnCells,
    Hull,
    Open,
    Ranges,
    SearchBox,
    bound,
    minimum,
    root,
    subcells,
)
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.taylor import UNIT, pairs, peak
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.deadline import interruptible
from igpe.core.status import Status

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


SHAPE = 3.0  # weight of a change of direction beside
WIDTH = 0.3  # that of the mere width of an axis, so that none is forgotten
MOST_MOVE = 2.0  # distance of opposite directions
SMALLEST = 1e-300


def axis_to_halve(columns: ColumnCells, box: SearchBox, hull: Hull) -> int:
    """The nonlinear parameter along which columns change direction most.

    A change of length alone is absorbed by the linear parameters.
    """
    width = np.array([s.width for s in box.spans])
    shape = np.zeros(len(width))
    for part in hull.parts:
        if part.axes:
            own = list(part.axes)
            halves = columns.cells(box.key(columns.problem, part.column), 1)
            shape[own] = np.maximum(shape[own], _turns(halves, hull.usable, width[own]))
    return int(np.argmax(SHAPE * _share(shape) + WIDTH * _share(width)))


def _share(x: FloatArray) -> FloatArray:
    return x / max(float(x.sum()), SMALLEST)


def _turns(halves: Cells, usable: BoolArray, width: FloatArray) -> FloatArray:
    """(J,) largest changes of a column's direction from half to half of its axes, 2^J cells.

    What remainders may cause is taken off, and shared by the width of the axes.
    """
    n, vectors = len(width), halves.parts[:, 0] * usable
    length = np.maximum(np.linalg.norm(vectors, axis=1), SMALLEST)
    with np.errstate(over="ignore"):
        doubt = np.minimum(halves.errors / length, MOST_MOVE)
    grid, unsure = (vectors / length[:, None]).reshape(*[2] * n, -1), doubt.reshape([2] * n)
    turns = np.zeros(n)
    for j in range(n):
        sure = np.linalg.norm(np.diff(grid, axis=j), axis=-1) - unsure.sum(axis=j, keepdims=True)
        turns[j] = max(float(sure.max()), 0.0)
    return turns + float(doubt.max()) * _share(width)


FINEST = {0: 0, 1: 4, 2: 2, 3: 2}  # most halvings of a box for its cells, by number of axes
FINEST_OF_MANY = {0: 0, 1: 3, 2: 1, 3: 1}  # the same where each cell has
PLANE = 2  # axes; columns of more have many cells
MANY = 1000  # residuals or more
WORTH_COUPLING = 0.3  # of the cutoff: below it ranges are too wide for the second bound
BATCH = 16  # boxes whose enclosures are computed together
FAR = 10.0  # times the data's sum of squares: worth proving while no point is known
DEEPEST = 50  # halvings of one axis beyond which rounding rules
SAY_EVERY = 5.0  # s

log = logging.getLogger(__name__)


def proving_norm(goal: float) -> float:
    """The norm that proves a sum of squares."""
    return float(np.sqrt(max(goal, 0.0))) * (1 + 1e-13)


def square(norm: float) -> float:
    """The square of a lower bound on a norm, rounded down."""
    return float(max(norm, 0.0) ** 2 * (1 - 1e-14))


@dataclass(frozen=True)
class SearchLimits:
    """When to stop.

    gap         (objective - bound) / objective
    absolute    objective - bound, where the objective is nearly zero
    time_limit  s;  boxes: their number
    patience    s after which a lower bound that is still 0 ends the search
    """

    gap: float
    absolute: float
    time_limit: float
    boxes: int = 1_000_000
    patience: float = np.inf


class BranchAndBoundResult(NamedTuple):
    """How the search ended.

    lower_bound  proven, see the top of the file
    objective    the best that the trials found
    boxes        that were bounded;  left: that are still open
    """

    status: Status
    lower_bound: float
    objective: float
    boxes: int
    left: int


class ProjectedSearch:
    """One search; `run` it once.

    trial   theta -> objective of a point near it, or infinity: a local search that may improve on
            the objective known so far
    active  the columns that are not zero
    """

    def __init__(self, problem: Separable, trial: Callable[[FloatArray], float]) -> None:
        self.problem, self.columns, self.trial = problem, ColumnCells(problem), trial
        self.objective, self.put_aside, self.boxes = np.inf, np.inf, 0
        self._number = itertools.count()
        self.active = [*range(1, 1 + problem.n_linear)]
        if not all(b.columns[:, 0].is_zero() for b in problem.blocks):
            self.active.insert(0, 0)
        self._finest = max((self._halvings(k, 99) for k in self.active), default=0)
        axes = [a for k in self.active for a in problem.depends[k]]
        self._shared = len(axes) > len(set(axes))

    def run(self, objective: float, limits: SearchLimits) -> BranchAndBoundResult:
        """Search until the gap is closed or a limit is reached. Ctrl-C ends it with what is there.

        objective  of the best point known
        """
        self.objective = objective
        queue = [Open(0.0, next(self._number), root(self.problem))]
        status, said = Status.OPTIMAL_WITHIN_GAP, time.perf_counter()
        end, patient = said + limits.time_limit, said + limits.patience
        try:
            while queue:
                now = time.perf_counter()
                is_hopeless = now > patient and self._bound(queue) <= 0
                if now > end or is_hopeless or self.boxes >= limits.boxes:
                    status = Status.TIME_LIMIT if now > end else Status.ITERATION_LIMIT
                    break
                if now > said + SAY_EVERY:
                    said, lower = now, self._bound(queue)
                    gap = 100 * (1 - lower / self.objective) if self.objective > 0 else 0.0
                    log.info("gap %.3g %%, %d boxes bounded, %d open", gap, self.boxes, len(queue))
                self._advance(queue, self._goal(limits))
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        lower = self._bound(queue)
        if status is Status.OPTIMAL_WITHIN_GAP and lower < self._goal(limits):
            status = Status.ITERATION_LIMIT  # a box that cannot be divided any more was put aside
        return BranchAndBoundResult(status, lower, self.objective, self.boxes, len(queue))

    def _goal(self, limits: SearchLimits) -> float:
        """The lower bound that closes the gap."""
        if np.isinf(self.objective):  # no point is known yet
            return float(FAR * (self.problem.target @ self.problem.target))
        return self.objective - max(limits.gap * self.objective, limits.absolute)

    def _bound(self, queue: Sequence[Open]) -> float:
        open_bound = queue[0].lower_bound if queue else np.inf
        return float(min(self.put_aside, open_bound, self.objective))

    def _advance(self, queue: list[Open], goal: float) -> None:
        """Bound the most promising boxes, and put aside or divide each."""
        waiting: list[Open] = []
        try:
            with interruptible():
                self._handle(queue, waiting, goal)
        except KeyboardInterrupt:
            for item in waiting:
                heapq.heappush(queue, item)
            raise

    def _handle(self, queue: list[Open], waiting: list[Open], goal: float) -> None:
        """One batch. Whatever happens, each box is in the queue, waiting, or put aside."""
        while queue and len(waiting) < BATCH:
            if queue[0].lower_bound >= goal:  # it needs no more
                self.put_aside = min(self.put_aside, queue[0].lower_bound)
            else:
                waiting.append(queue[0])
            heapq.heappop(queue)
        batch = list(waiting)
        self.boxes += len(batch)
        results = self.bounded([item.box for item in batch], proving_norm(goal))
        for item, (hull, bounded) in zip(batch, results, strict=True):
            for child in self._children(item, hull, bounded, goal):
                if child.box.feasible(self.problem):
                    heapq.heappush(queue, child)
            waiting.remove(item)
        left = [
            (bounded.residual - bounded.slack, item.box)
            for item, (_, bounded) in zip(batch, results, strict=True)
            if square(bounded.lower) < goal
        ]
        if left:  # a local search from the middle of the most promising box
            low, high = min(left, key=lambda pair: pair[0])[1].ends(self.problem)
            self.objective = min(self.objective, self.trial((low + high) / 2))

    def _coupled(self, box: SearchBox, bounded: Bounded, goal: float) -> tuple[SearchBox, float]:
        """The box with narrower ranges of the linear parameters, and the bound they give.

        Both are about points below the goal: nothing above it is claimed from here on.
        """
        self.put_aside = min(self.put_aside, goal)
        columns = joint(self.columns, box, self.active)
        fixed = [1.0] * (self.active[0] == 0)
        ranges = np.array([*fixed, *box.lower]), np.array([*fixed, *box.upper])
        assert bounded.direction is not None
        cutoff = proving_norm(goal)
        result = narrowed(columns, ranges, bounded.direction, bounded.lower, cutoff)
        if result is None:
            return box, np.inf
        lower, upper = (tuple(x[len(fixed) :].tolist()) for x in result)
        return replace(box, lower=lower, upper=upper), coupled(columns, result)

    def _children(self, item: Open, hull: Hull, bounded: Bounded, goal: float) -> list[Open]:
        """By the sign of a linear parameter, else halves of an axis; none if it is put aside."""
        box, lower = item.box, max(item.lower_bound, square(bounded.lower))
        near = bounded.lower > WORTH_COUPLING * proving_norm(goal)
        if lower < goal and self._shared and near:
            box, norm = self._coupled(box, bounded, goal)
            lower = max(lower, min(square(norm), goal))
        boxes: tuple[SearchBox, ...] = ()
        signs = (k for k in range(self.problem.n_linear) if box.lower[k] < 0 < box.upper[k])
        if lower < goal and (k := next(signs, None)) is not None:
            boxes = box.signs(k)
        elif lower < goal and self.problem.axes:
            axis = axis_to_halve(self.columns, box, hull)
            if box.spans[axis].level < DEEPEST:
                boxes = box.halves(axis, max(1, bounded.halvings - 1))
        if not boxes:
            self.put_aside = min(self.put_aside, lower)
        return [Open(lower, next(self._number), child) for child in boxes]

    def bounded(self, boxes: Sequence[SearchBox], cutoff: float) -> list[tuple[Hull, Bounded]]:
        """Bound each box, with cells as fine as are needed; cutoff: a norm that is enough."""
        done: dict[int, tuple[Hull, Bounded]] = {}
        waiting = set(range(len(boxes)))
        coarsest = min((b.halvings for b in boxes), default=1)
        for halvings in range(coarsest, max(self._finest, 1) + 1):
            now = [i for i in sorted(waiting) if min(boxes[i].halvings, self._finest) <= halvings]
            self.prepare([boxes[i] for i in now], halvings)
            for i in now:
                hull, ranges = self.hull(boxes[i], halvings)
                result = bound(self.problem.target, hull, ranges, cutoff)
                done[i] = hull, result._replace(halvings=halvings)
                if result.lower >= cutoff or result.residual < cutoff:
                    waiting.discard(i)  # finer cells would not change that
        return [done[i] for i in range(len(boxes))]

    def prepare(self, boxes: Sequence[SearchBox], halvings: int) -> None:
        """Enclose what bounding and dividing the boxes needs, together."""
        self.columns.prepare(
            key
            for box in boxes
            for k in self.active
            for m in {0, self._halvings(k, 1), self._halvings(k, halvings)}
            for key in subcells(box.key(self.problem, k), m)
        )

    def _halvings(self, k: int, halvings: int) -> int:
        own = self.problem.depends[k]
        if len(own) > PLANE and any(self.problem.axes[a].log_affine for a in own):
            return min(halvings, 1)  # in logarithms enclosures are good enough for that many cells
        finest = FINEST if len(self.problem.target) < MANY else FINEST_OF_MANY
        return min(halvings, finest.get(len(own), 1))

    def hull(self, box: SearchBox, halvings: int) -> tuple[Hull, Ranges]:
        """The columns on the box, those of parameters of any sign twice; and their factors."""
        parts: list[BoundedColumn] = []
        lower, upper, index = [], [], {}
        for k in self.active:
            own, m = self.problem.depends[k], self._halvings(k, halvings)
            cells = self.columns.cells(box.key(self.problem, k), m)
            low, high = (1.0, 1.0) if k == 0 else (box.lower[k - 1], box.upper[k - 1])
            for sign, a, b in ((1.0, low, high), (-1.0, -high, -low)):
                if b > 0:
                    index[k] = len(parts)
                    parts.append(BoundedColumn(k, cells, own, sign))
                    lower.append(max(a, 0.0))
                    upper.append(b)
        ratios = tuple(
            (index[r.first + 1], index[r.second + 1], r.low, r.high)
            for r in self.problem.ratios
            if r.first + 1 in index and r.second + 1 in index
        )
        ranges = Ranges(np.array(lower), np.array(upper), ratios)
        return Hull(parts, len(self.problem.target)), ranges
