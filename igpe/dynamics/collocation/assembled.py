"""The discretised problem as one nonlinear program in CasADi.

Slopes, and algebraic variables that the equations define, are eliminated. What the program is made
of whatever the mesh is translated and differentiated once (`parts`). Constraints over time, and
bounds that change with time, are those of the model built at the times of the mesh.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import casadi as ca
import numpy as np
from pyomo.core.expr.visitor import identify_variables
from scipy import sparse

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import Unsupported
from igpe.dynamics.collocation.element import (
    Assembly,
    Copies,
    Piece,
    Squares,
    at_times,
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
from igpe.dynamics.shooting.limits_of_model import ModelLimits, model_limits
from igpe.dynamics.shooting.residuals import unmeasured
from igpe.dynamics.simulation import quantities
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.symbols import stack
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.model import Instance, bounds_over_time, has_constant_bounds, with_bounds
from igpe.problem.problem import Problem
from igpe.solvers.base import Answer
from igpe.solvers.ipopt import SCALED, CompiledProgram, Ipopt, KnownOptimum
from igpe.solvers.nl import Scaled


@dataclass(frozen=True)
class Part:
    """Parts of one experiment's program that do not depend on the mesh.

    k          its place among the experiments
    index      (n_q,) places of its unknowns among the problem's
    linear, residuals   measured quantity -> what it is
    bounded    algebraic variables that are eliminated and have bounds: further values of `element`
               and `start`
    limits     the constraints of the model built at the measured times; None if there are none
    on_mesh    whether they and the bounds depend on the times at which the model is built
    at_start   whether implicit variables have values at the start too: something there needs them
    values     (n_x,) the states' values in the model
    """

    k: int
    experiment: Experiment
    ivp: InitialValueProblem
    index: IntArray
    element: Piece
    start: Piece
    linear: Mapping[int, tuple[float, FloatArray]]
    residuals: Mapping[int, Piece]
    bounded: Sequence[str]
    limits: ModelLimits | None
    on_mesh: bool
    at_start: bool
    values: FloatArray


def parts(problem: Problem, radau: Radau) -> list[Part]:
    """Each experiment made ready.

    raises  ModelError and Unsupported as the translation of equations and constraints does
    """
    return [_part(problem, k, radau) for k in range(len(problem.experiments))]


ROOM = 1e-8  # of what is scaled to magnitude 1
NONE: Mapping[int, float] = MappingProxyType({})


def _part(problem: Problem, k: int, radau: Radau) -> Part:
    experiment, instance, names = problem.experiments[k], problem.instances[k], problem.box.names
    last = float(instance.time.last()) if constraints(problem) else -np.inf
    ivp = compiled(problem).initial_value_problem(k, until=last)
    limits = model_limits(problem, k, ivp)
    of_model = bounds_over_time(instance)
    is_eliminated = ivp.algebraic.keys() - {*ivp.implicit}
    bounded = [n for n in ivp.algebraic if n in is_eliminated and n in of_model]
    steep = [f"d({n})" for n in instance.slopes if f"d({n})" in of_model]
    outputs = dict.fromkeys(experiment.measurements.column.tolist())
    lines = {k: line for k in outputs if (line := linear(ivp, k)) is not None}
    m, known = experiment.measurements, quantities(ivp)
    there = {r.name for r in limits.readings if r.time == ivp.t0} if limits else set[str]()
    needed = [known[n] for n in (*bounded, *there, *steep)]
    needed += [ivp.measured[c] for c in set(m.column[m.times[m.row] <= ivp.t0].tolist())]
    at_start = ivp.y.numel() > 0 and ca.depends_on(stack(needed), ivp.y)
    values = (instance.states[n][instance.first].value for n in ivp.states)
    return Part(
        k,
        experiment,
        ivp,
        index=np.array([names.index(n) for n in ivp.unknowns], dtype=np.intp),
        element=element(ivp, radau, bounded),
        start=start(ivp, bounded, implicit=at_start),
        linear=lines,
        residuals={k: residual(ivp, k) for k in outputs if k not in lines},
        bounded=bounded,
        limits=limits,
        on_mesh=bool(
            instance.inequalities
            or steep
            or not has_constant_bounds(instance)
            or (limits is not None and limits.joins_times)
        ),
        at_start=at_start,
        values=np.array([NO_IDEA if v is None else v for v in values], dtype=float),
    )


@dataclass(frozen=True)
class Run:
    """One experiment on its mesh.

    first     where its variables begin among all: states at each time, then implicit ones
    limits    the model's constraints; None if there are none
    instance  the model; if its bounds depend on time, built at the mesh's times
    """

    part: Part
    mesh: Mesh
    first: int
    limits: ModelLimits | None
    instance: Instance

    @cached_property
    def states(self) -> IntArray:
        """(n_x, n_times) places of the states."""
        n_x, n_t = self.part.ivp.x.numel(), len(self.mesh.times)
        return self.first + np.arange(n_x * n_t).reshape((n_x, n_t), order="F")

    @cached_property
    def implicit(self) -> IntArray:
        """(n_y, n) places of the implicit variables at the last n times: see `Part.at_start`."""
        n_y, n_t = self.part.ivp.y.numel(), len(self.mesh.times) - (not self.part.at_start)
        return self.first + self.states.size + np.arange(n_y * n_t).reshape((n_y, n_t), order="F")

    def implicit_at(self, at: IntArray) -> IntArray:
        """(n_y, n) places at the mesh's times `at`; anywhere at the start where there are none."""
        return np.asarray(self.implicit[:, np.maximum(at - (not self.part.at_start), 0)])

    @property
    def size(self) -> int:
        """How many variables it has."""
        return self.states.size + self.implicit.size

    def bounds_of(self, names: Sequence[str]) -> FloatArray:
        """(2, n, n_times) lower and upper bounds of states and algebraic variables."""
        own, times = np.array(self.instance.time, dtype=float), self.mesh.times
        at = np.searchsorted(own, times).clip(0, len(own) - 1)
        found = np.tile(np.array([-np.inf, np.inf])[:, None, None], (1, len(names), len(times)))
        of_model = self._bounds_of_model
        for i, name in ((i, n) for i, n in enumerate(names) if n in of_model):
            for side, of, end in zip(found, of_model[name], (-np.inf, np.inf), strict=True):
                # A model that keeps its times has changing bounds only there.
                is_known = (own[at] == times) | (len({*of}) == 1)
                side[i] = np.where(is_known, of[at], end)
        return found

    @cached_property
    def _bounds_of_model(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        return bounds_over_time(self.instance)

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
        trajectories = self.states[:, members], self.implicit_at(points)
        return Copies(
            self.part.element,
            np.vstack([*map(_by_element, trajectories), self._unknowns(count)]),
            np.vstack([times.T, _by_element(inputs), np.diff(self.mesh.edges)]),
        )

    def beginning(self) -> Copies:
        """Start values."""
        implicit = [self.implicit[:, :1]] if self.part.at_start else []
        at = np.vstack([self.states[:, :1], *implicit, self._unknowns(1)])
        first = self.inputs(np.zeros(1, dtype=np.intp), self.mesh.edges[:1])
        return Copies(self.part.start, at, first)

    def constraints(self) -> list[Copies]:
        """The model's constraints beyond its equations."""
        if self.limits is None:
            return []
        times = self.limits.times
        at = self.mesh.nearest(times)
        elements = self._elements(self.mesh.times[at])
        places = self.states[:, at], self.implicit_at(at), self._unknowns(1)
        numbers = [times, self.inputs(elements, times).ravel(order="F")]
        return [
            Copies(
                at_times(self.part.ivp, self.limits),
                np.concatenate([p.ravel(order="F") for p in places])[:, None],
                np.concatenate(numbers)[:, None],
            )
        ]

    def bounds(self) -> FloatArray:
        """(2, n) of the equations of all elements, of start values, and of `constraints`."""
        n, n_x, n_y = self.mesh.radau.points, len(self.states), len(self.implicit)
        zeros, sides = np.zeros((self.mesh.n_elements, n * (n_x + n_y))), []
        at_start = np.zeros(n_x + n_y * self.part.at_start)
        limits = () if self.limits is None else (self.limits.low, self.limits.high)
        for k, bounded in enumerate(self.bounds_of(self.part.bounded)):
            of_elements = bounded[:, self.mesh.members[:, 1:]].transpose(1, 2, 0)
            rows = np.hstack([zeros, of_elements.reshape(len(zeros), -1)]).ravel()
            sides.append(np.concatenate([rows, at_start, bounded[:, 0], *limits[k : k + 1]]))
        return np.array(sides)

    def residuals(self) -> list[Copies]:
        """The squares that are not of something linear."""
        m, predicted = self.part.experiment.measurements, []
        for k, of in self.part.residuals.items():
            mine = m.column == k
            times = m.times[m.row[mine]]
            at = np.searchsorted(self.mesh.times, times)
            x, y = self.states[:, at], self.implicit_at(at)
            inputs = self.inputs(self._elements(times), times)
            numbers = [times, *inputs, m.value[mine], 1 / m.sigma[mine]]
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

    def _elements(self, times: FloatArray) -> IntArray:
        """(n,) the elements of times; one at an edge belongs to the element before it."""
        return np.maximum(np.searchsorted(self.mesh.edges, times) - 1, 0)

    def _unknowns(self, count: int) -> IntArray:
        return np.repeat(self.part.index[:, None], count, axis=1)


def _by_element(values: Any) -> Any:
    """(n, n_elements, n_points) -> (n_points * n, n_elements)."""
    n, count, points = values.shape
    return values.transpose(2, 0, 1).reshape(points * n, count)


def _run(problem: Problem, part: Part, mesh: Mesh, first: int) -> Run:
    """An experiment on its mesh, of which times of the model become edges."""
    k, instance, limits = part.k, problem.instances[part.k], part.limits
    if part.on_mesh:
        mesh, fine = _built(problem, part, mesh)
        instance = fine.instances[k]
        _require_same_times(problem.starts[k].others, fine.starts[k].others)
        limits = model_limits(fine, k, part.ivp)
    if limits is not None and not mesh.has(limits.times).all():
        mesh = mesh.with_edges(limits.times)  # all: points between edges move
    return Run(part, mesh, first, limits, instance)


def _built(problem: Problem, part: Part, mesh: Mesh) -> tuple[Mesh, Problem]:
    """The model at the times of the mesh and its own; bounds of slopes among its inequalities."""
    fine = problem.built_at(part.k, mesh.times)
    own = np.array([t for t in fine.instances[part.k].time if t >= part.ivp.t0], dtype=float)
    if (new := own[~mesh.has(own)]).size:
        mesh = mesh.with_edges(new)
        fine = problem.built_at(part.k, mesh.times)
    instances = [*fine.instances]
    slopes = frozenset(f"d({name})" for name in instances[part.k].slopes)
    instances[part.k] = with_bounds(instances[part.k], slopes)
    return mesh, fine.with_instances(instances)


def _require_same_times(built: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse constraints without time whose rules depend on which times the model is built at.

    built, here  those of the model at the measured times, and on the mesh
    """
    for name, constraint in here.items():
        if name in built and _names(constraint.expr) != _names(built[name].expr):
            raise Unsupported(
                f"The constraint '{name}' depends on the times at which igpe builds the model, as "
                "a sum over m.t does. Write an integral (pyomo.dae.Integral), or name the times "
                "that the constraint is about."
            )


def _names(expression: Any) -> set[str]:
    return {v.name for v in identify_variables(expression)}


class Assembled:
    """A problem on one mesh for each experiment, as variables that have values.

    meshes  those given, with times of the model among the edges
    """

    def __init__(self, problem: Problem, ready: Sequence[Part], meshes: Sequence[Mesh]) -> None:
        self.problem = problem
        first, runs = len(problem.box), []
        for part, mesh in zip(ready, meshes, strict=True):
            runs.append(_run(problem, part, mesh, first))
            first += runs[-1].size
        self.runs, self.meshes = tuple(runs), [run.mesh for run in runs]
        self.values = np.zeros(first)

    def begin(self, start: Mapping[str, float], profiles: Sequence[Profile]) -> None:
        """Give the variables the values a solve begins at.

        start     unknown -> value; those left out begin at their guess or in the middle of their
                  bounds
        profiles  one per experiment, or none
        """
        box = self.problem.box
        guesses = {
            self.problem.start_unknown(state, e): given.guess
            for e in self.problem.experiments
            for state, given in e.start.items()
            if isinstance(given, Unknown) and given.guess is not None
        }
        given = {n: v for n, v in (guesses | dict(start)).items() if n in box.names}
        unknowns = box.mapping(box.middle) | given
        self.values[: len(box)] = box.vector(unknowns)
        for k, run in enumerate(self.runs):
            profile, ivp, times = profiles[k] if profiles else None, run.part.ivp, run.mesh.times
            for i, name in enumerate(ivp.states):
                otherwise = np.full(len(times), run.part.values[i])
                values = guess(name, run.part.experiment, times, profile, otherwise)
                self.values[run.states[i]] = values
            for i, name in enumerate(ivp.implicit):
                values = guess(
                    name, run.part.experiment, times, profile, np.full(len(times), ivp.guess[i])
                )
                self.values[run.implicit[i]] = values[-run.implicit.shape[1] :]
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
            of_states, of_implicit = run.bounds_of(ivp.states), run.bounds_of(ivp.implicit)
            for side, k, extreme, own in (
                (lower, 0, np.maximum, ivp.lower),
                (upper, 1, np.minimum, ivp.upper),
            ):
                side[run.states[:, 1:]] = of_states[k, :, 1:]
                last = of_implicit[k, :, -run.implicit.shape[1] :]
                side[run.implicit] = extreme(last, own[:, None])
            for places in run.implicit:
                size[places] = largest(self.values[places]) or NO_IDEA
        rows = [(run.equations(), run.beginning(), *run.constraints()) for run in self.runs]
        bounds = np.hstack([run.bounds() for run in self.runs])
        assembly = Assembly(
            self._squares(),
            [c for run in self.runs for c in run.residuals()],
            [copies for row in rows for copies in row],
            size,
            np.ones(len(bounds[0])),
            objective_size(self.problem),
        )
        assembly = replace(assembly, rows=assembly.row_factors(self.values))
        self._limits = lower, upper
        bounds = bounds * assembly.rows
        if (bounds[0] == bounds[1]).sum() > n:
            bounds += self._loosened()
        scaled = Scaled(assembly.program, size, assembly.rows, bounds, assembly.unit)
        self._cost = ca.Function("cost", [scaled.program["x"]], [scaled.program["f"]])
        self._compiled = CompiledProgram(scaled, {**SCALED, **solver.settings}, assembly.functions)

    def _loosened(self) -> FloatArray:
        """(2, m) for the bounds of all rows: the model's constraints with a little room.

        IPOPT refuses more equations than variables, also if they agree.
        """
        room = []
        for run in self.runs:
            count = 0 if run.limits is None else len(run.limits.low)
            rest = run.bounds().shape[1] - count
            room.append(np.repeat([0.0, ROOM], [rest, count]))
        return np.outer([-1.0, 1.0], np.concatenate(room))

    def _squares(self) -> Squares:
        n, hang = len(self.values), unmeasured(self.problem)
        each = [run.squares(n) for run in self.runs]
        matrix = np.zeros((hang.size, n))
        matrix[:, : hang.matrix.shape[1]] = hang.matrix * hang.weight[:, None]
        rows = sparse.vstack([*(s.matrix for s in each), sparse.csc_matrix(matrix)])
        return Squares(rows, np.concatenate([*(s.known for s in each), hang.known * hang.weight]))

    def solve(
        self,
        time_limit: float | None = None,
        known: Sequence[KnownOptimum] = (),
        held: Mapping[int, float] = NONE,
    ) -> Answer:
        """From the present values; see `igpe.solvers.ipopt.CompiledProgram.solve`.

        held  place of an unknown -> the value that it keeps
        """
        started = time.perf_counter()
        lower, upper = (side.copy() for side in self._limits)
        for i, value in held.items():
            self.values[i] = lower[i] = upper[i] = value
        ended = self._compiled.solve((self.values, lower, upper), time_limit, known)
        objective, scaled = np.nan, self._compiled.scaled
        if ended.point is not None:
            # What the solver leaves outside a bound is moved onto it.
            self.values = np.clip(ended.point, lower, upper)
            objective = float(self._cost(self.values / scaled.variables)) * scaled.objective
        return ended.answer(objective, time.perf_counter() - started)

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        return self.problem.box.mapping(self.values[: len(self.problem.box)])

    def trajectories(self) -> list[CollocatedTrajectory]:
        """As the variables now stand."""
        trajectories = []
        for run in self.runs:
            ivp, y = run.part.ivp, self.values[run.implicit]
            states = dict(zip(ivp.states, self.values[run.states], strict=True))
            y = y if run.part.at_start else np.hstack([y[:, :1], y])
            implicit = dict(zip(ivp.implicit, y, strict=True))
            trajectories.append(CollocatedTrajectory(run.mesh, states, implicit))
        return trajectories
