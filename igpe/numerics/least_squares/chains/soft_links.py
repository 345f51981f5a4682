"""Chains whose nodes need not meet yet: a continuation that ends where they do.

    min |r(q, s)|^2 + rho |gap(q, s) / size|^2        rho = 1, 10, 100, ...

over unknowns and nodes by Levenberg and Marquardt's method. While gaps are cheap the nodes stay
near the data and the unknowns find the dynamics that fit each interval; nothing is multiplied along
the chain, so that unstable or chaotic models do no harm. Only the first node, the start, is
bound to the unknowns from the beginning. The normal equations are block tridiagonal with a border
(`normal`), and cost O(K).

Normal equations of residuals and weighted gaps: block tridiagonal in the nodes, with a border.

With W the weights of the gaps and G, P the derivatives of a link, the nodes' part has

    blocks      D_k = sum h h' + W + G_(k+1)' W G_(k+1)
    below them  -W G_(k+1)
    border      B_k = sum h d' - W P_k + G_(k+1)' W P_(k+1)

One banded Cholesky factorisation with n + 1 right-hand sides leaves a Schur complement in the n
unknowns. The first node is start(q), exactly, so it is no variable here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solveh_banded

from igpe.core.arguments import is_finite, require
from igpe.core.arrays import FloatArray, IntArray
from igpe.numerics.least_squares.chains.chains import Chain, Chained, Point, Watch, unwatched
from igpe.numerics.least_squares.chains.proposal import Space

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
    """The equations at a point, with numbers at a bound that would leave it taken out."""

    blocks: tuple[_Block, ...]
    corner: FloatArray  # (n, n)
    slope: FloatArray  # (n,)
    size: FloatArray  # (n,) how large the unknowns are

    @classmethod
    def of(cls, at: Chained, weights: Weights, point: Point, space: Space) -> "Normal":
        """Assemble them; `weights` are those of the squared gaps."""
        n, size = len(point.unknowns), space.scale(point)
        parts = zip(at.weighted(), weights, size.nodes, strict=True)
        blocks = [_block(*part) for part in parts]
        free = np.column_stack([at.free.jacobian, at.free.residual])
        whole = free.T @ free + sum((b.corner for b in blocks), start=np.zeros((n + 1, n + 1)))
        slope = whole[:n, n]
        box, q = space.box, point.unknowns
        keep = ~(((q <= box.lower) & (slope > 0)) | ((q >= box.upper) & (slope < 0)))
        keeping = keep.astype(float)
        sides = zip(blocks, point.nodes, space.lower, space.upper, strict=True)
        kept = tuple(_kept(b, s, (low, high), keeping) for b, s, low, high in sides)
        corner = _masked(whole[:n, :n], keeping, size.unknowns)
        return cls(kept, corner, slope * keeping, size.unknowns)

    def step(self, damping: float) -> Point | None:
        """The move with all diagonals raised by a share `damping`; None if that is not enough."""
        n = len(self.slope)
        schur, right = _raised(self.corner, damping, self.size), -self.slope
        solved = []
        for block in self.blocks:
            if len(block.diagonal) == 0:
                solved.append(np.zeros((0, n + 1)))
                continue
            found = _banded(block, damping)
            if found is None:
                return None
            border = block.border.reshape(-1, n + 1)
            product = border.T @ found
            schur = schur - product[:n, :n]
            right = right + product[:n, n]
            solved.append(found)
        try:
            change = cho_solve(cho_factor(schur), right)
        except (LinAlgError, ValueError):
            return None
        pairs = zip(self.blocks, solved, strict=True)
        return Point(change, tuple(_nodes(b, found, change) for b, found in pairs))


def _nodes(block: _Block, found: FloatArray, change: FloatArray) -> FloatArray:
    """(K, n_x) how the nodes move with the unknowns."""
    first = block.drift @ change
    rest = -(found[:, -1] + found[:, :-1] @ change).reshape(-1, len(first))
    return np.vstack([first, rest])


def _block(chain: Chain, weight: FloatArray, size: FloatArray) -> _Block:
    """The chain's normal equations, its first node eliminated."""
    first = chain.drift[0]
    starting = chain.owner == 0
    hanging = np.where(starting[:, None], 0.0, chain.by_node)
    by_unknown = chain.by_unknown.copy()
    by_unknown[starting] += chain.by_node[starting] @ first
    step, drift = chain.step[1:].copy(), chain.drift[1:].copy()
    if len(step):
        drift[0] += step[0] @ first
        step[0] = 0.0
    rows = np.concatenate([hanging, by_unknown, chain.residual[:, None]], axis=1)
    links = np.concatenate([drift, chain.gap[1:, :, None]], axis=2)
    heavy = weight[:, None] * links
    n_x = len(weight)
    sums = _sums(rows, chain.owner, len(chain.gap), n_x)[1:]
    corner = rows[:, n_x:].T @ rows[:, n_x:] + _product(links, heavy)
    diagonal, border = sums[:, :, :n_x] + np.diag(weight), sums[:, :, n_x:] - heavy
    turned = step.transpose(0, 2, 1)
    diagonal[:-1] += turned[1:] @ (weight[:, None] * step[1:])
    border[:-1] += turned[1:] @ heavy[1:]
    below = np.zeros_like(diagonal)
    below[:-1] = -weight[:, None] * step[1:]
    return _Block(diagonal, below, border, corner, first, size)


def _sums(rows: FloatArray, owner: IntArray, count: int, n_x: int) -> FloatArray:
    """(K, n_x, n_x + n + 1) of each interval's residuals: derivative by node times whole row."""
    found = np.zeros((count, n_x, rows.shape[1]))
    if len(rows):
        owners, first = np.unique(owner, return_index=True)
        products = rows[:, :n_x, None] * rows[:, None, :]
        found[owners] = np.add.reduceat(products, first, axis=0)
    return found


def _kept(
    block: _Block, nodes: FloatArray, bounds: tuple[FloatArray, FloatArray], keep: FloatArray
) -> _Block:
    """With unknowns, and nodes at a bound that would leave it, taken out."""
    low, high = bounds
    slope, free = block.border[:, :, -1], nodes[1:]
    stay = ~(((free <= low) & (slope > 0)) | ((free >= high) & (slope < 0)))
    mask, columns = stay.astype(float), np.append(keep, 1.0)
    below, pairs = block.below.copy(), mask[:, :, None] * mask[:, None, :]
    below[:-1] *= mask[1:, :, None] * mask[:-1, None, :]
    return block._replace(
        diagonal=block.diagonal * pairs
        + ((1 - mask) / block.size**2)[:, :, None] * np.eye(len(low)),
        below=below,
        border=block.border * mask[:, :, None] * columns,
    )


def _product(one: FloatArray, other: FloatArray) -> FloatArray:
    """Sum over all rows of all blocks."""
    width = one.shape[-1]
    return np.asarray(one.reshape(-1, width).T @ other.reshape(-1, width))


def _masked(matrix: FloatArray, mask: FloatArray, size: FloatArray) -> FloatArray:
    """Rows and columns that are taken out become those of a unit matrix, by sizes."""
    return np.asarray(matrix * np.outer(mask, mask) + np.diag((1 - mask) / size**2))


def _raised(matrix: FloatArray, damping: float, size: FloatArray) -> FloatArray:
    diagonal = np.diag(matrix)
    return np.asarray(matrix + np.diag(damping * diagonal + _least(diagonal, size)))


def _least(diagonal: FloatArray, size: FloatArray) -> FloatArray:
    """(..., n) of numbers that are so large; their units do not matter."""
    return np.asarray(TINY * np.max(diagonal * size**2, initial=0.0) / size**2)


def _banded(block: _Block, damping: float) -> FloatArray | None:
    """The nodes' part solved for all columns of the border."""
    n, n_x = block.diagonal.shape[:2]
    band = np.zeros((2 * n_x, n * n_x))
    by_block = band.reshape(2 * n_x, n, n_x)
    for column in range(n_x):
        by_block[: n_x - column, :, column] = block.diagonal[:, column:, column].T
        by_block[n_x - column : 2 * n_x - column, :, column] = block.below[:, :, column].T
    least = _least(by_block[0], block.size)
    by_block[0] += damping * by_block[0] + least
    try:
        return np.asarray(solveh_banded(band, block.border.reshape(n * n_x, -1), lower=True))
    except (LinAlgError, ValueError):
        return None


Evaluate: TypeAlias = Callable[[Point], Chained | None]

FIRST_DAMPING, LESS, MORE, MOST = 1e-2, 0.25, 6.0, 1e8
TRIES = 12  # steps with one weight


class Continued(NamedTuple):
    """Where the continuation ended; `at` is None if the start could not be evaluated.

    iterations  steps taken;  evaluations: of the chains
    """

    point: Point
    at: Chained | None
    iterations: int
    evaluations: int


@dataclass(frozen=True)
class SoftLinks:
    """Continuation from free nodes to nodes that meet.

    first, last, factor  weights of the squared gaps, in units of the squared residuals
    size                 of the gaps that weigh one, relative to the sizes of the states
    enough               relative decrease below which the next weight's turn has come
    raises               ProblemError for weights that do not grow, and sizes that are none
    """

    first: float = 1.0
    last: float = 1e6
    factor: float = 10.0
    size: float = 1.0
    enough: float = 0.01

    def __post_init__(self) -> None:
        for field, least in (("first", 0.0), ("last", 0.0), ("factor", 1.0), ("size", 0.0)):
            value = getattr(self, field)
            ok = is_finite(value) and value > least
            require(ok, "SoftLinks", field, value, f"a number above {least:g}")
        ok = is_finite(self.enough) and self.enough >= 0
        require(ok, "SoftLinks", "enough", self.enough, "a number, 0 or more")

    def run(
        self, evaluate: Evaluate, start: Point, space: Space, watch: Watch = unwatched
    ) -> Continued:
        """From `start`, clipped into the space."""
        point = space.clip(start)
        at, evaluations = evaluate(point), 1
        if at is None:
            return Continued(point, None, 0, 1)
        watch(point, at)
        weight, damping, iterations = self.first, FIRST_DAMPING, 0
        while weight <= self.last * (1 + 1e-9):
            for _ in range(TRIES):
                moved = self._step(evaluate, _State(point, at, damping), space, weight)
                evaluations += moved.evaluations
                worth, before = self._merit(moved.at, space, weight), self._merit(at, space, weight)
                if moved.at is not at:
                    watch(moved.point, moved.at)
                iterations += moved.at is not at
                point, at, damping = moved.point, moved.at, moved.damping
                if before - worth <= self.enough * before:
                    break
            weight, damping = weight * self.factor, min(damping, FIRST_DAMPING)
        return Continued(point, at, iterations, evaluations)

    def _weights(self, space: Space, weight: float) -> Weights:
        return tuple(weight / (self.size * size) ** 2 for size in space.size.nodes)

    def _merit(self, at: Chained, space: Space, weight: float) -> float:
        pairs = zip(at.chains, self._weights(space, weight), strict=True)
        return at.cost + sum(float(np.sum(c.gap**2 * w)) for c, w in pairs)

    def _step(self, evaluate: Evaluate, now: "_State", space: Space, weight: float) -> "_State":
        """One step that lowers the merit, or none."""
        merit = self._merit(now.at, space, weight)
        normal = Normal.of(now.at, self._weights(space, weight), now.point, space)
        damping, evaluations = now.damping, 0
        while damping < MOST:
            move = normal.step(damping)
            trial = None
            if move is not None:
                there = space.clip(now.point.moved(move))
                trial = evaluate(there)
                evaluations += 1
                if trial is not None and self._merit(trial, space, weight) < merit:
                    return _State(there, trial, max(damping * LESS, 1e-12), evaluations)
            damping *= MORE
        return _State(now.point, now.at, damping, evaluations)


class _State(NamedTuple):
    """A point, what it is worth, the damping to go on with, and evaluations made."""

    point: Point
    at: Chained
    damping: float
    evaluations: int = 0
