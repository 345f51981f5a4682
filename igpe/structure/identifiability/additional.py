"""Which further measurements would make unknowns identifiable: the smallest sets, by exact rank.

The rows of all states and algebraic variables have been computed with those of what is measured. On
the null space Z of the latter, a further measurement leaves open what its rows times Z leave open;
these matrices are as wide as there are directions, so that many sets can be tried.
"""

from itertools import combinations

import numpy as np

from igpe.structure.identifiability.sensitivity_rows import Rows
from igpe.structure.series.field import Residues, echelon, null_space, product

MOST_CANDIDATES = 60  # of which pairs are tried


def additional(rows: Rows) -> dict[int, tuple[tuple[str, ...], ...]]:
    """Unknown that is not identifiable -> the smallest sets, of one or of two, that free it."""
    k = rows.best[0]
    prime = rows.primes[k]
    open_ = null_space(rows.told[k], prime)
    told = {
        name: echelon(product(own, open_.T, prime), prime).rows
        for name, own in rows.extra[k].items()
    }
    told = {name: matrix for name, matrix in told.items() if len(matrix)}
    waiting = set(np.flatnonzero(open_.any(axis=0)).tolist())
    found: dict[int, list[tuple[str, ...]]] = {i: [] for i in sorted(waiting)}
    for size in (1, 2):
        candidates = list(told) if size == 1 else list(told)[:MOST_CANDIDATES]
        for names in combinations(candidates, size):
            for i in waiting & _freed(np.vstack([told[n] for n in names]), open_, prime):
                found[i].append(names)
        waiting = {i for i in waiting if not found[i]}
        if not waiting:
            break
    return {i: tuple(sets) for i, sets in found.items()}


def _freed(matrix: Residues, open_: Residues, prime: int) -> set[int]:
    """Unknowns that no direction moves any more."""
    left = product(null_space(echelon(matrix, prime), prime), open_, prime)
    return set(np.flatnonzero(~left.any(axis=0)).tolist())
