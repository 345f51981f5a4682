"""Chains whose nodes need not meet yet: a continuation that ends where they do.

    min |r(q, s)|^2 + rho |gap(q, s) / size|^2        rho = 1, 10, 100, ...

over unknowns and nodes by Levenberg and Marquardt's method. While gaps are cheap the nodes stay
near the data and the unknowns find the dynamics that fit each interval; nothing is multiplied along
the chain, so that unstable or chaotic models do no harm. Only the first node, the start, is
bound to the unknowns from the beginning.

The normal equations are block tridiagonal in the nodes, with a border, and cost O(K). With W the
weights of the gaps and G, P the derivatives of a link, the nodes' part has

    blocks      D_k = sum h h' + W + G_(k+1)' W G_(k+1)
    below them  -W G_(k+1)
    border      B_k = sum h d' - W P_k + G_(k+1)' W P_(k+1)

One banded Cholesky factorisation with n + 1 right-hand sides leaves a Schur complement in the n
unknowns. The first node is start(q), exactly, so it is no variable here.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solveh_banded

from igpe.core.arguments import Checked, NotNegative, Positive, Rule, is_finite
from igpe.core.arrays import FloatArray
from igpe.numerics.least_squares.base import Robust
from igpe.numerics.least_squares.chains import (
    Chain,
    Chained,
    Evaluate,
    Point,
    Watch,
    unwatched,
)
from igpe.numerics.least_squares.proposal import Space

Weights: TypeAlias = tuple[FloatArray, ...]
"""For each chain (n_x,) weights of its squared gaps."""

TINY = 1e-12  # of the largest curvature, by sizes: what a number without any counts as


class _Block(NamedTuple):
    """One chain's part, for its free nodes 1 .. K - 1.

    diagonal, below  (K - 1, n_x, n_x);  below[k] couples k + 1 (rows) with k, the last unused
    border           (K - 1, n_x, n + 1), with the gradient as its last column
    corner           (n + 1, n + 1), with the gradient as its last column
    drift            (n_x, n) of the first node
    size             (n_x,) how large its numbers are
    """

    diagonal: FloatArray
    below: FloatArray
    border: FloatArray
    corner: FloatArray
    drift: FloatArray
    size: FloatArray


class Normal(NamedTuple):
    """The equations at a point, with numbers at a bound that would leave it taken out.

    corner  (n, n);  slope (n,);  size (n,) how large the unknowns are
    """

    blocks: tuple[_Block, ...]
    corner: FloatArray
    slope: FloatArray
    size: FloatArray

    @classmethod
    def of(cls, at: Chained, weights: Weights, point: Point, space: Space) -> "Normal":
        """Assemble them; `weights` are those of the squared gaps."""
        n, size = len(point.unknowns), space.scale(point)
        parts = zip(at.of(Chain), weights, size.nodes, strict=True)
        blocks = [_block(chain, at.loss, w, s) for chain, w, s in parts]
        free = np.column_stack([at.free.jacobian, at.free.residual])
        normal = free.T @ free + sum((b.corner for b in blocks), start=np.zeros((n + 1, n + 1)))
        slope, box = normal[:n, n], space.box
        keep = _stays(point.unknowns, slope, box.lower, box.upper).astype(float)
        sides = zip(blocks, point.nodes, space.lower, space.upper, strict=True)
        kept = tuple(_kept(b, s, low, high, keep) for b, s, low, high in sides)
        # Rows and columns that are taken out become those of a unit matrix, by sizes.
        taken_out = np.diag((1 - keep) / size.unknowns**2)
        corner = normal[:n, :n] * np.outer(keep, keep) + taken_out
        return cls(kept, corner, slope * keep, size.unknowns)

    def step(self, damping: float) -> Point | None:
        """The move with all diagonals raised by a share `damping`; None if that is not enough."""
        n, diagonal = len(self.slope), np.diag(self.corner)
        raised = damping * diagonal + _least(diagonal, self.size)
        schur, right = self.corner + np.diag(raised), -self.slope
        solved = []
        try:
            for block in self.blocks:
                solution = _banded(block, damping)
                product = block.border.reshape(-1, n + 1).T @ solution
                schur = schur - product[:n, :n]
                right = right + product[:n, n]
                solved.append(solution)
            change = cho_solve(cho_factor(schur), right)
        except (LinAlgError, ValueError):
            return None
        nodes = []
        for block, solution in zip(self.blocks, solved, strict=True):
            first = block.drift @ change
            rest = -(solution[:, -1] + solution[:, :-1] @ change).reshape(-1, len(first))
            nodes.append(np.vstack([first, rest]))
        return Point(change, tuple(nodes))


def _block(chain: Chain, loss: Robust, weight: FloatArray, size: FloatArray) -> _Block:
    """The chain's normal equations, its residuals weighted, its first node eliminated."""
    first, starting = chain.drift[0], chain.owner == 0
    hanging = np.where(starting[:, None], 0.0, chain.by_node)
    by_unknown = chain.by_unknown.copy()
    by_unknown[starting] += chain.by_node[starting] @ first
    step, drift = chain.step[1:].copy(), chain.drift[1:].copy()
    if len(step):
        drift[0] += step[0] @ first
        step[0] = 0.0
    rows = np.concatenate([hanging, by_unknown, chain.residual[:, None]], axis=1)
    if not loss.is_plain:
        rows *= np.sqrt(loss.weights(chain.residual))[:, None]
    links = np.concatenate([drift, chain.gap[1:, :, None]], axis=2)
    heavy, (n_x, width) = weight[:, None] * links, (len(weight), links.shape[2])
    # (K, n_x, n_x + n + 1) of each interval's residuals: derivative by node times whole row.
    sums = np.zeros((len(chain.gap), n_x, rows.shape[1]))
    if len(rows):
        owners, begins = np.unique(chain.owner, return_index=True)
        for k, own in zip(owners, np.split(rows, begins[1:]), strict=True):
            sums[k] = own[:, :n_x].T @ own
    sums = sums[1:]
    corner = rows[:, n_x:].T @ rows[:, n_x:]
    corner += links.reshape(-1, width).T @ heavy.reshape(-1, width)
    diagonal, border = sums[:, :, :n_x] + np.diag(weight), sums[:, :, n_x:] - heavy
    turned, pulling = step.transpose(0, 2, 1), weight[:, None] * step[1:]
    diagonal[:-1] += turned[1:] @ pulling
    border[:-1] += turned[1:] @ heavy[1:]
    below = np.zeros_like(diagonal)
    below[:-1] = -pulling
    return _Block(diagonal, below, border, corner, first, size)


def _stays(x: FloatArray, slope: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Whether numbers do not leave bounds on which they lie."""
    return np.asarray(~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0))))


def _kept(
    block: _Block, nodes: FloatArray, low: FloatArray, high: FloatArray, keep: FloatArray
) -> _Block:
    """With unknowns, and nodes at a bound that would leave it, taken out."""
    mask = _stays(nodes[1:], block.border[:, :, -1], low, high).astype(float)
    below, pairs = block.below.copy(), mask[:, :, None] * mask[:, None, :]
    below[:-1] *= mask[1:, :, None] * mask[:-1, None, :]
    return block._replace(
        diagonal=block.diagonal * pairs
        + ((1 - mask) / block.size**2)[:, :, None] * np.eye(len(low)),
        below=below,
        border=block.border * mask[:, :, None] * np.append(keep, 1.0),
    )


def _least(diagonal: FloatArray, size: FloatArray) -> FloatArray:
    """(..., n) of numbers that are so large; their units do not matter."""
    return np.asarray(TINY * np.max(diagonal * size**2, initial=0.0) / size**2)


def _banded(block: _Block, damping: float) -> FloatArray:
    """The nodes' part solved for all columns of the border; raises LinAlgError if it cannot be."""
    n, n_x = block.diagonal.shape[:2]
    border = block.border.reshape(n * n_x, block.border.shape[2])
    if n == 0:
        return border
    band = np.zeros((2 * n_x, n * n_x))
    by_block = band.reshape(2 * n_x, n, n_x)
    for column in range(n_x):
        by_block[: n_x - column, :, column] = block.diagonal[:, column:, column].T
        by_block[n_x - column : 2 * n_x - column, :, column] = block.below[:, :, column].T
    least = _least(by_block[0], block.size)
    by_block[0] += damping * by_block[0] + least
    return np.asarray(solveh_banded(band, border, lower=True))


FIRST_DAMPING, LESS, MORE, MOST = 1e-2, 0.25, 6.0, 1e8
TRIES = 12  # steps with one weight
ABOVE_1 = Rule(lambda v: is_finite(v) and v > 1, "a number above 1")


class Continued(NamedTuple):
    """Where the continuation ended; `at` is None if the start could not be evaluated.

    iterations  steps taken;  evaluations: of the chains
    """

    point: Point
    at: Chained | None
    iterations: int
    evaluations: int


class _State(NamedTuple):
    """A point, what it is worth, the damping to go on with, and evaluations made."""

    point: Point
    at: Chained
    damping: float
    evaluations: int = 0


@dataclass(frozen=True)
class SoftLinks(Checked):
    """Continuation from free nodes to nodes that meet.

    first, last, factor  weights of the squared gaps, in units of the squared residuals
    size                 of the gaps that weigh one, relative to the sizes of the states
    enough               relative decrease below which the next weight's turn has come
    """

    first: Positive = 1.0
    last: Positive = 1e6
    factor: Annotated[float, ABOVE_1] = 10.0
    size: Positive = 1.0
    enough: NotNegative = 0.01

    def run(
        self, evaluate: Evaluate, start: Point, space: Space, watch: Watch = unwatched
    ) -> Continued:
        """From `start`, clipped into the space."""
        point = space.clip(start)
        at, evaluations = evaluate(point), 1
        if at is None:
            return Continued(point, None, 0, 1)
        watch(point, at)
        weight, now, iterations = self.first, _State(point, at, FIRST_DAMPING), 0
        while weight <= self.last * (1 + 1e-9):
            weights = tuple(weight / (self.size * size) ** 2 for size in space.size.nodes)
            for _ in range(TRIES):
                before, last = _merit(now.at, weights), now.at
                now = _step(evaluate, now, space, weights)
                evaluations += now.evaluations
                if now.at is not last:
                    watch(now.point, now.at)
                    iterations += 1
                if before - _merit(now.at, weights) <= self.enough * before:
                    break
            weight *= self.factor
            now = now._replace(damping=min(now.damping, FIRST_DAMPING))
        return Continued(now.point, now.at, iterations, evaluations)


def _merit(at: Chained, weights: Weights) -> float:
    pairs = zip(at.chains, weights, strict=True)
    return at.cost + sum(float(np.sum(c.gap**2 * w)) for c, w in pairs)


def _step(evaluate: Evaluate, now: _State, space: Space, weights: Weights) -> _State:
    """One step that lowers the merit, or none."""
    merit = _merit(now.at, weights)
    normal = Normal.of(now.at, weights, now.point, space)
    damping, evaluations = now.damping, 0
    while damping < MOST:
        move = normal.step(damping)
        if move is not None:
            there = space.clip(now.point.moved(move))
            trial = evaluate(there)
            evaluations += 1
            if trial is not None and _merit(trial, weights) < merit:
                return _State(there, trial, max(damping * LESS, 1e-12), evaluations)
        damping *= MORE
    return _State(now.point, now.at, damping, evaluations)
