"""The likelihood along a line of some unknowns, by collocation: constraints are kept.

One nonlinear program is built and compiled, on the mesh that the courses at the estimate ask for;
along the path the held unknowns are fixed variables in it, and each solve begins where the last two
lead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyomo.environ as pyo

from igpe.core.arrays import FloatArray
from igpe.core.errors import EstimationFailed, Unsupported
from igpe.core.status import Status
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.collocation.guess import AtStart, begin, first_meshes, sizes
from igpe.dynamics.collocation.mesh import Radau
from igpe.dynamics.collocation.transcription import Transcription, transcribe
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.base import require_plain
from igpe.dynamics.shooting.guess import Simulated, profiles
from igpe.equations.reading.read import read_systems
from igpe.problem.problem import Problem
from igpe.solvers.base import name_of
from igpe.solvers.ipopt import Ipopt, Prepared
from igpe.uncertainty.path import Line, Point

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
            f"Profiles by collocation are local: they want Collocation(igpe.Ipopt()), not "
            f"{name_of(method.solver)}."
        )
    systems = read_systems(problem)
    simulated = Simulated(problem, systems, Automatic(), start)
    guesses = profiles(simulated, [{}] * len(problem.experiments))
    known, radau = AtStart(start, systems), Radau(method.points)
    meshes = first_meshes(problem, guesses, radau, method.tolerance, known=known)
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
