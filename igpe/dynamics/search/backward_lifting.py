"""Backward lifting: exact matching by gradients, for very many unknowns (Houska et al., 4.2).

    min |r(q, s)|^2   s.t.   all nodes meet,   q in a box

Nodes stay free, as for Gauss-Newton, but only three directions of derivatives are computed: one
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

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from igpe.core.arguments import Checked, CountFrom1, NotNegative
from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.numerics.least_squares.active import RIDGE, least
from igpe.numerics.least_squares.chains import (
    Chain,
    Chained,
    Evaluate,
    Lifted,
    Point,
    Reduced,
    Watch,
    unwatched,
)
from igpe.numerics.least_squares.generalised import (
    MEET,
    GeneralisedGaussNewton,
    Outcome,
    rests,
    tame,
)
from igpe.numerics.least_squares.proposal import (
    Proposal,
    Space,
    gap_length,
    proposal,
    shortened,
)

LONGEST = 1.0  # of an unknown's size: how far a step may move it
SURE = 0.2  # of the curvature along a step that an update must leave (Powell's damping)
NOISE = 1e-9  # relative change of the merit that integration errors hide
OPEN = 1e-2  # sum of squared gaps that counts as much as the cost, or as many as there are
LITTLE = 1e-5  # relative change of the cost that ends the use of one curvature
NEAR = 1e-3  # the same that Gauss-Newton must promise at most to have its own steps taken
FEW = 1  # times that it may, before BFGS updates go on to the end


class _Now(NamedTuple):
    """Where the search stands."""

    point: Point
    at: Chained
    iterations: int
    evaluations: int


@dataclass(frozen=True)
class BackwardLifting(Checked):
    """A search method for multiple shooting that uses gradients and BFGS updates instead of
    Gauss-Newton steps.

    Pass this search as `MultipleShooting(search=...)` for problems with hundreds of unknowns. An
    iteration needs only a few directional derivatives, whatever the number of unknowns; a
    Gauss-Newton iteration needs one for each unknown. The search takes more iterations than
    Gauss-Newton. The search computes all derivatives at the start, periodically, and when it seems
    to have converged. The continuation from free nodes needs all derivatives;
    `MultipleShooting(links=())` omits this continuation.

    The method needs `RungeKutta` or `Automatic`, equations without implicit algebraic variables,
    and a C compiler. It does not support robust losses or model constraints. Nodes that violate
    state bounds are moved back inside the bounds. If these moves do not suffice because the fit
    lies on a bound, Gauss-Newton finishes the search and computes all derivatives in each
    iteration.

    tolerance, decrease, max_iterations  as for `GeneralisedGaussNewton`
    renewed     number of iterations between two computations of all derivatives and the
                Gauss-Newton curvature
    """

    tolerance: NotNegative = 1e-7
    decrease: NotNegative = 1e-11
    max_iterations: CountFrom1 = 500
    renewed: CountFrom1 = 10

    def fit(
        self, evaluate: Evaluate, start: Point, space: Space, watch: Watch = unwatched
    ) -> Outcome:
        """Search from `start`, clipped to the bounds. If the search fails, the status of the
        outcome says so.

        evaluate  function that returns the chains at a point; all chains must be `Lifted`
        """
        evaluate, point = tame(evaluate), space.clip(start)
        at = evaluate(point)
        if at is None:
            return Outcome(point, None, Status.INTEGRATION_BROKE, 0, 1)
        watch(point, at)
        now, near = _Now(point, at, 0, 1), 0
        while True:
            full = _full(now.at)
            now = now._replace(evaluations=now.evaluations + 1)
            if full is None:
                return Outcome(now.point, None, Status.STALLED, now.iterations, now.evaluations)
            step = proposal(full, now.point, space)
            ended, after = rests(self.tolerance, self.decrease, full, step, MEET), now
            if not ended and now.iterations < self.max_iterations:
                promise = abs(full.cost - step.promised)
                near = near + 1 if promise <= NEAR * full.cost else 0
                after = _Descent(self, evaluate, space, step).run(now, watch, near)
            if after.iterations == now.iterations:
                break
            now = after
        hidden = full.cost - step.promised <= NOISE * full.cost
        meets = gap_length(full, step.size) <= MEET
        status = Status.CONVERGED if ended or (hidden and meets) else Status.STALLED
        if not ended and now.iterations >= self.max_iterations:
            status = Status.ITERATION_LIMIT
        elif not ended and any(held.any() for held in step.limited):
            return self._on_bounds(evaluate, after, full, space, watch)
        outcome = Outcome(now.point, full, status, now.iterations, after.evaluations)
        return outcome._replace(limited=step.limited)

    def _on_bounds(
        self, evaluate: Evaluate, now: _Now, here: Chained, space: Space, watch: Watch
    ) -> Outcome:
        """The end of the search by Gauss-Newton, whose steps know the bounds of nodes.

        here  with all derivatives, known and watched already
        """
        known = [here]

        def full(point: Point) -> Chained | None:
            if known:
                return known.pop()
            return None if (at := evaluate(point)) is None else _full(at)

        def watch_others(point: Point, at: Chained) -> None:
            if at is not here:
                watch(point, at)

        left = max(self.max_iterations - now.iterations, 1)
        search = GeneralisedGaussNewton(self.tolerance, self.decrease, max_iterations=left)
        end = search.fit(full, now.point, space, watch_others)
        return end._replace(
            iterations=now.iterations + end.iterations,
            evaluations=now.evaluations + end.evaluations - 1,
        )


class _Step(NamedTuple):
    """A full step of unknowns and nodes, the slope of the cost along it with gaps closed, and the
    change of the cost that a parabola promises."""

    move: Point
    slope: float
    change: float


class _Descent:
    """Iterations from one Gauss-Newton curvature, in units of the unknowns' sizes."""

    def __init__(
        self, method: BackwardLifting, evaluate: Evaluate, space: Space, first: Proposal
    ) -> None:
        self._method, self._evaluate, self._space = method, evaluate, space
        self._first, self._size, self._weight = first.move, first.size, 0.0
        scaled = first.whole.at.jacobian * self._size.unknowns
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
            step = self._step(now, gradient, self._first if own else None)
            enough = little if now.iterations > first else 0.0
            if abs(step.change) <= enough * now.at.cost and self._off(now.at) <= MEET:
                return now
            there = self._moved(now, step)
            near = 0
            if there.at is now.at:
                now = there
                if own:
                    continue
                return now
            watch(there.point, there.at)
            after = self._gradient(there.at)
            change = (there.point.unknowns - now.point.unknowns) / self._size.unknowns
            self._learn(change, after - gradient)
            now, gradient = there, after
        return now

    def _gradient(self, at: Chained) -> FloatArray:
        """(n,) half of that of the cost as linearised gaps close."""
        chains = at.of(Lifted)
        gradients = (chain.gradient(chain.residual + chain.shift) for chain in chains)
        gradient = sum(gradients, start=at.free.jacobian.T @ at.free.residual)
        return np.asarray(gradient * self._size.unknowns)

    def _step(self, now: _Now, gradient: FloatArray, move: Point | None) -> _Step:
        """The step of the learnt curvature, if none is given."""
        box, size = self._space.box, self._size.unknowns
        if move is None:
            low = np.maximum((box.lower - now.point.unknowns) / size, -LONGEST)
            high = np.minimum((box.upper - now.point.unknowns) / size, LONGEST)
            dq = least(self._curvature, gradient, low, high) * size
            move = Point(dq, tuple(chain.along(dq) for chain in now.at.of(Lifted)))
        scaled = move.unknowns / size
        slope = 2 * float(gradient @ scaled)
        return _Step(move, slope, slope + float(scaled @ self._curvature @ scaled))

    def _off(self, at: Chained) -> float:
        """Sum of the squared gaps, relative to the nodes' sizes."""
        pairs = zip(at.chains, self._size.nodes, strict=True)
        return sum(float(np.sum((c.gap / s) ** 2)) for c, s in pairs)

    def _moved(self, now: _Now, step: _Step) -> _Now:
        """Along the step until the merit has fallen enough; where it was if it does not."""
        off, closed = self._off(now.at), _closed(now.at)
        weight = self._weight = self._weight or closed / max(off, OPEN)
        merit, decrease = closed + weight * off, 2 * weight * off - step.slope
        there = shortened(
            self._evaluate,
            self._space,
            now.point,
            step.move,
            merit=lambda trial: _closed(trial) + weight * self._off(trial),
            before=merit,
            decrease=decrease,
            noise=NOISE * merit,
        )
        evaluations = now.evaluations + there.evaluations
        if there.at is None:
            return now._replace(evaluations=evaluations)
        return _Now(there.point, there.at, now.iterations + 1, evaluations)

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


def _closed(at: Chained) -> float:
    """The cost as the linearised gaps close."""
    squares = (float(np.sum((c.residual + c.shift) ** 2)) for c in at.of(Lifted))
    return at.free.cost + sum(squares)


def _full(at: Chained) -> Chained | None:
    """Chains with all derivatives; None if one cannot be computed."""
    chains: list[Chain | Reduced] = []
    for chain in at.of(Lifted):
        if (one := chain.whole()) is None:
            return None
        chains.append(one)
    full = at._replace(chains=tuple(chains))
    return full if full.is_tame else None
