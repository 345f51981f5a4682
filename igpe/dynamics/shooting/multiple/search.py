"""One search of multiple shooting: continuation from free nodes, then exact matching."""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import NEVER, Deadline
from igpe.core.estimates import Horizon, Iterate
from igpe.core.status import Status
from igpe.dynamics.search.restarts import Attempt
from igpe.dynamics.shooting.multiple.backward import lifted, require_squares
from igpe.dynamics.shooting.multiple.chains import Chains, Given
from igpe.dynamics.shooting.multiple.limits import told
from igpe.dynamics.shooting.multiple.losses import losses_of, prior_factor
from igpe.dynamics.shooting.multiple.reduced import reduced
from igpe.dynamics.shooting.remarks import in_deviations, limited
from igpe.numerics.least_squares.base import NEAR, Fit, Linearised, Residual, floors
from igpe.numerics.least_squares.chains.backward_lifting import BackwardLifting
from igpe.numerics.least_squares.chains.chains import Chain, Chained, Point
from igpe.numerics.least_squares.chains.generalised import GeneralisedGaussNewton, Outcome
from igpe.numerics.least_squares.chains.proposal import Space, gap_length, missed_length
from igpe.numerics.least_squares.chains.soft_links import SoftLinks
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.least_squares.robust import Robust
from igpe.problem.problem import Problem

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
            trail.append(record.told(FREE, outcome))
            point, space = soft.point, _grown(space, soft.point)
        coarse = replace(self.search, tolerance=COARSE, decrease=COARSE**2)
        for name, chains in exact:
            search = self.search if chains is self.chains else coarse
            outcome = search.fit(deadline.keeping(chains), point, space, record.watch)
            if deadline.over and outcome.status is Status.STALLED:
                outcome = outcome._replace(status=Status.TIME_LIMIT)
            trail.append(record.told(name, outcome))
            point = outcome.point
        fit, at = _fit_of(outcome, space), outcome.at
        if at is None:
            status = fit.status if self.chains.broken is None else self.chains.broken.status
            fit = fit._replace(status=status)
            return Attempt(fit, tuple(trail), self.chains.reasons(fit))
        limits = told(at, self.chains, fit.status, kept=_keeps(outcome, space))
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
    losses = losses_of(problem, spread)

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


def alone(one: Attempt, residuals: Residual, box: Box, spread: float) -> Attempt:
    """An attempt whose exact matching came to no end, brought to one by single shooting.

    Natural level functions need not fall: where the optimum is hardly determined, exact matching
    may run in circles round it. It begins where the continuation ended; kept if it converges.
    """
    told = one.trail[0]
    fit = in_deviations(GaussNewton().fit(residuals, box.vector(told.parameters), box), spread)
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


def stopped(one: Attempt, residuals: Residual, spread: float) -> Attempt:
    """An attempt that the deadline ended before its nodes met: what its unknowns are worth."""
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

    def told(self, method: str, outcome: Outcome) -> Horizon:
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
