"""Pavings of the plane of two unknowns: boxes proved in a region, proved out, and its edge."""

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from igpe.core.arguments import is_count, require
from igpe.core.arrays import FloatArray
from igpe.core.deadline import require_going_on, session
from igpe.core.errors import ProblemError
from igpe.core.markup import Rows, Shown
from igpe.core.names import Suggesting
from igpe.dynamics.shooting.reweighting import held_weights
from igpe.problem.problem import Problem, takes_problem
from igpe.proofs.compiled import require_numba
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.extent import Extents
from igpe.proofs.prover.posed import posed
from igpe.proofs.prover.search import proved_objective, split
from igpe.results.certified_region import CertifiedRegion
from igpe.results.plots.axes import Plot, plot_paving

PLANE, DEGREE, STEPS = 2, 3, 20_000
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
