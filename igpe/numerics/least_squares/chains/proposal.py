"""One full step of generalised Gauss-Newton on chains, and the step with its operator elsewhere.

Gauss-Newton steps shortened until a merit falls: where whole ones circle around the optimum.

    merit = cost + nu (sum of |gaps| + sum of missed constraints),  each relative to its size

Where constraints keep residuals large, whole steps overshoot, and the natural level does not see
it: what it measures lies along the step. The direction leads down the merit if nu is large enough
(Nocedal & Wright, Numerical Optimization, 2006, eq. 18.36), so that some share of it does.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.numerics.least_squares.chains.chains import (
    Chained,
    Condensed,
    Limits,
    Point,
    condensed,
    reweighted_solution,
)
from igpe.numerics.least_squares.chains.inner import Inverse, Rows, inverse

ROUNDING = 1e-11  # of an unknown's size: as far from a bound as on it


class Space(NamedTuple):
    """Where a search takes place.

    box           of the unknowns
    lower, upper  for each chain (n_x,) bounds of its nodes; may be infinite
    size          how large each number is at least: (n,), and for each chain (n_x,)
    """

    box: Box
    lower: tuple[FloatArray, ...]
    upper: tuple[FloatArray, ...]
    size: Point

    def clip(self, point: Point) -> Point:
        """The nearest point inside."""
        parts = zip(point.nodes, self.lower, self.upper, strict=True)
        return Point(self._inside(point.unknowns), tuple(np.clip(*part) for part in parts))

    def _inside(self, unknowns: FloatArray) -> FloatArray:
        """In the box; exactly on a bound that rounding alone keeps them from."""
        box, digit = self.box, ROUNDING * self.size.unknowns
        found = np.where(unknowns - box.lower <= digit, box.lower, unknowns)
        return np.asarray(np.where(box.upper - found <= digit, box.upper, found))

    def scale(self, point: Point) -> Point:
        """How large each number is there."""
        return Point(np.maximum(np.abs(point.unknowns), self.size.unknowns), self.size.nodes)

    @property
    def bounded(self) -> tuple[BoolArray, ...]:
        """For each chain (n_x,) which numbers of its nodes have a bound."""
        pairs = zip(self.lower, self.upper, strict=True)
        return tuple(np.isfinite(low) | np.isfinite(high) for low, high in pairs)


class Proposal(NamedTuple):
    """A full step from a point.

    at       the chains there;  whole: condensed
    root     (m,) roots of the weights of the condensed residuals
    inverse  the generalised inverse that gave the step
    move     the step of unknowns and nodes;  size: how large each number is;  length: scaled
    bounded  see `Space`
    """

    at: Chained
    whole: Condensed
    root: FloatArray
    inverse: Inverse
    move: Point
    size: Point
    length: float
    bounded: tuple[BoolArray, ...]


def proposal(at: Chained, point: Point, space: Space) -> Proposal:
    """The minimiser of the linearised problem inside all bounds."""
    whole, size = condensed(at), space.scale(point)
    rows = _rows(whole, at, point, size, space)
    found, root = reweighted_solution(
        at, whole.at, lambda linear: inverse(linear, size.unknowns, rows)
    )
    move = whole.move(found.change)
    return Proposal(at, whole, root, found, move, size, move.length(size), space.bounded)


def active_limits(step: Proposal) -> FloatArray:
    """(a, n) derivative of the active constraints by the unknowns, relative to their scale."""
    pairs = zip(step.at.chains, step.whole.moves, strict=True)
    along = [c.limits.along(m)[:, :-1] for c, m in pairs if c.limits is not None]
    scaled = _scaled(step.at, step.size)
    parts = [a / scale[:, None] for a, (_, scale) in zip(along, scaled, strict=True)]
    rows = np.vstack([np.zeros((0, len(step.move.unknowns))), *parts])
    active = step.inverse.active - (step.inverse.rows - len(rows))
    return np.asarray(rows[active[active >= 0]])


def promised(step: Proposal) -> float:
    """What the linear problem would cost after the whole step."""
    left = step.whole.at.residual + step.whole.at.jacobian @ step.move.unknowns
    return step.at.worth(left)


def simplified(step: Proposal, trial: Chained, share: float) -> Point:
    """The step with derivatives and active set of a proposal, but the residuals of a trial.

    G(x) r(trial) (Peifer & Timmer 2007, eq. 15); the trial lies a `share` along the step.
    """
    shifts, residuals = [], [trial.free.residual]
    for old, new in zip(step.at.full, trial.chains, strict=True):
        shift, hanging = old.shifted(new.gap)
        shifts.append(shift)
        residuals.append(new.residual + hanging)
    offset = _offsets(step.at, shifts, step.size, step.bounded)[step.inverse.active]
    targets = step.inverse.reached - _gone(step, trial, share) - offset
    change = step.inverse.again(step.root * np.concatenate(residuals), targets)
    nodes = (m[:, :, :-1] @ change + s for m, s in zip(step.whole.moves, shifts, strict=True))
    return Point(change, tuple(nodes))


def limited_by(step: Proposal) -> tuple[BoolArray, ...]:
    """For each chain (n_x,) which numbers of its nodes are kept from leaving a bound."""
    places, first = [], len(step.move.unknowns)
    for keep, nodes in zip(step.bounded, step.move.nodes, strict=True):
        found = np.zeros(len(keep), dtype=bool)
        rows, width = step.inverse.active - first, int(keep.sum())
        size = (len(nodes) - 1) * width
        found[np.flatnonzero(keep)[rows[(rows >= 0) & (rows < size)] % max(width, 1)]] = True
        places.append(found)
        first += size
    return tuple(places)


def gap_length(at: Chained, size: Point) -> float:
    """Largest gap of all, relative to the nodes' sizes."""
    pairs = zip(at.chains, size.nodes, strict=True)
    return max((float(np.max(np.abs(c.gap / s), initial=0.0)) for c, s in pairs), default=0.0)


def missed_length(at: Chained, size: Point) -> float:
    """By how much constraints are missed at most, relative to their scale."""
    told = (m.missed / scale for m, scale in _scaled(at, size))
    return max((float(np.max(m, initial=0.0)) for m in told), default=0.0)


def missed_sum(at: Chained, step: Proposal) -> float:
    """Sum of all gaps and of all that constraints are missed by, in the sizes of a proposal."""
    pairs = zip(at.chains, step.size.nodes, strict=True)
    gaps = sum(float(np.sum(np.abs(c.gap / s))) for c, s in pairs)
    limits = zip(at.limits, _scaled(step.at, step.size), strict=True)
    return gaps + sum(float(np.sum(there.missed / scale)) for there, (_, scale) in limits)


def _gone(step: Proposal, trial: Chained, share: float) -> FloatArray:
    """(a,) how far active rows have come: bounds a share of their way, constraints as they say."""
    pairs = zip(_scaled(step.at, step.size), trial.limits, strict=True)
    parts = [(there.value - here.value) / scale for (here, scale), there in pairs]
    came, gone = np.concatenate([np.zeros(0), *parts]), share * step.inverse.reached
    first = step.inverse.rows - len(came)
    is_limit = step.inverse.active >= first
    gone[is_limit] = came[step.inverse.active[is_limit] - first]
    return gone


def _scaled(at: Chained, size: Point) -> list[tuple[Limits, FloatArray]]:
    """The constraints of each chain that has some, with their scales."""
    pairs = zip(at.chains, size.nodes, strict=True)
    found = ((c.limits, s) for c, s in pairs if c.limits is not None)
    return [(limits, limits.scale(size.unknowns, s)) for limits, s in found]


def _rows(whole: Condensed, at: Chained, point: Point, size: Point, space: Space) -> Rows:
    """The bounds of the unknowns, those of all nodes but the starts chain by chain, constraints.

    Nodes may leave their bounds, and constraints be missed, if they must: with gaps, no step may
    exist that keeps them.
    """
    box, n = space.box, len(space.box)
    matrix = [np.diag(1 / size.unknowns)]
    low = [(box.lower - point.unknowns) / size.unknowns]
    high = [(box.upper - point.unknowns) / size.unknowns]
    shifts = [move[:, :, -1] for move in whole.moves]
    for k, keep in enumerate(space.bounded):
        scale, nodes = size.nodes[k][keep], point.nodes[k][1:, keep]
        matrix.append((whole.moves[k][1:, keep, :-1] / scale[:, None]).reshape(-1, n))
        low.append(((space.lower[k][keep] - nodes) / scale).ravel())
        high.append(((space.upper[k][keep] - nodes) / scale).ravel())
    constrained = [m for c, m in zip(at.chains, whole.moves, strict=True) if c.limits is not None]
    count = 0
    for (limits, scale), move in zip(_scaled(at, size), constrained, strict=True):
        matrix.append(limits.along(move)[:, :-1] / scale[:, None])
        low.append((limits.low - limits.value) / scale)
        high.append((limits.high - limits.value) / scale)
        count += len(scale)
    rows = np.vstack(matrix)
    hard = np.arange(len(rows)) < n
    offset = _offsets(at, shifts, size, space.bounded)
    return Rows(rows, offset, np.concatenate(low), np.concatenate(high), hard, count)


def _offsets(
    at: Chained, shifts: list[FloatArray], size: Point, bounded: tuple[BoolArray, ...]
) -> FloatArray:
    """What rows move by without any change of the unknowns."""
    parts = zip(shifts, size.nodes, bounded, strict=True)
    nodes = [(s[1:, keep] / scale[keep]).ravel() for s, scale, keep in parts]
    constrained = [s for c, s in zip(at.chains, shifts, strict=True) if c.limits is not None]
    pairs = zip(_scaled(at, size), constrained, strict=True)
    limits = [limits.shifted(s) / scale for (limits, scale), s in pairs]
    return np.concatenate([np.zeros(len(size.unknowns)), *nodes, *limits])


Evaluate: TypeAlias = Callable[[Point], Chained | None]

LEAST = 0.3  # of what a share promises to take from the sum of gaps and missed constraints
ENOUGH = 1e-4  # of the promised decrease
SHORTEST, SHORTER, LONGER = 1e-5, 0.1, 0.5  # shares; bounds of the next one relative to the last
NOISE = 1e-8  # relative decrease of the merit that integration errors hide


class Descent(NamedTuple):
    """Where it ended; step: the one that was not taken there.

    rests  whether that step no longer matters, or its decrease is hidden by integration errors
    """

    point: Point
    at: Chained
    step: Proposal
    rests: bool
    iterations: int
    evaluations: int


def descend(
    evaluate: Evaluate,
    start: tuple[Point, Chained],
    space: Space,
    rests: Callable[[Chained, Proposal], bool],
    most: int,
) -> Descent:
    """From a point and what it is worth, at most so many steps."""
    (point, at), weight, evaluations = start, 0.0, 0
    step = proposal(at, point, space)
    for iteration in range(most):
        if rests(at, step):
            return Descent(point, at, step, True, iteration, evaluations)
        off, change = missed_sum(at, step), promised(step) - at.cost
        weight = max(weight, change / ((1 - LEAST) * off) if off > 0 else 0.0)
        merit, decrease = at.cost + weight * off, weight * off - change
        share = 1.0
        while share >= SHORTEST:
            there = space.clip(point.moved(step.move, share))
            trial = evaluate(there)
            evaluations += 1
            worth = np.inf if trial is None else trial.cost + weight * missed_sum(trial, step)
            if trial is not None and merit - worth >= ENOUGH * share * decrease:
                break
            parabola = 0.5 * share * decrease / (decrease + max((worth - merit) / share, 0.0))
            share = min(max(parabola, SHORTER * share), LONGER * share)
        else:
            hidden = decrease <= NOISE * merit
            return Descent(point, at, step, bool(hidden), iteration, evaluations)
        assert trial is not None, "what was taken was evaluated"
        point, at = there, trial
        step = proposal(at, point, space)
    return Descent(point, at, step, rests(at, step), most, evaluations)
