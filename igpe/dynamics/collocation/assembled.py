"""The discretised problem straight in CasADi, without a Pyomo model on the mesh.

The same program as `transcription`, less what can be eliminated: slopes, and algebraic
variables that the equations define.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import casadi as ca
import numpy as np
from scipy import sparse

from igpe.core.arrays import FloatArray
from igpe.dynamics.collocation.assembled_parts import Parts
from igpe.dynamics.collocation.assembled_run import Run
from igpe.dynamics.collocation.assembly import Assembly, Squares
from igpe.dynamics.collocation.guess import (
    NO_IDEA,
    Course,
    guess,
    largest,
    objective_size,
    state_sizes,
    unknown_sizes,
)
from igpe.dynamics.collocation.mesh import Mesh
from igpe.dynamics.shooting.base import Profile
from igpe.dynamics.shooting.residuals import unmeasured
from igpe.solvers.base import Answer
from igpe.solvers.compiled_ipopt import SCALED, Compiled, Known
from igpe.solvers.ipopt import Ipopt
from igpe.solvers.nl import Scaled


class Assembled:
    """A problem on one mesh for each experiment; see `igpe.dynamics.collocation.posed.Posed`."""

    refinable = True

    def __init__(self, ready: Parts, meshes: Sequence[Mesh]) -> None:
        self.problem, self.meshes = ready.problem, list(meshes)
        first, runs = len(self.problem.box), []
        for part, mesh in zip(ready.each, meshes, strict=True):
            runs.append(Run(part, mesh, first))
            first += runs[-1].size
        self.runs = tuple(runs)
        self.values = np.zeros(first)

    def begin(self, start: Mapping[str, float], profiles: Sequence[Profile]) -> None:
        """See `igpe.dynamics.collocation.guess.begin`."""
        box = self.problem.box
        unknowns = box.mapping(box.middle) | {n: v for n, v in start.items() if n in box.names}
        self.values[: len(box)] = box.vector(unknowns)
        for k, run in enumerate(self.runs):
            profile, ivp, times = profiles[k] if profiles else None, run.part.ivp, run.mesh.times
            for i, name in enumerate(ivp.states):
                otherwise = np.full(len(times), run.part.values[i])
                found = guess(name, run.part.experiment, times, profile, otherwise)
                self.values[run.states[i]] = found
            for i, name in enumerate(ivp.implicit):
                otherwise = np.full(len(times) - 1, ivp.guess[i])
                found = guess(name, run.part.experiment, times[1:], profile, otherwise)
                self.values[run.implicit[i]] = found
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
            self._describe(run, size, lower, upper)
        constraints = [c for run in self.runs for c in (run.equations(), run.beginning())]
        bounds = [
            np.concatenate(side) for side in zip(*(r.bounds() for r in self.runs), strict=True)
        ]
        whole = Assembly(
            self._squares(),
            [c for run in self.runs for c in run.residuals()],
            constraints,
            size,
            np.ones(len(bounds[0])),
            objective_size(self.problem),
        )
        whole = replace(whole, rows=whole.row_factors(self.values))
        self._limits = lower, upper
        scaled = Scaled(whole.program, size, whole.rows, np.array(bounds) * whole.rows, whole.unit)
        self._cost = ca.Function("cost", [scaled.program["x"]], [scaled.program["f"]])
        self._compiled = Compiled(scaled, {**SCALED, **solver.settings}, whole.functions)

    def _describe(self, run: Run, size: FloatArray, lower: FloatArray, upper: FloatArray) -> None:
        """Sizes and bounds of the courses."""
        ivp, part = run.part.ivp, run.part
        courses = {n: self.values[run.states[i]] for i, n in enumerate(ivp.states)}
        size[run.states] = np.array(list(state_sizes(part.experiment, courses).values()))[:, None]
        lower[run.states[:, 1:]] = part.states.lower[:, None]
        upper[run.states[:, 1:]] = part.states.upper[:, None]
        lower[run.implicit] = part.implicit.lower[:, None]
        upper[run.implicit] = part.implicit.upper[:, None]
        for places in run.implicit:
            size[places] = largest(self.values[places]) or NO_IDEA

    def _squares(self) -> Squares:
        n, hang = len(self.values), unmeasured(self.problem)
        each = [run.squares(n) for run in self.runs]
        matrix = np.zeros((hang.size, n))
        matrix[:, : hang.matrix.shape[1]] = hang.matrix * hang.weight[:, None]
        rows = sparse.vstack([*(s.matrix for s in each), sparse.csc_matrix(matrix)])
        return Squares(rows, np.concatenate([*(s.known for s in each), hang.known * hang.weight]))

    def solve(self, time_limit: float | None, known: Sequence[Known]) -> Answer:
        """From the present values; see `igpe.solvers.ipopt.Prepared.solve`."""
        begun = time.perf_counter()
        columns = self.values, *self._limits
        places = [(k, list(k.variables)) for k in known]
        ended = self._compiled.solve(columns, time_limit, places)
        objective, scaled = np.nan, self._compiled.scaled
        if ended.point is not None:
            # What the solver leaves outside a bound is moved onto it.
            self.values = np.clip(ended.point, *self._limits)
            objective = float(self._cost(self.values / scaled.variables)) * scaled.objective
        return ended.answer(objective, time.perf_counter() - begun)

    @property
    def handles(self) -> tuple[int, ...]:
        """What `Known` names the unknowns by: their places."""
        return tuple(range(len(self.problem.box)))

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        return self.problem.box.mapping(self.values[: len(self.problem.box)])

    def courses(self) -> list[Course]:
        """As the variables now stand."""
        found = []
        for run in self.runs:
            states = {n: self.values[run.states[i]] for i, n in enumerate(run.part.ivp.states)}
            implicit = {
                n: self.values[run.implicit[i]] for i, n in enumerate(run.part.ivp.implicit)
            }
            padded = {n: np.array([v[0], *v]) for n, v in implicit.items()}
            found.append(Course(run.mesh, states, padded))
        return found
