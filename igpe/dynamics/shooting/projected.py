"""Unknowns that only outputs depend on, eliminated from a search (variable projection).

Scales, offsets and standard deviations b move no state: once the model is integrated at the other
unknowns a, what is measured at any b follows from the states. So the search is over a alone,

    phi(a) = min over b of cost(a, b),

where each evaluation integrates once and solves the small problem in b inside its bounds, priors
included. With b free of its bounds at the minimum, half the gradient of phi is A'r, A = dr/da, as
the gradient by b is zero; Gauss-Newton's curvature is that of the full problem with b eliminated,
A'P A with P = 1 - B B^+, B = dr/db (Kaufman's form of Golub & Pereyra, Inverse Problems 19 (2003),
R1). (P A)'r = A'r there. Values of b on a bound stay there, and have no column in B.

With standard deviations among b, phi is n log(sum of squares) but for constants, and the rows of
`likelihood_residuals` at the minimum have its gradient.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Batched
from igpe.dynamics.integrators.base import Trajectory
from igpe.dynamics.shooting.residuals import Broken, Residuals, Run
from igpe.equations.initial_value import InitialValueProblem
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Fit, Linearised, Search
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.problem.problem import Problem

INNER = GaussNewton(tolerance=1e-13, max_iterations=200)
STEP = 15_000  # of `Residuals.work`: an evaluation of the outputs, and a step of what is eliminated
SAME = 1e-8  # of the largest: what is measured, evaluated from the states, is what was integrated
RANK = 1e-10  # of the largest: a direction of the eliminated unknowns that moves no residual
INNER_FAILED = "Scales, offsets or standard deviations could not be fitted to the outputs."


def projected(problem: Problem, residuals: Residuals) -> "Eliminated | None":
    """The residuals with all unknowns eliminated that only outputs depend on; None without any.

    None as well with a robust loss, and where the outputs cannot be evaluated from the states
    alone: algebraic variables that are solved numerically, and modes that events switch.
    """
    box = problem.box
    ivps = [run.ivp for run in residuals.runs]
    if not problem.loss.is_squares or any(_needs_more(ivp) for ivp in ivps):
        return None
    moving = set().union(*(moving_unknowns(ivp) for ivp in ivps))
    shown = {name for ivp in ivps for name in ivp.unknowns}
    inner = np.array([n in shown and n not in moving for n in box.names], dtype=bool)
    if inner.all() or not inner.any():
        return None
    return Eliminated(residuals, box, inner)


def _needs_more(ivp: InitialValueProblem) -> bool:
    """Whether outputs depend on more than time, states, given inputs and unknowns."""
    modes = ivp.switching.modes if ivp.switching else 0
    unseen = ca.vertcat(ivp.y, ivp.u[ivp.u.numel() - modes :])
    return bool(unseen.numel()) and bool(ca.depends_on(ivp.measured, unseen))


def moving_unknowns(ivp: InitialValueProblem) -> set[str]:
    """Names of unknowns on which states may depend: equations, starts, switches and rest."""
    parts: list[Any] = [ivp.f, ivp.g, ivp.start]
    if ivp.switching is not None:
        parts += [ivp.switching.gaps, *(t for t in ivp.switching.times if t is not None)]
        for jump in ivp.switching.jumps:
            parts += [ca.SX(e) for e in (jump.at, jump.after, jump.delay) if e is not None]
    every = ca.vertcat(*(ca.vec(ca.SX(part)) for part in parts))
    moves = np.asarray(ca.which_depends(every, ivp.q), dtype=bool).reshape(ivp.q.numel())
    names = {n for n, does in zip(ivp.unknowns, moves, strict=True) if does}
    return names | (moving_unknowns(ivp.rest) if ivp.rest is not None else set())


class UnlikeError(Exception):
    """What is measured does not follow from the states as it does while integrating."""


class _Outputs:
    """What one run measures, as a function of its states and unknowns.

    inner  (n_q,) which of its unknowns are eliminated
    """

    def __init__(self, run: Run, inner: BoolArray) -> None:
        ivp = run.ivp
        self.inner = np.flatnonzero(inner[run.index])
        self.sizes = ivp.measured.numel(), len(ivp.states), len(ivp.unknowns)
        by_q, by_x = ca.jacobian(ivp.measured, ivp.q), ca.jacobian(ivp.measured, ivp.x)
        columns = [by_q[:, int(i)] for i in self.inner]
        some = ca.horzcat(*columns) if columns else ca.SX(self.sizes[0], 0)
        given = [ivp.t, ivp.x, ivp.u, ivp.q]
        row = [ca.vec(ca.densify(part).T) for part in (ivp.measured.T, some)]
        self._few = Batched(ca.Function("outputs", given, [ca.densify(ca.vertcat(*row))]))
        rows = [ca.vec(ca.densify(part).T) for part in (ivp.measured.T, by_q, by_x)]
        self._all = Batched(ca.Function("outputs", given, [ca.densify(ca.vertcat(*rows))]))
        times = run.measurements.times
        inputs = [[table.at(t) for table in ivp.tables] for t in times]
        self._inputs = np.array(inputs, dtype=float).reshape(len(times), len(ivp.tables))

    def few(self, trajectory: Trajectory, q: FloatArray) -> Trajectory:
        """The trajectory with what is measured at q, and its derivatives by `inner` alone."""
        n_h, _, n_q = self.sizes
        rows = self._evaluated(self._few, trajectory, q)
        by = np.zeros((len(rows), n_h, n_q))
        by[:, :, self.inner] = rows[:, n_h:].reshape(len(rows), n_h, -1)
        return replace(trajectory, measured=rows[:, :n_h], measured_by_unknown=by)

    def all(self, trajectory: Trajectory, q: FloatArray) -> Trajectory:
        """The trajectory with what is measured at q, and all derivatives."""
        n_h, n_x, n_q = self.sizes
        rows = self._evaluated(self._all, trajectory, q)
        by = rows[:, n_h : n_h * (1 + n_q)].reshape(len(rows), n_h, n_q)
        by_state = rows[:, n_h * (1 + n_q) :].reshape(len(rows), n_h, n_x)
        return replace(
            trajectory,
            measured=rows[:, :n_h],
            measured_by_unknown=by + _moved(by_state, trajectory.by_unknown),
        )

    def _evaluated(self, function: Batched, trajectory: Trajectory, q: FloatArray) -> FloatArray:
        times, n = trajectory.times, len(trajectory.times)
        states = np.ascontiguousarray(trajectory.states)
        return function(n, times, states, self._inputs, np.tile(q, (n, 1)))


def _moved(by_state: FloatArray, states_by: FloatArray) -> FloatArray:
    """(n_times, n_h, n_q) products; a state that does not change counts 0 even times infinity."""
    if np.isfinite(by_state).all():
        return np.asarray(by_state @ states_by)
    with np.errstate(invalid="ignore"):
        terms = by_state[:, :, :, None] * states_by[:, None]
    return np.asarray(np.where(states_by[:, None] == 0, 0.0, terms).sum(axis=2))


class Eliminated:
    """Residuals as a function of the unknowns that are left, a, others at their best.

    box    of a;  own: of the unknowns that are eliminated, b
    outer, inner   places of both among the problem's unknowns
    """

    def __init__(self, residuals: Residuals, box: Box, inner: BoolArray) -> None:
        self.residuals, self.full = residuals, box
        self.outer, self.inner = np.flatnonzero(~inner), np.flatnonzero(inner)
        self.box = box.select([box.names[i] for i in self.outer])
        self.own = box.select([box.names[i] for i in self.inner])
        self._which = inner
        self._clear(box.middle)

    def _clear(self, x: FloatArray) -> None:
        self._begin, self._least = self.own.clip(x[self.inner]), np.inf
        self._solved: dict[bytes, FloatArray] = {}
        self._checked = False

    @cached_property
    def _outputs(self) -> tuple[_Outputs, ...]:
        return tuple(_Outputs(run, self._which) for run in self.residuals.runs)

    def fit(self, search: Search, start: FloatArray) -> Fit:
        """The search from `start` (n,) over all unknowns; as exact as that of the full problem.

        It ends with a search of the full problem, from where that of the few converged.
        raises UnlikeError where the outputs do not follow from the states
        """
        self._clear(start)
        few = search.fit(self, start[self.outer], self.box)
        if few.at is None:
            return Fit(start, None, few.status, few.iterations)
        x = self._solved[few.x.tobytes()]
        if few.status is Status.CONVERGED:
            fit = search.fit(self.residuals, x, self.full)
            if fit.at is not None:
                count = few.iterations + fit.iterations
                return fit._replace(iterations=count, steps=few.steps + fit.steps)
        return few._replace(x=x, at=self.residuals(x))

    def solved(self, x: FloatArray) -> tuple[FloatArray, Linearised] | None:
        """The point (n,) with the eliminated unknowns at their best, and the full residuals there.

        x  (n,); what is eliminated begins there
        """
        every = self.residuals.trajectories(x)
        if every is None:
            return None
        pairs = list(zip(self.residuals.runs, self._outputs, every, strict=True))
        self._check(x, pairs)

        def point(b: FloatArray) -> FloatArray:
            there = x.copy()
            there[self.inner] = b
            return there

        def inner(b: FloatArray) -> Linearised | None:
            self.residuals.work += STEP
            there = point(b)
            fewer = [out.few(ran, there[run.index]) for run, out, ran in pairs]
            at = self.residuals.stacked(there, fewer)
            return None if at is None else at._replace(jacobian=at.jacobian[:, self.inner])

        fit = INNER.fit(inner, x[self.inner], self.own)
        best = point(fit.x)
        whole = [out.all(ran, best[run.index]) for run, out, ran in pairs]
        at = None if fit.at is None else self.residuals.stacked(best, whole)
        if at is None:
            name = self.residuals.experiments[0]
            self.residuals.broken = Broken(name, Status.INTEGRATION_BROKE, INNER_FAILED)
            return None
        self.residuals.best.look_at(best, at)
        return best, at

    def __call__(self, a: FloatArray) -> Linearised | None:
        """Residuals and projected derivative at a (n_a,), or None; raises as `Residuals`."""
        x = np.empty(len(self.full))
        x[self.outer], x[self.inner] = a, self._begin
        found = self.solved(x)
        if found is None:
            return None
        best, at = found
        self._solved[a.tobytes()] = best
        if at.cost < self._least:
            self._least, self._begin = at.cost, best[self.inner]
        free = ~on_bounds(best[self.inner], None, self.own)
        own, rest = at.jacobian[:, self.inner[free]], at.jacobian[:, self.outer]
        return at._replace(jacobian=without(own, rest))

    def _check(self, x: FloatArray, pairs: Iterable[tuple[Run, _Outputs, Trajectory]]) -> None:
        """Compare with what the integrator measured, once for each search."""
        if self._checked:
            return
        for run, outputs, ran in pairs:
            again = outputs.all(ran, x[run.index])
            for new, old in (
                (again.measured, ran.measured),
                (again.measured_by_unknown, ran.measured_by_unknown),
            ):
                size = np.abs(old, where=np.isfinite(old), out=np.zeros(old.shape)).max(initial=0.0)
                if not np.allclose(new, old, rtol=SAME, atol=SAME * size, equal_nan=True):
                    raise UnlikeError
        self._checked = True


def without(own: FloatArray, rest: FloatArray) -> FloatArray:
    """(m, k) the columns of `rest` less what those of `own` (m, n) can make up."""
    length = np.linalg.norm(own, axis=0)
    even = own[:, length > 0] / length[length > 0]
    if not even.shape[1]:
        return rest
    left, singular, _ = np.linalg.svd(even, full_matrices=False)
    basis = left[:, singular > RANK * singular[0]]
    return np.asarray(rest - basis @ (basis.T @ rest))
