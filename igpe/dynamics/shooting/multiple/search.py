"""One search of multiple shooting: continuation from free nodes, then exact matching.

Experiments of which backward lifting asks single directions (Houska et al., section 4.2).

The directions are those of the very steps of one run, which states and a probe alone decide: one
forwards as gaps close, one sweep back, one forwards along a step. So gradients are those of all
derivatives, to rounding.

Robust losses in multiple shooting: what is minimised on the way, and what is reported.

Derivatives that go through all intervals, where few directions are left (Schloeder's trick).

An interval's derivatives by all its states are only wanted times what the unknowns and the gaps
before it make of them. Integrated along those directions alone (Houska et al., equations 7 to 10),
the steps of Gauss-Newton are the same, and with many states and few unknowns the work is far less.
The natural level function needs the old derivatives times the gaps of a trial: one direction more,
at the old point.

What a user should know of the constraints of a multiple shooting, as sentences.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TypeAlias

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import NEVER, Deadline
from igpe.core.errors import Unsupported
from igpe.core.estimates import Horizon, Iterate
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Recorded, Shots
from igpe.dynamics.search.engine import Attempt
from igpe.dynamics.shooting.base import constraints, in_deviations, limited, losses_of
from igpe.dynamics.shooting.multiple.chains import Chains, Given, Shooting
from igpe.dynamics.shooting.residuals import NO_NUMBER, Broken, unmeasured
from igpe.numerics.least_squares.base import NEAR, Fit, Linearised, Residual, Robust, floors
from igpe.numerics.least_squares.chains.backward_lifting import BackwardLifting
from igpe.numerics.least_squares.chains.chains import (
    Affine,
    Chain,
    Chained,
    Lifted,
    Limits,
    Point,
    Reduced,
)
from igpe.numerics.least_squares.chains.generalised import GeneralisedGaussNewton, Outcome
from igpe.numerics.least_squares.chains.proposal import Space, gap_length, missed_length
from igpe.numerics.least_squares.chains.soft_links import SoftLinks
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.problem.losses import L1, LeastSquares
from igpe.problem.problem import Problem

CLOSE = 1e-7  # distance from a bound, relative to its size or 1, of what is active
SHOWN = 5  # names in a sentence, at most


def constraint_notes(at: Chained, chains: Chains, status: Status, *, kept: bool) -> Iterator[str]:
    """Sentences on constraints that were missed, are active, or are kept at some times only.

    at    where a search ended, and how;  kept: whether constraints are
    """
    found = [
        (name + shooting.limits.of, chain.limits, i)
        for shooting, chain in zip(chains.shootings, at.chains, strict=True)
        if shooting.limits is not None and chain.limits is not None
        for i, name in enumerate(shooting.limits.names)
    ]
    if not kept:
        name, limits, i = max(found, key=lambda one: one[1].missed[one[2]])
        yield (
            f"No parameters were found that keep all constraints: '{name}' is missed by "
            f"{limits.missed[i]:.3g}. Widen constraints or bounds, or start elsewhere."
        )
    elif found and status.usable:
        active = [name for name, limits, i in found if _is_active(limits, i)]
        if active:
            yield f"Active constraints: {_listed(active)}."
        if chains.over_time:
            names = _listed(sorted(chains.over_time))
            yield f"{names} kept at the start and at all measured times, not between them."


def _is_active(limits: Limits, i: int) -> bool:
    """Whether an inequality holds its value where it is."""
    value = limits.value[i]
    near = min(value - limits.low[i], limits.high[i] - value)
    return bool(limits.low[i] < limits.high[i] and near <= CLOSE * max(abs(value), 1.0))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def matched_losses(problem: Problem, spread: float) -> list[Robust]:
    """Losses of residuals in units of `spread`; absolute values count as Huber's loss."""
    return [replace(loss, absolute=False) for loss in losses_of(problem, spread)]


def prior_factor(problem: Problem, loss: Robust, spread: float) -> float:
    """What unmeasured residuals are multiplied by, to weigh beside the others as they should.

    Where absolute values are asked for, those are 1 / (2 delta spread) of what `loss` makes.
    """
    return float(np.sqrt(2 * loss.delta * spread)) if isinstance(problem.loss, L1) else 1.0


def objective(problem: Problem, at: Linearised | None, spread: float) -> float:
    """What the problem asks to be minimised; those of no measurement come first."""
    if at is None:
        return float("inf")
    if not isinstance(problem.loss, L1):
        return at.cost * spread**2
    loss = matched_losses(problem, spread)[-1]
    free = unmeasured(problem).size
    rho, delta = at.residual[free:] ** 2, loss.delta
    size = np.where(rho <= delta**2, np.sqrt(rho), (rho + delta**2) / (2 * delta))
    priors = at.residual[:free] * spread / prior_factor(problem, loss, spread)
    return float(np.sum(size)) * spread + float(priors @ priors)


# What an evaluation costs, in columns of derivatives, measured from 4 to 64 states:
SHARED = 10.0  # the state and the Jacobian, which all columns share
EACH = 1.5  # a column of each interval's own derivatives, which the step control looks at
ADDED = 6  # columns beside those of the unknowns: gaps and probe, and four for a trial's gaps
PAYS = 1.25  # times that all derivatives must cost the reduced ones


def reduced(chains: Chains) -> Chains:
    """The same chains, with derivatives through all intervals of the experiments where that pays.

    It does where an experiment has many more states than unknowns. Constraints on states inside
    the course want each interval's own derivatives, as does what cannot be asked for less.
    """
    found = copy(chains)
    found.shootings = tuple(_through(s) if pays(s) else s for s in chains.shootings)
    return found


def pays(shooting: Shooting) -> bool:
    """Whether fewer directions through all intervals are faster than each interval's own."""
    if shooting.limits is not None or not shooting.intervals.chains:
        return False
    ivp = shooting.ivp
    depends = ca.which_depends(ca.vertcat(ivp.f, ivp.measured), ivp.q)  # not on start values
    whole = SHARED + EACH * (len(ivp.states) + sum(depends))
    return whole >= PAYS * (2 * SHARED + len(ivp.unknowns) + ADDED)


def _through(shooting: Shooting) -> "Through":
    return Through(**{field.name: getattr(shooting, field.name) for field in fields(shooting)})


@dataclass(frozen=True)
class Through(Shooting):
    """An experiment whose derivatives go through all intervals; it has no constraints."""

    def chain(self, unknowns: FloatArray, nodes: FloatArray) -> Reduced | Broken:
        """The chain at unknowns (n,) and nodes (K, n_x), or what broke down."""
        q, starts, by_q = self.starts(unknowns, nodes)
        n_x, n_q = by_q.shape
        first = np.zeros((n_x + n_q, n_q + 1))
        first[:n_x, :n_q], first[n_x:, :n_q] = by_q, np.eye(n_q)
        intervals = self.intervals
        ran = intervals.chained(starts, q, first, probed=True)
        for status, reason in zip(ran.status, ran.reason, strict=True):
            if not status.usable:
                return Broken(self.name, status, reason)
        gap = self.gaps(ran.ends, starts)
        by = _resting(ran.measured_by, by_q) if self.told_at_start else ran.measured_by
        moved, weighted = self._by_dq(ran.ends_by, first[:n_x]), self.weighted(by)
        moved[:, :, -1] += gap
        n = len(unknowns)
        moves = np.concatenate([self.wide(moved[..., :-1], n), moved[..., -1:]], axis=2)
        affine = Affine(moves, weighted[:, -1], self.wide(weighted[:, :-1], n))
        along = partial(self._shifted, partial(intervals.chained, starts, q, probed=True))
        found = Reduced(self.residual(ran.measured), gap, affine, along)
        return found if found.is_finite else Broken(self.name, Status.INTEGRATION_BROKE, NO_NUMBER)

    def _shifted(
        self, chained: Callable[..., Shots], gaps: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """See `Reduced.along`: one direction that begins with the first gap."""
        n_x = gaps.shape[1]
        first = np.zeros((n_x + len(self.index), 1))
        first[:n_x, 0] = gaps[0]
        ran = chained(first, gaps=gaps)
        moved = self._by_dq(ran.ends_by, first[:n_x])[..., 0] + gaps
        moved[0] = gaps[0]
        return moved, self.weighted(ran.measured_by)[:, 0]

    def _by_dq(self, ends_by: FloatArray, first: FloatArray) -> FloatArray:
        """(K, n_x, n_d) of the nodes' change what is no gap: the first one's, then the ends'."""
        return np.concatenate([first[None], ends_by[:-1]])


def _resting(by: FloatArray, by_q: FloatArray) -> FloatArray:
    """Derivatives of what is measured at a start that the unknown does not move: 0 where none."""
    lost = np.isnan(by[0, :, :-1]) & (by_q == 0).all(axis=0)
    if not lost.any():
        return by
    found = by.copy()
    found[0, :, :-1][lost] = 0.0
    return found


def lifted(chains: Chains) -> Chains:
    """The same chains, asked for single directions.

    raises Unsupported for integrators that cannot sweep back
    """
    for shooting in chains.shootings:
        _check(shooting)
    found = copy(chains)
    found.shootings = tuple(
        Backward(**{field.name: getattr(s, field.name) for field in fields(s)})
        for s in chains.shootings
    )
    return found


def require_squares(problem: Problem) -> None:
    """Refuse what backward lifting cannot do: raises Unsupported for losses and constraints."""
    found = constraints(problem)
    if not isinstance(problem.loss, LeastSquares):
        found = [type(problem.loss).__name__]
    if found:
        raise Unsupported(
            "BackwardLifting minimises a sum of squares without constraints of the model; the "
            f"problem has {found}. Use MultipleShooting's own search, GeneralisedGaussNewton()."
        )


def _check(shooting: Shooting) -> None:
    if not shooting.intervals.sweeps:
        why = shooting.intervals.refused
        raise Unsupported(
            "BackwardLifting needs RungeKutta() or Automatic(), equations without "
            f"implicit algebraic variables and a C compiler.{why and ' '}{why} Leave out search=, "
            "for GeneralisedGaussNewton()."
        )


@dataclass(frozen=True)
class Backward(Through):
    """An experiment whose derivatives are asked for in single directions."""

    def chain(self, unknowns: FloatArray, nodes: FloatArray) -> Lifted | Broken:  # type: ignore[override]
        """The chain at unknowns (n,) and nodes (K, n_x), or what broke down."""
        q, starts, by_q = self.starts(unknowns, nodes)
        sweeping = self.intervals
        ran = sweeping.recorded(starts, q, np.zeros((sum(by_q.shape), 1)))
        for status, reason in zip(ran.along.status, ran.along.reason, strict=True):
            if not status.usable:
                return Broken(self.name, status, reason)
        n, gap = len(unknowns), self.gaps(ran.along.ends, starts)
        found = Lifted(
            self.residual(ran.along.measured),
            gap,
            self.weighted(ran.along.measured_by)[:, 0],
            partial(self._gradient, ran, by_q, n),
            partial(self._along, starts, q, by_q, gap),
            partial(self._whole, unknowns, nodes),
        )
        return found if found.is_finite else Broken(self.name, Status.INTEGRATION_BROKE, NO_NUMBER)

    def _gradient(
        self, ran: Recorded, by_q: FloatArray, size: int, weights: FloatArray
    ) -> FloatArray:
        """See `Lifted.gradient`."""
        seeds = np.zeros_like(ran.along.measured)
        np.add.at(seeds, self._told, weights * self._weight)
        found = self.intervals.swept(ran, seeds)
        moves = by_q.any(axis=1)  # a start that no unknown moves counts 0 even times infinity
        own = found.by_unknown + by_q[moves].T @ found.by_node[0][moves]
        return self.wide(own, size)

    def _along(
        self, starts: FloatArray, q: FloatArray, by_q: FloatArray, gap: FloatArray, dq: FloatArray
    ) -> FloatArray:
        """See `Lifted.along`."""
        own = dq[self.index]
        first = np.concatenate([by_q @ own, own])[:, None]
        ran = self.intervals.chained(starts, q, first, probed=True)
        return np.asarray(self._by_dq(ran.ends_by, first[: len(by_q)])[..., 0] + gap)

    def _whole(self, unknowns: FloatArray, nodes: FloatArray) -> Chain | Reduced | None:
        found = (Through if pays(self) else Shooting).chain(self, unknowns, nodes)
        return None if isinstance(found, Broken) else found


ExactSearch: TypeAlias = GeneralisedGaussNewton | BackwardLifting
FREE, MATCHED = "nodes that need not meet yet", "exact matching"
COARSE = 1e-3  # scaled length of steps that do not matter before the last stage
OPEN = 1e-3  # a gap, relative to its state, that is not closed
MISSED = 1e-6  # a constraint, relative to its scale, that is not kept


@dataclass(frozen=True)
class Stages:
    """What a search goes through.

    free    chains for the continuation
    exact   what is matched exactly, one after the other: its name and its chains
    search  the search with exact matching
    record  whether all iterates are kept
    reached the unknowns where the search last stood, which an interrupted one falls back to
    """

    free: Chains
    exact: tuple[tuple[str, Chains], ...]
    search: ExactSearch
    record: bool = False
    reached: list[FloatArray] = field(default_factory=list)

    @property
    def chains(self) -> Chains:
        """Those of the last stage."""
        return self.exact[-1][1]

    def run(
        self, start: Point, space: Space, links: SoftLinks | None, deadline: Deadline = NEVER
    ) -> Attempt:
        """From `start`; without `links` the nodes are matched from the beginning.

        A stage that does not converge still hands on its point: the next often does. After the
        deadline each stage looks at its start alone.
        """
        trail: list[Horizon] = []
        point, exact = start, self.exact
        record = _Record(self, space)
        self.chains.broken = None
        if links is None:
            exact = exact[-1:]
        else:
            soft = links.run(deadline.keeping(self.free), point, space, record.watch)
            ended = Status.TIME_LIMIT if deadline.over else Status.CONVERGED
            status = Status.INTEGRATION_BROKE if soft.at is None else ended
            outcome = Outcome(soft.point, soft.at, status, soft.iterations, soft.evaluations)
            trail.append(record.horizon(FREE, outcome))
            point, space = soft.point, _grown(space, soft.point)
        coarse = replace(self.search, tolerance=COARSE, decrease=COARSE**2)
        for name, chains in exact:
            search = self.search if chains is self.chains else coarse
            outcome = search.fit(deadline.keeping(chains), point, space, record.watch)
            if deadline.over and outcome.status is Status.STALLED:
                outcome = outcome._replace(status=Status.TIME_LIMIT)
            trail.append(record.horizon(name, outcome))
            point = outcome.point
        fit, at = _fit_of(outcome, space), outcome.at
        if at is None:
            status = fit.status if self.chains.broken is None else self.chains.broken.status
            fit = fit._replace(status=status)
            return Attempt(fit, tuple(trail), self.chains.reasons(fit))
        limits = constraint_notes(at, self.chains, fit.status, kept=_keeps(outcome, space))
        notes = (*self.chains.reasons(fit), *self._limits(outcome), *limits)
        return Attempt(fit, tuple(trail), notes)

    def _limits(self, outcome: Outcome) -> list[str]:
        """That states are kept from leaving their bounds."""
        pairs = zip(self.chains.shootings, outcome.limited, strict=False)
        names = [n for s, held in pairs for n in np.array(s.ivp.states)[held]]
        states = ", ".join(dict.fromkeys(names))
        return [f"The bounds of {states} are active; the nodes keep them."] if states else []


def stages_of(
    problem: Problem,
    chains: Chains,
    rough: Chains,
    search: ExactSearch,
    *,
    record: bool = False,
) -> Stages:
    """Level standard deviations and gentle losses first, the problem's own with `chains` last."""
    spread = chains.shootings[0].spread
    losses = matched_losses(problem, spread)

    def counted(which: Chains, loss: Robust) -> Chains:
        return which.counted(loss, prior_factor(problem, loss, spread))

    level = rough.levelled()
    exact = [(f"{MATCHED}, roughly integrated", counted(rough, loss)) for loss in losses]
    exact.append((MATCHED, counted(chains, losses[-1])))
    if level is not None:
        exact.insert(0, (f"{MATCHED}, with level errors", counted(level, losses[0])))
    fewer = reduced
    if isinstance(search, BackwardLifting):
        require_squares(problem)
        fewer = lifted
    few = tuple((name, fewer(which)) for name, which in exact)
    return Stages(counted(level or rough, losses[0]), few, search, record)


def finished_by_single_shooting(
    one: Attempt, residuals: Residual, box: Box, spread: float
) -> Attempt:
    """Finish an attempt by single shooting where exact matching did not converge.

    Natural level functions need not fall: where the optimum is hardly determined, exact matching
    may run in circles round it. It begins where the continuation ended; kept if it converges.
    """
    continued = one.trail[0]
    fit = in_deviations(GaussNewton().fit(residuals, box.vector(continued.parameters), box), spread)
    better = not one.fit.status.usable or fit.cost < one.fit.cost
    if fit.status is not Status.CONVERGED or not better:
        return one
    end = Horizon(
        box.mapping(fit.x),
        fit.cost,
        fit.status,
        "single shooting",
        iterations=fit.steps,
        integrations=fit.iterations,
    )
    return Attempt(fit, (*one.trail, end), limited=limited(fit))


def integrated_at_deadline(one: Attempt, residuals: Residual, spread: float) -> Attempt:
    """Integrate the unknowns of an attempt that the deadline ended before its nodes met."""
    at = residuals(one.fit.x)
    if at is None:
        return one
    fit = one.fit._replace(at=at, status=Status.TIME_LIMIT, active=None)
    return one._replace(fit=in_deviations(fit, spread), notes=())


def space_of(problem: Problem, known: tuple[Given, ...], start: Point, at: Chained | None) -> Space:
    """Bounds and sizes.

    at  the chains at `start`; None if they cannot be computed there
    """
    lower, upper = tuple(k.lower for k in known), tuple(k.upper for k in known)
    size = tuple(k.size for k in known)
    linear = _held(at, size, len(problem.box))
    least = floors(linear, start.unknowns, problem.box)
    return Space(problem.box, lower, upper, Point(least, size))


def _grown(space: Space, point: Point) -> Space:
    """With sizes of the unknowns that they have reached at a point."""
    reached = np.maximum(space.size.unknowns, NEAR * np.abs(point.unknowns))
    return space._replace(size=space.size._replace(unknowns=reached))


def _held(at: Chained | None, size: tuple[FloatArray, ...], n: int) -> Linearised:
    """Residuals and relative gaps by the unknowns (n of them), nodes being held where they are."""
    if at is None:
        return Linearised(np.zeros(0), np.zeros((0, n)))
    residuals, jacobians = [at.free.residual], [at.free.jacobian]
    for chain, s in zip(at.chains, size, strict=True):
        assert isinstance(chain, Chain), "the continuation has derivatives of each interval"
        residuals += [chain.residual, (chain.gap / s).ravel()]
        jacobians += [chain.by_unknown, (chain.drift / s[:, None]).reshape(-1, n)]
    return Linearised(np.concatenate(residuals), np.vstack(jacobians))


def _fit_of(outcome: Outcome, space: Space) -> Fit:
    """The outcome by the unknowns alone.

    Nodes that do not meet are no answer, nor are constraints that are not kept.
    """
    point, status = outcome.point, outcome.status
    if outcome.at is not None and not _meets(outcome, space):
        status = Status.FAILED
    elif outcome.at is not None and not _keeps(outcome, space):
        is_limit = status in {Status.ITERATION_LIMIT, Status.TIME_LIMIT}
        status = Status.FAILED if is_limit else Status.INFEASIBLE
    return Fit(
        point.unknowns,
        outcome.condensed,
        status,
        outcome.evaluations,
        outcome.iterations,
        active=outcome.active,
    )


def _meets(outcome: Outcome, space: Space) -> bool:
    """Whether nodes do."""
    at = outcome.at
    return at is not None and gap_length(at, space.scale(outcome.point)) <= OPEN


def _keeps(outcome: Outcome, space: Space) -> bool:
    """Whether constraints are kept."""
    at = outcome.at
    return at is not None and missed_length(at, space.scale(outcome.point)) <= MISSED


class _Record:
    """What a search goes through, kept until its stage ends; nothing unless asked for."""

    def __init__(self, stages: Stages, space: Space) -> None:
        self._stages, self._wanted, self._space = stages, stages.record, space
        self._shootings = stages.chains.shootings
        self._seen: list[Iterate] = []

    def watch(self, point: Point, at: Chained) -> None:
        self._stages.reached[:] = [point.unknowns.copy()]
        if not self._wanted:
            return
        starts = [
            np.vstack([shooting.start(point.unknowns), nodes[1:]])
            for shooting, nodes in zip(self._shootings, point.nodes, strict=True)
        ]
        self._seen.append(
            Iterate(
                self._space.box.mapping(point.unknowns),
                at.cost,
                gap_length(at, self._space.size),
                tuple(s.nodes for s in self._shootings),
                tuple(starts),
            )
        )

    def horizon(self, method: str, outcome: Outcome) -> Horizon:
        """The stage that ends here."""
        seen, self._seen = tuple(self._seen), []
        return Horizon(
            self._space.box.mapping(outcome.point.unknowns),
            _cost(outcome.at),
            outcome.status,
            method,
            iterations=outcome.iterations,
            integrations=outcome.evaluations,
            iterates=seen,
        )


def _cost(at: Chained | None) -> float:
    return float("inf") if at is None else at.cost
