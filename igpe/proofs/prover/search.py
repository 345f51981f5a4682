"""Branch and bound over boxes of the unknowns, every step of which is kept as a tree."""

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import require_going_on
from igpe.core.status import Status
from igpe.proofs.prover.enclosures.enclosure import Enclosure, Found

SHRUNK = 0.5  # share of a box that contraction may leave for it to be examined again unsplit
WORTH_NOTING = 0.999  # share of a box above which a contraction is forgotten
SKEWED = 0.25  # where [0, b] is split, as a share of b
WIDE = 16.0  # ratio of positive bounds from which they are split at their geometric mean
INFORMATIVE = 2  # residuals for each unknown, from which sensitivities choose the axis
STEPS, STEPS_DEEPER = 1000, 100  # of a box; small stiff boxes deep in the tree need many
PREFERENCE = 0.5  # of wide axes where trial splits choose, against gains relative to the cut
ALIKE = 0.7  # score of the second best axis: its halves are split along that without trials
NARROWEST = 0.05  # of the widest axis: narrower ones are not tried
NEAR_ZERO = 0.01  # of the whole range: less than this is small


@dataclass
class Node:
    """One box of the tree.

    reason    "split", "contracted" (outside its child nothing is below the cut), "bound" (nothing
              in it is), "open" (not decided)
    bound     proven on the sum of squares over the box
    rows      how many leading residuals were enclosed
    multipliers  of the residuals, where the bound is theirs
    depth     how many boxes lie around it
    tame      whether Mueller bounds can be spared
    axis      to split along where trial splits would choose, as the parent's left it; -1: none
    """

    lower: FloatArray
    upper: FloatArray
    bound: float = 0.0
    reason: str = "open"
    children: list[int] = field(default_factory=list)
    rows: int = 0
    multipliers: FloatArray | None = None
    depth: int = 0
    tame: bool = False
    axis: int = -1


class _Split(NamedTuple):
    """Along which axis, what is known of the two halves, and along which axis these are next."""

    axis: int
    bounds: tuple[float, float] = (0.0, 0.0)
    following: int = -1


@dataclass
class Search:
    """A tree of boxes, refined until everything below the cut is gone, or time is up.

    enclosure  proves the bounds
    cut        what a box must exceed to be done with
    better     (point) -> a better cut, or nothing: told middles of boxes that look promising
    tree       the root first
    """

    enclosure: Enclosure
    cut: float
    lower: FloatArray
    upper: FloatArray
    better: Callable[[FloatArray], float | None] = lambda point: None
    tree: list[Node] = field(init=False)
    examined: int = 0

    def __post_init__(self) -> None:
        self.tree = [Node(self.lower, self.upper)]
        self._open: list[tuple[float, int]] = [(0.0, 0)]

    @property
    def lower_bound(self) -> float:
        """Proven on the sum of squares over the whole box."""
        return min([self.cut, *(node.bound for node in self._undecided)])

    @property
    def open_share(self) -> float:
        """Share of the box's volume that is not decided."""
        whole = np.where(self.upper > self.lower, self.upper - self.lower, 1.0)
        return float(sum(np.prod(self._width(node) / whole) for node in self._undecided))

    @property
    def _undecided(self) -> list[Node]:
        """Of the tree, not of the queue: Ctrl-C may come before children are in that."""
        return [node for node in self.tree if node.reason == "open"]

    @staticmethod
    def _width(node: Node) -> FloatArray:
        width = node.upper - node.lower
        return np.where(width > 0, width, 1.0)

    @property
    def open(self) -> list[int]:
        """Places in the tree of the boxes that are not decided."""
        return [k for k, node in enumerate(self.tree) if node.reason == "open"]

    def resume(self, nodes: list[Node]) -> None:
        """Go on with a tree, or with some boxes, instead of the root."""
        self.tree = nodes
        self._open = sorted((nodes[k].bound, -k) for k in self.open)

    def run(
        self,
        deadline: float,
        tell: Callable[[], None] = lambda: None,
        enough: Callable[[], bool] = lambda: False,
    ) -> Status:
        """Until nothing is open, the deadline (of `time.perf_counter`), enough, or Ctrl-C.

        INTEGRATION_BROKE  boxes that are too narrow to be split could not be enclosed
        """
        try:
            while self._open:
                require_going_on()
                if time.perf_counter() > deadline or enough():
                    return Status.TIME_LIMIT
                self._next()
                tell()
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        return Status.INTEGRATION_BROKE if self._undecided else Status.OPTIMAL_WITHIN_GAP

    def _next(self) -> None:
        """Examine the open box of the least bound; it stays open if that is interrupted."""
        bound, last = self._open[0]
        k = -last  # of equal bounds the youngest
        node = self.tree[k]
        if bound > self.cut:
            heapq.heappop(self._open)
            node.reason = "bound"
            return
        found = self.enclosure.examine(
            node.lower,
            node.upper,
            self.cut,
            with_tube=not node.tame,
            known=node.bound,
            most=STEPS + STEPS_DEEPER * node.depth,
        )
        node.tame = node.tame or found.tame
        self.examined += 1
        if found.middle * (1 + 1e-9) < self.cut:
            cut = self.better(0.5 * (node.lower + node.upper))
            self.cut = self.cut if cut is None else min(cut, self.cut)
        children = self._decided(k, found)
        heapq.heappop(self._open)
        for child in children:
            heapq.heappush(self._open, (self.tree[child].bound, -child))

    def _decided(self, k: int, found: Found) -> list[int]:
        """What is known of node k enters the tree; its children that are open."""
        node = self.tree[k]
        done = found.is_empty or found.bound > self.cut
        # what is beyond the cut was not enclosed: of that no more is known
        node.bound = max(node.bound, self.cut if done else found.bound)
        node.rows = found.rows
        if done or node.bound > self.cut:
            node.reason = "bound"
            node.multipliers = found.multipliers if found.multipliers.any() else None
            return []
        wide = node.upper > node.lower
        share = float(np.prod(((found.upper - found.lower) / self._width(node))[wide]))
        if share < WORTH_NOTING:
            child = self._add(found.lower, found.upper, node)
            node.children = [child]
            node.reason = "contracted"
            if share < SHRUNK:
                return [child]
            k, node = child, self.tree[child]
        axis, bounds, following = self._where(node, found)
        halves = split(node.lower, node.upper, axis)
        if halves is None:
            return []
        node.children = [
            self._add(*half, node, bound, following)
            for half, bound in zip(halves, bounds, strict=True)
        ]
        node.reason = "split"  # last: until then the box counts as open
        return [child for child in node.children if self.tree[child].reason == "open"]

    def _add(
        self,
        lower: FloatArray,
        upper: FloatArray,
        parent: Node,
        bound: float = 0.0,
        axis: int = -1,
    ) -> int:
        known = min(max(parent.bound, bound), self.cut)
        child = Node(lower, upper, known, tame=parent.tame, axis=axis)
        child.depth = parent.depth + 1
        child.reason = "bound" if bound > self.cut else "open"
        self.tree.append(child)
        return len(self.tree) - 1

    def _where(self, node: Node, found: Found) -> _Split:
        """How to split a box."""
        width = node.upper - node.lower
        enough = node.tame or found.rows >= INFORMATIVE * len(width)
        if enough and found.sensitivity.any():
            return _Split(int(np.argmax(np.where(width > 0, found.sensitivity, -1.0))))
        return _Split(node.axis) if node.axis >= 0 else self._by_trial(node)

    def _by_trial(self, node: Node) -> _Split:
        """The axis whose two halves gain most by coarse tubes, wide axes being preferred."""
        root = np.where(self.upper > self.lower, self.upper - self.lower, 1.0)
        size = np.maximum(np.abs(node.lower), np.abs(node.upper)) + NEAR_ZERO * root
        width = (node.upper - node.lower) / size
        score = PREFERENCE * width / (width.max() or 1.0)
        tried: dict[int, tuple[float, float]] = {}
        for j in np.flatnonzero(width > NARROWEST * width.max()).tolist():
            halves = split(node.lower, node.upper, j)
            if halves is None:
                continue
            low, high = (self.enclosure.coarse(*half, self.cut) for half in halves)
            tried[j] = low, high
            score[j] += min(low / self.cut, 1.0) + min(high / self.cut, 1.0)
        if not tried:
            return _Split(int(np.argmax(score)))
        best, *others = sorted(tried, key=lambda j: -float(score[j]))
        alike = bool(others) and score[others[0]] > ALIKE * score[best]
        return _Split(best, tried[best], others[0] if alike else -1)


def split(
    lower: FloatArray, upper: FloatArray, axis: int
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]] | None:
    """The two halves of a box; None if it is too narrow to have any."""
    at = place(lower[axis], upper[axis])
    if not lower[axis] < at < upper[axis]:
        return None
    left, right = upper.copy(), lower.copy()
    left[axis] = right[axis] = at
    return (lower, left), (right, upper)


def place(low: float, high: float) -> float:
    """Where an interval is split: what is positive lives on orders of magnitude."""
    if low == 0.0:
        return SKEWED * high
    if high == 0.0:
        return SKEWED * low
    if low > 0.0 and high > WIDE * low:
        return float(np.sqrt(low * high))
    return low + 0.5 * (high - low)
