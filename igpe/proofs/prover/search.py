"""Branch and bound over boxes of the unknowns, kept as a tree, and its incumbent.

Sums of states (total mass, atoms, a population) cut what states can be where that makes tubes
narrower: sums with whole coefficients in whose slopes the rates cancel that several states share.
Where nothing is left of its slope a sum is constant; else tubes bound it like a state. Searches
begin with all sums; a trial on some boxes decides whether to keep them.
"""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray, smallest_integers
from igpe.core.deadline import require_going_on
from igpe.core.errors import EstimationFailed
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.shooting.base import from_many_starts
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.equations.shared_rates import null_space, times
from igpe.problem.problem import Problem
from igpe.proofs.prover.enclosure import BoxBounds, BoxEnclosure, Heeded, step_work
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.tape import OpTape
from igpe.proofs.prover.posed import (
    KNOWN,
    Dynamic,
    Rewriter,
    Sum,
    TooManyTerms,
    refuse_quotient_by_zero,
)

SHRUNK = 0.5  # share of a box that contraction may leave for it to be examined again unsplit
WORTH_NOTING = 0.999  # share of a box above which a contraction is forgotten
SKEWED = 0.25  # where [0, b] is split, as a share of b
WIDE = 16.0  # ratio of positive bounds from which they are split at their geometric mean
INFORMATIVE = 2  # residuals for each unknown, from which sensitivities choose the axis
STEPS, STEPS_DEEPER = 1000, 100  # of a box; small stiff boxes deep in the tree need many
PREFERENCE = 0.5  # of wide axes where trial splits choose, against gains relative to the cut
ALIKE = 0.7  # score of the second best axis: its halves are split along that without trials
NARROWEST = 0.05  # of the widest axis: narrower ones are not tried
WEIGHED, SOME = 40, 12  # after so many boxes sums are tried, on so many open ones
PAUSE = 3  # generations without tubes, where one proved nothing new
NEAR_ZERO = 0.01  # of the whole range: less than this is small


@dataclass
class BoxNode:
    """One box of the tree.

    reason    "split", "contracted" (outside its child nothing is below the cut), "bound" (nothing
              in it is), "open" (not decided), "within" (inside a certified region)
    bound     proven on the sum of squares over the box
    rows      how many leading residuals were enclosed
    multipliers  of the residuals, where the bound is theirs
    depth     how many boxes lie around it
    skips_tube  whether Mueller bounds can be spared
    is_led  whether the Taylor model proved more than those, here or around it
    pause     of so many generations without them, as they proved nothing new for the first
    axis      to split along where trial splits would choose, as the parent's left it; -1: none
    cut       what it was examined against
    """

    lower: FloatArray
    upper: FloatArray
    bound: float = 0.0
    reason: str = "open"
    children: list[int] = field(default_factory=list)
    rows: int = 0
    multipliers: FloatArray | None = None
    depth: int = 0
    skips_tube: bool = False
    is_led: bool = False
    pause: int = 0
    axis: int = -1
    cut: float = np.inf


_Split: TypeAlias = tuple[int, tuple[float, float], int]
"""Along which axis, what is known of the two halves, and their own axis (-1: none)."""
NO_BOUNDS = 0.0, 0.0
Halves: TypeAlias = tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


@dataclass
class BoxSearch:
    """A tree of boxes, refined until everything below the cut is gone, or time is up.

    enclosure  proves the bounds
    cut        what a box must exceed to be done with
    better     (point) -> a better cut, or None; called with the middle of promising boxes
    tree       the root first
    is_weighed  whether it is known if sums of states pay
    """

    enclosure: BoxEnclosure
    cut: float
    lower: FloatArray
    upper: FloatArray
    better: Callable[[FloatArray], float | None] = lambda point: None
    tree: list[BoxNode] = field(init=False)
    examined: int = 0
    is_weighed: bool = False

    def __post_init__(self) -> None:
        self.tree = [BoxNode(self.lower, self.upper)]
        self._open: list[tuple[float, int]] = [(0.0, 0)]
        if not self.is_weighed:
            _heed_sums(self.enclosure)

    @property
    def lower_bound(self) -> float:
        """Proven on the sum of squares over the whole box."""
        return min([self.cut, *(self.tree[k].bound for k in self.open)])

    @property
    def open_share(self) -> float:
        """Share of the box's volume that is not decided."""
        full = _width(self.lower, self.upper)
        nodes = [self.tree[k] for k in self.open]
        return float(sum(np.prod(_width(node.lower, node.upper) / full) for node in nodes))

    @property
    def open(self) -> list[int]:
        """Places in the tree of the boxes that are not decided.

        Not of the queue: Ctrl-C may come before children are in that.
        """
        return [k for k, node in enumerate(self.tree) if node.reason == "open"]

    def resume(self, nodes: list[BoxNode]) -> None:
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
                if self.examined >= WEIGHED:
                    self.weigh()
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        return Status.INTEGRATION_BROKE if self.open else Status.OPTIMAL_WITHIN_GAP

    def _next(self) -> None:
        """Examine the open box of the least bound; it stays open if that is interrupted."""
        bound, last = self._open[0]
        k = -last  # of equal bounds the youngest
        node = self.tree[k]
        cut, reason = self._goal(node)
        if bound > cut:
            heapq.heappop(self._open)
            node.reason = reason
            return
        bounds = self.enclosure.examine(
            node.lower,
            node.upper,
            cut,
            with_tube=not (node.skips_tube or node.pause),
            known=node.bound,
            most=STEPS + STEPS_DEEPER * node.depth,
        )
        node.skips_tube = node.skips_tube or bounds.skips_tube
        node.is_led = node.is_led or bounds.leads
        node.pause = PAUSE if bounds.is_tube_idle else node.pause
        self.examined += 1
        self._look(node, bounds.middle)
        children = self._decided(k, bounds)
        heapq.heappop(self._open)
        for child in children:
            heapq.heappush(self._open, (self.tree[child].bound, -child))

    def weigh(self) -> None:
        """Let tubes heed sums of states only if they pay on some of the leaves; once."""
        if self.is_weighed:
            return
        self.is_weighed = True
        every = [node for node in self.tree if not node.children]
        nodes = sorted((n for n in every if not n.is_led), key=lambda n: n.bound)
        if 2 * len(nodes) < len(every):  # mostly done by Taylor models
            return
        some = nodes[:: max(1, len(nodes) // SOME)][:SOME]
        keep_sums_that_pay(self.enclosure, [(n.lower, n.upper, self._goal(n)[0]) for n in some])

    def _goal(self, node: BoxNode) -> tuple[float, str]:
        """What the sum of squares must exceed for a box to be done with, and the reason then."""
        return self.cut, "bound"

    def _look(self, node: BoxNode, middle: float) -> None:
        """Search from the middle of a box whose sum of squares `middle` is below the cut."""
        if middle * (1 + 1e-9) < self.cut:
            cut = self.better(0.5 * (node.lower + node.upper))
            self.cut = self.cut if cut is None else min(cut, self.cut)

    def _halves(
        self, node: BoxNode, bounds: BoxBounds
    ) -> tuple[Halves | None, tuple[float, float], int]:
        """The halves of a box, if it has any, what is known of these, and their axis (or -1)."""
        axis, known, following = self._where(node, bounds)
        return split(node.lower, node.upper, axis), known, following

    def _decided(self, k: int, bounds: BoxBounds) -> list[int]:
        """Enter the bounds of node k into the tree; return its open children."""
        node = self.tree[k]
        cut, reason = self._goal(node)
        done = bounds.is_empty or bounds.bound > cut
        # what is beyond the cut was not enclosed: of that no more is known
        node.bound = max(node.bound, cut if done else bounds.bound)
        node.rows, node.cut = bounds.rows, cut
        if done or node.bound > cut:
            node.reason = reason
            node.multipliers = bounds.multipliers if bounds.multipliers.any() else None
            return []
        wide = node.upper > node.lower
        left = (bounds.upper - bounds.lower) / _width(node.lower, node.upper)
        share = float(np.prod(left[wide]))
        if share < WORTH_NOTING:
            child = self._add(bounds.lower, bounds.upper, node)
            node.children = [child]
            node.reason = "contracted"
            if share < SHRUNK:
                return [child]
            k, node = child, self.tree[child]
        halves, known, following = self._halves(node, bounds)
        if halves is None:
            return []
        node.children = [
            self._add(*half, node, bound, following)
            for half, bound in zip(halves, known, strict=True)
        ]
        node.reason = "split"  # last: until then the box counts as open
        return [child for child in node.children if self.tree[child].reason == "open"]

    def _add(
        self,
        lower: FloatArray,
        upper: FloatArray,
        parent: BoxNode,
        bound: float = 0.0,
        axis: int = -1,
    ) -> int:
        cut, reason = self._goal(parent)
        known = min(max(parent.bound, bound), cut)
        child = BoxNode(lower, upper, known, skips_tube=parent.skips_tube, axis=axis)
        child.is_led = parent.is_led
        child.depth, child.pause = parent.depth + 1, max(parent.pause - 1, 0)
        child.reason = reason if bound > cut else "open"
        self.tree.append(child)
        return len(self.tree) - 1

    def _where(self, node: BoxNode, bounds: BoxBounds) -> _Split:
        """Choose how to split a box."""
        width, broad = node.upper - node.lower, self._broad(node)
        if bounds.spread.any():
            axis = int(np.argmax(np.where(width > 0, bounds.spread, -1.0)))
            if axis in broad:
                return axis, NO_BOUNDS, -1
        enough = node.is_led or bounds.rows >= INFORMATIVE * len(width)
        if enough and bounds.sensitivity.any():
            axis = int(np.argmax(np.where(width > 0, bounds.sensitivity, -1.0)))
            if axis in broad or not bounds.is_drowned:
                return axis, NO_BOUNDS, -1
        return (node.axis, NO_BOUNDS, -1) if node.axis >= 0 else self._by_trial(node)

    def _relative(self, node: BoxNode) -> FloatArray:
        """Widths of a box (n_p,) relative to how large its unknowns are."""
        size = np.maximum(np.abs(node.lower), np.abs(node.upper))
        size = size + NEAR_ZERO * _width(self.lower, self.upper)
        return np.asarray((node.upper - node.lower) / size)

    def _broad(self, node: BoxNode) -> list[int]:
        """Axes that are not much narrower than the widest."""
        width = self._relative(node)
        broad: list[int] = np.flatnonzero(width > NARROWEST * width.max()).tolist()
        return broad

    def _by_trial(self, node: BoxNode) -> _Split:
        """The axis whose two halves gain most by coarse tubes, wide axes being preferred."""
        width = self._relative(node)
        score = PREFERENCE * width / (width.max() or 1.0)
        tried: dict[int, tuple[float, float]] = {}
        for j in self._broad(node):
            halves = split(node.lower, node.upper, j)
            if halves is None:
                continue
            low, high = (self.enclosure.coarse(*half, self.cut) for half in halves)
            tried[j] = low, high
            score[j] += min(low / self.cut, 1.0) + min(high / self.cut, 1.0)
        if not tried:
            return int(np.argmax(score)), NO_BOUNDS, -1
        best, *others = sorted(tried, key=lambda j: -float(score[j]))
        alike = bool(others) and score[others[0]] > ALIKE * score[best]
        return best, tried[best], others[0] if alike else -1


def _width(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Widths of a box, 1 where it has none."""
    return np.where(upper > lower, upper - lower, 1.0)


def split(lower: FloatArray, upper: FloatArray, axis: int) -> Halves | None:
    """The two halves of a box; None if it is too narrow to have any.

    Positive unknowns span orders of magnitude.
    """
    low, high = float(lower[axis]), float(upper[axis])
    if low == 0.0 or high == 0.0:
        at = SKEWED * (low + high)
    elif low > 0.0 and high > WIDE * low:
        at = float(np.sqrt(low * high))
    else:
        at = low + 0.5 * (high - low)
    if not low < at < high:
        return None
    left, right = upper.copy(), lower.copy()
    left[axis] = right[axis] = at
    return (lower, left), (right, upper)


ORDERS = (12, 8, 5)  # in time, tried one after the other for single points
SHARP = 1e-8  # relative width of the sum of squares at a point from which no other order is tried
STEPS_AT_A_POINT = 20_000  # at most
NOTHING = 1e-15  # of the sum of squared measurements: smaller differences are none


@dataclass
class Incumbent:
    """The best parameters so far, their proven objective, and the cut that follows from it.

    most_work  operations that the objective of one point may take, roughly
    """

    problem: Problem
    dynamic: Dynamic
    gap: float
    most_work: float = np.inf
    point: FloatArray = field(default_factory=lambda: np.zeros(0))
    objective: float = np.inf
    _search: Callable[[Mapping[str, float]], Estimate] | None = None

    def first(self, point: FloatArray) -> float:
        """The cut of the first parameters.

        raises  EstimationFailed if their solution cannot be enclosed, Unsupported if it never can
        """
        point = self.problem.box.clip(point)
        self.take(point, proved_objective(self.dynamic, point, self.most_work))
        if not np.isfinite(self.objective):
            for k in range(len(self.problem.experiments)):
                refuse_quotient_by_zero(self.problem, k)
            raise EstimationFailed(
                "igpe could not enclose the solution at the given parameter values up to the last "
                "measurement. Give other parameter values for which the solution remains finite, "
                "and for which no square root, logarithm or fractional power reaches 0.",
                Status.INTEGRATION_BROKE,
            )
        return self.cut

    @property
    def cut(self) -> float:
        """Level that the sum of squares must exceed for a box to be excluded."""
        schedules = [run.schedule for run in self.dynamic.experiments]
        size = sum(float(((c.value * c.weight) ** 2).sum()) for c in schedules)
        return self.objective - max(self.gap * self.objective, NOTHING * size)

    def better(self, middle: FloatArray) -> float | None:
        """The cut after a search from the middle of a promising box; None if it found no better."""
        if self._search is None:
            self._search = from_many_starts(SingleShooting(), self.problem)
        estimate = self._search(self.problem.box.mapping(middle))
        if not (estimate.status.usable and estimate.objective < self.objective):
            return None  # to prove the objective of a point may take longer than many boxes
        point = self.problem.box.clip(self.problem.box.vector(estimate.parameters))
        before = self.objective
        self.take(point, proved_objective(self.dynamic, point, self.most_work))
        return self.cut if self.objective < before else None

    def take(self, point: FloatArray, objective: float) -> None:
        """Keep the point if it is better."""
        if objective < self.objective:
            self.point, self.objective = point, objective


def proved_objective(dynamic: Dynamic, point: FloatArray, most_work: float = np.inf) -> float:
    """Proven upper bound on the sum of squares at one point; infinite if there is none.

    most_work  operations that it may take, roughly
    """
    best = np.inf
    for order in ORDERS:
        enclosure = BoxEnclosure(dynamic, 1, order, tolerance=0.0, directions=1)
        of_steps = sum(map(step_work, enclosure.models))
        most = int(min(STEPS_AT_A_POINT, most_work / len(ORDERS) / of_steps))
        bounds = enclosure.examine(point, point, np.inf, most=most)
        if bounds.rows == enclosure.size:
            sizes = np.maximum(np.abs(enclosure.rows.low), np.abs(enclosure.rows.high))
            best = min(best, float((sizes**2).sum() * (1 + 1e-12)))
            if best - bounds.bound <= SHARP * best:
                break
    return best


LARGEST = 1000  # coefficient
GAIN = 0.015  # of the boxes' cuts: what sums must add to the bounds of tubes, unless they cost
DEARER = 1.1  # times the work at most


def heeded(tape: OpTape) -> Heeded | None:
    """The slopes of a tape with those of sums in which shared rates cancel; None without any.

    Exact: slopes are multiplied out in rational numbers.
    """
    n = len(tape.results)
    if n < 2 or any(code not in KNOWN for code in tape.op[tape.needed.any(axis=0)].tolist()):
        return None
    rewriter = Rewriter(tape)
    try:
        slopes = [rewriter.expanded(int(r)) for r in tape.results]
        count = Counter(monomial for one in slopes for monomial in one)
        shared = [{m: c for m, c in one.items() if count[m] > 1} for one in slopes]
        every = [smallest_integers(one) for one in null_space(shared)]
        chosen = [v for v in every if max(map(abs, v)) <= LARGEST and np.count_nonzero(v) > 1]
        left = [_combined(one, slopes) for one in chosen]
        rows = np.zeros((len(chosen), n + sum(map(bool, left))))
        results = [rewriter.emitted(one) for one in slopes]
        for row, one, rest in zip(rows, chosen, left, strict=True):
            row[:n] = one
            if rest:
                row[len(results)] = -1.0
                place = rewriter.writer.put(ops.STATE, len(results))
                results.append(rewriter.emitted(_in_terms_of(place, one, rest, rewriter)))
        return Heeded(rewriter.writer.needed_only(results), rows) if chosen else None
    except TooManyTerms:
        return None


def _combined(shares: Sequence[int], slopes: Sequence[Sum]) -> Sum:
    total: Sum = {}
    for share, slope in zip(shares, slopes, strict=True):
        for monomial, c in slope.items():
            total[monomial] = total.get(monomial, Fraction(0)) + share * c
    return {monomial: c for monomial, c in total.items() if c}


def _in_terms_of(place: int, shares: Sequence[int], slope: Sum, rewriter: Rewriter) -> Sum:
    """The slope of a sum of states, with the sum itself, at this place, wherever it occurs."""
    rows = rewriter.writer.rows
    n = len(shares)
    states = {k: row[1] for k, row in enumerate(rows) if row[0] == ops.STATE and row[1] < n}
    groups: dict[tuple[tuple[int, int], ...], dict[int, Fraction]] = {}
    for monomial, c in slope.items():
        for atom, _ in monomial:
            if atom in states and shares[states[atom]]:
                rest = times(monomial, ((atom, -1),))
                groups.setdefault(rest, {})[atom] = c / shares[states[atom]]
    atoms = {atom for atom, i in states.items() if shares[i]}
    left = dict(slope)
    if len(atoms) < np.count_nonzero(shares):  # one of the states is in no slope
        return left
    for rest, own in groups.items():
        gone = [times(rest, ((atom, 1),)) for atom in own]
        if own.keys() == atoms and len(set(own.values())) == 1 and all(m in left for m in gone):
            for monomial in gone:
                del left[monomial]
            left[times(rest, ((place, 1),))] = next(iter(own.values()))
    return left


def _heed_sums(enclosure: BoxEnclosure) -> None:
    """Let tubes heed all sums of states of all experiments."""
    enclosure.heed([heeded(run.tapes[0]) for run in enclosure.dynamic.experiments])


def keep_sums_that_pay(
    enclosure: BoxEnclosure, boxes: Sequence[tuple[FloatArray, FloatArray, float]]
) -> None:
    """Let tubes heed no sums any more if, on boxes, that proves hardly less, for less work.

    boxes  of a search that goes on: lower and upper ends, and the cut
    """
    chosen = enclosure.heeded
    if not any(chosen) or not boxes:
        return
    with_sums = _tried(enclosure, boxes)
    enclosure.heed([None] * len(chosen))
    without = _tried(enclosure, boxes)
    if with_sums.work <= DEARER * without.work or (
        with_sums.proved > without.proved + GAIN * len(boxes)
    ):
        enclosure.heed(chosen)


class _Trial(NamedTuple):
    """What coarse tubes prove: sum over boxes of bound / cut, at most 1 each; and operations."""

    proved: float
    work: float


def _tried(
    enclosure: BoxEnclosure, boxes: Sequence[tuple[FloatArray, FloatArray, float]]
) -> _Trial:
    proved, begun = 0.0, enclosure.work
    for low, high, cut in boxes:
        bound = enclosure.coarse(low, high, cut)
        proved += 1.0 if bound >= cut else bound / cut
    return _Trial(proved, enclosure.work - begun)
