"""The likelihood along a line of some unknowns, the others at their best: by shooting.

    PL(t) = min |r(x)|^2   with x_i = x_i* + t u_i for the unknowns i that are held, the others free

Everything a step needs comes with the residuals' exact derivative J. At the solution of one t the
linearised problem

    min |r + J_held u dt + J_free d|^2   inside the bounds

gives the tangent of the path (active bounds included) and, with d, the last Gauss-Newton
correction; its slope dPL/dt = 2 r' J_held u is exact there, as the free unknowns are at their best.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Linearised, Search
from igpe.numerics.least_squares.bounded import bounded_solution
from igpe.uncertainty.likelihood import Likelihood


class Point(NamedTuple):
    """A point of a path.

    at         t
    cost       PL(t)
    slope      dPL/dt; NaN where the method does not give it
    curvature  d2PL/dt2 of the linearised problem; NaN likewise
    x          (n,) all unknowns
    state      what the method needs to go on from here
    """

    at: float
    cost: float
    slope: float
    curvature: float
    x: FloatArray
    state: Any = None


class Solved(NamedTuple):
    """The last integration of a point by shooting: unknowns (n,), residuals and derivative."""

    x: FloatArray
    at: Linearised


class Path(Protocol):
    """A line of some unknowns, along which the others are optimised."""

    @property
    def reach(self) -> tuple[float, float]:
        """The least and largest t that the bounds allow."""
        ...

    @property
    def origin(self) -> Point:
        """At t = 0, the estimate."""
        ...

    def point(self, at: float, near: Point) -> Point | None:
        """PL(at), searched from a point solved before; None if it cannot be computed."""
        ...


class Line(NamedTuple):
    """x[held] = origin + t * direction.

    held  places of the unknowns;  direction  (k,), in their units
    """

    held: tuple[int, ...]
    direction: FloatArray

    def reach(self, x: FloatArray, box: Box) -> tuple[float, float]:
        """The t that keep all held unknowns in their bounds."""
        held = list(self.held)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.array([box.lower[held] - x[held], box.upper[held] - x[held]])
            ends = np.where(self.direction == 0, [[-np.inf], [np.inf]], ends / self.direction)
        return float(ends.min(axis=0).max()), float(ends.max(axis=0).min())


@dataclass(frozen=True)
class ShootingPath:
    """A path whose points are found by Gauss-Newton on the compiled residuals.

    search  of the free unknowns; its `absolute` is what matters in PL
    """

    base: Likelihood
    line: Line
    search: Search

    @property
    def reach(self) -> tuple[float, float]:
        """See `Path`."""
        return self.line.reach(self.base.x, self.base.box)

    @property
    def origin(self) -> Point:
        """See `Path`."""
        return self._corrected(0.0, self.base.x, self.base.at)

    def point(self, at: float, near: Point) -> Point | None:
        """See `Path`. The last Gauss-Newton correction is counted in, not integrated."""
        x, free = self._predicted(at, near), self._free
        known: dict[bytes, Linearised] = {}

        def reduced(values: FloatArray) -> Linearised | None:
            whole = x.copy()
            whole[free] = values
            found = self.base.residuals(whole)
            if found is None:
                return None
            known[values.tobytes()] = found
            return Linearised(found.residual, found.jacobian[:, free])

        if not free:
            reduced(x[free])
            best = x[free]
        else:
            best = self.search.fit(reduced, x[free], self._box).x
        if best.tobytes() not in known:
            return None
        x[free] = best
        return self._corrected(at, x, known[best.tobytes()])

    @property
    def _free(self) -> list[int]:
        return [i for i in range(len(self.base.x)) if i not in self.line.held]

    @property
    def _box(self) -> Box:
        """Of the free unknowns."""
        return self.base.box.select(self.base.box.names[i] for i in self._free)

    def _predicted(self, at: float, near: Point) -> FloatArray:
        """(n,) where the problem linearised at `near` has its optimum."""
        free, box, state = self._free, self._box, near.state
        x = state.x.copy()
        if free:
            moved = state.at.residual + self._along(state.at) * (at - near.at)
            low, high = box.lower - x[free], box.upper - x[free]
            x[free] += bounded_solution(state.at.jacobian[:, free], -moved, low, high)
        held = list(self.line.held)
        x[held] = self.base.x[held] + at * self.line.direction
        return self.base.box.clip(x)

    def _along(self, at: Linearised) -> FloatArray:
        """(m,) derivative of the residuals by t."""
        return np.asarray(at.jacobian[:, list(self.line.held)] @ self.line.direction)

    def _corrected(self, at: float, x: FloatArray, there: Linearised) -> Point:
        free, box = self._free, self._box
        along, by_free = self._along(there), there.jacobian[:, free]
        residual, whole = there.residual, x.copy()
        left = along
        if free:
            low, high = box.lower - x[free], box.upper - x[free]
            step = bounded_solution(by_free, -residual, low, high)
            residual = residual + by_free @ step
            whole[free] = box.clip(x[free] + step)
            held_there = on_bounds(whole[free], Linearised(residual, by_free), box)
            moving = by_free[:, ~held_there]
            if moving.shape[1]:
                loose = np.full(moving.shape[1], np.inf)
                left = along + moving @ bounded_solution(moving, -along, -loose, loose)
        return Point(
            at,
            cost=float(residual @ residual),
            slope=2 * float(residual @ along),
            curvature=2 * float(left @ left),
            x=whole,
            state=Solved(x, there),
        )
