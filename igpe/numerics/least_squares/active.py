"""Bounds that hold an optimum, and directions that a least-squares problem does not determine.

The active set is judged by the residuals and not by a distance: an interior-point method ends
beside a bound, at a distance that depends on its barrier. A value belongs on the bound if the
residuals do not show the step to it, and the objective does not rise.

A direction of the Jacobian's null space is a change of the unknowns that moves no residual,
relative to the size of each. The null space is that of columns of length 1, so that neither units
nor an unknown of little effect hide one that has some.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.markup import listed
from igpe.numerics.least_squares.base import Fit, Linearised, Residual, Search

ROUNDING = 1e-9  # a value this close to a bound, relative to its size, lies on it
UNSEEN = 1e-2  # of a residual's standard deviation: a step that the data do not show
SEEN = 0.1  # of it: the whole width of the bounds must move the residuals by so much
BESIDE = 1e-7  # of the bounds' width: so near a bound the bound itself is always tried
LEVEL = 1e-6  # of the mean square: a rise of the objective that is none


def on_bounds(x: FloatArray, at: Linearised | None, box: Box) -> BoolArray:
    """(n,) which values lie on a bound: exactly, or beside it where the objective falls towards it.

    at  residuals and derivative at x (n,); None where there are none: then up to rounding only
    """
    gap, side = _gap(x, box)
    width = np.where(np.isfinite(box.upper - box.lower), box.upper - box.lower, 0.0)
    exactly = gap <= ROUNDING * np.maximum(np.abs(x), 1e-3 * width)
    if at is None:
        return np.asarray(exactly)
    falls = side * (at.jacobian.T @ at.residual) < 0
    return np.asarray(exactly | (_unseen(gap, at, box) & falls))


def beside_bounds(x: FloatArray, box: Box) -> BoolArray:
    """(n,) which values are so near a bound, and not on it, that `refitted_on_bounds` may move."""
    gap, _ = _gap(x, box)
    return np.asarray((gap > 0) & (gap <= UNSEEN * (box.upper - box.lower)))


def refitted_on_bounds(residual: Residual, fit: Fit, box: Box, search: Search) -> Fit:
    """The fit with every value beside a bound tried on the bound, the others fitted again.

    The search releases a bound from which the objective falls. What fits worse is not taken.
    """
    if fit.at is None:
        return fit
    gap, side = _gap(fit.x, box)
    beside = _unseen(gap, fit.at, box) | (gap <= BESIDE * (box.upper - box.lower))
    there = np.where(beside, np.where(side < 0, box.lower, box.upper), fit.x)
    if (there == fit.x).all():
        return fit
    tried = search.fit(residual, there, box)
    rise = LEVEL * fit.at.squares / max(len(fit.at.residual), 1)
    return tried if tried.cost <= fit.cost + rise else fit


def _gap(x: FloatArray, box: Box) -> tuple[FloatArray, FloatArray]:
    """Distances (n,) to the nearest bounds, and -1 where that is the lower one, else 1."""
    below, above = x - box.lower, box.upper - x
    return np.minimum(below, above), np.where(below <= above, -1.0, 1.0)


def _unseen(gap: FloatArray, at: Linearised, box: Box) -> BoolArray:
    """(n,) which steps to the nearest bound no residual shows, though it shows the whole width."""
    width = box.upper - box.lower
    deviation = np.sqrt(at.squares / max(len(at.residual), 1))
    effect = np.linalg.norm(at.jacobian, axis=0)
    with np.errstate(invalid="ignore"):  # 0 * inf
        seen = effect * width > SEEN * deviation
        unseen = effect * gap <= UNSEEN * deviation
    return np.asarray(seen & unseen & (gap <= UNSEEN * width))


LOST = 1e-8  # a direction whose singular value is below this fraction of the largest is lost
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
        """Sentence that explains the direction to the user."""
        if len(self.names) == 1:
            return f"The measurements do not determine {self.names[0]}."
        parts = " ".join(
            f"{'+' if c > 0 else '-'} {abs(c):.2g} {n}"
            for n, c in zip(self.names, self.change, strict=True)
        )
        return (
            f"The measurements do not determine {listed(self.names)} separately: to first order, "
            f"the relative change {parts.removeprefix('+ ')} does not affect any measurement."
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
    values = np.zeros(n)
    values[: len(singular)] = singular
    lost = rows[values <= LOST * max(values[0], np.finfo(float).tiny)]
    lost = lost / np.where(none, 1.0, effect)
    free, directions = list(range(n)), []
    for k in range(len(lost)):  # reduced row echelon form: a basis with few parts each
        pivot = max(free, key=lambda j: abs(lost[k, j]))
        lost[k] /= lost[k, pivot]
        others = np.arange(len(lost)) != k
        lost[others] -= np.outer(lost[others, pivot], lost[k])
        free.remove(pivot)
    for row in lost:
        change = row / row[np.argmax(np.abs(row))]
        parts = [i for i, c in enumerate(change) if abs(c) >= SMALL]
        directions.append(Direction(tuple(names[i] for i in parts), change[parts]))
    return directions
