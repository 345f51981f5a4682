"""What the sections of `step3.py` share: figures, timing, and other solvers on the same problem."""

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from figures import Row, at_most

import igpe
from igpe.algebraic.base import Regression, Route, RouteResult
from igpe.algebraic.projected import BOUNDED, scaled_model
from igpe.algebraic.step import Posing, TargetForm, smooth_measurements
from igpe.core.status import Status
from igpe.equations.translate import to_pyomo
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.solvers.base import Solver

PEER_GAP = 1e-3
PEERS: dict[str, tuple[Solver, ...]] = {
    "none": (),
    "scip": (igpe.solvers.Scip(gap=PEER_GAP, feasibility=1e-7),),
    "all": (igpe.solvers.Scip(gap=PEER_GAP, feasibility=1e-7), igpe.solvers.MAiNGO(gap=PEER_GAP)),
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
    found: RouteResult

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
    structure, curves = (
        igpe.check(problem),
        smooth_measurements(problem, igpe.smoothing.GcvSpline()),
    )
    (group,) = structure.groups
    posing = Posing(problem, structure, curves, TargetForm.SLOPES)
    return lambda: posing.regression(group)


class Posed(NamedTuple):
    """The problem as another solver gets it: how it was made, a Pyomo model."""

    how: str
    model: Any


def strengthened(regression: Regression, found: RouteResult) -> Posed:
    """As `igpe.algebraic.GlobalSolver` gives it to solvers.

    Scaled by our optimum, a variable for each residual, our optimum as the
    start and its sum of squares as a cut-off.
    """
    fit, box = _optimum(regression, found), regression.box
    size = np.maximum(np.abs(fit.x), 1e-3 * (box.upper - box.lower))
    return Posed("strengthened", scaled_model(regression, fit.x, size, max(fit.cost, 1e-12)))


def plain(regression: Regression, found: RouteResult) -> Posed:
    """What `igpe.algebraic.Projected` itself gets, in the same scales and nothing else.

    Parameters and residuals are scaled as in `strengthened`, and the squares of the residuals as
    they stand are summed: no variables for them, no cut-off, no point to start from.
    """
    fit, box = _optimum(regression, found), regression.box
    size = np.maximum(np.abs(fit.x), 1e-3 * (box.upper - box.lower))
    lower, upper = (box.lower / size).tolist(), (box.upper / size).tolist()
    model: Any = pyo.ConcreteModel()
    model.v = pyo.Var(range(len(box)), bounds=lambda _, i: (lower[i], upper[i]))
    p, residual = regression.symbolic()
    v = ca.SX.sym("v", len(box))
    scaled = ca.substitute(residual, p, v * size) / np.sqrt(max(fit.cost, 1e-12))
    rows = to_pyomo(scaled, v, list(model.v.values()))
    model.objective = pyo.Objective(expr=sum(row**2 for row in rows))
    return Posed("plain", model)


def _optimum(regression: Regression, found: RouteResult) -> Fit:
    box = regression.box
    undetermined = box.mapping((box.lower + box.upper) / 2)
    ours = box.vector({**undetermined, **found.estimate.parameters})
    return GaussNewton().fit(regression.linearised, ours, box)


class Beside(NamedTuple):
    """How far another solver came.

    how      the problem was posed: see `Posed`
    seconds  wall time;  nodes: visited
    gap      of our incumbent to its bound, 1 if it has none, NaN if it failed
    """

    name: str
    how: str
    seconds: float
    gap: float
    nodes: int
    status: Status

    @property
    def title(self) -> str:
        """Solver and posing."""
        return f"{self.name}, {self.how}"

    def rows(self, case: str) -> Iterator[Row]:
        """Time and gap without a target."""
        yield at_most(case, f"{self.title}: {self.status.name}, time", self.seconds, "s")
        yield at_most(case, f"{self.title}: gap then, after {self.nodes} nodes", self.gap)


def beside(posed: Posed, solvers: Sequence[Solver], limit: float) -> Iterator[Beside]:
    """Other solvers on the problem, for at most so many seconds."""
    for solver in solvers:
        allowed = min(limit, MAINGO_LIMIT) if isinstance(solver, igpe.solvers.MAiNGO) else limit
        answer = solver.solve(posed.model, time_limit=allowed)
        bound = min(max(answer.lower_bound, 0.0), 1.0)
        gap = 1 - bound if answer.status in BOUNDED else math.nan
        name = type(solver).__name__
        yield Beside(name, posed.how, answer.seconds, gap, answer.iterations, answer.status)
