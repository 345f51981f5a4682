"""Simultaneous correction: all parameters and all trajectories at once, by Radau collocation.

Step 5 of the method (Michalik, Chachuat, Marquardt 2009, IGPE). Unlike shooting it keeps boundary
conditions and inequalities over time, and an unstable trajectory cannot run away from it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import finishing, stopped
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.collocation.assembled import Assembled, ProgramParts, parts
from igpe.dynamics.collocation.global_collocation import GlobalCollocation
from igpe.dynamics.collocation.guess import Course, begin, course, first_meshes, sizes
from igpe.dynamics.collocation.mesh import Mesh, Radau, most_elements
from igpe.dynamics.collocation.transcription import transcribe
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.base import (
    Profile,
    is_plain,
    require_known_sigma,
    require_numbers,
    require_plain,
)
from igpe.dynamics.shooting.refine import put_on_bounds
from igpe.dynamics.shooting.residuals import FINISH, Residuals
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.problem.problem import Problem
from igpe.solvers.base import Answer, Solver
from igpe.solvers.ipopt import KNOWN, Ipopt, KnownOptimum, PreparedModel


class Poser:
    """Discretises a problem on any mesh: in CasADi where nothing is lost by it, else in Pyomo."""

    def __init__(self, problem: Problem, radau: Radau) -> None:
        self.problem = problem
        self._parts: ProgramParts | None = parts(problem, radau)

    def on(self, meshes: Sequence[Mesh]) -> "Program":
        """The problem on these meshes; a model with times of its own may know better ones."""
        if self._parts is not None:
            return Assembled(self._parts, meshes)
        return Transcribed(self.problem, meshes)

    @property
    def assembled(self) -> bool:
        """Whether it does without Pyomo."""
        return self._parts is not None

    def in_pyomo(self) -> None:
        """From now on in Pyomo, whose program has more variables and other ways to an optimum."""
        self._parts = None


class Transcribed:
    """The user's Pyomo model on the mesh."""

    def __init__(self, problem: Problem, meshes: Sequence[Mesh]) -> None:
        self.problem = problem
        self._program = transcribe(problem, meshes)
        self.meshes, self.refinable = self._program.meshes, self._program.refinable
        self._prepared: PreparedModel | None = None

    def begin(self, start: Mapping[str, float], profiles: Sequence[Profile]) -> None:
        """See `igpe.dynamics.collocation.guess.begin`."""
        begin(self._program, start, profiles)

    def prepare(self, solver: Ipopt, starts: Sequence[Mapping[str, float]]) -> None:
        """See `Assembled.prepare`."""
        self._prepared = solver.prepare(self._program.model, sizes(self._program, starts))

    def solve(self, time_limit: float | None, known: Sequence[KnownOptimum]) -> Answer:
        """See `Assembled.solve`."""
        assert self._prepared is not None, "prepared before it is solved"
        return self._prepared.solve(time_limit, known)

    @property
    def handles(self) -> tuple[object, ...]:
        """Pyomo variables."""
        return tuple(self._program.unknowns[n][0] for n in self.problem.box.names)

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        return self._program.parameters()

    def courses(self) -> list[Course]:
        """As the variables now stand."""
        return [course(run) for run in self._program.runs]


Program: TypeAlias = Assembled | Transcribed
"""A problem on one mesh for each experiment, as variables that have values."""

WORTH_REFINING = 1e-3  # relative distance to the best objective on the first mesh
SAME_POINT = 1e-3  # relative distance of unknowns that are the same optimum
FLAT = 1e-9  # relative change of the objective below which unknowns may wander in a valley
TINY = 1e-12  # of the data's squares: objectives of exact data are rounding errors, equally good
RESOLVED = 0.1  # of the tolerance: a mesh this good needs no finer one to prove it
SMALL = 1e-3  # of the bounds' width: below it the change of an unknown counts absolutely


@dataclass(frozen=True)
class CollocationFit:
    """One solved program: where it ended, and the courses there."""

    answer: Answer
    parameters: Mapping[str, float]
    meshes: Sequence[Mesh]
    courses: tuple[Mapping[str, FloatArray], ...]
    profiles: tuple[Profile, ...]
    trail: tuple[Estimate, ...] = field(default=())


@dataclass(frozen=True)
class Collocation:
    """Least squares on the discretised equations, refined until the optimum stands still.

    solver           Ipopt; any other is given the first mesh alone, with bounds on the courses, and
                     may prove a bound on its objective (see `GlobalCollocation`)
    points           Radau points of an element
    tolerance        the optimum stands still when no unknown moves by more than this from mesh to
                     mesh, relative to max(|value|, 1e-3 of its bounds' width); a mesh whose own
                     error estimate is a tenth of it is not refined at all
    max_refinements  meshes after the first
    time_limit       s, for each call, or each fit where weights follow the model; None: no limit
    seed             of the starts from which a solver that is not Ipopt is given its first point
    """

    solver: Solver = Ipopt()
    points: int = 3
    tolerance: float = 1e-5
    max_refinements: int = 5
    time_limit: float | None = None
    seed: int = 0

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamics.shooting.base.Estimator.estimate`."""
        local = replace(self, solver=self.solver if isinstance(self.solver, Ipopt) else Ipopt())
        return iteratively_reweighted(
            problem,
            start,
            lambda p, s: self._or_start(p, s, profiles),
            lambda p, s: local._or_start(p, s, profiles),
        )

    def _or_start(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile]
    ) -> Estimate:
        """The estimate; the start as it is, if the first solve is interrupted."""
        try:
            found = self.estimate_each(problem, [start], [profiles])[0]
        except KeyboardInterrupt:
            if not is_plain(problem) or not start:
                raise
            residuals = Residuals(problem, Sundials())
            with finishing(), allowance(FINISH):
                residuals(problem.box.vector(start))
            fit = residuals.best_fit()
            return Estimate(dict(start), fit.cost, fit.status, "the start, not corrected")
        try:
            return found if stopped() else put_on_bounds(problem, found)
        except KeyboardInterrupt:
            return replace(found, status=Status.INTERRUPTED)

    def estimate_each(
        self,
        problem: Problem,
        starts: Sequence[Mapping[str, float]],
        profiles_of: Sequence[Sequence[Profile]] = (),
    ) -> list[Estimate]:
        """One Estimate for each start, in their order.

        All are corrected on the same first mesh, which is built once. The best, and distinct ones
        within 1e-3 of its objective, are refined; the others are given as on the first mesh.
        A model that keeps its own discretisation is solved on it and not refined. A solver that is
        not Ipopt searches globally, once for all starts: the Estimates are then the same. Ctrl-C
        after the first solve ends with what is there: status INTERRUPTED, objective infinite where
        there is nothing.

        profiles_of  for each start the profiles of `estimate`; or nothing
        raises       Unsupported if the loss is not least squares, or unknowns vary with time at
                     breaks that a model with times of its own does not have
        """
        require_plain(problem, "Collocation", constraints_too=False, varying_too=False)
        require_known_sigma(problem, "Collocation")
        require_numbers(problem, "Collocation.estimate_each")
        if not starts:
            return []
        if not isinstance(self.solver, Ipopt):
            return [self._global(self.solver).estimate(problem, starts, profiles_of)] * len(starts)
        started = time.perf_counter()
        guesses = list(profiles_of) or [()] * len(starts)
        radau = Radau(self.points)
        meshes = first_meshes(problem, guesses[0], radau, self.tolerance, start=starts[0])
        poser = Poser(problem, radau)
        fits: list[CollocationFit] = []
        try:
            program = self._solve_all(poser.on(meshes), starts, guesses, fits, started)
            if poser.assembled and not any(f.answer.status.usable for f in fits):
                poser.in_pyomo()
                fits.clear()
                program = self._solve_all(poser.on(meshes), starts, guesses, fits, started)
        except KeyboardInterrupt:
            if not fits:
                raise
            return self._interrupted(fits, starts, started)
        if not program.refinable:
            return [self._estimate(fit, fit.answer.status, started) for fit in fits]
        return self._refine_best(poser, fits, started)

    def _solve_all(
        self,
        program: Program,
        starts: Sequence[Mapping[str, float]],
        guesses: Sequence[Sequence[Profile]],
        fits: list[CollocationFit],
        started: float,
    ) -> Program:
        """The program solved from all starts, one after the other, into `fits`."""
        program.begin(starts[0], guesses[0])
        program.prepare(self._local(), starts)
        for start, profiles in zip(starts, guesses, strict=True):
            program.begin(start, profiles)
            known = [_known(program, f) for f in fits if f.answer.status is Status.CONVERGED]
            fit = _solve(program, start, self._left(started), known)
            if fit.answer.message == KNOWN:
                fit = next(f for f in fits if _same(program.problem, fit, f, SAME_POINT))
            fits.append(fit)
        return program

    def _interrupted(
        self, fits: list[CollocationFit], starts: Sequence[Mapping[str, float]], started: float
    ) -> list[Estimate]:
        """What has been solved on the first mesh; the other starts as they were."""
        status = Status.INTERRUPTED
        solved = [self._estimate(fit, status, started) for fit in fits]
        waiting = starts[len(fits) :]
        return [*solved, *(Estimate(dict(s), np.inf, status, "not corrected") for s in waiting)]

    def _refine_best(
        self, poser: Poser, fits: list[CollocationFit], started: float
    ) -> list[Estimate]:
        problem = poser.problem
        refined: list[tuple[CollocationFit, Estimate]] = []
        found: list[Estimate] = [self._estimate(fit, fit.answer.status, started) for fit in fits]
        order = sorted(range(len(fits)), key=lambda i: _rank(fits[i]))
        tiny = _tiny(problem)
        best = fits[order[0]].answer.objective
        for i in order:
            fit = fits[i]
            if not fit.answer.status.usable or _far(fit.answer.objective, best, tiny):
                continue
            twin = next((e for f, e in refined if _same(problem, f, fit, SAME_POINT)), None)
            try:
                found[i] = twin or self._refine(poser, fit, started)
            except KeyboardInterrupt:
                return [replace(e, status=Status.INTERRUPTED) for e in found]
            refined.append((fit, found[i]))
        return found

    def _refine(self, poser: Poser, fit: CollocationFit, started: float) -> Estimate:
        problem = poser.problem
        solver = self._local()
        status = Status.ITERATION_LIMIT
        most = [most_elements(m.n_elements) for m in fit.meshes]
        for _ in range(self.max_refinements):
            if fit.answer.status is Status.CONVERGED and _resolved(fit, RESOLVED * self.tolerance):
                status = Status.CONVERGED
                break
            left = self._left(started)
            meshes = [
                m.refined(list(c.values()), self.tolerance)
                for m, c in zip(fit.meshes, fit.courses, strict=True)
            ]
            if left == 0.0 or any(m.n_elements > n for m, n in zip(meshes, most, strict=True)):
                status = Status.TIME_LIMIT if left == 0.0 else status
                break
            before = self._estimate(fit, fit.answer.status, started)
            program = poser.on(meshes)
            program.begin(fit.parameters, fit.profiles)
            program.prepare(solver, [fit.parameters])
            finer = _solve(program, fit.parameters, left)
            if not finer.answer.status.usable:
                break
            stands = _same(problem, fit, finer, self.tolerance) or _flat(fit, finer, _tiny(problem))
            fit = replace(finer, trail=(*fit.trail, replace(before, trail=())))
            if finer.answer.status is not Status.CONVERGED or stands:
                status = finer.answer.status
                break
        return self._estimate(fit, status, started)

    def _local(self) -> Ipopt:
        assert isinstance(self.solver, Ipopt), "a global solver is given one mesh alone"
        return self.solver

    def _global(self, solver: Solver) -> GlobalCollocation:
        limit, points = self.time_limit, self.points
        return GlobalCollocation(solver, points=points, seed=self.seed, time_limit=limit)

    def _left(self, started: float) -> float | None:
        if self.time_limit is None:
            return None
        return max(0.0, self.time_limit - (time.perf_counter() - started))

    def _estimate(self, fit: CollocationFit, status: Status, started: float) -> Estimate:
        n = sum(m.n_elements for m in fit.meshes)
        return Estimate(
            parameters=fit.parameters,
            objective=fit.answer.objective,
            status=status,
            method=f"simultaneous correction by collocation (Radau, {n} elements)",
            seconds=time.perf_counter() - started,
            trail=fit.trail,
        )


def _solve(
    program: Program,
    start: Mapping[str, float],
    left: float | None,
    known: Sequence[KnownOptimum] = (),
) -> CollocationFit:
    answer = program.solve(left, known)
    courses = program.courses()
    return CollocationFit(
        answer,
        program.parameters() if answer.status.usable else dict(start),
        program.meshes,
        tuple(c.states for c in courses),
        tuple(c.profile for c in courses),
    )


def _known(program: Program, fit: CollocationFit) -> KnownOptimum:
    """Where a solve from another start need not go to the end: it would end like this one."""
    box, objective = program.problem.box, fit.answer.objective
    values = box.vector(fit.parameters)
    # A little less than SAME_POINT, so that what has arrived also counts as the same.
    reach = (1 - 1e-6) * SAME_POINT * _magnitudes(program.problem, values)
    return KnownOptimum(program.handles, values, reach, objective, WORTH_REFINING * abs(objective))


def _rank(fit: CollocationFit) -> float:
    return fit.answer.objective if fit.answer.status.usable else np.inf


def _tiny(problem: Problem) -> float:
    """Objectives below it are rounding errors."""
    measured = [e.measurements for e in problem.experiments]
    squares = float(sum(np.sum((m.value / m.sigma) ** 2) for m in measured))
    return TINY * squares if np.isfinite(squares) and squares > 0 else TINY


def _resolved(fit: CollocationFit, tolerance: float) -> bool:
    """Whether the polynomials are so good that a finer mesh would find the same."""
    pairs = zip(fit.meshes, fit.courses, strict=True)
    return all(m.resolves(list(c.values()), tolerance) for m, c in pairs)


def _far(objective: float, best: float, tiny: float) -> bool:
    return bool(objective > best + WORTH_REFINING * abs(best) + tiny)


def _flat(one: CollocationFit, other: CollocationFit, tiny: float) -> bool:
    """Whether the objective no longer tells the two apart: the rest is a valley."""
    a, b = one.answer.objective, other.answer.objective
    return bool(abs(a - b) <= FLAT * abs(b) + tiny)


def _same(problem: Problem, one: CollocationFit, other: CollocationFit, tolerance: float) -> bool:
    """Whether no unknown differs by more than the tolerance."""
    box = problem.box
    a, b = box.vector(one.parameters), box.vector(other.parameters)
    return bool(np.all(abs(a - b) <= tolerance * _magnitudes(problem, b)))


def _magnitudes(problem: Problem, values: FloatArray) -> FloatArray:
    """What changes of the unknowns are relative to."""
    width = problem.box.upper - problem.box.lower
    return np.maximum(abs(values), SMALL * np.where(np.isfinite(width), width, 1.0))
