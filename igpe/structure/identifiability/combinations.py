"""Unknowns that cannot be told apart, and what can be determined of them all the same.

Unknowns belong together that some minimal dependence links: the connected parts of the null space's
reduced basis, which are the same for any basis. If as many symmetries of one kind are found in a
part as it has directions, what these leave unchanged is all that can be determined.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from igpe.core.connected import connected
from igpe.structure.identifiability.invariants import mixtures, products, sums
from igpe.structure.identifiability.sensitivity_rows import Rows
from igpe.structure.identifiability.symmetries import mixed, weights
from igpe.structure.series.field import Residues
from igpe.structure.series.linear_algebra import null_space


@dataclass(frozen=True)
class Combination:
    """Unknowns of which only functions can be determined.

    unknowns    in the problem's order
    directions  in how many independent ways they may change unseen
    functions   what can be determined of them: "k1*s1", "p1 + p3"; empty if nothing can, or if it
                has no simple form
    """

    unknowns: tuple[str, ...]
    directions: int
    functions: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether the outputs tell nothing of them."""
        return self.directions == len(self.unknowns)


def combinations(rows: Rows, names: Sequence[str]) -> tuple[Combination, ...]:
    """The parts of the null space."""
    k = rows.best[0]
    basis = null_space(rows.told[k], rows.primes[k])
    return tuple(_combination(rows, part, names) for part in _parts(basis))


def _parts(basis: Residues) -> list[list[int]]:
    """Columns that the rows of the reduced basis link."""
    return sorted(sorted(part) for part in connected(np.flatnonzero(r).tolist() for r in basis))


def _combination(rows: Rows, part: list[int], names: Sequence[str]) -> Combination:
    own = tuple(names[i] for i in part)
    pivots = rows.told[rows.best[0]].pivots
    directions = len(part) - sum(pivot in part for pivot in pivots)
    nothing = directions == len(part)
    functions = () if nothing else _functions(rows, part, own, directions)
    return Combination(own, directions, functions)


def _functions(
    rows: Rows, part: list[int], names: Sequence[str], directions: int
) -> tuple[str, ...]:
    scalings = weights(rows, part, scaling=True)
    if len(scalings) == directions:
        return products(scalings, names)
    translations = weights(rows, part, scaling=False)
    if len(translations) == directions:
        return sums(translations, names)
    both = mixed(rows, part) if directions == 1 else None
    return mixtures(both, names) if both else ()
