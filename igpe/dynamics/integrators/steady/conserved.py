"""Sums of states that the equations of a steady state conserve, and how unknowns move them.

A sum w'x is conserved if w'f(x, q) = 0 for all states x. The rank of f_x at one point does not give
these sums: rates at a steady state may differ by thirty decades, and the small ones would seem to
be none. So w is in the left null space of slopes and their derivatives at random points, half of
them with unknowns of order one, each column divided by its length.

Where the sums depend on the unknowns (volumes), they are those at the given unknowns. With
columns F of slopes at random states, W F = 0 gives W_q F = -W F_q.
"""

from collections.abc import Iterator
from typing import NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray

NEGLIGIBLE = 1e-10  # singular values of unit columns
POINTS = 6  # with other unknowns, of order one or about as large as those given
STATES = 3  # random states at each of these


class Conserved(NamedTuple):
    """Orthonormal rows (n_c, n_x), for states divided by their sizes.

    is_constant  whether the rows are the same for all unknowns
    """

    rows: FloatArray
    is_constant: bool


class _Near(NamedTuple):
    """Slopes (n_x,) and their derivatives (n_x, n_x) and (n_x, n_q) at a random state."""

    f: FloatArray
    by_x: FloatArray
    by_q: FloatArray


class ConservedSums:
    """Finds the sums for unknowns q (n_q,), modes (n_modes,) and states that stay 0 (n_x,).

    f      (x, modes, q) -> slopes and their derivatives by x and q
    scale  (n_x,) sizes of the states
    """

    def __init__(self, f: ca.Function, scale: FloatArray) -> None:
        self._f, self._scale = f, scale
        self._known: dict[tuple[bytes, ...], Conserved] = {}

    def __call__(self, q: FloatArray, modes: FloatArray, stays: BoolArray) -> Conserved:
        """The sums; they are computed once for unknowns of the same signs, if they are constant."""
        key = np.sign(q).tobytes(), modes.tobytes(), stays.tobytes()
        if key not in self._known:
            self._known[key] = self._for_any(q, modes, stays)
        known = self._known[key]
        if known.is_constant:
            return known
        columns = _columns(self._at_random(STATES, q, modes, stays))
        return known._replace(rows=_left_null(columns, len(known.rows)))

    def moved(
        self, rows: FloatArray, by: FloatArray, q: FloatArray, modes: FloatArray, stays: BoolArray
    ) -> FloatArray:
        """(n_c, n_q) derivatives of the sums of a difference `by` (n_x,) that has none."""
        every = list(self._at_random(4 * len(by), q, modes, stays))
        slopes = np.array([near.f for near in every]).T
        weights = np.linalg.lstsq(slopes, by, rcond=NEGLIGIBLE)[0]
        return np.asarray(-rows @ np.tensordot(weights, [near.by_q for near in every], axes=1))

    def _for_any(self, q: FloatArray, modes: FloatArray, stays: BoolArray) -> Conserved:
        """For unknowns with these signs; what is 0 stays 0."""
        random, fewest = np.random.default_rng(1), len(self._scale)
        columns = list[FloatArray]()
        for k in range(POINTS):
            size = np.abs(q) if k % 2 else np.ones(len(q))
            there = np.sign(q) * size * random.uniform(0.5, 1.5, len(q))
            every = list(self._at_random(STATES, there, modes, stays, k))
            columns.append(_columns(every))
            fewest = min(fewest, len(_left_null(columns[-1])))
            columns += [_unit(near.by_q[:, q != 0]) for near in every]
        rows = _left_null(np.hstack(columns))
        is_constant = len(rows) == fewest
        return Conserved(rows if is_constant else np.zeros((fewest, len(self._scale))), is_constant)

    def _at_random(
        self, count: int, q: FloatArray, modes: FloatArray, stays: BoolArray, seed: int = 0
    ) -> Iterator[_Near]:
        random = np.random.default_rng(seed)
        for _ in range(count):
            x = np.where(stays, 0.0, random.uniform(0.5, 1.5, len(stays)))
            f, by_x, by_q = (np.asarray(v) for v in self._f(x * self._scale, modes, q))
            column = self._scale[:, None]
            yield _Near(f.ravel() / self._scale, by_x[:, ~stays] / column, by_q / column)


def _columns(every: Iterator[_Near] | list[_Near]) -> FloatArray:
    return np.hstack([_unit(np.column_stack([near.f, near.by_x])) for near in every])


def _unit(columns: FloatArray) -> FloatArray:
    """Columns of length one; those without a length are left out."""
    with np.errstate(all="ignore"):
        length = np.linalg.norm(columns, axis=0)
        is_any = np.isfinite(length) & (length > 0)
        return np.asarray(columns[:, is_any] / length[is_any])


def _left_null(columns: FloatArray, count: int | None = None) -> FloatArray:
    """Orthonormal rows that all columns are orthogonal to; so many of them, if that is known."""
    left, sizes, _ = np.linalg.svd(columns)
    if count is None:
        count = len(left) - int((sizes > NEGLIGIBLE * max(sizes, default=0.0)).sum())
    return np.asarray(left.T[len(left) - count :])
