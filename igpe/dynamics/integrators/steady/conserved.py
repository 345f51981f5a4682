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
from igpe.equations.initial_value import InitialValueProblem

NEGLIGIBLE = 1e-10  # singular values of unit columns
POINTS = 6  # with other unknowns, of order one or about as large as those given
STATES = 3  # random states at each of these


class RestPoint(NamedTuple):
    """Unknowns (n_q,), modes (n_modes,), and which states are 0 and stay so (n_x,)."""

    q: FloatArray
    modes: FloatArray
    stays: BoolArray


class SlopesAt(NamedTuple):
    """Slopes (n_x,) and their derivatives by states (n_x, n_x) and unknowns (n_x, n_q)."""

    f: FloatArray
    by_x: FloatArray
    by_q: FloatArray


class RestSlopes:
    """The slopes of states divided by their sizes."""

    def __init__(self, rest: InitialValueProblem) -> None:
        self.scale = rest.scale
        by = [ca.densify(ca.jacobian(rest.f, v)) for v in (rest.x, rest.q)]
        self._f = ca.Function("f", [rest.x, rest.u, rest.q], [ca.densify(rest.f), *by])

    def __call__(self, x: FloatArray, at: RestPoint) -> SlopesAt:
        """The slopes at states x (n_x,)."""
        f, by_x, by_q = (np.asarray(v) for v in self._f(x * self.scale, at.modes, at.q))
        column = self.scale[:, None]
        return SlopesAt(f.ravel() / self.scale, by_x * self.scale / column, by_q / column)


class Conserved(NamedTuple):
    """Orthonormal rows (n_c, n_x), for states divided by their sizes.

    is_constant  whether the rows are the same for all unknowns
    """

    rows: FloatArray
    is_constant: bool


class ConservedSums:
    """Finds the conserved sums at many points."""

    def __init__(self, slopes: RestSlopes) -> None:
        self._slopes = slopes
        self._known: dict[tuple[bytes, ...], tuple[int, FloatArray]] = {}

    def __call__(self, at: RestPoint) -> Conserved:
        """The sums; they are computed once for unknowns of the same signs, if they are constant."""
        key = np.sign(at.q).tobytes(), at.modes.tobytes(), at.stays.tobytes()
        if key not in self._known:
            self._known[key] = self._for_any(at)
        count, constant = self._known[key]
        if len(constant) == count:
            return Conserved(constant, is_constant=True)
        columns = [_by_states(near, at) for near in self._at_random(STATES, at)]
        return Conserved(_left_null(np.hstack(columns), count), is_constant=False)

    def moved(self, rows: FloatArray, by: FloatArray, at: RestPoint) -> FloatArray:
        """(n_c, n_q) derivatives of the sums of a difference `by` (n_x,) that has none."""
        every = list(self._at_random(4 * len(by), at))
        slopes = np.array([near.f for near in every]).T
        weights = np.linalg.lstsq(slopes, by, rcond=NEGLIGIBLE)[0]
        return np.asarray(-rows @ np.tensordot(weights, [near.by_q for near in every], axes=1))

    def _for_any(self, at: RestPoint) -> tuple[int, FloatArray]:
        """How many sums there are for unknowns with these signs, and those that are constant."""
        random, count = np.random.default_rng(1), len(at.stays)
        columns = list[FloatArray]()
        for k in range(POINTS):
            size = np.abs(at.q) if k % 2 else np.ones(len(at.q))
            there = at._replace(q=np.sign(at.q) * size * random.uniform(0.5, 1.5, len(at.q)))
            every = list(self._at_random(STATES, there, k))
            columns.append(np.hstack([_by_states(near, at) for near in every]))
            count = min(count, len(_left_null(columns[-1])))
            columns += [_unit(near.by_q[:, at.q != 0]) for near in every]
        return count, _left_null(np.hstack(columns))

    def _at_random(self, count: int, at: RestPoint, seed: int = 0) -> Iterator[SlopesAt]:
        random = np.random.default_rng(seed)
        for _ in range(count):
            yield self._slopes(np.where(at.stays, 0.0, random.uniform(0.5, 1.5, len(at.stays))), at)


def _by_states(near: SlopesAt, at: RestPoint) -> FloatArray:
    return _unit(np.column_stack([near.f, near.by_x[:, ~at.stays]]))


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
