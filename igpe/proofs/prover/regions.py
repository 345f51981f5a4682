"""Certified confidence regions: no parameters that explain the data well lie anywhere else.

One search with two cuts. A box is done with where its sum of squares exceeds the region's level, or
where it lies in an allowed box and exceeds what makes the best parameters nearly optimal. Allowed
boxes come from points on the region's edge (`paving.py`), widened by part of the precision. Where
the search meets parameters of the region outside of all allowed boxes, it follows the edge from
there: an allowed box grows, or a separate region has been found.

For unknown standard deviations the level is S + (S / d) k F(level, k, d), which increases with S:
from the best parameters it is an upper bound of the true one, from the lower bound a lower one.
"""

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from igpe.core.arguments import FLAG, FRACTION, POSITIVE, require
from igpe.core.arrays import FloatArray
from igpe.core.deadline import if_in_time, session
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.progress import Progress, Tell, teller, with_bar
from igpe.core.status import Status
from igpe.dynamics.shooting.refine import require_inactive
from igpe.problem.model import without_constraints
from igpe.problem.problem import Problem, takes_problem
from igpe.proofs.prover.certify import (
    FEW,
    NOTHING_PROVED,
    WHERE_INACTIVE,
    certificate_fields,
    progress_report,
    require_provable,
    what_to_prove,
)
from igpe.proofs.prover.enclosure import BoxBounds, BoxEnclosure
from igpe.proofs.prover.paving import Extents, RegionPoint
from igpe.proofs.prover.posed import Dynamic
from igpe.proofs.prover.search import (
    NO_BOUNDS,
    BoxNode,
    BoxSearch,
    Halves,
    Incumbent,
    proved_objective,
)
from igpe.results.certificates import CertifiedRegion as CertifiedRegion  # noqa: PLC0414 - exported
from igpe.results.certificates import SeparateRegion

MARGIN = 0.6  # of the precision: how far an allowed box reaches beyond points of the region
SHORT = 0.25  # of the precision: share of the rise by which these points stay below the inner level
TINY = 1e-9  # relative; thresholds are rounded by that, away from what they claim
EXACT = 1e-13  # of the sum of squared measurements: a smaller objective is a fit without errors
NEAR = 3.0  # widths of an allowed box around it in which boxes are cut along its faces


class Rises(NamedTuple):
    """The rise of the sum of squares S that the level of confidence allows: factor S + term."""

    factor: float
    term: float

    def above(self, least: float) -> float:
        """The level of a least sum of squares."""
        return least * (1 + self.factor) + self.term

    def of(self, least: float) -> float:
        """The rise itself."""
        return least * self.factor + self.term

    def least(self, level: float) -> float:
        """The least sum of squares that has the level; not negative."""
        return max((level - self.term) / (1 + self.factor), 0.0)


def levels_of(level: float, unknowns: int, degrees: int) -> Rises:
    """By chi squared, or where there are degrees of freedom (not 0) by F.

    unknowns  that are held at once: 1, or all of them
    """
    if not degrees:
        return Rises(0.0, float(special.chdtri(unknowns, 1 - level)))
    quantile = float(special.fdtri(unknowns, degrees, level))
    return Rises(unknowns * quantile / degrees, 0.0)


@dataclass
class Allowed:
    """An allowed box of a region, and the points that it was made of.

    lower, upper  (n,) of the points, without the margin
    """

    lower: FloatArray
    upper: FloatArray
    best: RegionPoint
    points: list[RegionPoint]

    def joined(self, other: "Allowed") -> "Allowed":
        """One for both."""
        best = min(self.best, other.best, key=lambda p: p.cost)
        ends = np.minimum(self.lower, other.lower), np.maximum(self.upper, other.upper)
        return Allowed(*ends, best, self.points + other.points)


class _BetterFound(Exception):
    """The search met parameters that are better than the best ones by more than the precision."""


@dataclass
class RegionSearch(BoxSearch):
    """A search for all parameters up to a level.

    cut      the region's level: what boxes outside must exceed
    least    what boxes inside must exceed
    margin   of allowed boxes, as a share of their widths
    heeding  whether the search begins anew at better parameters
    """

    least: float = 0.0
    margin: float = 0.0
    heeding: bool = True
    extents: Extents = field(init=False)
    allowed: list[Allowed] = field(default_factory=list)

    def boxes(self) -> list[tuple[FloatArray, FloatArray]]:
        """The allowed boxes, with their margins."""
        return [self._box(one) for one in self.allowed]

    def counted(self) -> str:
        """How many regions are known so far, in words."""
        return f"{len(self.allowed)} region{'s' * (len(self.allowed) > 1)}"

    def _box(self, one: Allowed) -> tuple[FloatArray, FloatArray]:
        width = one.upper - one.lower
        margin = self.margin * np.where(width > 0, width, TINY * self.extents.range)
        ends = one.lower - margin, one.upper + margin
        return np.maximum(ends[0], self.lower), np.minimum(ends[1], self.upper)

    @property
    def lower_bound(self) -> float:
        """Proven on the sum of squares over the whole box."""
        return max(0.0, min([self.least, *(self.tree[k].bound for k in self.open)]))

    def add(self, start: RegionPoint) -> None:
        """Follow the region from a point of it; what is near becomes an allowed box."""
        best = self.extents.optimum(start)
        points = [start, best]
        known = next(
            (one for one in self.allowed if _meets(self._box(one), (best.x, best.x))), None
        )
        widths = np.zeros(len(start.x)) if known is None else known.upper - known.lower
        for axis in np.flatnonzero(self.upper > self.lower).tolist():
            for sign in (-1.0, 1.0):
                points += self.extents.edge(start if known else best, axis, sign, widths[axis])
        values = np.array([p.x for p in points])
        new = Allowed(values.min(axis=0), values.max(axis=0), best, points)
        others = list(self.allowed)
        while True:  # a box that grows may meet others
            box = self._box(new)
            near = [one for one in others if _meets(self._box(one), box)]
            if not near:
                break
            others = [one for one in others if not any(one is n for n in near)]
            for one in near:
                new = new.joined(one)
        self.allowed = [*others, new]  # at once: Ctrl-C leaves no box of the tree without its own

    def _is_allowed(self, lower: FloatArray, upper: FloatArray) -> bool:
        return any((a <= lower).all() and (upper <= b).all() for a, b in self.boxes())

    def _goal(self, node: BoxNode) -> tuple[float, str]:
        if self._is_allowed(node.lower, node.upper):
            return (self.least if self.least > 0 else -1.0), "within"
        return self.cut, "bound"

    def _look(self, node: BoxNode, middle: float) -> None:
        point = 0.5 * (node.lower + node.upper)
        is_outside = not self._is_allowed(point, point)
        if not middle < (self.cut if is_outside else self.least):
            return
        start = self.extents.at(point)  # of large boxes the middle's residuals may be anything
        if start is None:
            return
        if self.heeding and start.cost < self.least * (1 - TINY):
            raise _BetterFound(point)
        if is_outside and start.cost < self.cut:
            self.add(start)

    def _halves(
        self, node: BoxNode, bounds: BoxBounds
    ) -> tuple[Halves | None, tuple[float, float], int]:
        # bounds of trial halves are those of other boxes
        face = self._along_face(node)
        return super()._halves(node, bounds) if face is None else (face, NO_BOUNDS, -1)

    def _along_face(self, node: BoxNode) -> Halves | None:
        """Cut along a face of an allowed box where one is near: what lies outside is soon gone."""
        lower, upper = node.lower, node.upper
        for low, high in self.boxes():
            if not ((low < upper) & (lower < high) | (lower == upper)).all():
                continue
            width = np.where(high > low, high - low, TINY * self.extents.range)
            excess = np.stack([low - lower, upper - high]) / width
            if not excess.max() > 0 or (upper - lower > NEAR * width).any():
                continue
            side, axis = (int(k) for k in np.unravel_index(np.argmax(excess), excess.shape))
            return _cut_at(lower, upper, axis, float((low, high)[side][axis]))
        return None


def _meets(one: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray]) -> bool:
    return bool((one[0] <= other[1]).all() and (other[0] <= one[1]).all())


def _cut_at(lower: FloatArray, upper: FloatArray, axis: int, at: float) -> Halves:
    left, right = upper.copy(), lower.copy()
    left[axis] = right[axis] = at
    return (lower, left), (right, upper)


@dataclass(frozen=True)
class RegionProof:
    """Settings of a certified region; see `certify_region`."""

    level: float = 0.95
    precision: float = 0.01
    simultaneous: bool = False
    time_limit: float = 60.0

    def __post_init__(self) -> None:
        rules = {
            "level": FRACTION, "precision": FRACTION,
            "simultaneous": FLAG, "time_limit": POSITIVE,
        }  # fmt: skip
        for name, rule in rules.items():
            value = getattr(self, name)
            require(rule.holds(value), "certify_region", name, value, rule.expected)

    def certify(self, problem: Problem, estimate: Any, tell: Tell) -> CertifiedRegion:
        """The proof.

        raises  as `igpe.certify_region`
        """
        began = time.perf_counter()
        problem, dynamic, parameters = what_to_prove(problem, estimate, tell, "igpe.certify_region")
        tell("Preparing the proof (about a minute the first time on this machine)")
        best = Incumbent(problem, dynamic, self.precision)
        deadline = np.inf
        point, heeding = problem.box.vector(parameters), True
        while True:
            search = if_in_time(lambda point=point: self._search(best, point))  # type: ignore[misc]
            if search is None:
                given = ", ".join(f"{n} = {v:.6g}" for n, v in parameters.items())
                raise KeyboardInterrupt(NOTHING_PROVED.format(given))
            search.heeding = heeding
            if not np.isfinite(deadline):
                deadline = time.perf_counter() + self.time_limit
                tell("Computing a proven enclosure of the likelihood region")
            try:
                status = search.run(deadline, progress_report(tell, search, search.counted))
                return self._certificate(best, search, status, began)
            except _BetterFound as found:
                before = best.objective
                best.better(found.args[0])
                heeding, point = best.objective < before, best.point

    def _levels(self, dynamic: Dynamic, problem: Problem, point: FloatArray) -> tuple[Rises, int]:
        unknowns = len(point) if self.simultaneous else 1
        if problem.sigma_known:
            return levels_of(self.level, unknowns, 0), 0
        free = (dynamic.lower < point) & (point < dynamic.upper)
        rows = dynamic.unmeasured.size + sum(len(run.labels) for run in dynamic.experiments)
        degrees = rows - int(free.sum())
        if degrees <= 0:
            raise ProblemError(
                f"The problem has {rows} measurements and {int(free.sum())} free unknowns, so "
                "the data do not determine the size of the errors. Give standard deviations: "
                "Experiment(sigma=...)."
            )
        return levels_of(self.level, unknowns, degrees), degrees

    def _search(self, best: Incumbent, point: FloatArray) -> RegionSearch:
        """The search, before its first box; it has the allowed box of the best parameters."""
        dynamic = best.dynamic
        if not np.isfinite(best.objective):
            best.first(point)
        for _ in range(2):  # the optimum next to the best parameters may be a little better
            levels, _ = self._levels(dynamic, best.problem, best.point)
            rise = levels.of(best.objective)
            aim = levels.above(best.objective) - (1 + SHORT) * self.precision * rise
            extents = Extents(dynamic, aim, rise, 0.05 * self.precision)
            first = extents.at(best.point)
            if first is None:
                raise EstimationFailed(LOST, Status.INTEGRATION_BROKE)
            near = extents.optimum(first)
            if near.cost >= first.cost - 1e-3 * self.precision * rise:
                break
            best.take(near.x, proved_objective(dynamic, near.x))
        _require_errors(best)
        levels, _ = self._levels(dynamic, best.problem, best.point)  # it may have left a bound
        rise = levels.of(best.objective)
        top = levels.above(best.objective) * (1 + TINY)
        inner = levels.above(best.objective) - self.precision * rise
        enclosure = BoxEnclosure(dynamic, 3 if len(point) <= FEW else 2)
        search = RegionSearch(
            enclosure, top, dynamic.lower, dynamic.upper,
            least=levels.least(inner), margin=MARGIN * self.precision,
        )  # fmt: skip
        search.extents = extents
        search.add(near)
        return search

    def _certificate(
        self, best: Incumbent, search: RegionSearch, status: Status, began: float
    ) -> CertifiedRegion:
        problem, dynamic = best.problem, best.dynamic
        levels, degrees = self._levels(dynamic, problem, best.point)
        regions, undecided = _regions(search, dynamic, levels)
        return CertifiedRegion(
            **certificate_fields(problem, best, search, status, began),
            gap_wanted=self.precision,
            level=self.level,
            simultaneous=self.simultaneous,
            degrees=degrees,
            rise=levels.of(best.objective),
            precision=self.precision,
            regions=regions,
            undecided=undecided,
        )


LOST = (
    "The model and its derivatives could not be integrated at the best parameter values. Give "
    "other parameter values for which both remain finite."
)


def _require_errors(best: Incumbent) -> None:
    """Refuse a fit without errors of unknown size: its region is a point, but for rounding."""
    schedules = [run.schedule for run in best.dynamic.experiments]
    size = sum(float(((c.value * c.weight) ** 2).sum()) for c in schedules)
    if not best.problem.sigma_known and best.objective <= EXACT * size:
        raise ProblemError(
            f"The sum of squares at the best parameter values, {best.objective:.3g}, is 0 up to "
            "rounding, so it does not determine the size of the errors. Give standard deviations: "
            "Experiment(sigma=...)."
        )


def _regions(
    search: RegionSearch, dynamic: Dynamic, levels: Rises
) -> tuple[tuple[SeparateRegion, ...], tuple[tuple[float, ...], ...]]:
    """What the tree leaves of the allowed boxes, and of the boxes that are not decided outside."""
    level, regions = levels.above(search.lower_bound) * (1 - TINY), []
    boxes = search.boxes()
    kept: list[list[BoxNode]] = [[] for _ in boxes]
    outside: list[BoxNode] = []
    for node in search.tree:
        if node.reason not in ("within", "open", "contracted"):
            continue
        at = next((k for k, box in enumerate(boxes) if _holds(box, node)), None)
        loose = node.reason != "contracted" or node.cut < search.cut
        if at is not None and loose:
            kept[at].append(node)
        elif node.reason == "open":
            outside.append(node)
    for one, box, nodes in zip(search.allowed, boxes, kept, strict=True):
        low, high = box
        if not outside:  # the tree knows more than the allowed boxes
            if not nodes:
                continue
            low = np.min([node.lower for node in nodes], axis=0)
            high = np.max([node.upper for node in nodes], axis=0)
        inside = _proved_inside(one, dynamic, (low, high), level)
        top = proved_objective(dynamic, one.best.x)
        lower, upper, best = (tuple(v.tolist()) for v in (low, high, one.best.x))
        regions.append(SeparateRegion(lower, upper, best, top, inside))
    regions.sort(key=lambda r: r.objective)
    if not outside:
        return tuple(regions), ()
    ends = (
        np.min([node.lower for node in outside], axis=0),
        np.max([node.upper for node in outside], axis=0),
    )
    return tuple(regions), tuple(tuple(v.tolist()) for v in ends)


def _holds(box: tuple[FloatArray, FloatArray], node: BoxNode) -> bool:
    return bool((box[0] <= node.lower).all() and (node.upper <= box[1]).all())


def _proved_inside(
    one: Allowed, dynamic: Dynamic, box: tuple[FloatArray, FloatArray], level: float
) -> tuple[tuple[float, ...], ...]:
    """Points that are proved to lie in the region, as far out along each unknown as any."""
    points = [p for p in one.points if p.cost <= level and (box[0] <= p.x).all()]
    points = [p for p in points if (p.x <= box[1]).all()]
    proved: dict[tuple[float, ...], bool] = {}

    def is_inside(p: RegionPoint) -> bool:
        key = tuple(p.x.tolist())
        if key not in proved:
            proved[key] = proved_objective(dynamic, p.x) <= level
        return proved[key]

    for axis in range(len(box[0])):
        for sign in (-1.0, 1.0):
            ordered = sorted(points, key=lambda p: -sign * float(p.x[axis]))
            next((p for p in ordered if is_inside(p)), None)
    inside = [np.array(key) for key, holds in proved.items() if holds]
    ends = [
        max(inside, key=lambda x: s * x[j]) for j in range(len(box[0])) for s in (-1, 1) if inside
    ]
    return tuple(dict.fromkeys(tuple(x.tolist()) for x in ends))


@takes_problem
@with_bar
@session()
def certify_region(
    problem: Problem,
    estimate: Any = None,
    level: float = 0.95,
    precision: float = 0.01,
    *,
    simultaneous: bool = False,
    time_limit: float = 60.0,
    progress: Progress = None,
) -> CertifiedRegion:
    """Compute a proven enclosure of all parameter values that fit the data well enough.

    The region consists of all points (values of the parameters) whose sum of squares is at most
    S_min + `rise`, where S_min is the minimum within the bounds. The extent of the region along one
    unknown is the profile likelihood interval of this unknown. The proof gives an outer
    enclosure, which contains the whole region, and an inner one: points that are proved to belong
    to the region. The result proves or refutes practical identifiability within the bounds (Raue et
    al., Bioinformatics 25 (2009) 1923).

    problem       the problem, with bounds for all unknowns
    estimate      a Result, an Estimate, or a dict {unknown: value}: the best known values. If
                  igpe finds better values, it continues with those. If `estimate` is None, igpe
                  searches for the best values first
    level         confidence level, between 0 and 1
    precision     largest allowed difference between the outer and the inner endpoint of an
                  interval, as a fraction of the width of the interval
    simultaneous  False: the level holds for each unknown separately, as in `igpe.profile` (one
                  degree of freedom); True: it holds for all unknowns together. As in
                  `igpe.profile`, `rise` follows from the chi-squared distribution if standard
                  deviations are given, and otherwise from the F distribution
    time_limit    time limit of the proof in seconds, not counting compilation. At the limit, or on
                  Ctrl-C, igpe returns what it has proved so far
    progress      a function that receives each message; or True, False or None, as for
                  `igpe.estimate`
    raises        ProblemError if neither standard deviations nor residuals determine the size of
                  the errors; other errors as in `igpe.certify`
    """
    estimate = require_provable(problem, estimate, "igpe.certify_region")
    proof = RegionProof(level, precision, simultaneous, time_limit)
    region = proof.certify(problem.formed(without_constraints), estimate, teller(progress))
    require_inactive(problem, np.array(region.parameters), "igpe.certify_region", WHERE_INACTIVE)
    return region
