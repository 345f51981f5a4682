"""Which combinations of unknowns the data determine poorly, relative to their values.

The eigenvectors of the relative covariance V_ij / (x_i x_j): along one with eigenvalue e the
unknowns may change by sqrt(e) times its components, as fractions of themselves, for one standard
error.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.numerics.statistics.covariance import correlation

TWINS = 0.99  # a correlation beyond it: the data tell two unknowns apart by a tenth of their errors
WEAK = 0.5  # relative standard error of a combination worth a sentence
PART = 0.2  # of the largest component: what belongs to a direction in words
MOST = 3  # groups told of
LARGE = 10.0  # a relative change beyond it is given as "over 1000 %"


class Combination(NamedTuple):
    """A direction, and its standard error.

    components  (n,) of length 1: relative changes of the unknowns
    error       standard error along it, relative
    """

    components: FloatArray
    error: float


def combinations(x: FloatArray, covariance: FloatArray) -> list[Combination]:
    """Eigen-directions of the relative covariance, the poorest determined first.

    Unknowns without an error, or with the value 0, take no part (their components are 0).
    """
    part = _with_error(covariance) & (x != 0)
    if not part.any():
        return []
    size = np.abs(x[part])
    relative = covariance[np.ix_(part, part)] / np.outer(size, size)
    values, vectors = np.linalg.eigh((relative + relative.T) / 2)
    found = []
    for value, vector in sorted(zip(values, vectors.T, strict=True), key=lambda p: -p[0]):
        whole = np.zeros(len(x))
        whole[part] = vector * np.sign(vector[np.argmax(np.abs(vector))])
        found.append(Combination(whole, float(np.sqrt(max(value, 0.0)))))
    return found


def weak_sentences(names: Sequence[str], x: FloatArray, covariance: FloatArray) -> list[str]:
    """Unknowns that the data hardly tell apart, and the poorest combination."""
    told = []
    groups = _twins(covariance)
    for members in groups[:MOST]:
        listed = [names[i] for i in members]
        related = np.abs(correlation(covariance)[np.ix_(members, members)])
        strongest = float(np.max(related - np.eye(len(members))))
        told.append(
            f"The data hardly tell {' and '.join(listed)} apart (correlation "
            f"{_near_one(strongest)}); what they determine is a combination."
        )
    if len(groups) > MOST:
        told.append(f"{len(groups) - MOST} more groups of unknowns are as strongly correlated.")
    found = combinations(x, covariance)
    if found and (groups or found[0].error > WEAK) and np.count_nonzero(found[0].components) > 1:
        told.append(_poorest(names, found))
    return told


def _poorest(names: Sequence[str], found: Sequence[Combination]) -> str:
    first, last = found[0], found[-1]
    return (
        f"Poorest determined: {_moved(names, first)} together (one standard error); best "
        f"determined: {_moved(names, last)}."
    )


def _moved(names: Sequence[str], one: Combination) -> str:
    least = PART * np.max(np.abs(one.components))
    parts = [(n, c) for n, c in zip(names, one.components, strict=True) if abs(c) >= least]
    return ", ".join(f"{n} {_percent(one.error * c)}" for n, c in parts)


def _percent(change: float) -> str:
    """A relative change; near a value of 0 it says nothing but that it is large."""
    if abs(change) > LARGE:
        return f"{'+' if change > 0 else '-'} over {100 * LARGE:.0f} %"
    return f"{100 * change:+.2g} %"


def _near_one(value: float) -> str:
    """Digits up to the first that is no nine: 0.998, 0.99993."""
    left = max(1 - value, 1e-12)
    return f"{value:.{max(2, int(np.ceil(-np.log10(left))))}f}"


def _twins(covariance: FloatArray) -> list[list[int]]:
    """Groups of unknowns linked by correlations beyond `TWINS`."""
    links = np.abs(np.nan_to_num(correlation(covariance))) > TWINS
    groups: list[list[int]] = []
    seen: set[int] = set()
    for i in range(len(links)):
        if i in seen:
            continue
        group, waiting = {i}, [i]
        while waiting:
            for j in np.flatnonzero(links[waiting.pop()]):
                if int(j) not in group:
                    group.add(int(j))
                    waiting.append(int(j))
        seen |= group
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _with_error(covariance: FloatArray) -> BoolArray:
    variance = np.diag(covariance)
    return np.isfinite(variance) & (variance > 0)
