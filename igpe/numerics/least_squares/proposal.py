"""One full step of generalised Gauss-Newton on chains, and the step with its operator elsewhere.

The linear problem of a robust loss, min sum rho(r + J d) inside limits, is solved by squares whose
weights change. Squares with the weights of the last solution lie above rho, so that every round
lowers it, but slowly. Outliers are therefore given only a share of their weight, and their slope as
a residual,

    w' = share w,     r' = (w r - w' J d) / w'        (w r is the slope of rho, halved)

which with share -> 0 is Newton's method on the squares and lines of rho. A round that does not
lower it requests a larger share; share = 1 always does.

The linear problem inside the step, after condensing, is

    min |r + J d|   s.t.   low <= C d + c <= high

Equations among the rows (low = high) are eliminated first, d = P e + Z y. Columns of what is left
are scaled, J Z = Q U S V', and directions whose singular value is below a fraction of the largest
are held (Peifer & Timmer 2007, section 4, with an infinite Delta), unless limits are in the way:
then they may be what leads round them. In w = S V' y the problem is to project one point on a
polyhedron, which an active-set method (daqp) does; held directions count with a small S. What it
finds active is then solved for exactly, so that the same generalised inverse serves the natural
level function (their eq. 15): there, active rows must go the rest of their way, and no other.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import daqp
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.box import Box
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains import (
    Chained,
    Condensed,
    Evaluate,
    Limits,
    Point,
    condensed,
)

RANK = 1e-10  # directions below this fraction of the largest are held
ROUND = 1e-5  # of the largest singular value: as if held directions had it, where they give way
FREE = 1e30  # no limit
SOFT = 8  # daqp's word for a row that may be violated if it must
MET = 1e-9  # a limit violated by less is kept
TOLERANCE = 1e-5  # a violation below it is daqp's rounding, not a row that gave way
NONE = np.zeros(0, dtype=np.intp)
STILL = 1e-12  # of what moves a row: what is left is rounding


class Rows(NamedTuple):
    """Limits low <= C d + c <= high, each row in units of what it limits.

    matrix     (k, n);  offset, low, high  (k,)
    hard       (k,) rows that must be kept; d = 0 must satisfy them
    limits     so many rows at the end are constraints, equations where low = high
    """

    matrix: FloatArray
    offset: FloatArray
    low: FloatArray
    high: FloatArray
    hard: BoolArray
    limits: int = 0


class _Equal(NamedTuple):
    """Equations E d = e eliminated: d = through e + along y.

    rows     (n_e,) which;  through (n, n_e);  along (n, n - rank)
    effect   (m, n_e) J through
    still    (k,) rows that nothing moves once the equations are met
    """

    rows: IntArray
    through: FloatArray
    along: FloatArray
    effect: FloatArray
    still: BoolArray


@dataclass(frozen=True)
class Inverse:
    """The generalised inverse at one point, with the rows that were found active.

    change   (n,) the step there
    active   (a,) which rows, equations first;  reached (a,) C d + c of them
    held     how many directions of the unknowns were held;  rows: how many rows there are
    """

    change: FloatArray
    active: IntArray
    reached: FloatArray
    held: int
    rows: int
    _equal: _Equal
    _basis: FloatArray  # (n, r) d = through e + basis w; wider if held directions may give way
    _left: FloatArray  # (m, r) w = -left' (r + J through e)
    _rows: FloatArray  # (a - equations, n)

    def again(self, residual: FloatArray, targets: FloatArray) -> FloatArray:
        """(n,) the step for other residuals (m,) that takes C d of the active rows to (a,)."""
        n = self._equal.through.shape[1]
        fixed = self._equal.through @ targets[:n]
        free = -self._left.T @ (residual + self._equal.effect @ targets[:n])
        right = targets[n:] - self._rows @ fixed
        return np.asarray(fixed + self._basis @ _on(self._rows @ self._basis, right, free))


def inverse(at: Linearised, size: FloatArray, rows: Rows) -> Inverse:
    """Solve the problem at a point; size (n,) scales the unknowns.

    Rows that are not hard give way if no step keeps them all: inequalities first, then equations.
    """
    first = len(rows.low) - rows.limits
    equations = first + np.flatnonzero(rows.low[first:] == rows.high[first:])
    solution, kept = _solved(at, _eliminated(at, size, rows, equations), rows)
    if kept or len(equations) == 0:
        return solution
    return _solved(at, _eliminated(at, size, rows, equations[:0]), rows)[0]


def _eliminated(at: Linearised, size: FloatArray, rows: Rows, equations: IntArray) -> _Equal:
    if len(equations) == 0:
        nothing = np.zeros((len(size), 0))
        still = np.asarray(~rows.matrix.any(axis=1))
        return _Equal(equations, nothing, np.diag(size), np.zeros((len(at.residual), 0)), still)
    u, singular, vt = np.linalg.svd(rows.matrix[equations] * size)
    rank = int(np.sum(singular > RANK * max(float(singular[0]), np.finfo(float).tiny)))
    through = size[:, None] * (vt[:rank].T / singular[:rank]) @ u[:, :rank].T
    along = size[:, None] * vt[rank:].T
    left = np.linalg.norm(rows.matrix @ along, axis=1)
    still = np.asarray(left <= STILL * np.linalg.norm(rows.matrix * size, axis=1))
    return _Equal(equations, through, along, at.jacobian @ through, still)


def _solved(at: Linearised, equal: _Equal, rows: Rows) -> tuple[Inverse, bool]:
    """The problem with these equations eliminated, and whether hard rows are kept."""
    orthogonal, triangle = np.linalg.qr(at.jacobian @ equal.along)
    u, singular, vt = np.linalg.svd(triangle)
    largest = float(np.max(singular, initial=np.finfo(float).tiny))
    rank = int(np.sum(singular > RANK * largest))
    basis, left = equal.along @ (vt[:rank].T / singular[:rank]), orthogonal @ u[:, :rank]
    rest = vt[rank:]
    solution, is_free, kept = _projected(at, equal, rows, basis, left)
    if not is_free and len(rest):
        # Held directions give way too, as if a residual hardly knew them.
        basis = np.column_stack([basis, equal.along @ (rest.T / (ROUND * largest))])
        left = np.column_stack([left, np.zeros((len(left), len(rest)))])
        solution, _, kept = _projected(at, equal, rows, basis, left)
    return replace(solution, held=len(rest)), kept


def _projected(
    at: Linearised, equal: _Equal, rows: Rows, basis: FloatArray, left: FloatArray
) -> tuple[Inverse, bool, bool]:
    """In d = through e + basis w, w = -left' (r + J through e).

    returns  the inverse, whether no limit was in the way, and whether hard rows are kept
    """
    targets = rows.low[equal.rows] - rows.offset[equal.rows]
    fixed = equal.through @ targets
    free = -left.T @ (at.residual + equal.effect @ targets)
    others = np.setdiff1d(np.arange(len(rows.low)), equal.rows)
    turned, offset = rows.matrix[others] @ basis, (rows.offset + rows.matrix @ fixed)[others]
    turned[equal.still[others]] = 0.0
    part = Rows(turned, offset, rows.low[others], rows.high[others], rows.hard[others])
    value = turned @ free + offset
    is_free = bool(((value >= part.low - MET) & (value <= part.high + MET)).all())
    active, reached, kept = (NONE, np.zeros(0), True) if is_free else _active(free, part)
    best = _on(turned[active], reached - offset[active], free)
    solution = Inverse(
        fixed + basis @ best,
        np.concatenate([equal.rows, others[active]]).astype(np.intp),
        np.concatenate([rows.low[equal.rows], reached]),
        0, len(rows.low), equal, basis, left, rows.matrix[others[active]],
    )  # fmt: skip
    return solution, is_free, kept


def _active(free: FloatArray, rows: Rows) -> tuple[IntArray, FloatArray, bool]:
    """The rows that hold the point of the polyhedron next to `free`.

    returns  (a,) which, (a,) where they are held, and whether hard rows are kept
    """
    moves = rows.matrix.any(axis=1)
    inside = (rows.offset >= rows.low - MET) & (rows.offset <= rows.high + MET)
    moving, kept = np.flatnonzero(moves), bool((inside | moves | ~rows.hard).all())
    if len(moving) == 0:
        return NONE, np.zeros(0), kept
    upper = np.minimum(rows.high - rows.offset, FREE)[moving]
    lower = np.maximum(rows.low - rows.offset, -FREE)[moving]
    square, matrix = np.eye(len(free)), np.ascontiguousarray(rows.matrix[moving])
    for soft in (0, SOFT):  # rows give way only if no point keeps them all
        sense = np.where(rows.hard[moving], 0, soft).astype(np.int32)
        point, _, flag, details = daqp.solve(square, -free, matrix, upper, lower, sense)
        if flag > 0:
            break
    active = moving[np.flatnonzero(details["lam"])]
    value = rows.matrix[active] @ point + rows.offset[active]
    nearest = np.clip(value, rows.low[active], rows.high[active])
    keep = rows.hard[active] | (np.abs(nearest - value) <= TOLERANCE)
    return active.astype(np.intp), np.where(keep, nearest, value), kept and flag > 0


def _on(matrix: FloatArray, right: FloatArray, point: FloatArray) -> FloatArray:
    """The point of {matrix w = right} next to the one given."""
    if len(matrix) == 0:
        return point
    change = np.linalg.lstsq(matrix, right - matrix @ point, rcond=RANK)[0]
    return np.asarray(point + change)


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
        """Cost of the linear problem after the full step."""
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
