"""Array types for signatures, a robust size of residuals, and connected components of sets."""

from collections.abc import Hashable, Iterable
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


FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.intp]

MAD = 1.4826  # standard deviations in a median absolute one, of normal errors


def typical(residuals: FloatArray) -> float:
    """The standard deviation of normal errors with the median size of these residuals."""
    return MAD * float(np.median(np.abs(residuals)))
