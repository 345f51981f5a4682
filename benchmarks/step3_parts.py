"""What the sections of `step3.py` share: figures, timing, and other solvers on the same problem."""

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from figures import Row, at_most

import igpe
from igpe.algebraic.base import Found, Route
from igpe.algebraic.curves import smooth_measurements
from igpe.algebraic.global_solver import BOUNDED, _Scaled
from igpe.algebraic.posing import Form, Posing
from igpe.algebraic.regression import Regression
from igpe.least_squares.gauss_newton import GaussNewton
from igpe.solvers.base import Solver
from igpe.status import Status

PEER_GAP = 1e-3
PEERS: dict[str, tuple[Solver, ...]] = {
    "none": (),
    "scip": (igpe.Scip(gap=PEER_GAP, feasibility=1e-7),),
    "all": (igpe.Scip(gap=PEER_GAP, feasibility=1e-7), igpe.MAiNGO(gap=PEER_GAP)),
}
MAINGO_LIMIT = 60.0  # s, at most

Make = Callable[[], Regression]


def within(gap: float, asked: float) -> bool:
    """Whether a gap is as small as asked, but for the rounding of its division."""
    return gap <= asked * (1 + 1e-9)


class Timed(NamedTuple):
    """A route's answer to one problem, the wall time it took, and the processor's."""

    seconds: float
    processor: float
    found: Found

    @property
    def gap(self) -> float:
        """That is proved, relative to the objective."""
        return self.found.estimate.gap

    def closed(self, gap: float) -> bool:
        """Whether the gap is proved."""
        return within(self.gap, gap)

    @property
    def boxes(self) -> int:
        """Boxes that were bounded, of all stages; 0 if another method answered."""
        stages = self.found.estimate.trail or (self.found.estimate,)
        return sum(int(n) for s in stages for n in re.findall(r"(\d+) boxes", s.method))


def timed(regression: Regression, route: Route) -> Timed:
    """One call, with all that is translated and compiled for it."""
    wall, processor = time.perf_counter(), time.process_time()
    found = route.estimate(regression)
    return Timed(time.perf_counter() - wall, time.process_time() - processor, found)


def typical(make: Make, route: Route, times: int = 5) -> Timed:
    """The median of so many calls, each on a regression that nothing was computed of before."""
    runs = sorted((timed(make(), route) for _ in range(times)), key=lambda run: run.seconds)
    return runs[len(runs) // 2]


def posed(problem: igpe.Problem) -> Make:
    """Makes the problem's one regression: slopes of its smoothed measurements, as in the paper."""
    structure, curves = igpe.check(problem), smooth_measurements(problem, igpe.GcvSpline())
    (group,) = structure.groups
    posing = Posing(problem, structure, curves, Form.SLOPES)
    return lambda: posing.regression(group)


class Beside(NamedTuple):
    """How far another solver came.

    seconds  wall time;  nodes: visited
    gap      of our incumbent to its bound, 1 if it has none, NaN if it failed
    """

    name: str
    seconds: float
    gap: float
    nodes: int
    status: Status

    def rows(self, case: str) -> Iterator[Row]:
        """Time and gap without a target."""
        yield at_most(case, f"{self.name}: {self.status.name}, time", self.seconds, "s")
        yield at_most(case, f"{self.name}: gap then, after {self.nodes} nodes", self.gap)


def beside(
    regression: Regression, found: Found, solvers: Sequence[Solver], limit: float
) -> Iterator[Beside]:
    """Other solvers on the problem as `igpe.GlobalSolver` gives it them, with our incumbent.

    They get parameters and residuals of order one, Arrhenius terms centred, and our sum of squares
    as a cut-off.
    """
    box = regression.box
    undetermined = box.mapping((box.lower + box.upper) / 2)
    ours = box.vector({**undetermined, **found.estimate.parameters})
    fit = GaussNewton().fit(regression.linearised, ours, box)
    for solver in solvers:
        allowed = min(limit, MAINGO_LIMIT) if isinstance(solver, igpe.MAiNGO) else limit
        answer = solver.solve(_Scaled(regression, fit).model, time_limit=allowed)
        bound = min(max(answer.lower_bound, 0.0), 1.0)
        gap = 1 - bound if answer.status in BOUNDED else math.nan
        name = type(solver).__name__
        yield Beside(name, answer.seconds, gap, answer.iterations, answer.status)
