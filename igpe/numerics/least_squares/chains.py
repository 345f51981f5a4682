"""Chains of nodes with residuals that hang on them, and how they are condensed.

A trajectory in K intervals begins each of them at a node s_k (n_x numbers). Linearised at a point,
the nodes of one chain must move so that they meet,

    ds_0 = drift_0 dq + gap_0,     ds_k = step_k ds_(k-1) + drift_k dq + gap_k

(Peifer & Timmer 2007, eq. 9), and each residual depends on the node of its interval and on the
unknowns q that all share. So every ds_k is affine in dq, ds_k = A_k dq + a_k, by one recursion
from the first interval to the last; what is left has as many columns as there are unknowns,
whatever the number of intervals (their eq. 11, which runs backwards and costs O(K^2) where each
interval has residuals).

Constraints low <= c(q, s) <= high on unknowns and nodes (F2 = 0 and F3 >= 0 of their eq. 6) may
couple nodes of several intervals, as a periodic trajectory does. Condensed, each is a row in dq
like that of a bound.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.numerics.least_squares.base import PLAIN, Linearised, Robust, have_squares


class Limits(NamedTuple):
    """The c constraints of one chain at a point, with their exact derivatives.

    value, low, high  (c,); low = high where it is an equation
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
        """(c, n) derivative by the unknowns if nodes move with them by moves (K, n_x, n)."""
        return self.by_unknown + self.moved(moves)

    def moved(self, moves: FloatArray) -> FloatArray:
        """(c, j) change of the values if the nodes alone move, by moves (K, n_x, j)."""
        change = np.zeros((len(self.value), moves.shape[2]))
        np.add.at(change, self.row, _hanging(self.by_node, moves, self.owner))
        return change

    def scale(self, size: FloatArray, node_size: FloatArray) -> FloatArray:
        """(c,) positive: how much each changes when all it depends on changes by its size."""
        squares = np.sum((self.by_unknown * size) ** 2, axis=1)
        np.add.at(squares, self.row, np.sum((self.by_node * node_size) ** 2, axis=1))
        return np.where(squares > 0, np.sqrt(squares), 1.0)


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
        pairs = zip((self.unknowns, *self.nodes), (size.unknowns, *size.nodes), strict=True)
        return float(np.sqrt(sum(np.sum((a / b) ** 2) for a, b in pairs)))


class Affine(NamedTuple):
    """How nodes and residuals of a chain change with dq, once nodes move as they must.

    moves     (K, n_x, n + 1): ds_k = moves[k, :, :n] dq + moves[k, :, n]
    shift     (m,) change of the residuals for dq = 0;  jacobian (m, n) by dq
    """

    moves: FloatArray
    shift: FloatArray
    jacobian: FloatArray


SURELY_TAME = 100.0  # logarithm of what all intervals together multiply, far below that


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
        more = () if limits is None else (limits.value, limits.by_unknown, limits.by_node)
        return _all_finite(*self[:-1], *more)

    @property
    def is_tame(self) -> bool:
        """Whether derivatives through all intervals, which multiply, still have squares."""
        steps = np.abs(self.step).sum(axis=2).max(axis=1, initial=1.0)
        if np.log(steps).sum() < SURELY_TAME:
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            return have_squares(*self.condensed())

    def condensed(self) -> Affine:
        """Nodes and residuals by dq alone."""
        moves = self._chained(np.concatenate([self.drift, self.gap[:, :, None]], axis=2))
        hanging = _hanging(self.by_node, moves, self.owner)
        return Affine(moves, hanging[:, -1], self.by_unknown + hanging[:, :-1])

    def shifted(self, gaps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(K, n_x) the part a_k of ds_k that comes with other gaps, and (m,) of the residuals."""
        moves = self._chained(gaps[:, :, None].copy())
        return moves[:, :, 0], _hanging(self.by_node, moves, self.owner)[:, 0]

    def _chained(self, moves: FloatArray) -> FloatArray:
        for k in range(1, len(moves)):
            moves[k] += self.step[k] @ moves[k - 1]
        return moves


class Reduced(NamedTuple):
    """A chain whose derivatives went along the directions that are left (Schloeder's trick).

    It is what `Chain` is after `condensed`, without the derivatives of each interval; those in the
    one direction that other gaps make are computed on request.

    residual  (m,) in standard deviations;  gap (K, n_x)
    affine    nodes and residuals by dq
    shifted   see `Chain.shifted`
    """

    residual: FloatArray
    gap: FloatArray
    affine: Affine
    shifted: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    limits: None = None

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are."""
        return _all_finite(self.residual, self.gap, *self.affine)

    @property
    def is_tame(self) -> bool:
        """See `Chain`."""
        return have_squares(*self.affine)

    def condensed(self) -> Affine:
        """See `Chain`."""
        return self.affine


class Lifted(NamedTuple):
    """A chain that gives derivatives in single directions, forwards and backwards.

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
        return _all_finite(self.residual, self.gap, self.shift)

    @property
    def is_tame(self) -> bool:
        """See `Chain`."""
        return have_squares(self.residual, self.gap, self.shift)


def _all_finite(*parts: Any) -> bool:
    return all(bool(np.isfinite(part).all()) for part in parts)


def _hanging(by_node: FloatArray, moves: FloatArray, owner: IntArray) -> FloatArray:
    """(m, j) what hangs on nodes of intervals `owner` (m,) changes by as they move."""
    return np.asarray(np.matmul(by_node[:, None, :], moves[owner])[:, 0, :])


Kind = TypeVar("Kind")


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

    def of(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """The chains, which are all of this kind."""
        chains = tuple(c for c in self.chains if isinstance(c, kind))
        assert len(chains) == len(self.chains), f"a search needs {kind}"
        return chains

    @property
    def full(self) -> tuple[Chain | Reduced, ...]:
        """The chains, all derivatives being there."""
        return tuple(c for c in self.chains if not isinstance(c, Lifted))

    @property
    def limits(self) -> tuple[Limits, ...]:
        """The constraints of each chain that has some."""
        return tuple(c.limits for c in self.chains if c.limits is not None)

    @property
    def is_tame(self) -> bool:
        """Whether the problem that is left in dq can be solved in numbers."""
        return all(c.is_tame for c in self.chains)


Evaluate: TypeAlias = Callable[[Point], Chained | None]
"""Chains at a point, or None where they cannot be computed (an integration that broke down)."""
Watch: TypeAlias = Callable[[Point, Chained], None]
"""Receives every point that a search accepts, its start included."""


def unwatched(point: Point, at: Chained) -> None:
    """Nobody looks on."""


class Condensed(NamedTuple):
    """The problem that is left in dq.

    at     residuals (m,), free ones first, and derivative (m, n), with all nodes moved as they must
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
    chains = at.full
    affine = [chain.condensed() for chain in chains]
    shifted = (c.residual + a.shift for c, a in zip(chains, affine, strict=True))
    residual = np.concatenate([at.free.residual, *shifted])
    jacobian = np.vstack([at.free.jacobian, *(a.jacobian for a in affine)])
    return Condensed(Linearised(residual, jacobian), tuple(a.moves for a in affine))
