"""Which directions of the unknowns a least-squares problem does not determine, by name.

A direction of the Jacobian's null space is a change of the unknowns that moves no residual; it is
told relative to the size of each. The null space is that of columns of length 1, so that neither
units nor an unknown of little effect hide one that has some.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray

RANK = 1e-8  # a direction whose singular value is below this fraction of the largest is lost
NOTHING = 1e-12  # an unknown whose effect is below this fraction of the largest has none
SMALL = 0.05  # of the largest part: a part that is left out of the sentence


class Direction(NamedTuple):
    """A change of the unknowns that no residual shows.

    names   those that take part
    change  (n,), relative to the size of each; largest part 1
    """

    names: tuple[str, ...]
    change: FloatArray

    @property
    def sentence(self) -> str:
        """What it means for the user."""
        if len(self.names) == 1:
            return f"The measurements do not determine {self.names[0]}."
        parts = " ".join(
            f"{'+' if c > 0 else '-'} {abs(c):.2g} {n}"
            for n, c in zip(self.names, self.change, strict=True)
        )
        return (
            f"The measurements do not determine {' and '.join(self.names)} together: the relative "
            f"change {parts.removeprefix('+ ')} moves none of them."
        )


def undetermined(jacobian: FloatArray, sizes: FloatArray, names: Sequence[str]) -> list[Direction]:
    """The directions that the Jacobian (m, n) does not determine.

    sizes  (n,) of the unknowns, as their values; 0 where unknown
    """
    m, n = jacobian.shape
    short = np.asarray(np.linalg.qr(jacobian, mode="r")) if m > n else jacobian
    length = np.sqrt((short**2).sum(axis=0))
    size = np.where(sizes != 0, np.abs(sizes), 1 / np.where(length > 0, length, 1.0))
    effect = length * size
    none = effect <= NOTHING * effect.max()
    even = np.where(none, 0.0, short / np.where(none, 1.0, length))
    _, singular, rows = np.linalg.svd(even, full_matrices=True)
    found = np.zeros(n)
    found[: len(singular)] = singular
    lost = rows[found <= RANK * max(found[0], np.finfo(float).tiny)]
    return [_direction(row, names) for row in _simple(lost / np.where(none, 1.0, effect))]


def _simple(basis: FloatArray) -> FloatArray:
    """Another basis of the same space with few parts each (reduced row echelon form)."""
    rows = basis.copy()
    free = list(range(rows.shape[1]))
    for k in range(len(rows)):
        pivot = max(free, key=lambda j: abs(rows[k, j]))
        rows[k] /= rows[k, pivot]
        others = [i for i in range(len(rows)) if i != k]
        rows[others] -= np.outer(rows[others, pivot], rows[k])
        free.remove(pivot)
    return rows


def _direction(row: FloatArray, names: Sequence[str]) -> Direction:
    change = row / row[np.argmax(np.abs(row))]
    parts = [i for i, c in enumerate(change) if abs(c) >= SMALL]
    return Direction(tuple(names[i] for i in parts), change[parts])
