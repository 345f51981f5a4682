"""Backward lifting: exact matching by gradients, for very many unknowns (Houska et al., 4.2).

    min |r(q, s)|^2   s.t.   all nodes meet,   q in a box

Nodes stay free, as for Gauss-Newton, but only three directions of derivatives are asked for: one
forwards that closes the gaps, one backwards for the gradient of what is left in dq,

    g = J' (r + shift),

(their section 4.2 with the Gauss-Newton approximation in the place of H_s, so that the seed is that
of the residuals as the linearised gaps close), and one forwards that moves the nodes with dq. The
curvature K of their equation 12 is learnt by BFGS updates. It begins as Gauss-Newton's, from all
derivatives at the start, and does so again every some steps and where the search seems to rest:
Gauss-Newton itself decides whether it does. Steps are shortened until

    |r + shift|^2 + rho |gaps|^2

falls, the cost as the linearised gaps close: near r'r + 2 sigma'gaps, Fletcher's smooth merit
(Nocedal & Wright, Numerical Optimization, 2006, section 15.4). A sum of |gaps| beside r'r would
hold steps back for the second order of the gaps they open (Maratos' effect).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.core.arguments import is_count, is_finite, require
from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.numerics.least_squares.bounded import RIDGE, least
from igpe.numerics.least_squares.chains.chains import (
    Chained,
    Lifted,
    Point,
    Watch,
    condensed,
    unwatched,
)
from igpe.numerics.least_squares.chains.generalised import (
    MEET,
    GeneralisedGaussNewton,
    Outcome,
    tame,
)
from igpe.numerics.least_squares.chains.proposal import (
    Proposal,
    Space,
    gap_length,
    limited_by,
    promised,
    proposal,
)

Evaluate: TypeAlias = Callable[[Point], Chained | None]

LONGEST = 1.0  # of an unknown's size: how far a step may move it
SURE = 0.2  # of the curvature along a step that an update must leave (Powell's damping)
ENOUGH = 1e-4  # of the promised decrease
NOISE = 1e-9  # relative change of the merit that integration errors hide
OPEN = 1e-2  # sum of squared gaps that counts as much as the cost, or as many as there are
LITTLE = 1e-5  # relative change of the cost that ends the use of one curvature
NEAR = 1e-3  # the same that Gauss-Newton must promise at most to have its own steps taken
FEW = 1  # times that it may, before BFGS updates go on to the end
SHORTEST, SHORTER, LONGER = 1e-5, 0.1, 0.5  # shares; bounds of the next one relative to the last


@dataclass(frozen=True)
class BackwardLifting:
    """Exact matching by gradients and BFGS updates, in place of Gauss-Newton.

    For problems with very many unknowns (some hundred and more), in `MultipleShooting(search=...)`:
    an iteration costs a few directions of derivatives whatever the number of unknowns, while one of
    Gauss-Newton costs one for each, but it takes more of them. All derivatives are taken at the
    start, every so many iterations, and where the search seems to rest. The continuation from free
    nodes needs them all; `links=()` goes without it.

    Needs `RungeKutta` or `Automatic`, equations without implicit algebraic variables and a
    C compiler; robust losses and constraints of the model are refused. Bounds of states are kept by
    moving nodes back inside; where that does not do, as a fit lies on one, Gauss-Newton ends the
    search, with all derivatives in each iteration.

    tolerance, decrease, max_iterations  as of `GeneralisedGaussNewton`
    renewed     iterations after which all derivatives, and Gauss-Newton's curvature, are taken anew
    raises      ProblemError for fields that mean nothing
    """

    tolerance: float = 1e-7
    decrease: float = 1e-11
    max_iterations: int = 500
    renewed: int = 10

    def __post_init__(self) -> None:
        owner = "BackwardLifting"
        for field in ("tolerance", "decrease"):
            value = getattr(self, field)
            require(is_finite(value) and value >= 0, owner, field, value, "a number, 0 or more")
        for field in ("max_iterations", "renewed"):
            steps = getattr(self, field)
            ok = is_count(steps) and steps >= 1
            require(ok, owner, field, steps, "a whole number, 1 or more")

    def fit(
        self, evaluate: Evaluate, start: Point, space: Space, watch: Watch = unwatched
    ) -> Outcome:
        """Search from `start`, clipped into the space. Failure is the status of the Outcome.

        evaluate  chains that are all `Lifted`
        """
        evaluate, point = tame(evaluate), space.clip(start)
        at = evaluate(point)
        if at is None:
            return Outcome(point, None, Status.INTEGRATION_BROKE, 0, 1)
        watch(point, at)
        now, near = _Now(point, at, 0, 1), 0
        while True:
            whole = _whole(now.at)
            now = now._replace(evaluations=now.evaluations + 1)
            if whole is None:
                return now.told(now.at, Status.STALLED)
            step = proposal(whole, now.point, space)
            ended, promise = self._ended(whole, step, now.iterations), whole.cost - promised(step)
            if ended is not None:
                return now.told(whole, ended, step)
            near = near + 1 if abs(promise) <= NEAR * whole.cost else 0
            after = _Descent(self, evaluate, space, step).run(now, watch, near)
            if after.iterations == now.iterations:
                if any(held.any() for held in limited_by(step)):
                    return self._on_bounds(evaluate, after, whole, space, watch)
                hidden = promise <= NOISE * whole.cost and gap_length(whole, step.size) <= MEET
                return after.told(whole, Status.CONVERGED if hidden else Status.STALLED, step)
            now = after

    def _on_bounds(
        self, evaluate: Evaluate, now: "_Now", here: Chained, space: Space, watch: Watch
    ) -> Outcome:
        """The end of the search by Gauss-Newton, whose steps know the bounds of nodes.

        here  with all derivatives, known and told already
        """
        known = [here]

        def whole(point: Point) -> Chained | None:
            if known:
                return known.pop()
            return None if (at := evaluate(point)) is None else _whole(at)

        def told(point: Point, at: Chained) -> None:
            if at is not here:
                watch(point, at)

        left = max(self.max_iterations - now.iterations, 1)
        search = GeneralisedGaussNewton(self.tolerance, self.decrease, max_iterations=left)
        found = search.fit(whole, now.point, space, told)
        return found._replace(
            iterations=now.iterations + found.iterations,
            evaluations=now.evaluations + found.evaluations - 1,
        )

    def _ended(self, at: Chained, step: Proposal, iterations: int) -> Status | None:
        if self._rests(at, step):
            return Status.CONVERGED
        return Status.ITERATION_LIMIT if iterations >= self.max_iterations else None

    def _rests(self, at: Chained, step: Proposal) -> bool:
        """Whether neither the point nor its worth would change noticeably."""
        if step.length <= self.tolerance:
            return True
        change = abs(at.cost - promised(step))
        return change <= self.decrease * at.cost and gap_length(at, step.size) <= MEET


class _Now(NamedTuple):
    """Where the search stands."""

    point: Point
    at: Chained
    iterations: int
    evaluations: int

    def told(self, at: Chained, status: Status, step: Proposal | None = None) -> Outcome:
        """The outcome here; at: with all derivatives, if there are any."""
        found = Outcome(self.point, at, status, self.iterations, self.evaluations)
        if step is None:
            return found._replace(at=None)
        return found._replace(held=step.inverse.held, limited=limited_by(step))


class _Step(NamedTuple):
    """A full step and what it promises.

    move    of unknowns and nodes
    slope   of the cost along it, gaps closed;  change: that a parabola promises
    """

    move: Point
    slope: float
    change: float


class _Descent:
    """Iterations from one Gauss-Newton curvature, in units of the unknowns' sizes."""

    def __init__(
        self, method: BackwardLifting, evaluate: Evaluate, space: Space, first: Proposal
    ) -> None:
        self._method, self._evaluate, self._space = method, evaluate, space
        self._first, self._size, self._weight = first, first.size, 0.0
        scaled = condensed(first.at).at.jacobian * self._size.unknowns
        self._curvature = scaled.T @ scaled
        self._curvature.flat[:: len(scaled.T) + 1] += RIDGE * np.max(np.diag(self._curvature))

    def run(self, now: _Now, watch: Watch, near: int) -> _Now:
        """Until little is to be gained, no step is found, or it is time for a new curvature.

        near  how often in a row it began near the end: first with Gauss-Newton's own step
        """
        gradient, first = self._gradient(now.at), now.iterations
        last = min(first + self._method.renewed, self._method.max_iterations)
        little = LITTLE if near <= FEW else self._method.decrease
        while now.iterations < last and np.isfinite(gradient).all():
            own = near > 0 and now.iterations == first
            step = self._newton(gradient) if own else self._step(now, gradient)
            enough = little if now.iterations > first else 0.0
            if abs(step.change) <= enough * now.at.cost and self._off(now.at) <= MEET:
                return now
            there = self._moved(now, step)
            if there.at is now.at and not own:
                return there
            near = 0
            if there.at is now.at:
                continue
            watch(there.point, there.at)
            after = self._gradient(there.at)
            change = (there.point.unknowns - now.point.unknowns) / self._size.unknowns
            self._learn(change, after - gradient)
            now, gradient = there, after
        return now

    def _newton(self, gradient: FloatArray) -> _Step:
        """Gauss-Newton's."""
        move = self._first.move
        scaled = move.unknowns / self._size.unknowns
        slope = 2 * float(gradient @ scaled)
        return _Step(move, slope, slope + float(scaled @ self._curvature @ scaled))

    def _gradient(self, at: Chained) -> FloatArray:
        """(n,) half of that of the cost as linearised gaps close."""
        found: FloatArray = at.free.jacobian.T @ at.free.residual
        for chain in _lifted(at):
            found = found + chain.gradient(chain.residual + chain.shift)
        return np.asarray(found * self._size.unknowns)

    def _step(self, now: _Now, gradient: FloatArray) -> _Step:
        box, size = self._space.box, self._size.unknowns
        low = np.maximum((box.lower - now.point.unknowns) / size, -LONGEST)
        high = np.minimum((box.upper - now.point.unknowns) / size, LONGEST)
        scaled = least(self._curvature, gradient, low, high)
        nodes = tuple(chain.along(scaled * size) for chain in _lifted(now.at))
        slope = 2 * float(gradient @ scaled)
        change = slope + float(scaled @ self._curvature @ scaled)
        return _Step(Point(scaled * size, nodes), slope, change)

    def _off(self, at: Chained) -> float:
        """Sum of the squared gaps, relative to the nodes' sizes."""
        pairs = zip(at.chains, self._size.nodes, strict=True)
        return sum(float(np.sum((c.gap / s) ** 2)) for c, s in pairs)

    def _moved(self, now: _Now, step: _Step) -> _Now:
        """Along the step until the merit has fallen enough; where it was if it does not."""
        off, share, evaluations = self._off(now.at), 1.0, now.evaluations
        closed = _closed(now.at)
        self._weight = self._weight or closed / max(off, OPEN)
        merit, decrease = closed + self._weight * off, 2 * self._weight * off - step.slope
        while decrease > 0 and share >= SHORTEST:
            there = self._space.clip(now.point.moved(step.move, share))
            trial = self._evaluate(there)
            evaluations += 1
            worth = np.inf if trial is None else _closed(trial) + self._weight * self._off(trial)
            if trial is not None and merit - worth >= ENOUGH * share * decrease - NOISE * merit:
                return _Now(there, trial, now.iterations + 1, evaluations)
            parabola = 0.5 * share * decrease / (decrease + max((worth - merit) / share, 0.0))
            share = min(max(parabola, SHORTER * share), LONGER * share)
        return now._replace(evaluations=evaluations)

    def _learn(self, moved: FloatArray, turned: FloatArray) -> None:
        """BFGS update, damped to keep K positive (Nocedal & Wright, procedure 18.2)."""
        k = self._curvature
        along = k @ moved
        bent, seen = float(moved @ along), float(moved @ turned)
        if bent <= 0:
            return
        if seen < SURE * bent:
            share = (1 - SURE) * bent / (bent - seen)
            turned = share * turned + (1 - share) * along
            seen = float(moved @ turned)
        k += np.outer(turned, turned) / seen - np.outer(along, along) / bent


def _lifted(at: Chained) -> tuple[Lifted, ...]:
    found = tuple(c for c in at.chains if isinstance(c, Lifted))
    assert len(found) == len(at.chains), "backward lifting asks for single directions"
    return found


def _closed(at: Chained) -> float:
    """The cost as the linearised gaps close."""
    chains = _lifted(at)
    return at.free.cost + sum(float(np.sum((c.residual + c.shift) ** 2)) for c in chains)


def _whole(at: Chained) -> Chained | None:
    """The same with all derivatives."""
    found = [chain.whole() for chain in _lifted(at)]
    chains = tuple(c for c in found if c is not None)
    whole = at._replace(chains=chains)
    return whole if len(chains) == len(found) and whole.is_tame else None
