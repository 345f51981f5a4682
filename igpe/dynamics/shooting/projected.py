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
`likelihood_residuals` at the minimum have its gradient. A deviation that is one unknown s times
anything else of the model, and no part of another output, is best at s^2 times the mean of z^2
over the measurements that it belongs to, z = (h - y) / deviation; or at the bound on this side, as
the cost has one minimum in s. So those take no search: the others among b are sought with them at
their best, by the same derivative.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Batched
from igpe.dynamics.integrators.base import Trajectory
from igpe.dynamics.shooting.residuals import Residuals, Run
from igpe.equations.initial_value import InitialValueProblem
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Fit, Linearised, Search, have_squares
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.problem.problem import Problem

INNER = GaussNewton(tolerance=1e-13, max_iterations=200)
FINER = 1e-3  # of a search's tolerance: that of what is eliminated, so that its ends agree
STEP = 15_000  # of `Residuals.work`: an evaluation of the outputs, and a step of what is eliminated
SAME = 1e-8  # of the largest: what is measured, evaluated from the states, is what was integrated
RANK = 1e-10  # of the largest: a direction of the eliminated unknowns that moves no residual


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


def factors_of_deviations(runs: Sequence[Run], inner: BoolArray) -> list[IntArray]:
    """(n_h,) for each run: place of the unknown that a deviation is proportional to; -1: none.

    Only of unknowns that are eliminated, and that no output depends on in another way.
    """
    taken, factors = ~inner, []
    depending = [_depending(run) for run in runs]
    for _, others in depending:
        taken[others] = True
    for run, (pairs, _) in zip(runs, depending, strict=True):
        factor = np.full(run.ivp.measured.numel(), -1)
        for j, places in pairs.items():
            free = [k for k in places if not taken[k]]
            factor[j] = free[0] if free else -1
            taken[free[1:]] = True
        factors.append(factor)
    return [np.where(taken[factor], -1, factor) for factor in factors]


def _depending(run: Run) -> tuple[dict[int, list[int]], list[int]]:
    """Unknowns that each output is proportional to, if it is a deviation; and all others."""
    measured, q = run.ivp.measured, run.ivp.q
    columns = set() if run.deviation is None else {*run.deviation} - {*run.measurements.column}
    pairs: dict[int, list[int]] = {}
    others = []
    for j, i in zip(*ca.jacobian_sparsity(measured, q).get_triplet(), strict=True):
        rest = ca.SX(ca.substitute(measured[j], q[i], 0))
        straight = not ca.depends_on(ca.jacobian(measured[j], q[i]), q[i])
        if j in columns and straight and rest.is_zero():
            pairs.setdefault(j, []).append(int(run.index[i]))
        else:
            others.append(int(run.index[i]))
    return pairs, others


class UnlikeError(Exception):
    """What is measured does not follow from the states as it does while integrating."""


class _Outputs:
    """What one run measures, as a function of its states and unknowns.

    inner   (n,) which of the problem's unknowns are eliminated
    factor  (n_h,) see `factors_of_deviations`
    """

    def __init__(self, run: Run, inner: BoolArray, factor: IntArray) -> None:
        ivp = run.ivp
        self.run, self._scaled = run, np.flatnonzero(factor >= 0)
        self._factors = factor[self._scaled]
        self._local = np.array([list(run.index).index(k) for k in self._factors], dtype=np.intp)
        self._place = np.full(len(run.measurements.value), -1)
        if run.deviation is not None:
            self._place = np.where(run.deviation >= 0, factor[run.deviation], -1)
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

    def errors(self, trajectory: Trajectory) -> tuple[IntArray, FloatArray]:
        """(k,) places of the factors of deviations, and z of their measurements."""
        run, own = self.run, self._place >= 0
        if run.deviation is None or not own.any():
            return self._place[own], np.zeros(0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            spread = trajectory.measured[run.measurements.row[own], run.deviation[own]]
            return self._place[own], run.weighted(trajectory)[own] / spread

    def widen(self, trajectory: Trajectory, ratio: FloatArray) -> None:
        """Multiply factors (n,) of deviations by a ratio, in the outputs of `few` or `all`."""
        if not len(self._scaled):
            return
        times, slopes = ratio[self._factors], trajectory.measured_by_unknown
        trajectory.measured[:, self._scaled] *= times
        own = slopes[:, self._scaled, self._local]  # by the factor itself: it stays
        slopes[:, self._scaled] *= times[:, None]
        slopes[:, self._scaled, self._local] = own

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
    spreads        those of b whose best value is a formula;  sought: the others
    """

    def __init__(self, residuals: Residuals, box: Box, inner: BoolArray) -> None:
        self.residuals, self.full = residuals, box
        self.outer, self.inner = np.flatnonzero(~inner), np.flatnonzero(inner)
        self.box = box.select([box.names[i] for i in self.outer])
        self.own = box.select([box.names[i] for i in self.inner])
        concerned = residuals.unmeasured.concerned
        self._factors = factors_of_deviations(residuals.runs, inner & ~concerned)
        self.spreads = np.unique(np.concatenate(self._factors))
        self.spreads = self.spreads[self.spreads >= 0]
        self.sought = np.setdiff1d(self.inner, self.spreads)
        self._rest = box.select([box.names[i] for i in self.sought])
        self._spread = box.select([box.names[i] for i in self.spreads])
        self._which, self._search = inner, INNER
        self._clear(box.middle)

    def _clear(self, x: FloatArray) -> None:
        self._begin = self.own.clip(x[self.inner])
        self._best: tuple[FloatArray, Linearised] | None = None
        self._solved: dict[bytes, FloatArray] = {}
        self._checked = False

    @cached_property
    def _outputs(self) -> tuple[_Outputs, ...]:
        pairs = zip(self.residuals.runs, self._factors, strict=True)
        return tuple(_Outputs(run, self._which, factor) for run, factor in pairs)

    def fit(self, search: Search, start: FloatArray) -> Fit:
        """The search from `start` (n,) over all unknowns; as exact as that of the full problem.

        It ends with a search of the full problem, from where that of the few converged.
        raises UnlikeError where the outputs do not follow from the states
        """
        self._clear(start)
        self._search = replace(INNER, tolerance=max(FINER * search.tolerance, INNER.tolerance))
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

        def at_best_spreads(b: FloatArray, *, all_: bool) -> tuple[FloatArray, Linearised | None]:
            self.residuals.work += STEP
            there = x.copy()
            there[self.sought] = b
            which = [(o.all if all_ else o.few)(ran, there[run.index]) for run, o, ran in pairs]
            there = self._widened(there, which)
            return there, self.residuals.stacked(there, which)

        def inner(b: FloatArray) -> Linearised | None:
            there, at = at_best_spreads(b, all_=False)
            return None if at is None else self._reduced(there, at, self.spreads, self.sought)

        b = x[self.sought]
        if len(b):
            b = self._search.fit(inner, b, self._rest).x
        best, at = at_best_spreads(b, all_=True)
        if at is None:
            return None
        self.residuals.best.look_at(best, at)
        return best, at

    def __call__(self, a: FloatArray) -> Linearised | None:
        """Residuals and projected derivative at a (n_a,), or None; raises as `Residuals`."""
        x = np.empty(len(self.full))
        x[self.outer], x[self.inner] = a, self._expected(a)
        solution = self.solved(x)
        if solution is None:
            return None
        best, at = solution
        self._solved[a.tobytes()] = best
        if self._best is None or at.cost < self._best[1].cost:
            self._best = best, at
        return self._reduced(best, at, self.inner, self.outer)

    def _expected(self, a: FloatArray) -> FloatArray:
        """(n_b,) where what is eliminated is best at a, by the linear model of the best point."""
        if self._best is None:
            return self._begin
        x, at = self._best
        moved = at.jacobian[:, self.outer] @ (a - x[self.outer])
        b = x[self.inner]
        size = np.where(b == 0, 1.0, np.abs(b))
        own = at.jacobian[:, self.inner] * size
        if not have_squares(own, moved):
            return b
        step = np.linalg.lstsq(own, -moved, rcond=RANK)[0]
        is_log = self.own.in_logarithms
        return self.own.clip(
            np.where(is_log, b * np.exp(np.clip(step, -1.0, 1.0)), b + size * step)
        )

    def _reduced(self, x: FloatArray, at: Linearised, gone: IntArray, kept: IntArray) -> Linearised:
        """The residuals by the unknowns `kept` alone, those `gone` being at their best."""
        rest = at.jacobian[:, kept]
        if not len(gone):
            return at._replace(jacobian=rest)
        box = self.full
        free = ~on_bounds(x, None, box)[gone]
        own = at.jacobian[:, gone[free]]
        crossing = bool((own.T @ rest).any())
        return at._replace(jacobian=without(own, rest) if crossing else rest)

    def _widened(self, x: FloatArray, trajectories: Sequence[Trajectory]) -> FloatArray:
        """The point with the factors of deviations at their best, to which outputs are moved."""
        if not len(self.spreads):
            return x
        errors = [o.errors(ran) for o, ran in zip(self._outputs, trajectories, strict=True)]
        places = np.concatenate([place for place, _ in errors])
        z = np.concatenate([of for _, of in errors])
        count = np.bincount(places, minlength=len(x))
        with np.errstate(invalid="ignore", over="ignore"):
            total = np.bincount(places, z**2, minlength=len(x))
            ratio = np.where(total != 0, np.sqrt(total / np.maximum(count, 1)), 1.0)
            best = x.copy()
            best[self.spreads] = self._spread.clip((x * ratio)[self.spreads])
            ratio = best / np.where(x == 0, 1.0, x)
            for outputs, ran in zip(self._outputs, trajectories, strict=True):
                outputs.widen(ran, ratio)
        return best

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
