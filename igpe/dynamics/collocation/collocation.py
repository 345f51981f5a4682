"""Simultaneous correction: all parameters and all trajectories at once, by Radau collocation.

Step 5 of the method (Michalik, Chachuat, Marquardt 2009, IGPE). Unlike shooting it keeps boundary
conditions and inequalities over time, and an unstable trajectory cannot run away from it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from igpe.core.arguments import (
    NOT_NEGATIVE,
    Checked,
    Count,
    CountFrom1,
    Positive,
    instance_of,
    or_none,
)
from igpe.core.arrays import FloatArray
from igpe.core.deadline import stopped
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.collocation.assembled import Assembled, parts
from igpe.dynamics.collocation.mesh import Mesh, Radau, first_meshes, most_elements
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.base import Profile, is_plain, objective_at, refuse, require_plain
from igpe.dynamics.shooting.limits_of_model import passed_bounds
from igpe.dynamics.shooting.refine import is_above, put_on_bounds
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.dynamics.simulation import Simulated
from igpe.dynamics.simulation import profiles as simulated_profiles
from igpe.equations.compiled import require_smooth_and_normal
from igpe.problem.problem import Problem
from igpe.smoothing.base import Smooth
from igpe.solvers.base import Answer
from igpe.solvers.ipopt import KNOWN, Ipopt, KnownOptimum

WORTH_REFINING = 1e-3  # relative distance to the best objective on the first mesh
SAME_POINT = 1e-3  # relative distance of unknowns that are the same optimum
FLAT = 1e-9  # relative change of the objective below which unknowns may wander in a valley
TINY = 1e-12  # of the data's squares: objectives of exact data are rounding errors, equally good
SMALL = 1e-3  # of the bounds' width: below it the change of an unknown counts absolutely


class CollocationFit(NamedTuple):
    """One solved program: where it ended, and the trajectories there."""

    answer: Answer
    parameters: Mapping[str, float]
    meshes: Sequence[Mesh]
    states: tuple[Mapping[str, FloatArray], ...]
    profiles: tuple[Profile, ...]
    trail: tuple[Estimate, ...] = ()


@dataclass(frozen=True)
class Collocation(Checked):
    """Least squares on the discretised equations; igpe refines the mesh until the optimum is
    stable.

    solver           the solver IPOPT, with its settings
    points           number of Radau points in each element
    tolerance        tolerance of the mesh refinement, which stops when no unknown changes from one
                     mesh to the next by more than tolerance * max(|value|, 1e-3 * width of its
                     bounds)
    max_refinements  maximum number of meshes after the first
    time_limit       time limit in seconds for each call, or for each fit if weights depend on the
                     model; None: no limit
    most_work        limit on the work of `estimate_each` for all starts together, where work is
                     iterations times the number of state values on the first mesh; None: no limit
    """

    solver: Annotated[Ipopt, instance_of(Ipopt)] = Ipopt()
    points: CountFrom1 = 3
    tolerance: Positive = 1e-5
    max_refinements: Count = 5
    time_limit: Annotated[float | None, or_none(NOT_NEGATIVE)] = None
    most_work: Annotated[float | None, or_none(NOT_NEGATIVE)] = None

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamics.shooting.base.Estimator.estimate`.

        If the first solve is interrupted, igpe returns the start unchanged. If no profiles are
        given, and the estimate fits worse than the start, igpe solves again from the simulated
        start, and returns the start if that is still better.
        """

        def search(problem: Problem, start: Mapping[str, float]) -> Estimate:
            try:
                estimate = self.estimate_each(problem, [start], [profiles])[0]
                if not profiles and estimate.status.usable and is_plain(problem):
                    estimate = self._not_above_start(problem, start, estimate)
            except KeyboardInterrupt:
                if not is_plain(problem) or not start:
                    raise
                fit = Residuals(problem, Sundials()).best_of([problem.box.vector(start)])
                return Estimate(dict(start), fit.cost, fit.status, "the start, not corrected")
            try:
                return estimate if stopped() else put_on_bounds(problem, estimate)
            except KeyboardInterrupt:
                return replace(estimate, status=Status.INTERRUPTED)

        return iteratively_reweighted(problem, start, search, search)

    def _not_above_start(
        self, problem: Problem, start: Mapping[str, float], estimate: Estimate
    ) -> Estimate:
        """The estimate, or a better one where the start itself fits better.

        Trajectories that are guessed from measurements alone may lead far away.
        """
        box = problem.box
        x = box.vector(box.mapping(box.middle) | dict(start))
        residuals = Residuals(problem, Automatic())
        at = residuals(x)
        if at is None or passed_bounds(problem, residuals.integrator, x):
            return estimate
        known = objective_at(problem, at)
        if not is_above(problem, estimate.objective, known):
            return estimate
        values = box.mapping(x)
        none: list[Mapping[str, Smooth]] = [{}] * len(problem.experiments)
        guesses = simulated_profiles(Simulated(problem, Automatic(), values), none)
        again = self.estimate_each(problem, [values], [guesses])[0]
        if again.status.usable and not is_above(problem, again.objective, known):
            return again
        return Estimate(values, known, Status.ITERATION_LIMIT, "the start, not corrected")

    def estimate_each(
        self,
        problem: Problem,
        starts: Sequence[Mapping[str, float]],
        profiles_of: Sequence[Sequence[Profile]] = (),
    ) -> list[Estimate]:
        """Return one Estimate for each start, in the same order.

        If the work exceeds `most_work`, igpe skips the remaining starts, and the list is shorter.
        All starts use the same first mesh, which is built once. igpe refines the best estimate and
        each distinct estimate whose objective is at most 0.1 % above the best objective. It returns
        the other estimates as computed on the first mesh. After Ctrl-C, every estimate has the
        status INTERRUPTED; those that igpe had not yet computed have an infinite objective.

        profiles_of  one entry for each start: its `profiles`, as for `estimate`; (): no profiles
        raises       Unsupported if the loss is not least squares
        """
        require_plain(problem, "Collocation", constraints_too=False, varying_too=False)
        require_smooth_and_normal(problem, "Collocation")
        refuse(problem, "Collocation", "estimated sigma", "censored", "correlated")
        refuse(problem, "Collocation.estimate_each", "weights follow fit")
        guesses = list(profiles_of) or [()] * len(starts)
        return _Correction(self, problem, starts, guesses).estimates() if starts else []


class _Correction:
    """One call of `Collocation.estimate_each`.

    fits    those on the first mesh, so far
    meshes  those of the last fit that was refined
    """

    def __init__(
        self,
        method: Collocation,
        problem: Problem,
        starts: Sequence[Mapping[str, float]],
        guesses: Sequence[Sequence[Profile]],
    ) -> None:
        self.method, self.problem, self.starts, self.guesses = method, problem, starts, guesses
        self.started = time.perf_counter()
        self.fits: list[CollocationFit] = []
        self.meshes: Sequence[Mesh] = ()
        data = [m.value / m.sigma for m in (e.measurements for e in problem.experiments)]
        squares = float(sum(v @ v for v in data))
        self.tiny = TINY * squares if np.isfinite(squares) and squares > 0 else TINY

    def estimates(self) -> list[Estimate]:
        """See `Collocation.estimate_each`."""
        problem, radau = self.problem, Radau(self.method.points)
        meshes = first_meshes(
            problem, self.guesses[0], radau, self.method.tolerance, start=self.starts[0]
        )
        on = partial(Assembled, problem, parts(problem, radau))
        try:
            self._solve_all(on(meshes))
        except KeyboardInterrupt:
            if not self.fits:
                raise
            ended = Status.INTERRUPTED
            waiting = self.starts[len(self.fits) :]
            return [
                *(self._estimate(fit, ended) for fit in self.fits),
                *(Estimate(dict(start), np.inf, ended, "not corrected") for start in waiting),
            ]
        return self._refine_best(on)

    def _solve_all(self, program: Assembled) -> None:
        """Solve the program from all starts, one after the other, into `fits`."""
        program.begin(self.starts[0], self.guesses[0])
        program.prepare(self.method.solver, self.starts)
        work, most = 0, self.method.most_work
        for start, profiles in zip(self.starts, self.guesses, strict=True):
            if most is not None and work > most:
                break
            program.begin(start, profiles)
            known = [
                self._known(program, f) for f in self.fits if f.answer.status is Status.CONVERGED
            ]
            fit = _solve(program, start, self._left(), known)
            values = sum(v.size for states in fit.states for v in states.values())
            work += fit.answer.iterations * values
            if fit.answer.message == KNOWN:
                fit = next(f for f in self.fits if self._same(fit, f, SAME_POINT))
            self.fits.append(fit)

    def _refine_best(self, on: Callable[[Sequence[Mesh]], Assembled]) -> list[Estimate]:
        refined: list[tuple[CollocationFit, Estimate]] = []
        estimates = [self._estimate(fit, fit.answer.status) for fit in self.fits]
        costs = [f.answer.objective if f.answer.status.usable else np.inf for f in self.fits]
        best = self.fits[int(np.argmin(costs))].answer.objective
        for i in np.argsort(costs, kind="stable"):
            fit = self.fits[i]
            if fit.answer.status is Status.ITERATION_LIMIT:
                continue  # no optimum: a finer mesh would cost as much and be none either
            if not costs[i] <= best + WORTH_REFINING * abs(best) + self.tiny or np.isinf(costs[i]):
                continue
            twin = next((e for f, e in refined if self._same(f, fit, SAME_POINT)), None)
            try:
                estimates[i] = twin or self._refine(on, fit)
            except KeyboardInterrupt:
                return [replace(e, status=Status.INTERRUPTED) for e in estimates]
            refined.append((fit, estimates[i]))
        return estimates

    def _refine(self, on: Callable[[Sequence[Mesh]], Assembled], fit: CollocationFit) -> Estimate:
        method, status = self.method, Status.ITERATION_LIMIT
        self.meshes = fit.meshes
        most = [most_elements(m.n_elements) for m in fit.meshes]
        for _ in range(method.max_refinements):
            trajectories = [list(states.values()) for states in fit.states]
            pairs = list(zip(fit.meshes, trajectories, strict=True))
            left = self._left()
            if left == 0.0:
                return self._estimate(fit, Status.TIME_LIMIT)
            meshes = [m.refined(c, method.tolerance) for m, c in pairs]
            if any(m.n_elements > n for m, n in zip(meshes, most, strict=True)):
                break
            program = on(meshes)
            program.begin(fit.parameters, fit.profiles)
            program.prepare(method.solver, [fit.parameters])
            finer = _solve(program, fit.parameters, left)
            if not finer.answer.status.usable:
                break
            a, b = fit.answer.objective, finer.answer.objective
            valley = abs(a - b) <= FLAT * abs(b) + self.tiny
            stands = valley or self._same(fit, finer, method.tolerance)
            before = replace(self._estimate(fit, fit.answer.status), trail=())
            fit = finer._replace(trail=(*fit.trail, before))
            self.meshes = fit.meshes
            if stands or finer.answer.status is not Status.CONVERGED:
                return self._estimate(fit, finer.answer.status)
        return self._estimate(fit, status)

    def _known(self, program: Assembled, fit: CollocationFit) -> KnownOptimum:
        """Where a solve from another start need not go to the end: it would end like this one."""
        values, objective = self.problem.box.vector(fit.parameters), fit.answer.objective
        # A little less than SAME_POINT, so that what has arrived also counts as the same.
        reach = (1 - 1e-6) * SAME_POINT * self._magnitudes(values)
        worth = WORTH_REFINING * abs(objective)
        return KnownOptimum(values, reach, objective, worth)

    def _same(self, one: CollocationFit, other: CollocationFit, tolerance: float) -> bool:
        """Whether no unknown differs by more than the tolerance."""
        a, b = (self.problem.box.vector(fit.parameters) for fit in (one, other))
        return bool(np.all(abs(a - b) <= tolerance * self._magnitudes(b)))

    def _magnitudes(self, values: FloatArray) -> FloatArray:
        """(n,) what changes of the unknowns are relative to."""
        width = self.problem.box.upper - self.problem.box.lower
        return np.maximum(abs(values), SMALL * np.where(np.isfinite(width), width, 1.0))

    def _left(self) -> float | None:
        limit = self.method.time_limit
        return None if limit is None else max(0.0, limit - (time.perf_counter() - self.started))

    def _estimate(self, fit: CollocationFit, status: Status) -> Estimate:
        n = sum(m.n_elements for m in fit.meshes)
        return Estimate(
            parameters=fit.parameters,
            objective=fit.answer.objective,
            status=status,
            method=f"simultaneous correction by collocation (Radau, {n} elements)",
            iterations=fit.answer.iterations + (fit.trail[-1].iterations if fit.trail else 0),
            seconds=time.perf_counter() - self.started,
            trail=fit.trail,
        )


def refined_meshes(
    method: Collocation, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile]
) -> Sequence[Mesh]:
    """The meshes on which the estimate from a start stands still; none if it fails."""
    correction = _Correction(method, problem, [start], [profiles])
    correction.estimates()
    return correction.meshes


def _solve(
    program: Assembled,
    start: Mapping[str, float],
    left: float | None,
    known: Sequence[KnownOptimum] = (),
) -> CollocationFit:
    answer = program.solve(left, known)
    trajectories = program.trajectories()
    return CollocationFit(
        answer,
        program.parameters() if answer.status.usable else dict(start),
        program.meshes,
        tuple(c.states for c in trajectories),
        tuple(c.profile for c in trajectories),
    )
