"""Branch and bound over the nonlinear parameters.

What is proved. Let L be the `lower_bound` of an `Outcome`. For every theta and beta that keep the
bounds (and those on ratios and differences) of the `Separable`, the sum of squares, of the numbers
that it holds and in exact arithmetic, is at least L. Every box that was put aside has a lower bound
of L or more, every box that is still open has one too, and together they cover all of the problem.
`docs/projection.md` has the whole proof.
"""

import heapq
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.bound import Bounded
from igpe.algebraic.bounds.box import Box, Open, root
from igpe.algebraic.bounds.branching import axis_to_halve, guess
from igpe.algebraic.bounds.columns import Columns
from igpe.algebraic.bounds.coupling import Factors, coupled, joint, narrowed
from igpe.algebraic.bounds.fine_enough import FineEnough
from igpe.algebraic.bounds.hull import Hull
from igpe.algebraic.bounds.separable import Separable
from igpe.algebraic.bounds.surroundings import Gap, Surroundings
from igpe.core.arrays import FloatArray
from igpe.core.deadline import interruptible
from igpe.core.status import Status

BATCH = 16  # boxes whose enclosures are computed together
WORTH_COUPLING = 0.3  # of the cutoff: below it ranges are too wide for the second bound
FAR = 10.0  # times the data's sum of squares: worth proving while no point is known
DEEPEST = 50  # halvings of one axis beyond which rounding rules
SAY_EVERY = 5.0  # s

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """When to stop.

    gap         (objective - bound) / objective
    absolute    objective - bound, where the objective is nearly zero
    time_limit  s;  boxes: their number
    """

    gap: float
    absolute: float
    time_limit: float
    boxes: int = 1_000_000


class Outcome(NamedTuple):
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


class Search:
    """One search; `run` it once.

    trial  theta -> objective of a point near it, or infinity: a local search that may improve on
           the objective known so far
    best   () -> theta of the best point known, a local optimum; None if there is none
    """

    def __init__(
        self,
        problem: Separable,
        columns: Columns,
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

    def run(self, objective: float, limits: Limits) -> Outcome:
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
        return Outcome(status, self._bound(queue), self.objective, self.boxes, len(queue))

    def _goal(self, limits: Limits) -> float:
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

    def _advance(self, queue: list[Open], limits: Limits) -> None:
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
        found = self._cells.bounded([item.box for item in batch], self._norm(goal))
        self.boxes += len(batch)
        for item, (hull, bounded) in zip(batch, found, strict=True):
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
        self._try([(item.box, *f) for item, f in zip(batch, found, strict=True)], goal)

    def _judged(self, item: Open, bounded: Bounded, goal: float) -> tuple[Box, float]:
        """The box, perhaps with narrower ranges, and its lower bound, all bounds considered."""
        lower = max(item.lower_bound, self._square(bounded.lower))
        worth = self._shared and bounded.lower > WORTH_COUPLING * self._norm(goal)
        if lower >= goal or not worth:
            return item.box, lower
        box, norm = self._coupled(item.box, bounded, goal)
        return box, max(lower, min(self._square(norm), goal))

    def _try(self, bounded: Sequence[tuple[Box, Hull, Bounded]], goal: float) -> None:
        """A local search where the most promising of the boxes points to."""
        left = [item for item in bounded if self._square(item[2].lower) < goal]
        if left:
            box, hull, found = min(left, key=lambda item: item[2].residual - item[2].slack)
            theta = guess(self.columns, box, hull, found)
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

    def _coupled(self, box: Box, bounded: Bounded, goal: float) -> tuple[Box, float]:
        """The box with narrower ranges of the linear parameters, and the bound they give.

        Both are about points below the goal: nothing above it is claimed from here on.
        """
        self.put_aside = min(self.put_aside, goal)
        cutoff = self._norm(goal)
        columns = joint(self.columns, box, self._active)
        fixed = [1.0] * (self._active[0] == 0)
        ranges = Factors(np.array([*fixed, *box.lower]), np.array([*fixed, *box.upper]))
        assert bounded.direction is not None
        found = narrowed(columns, ranges, bounded.direction, bounded.lower, cutoff)
        if found is None:
            return box, np.inf
        skip = len(fixed)
        lower, upper = (tuple(x[skip:].tolist()) for x in found)
        return replace(box, lower=lower, upper=upper), coupled(columns, found)

    def _children(self, box: Box, hull: Hull, found: Bounded, gap: Gap) -> tuple[Box, ...]:
        """By the sign of a linear parameter, around the best point, else halves of an axis."""
        for k in range(self.problem.n_linear):
            if box.lower[k] < 0 < box.upper[k]:
                return box.signs(k)
        if not self.problem.axes:
            return ()
        pieces = self._around.pieces(box, gap)
        if pieces:
            return pieces
        axis = axis_to_halve(self.columns, box, hull, found)
        if box.spans[axis].level >= DEEPEST:
            return ()
        return tuple(c.with_halvings(max(1, found.halvings - 1)) for c in box.halves(axis))
