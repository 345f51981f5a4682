"""Array types for signatures, sizes of columns and of residuals, connected sets, integers."""

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=Hashable)


def connected(links: Iterable[Iterable[T]]) -> list[set[T]]:
    """Connected components, where the members of each set are linked, in order of first appearance.

    NetworkX has this as well, but takes a quarter of a second to import.
    """
    component: dict[T, set[T]] = {}
    for link in links:
        joined: set[T] = set()
        for member in link:
            joined |= component.get(member, {member})
        component.update(dict.fromkeys(joined, joined))
    return list({id(c): c for c in component.values()}.values())


def smallest_integers(vector: Sequence[Fraction]) -> list[int]:
    """Smallest integer multiple of a vector other than 0; its first entry but 0 is positive."""
    scale = lcm(*(v.denominator for v in vector))
    integers = [int(v * scale) for v in vector]
    shared = gcd(*integers) * (1 if next(v for v in integers if v) > 0 else -1)
    return [v // shared for v in integers]


FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.intp]


def column_sizes(matrix: FloatArray) -> FloatArray:
    """(n,) length of each column of a matrix (m, n); 1 where it is 0, so that one can divide."""
    size = np.linalg.norm(matrix, axis=0)
    return np.where(size > 0, size, 1.0)


MAD = 1.4826  # standard deviations in a median absolute one, of normal errors


def typical(residuals: FloatArray) -> float:
    """The standard deviation of normal errors with the median size of these residuals."""
    return MAD * float(np.median(np.abs(residuals)))
