"""One search of multiple shooting: continuation from free nodes, then exact matching."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import NEVER, Deadline
from igpe.core.errors import Unsupported
from igpe.core.estimates import Horizon, Iterate
from igpe.core.markup import in_words
from igpe.core.status import Status
from igpe.dynamics.search.backward_lifting import BackwardLifting
from igpe.dynamics.search.engine import Attempt
from igpe.dynamics.shooting.base import constraints, in_deviations, limited, losses_of
from igpe.dynamics.shooting.chains import Chains, Given
from igpe.dynamics.shooting.residuals import unmeasured
from igpe.numerics.least_squares.base import NEAR, Fit, Linearised, Residual, Robust, floors
from igpe.numerics.least_squares.chains import Chain, Chained, Limits, Point
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.least_squares.generalised import GeneralisedGaussNewton, Outcome
from igpe.numerics.least_squares.proposal import Space, gap_length, missed_length
from igpe.numerics.least_squares.soft_links import SoftLinks
from igpe.problem.problem import Problem

CLOSE = 1e-7  # distance from a bound, relative to its size or 1, of what is active
ACTIVE = "Active constraints: "
SHOWN = 5  # names in a sentence, at most


def constraint_notes(at: Chained, chains: Chains, status: Status, *, kept: bool) -> Iterator[str]:
    """Sentences on constraints that were missed, or are active.

    at    where a search ended, and how;  kept: whether constraints are
    """
    each = [
        (name + shooting.limits.of, chain.limits, i)
        for shooting, chain in zip(chains.shootings, at.chains, strict=True)
        if shooting.limits is not None and chain.limits is not None
        for i, name in enumerate(shooting.limits.names)
    ]
    if not kept:
        name, limits, i = max(each, key=lambda one: one[1].missed[one[2]])
        yield (
            f"igpe found no parameter values that satisfy all constraints: '{name}' is violated "
            f"by {limits.missed[i]:.3g}. Relax constraints, widen bounds, or start elsewhere."
        )
    elif each and status.usable:
        active = [name for name, limits, i in each if _is_active(limits, i)]
        if active:
            yield f"{ACTIVE}{in_words(active, SHOWN)}."


def _is_active(limits: Limits, i: int) -> bool:
    """Whether an inequality holds its value where it is."""
    value = limits.value[i]
    near = min(value - limits.low[i], limits.high[i] - value)
    return bool(limits.low[i] < limits.high[i] and near <= CLOSE * max(abs(value), 1.0))


def _losses(problem: Problem, spread: float) -> list[Robust]:
    """Losses of residuals in units of `spread`; absolute values count as Huber's loss."""
    return [replace(loss, absolute=False) for loss in losses_of(problem, spread)]


def _prior_factor(problem: Problem, loss: Robust, spread: float) -> float:
    """What unmeasured residuals are multiplied by, to weigh beside the others as they should.

    Where absolute values are minimised, those are 1 / (2 delta spread) of what `loss` makes.
    """
    return float(np.sqrt(2 * loss.delta * spread)) if problem.loss.is_absolute else 1.0


def objective(problem: Problem, at: Linearised | None, spread: float) -> float:
    """What the problem minimises; the residuals of no measurement come first."""
    if at is None:
        return float("inf")
    if not problem.loss.is_absolute:
        return at.cost * spread**2
    loss = _losses(problem, spread)[-1]
    free, delta = unmeasured(problem).size, loss.delta
    rho = at.residual[free:] ** 2
    size = np.where(rho <= delta**2, np.sqrt(rho), (rho + delta**2) / (2 * delta))
    priors = at.residual[:free] * spread / _prior_factor(problem, loss, spread)
    return float(np.sum(size)) * spread + float(priors @ priors)


ExactSearch: TypeAlias = GeneralisedGaussNewton | BackwardLifting
FREE, MATCHED = "continuation from free nodes", "exact matching"
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
        point, exact, seen = start, self.exact, list[Iterate]()
        watch = partial(self._watch, space, seen)
        self.chains.broken = None
        if links is None:
            exact = exact[-1:]
        else:
            soft = links.run(deadline.keeping(self.free), point, space, watch)
            ended = Status.TIME_LIMIT if deadline.over else Status.CONVERGED
            status = Status.INTEGRATION_BROKE if soft.at is None else ended
            outcome = Outcome(soft.point, soft.at, status, soft.iterations, soft.evaluations)
            trail.append(_horizon(FREE, outcome, space.box, seen))
            # Sizes of the unknowns grow with what they have reached.
            point, size = soft.point, space.size
            grown = np.maximum(size.unknowns, NEAR * np.abs(point.unknowns))
            space = space._replace(size=size._replace(unknowns=grown))
        coarse = replace(self.search, tolerance=COARSE, decrease=COARSE**2)
        for name, chains in exact:
            search = self.search if chains is self.chains else coarse
            outcome = search.fit(deadline.keeping(chains), point, space, watch)
            if deadline.over and outcome.status is Status.STALLED:
                outcome = outcome._replace(status=Status.TIME_LIMIT)
            trail.append(_horizon(name, outcome, space.box, seen))
            point = outcome.point
        return self._ended(outcome, space, tuple(trail))

    def _ended(self, outcome: Outcome, space: Space, trail: tuple[Horizon, ...]) -> Attempt:
        """The outcome by the unknowns alone.

        Nodes that do not meet are no answer, nor are constraints that are not kept.
        """
        at, status, size = outcome.at, outcome.status, space.scale(outcome.point)
        kept = at is not None and missed_length(at, size) <= MISSED
        if at is None:
            status = status if self.chains.broken is None else self.chains.broken.status
        elif not gap_length(at, size) <= OPEN:
            status = Status.FAILED
        elif not kept:
            is_limit = status in {Status.ITERATION_LIMIT, Status.TIME_LIMIT}
            status = Status.FAILED if is_limit else Status.INFEASIBLE
        fit = Fit(
            outcome.point.unknowns,
            outcome.condensed,
            status,
            outcome.evaluations,
            outcome.iterations,
            active=outcome.active,
        )
        notes = self.chains.reasons(fit)
        if at is None:
            return Attempt(fit, trail, notes)
        pairs = zip(self.chains.shootings, outcome.limited, strict=False)
        held = dict.fromkeys(n for s, on in pairs for n in np.array(s.ivp.states)[on])
        if held:
            notes += (f"The bounds of {', '.join(held)} are active.",)
        more = constraint_notes(at, self.chains, status, kept=kept)
        return Attempt(fit, trail, (*notes, *more))

    def _watch(self, space: Space, seen: list[Iterate], point: Point, at: Chained) -> None:
        """Keep where the search stands, and all of it if the method records."""
        self.reached[:] = [point.unknowns.copy()]
        if not self.record:
            return
        shootings = self.chains.shootings
        pairs = zip(shootings, point.nodes, strict=True)
        seen.append(
            Iterate(
                space.box.mapping(point.unknowns),
                at.cost,
                gap_length(at, space.size),
                tuple(s.nodes for s in shootings),
                tuple(np.vstack([s.start(point.unknowns), nodes[1:]]) for s, nodes in pairs),
            )
        )


def _horizon(method: str, outcome: Outcome, box: Box, seen: list[Iterate]) -> Horizon:
    """The stage that ends here, with what was seen in it."""
    iterates = tuple(seen)
    seen.clear()
    return Horizon(
        box.mapping(outcome.point.unknowns),
        float("inf") if outcome.at is None else outcome.at.cost,
        outcome.status,
        method,
        iterations=outcome.iterations,
        integrations=outcome.evaluations,
        iterates=iterates,
    )


def stages_of(
    problem: Problem, chains: Chains, rough: Chains, search: ExactSearch, *, record: bool = False
) -> Stages:
    """Level standard deviations and gentle losses first, the problem's own with `chains` last.

    raises Unsupported for what backward lifting cannot do
    """
    spread = chains.shootings[0].spread
    losses = _losses(problem, spread)
    is_lifted = isinstance(search, BackwardLifting)
    if is_lifted:
        _require_lifting(problem, chains)

    def counted(which: Chains, loss: Robust) -> Chains:
        return replace(which, loss=loss, factor=_prior_factor(problem, loss, spread))

    def matched(which: Chains, loss: Robust) -> Chains:
        shootings = tuple(
            replace(s, form="lifted" if is_lifted else "through" if s.pays else "each")
            for s in which.shootings
        )
        return replace(counted(which, loss), shootings=shootings)

    level = rough.levelled()
    exact = [(f"{MATCHED}, roughly integrated", matched(rough, loss)) for loss in losses]
    if level is not None:
        exact.insert(0, (f"{MATCHED}, with level errors", matched(level, losses[0])))
    exact.append((MATCHED, matched(chains, losses[-1])))
    return Stages(counted(level or rough, losses[0]), tuple(exact), search, record)


def _require_lifting(problem: Problem, chains: Chains) -> None:
    refused = constraints(problem)
    if not problem.loss.is_squares:
        refused = [type(problem.loss).__name__]
    if refused:
        raise Unsupported(
            "BackwardLifting minimises only sums of squares and supports no model constraints; the "
            f"problem has {refused}. Use the default search of MultipleShooting, "
            "GeneralisedGaussNewton()."
        )
    for intervals in (s.intervals for s in chains.shootings):
        if not intervals.sweeps:
            raise Unsupported(
                "BackwardLifting needs RungeKutta() or Automatic(), equations without implicit "
                f"algebraic variables, and a C compiler.{' ' * bool(intervals.refused)}"
                f"{intervals.refused} Omit the argument `search` to use GeneralisedGaussNewton()."
            )


def finished_by_single_shooting(
    one: Attempt, residuals: Residual, box: Box, spread: float
) -> Attempt:
    """Finish an attempt by single shooting where exact matching did not converge.

    Natural level functions need not fall: where the optimum is hardly determined, exact matching
    may run in circles round it. It begins where the continuation ended; kept if it converges.
    """
    start = box.vector(one.trail[0].parameters)
    fit = in_deviations(GaussNewton().fit(residuals, start, box), spread)
    better = not one.fit.status.usable or fit.cost < one.fit.cost
    if fit.status is not Status.CONVERGED or not better:
        return one
    parameters, method = box.mapping(fit.x), "single shooting"
    end = Horizon(parameters, fit.cost, fit.status, method, iterations=fit.steps)
    end = replace(end, integrations=fit.iterations)
    return Attempt(fit, (*one.trail, end), limited=limited(fit))


def space_of(problem: Problem, known: tuple[Given, ...], start: Point, at: Chained | None) -> Space:
    """Bounds and sizes.

    at  the chains at `start`; None if they cannot be computed there
    """
    n, sizes = len(problem.box), tuple(k.size for k in known)
    linear = Linearised(np.zeros(0), np.zeros((0, n)))
    if at is not None:  # residuals and relative gaps, nodes being held where they are
        residuals, jacobians = [at.free.residual], [at.free.jacobian]
        for chain, size in zip(at.of(Chain), sizes, strict=True):
            residuals += [chain.residual, (chain.gap / size).ravel()]
            jacobians += [chain.by_unknown, (chain.drift / size[:, None]).reshape(-1, n)]
        linear = Linearised(np.concatenate(residuals), np.vstack(jacobians))
    least = floors(linear, start.unknowns, problem.box)
    lower, upper = tuple(k.lower for k in known), tuple(k.upper for k in known)
    return Space(problem.box, lower, upper, Point(least, sizes))
