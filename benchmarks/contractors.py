"""Branch and bound with the contractors of codac (Lohner's method), for problems of one experiment.

What a user of codac writes: parameters are states without slopes, and a box is dropped where its
tube is empty or the sum of squares over it exceeds the cut.
"""

import heapq
import time
from typing import Any, NamedTuple

import numpy as np

import igpe
from igpe.equations.compiled import compiled
from igpe.equations.operations import ARITHMETIC, Graph

SLICES = (50, 400)  # of a tube; the more where the fewer show PROMISING of the cut
PROMISING = 0.15


class Paved(NamedTuple):
    """Boxes that were examined, and the bound on the sum of squares that is proved."""

    boxes: int
    bound: float


class Contractors:
    """The problem in codac's terms."""

    def __init__(self, problem: igpe.Problem, cut: float) -> None:
        import codac  # noqa: PLC0415 - a peer; without it this is a row less

        self.codac, self.cut, self.box = codac, cut, problem.box
        ivp = compiled(problem).initial_value_problem(0)
        self.states, m = int(ivp.x.numel()), problem.experiments[0].measurements
        self.rules = {**ARITHMETIC, "SQ": codac.sqr, "EXP": codac.exp, "SQRT": codac.sqrt}
        symbols = [ivp.x, ivp.q, ivp.u, ivp.t]
        self.measured, self.start = (Graph.of(e, symbols) for e in (ivp.measured, ivp.start))
        order = [self.states + problem.box.names.index(n) for n in ivp.unknowns]
        self.places = [list(range(self.states)), order]
        z = codac.VectorVar(self.states + len(order))
        slopes = Graph.of(ivp.f, symbols).evaluate(
            lambda column, i: z[self.places[column][i]], lambda v: v + 0 * z[0], self._apply
        )
        self.lohner = codac.CtcLohner(
            codac.AnalyticFunction([z], codac.vec(*slopes, *(0 * z[0] for _ in order)))
        )
        end = float(m.times.max())
        self.begin, self.end = float(ivp.t0), end
        self.rows: list[tuple[float, int, float, float]] = []
        for r, c, value, sigma in zip(m.row, m.column, m.value, m.sigma, strict=True):
            self.rows.append((float(m.times[r]), int(c), float(value), float(sigma)))

    def _apply(self, name: str, operands: list[Any]) -> Any:
        return self.rules[name](*operands)

    def _of(self, graph: Graph, ranges: Any) -> list[Any]:
        interval = self.codac.Interval
        return graph.evaluate(
            lambda column, i: ranges[self.places[column][i]], interval, self._apply
        )

    def bound(self, low: np.ndarray, high: np.ndarray) -> float:
        """Proved on the sum of squares over a box; infinite where no solution is below the cut."""
        found = 0.0
        for slices in SLICES:
            found = max(found, self._bound(low, high, slices))
            if found > self.cut or found < PROMISING * self.cut:
                break
        return found

    def _bound(self, low: np.ndarray, high: np.ndarray, slices: int) -> float:
        c = self.codac
        every = (self.end - self.begin) / slices
        domain = c.create_tdomain([self.begin, self.end], every, True)
        free = [[-c.oo, c.oo]] * self.states
        parameters = [list(map(float, p)) for p in zip(low, high, strict=True)]
        x = c.SlicedTube(domain, c.IntervalVector([*free, *parameters]))
        begin = self._of(self.start, c.IntervalVector([*free, *parameters]))
        x.set(c.IntervalVector([*([v.lb(), v.ub()] for v in begin), *parameters]), self.begin)
        try:
            self.lohner.contract(x, c.TimePropag.FWD)
            total = 0.0
            for at, column, value, sigma in self.rows:
                y = self._of(self.measured, x(at))[column]
                total += (max(y.lb() - value, value - y.ub(), 0.0) / sigma) ** 2
            return np.inf if total > self.cut or x.is_empty() else total
        except RuntimeError:  # no enclosure of a step was found
            return 0.0

    def pave(self, seconds: float) -> Paved:
        """Best first, along the axis that is the widest part of its range."""
        began, boxes, count = time.perf_counter(), 0, 1
        queue = [(0.0, 0, self.box.lower, self.box.upper)]
        while queue and time.perf_counter() - began < seconds:
            known, _, low, high = heapq.heappop(queue)
            found, boxes = max(known, self.bound(low, high)), boxes + 1
            if found > self.cut:
                continue
            axis = int(np.argmax((high - low) / (self.box.upper - self.box.lower)))
            left, right = high.copy(), low.copy()
            left[axis] = right[axis] = 0.5 * (low[axis] + high[axis])
            for half in ((low, left), (right, high)):
                heapq.heappush(queue, (found, count, *half))
                count += 1
        return Paved(boxes, min([self.cut, *(one[0] for one in queue)]))
