"""Simple symmetries: ways in which some unknowns may change together without any output noticing.

Directions n of the null space at a point theta are

    scalings      n[i] = w[i] theta[i]:  theta[i] -> lambda**w[i] theta[i]
    translations  n[i] = w[i]:           theta[i] -> theta[i] + w[i] epsilon
    mixed         some of each:          an activation energy grows, its rate constant with it

if the same numbers w do at every point. For scalings and translations they are searched for among
small quotients, which residues modulo different primes give away.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple

import numpy as np

from igpe.structure.identifiability.sensitivity_rows import Rows
from igpe.structure.series.field import Residues, reconstructed
from igpe.structure.series.linear_algebra import Echelon, echelon, null_space

LARGEST_WEIGHT = 100  # numerator and denominator; one in 1e5 random residues is such a quotient


class Mixed(NamedTuple):
    """One direction in which some unknowns are translated and others scaled.

    translated, scaled  places in the part, increasing
    """

    translated: tuple[int, ...]
    scaled: tuple[int, ...]


def weights(rows: Rows, part: list[int], *, scaling: bool) -> list[list[Fraction]]:
    """The reduced basis of all scalings (or translations) of a part; empty if there are none.

    Points of one prime are stacked: a weight must leave the outputs alone at each of them. Primes
    must agree, else they are no small quotients.
    """
    found = []
    for prime, points in _by_prime(rows):
        basis = null_space(_stacked(rows, points, part, scaling=scaling), prime)
        found.append([[reconstructed(int(v), prime, LARGEST_WEIGHT) for v in row] for row in basis])
    known = [[w for w in row if w is not None] for row in found[0]]
    agreed = all(one == found[0] for one in found) and known == found[0]
    return known if agreed else []


def mixed(rows: Rows, part: list[int]) -> Mixed | None:
    """How the only direction of a part mixes translations and scalings; None if it does not."""
    for reference in range(len(part)):
        found = [_mixed_modulo(rows, points, part, reference) for _, points in _by_prime(rows)]
        if found[0] is not None and all(one == found[0] for one in found):
            return found[0]
    return None


def _mixed_modulo(rows: Rows, points: list[int], part: list[int], reference: int) -> Mixed | None:
    """The same at the points of one prime, if the unknown at `reference` is translated."""
    prime = rows.primes[points[0]]
    shifts, scales = [], []
    for k in points:
        (direction,) = null_space(_restricted(rows, k, part), prime).tolist()
        over = pow(direction[reference], -1, prime)
        shifts.append([n * over % prime for n in direction])
        values = [int(v) for v in rows.values[k, part]]
        scales.append([
            s * pow(v, -1, prime) % prime for s, v in zip(shifts[-1], values, strict=True)
        ])
    translated = tuple(i for i in range(len(part)) if len({s[i] for s in shifts}) == 1)
    scaled = tuple(i for i in range(len(part)) if len({s[i] for s in scales}) == 1)
    covered = len(points) > 1 and set(translated) | set(scaled) == set(range(len(part)))
    return Mixed(translated, scaled) if covered else None


def _by_prime(rows: Rows) -> Iterator[tuple[int, list[int]]]:
    for prime, points in groupby(rows.best, key=lambda k: rows.primes[k]):
        yield prime, list(points)


def _stacked(rows: Rows, points: list[int], part: list[int], *, scaling: bool) -> Echelon:
    prime = np.uint64(rows.primes[points[0]])
    factors = [rows.values[k, part] if scaling else np.uint64(1) for k in points]
    matrices = [
        _restricted(rows, k, part).rows * f % prime for k, f in zip(points, factors, strict=True)
    ]
    return echelon(np.vstack(matrices), int(prime))


def _restricted(rows: Rows, k: int, part: list[int]) -> Echelon:
    """The rows of a part: those of other parts have nothing but zeros in its columns."""
    matrix: Residues = rows.told[k].rows[:, part]
    return echelon(matrix, rows.primes[k])
