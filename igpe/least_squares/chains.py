"""Chains of nodes with residuals that hang on them, and how they are condensed.

A trajectory in K intervals begins each of them at a node s_k (n_x numbers). Linearised at a point,
the nodes of one chain must move so that they meet,

    ds_0 = drift_0 dq + gap_0,     ds_k = step_k ds_(k-1) + drift_k dq + gap_k

(Peifer & Timmer 2007, eq. 9), and each residual depends on the node of its interval and on the
unknowns q that all share. So every ds_k is affine in dq, ds_k = A_k dq + a_k, by one recursion
from the first interval to the last; what is left has as many columns as there are unknowns,
whatever the number of intervals (their eq. 11, which runs backwards and costs O(K^2) where each
interval has residuals).
"""

from typing import NamedTuple

import numpy as np

from igpe.arrays import FloatArray, IntArray
from igpe.least_squares.base import Linearised
from igpe.least_squares.limits import Limits
from igpe.least_squares.robust import PLAIN, Robust


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


class Chained(NamedTuple):
    """All chains at a point, and the residuals that hang on no node, such as priors.

    loss  how the residuals of the chains count; the others count as squares
    """

    chains: tuple[Chain, ...]
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

    def weighted(self) -> "Chained":
        """With residuals multiplied by the roots of their weights."""
        if self.loss.is_plain:
            return self
        return self._replace(chains=tuple(_weighted(c, self.loss) for c in self.chains))

    @property
    def limits(self) -> tuple[Limits, ...]:
        """The constraints of each chain that has some."""
        return tuple(c.limits for c in self.chains if c.limits is not None)

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are."""
        return all(c.is_finite for c in self.chains)


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
    moves = tuple(_moves(chain) for chain in at.chains)
    residuals, jacobians = [at.free.residual], [at.free.jacobian]
    for chain, move in zip(at.chains, moves, strict=True):
        both = np.matmul(chain.by_node[:, None, :], move[chain.owner])[:, 0, :]
        residuals.append(chain.residual + both[:, -1])
        jacobians.append(chain.by_unknown + both[:, :-1])
    return Condensed(Linearised(np.concatenate(residuals), np.vstack(jacobians)), moves)


def _weighted(chain: Chain, loss: Robust) -> Chain:
    root = np.sqrt(loss.weights(chain.residual))
    return chain._replace(
        residual=root * chain.residual,
        by_node=root[:, None] * chain.by_node,
        by_unknown=root[:, None] * chain.by_unknown,
    )


def _moves(chain: Chain) -> FloatArray:
    """(K, n_x, n + 1) what each ds_k is in dq and 1."""
    found = np.concatenate([chain.drift, chain.gap[:, :, None]], axis=2)
    for k in range(1, len(found)):
        found[k] += chain.step[k] @ found[k - 1]
    return found


def shifted(chain: Chain, steps: FloatArray) -> FloatArray:
    """(K, n_x) the part a_k of ds_k that comes with other gaps (`steps`, (K, n_x))."""
    found = steps.copy()
    for k in range(1, len(found)):
        found[k] += chain.step[k] @ found[k - 1]
    return found
