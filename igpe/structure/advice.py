"""What else would have to be measured for an unknown to be reached by algebra.

A set of additional measurements is tried by analysing the reduced system that it leads to, on
patterns alone. Candidates for an unknown are the states needed to predict the slopes that depend on
it at the same instant; single states are tried first, then pairs, then all that one slope needs.
Whether the equations can be solved in closed form is not looked at.
"""

from itertools import combinations
from typing import Any

import numpy as np
from scipy.sparse import block_array, csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from igpe.core.arrays import IntArray
from igpe.structure.identifiability.influence import Influence, reached
from igpe.structure.selection import select

MOST_CANDIDATES = 12  # pairs grow with its square; nearer states come first
MOST_UNKNOWNS = 50  # advice for more unknowns than that is not read, and takes time


class Adviser:
    """Finds additional measurements for one experiment.

    influence  of the experiment
    """

    def __init__(self, influence: Influence) -> None:
        self.influence = influence
        self.posed = influence.posed
        self._known: dict[frozenset[str], frozenset[str]] = {}

    def alternatives(self, unknown: str) -> list[tuple[str, ...]]:
        """Smallest sets of states whose measurement makes the unknown algebraically reachable.

        Any one of the sets is enough; empty if none was found, or none is needed.
        """
        needed = self._needed(unknown)
        pool = list(dict.fromkeys(state for one in needed for state in one))[:MOST_CANDIDATES]
        for size in (1, 2):
            found = [s for s in combinations(pool, size) if unknown in self.reachable(s)]
            if found:
                return [tuple(s for s in self.posed.states if s in one) for one in found]
        return next(([one] for one in needed if unknown in self.reachable(one)), [])

    def reachable(self, extra: tuple[str, ...]) -> frozenset[str]:
        """Unknowns in the smallest suitable subsystem of some slope if `extra` is measured."""
        key = frozenset(extra)
        if key not in self._known:
            self._known[key] = self._reachable(key)
        return self._known[key]

    def _reachable(self, extra: frozenset[str]) -> frozenset[str]:
        posed = self.posed
        rows, columns = select(posed, extra.union(posed.data_names))
        used = rows_of_slopes(posed.pattern[rows][:, columns], columns < posed.n_states)
        q = np.unique(posed.q_pattern[rows[used]].indices)
        return frozenset(posed.q_names[i] for i in q)

    def _needed(self, unknown: str) -> list[tuple[str, ...]]:
        """For each slope that depends on the unknown at once: unmeasured states, fewest first."""
        graph, n = self.influence.instantly, self.posed.n_states
        backward = csr_array(graph.T)
        slopes = [i for i in reached(graph, [self.influence.node(unknown)]).tolist() if i < n]
        found = []
        for i in sorted(slopes)[:MOST_CANDIDATES]:
            before = {j - n for j in reached(backward, [i]).tolist() if n <= j < 2 * n} | {i}
            names = (self.posed.states[j] for j in sorted(before))
            found.append(tuple(s for s in names if s not in self.posed.data_names))
        return sorted(found, key=len)


def rows_of_slopes(pattern: Any, is_slope: Any) -> IntArray:
    """Rows of all smallest suitable subsystems that predict a slope.

    pattern   (n_rows, n_columns), CSR
    is_slope  (n_columns,), which columns are slopes
    """
    n_rows, n_columns = pattern.shape
    if 0 in pattern.shape:
        return np.zeros(0, dtype=int)
    column_of = maximum_bipartite_matching(csr_array(pattern), perm_type="column")
    matched = np.flatnonzero(column_of >= 0)
    partner = csr_array(
        (np.ones(len(matched)), (matched, column_of[matched])), shape=(n_rows, n_columns)
    )
    # Alternating paths from unmatched columns mark what is underconstrained: column -> any row that
    # contains it -> the column matched with that row.
    outward = _bipartite(partner, pattern.T)
    unmatched = set(range(n_columns)) - set(column_of[matched].tolist())
    under = reached(outward, [n_rows + j for j in unmatched])
    suitable = set(range(n_rows + n_columns)) - set(under.tolist())
    # From a slope to the row that predicts it, and on to all that this row contains.
    inward = _bipartite(pattern, partner.T)
    slopes = [n_rows + j for j in np.flatnonzero(is_slope).tolist() if n_rows + j in suitable]
    return np.array(sorted(i for i in reached(inward, slopes).tolist() if i < n_rows), dtype=int)


def _bipartite(row_to_column: Any, column_to_row: Any) -> Any:
    return csr_array(block_array([[None, row_to_column], [column_to_row, None]]), dtype=float)
