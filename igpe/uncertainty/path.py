"""The likelihood along a line of some unknowns, the others at their best: by shooting.

    PL(t) = min |r(x)|^2   with x_i = x_i* + t u_i for the unknowns i that are held, the others free

Everything a step needs comes with the residuals' exact derivative J. At the solution of one t the
linearised problem

    min |r + J_held u dt + J_free d|^2   inside the bounds

gives the tangent of the path (active bounds included) and, with d, the last Gauss-Newton
correction; its slope dPL/dt = 2 r' J_held u is exact there, as the free unknowns are at their best.

The likelihood along a line of some unknowns, by collocation: constraints are kept.

One nonlinear program is built and compiled, on the mesh that the courses at the estimate ask for;
along the path the held unknowns are fixed variables in it, and each solve begins where the last two
lead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyomo.environ as pyo

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.errors import EstimationFailed, Unsupported
from igpe.core.status import Status
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.collocation.guess import begin, first_meshes, sizes
from igpe.dynamics.collocation.mesh import Radau
from igpe.dynamics.collocation.transcription import Transcription, transcribe
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.base import require_plain
from igpe.dynamics.shooting.guess import Simulated, profiles
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Linearised, Search
from igpe.numerics.least_squares.bounded import bounded_solution
from igpe.problem.problem import Problem
from igpe.solvers.base import name_of
from igpe.solvers.ipopt import Ipopt, Prepared
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


NEAR = (("mu_init", 1e-6), ("bound_push", 1e-8), ("bound_frac", 1e-8))
"""IPOPT's options for a start that is nearly the solution."""

NEXT = 1e-8  # of bounds' width or value: an unknown so close to its bound lies on it


class Courses(NamedTuple):
    """All variables at a point of the path, and at the one it came from (None at the first)."""

    at: float
    values: FloatArray
    before: "tuple[float, FloatArray] | None" = None


@dataclass(frozen=True)
class Collocated:
    """A compiled program at its optimum.

    x, cost    unknowns (n,) and sum of squares there
    values     of all variables there
    """

    problem: Problem
    program: Transcription
    prepared: Prepared
    x: FloatArray
    cost: float
    values: FloatArray

    def solved(self) -> float | None:
        """Sum of squares after a solve from where the variables stand; None if it failed."""
        answer = self.prepared.solve()
        return answer.objective if answer.status is Status.CONVERGED else None

    def freed(self, point: Point) -> tuple[FloatArray, float]:
        """Unknowns and sum of squares of the optimum next to a point of a path."""
        _put(self.program, point.state.values)
        cost = self.solved()
        return (point.x, point.cost) if cost is None else (_unknowns(self.program), cost)


def collocated(problem: Problem, method: Collocation, start: Mapping[str, float]) -> Collocated:
    """Build the program and go to its optimum next to the start.

    raises Unsupported if the problem is not least squares, or the solver not IPOPT;
           EstimationFailed if there is no optimum to be found
    """
    require_plain(problem, "The profile likelihood by collocation", constraints_too=False)
    if not isinstance(method.solver, Ipopt):
        raise Unsupported(
            f"Profiles by collocation are local: they want Collocation(igpe.solvers.Ipopt()), not "
            f"{name_of(method.solver)}."
        )
    simulated = Simulated(problem, Automatic(), start)
    guesses = profiles(simulated, [{}] * len(problem.experiments))
    radau = Radau(method.points)
    meshes = first_meshes(problem, guesses, radau, method.tolerance, start=start)
    program = transcribe(problem, meshes)
    begin(program, start, guesses)
    solver = replace(method.solver, options=(*NEAR, *method.solver.options))
    prepared = solver.prepare(program.model, sizes(program, [start]))
    answer = prepared.solve()
    if answer.status is not Status.CONVERGED:
        raise EstimationFailed(
            f"Collocation found no optimum next to the estimate: {answer.message}. Give the "
            "estimate of igpe.Collocation().estimate(problem, ...).",
            answer.status,
        )
    values = _values(program)
    return Collocated(problem, program, prepared, _unknowns(program), answer.objective, values)


@dataclass(frozen=True)
class CollocatedPath:
    """See `igpe.uncertainty.path.Path`; it knows no slopes."""

    base: Collocated
    line: Line

    @property
    def reach(self) -> tuple[float, float]:
        """The least and largest t that the bounds allow."""
        return self.line.reach(self.base.x, self.base.problem.box)

    @property
    def origin(self) -> Point:
        """At t = 0, the estimate."""
        state = Courses(0.0, self.base.values)
        return Point(0.0, self.base.cost, np.nan, np.nan, self.base.x, state)

    def point(self, at: float, near: Point) -> Point | None:
        """PL(at), searched from where the way to `near` leads; None if IPOPT finds nothing."""
        program, problem = self.base.program, self.base.problem
        _put(program, _ahead(near.state, at))
        held = [program.unknowns[problem.box.names[i]][0] for i in self.line.held]
        where = self.base.x[list(self.line.held)] + at * self.line.direction
        for variable, value in zip(held, where, strict=True):
            variable.fix(float(value), skip_validation=True)
        try:
            cost = self.base.solved()
        finally:
            for variable in held:
                variable.unfix()
        if cost is None:
            return None
        state = Courses(at, _values(program), (near.state.at, near.state.values))
        return Point(at, cost, np.nan, np.nan, _unknowns(program), state)


def _ahead(state: Courses, at: float) -> FloatArray:
    """Along the line through the last two points."""
    if state.before is None or state.before[0] == state.at:
        return state.values
    then, values = state.before
    return np.asarray(state.values + (state.values - values) * (at - state.at) / (state.at - then))


def _values(program: Transcription) -> FloatArray:
    found = [v.value for v in program.model.component_data_objects(pyo.Var)]
    return np.array([np.nan if v is None else v for v in found], dtype=float)


def _put(program: Transcription, values: FloatArray) -> None:
    for variable, value in zip(program.model.component_data_objects(pyo.Var), values, strict=True):
        if not variable.fixed and np.isfinite(value):
            variable.set_value(float(value), skip_validation=True)


def _unknowns(program: Transcription) -> FloatArray:
    """(n,) where an interior point method stays next to a bound, it means the bound."""
    box = program.problem.box
    x = box.vector(program.parameters())
    for bound in (box.lower, box.upper):
        width = np.where(np.isfinite(box.upper - box.lower), box.upper - box.lower, 0.0)
        x = np.where(abs(x - bound) <= NEXT * np.maximum(abs(x), width), bound, x)
    return np.asarray(x)
