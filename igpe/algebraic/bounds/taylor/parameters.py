"""New parameters in which products and exponents come apart.

A rate constant that the equations write as a quotient, k3 = k2/kc, makes the residuals nonlinear in
kc and, where k2 and kc follow Arrhenius, ties two activation energies together. As long as the
equations see kref2, kref2/kc, Ea2 and Ea2 - dh only, these are parameters as good as the old ones:
the first two linear, the others each in an exponent of its own. Here such sets of monomials (and
of exponents) are found, and exchanged for the old parameters where the way back is simple:

    p = beta_i          or  p = beta_i / beta_j,     for parameters in powers
    p = +- theta_i      or  p = theta_i - theta_j,   for parameters in rates

so that the bounds of p become bounds of one new parameter or of a ratio or difference of two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.connected import connected

Vector = tuple[tuple[int, float], ...]  # (old parameter, exponent), sorted


@dataclass(frozen=True)
class Exchange:
    """New parameters for some old ones.

    old      their numbers
    vectors  of each new parameter: which product of powers (or sum of multiples) of old ones it is
    back     of each old one: (i,) it is the i-th new one, (i, j) the i-th over (or minus) the j-th
    """

    old: tuple[int, ...]
    vectors: tuple[Vector, ...]
    back: tuple[tuple[int, ...], ...]

    def slot(self, vector: Vector) -> int:
        """In which old parameter's place a new one stands."""
        return self.old[self.vectors.index(vector)]

    def old_values(
        self, new: FloatArray, apart: Callable[[FloatArray, FloatArray], FloatArray]
    ) -> FloatArray:
        """The old parameters; `apart` is the quotient or the difference of two new ones."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.array([
                new[way[0]] if len(way) == 1 else apart(new[way[0]], new[way[1]])
                for way in self.back
            ])


def exchanges(vectors: Iterable[Vector], allowed: Iterable[int]) -> list[Exchange]:
    """The sets of old parameters that can be exchanged with profit.

    vectors  how the old parameters occur together
    allowed  the parameters that occur nowhere else
    """
    free = set(allowed)
    own = sorted({v for v in vectors if v and all(i in free for i, _ in v)})
    mixed = {i for v in vectors if not all(j in free for j, _ in v) for i, _ in v}
    found = []
    for part in connected([i for i, _ in v] for v in own):
        members = tuple(sorted(part))
        mine = [v for v in own if v[0][0] in part]
        if mixed.isdisjoint(part) and any(len(v) > 1 for v in mine):
            found.append(_exchange(members, mine))
    return [e for e in found if e is not None]


def _exchange(old: tuple[int, ...], vectors: Sequence[Vector]) -> Exchange | None:
    if len(vectors) != len(old):
        return None
    matrix = np.array([[dict(v).get(i, 0.0) for i in old] for v in vectors])
    if np.linalg.matrix_rank(matrix) < len(old):
        return None
    rows = np.linalg.inv(matrix)
    back = [_way_back(row) for row in rows]
    if any(way is None for way in back) or not np.array_equal(
        np.round(rows) @ matrix, np.eye(len(old))
    ):
        return None
    return Exchange(old, tuple(vectors), tuple(way for way in back if way is not None))


def _way_back(row: FloatArray) -> tuple[int, ...] | None:
    whole = np.round(row)
    if not np.allclose(row, whole, atol=1e-12):
        return None
    plus, minus = np.flatnonzero(whole == 1), np.flatnonzero(whole == -1)
    if np.abs(whole).sum() != len(plus) + len(minus) or len(plus) != 1 or len(minus) > 1:
        return None
    return (int(plus[0]), *(int(i) for i in minus))


def product_bounds(
    vector: Vector, bounds: Mapping[int, tuple[float, float]]
) -> tuple[float, float]:
    """Bounds on a product of powers of parameters that are not negative; outward."""
    low, high = 1.0, 1.0
    if vector == ((vector[0][0], 1.0),):
        return bounds[vector[0][0]]
    for i, exponent in vector:
        ends = sorted(_power(b, exponent) for b in bounds[i])
        low = low * ends[0] if low and ends[0] else 0.0
        high = high * ends[1] if high and ends[1] else 0.0
    return low * (1 - 1e-12), high * (1 + 1e-12)


def _power(value: float, exponent: float) -> float:
    if value == 0.0:
        return np.inf if exponent < 0 else 0.0
    return float(value**exponent)


def sum_bounds(vector: Vector, bounds: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """Bounds on a sum of multiples of parameters; outward."""
    if vector == ((vector[0][0], 1.0),):
        return bounds[vector[0][0]]
    ends = [sorted(a * b for b in bounds[i]) for i, a in vector]
    room = 1e-12 * sum(max(abs(e[0]), abs(e[1])) for e in ends)
    return sum(e[0] for e in ends) - room, sum(e[1] for e in ends) + room
