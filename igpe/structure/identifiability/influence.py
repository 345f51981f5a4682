"""Which unknown has an influence on what is measured, through algebra and dynamics.

Every equation is matched with a slope or algebraic variable it may be solved for. Then everything
else in the equation influences that variable; a slope influences its state; what gives a start
value influences the state. Equations that must be solved together form a strongly connected part
under any matching, so the answer does not depend on which one was found. (By structure: terms that
cancel and functions that are constant are not noticed.)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from igpe.core.arrays import IntArray
from igpe.equations.incidence import matching
from igpe.structure.identifiability.posed import Posed


@dataclass(frozen=True, eq=False)
class Influence:
    """Directed graphs of one experiment as matrices: entry (i, j) says that i influences j.

    Nodes are the variables of `posed`, then its unknowns q, then measured expressions.

    names      of the nodes
    always     through algebra and dynamics
    instantly  through algebra alone: at one time, whatever happened before
    """

    posed: Posed
    names: tuple[str, ...]
    always: Any
    instantly: Any

    def visible(self) -> set[str]:
        """Unknowns that influence something measured."""
        ends = [i for i, n in enumerate(self.names) if n in self.posed.once and not self._is_q(i)]
        seen = reached(csr_array(self.always.T), ends)
        return {self.names[i] for i in seen if self._is_q(int(i))}

    def downstream(self, unknown: str) -> list[str]:
        """States and algebraic variables that the unknown influences, in the model's order."""
        seen = reached(self.always, [self.node(unknown)])
        n, last = self.posed.n_states, len(self.posed.variable_names)
        return [self.names[i] for i in sorted(seen.tolist()) if n <= i < last]

    def node(self, unknown: str) -> int:
        """Number of the node of an unknown."""
        return len(self.posed.variable_names) + self.posed.q_names.index(unknown)

    def _is_q(self, node: int) -> bool:
        first = len(self.posed.variable_names)
        return first <= node < first + len(self.posed.q_names)


def reached(graph: Any, starts: Iterable[int]) -> IntArray:
    """Nodes to which a path leads from one of the starts, these included."""
    edges, n = graph.tocoo(), graph.shape[0]
    begin = sorted(set(starts))
    tails = np.concatenate([edges.row, np.full(len(begin), n)])
    heads = np.concatenate([edges.col, np.array(begin, dtype=int)])
    wider = csr_array((np.ones(len(tails)), (tails, heads)), shape=(n + 1, n + 1))
    order = breadth_first_order(wider, n, return_predecessors=False)
    return np.asarray(order[1:], dtype=int)


def influence(posed: Posed) -> Influence:
    """Who influences whom in one experiment."""
    n, n_x = len(posed.variable_names), posed.n_states
    n_q, n_extra = len(posed.q_names), len(posed.row_names) - posed.n_equations
    target = _targets(posed)
    causes = [_edges(posed.pattern, target, 0), _edges(posed.q_pattern, target, n)]
    states = np.arange(n_x)
    dynamics = np.column_stack([states, states + n_x])
    starts = _edges(posed.start_pattern, {i: i + n_x for i in range(n_x)}, n)
    size = n + n_q + n_extra
    extra = (r.removeprefix("measured ") for r in posed.row_names[posed.n_equations :])
    names = (*posed.variable_names, *posed.q_names, *extra)
    always = _graph([*causes, dynamics, starts], size)
    return Influence(posed, names, always, _graph(causes, size))


def _targets(posed: Posed) -> dict[int, int]:
    """Row -> the node it determines: a slope, an algebraic variable or a measured expression."""
    n_x, n_e = posed.n_states, posed.n_equations
    solvable = [j for j in range(n_x + n_e) if not n_x <= j < 2 * n_x]
    found = matching(posed.pattern[:n_e][:, solvable].tocoo())
    first = len(posed.variable_names) + len(posed.q_names)
    extra = {r: first + r - n_e for r in range(n_e, len(posed.row_names))}
    return {r: solvable[c] for r, c in found.items()} | extra


def _edges(pattern: Any, target: dict[int, int], shift: int) -> IntArray:
    """(n, 2) from every column (shifted) to the target of its row."""
    entries = pattern.tocoo()
    pairs = zip(entries.row.tolist(), entries.col.tolist(), strict=True)
    edges = [(c + shift, target[r]) for r, c in pairs if r in target]
    return np.array(edges, dtype=int).reshape(-1, 2)


def _graph(edges: list[IntArray], size: int) -> Any:
    ends = np.vstack(edges)
    ends = ends[ends[:, 0] != ends[:, 1]]
    return csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(size, size))
