"""Branch and bound over the nonlinear parameters.

What is proved. Let L be the `lower_bound` of a `BranchAndBoundResult`. For every theta and beta
that keep the bounds (and those on ratios and differences) of the `Separable`, the sum of squares,
of the numbers that it holds and in exact arithmetic, is at least L. Every box that was put aside
has a lower bound of L or more, every box that is still open has one too, and together they cover
all of the problem.
`docs/projection.md` has the whole proof.

Which parameter of a box to halve.

Two things keep the relaxation of a box below its true minimum: a column takes several shapes at
once, or shapes that are not its own (loss); and while that says nothing because no bound is
positive yet, it is the columns that change direction across the box that will matter (shape).
A change of length alone is absorbed by the linear parameters.

Bounds of boxes whose columns are enclosed on cells as fine as are needed.
"""

import heapq
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.bound import Bounded, BoundedColumn, Hull, Ranges, bound
from igpe.algebraic.bounds.columns import (
    Cell,
    ColumnCells,
    Open,
    SearchBox,
    cell_places,
    root,
    subcells,
)
from igpe.algebraic.bounds.coupling import Factors, coupled, joint, narrowed
from igpe.algebraic.bounds.neighbourhood import Gap, Surroundings
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.taylor.taylor import pairs
from igpe.core.arrays import FloatArray
from igpe.core.deadline import interruptible
from igpe.core.status import Status

SHAPE = 3.0  # weight of shape beside loss
WIDTH = 0.3  # weight of the mere width of an axis, so that none is forgotten
MOST_ERROR = 10.0  # times a column's length: beyond it remainders say nothing more
MOST_MOVE = 2.0  # distance of opposite directions
SMALLEST = 1e-300


def axis_to_halve(columns: ColumnCells, box: SearchBox, hull: Hull, result: Bounded) -> int:
    """The nonlinear parameter whose halving promises most."""
    n = len(box.spans)
    loss, shape = np.zeros(n), np.zeros(n)
    means: list[list[_Mean]] = [[] for _ in range(n)]
    for k, part in enumerate(hull.parts):
        if not part.axes:
            continue
        own = list(part.axes)
        turns, slopes = _change(columns, box, hull, part)
        np.maximum.at(shape, own, turns)
        course = _course(result, k, len(part.axes))
        if len(course.weights):
            cell = columns.cell(box.key(columns.problem, part.column))
            lost, mean = _loss(cell, slopes, course)
            np.add.at(loss, own, lost)
            for axis, one in zip(own, mean, strict=True):
                means[axis].append(one)
    loss += [_disagreement(seen) for seen in means]
    width = np.array([s.width for s in box.spans])
    score = SHAPE * _share(shape) + WIDTH * _share(width)
    return int(np.argmax(score + _share(loss) if result.lower > 0 else score))


class _Progress(NamedTuple):
    """Weights (n,) and places (n, J) of a column's atoms in the relaxation's solution."""

    weights: FloatArray
    places: FloatArray


class _Mean(NamedTuple):
    """Where a column is on one axis, and how much it changes along it."""

    weight: float
    place: float


def _share(x: FloatArray) -> FloatArray:
    return x / max(float(x.sum()), SMALLEST)


def _course(result: Bounded, k: int, n_axes: int) -> _Progress:
    owners = result.atoms.owners[: len(result.weights)]
    mine = np.flatnonzero((owners == k) & (result.weights > 0))
    return _Progress(result.weights[mine], result.atoms.places[mine, :n_axes])


def _change(
    columns: ColumnCells, box: SearchBox, hull: Hull, part: BoundedColumn
) -> tuple[FloatArray, FloatArray]:
    """(J,) how a column changes from half to half of its axes: in direction, and in all."""
    n = len(part.axes)
    cells = columns.cells(box.key(columns.problem, part.column), 1)
    halves = cells.parts[:, 0] * hull.usable
    length = np.maximum(np.linalg.norm(halves, axis=1), SMALLEST)
    with np.errstate(over="ignore"):
        doubt = cells.errors / length  # a remainder may look like a move
    turns = _moves(halves / length[:, None], doubt, n)
    width = np.array([box.spans[a].width for a in part.axes])
    turns += min(float(doubt.max()), MOST_MOVE) * _share(width)
    return turns, _moves(halves, np.zeros(len(halves)), n)


def _moves(halves: FloatArray, doubt: FloatArray, n: int) -> FloatArray:
    """(n,) largest distance of neighbours on a 2 x 2 x .. grid, less what is doubtful."""
    grid, unsure = halves.reshape(*([2] * n), -1), doubt.reshape([2] * n)
    result = np.zeros(n)
    for j in range(n):
        move = np.take(grid, 1, axis=j) - np.take(grid, 0, axis=j)
        sure = np.linalg.norm(move, axis=-1) - unsure.sum(axis=j)
        result[j] = max(float(sure.max()), 0.0)
    return result


def _loss(cell: Cell, slopes: FloatArray, course: _Progress) -> tuple[FloatArray, list[_Mean]]:
    """(J,) how far a column's course is from one shape of its own, and its mean place."""
    weights, places = course
    n, beta = places.shape[1], float(weights.sum())
    length = np.sqrt((cell.parts * cell.parts).sum(axis=1))
    mean = weights @ places / beta
    spread = np.sqrt(weights @ (places - mean) ** 2 / beta)
    loss = beta * min(cell.error, MOST_ERROR * length[0]) * _share(slopes)
    for q, (i, j) in enumerate(pairs(n)):
        for axis in {i, j}:
            loss[axis] += beta * length[1 + n + q] * spread[i] * spread[j]
    return loss, [_Mean(beta * g, float(m)) for g, m in zip(slopes, mean, strict=True)]


def _disagreement(seen: list[_Mean]) -> float:
    """How much columns that share a parameter disagree on where it is."""
    weight = np.array([m.weight for m in seen])
    if weight.sum() <= 0:
        return 0.0
    place = np.array([m.place for m in seen])
    return float(weight @ np.abs(place - weight @ place / weight.sum()))


def guess(columns: ColumnCells, box: SearchBox, hull: Hull, result: Bounded) -> FloatArray:
    """(J,) a theta where the relaxation's solution points to."""
    n = len(box.spans)
    total, mass = np.zeros(n), np.zeros(n)
    for k, part in enumerate(hull.parts):
        weights, places = _course(result, k, len(part.axes))
        if part.axes and len(weights):
            length = np.sqrt(
                (result.atoms.vectors[result.atoms.owners == k] ** 2).sum(axis=1)
            ).max()
            for j, axis in enumerate(part.axes):
                total[axis] += length * (weights @ places[:, j])
                mass[axis] += length * weights.sum()
    s = np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), 0.0)
    lower, upper = box.ends(columns.problem)
    return (lower + upper) / 2 + np.clip(s, -1, 1) * (upper - lower) / 2


FINEST = {0: 0, 1: 4, 2: 2, 3: 2}  # most halvings of a box for its cells, by number of axes
FINEST_OF_MANY = {0: 0, 1: 3, 2: 1, 3: 1}  # the same where each cell has
PLANE = 2  # axes; columns of more have many cells
MANY = 1000  # residuals or more


class FineEnough:
    """Bounds boxes.

    active  the columns that are not zero
    """

    def __init__(self, problem: Separable, columns: ColumnCells) -> None:
        self.problem, self.columns = problem, columns
        self.active = [
            k
            for k in range(1 + problem.n_linear)
            if k > 0 or not all(b.is_zero(0) for b in problem.blocks)
        ]
        self._finest = max((self._halvings(k, 99) for k in self.active), default=0)

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
                bounded = bound(self.columns.target, self.columns.doubt, hull, ranges, cutoff)
                done[i] = hull, bounded._replace(halvings=halvings)
                if bounded.lower >= cutoff or bounded.residual < cutoff:
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
                    parts.append(BoundedColumn(k, cells, cell_places(len(own), m), own, sign))
                    lower.append(max(a, 0.0))
                    upper.append(b)
        ratios = tuple(
            (index[r.first + 1], index[r.second + 1], r.low, r.high)
            for r in self.problem.ratios
            if r.first + 1 in index and r.second + 1 in index
        )
        return Hull(parts, len(self.columns.target)), Ranges(
            np.array(lower), np.array(upper), ratios
        )


BATCH = 16  # boxes whose enclosures are computed together
WORTH_COUPLING = 0.3  # of the cutoff: below it ranges are too wide for the second bound
FAR = 10.0  # times the data's sum of squares: worth proving while no point is known
DEEPEST = 50  # halvings of one axis beyond which rounding rules
SAY_EVERY = 5.0  # s

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchLimits:
    """When to stop.

    gap         (objective - bound) / objective
    absolute    objective - bound, where the objective is nearly zero
    time_limit  s;  boxes: their number
    """

    gap: float
    absolute: float
    time_limit: float
    boxes: int = 1_000_000


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

    trial  theta -> objective of a point near it, or infinity: a local search that may improve on
           the objective known so far
    best   () -> theta of the best point known, a local optimum; None if there is none
    """

    def __init__(
        self,
        problem: Separable,
        columns: ColumnCells,
        trial: Callable[[FloatArray], float],
        best: Callable[[], FloatArray | None] = lambda: None,
    ) -> None:
        self.problem, self.columns, self.trial = problem, columns, trial
        self._around = Surroundings(problem, best)
        self.objective, self.put_aside = np.inf, np.inf
        self.boxes = 0
        self._number = itertools.count()
        self._cells = FineEnough(problem, columns)
        self._active = self._cells.active
        axes = [a for k in self._active for a in problem.depends[k]]
        self._shared = len(axes) > len(set(axes))

    def run(self, objective: float, limits: SearchLimits) -> BranchAndBoundResult:
        """Search until the gap is closed or a limit is reached. Ctrl-C ends it with what is there.

        objective  of the best point known
        """
        self.objective = objective
        queue = [Open(0.0, next(self._number), root(self.problem))]
        status, said = Status.OPTIMAL_WITHIN_GAP, time.perf_counter()
        end = said + limits.time_limit
        try:
            while queue:
                now = time.perf_counter()
                if now > end or self.boxes >= limits.boxes:
                    status = Status.TIME_LIMIT if now > end else Status.ITERATION_LIMIT
                    break
                if now > said + SAY_EVERY:
                    said = now
                    self._say(queue)
                self._advance(queue, limits)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if status is Status.OPTIMAL_WITHIN_GAP and self._bound(queue) < self._goal(limits):
            status = Status.ITERATION_LIMIT  # a box that cannot be divided any more was put aside
        return BranchAndBoundResult(
            status, self._bound(queue), self.objective, self.boxes, len(queue)
        )

    def _goal(self, limits: SearchLimits) -> float:
        """The lower bound that closes the gap."""
        if np.isinf(self.objective):  # no point is known yet
            return float(FAR * (self.columns.target @ self.columns.target))
        return self.objective - max(limits.gap * self.objective, limits.absolute)

    def _bound(self, queue: Sequence[Open]) -> float:
        open_bound = queue[0].lower_bound if queue else np.inf
        return float(min(self.put_aside, open_bound, self.objective))

    def _say(self, queue: Sequence[Open]) -> None:
        lower = self._bound(queue)
        gap = 100 * (1 - lower / self.objective) if self.objective > 0 else 0.0
        log.info("gap %.3g %%, %d boxes bounded, %d open", gap, self.boxes, len(queue))

    def _advance(self, queue: list[Open], limits: SearchLimits) -> None:
        """Bound the most promising boxes, and put aside or divide each."""
        waiting: list[Open] = []
        try:
            with interruptible():
                self._handle(queue, waiting, self._goal(limits))
        except KeyboardInterrupt:
            for item in waiting:
                heapq.heappush(queue, item)
            raise

    def _handle(self, queue: list[Open], waiting: list[Open], goal: float) -> None:
        """One batch. Whatever happens, each box is in the queue, waiting, or put aside."""
        self._fill(waiting, queue, goal)
        if not waiting:
            return
        batch = list(waiting)
        result = self._cells.bounded([item.box for item in batch], self._norm(goal))
        self.boxes += len(batch)
        for item, (hull, bounded) in zip(batch, result, strict=True):
            box, lower = self._judged(item, bounded, goal)
            gap = Gap(self.objective, goal, lower)
            self._around.look(box, gap)
            children = () if lower >= goal else self._children(box, hull, bounded, gap)
            if not children:
                self.put_aside = min(self.put_aside, lower)
            for child in children:
                if child.feasible(self.problem):
                    heapq.heappush(queue, Open(lower, next(self._number), child))
            waiting.remove(item)
        self._try([(item.box, *f) for item, f in zip(batch, result, strict=True)], goal)

    def _judged(self, item: Open, bounded: Bounded, goal: float) -> tuple[SearchBox, float]:
        """The box, perhaps with narrower ranges, and its lower bound, all bounds considered."""
        lower = max(item.lower_bound, self._square(bounded.lower))
        worth = self._shared and bounded.lower > WORTH_COUPLING * self._norm(goal)
        if lower >= goal or not worth:
            return item.box, lower
        box, norm = self._coupled(item.box, bounded, goal)
        return box, max(lower, min(self._square(norm), goal))

    def _try(self, bounded: Sequence[tuple[SearchBox, Hull, Bounded]], goal: float) -> None:
        """A local search where the most promising of the boxes points to."""
        left = [item for item in bounded if self._square(item[2].lower) < goal]
        if left:
            box, hull, result = min(left, key=lambda item: item[2].residual - item[2].slack)
            theta = guess(self.columns, box, hull, result)
            self.objective = min(self.objective, self.trial(theta))

    def _fill(self, waiting: list[Open], queue: list[Open], goal: float) -> None:
        """Take the first boxes of the queue; those that need no more are put aside."""
        while queue and len(waiting) < BATCH:
            first = queue[0]
            lower = max(first.lower_bound, self._around.lower_bound(first.box))
            if lower >= goal:
                self.put_aside = min(self.put_aside, lower)
            else:
                waiting.append(first)
            heapq.heappop(queue)

    def _square(self, norm: float) -> float:
        """The sum of squares that a bound on the norm of its coordinates stands for."""
        return float((max(norm, 0.0) / self.columns.norm) ** 2 * (1 - 1e-14))

    def _norm(self, goal: float) -> float:
        """The norm of coordinates that proves a sum of squares."""
        return float(np.sqrt(max(goal, 0.0))) * self.columns.norm * (1 + 1e-13)

    def _coupled(self, box: SearchBox, bounded: Bounded, goal: float) -> tuple[SearchBox, float]:
        """The box with narrower ranges of the linear parameters, and the bound they give.

        Both are about points below the goal: nothing above it is claimed from here on.
        """
        self.put_aside = min(self.put_aside, goal)
        cutoff = self._norm(goal)
        columns = joint(self.columns, box, self._active)
        fixed = [1.0] * (self._active[0] == 0)
        ranges = Factors(np.array([*fixed, *box.lower]), np.array([*fixed, *box.upper]))
        assert bounded.direction is not None
        result = narrowed(columns, ranges, bounded.direction, bounded.lower, cutoff)
        if result is None:
            return box, np.inf
        skip = len(fixed)
        lower, upper = (tuple(x[skip:].tolist()) for x in result)
        return replace(box, lower=lower, upper=upper), coupled(columns, result)

    def _children(
        self, box: SearchBox, hull: Hull, result: Bounded, gap: Gap
    ) -> tuple[SearchBox, ...]:
        """By the sign of a linear parameter, around the best point, else halves of an axis."""
        for k in range(self.problem.n_linear):
            if box.lower[k] < 0 < box.upper[k]:
                return box.signs(k)
        if not self.problem.axes:
            return ()
        pieces = self._around.pieces(box, gap)
        if pieces:
            return pieces
        axis = axis_to_halve(self.columns, box, hull, result)
        if box.spans[axis].level >= DEEPEST:
            return ()
        return tuple(c.with_halvings(max(1, result.halvings - 1)) for c in box.halves(axis))
