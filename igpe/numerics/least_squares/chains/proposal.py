"""One full step of generalised Gauss-Newton on chains, and the step with its operator elsewhere.

The linear problem of a robust loss, min sum rho(r + J d) inside limits, is solved by squares whose
weights change. Squares with the weights of the last solution lie above rho, so that every round
lowers it, but slowly. Outliers are therefore given only a share of their weight, and their slope as
a residual,

    w' = share w,     r' = (w r - w' J d) / w'        (w r is the slope of rho, halved)

which with share -> 0 is Newton's method on the squares and lines of rho. A round that does not
lower it requests a larger share; share = 1 always does.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains.chains import (
    Chained,
    Condensed,
    Evaluate,
    Limits,
    Point,
    condensed,
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
        """The nearest point inside; unknowns exactly on a bound that rounding keeps them from."""
        box, digit = self.box, ROUNDING * self.size.unknowns
        q = np.where(point.unknowns - box.lower <= digit, box.lower, point.unknowns)
        q = np.where(box.upper - q <= digit, box.upper, q)
        nodes = zip(point.nodes, self.lower, self.upper, strict=True)
        return Point(q, tuple(np.clip(*part) for part in nodes))

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

    @property
    def promised(self) -> float:
        """What the linear problem would cost after the whole step."""
        left = self.whole.at.residual + self.whole.at.jacobian @ self.move.unknowns
        return _worth(self.at, left)

    @property
    def limited(self) -> tuple[BoolArray, ...]:
        """For each chain (n_x,) which numbers of its nodes are kept from leaving a bound."""
        limited, first = [], len(self.move.unknowns)
        for keep, nodes in zip(self.bounded, self.move.nodes, strict=True):
            held = np.zeros(len(keep), dtype=bool)
            rows, width = self.inverse.active - first, int(keep.sum())
            size = (len(nodes) - 1) * width
            held[np.flatnonzero(keep)[rows[(rows >= 0) & (rows < size)] % max(width, 1)]] = True
            limited.append(held)
            first += size
        return tuple(limited)

    @property
    def active(self) -> FloatArray | None:
        """(a, n) derivative of the active constraints by the unknowns; None: there are none."""
        if not self.at.limits:
            return None
        pairs = zip(self.at.chains, self.whole.moves, strict=True)
        along = (c.limits.along(m[:, :, :-1]) for c, m in pairs if c.limits is not None)
        scales = (scale for _, scale in _scaled(self.at, self.size))
        rows = np.vstack([a / scale[:, None] for a, scale in zip(along, scales, strict=True)])
        active = self.inverse.active - (self.inverse.rows - len(rows))
        return np.asarray(rows[active[active >= 0]])


def proposal(at: Chained, point: Point, space: Space) -> Proposal:
    """The minimiser of the linearised problem inside all bounds."""
    whole, size = condensed(at), space.scale(point)
    rows = _rows(whole, at, point, size, space)
    step, root = _minimiser(at, whole.at, lambda linear: inverse(linear, size.unknowns, rows))
    move = whole.move(step.change)
    return Proposal(at, whole, root, step, move, size, move.length(size), space.bounded)


ROUNDS, ENOUGH = 60, 1e-11  # at most; relative decrease that ends them
FIRST, LEAST = 0.1, 1e-6  # shares


def _minimiser(
    at: Chained, whole: Linearised, solve: Callable[[Linearised], Inverse]
) -> tuple[Inverse, FloatArray]:
    """Minimise what the condensed residuals `whole` count; `solve` does so for squares.

    returns  the inverse whose step is the minimum, and the roots (m,) of the weights it belongs to
    """

    def times(root: FloatArray) -> Linearised:
        return Linearised(root * whole.residual, root[:, None] * whole.jacobian)

    def weights(residual: FloatArray) -> FloatArray:
        return np.concatenate([np.ones(free), at.loss.weights(residual[free:])])

    free = len(at.free.residual)
    root = np.sqrt(weights(whole.residual))
    solution = solve(times(root))
    if at.loss.is_plain:
        return solution, root
    d, share = solution.change, FIRST
    worth = _worth(at, whole.residual + whole.jacobian @ d)
    for _ in range(ROUNDS):
        moved = whole.jacobian @ d
        weight = weights(whole.residual + moved)
        slope = weight * (whole.residual + moved)  # of rho at d
        flat = np.where(weight < 1, share * weight, weight)  # less curvature than outliers have
        root = np.sqrt(flat)
        flatter = Linearised((slope - flat * moved) / root, root[:, None] * whole.jacobian)
        there = solve(flatter).change
        worth_there = _worth(at, whole.residual + whole.jacobian @ there)
        decrease = worth - worth_there
        if decrease > 0:
            d, worth, share = there, worth_there, max(share / 4, LEAST)
        if decrease <= ENOUGH * worth:
            if share >= 1:
                break
            share = min(10 * share, 1.0)
    root = np.sqrt(weights(whole.residual + whole.jacobian @ d))
    return solve(times(root)), root


def _worth(at: Chained, residual: FloatArray) -> float:
    """What condensed residuals (m,) count; the free ones come first."""
    n = len(at.free.residual)
    return float(residual[:n] @ residual[:n]) + at.loss.worth(residual[n:])


def simplified(step: Proposal, trial: Chained, share: float) -> Point:
    """The step with derivatives and active set of a proposal, but the residuals of a trial.

    G(x) r(trial) (Peifer & Timmer 2007, eq. 15); the trial lies a `share` along the step.
    """
    shifts, residuals = [], [trial.free.residual]
    for old, new in zip(step.at.full, trial.chains, strict=True):
        shift, hanging = old.shifted(new.gap)
        shifts.append(shift)
        residuals.append(new.residual + hanging)
    active, reached = step.inverse.active, step.inverse.reached
    offset = _offsets(step.at, shifts, step.size, step.bounded)[active]
    # Bounds have come a share of their way, constraints as far as they say.
    scaled = zip(_scaled(step.at, step.size), trial.limits, strict=True)
    parts = [(there.value - here.value) / scale for (here, scale), there in scaled]
    came, gone = np.concatenate([np.zeros(0), *parts]), share * reached
    first = step.inverse.rows - len(came)
    is_limit = active >= first
    gone[is_limit] = came[active[is_limit] - first]
    residual = step.root * np.concatenate(residuals)
    change = step.inverse.again(residual, reached - gone - offset)
    nodes = (m[:, :, :-1] @ change + s for m, s in zip(step.whole.moves, shifts, strict=True))
    return Point(change, tuple(nodes))


def gap_length(at: Chained, size: Point) -> float:
    """Largest gap of all, relative to the nodes' sizes."""
    pairs = zip(at.chains, size.nodes, strict=True)
    return max((float(np.max(np.abs(c.gap / s), initial=0.0)) for c, s in pairs), default=0.0)


def missed_length(at: Chained, size: Point) -> float:
    """By how much constraints are missed at most, relative to their scale."""
    missed = (float(np.max(m.missed / scale, initial=0.0)) for m, scale in _scaled(at, size))
    return max(missed, default=0.0)


def missed_sum(at: Chained, step: Proposal) -> float:
    """Sum of all gaps and of all that constraints are missed by, in the sizes of a proposal."""
    pairs = zip(at.chains, step.size.nodes, strict=True)
    gaps = sum(float(np.sum(np.abs(c.gap / s))) for c, s in pairs)
    limits = zip(at.limits, _scaled(step.at, step.size), strict=True)
    return gaps + sum(float(np.sum(there.missed / scale)) for there, (_, scale) in limits)


def _scaled(at: Chained, size: Point) -> list[tuple[Limits, FloatArray]]:
    """The constraints of each chain that has some, with their scales."""
    pairs = zip(at.chains, size.nodes, strict=True)
    limited = ((c.limits, s) for c, s in pairs if c.limits is not None)
    return [(limits, limits.scale(size.unknowns, s)) for limits, s in limited]


def _rows(whole: Condensed, at: Chained, point: Point, size: Point, space: Space) -> Rows:
    """The bounds of the unknowns, those of all nodes but the starts chain by chain, constraints.

    Nodes may leave their bounds, and constraints be missed, if they must: with gaps, no step may
    exist that keeps them.
    """
    box, n = space.box, len(space.box)
    matrix = [np.diag(1 / size.unknowns)]
    low = [(box.lower - point.unknowns) / size.unknowns]
    high = [(box.upper - point.unknowns) / size.unknowns]
    for k, keep in enumerate(space.bounded):
        scale, nodes = size.nodes[k][keep], point.nodes[k][1:, keep]
        matrix.append((whole.moves[k][1:, keep, :-1] / scale[:, None]).reshape(-1, n))
        low.append(((space.lower[k][keep] - nodes) / scale).ravel())
        high.append(((space.upper[k][keep] - nodes) / scale).ravel())
    constrained = [m for c, m in zip(at.chains, whole.moves, strict=True) if c.limits is not None]
    count = 0
    for (limits, scale), move in zip(_scaled(at, size), constrained, strict=True):
        matrix.append(limits.along(move[:, :, :-1]) / scale[:, None])
        low.append((limits.low - limits.value) / scale)
        high.append((limits.high - limits.value) / scale)
        count += len(scale)
    rows = np.vstack(matrix)
    offset = _offsets(at, [move[:, :, -1] for move in whole.moves], size, space.bounded)
    hard = np.arange(len(rows)) < n
    return Rows(rows, offset, np.concatenate(low), np.concatenate(high), hard, count)


def _offsets(
    at: Chained, shifts: list[FloatArray], size: Point, bounded: tuple[BoolArray, ...]
) -> FloatArray:
    """What rows move by without any change of the unknowns."""
    parts = zip(shifts, size.nodes, bounded, strict=True)
    nodes = [(s[1:, keep] / scale[keep]).ravel() for s, scale, keep in parts]
    constrained = [s for c, s in zip(at.chains, shifts, strict=True) if c.limits is not None]
    pairs = zip(_scaled(at, size), constrained, strict=True)
    limits = [limits.moved(s[:, :, None])[:, 0] / scale for (limits, scale), s in pairs]
    return np.concatenate([np.zeros(len(size.unknowns)), *nodes, *limits])


ENOUGH_FALL = 1e-4  # of the promised decrease
SHORTEST, SHORTER, LONGER = 1e-5, 0.1, 0.5  # shares; bounds of the next one relative to the last


class Shortened(NamedTuple):
    """The point a share of a move led to; `at` is None if no share lowers the merit enough."""

    point: Point
    at: Chained | None
    evaluations: int


def shortened(
    evaluate: Evaluate,
    space: Space,
    point: Point,
    move: Point,
    *,
    merit: Callable[[Chained], float],
    before: float,
    decrease: float,
    noise: float = 0.0,
) -> Shortened:
    """Shorten a move from a point until a merit falls (Armijo), by parabolas.

    before    the merit at the point;  decrease: what the whole move promises, at first
    noise     of the merit: so little is no rise
    """
    share, evaluations = 1.0, 0
    while decrease > 0 and share >= SHORTEST:
        there = space.clip(point.moved(move, share))
        trial = evaluate(there)
        evaluations += 1
        worth = np.inf if trial is None else merit(trial)
        if trial is not None and before - worth >= ENOUGH_FALL * share * decrease - noise:
            return Shortened(there, trial, evaluations)
        parabola = 0.5 * share * decrease / (decrease + max((worth - before) / share, 0.0))
        share = min(max(parabola, SHORTER * share), LONGER * share)
    return Shortened(point, None, evaluations)
