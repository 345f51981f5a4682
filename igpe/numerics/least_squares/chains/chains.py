"""Chains of nodes with residuals that hang on them, and how they are condensed.

A trajectory in K intervals begins each of them at a node s_k (n_x numbers). Linearised at a point,
the nodes of one chain must move so that they meet,

    ds_0 = drift_0 dq + gap_0,     ds_k = step_k ds_(k-1) + drift_k dq + gap_k

(Peifer & Timmer 2007, eq. 9), and each residual depends on the node of its interval and on the
unknowns q that all share. So every ds_k is affine in dq, ds_k = A_k dq + a_k, by one recursion
from the first interval to the last; what is left has as many columns as there are unknowns,
whatever the number of intervals (their eq. 11, which runs backwards and costs O(K^2) where each
interval has residuals).

The linear problem of a robust loss, by squares whose weights change.

    min sum rho(r + J d)   inside limits

Squares with the weights of the last solution lie above rho, so that every round lowers it, but
slowly. Outliers are therefore given only a share of their weight, and their slope as a residual,

    w' = share w,     r' = (w r - w' J d) / w'        (w r is the slope of rho, halved)

which with share -> 0 is Newton's method on the squares and lines of rho. A round that does not
lower it asks for a larger share; share = 1 always does.

Constraints on unknowns and nodes beyond bounds, linearised and condensed.

    low <= c(q, s) <= high,    low = high where it is an equation

F2 = 0 and F3 >= 0 of Peifer & Timmer (2007, eq. 6); a constraint may couple nodes of several
intervals, as a periodic course does. Condensed, ds_k = A_k dq + a_k, it is a row in dq like that of
a bound.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.numerics.least_squares.base import PLAIN, Linearised, Robust, have_squares
from igpe.numerics.least_squares.chains.inner import Inverse


class Limits(NamedTuple):
    """The c constraints of one chain at a point, with their exact derivatives.

    value, low, high  (c,)
    by_unknown        (c, n) d value / d q
    row, owner        (e,): constraint and interval of each of the derivatives by nodes,
    by_node           (e, n_x); those of the same constraint and interval add up
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    by_unknown: FloatArray
    row: IntArray
    owner: IntArray
    by_node: FloatArray

    @property
    def missed(self) -> FloatArray:
        """(c,) by how much each is violated; 0 where it is kept."""
        return np.maximum(np.maximum(self.low - self.value, self.value - self.high), 0.0)

    @property
    def equations(self) -> BoolArray:
        """(c,) which are equations."""
        return np.asarray(self.low == self.high)

    def along(self, moves: FloatArray) -> FloatArray:
        """(c, n + 1) change of the values if nodes move by moves (K, n_x, n + 1) in dq and 1."""
        found = np.column_stack([self.by_unknown, np.zeros(len(self.value))])
        parts = np.matmul(self.by_node[:, None, :], moves[self.owner])[:, 0, :]
        np.add.at(found, self.row, parts)
        return found

    def shifted(self, shift: FloatArray) -> FloatArray:
        """(c,) change of the values if the nodes alone move, by (K, n_x)."""
        found = np.zeros(len(self.value))
        np.add.at(found, self.row, np.sum(self.by_node * shift[self.owner], axis=1))
        return found

    def scale(self, size: FloatArray, node_size: FloatArray) -> FloatArray:
        """(c,) positive: how much each changes when all it depends on changes by its size."""
        squares = np.sum((self.by_unknown * size) ** 2, axis=1)
        np.add.at(squares, self.row, np.sum((self.by_node * node_size) ** 2, axis=1))
        found = np.sqrt(squares)
        return np.where(found > 0, found, 1.0)


SURELY_TAME = 100.0  # logarithm of what all intervals together multiply, far below that


class Point(NamedTuple):
    """Unknowns q (n,) and, for each chain, its nodes (K, n_x)."""

    unknowns: FloatArray
    nodes: tuple[FloatArray, ...]

    def moved(self, move: "Point", share: float = 1.0) -> "Point":
        """This point and a share of a move from it."""
        nodes = (s + share * ds for s, ds in zip(self.nodes, move.nodes, strict=True))
        return Point(self.unknowns + share * move.unknowns, tuple(nodes))

    def minus(self, other: "Point", share: float = 1.0) -> "Point":
        """The move that leads from a share of the other here."""
        return self.moved(other, -share)

    def length(self, size: "Point") -> float:
        """Euclidean norm, each number relative to its size."""
        parts = zip((self.unknowns, *self.nodes), (size.unknowns, *size.nodes), strict=True)
        return float(np.sqrt(sum(np.sum((a / b) ** 2) for a, b in parts)))


class Chain(NamedTuple):
    """One chain of K nodes at a point: what it is worth and its exact derivatives.

    residual    (m,) in standard deviations
    by_node     (m, n_x) d residual / d node of its interval
    by_unknown  (m, n) d residual / d q
    owner       (m,) the interval each residual lies in, not decreasing
    gap         (K, n_x): start(q) - s_0, then end of the interval before - s_k
    step        (K, n_x, n_x) d of that end / d node before; zero at 0
    drift       (K, n_x, n) d of that end / d q
    limits      constraints beyond bounds; None if there are none
    """

    residual: FloatArray
    by_node: FloatArray
    by_unknown: FloatArray
    owner: IntArray
    gap: FloatArray
    step: FloatArray
    drift: FloatArray
    limits: Limits | None = None

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are."""
        limits = self.limits
        told = () if limits is None else (limits.value, limits.by_unknown, limits.by_node)
        return all(bool(np.isfinite(part).all()) for part in (*self[:-1], *told))

    @property
    def is_tame(self) -> bool:
        """Whether derivatives through all intervals, which multiply, still have squares."""
        steps = np.abs(self.step).sum(axis=2).max(axis=1, initial=1.0)
        if np.log(steps).sum() < SURELY_TAME:
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            return have_squares(*self.condensed())

    def condensed(self) -> "Affine":
        """Nodes and residuals by dq alone."""
        moves = np.concatenate([self.drift, self.gap[:, :, None]], axis=2)
        for k in range(1, len(moves)):
            moves[k] += self.step[k] @ moves[k - 1]
        hanging = np.matmul(self.by_node[:, None, :], moves[self.owner])[:, 0, :]
        return Affine(moves, hanging[:, -1], self.by_unknown + hanging[:, :-1])

    def shifted(self, gaps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(K, n_x) the part a_k of ds_k that comes with other gaps, and (m,) of the residuals."""
        found = gaps.copy()
        for k in range(1, len(found)):
            found[k] += self.step[k] @ found[k - 1]
        hanging = np.matmul(self.by_node[:, None, :], found[self.owner][:, :, None])
        return found, hanging[:, 0, 0]


class Reduced(NamedTuple):
    """A chain whose derivatives went along the directions that are left (Schloeder's trick).

    It is what `Chain` is after `condensed`, without the derivatives of each interval; those in the
    one direction that other gaps make are asked for where they are wanted.

    residual  (m,) in standard deviations;  gap (K, n_x)
    affine    nodes and residuals by dq
    along     of gaps (K, n_x) what `shifted` is
    """

    residual: FloatArray
    gap: FloatArray
    affine: "Affine"
    along: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    limits: None = None

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are."""
        parts = (self.residual, self.gap, *self.affine)
        return all(bool(np.isfinite(part).all()) for part in parts)

    @property
    def is_tame(self) -> bool:
        """See `Chain`."""
        return have_squares(*self.affine)

    def condensed(self) -> "Affine":
        """See `Chain`."""
        return self.affine

    def shifted(self, gaps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Chain`."""
        return self.along(gaps)


class Lifted(NamedTuple):
    """A chain that is asked for derivatives in single directions, forwards and backwards.

    residual  (m,) in standard deviations;  gap (K, n_x)
    shift     (m,) change of the residuals as the gaps close, dq = 0
    gradient  of weights (m,) of the residuals: (n,) of their sum by dq, nodes moving as they must
    along     of dq (n,): (K, n_x) how the nodes must move, gaps included
    whole     the chain with all derivatives, None if it cannot be computed
    """

    residual: FloatArray
    gap: FloatArray
    shift: FloatArray
    gradient: Callable[[FloatArray], FloatArray]
    along: Callable[[FloatArray], FloatArray]
    whole: Callable[[], "Chain | Reduced | None"]
    limits: None = None

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are."""
        return all(bool(np.isfinite(v).all()) for v in (self.residual, self.gap, self.shift))

    @property
    def is_tame(self) -> bool:
        """See `Chain`."""
        return have_squares(self.residual, self.gap, self.shift)


class Affine(NamedTuple):
    """How nodes and residuals of a chain change with dq, once nodes move as they must.

    moves     (K, n_x, n + 1): ds_k = moves[k, :, :n] dq + moves[k, :, n]
    shift     (m,) change of the residuals for dq = 0;  jacobian (m, n) by dq
    """

    moves: FloatArray
    shift: FloatArray
    jacobian: FloatArray


class Chained(NamedTuple):
    """All chains at a point, and the residuals that hang on no node, such as priors.

    loss  how the residuals of the chains count; the others count as squares
    """

    chains: tuple[Chain | Reduced | Lifted, ...]
    free: Linearised
    loss: Robust = PLAIN

    @property
    def cost(self) -> float:
        """What is minimised: the sum of squared residuals, or what the loss makes of it."""
        return self.free.cost + sum(self.loss.worth(c.residual) for c in self.chains)

    def counted(self, whole: Linearised) -> Linearised:
        """The condensed residuals such that their squares are what they count."""
        n = len(self.free.residual)
        residual, jacobian = self.loss.squared(whole.residual[n:], whole.jacobian[n:])
        return Linearised(
            np.concatenate([whole.residual[:n], residual]),
            np.vstack([whole.jacobian[:n], jacobian]),
        )

    def worth(self, residual: FloatArray) -> float:
        """What condensed residuals (m,) count; the free ones come first."""
        n = len(self.free.residual)
        return float(residual[:n] @ residual[:n]) + self.loss.worth(residual[n:])

    def weights(self, residual: FloatArray) -> FloatArray:
        """(m,) weights of condensed residuals as squares; the free ones come first."""
        n = len(self.free.residual)
        return np.concatenate([np.ones(n), self.loss.weights(residual[n:])])

    def weighted(self) -> tuple[Chain, ...]:
        """The chains with residuals multiplied by the roots of their weights; none is reduced."""
        found = tuple(c for c in self.chains if isinstance(c, Chain))
        assert len(found) == len(self.chains), "free nodes need the derivatives of each interval"
        return found if self.loss.is_plain else tuple(_weighted(c, self.loss) for c in found)

    @property
    def full(self) -> tuple[Chain | Reduced, ...]:
        """The chains, all derivatives being there."""
        found = tuple(c for c in self.chains if not isinstance(c, Lifted))
        assert len(found) == len(self.chains), "these chains are asked for single directions"
        return found

    @property
    def limits(self) -> tuple[Limits, ...]:
        """The constraints of each chain that has some."""
        return tuple(c.limits for c in self.chains if c.limits is not None)

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are."""
        return all(c.is_finite for c in self.chains)

    @property
    def is_tame(self) -> bool:
        """Whether the problem that is left in dq can be solved in numbers."""
        return all(c.is_tame for c in self.chains)


Watch: TypeAlias = Callable[[Point, Chained], None]
"""Is told of every point that a search accepts, its start included."""


def unwatched(point: Point, at: Chained) -> None:
    """Nobody looks on."""


class Condensed(NamedTuple):
    """The problem that is left in dq.

    at     residuals (m,) and derivative (m, n), with all nodes moved as they must
    moves  for each chain (K, n_x, n + 1): ds_k = moves[k, :, :n] dq + moves[k, :, n]
    """

    at: Linearised
    moves: tuple[FloatArray, ...]

    def move(self, step: FloatArray) -> Point:
        """The move of all that comes with dq (n,) of the unknowns."""
        full = np.append(step, 1.0)
        return Point(step, tuple(m @ full for m in self.moves))


def condensed(at: Chained) -> Condensed:
    """Eliminate the nodes; O(K)."""
    found = [chain.condensed() for chain in at.full]
    pairs = zip(at.chains, found, strict=True)
    residuals = [at.free.residual, *(chain.residual + one.shift for chain, one in pairs)]
    jacobians = [at.free.jacobian, *(one.jacobian for one in found)]
    whole = Linearised(np.concatenate(residuals), np.vstack(jacobians))
    return Condensed(whole, tuple(one.moves for one in found))


def _weighted(chain: Chain, loss: Robust) -> Chain:
    root = np.sqrt(loss.weights(chain.residual))
    return chain._replace(
        residual=root * chain.residual,
        by_node=root[:, None] * chain.by_node,
        by_unknown=root[:, None] * chain.by_unknown,
    )


ROUNDS, ENOUGH = 60, 1e-11  # at most; relative decrease that ends them
FIRST, LEAST = 0.1, 1e-6  # shares


class ReweightedSolution(NamedTuple):
    """The generalised inverse at the minimum, and the roots (m,) of the weights that it belongs to.

    Its step is that minimum, as the weights are those of the residuals it leaves.
    """

    inverse: Inverse
    root: FloatArray


def reweighted_solution(
    at: Chained, whole: Linearised, solve: Callable[[Linearised], Inverse]
) -> ReweightedSolution:
    """Minimise what the condensed residuals `whole` count; `solve` does so for squares."""
    root = np.sqrt(at.weights(whole.residual))
    found = solve(_times(root, whole))
    if at.loss.is_plain:
        return ReweightedSolution(found, root)
    d, share = found.change, FIRST
    worth = at.worth(whole.residual + whole.jacobian @ d)
    for _ in range(ROUNDS):
        there = solve(_flatter(at, whole, d, share)).change
        worth_there = at.worth(whole.residual + whole.jacobian @ there)
        decrease = worth - worth_there
        if decrease > 0:
            d, worth, share = there, worth_there, max(share / 4, LEAST)
        if decrease <= ENOUGH * worth:
            if share >= 1:
                break
            share = min(10 * share, 1.0)
    root = np.sqrt(at.weights(whole.residual + whole.jacobian @ d))
    return ReweightedSolution(solve(_times(root, whole)), root)


def _flatter(at: Chained, whole: Linearised, d: FloatArray, share: float) -> Linearised:
    """Squares with the slopes of rho at d, and less curvature than its outliers' weights have."""
    moved = whole.jacobian @ d
    weight = at.weights(whole.residual + moved)
    slope = weight * (whole.residual + moved)
    flat = np.where(weight < 1, share * weight, weight)
    root = np.sqrt(flat)
    return Linearised((slope - flat * moved) / root, root[:, None] * whole.jacobian)


def _times(root: FloatArray, at: Linearised) -> Linearised:
    return Linearised(root * at.residual, root[:, None] * at.jacobian)
