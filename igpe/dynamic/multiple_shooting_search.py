"""One search of multiple shooting: continuation from free nodes, then exact matching."""

from dataclasses import dataclass, replace

import numpy as np

from igpe.arrays import FloatArray
from igpe.box import Box
from igpe.dynamic.multiple_shooting_chains import Chains
from igpe.dynamic.multiple_shooting_limits import told
from igpe.dynamic.multiple_shooting_losses import losses_of, prior_factor
from igpe.dynamic.multiple_shooting_nodes import Given
from igpe.dynamic.restarts import Attempt
from igpe.estimates import Horizon
from igpe.least_squares.base import Fit
from igpe.least_squares.chains import Chained, Point
from igpe.least_squares.generalised import GeneralisedGaussNewton, Outcome
from igpe.least_squares.proposal import Space, gap_length, missed_length
from igpe.least_squares.robust import Robust
from igpe.least_squares.soft_links import SoftLinks
from igpe.problem import Problem
from igpe.status import Status

FLOOR, SHARE = 1e-2, 1e-3  # size of an unknown near zero: this, or that share of its range
MATCHED = "exact matching"
COARSE = 1e-3  # scaled length of steps that do not matter before the last stage
OPEN = 1e-3  # a gap, relative to its state, that is not closed
MISSED = 1e-6  # a constraint, relative to its scale, that is not kept


@dataclass(frozen=True)
class Stages:
    """What a search goes through.

    free    chains for the continuation
    exact   what is matched exactly, one after the other: its name and its chains
    search  the search with exact matching
    """

    free: Chains
    exact: tuple[tuple[str, Chains], ...]
    search: GeneralisedGaussNewton

    @property
    def chains(self) -> Chains:
        """Those of the last stage."""
        return self.exact[-1][1]

    def run(self, start: Point, space: Space, links: SoftLinks | None) -> Attempt:
        """From `start`; without `links` the nodes are matched from the beginning.

        A stage that does not converge still hands on its point: the next often does.
        """
        trail: list[Horizon] = []
        point, exact = start, self.exact
        if links is None:
            exact = exact[-1:]
        else:
            soft = links.run(self.free, point, space)
            status = Status.INTEGRATION_BROKE if soft.at is None else Status.CONVERGED
            outcome = Outcome(soft.point, soft.at, status, soft.iterations, soft.evaluations)
            trail.append(_told("nodes that need not meet yet", outcome, space.box))
            point = soft.point
        coarse = replace(self.search, tolerance=COARSE, decrease=COARSE**2)
        for name, chains in exact:
            search = self.search if chains is self.chains else coarse
            outcome = search.fit(chains, point, space)
            trail.append(_told(name, outcome, space.box))
            point = outcome.point
        fit, at = _fit_of(outcome, space), outcome.at
        notes = () if at is None else told(at, self.chains, fit.status, kept=_keeps(outcome, space))
        return Attempt(fit, tuple(trail), tuple(notes))


def stages_of(
    problem: Problem, chains: Chains, rough: Chains, search: GeneralisedGaussNewton
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
    return Stages(counted(level or rough, losses[0]), tuple(exact), search)


def space_of(problem: Problem, known: tuple[Given, ...]) -> Space:
    """Bounds and sizes."""
    lower, upper = tuple(k.lower for k in known), tuple(k.upper for k in known)
    return Space(
        problem.box, lower, upper, Point(_floor(problem.box), tuple(k.size for k in known))
    )


def _floor(box: Box) -> FloatArray:
    width = box.upper - box.lower
    return np.where(np.isfinite(width), np.minimum(FLOOR, SHARE * width), FLOOR)


def _fit_of(outcome: Outcome, space: Space) -> Fit:
    """The outcome by the unknowns alone.

    Nodes that do not meet are no answer, nor are constraints that are not kept.
    """
    point, status = outcome.point, outcome.status
    if outcome.at is not None and not _meets(outcome, space):
        status = Status.FAILED
    elif outcome.at is not None and not _keeps(outcome, space):
        is_limit = status is Status.ITERATION_LIMIT
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


def _told(method: str, outcome: Outcome, box: Box) -> Horizon:
    return Horizon(
        box.mapping(outcome.point.unknowns),
        _cost(outcome.at),
        outcome.status,
        method,
        iterations=outcome.iterations,
        integrations=outcome.evaluations,
    )


def _cost(at: Chained | None) -> float:
    return float("inf") if at is None else at.cost
