"""The discretised problem straight in CasADi, without a Pyomo model on the mesh.

The same program as `transcription`, less what can be eliminated: slopes, and algebraic variables
that the equations define. What it is made of whatever the mesh is translated and differentiated
once (`parts`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np
from scipy import sparse

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import ModelError
from igpe.dynamics.collocation.element import (
    Assembly,
    Copies,
    Piece,
    Squares,
    element,
    linear,
    residual,
    start,
)
from igpe.dynamics.collocation.mesh import (
    NO_IDEA,
    CollocatedTrajectory,
    Mesh,
    Radau,
    guess,
    largest,
    objective_size,
    state_sizes,
    unknown_sizes,
)
from igpe.dynamics.shooting.base import Profile, constraints
from igpe.dynamics.shooting.residuals import unmeasured
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.solvers.base import Answer
from igpe.solvers.ipopt import SCALED, CompiledProgram, Ipopt, KnownOptimum
from igpe.solvers.nl import Scaled


@dataclass(frozen=True)
class Part:
    """Parts of one experiment's program that do not depend on the mesh.

    index      (n_q,) places of its unknowns among the problem's
    linear, residuals   measured quantity -> what it is
    states, implicit, bounded   (2, n) lower and upper bounds at all times, of states and implicit
                                variables and of `element`'s values
    values     (n_x,) the states' values in the model
    """

    experiment: Experiment
    ivp: InitialValueProblem
    index: IntArray
    element: Piece
    start: Piece
    linear: Mapping[int, tuple[float, FloatArray]]
    residuals: Mapping[int, Piece]
    states: FloatArray
    implicit: FloatArray
    bounded: FloatArray
    values: FloatArray


def parts(problem: Problem, radau: Radau) -> list[Part] | None:
    """Each experiment made ready; None where it needs the user's Pyomo model on the mesh.

    Constraints beyond the equations do, bounds that change with time, or of slopes, a model with
    times of its own, and what is measured or bounded at the start by way of implicit variables.
    """
    if constraints(problem):
        return None
    try:
        equations = compiled(problem)
    except ModelError:
        return None
    if not all(system.any_times for system in equations.systems):
        return None
    every = []
    for k in range(len(problem.experiments)):
        part = _part(problem, k, equations.initial_value_problem(k), radau)
        if part is None:
            return None
        every.append(part)
    return every


FREE = (-np.inf, np.inf)


def _bounds(series: Any) -> tuple[float, float] | None:
    """At all times; None if they change."""
    bounds = set()
    for variable in series.values():
        if variable.is_variable_type():
            lower, upper = variable.bounds
            bounds.add((-np.inf if lower is None else lower, np.inf if upper is None else upper))
    if not bounds:
        return FREE
    return bounds.pop() if len(bounds) == 1 else None


def _part(problem: Problem, k: int, ivp: InitialValueProblem, radau: Radau) -> Part | None:
    experiment, instance, names = problem.experiments[k], problem.instances[k], problem.box.names
    families = {**instance.states, **instance.series}
    own = {n: _bounds(s) for n, s in families.items()}
    of_slopes = {_bounds(s) for s in instance.slopes.values()}
    if None in own.values() or not of_slopes <= {FREE}:
        return None
    bounded = [n for n in ivp.algebraic if n not in ivp.implicit and own.get(n, FREE) != FREE]
    outputs = dict.fromkeys(experiment.measurements.column.tolist())
    lines = {k: line for k in outputs if (line := linear(ivp, k)) is not None}
    m = experiment.measurements
    at_start = set(m.column[m.times[m.row] <= ivp.t0].tolist())
    there = [*(ivp.measured[k] for k in at_start), *(ivp.algebraic[n] for n in bounded)]
    if any(any(ca.which_depends(output, ivp.y, 1)) for output in there):
        return None
    values = (instance.states[n][instance.first].value for n in ivp.states)
    return Part(
        experiment,
        ivp,
        index=np.array([names.index(n) for n in ivp.unknowns], dtype=np.intp),
        element=element(ivp, radau, bounded),
        start=start(ivp, bounded),
        linear=lines,
        residuals={k: residual(ivp, k) for k in outputs if k not in lines},
        states=np.array([own[n] for n in ivp.states], dtype=float).reshape(-1, 2).T,
        implicit=np.array([ivp.lower, ivp.upper]),
        bounded=np.array([own[n] for n in bounded], dtype=float).reshape(-1, 2).T,
        values=np.array([NO_IDEA if v is None else v for v in values], dtype=float),
    )


@dataclass(frozen=True)
class Run:
    """One experiment on its mesh.

    first  where its variables begin among all: states at each time, then implicit ones
    """

    part: Part
    mesh: Mesh
    first: int

    @cached_property
    def states(self) -> IntArray:
        """(n_x, n_times) places of the states."""
        n_x, n_t = self.part.ivp.x.numel(), len(self.mesh.times)
        return self.first + np.arange(n_x * n_t).reshape((n_x, n_t), order="F")

    @cached_property
    def implicit(self) -> IntArray:
        """(n_y, n_times - 1) places of the implicit variables, which have no value at the start."""
        n_y, n_t = self.part.ivp.y.numel(), len(self.mesh.times) - 1
        return self.first + self.states.size + np.arange(n_y * n_t).reshape((n_y, n_t), order="F")

    @property
    def size(self) -> int:
        """How many variables it has."""
        return self.states.size + self.implicit.size

    def inputs(self, elements: IntArray, times: FloatArray) -> FloatArray:
        """(n_u, n) at times in elements: what jumps at an element's end has not done so yet."""
        rows = np.zeros((len(self.part.ivp.tables), len(times)))
        segments = {e: self.part.ivp.input_segment(self.mesh.edges[e]) for e in set(elements)}
        for k, (e, t) in enumerate(zip(elements, times, strict=True)):
            a, b = segments[e]
            rows[:, k] = a + b * t
        return rows

    def equations(self) -> Copies:
        """The equations of all elements."""
        members, count = self.mesh.members, self.mesh.n_elements
        points = members[:, 1:]
        times = self.mesh.times[points]
        elements = np.repeat(np.arange(count), self.mesh.radau.points)
        inputs = self.inputs(elements, times.ravel()).reshape(-1, *times.shape)
        trajectories = self.states[:, members], self.implicit[:, points - 1]
        return Copies(
            self.part.element,
            np.vstack([*map(_by_element, trajectories), self._unknowns(count)]),
            np.vstack([times.T, _by_element(inputs), np.diff(self.mesh.edges)]),
        )

    def beginning(self) -> Copies:
        """Start values."""
        at = np.vstack([self.states[:, :1], self._unknowns(1)])
        first = self.inputs(np.zeros(1, dtype=np.intp), self.mesh.edges[:1])
        return Copies(self.part.start, at, first)

    def bounds(self) -> list[FloatArray]:
        """Lower and upper ones of the constraints: equations of all elements, then start values."""
        n, n_x = self.mesh.radau.points, len(self.states)
        zeros = np.zeros(n * (n_x + len(self.implicit)))
        return [
            np.concatenate([
                np.tile(np.concatenate([zeros, np.tile(side, n)]), self.mesh.n_elements),
                np.zeros(n_x),
                side,
            ])
            for side in self.part.bounded
        ]

    def residuals(self) -> list[Copies]:
        """The squares that are not of something linear."""
        m, predicted = self.part.experiment.measurements, []
        for k, of in self.part.residuals.items():
            mine = m.column == k
            times = m.times[m.row[mine]]
            at = np.searchsorted(self.mesh.times, times)
            x, y = self.states[:, at], self.implicit[:, np.maximum(at - 1, 0)]
            elements = np.maximum(np.searchsorted(self.mesh.edges, times) - 1, 0)
            numbers = [times, *self.inputs(elements, times), m.value[mine], 1 / m.sigma[mine]]
            predicted.append(
                Copies(of, np.vstack([x, y, self._unknowns(len(times))]), np.vstack(numbers))
            )
        return predicted

    def squares(self, n: int) -> Squares:
        """Linear residuals, of n variables."""
        m = self.part.experiment.measurements
        matrices, known = [sparse.csc_matrix((0, n))], [np.zeros(0)]
        for k, (constant, factors) in self.part.linear.items():
            mine = np.flatnonzero(m.column == k)
            weight, at = 1 / m.sigma[mine], np.searchsorted(self.mesh.times, m.times[m.row[mine]])
            rows = np.arange(len(mine))
            own = sparse.csc_matrix((len(mine), n))
            for i in np.flatnonzero(factors):
                places = rows, self.states[i, at]
                own = own + sparse.csc_matrix((factors[i] * weight, places), own.shape)
            matrices.append(own)
            known.append((m.value[mine] - constant) * weight)
        return Squares(sparse.vstack(matrices), np.concatenate(known))

    def _unknowns(self, count: int) -> IntArray:
        return np.repeat(self.part.index[:, None], count, axis=1)


def _by_element(values: Any) -> Any:
    """(n, n_elements, n_points) -> (n_points * n, n_elements)."""
    n, count, points = values.shape
    return values.transpose(2, 0, 1).reshape(points * n, count)


class Assembled:
    """A problem on one mesh for each experiment, as variables that have values.

    refinable  whether other meshes are possible
    """

    refinable = True

    def __init__(self, problem: Problem, ready: Sequence[Part], meshes: Sequence[Mesh]) -> None:
        self.problem, self.meshes = problem, list(meshes)
        first, runs = len(problem.box), []
        for part, mesh in zip(ready, meshes, strict=True):
            runs.append(Run(part, mesh, first))
            first += runs[-1].size
        self.runs = tuple(runs)
        self.values = np.zeros(first)

    def begin(self, start: Mapping[str, float], profiles: Sequence[Profile]) -> None:
        """See `Transcription.begin`."""
        box = self.problem.box
        unknowns = box.mapping(box.middle) | {n: v for n, v in start.items() if n in box.names}
        self.values[: len(box)] = box.vector(unknowns)
        for k, run in enumerate(self.runs):
            profile, ivp, times = profiles[k] if profiles else None, run.part.ivp, run.mesh.times
            for i, name in enumerate(ivp.states):
                otherwise = np.full(len(times), run.part.values[i])
                values = guess(name, run.part.experiment, times, profile, otherwise)
                self.values[run.states[i]] = values
            for i, name in enumerate(ivp.implicit):
                otherwise = np.full(len(times) - 1, ivp.guess[i])
                values = guess(name, run.part.experiment, times[1:], profile, otherwise)
                self.values[run.implicit[i]] = values
            at = ca.Function("start", [ivp.q], [ivp.start])(self.values[run.part.index])
            self.values[run.states[:, 0]] = np.asarray(at).ravel()

    def prepare(self, solver: Ipopt, starts: Sequence[Mapping[str, float]]) -> None:
        """Translate for the solver, scaled by where the variables now stand."""
        n, box = len(self.values), self.problem.box
        of_unknowns = unknown_sizes(self.problem, starts)
        size, lower, upper = np.ones(n), np.full(n, -np.inf), np.full(n, np.inf)
        size[: len(box)] = [of_unknowns[name] for name in box.names]
        lower[: len(box)], upper[: len(box)] = box.lower, box.upper
        for run in self.runs:
            part, ivp = run.part, run.part.ivp
            trajectories = {n: self.values[run.states[i]] for i, n in enumerate(ivp.states)}
            sizes = state_sizes(part.experiment, trajectories).values()
            size[run.states] = np.array(list(sizes))[:, None]
            for side, k in ((lower, 0), (upper, 1)):
                side[run.states[:, 1:]] = part.states[k][:, None]
                side[run.implicit] = part.implicit[k][:, None]
            for places in run.implicit:
                size[places] = largest(self.values[places]) or NO_IDEA
        constraints = [c for run in self.runs for c in (run.equations(), run.beginning())]
        bounds = [
            np.concatenate(side) for side in zip(*(r.bounds() for r in self.runs), strict=True)
        ]
        assembly = Assembly(
            self._squares(),
            [c for run in self.runs for c in run.residuals()],
            constraints,
            size,
            np.ones(len(bounds[0])),
            objective_size(self.problem),
        )
        assembly = replace(assembly, rows=assembly.row_factors(self.values))
        self._limits = lower, upper
        scaled = Scaled(
            assembly.program, size, assembly.rows, np.array(bounds) * assembly.rows, assembly.unit
        )
        self._cost = ca.Function("cost", [scaled.program["x"]], [scaled.program["f"]])
        self._compiled = CompiledProgram(scaled, {**SCALED, **solver.settings}, assembly.functions)

    def _squares(self) -> Squares:
        n, hang = len(self.values), unmeasured(self.problem)
        each = [run.squares(n) for run in self.runs]
        matrix = np.zeros((hang.size, n))
        matrix[:, : hang.matrix.shape[1]] = hang.matrix * hang.weight[:, None]
        rows = sparse.vstack([*(s.matrix for s in each), sparse.csc_matrix(matrix)])
        return Squares(rows, np.concatenate([*(s.known for s in each), hang.known * hang.weight]))

    def solve(self, time_limit: float | None, known: Sequence[KnownOptimum]) -> Answer:
        """From the present values; see `igpe.solvers.ipopt.Prepared.solve`."""
        started = time.perf_counter()
        columns = self.values, *self._limits
        places = [(k, list(k.variables)) for k in known]
        ended = self._compiled.solve(columns, time_limit, places)
        objective, scaled = np.nan, self._compiled.scaled
        if ended.point is not None:
            # What the solver leaves outside a bound is moved onto it.
            self.values = np.clip(ended.point, *self._limits)
            objective = float(self._cost(self.values / scaled.variables)) * scaled.objective
        return ended.answer(objective, time.perf_counter() - started)

    @property
    def handles(self) -> tuple[int, ...]:
        """What `KnownOptimum` names the unknowns by: their places."""
        return tuple(range(len(self.problem.box)))

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        return self.problem.box.mapping(self.values[: len(self.problem.box)])

    def trajectories(self) -> list[CollocatedTrajectory]:
        """As the variables now stand."""
        trajectories = []
        for run in self.runs:
            ivp, y = run.part.ivp, self.values[run.implicit]
            states = dict(zip(ivp.states, self.values[run.states], strict=True))
            implicit = dict(zip(ivp.implicit, np.hstack([y[:, :1], y]), strict=True))
            trajectories.append(CollocatedTrajectory(run.mesh, states, implicit))
        return trajectories
