"""The parts of an experiment's equations from which slopes follow by algebra alone.

Suitable rows. Call a set S of equations suitable if all unknowns N(S) that occur in it can be
matched with equations of S. The largest suitable set is the well- and the over-constrained part of
Dulmage and Mendelsohn, and every suitable set lies in it:

    - In the underconstrained part every equation is matched, and every non-empty subset B of it
      has more unknowns than equations. Otherwise the unknowns of B inside the part were exactly
      those matched with B, and no alternating path from an unmatched unknown could enter B; but
      such paths reach all of the part, by its definition.
    - Equations of the other two parts contain no unknown of the underconstrained part, and their
      unknowns are all matched among them: together they are suitable.
    - Let S be suitable, B its equations in the underconstrained part. The unknowns of B inside the
      part are matched with equations of S that contain them, which lie in B. So they are at most
      as many as B, and B is empty.

(Counting alone, |N(S)| <= |S|, would not do: one superfluous equation pays for a missing one that
it has nothing to do with.)

Block triangular form. Of the suitable rows a square part is matched; a block of it needs the
blocks that compute the other unknowns it contains. A block together with all it needs is the
smallest suitable subsystem that contains it.

Where equations are superfluous, which of them are used decides how the errors of the data reach
the slopes: an amount computed from its own balance is as exact as the amounts measured beside it,
one computed from the volume of the mixture may be worth nothing. Used are first those linear in
their unknowns, for the sake of closed expressions, among them those with the fewest unknowns, among
these those with the fewest variables. Sets of rows that can be matched are a matroid, so the
matching with the least sum of places in this order is the one that a greedy choice would make.

Which equations and unknowns are left for a choice of measured quantities.

Equations with the slope of an unmeasured state are removed; what they say is left to the dynamics.
In the rest are unknown: slopes of measured states, unmeasured states, unmeasured algebraic
variables. Known are measured quantities, inputs, time and, for this analysis, the parameters.
(Michalik et al. 2009, IGPE, step 2, eq. 4)

The estimation problems of step 3: as large as can be solved, as small as they fall apart.

All smallest suitable subsystems that matter are taken together ("choose the largest estimation
problem that can be solved", Michalik et al. 2009, IGPE, section 3.6). Those that share an unknown
belong together, in whichever experiments they are; others are independent of each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from igpe.core.arrays import IntArray
from igpe.core.connected import connected
from igpe.equations.elimination import Solved, solve_for
from igpe.equations.incidence import Block, DulmageMendelsohn, blocks, parts
from igpe.equations.symbols import stack
from igpe.equations.system import linear_parameters
from igpe.structure.identifiability.posed import PosedEquations


class Selection(NamedTuple):
    """Increasing indices into the rows and the variables of a `PosedEquations`.

    rows     equations without the slope of an unmeasured state
    columns  unknown variables that occur in them
    """

    rows: IntArray
    columns: IntArray


def select(posed: PosedEquations, measured: Iterable[str]) -> Selection:
    """The reduced system if the variables in `measured` are known over time.

    Rows of measured expressions exist only for those the experiment measures often enough.
    """
    known = set(measured)
    is_known = np.array([n in known for n in posed.variable_names], dtype=bool)
    n = posed.n_states
    has_slope = is_known[n : 2 * n]
    is_hidden = np.zeros(len(is_known))
    is_hidden[:n] = ~has_slope
    removed = (posed.pattern @ is_hidden) > 0
    extra = posed.row_names[posed.n_equations :]
    gone = [name.removeprefix("measured ") not in known for name in extra]
    removed[posed.n_equations :] |= np.array(gone, dtype=bool)
    rows = np.flatnonzero(~removed)
    is_unknown = ~is_known
    is_unknown[:n] = has_slope
    used = np.zeros(len(is_known), dtype=bool)
    used[posed.pattern[rows].indices] = True
    return Selection(rows, np.flatnonzero(is_unknown & used))


@dataclass(frozen=True, eq=False)
class ReducedSystem:
    """The reduced system of one experiment (Michalik et al. 2009, IGPE, eq. 4).

    posed            all symbols: q, data, time, inputs
    residual         (n_rows,) SX, zero where the model holds
    row_names        constraints of the model, and "measured h" for a measured expression h
    unknowns         (n_unknowns,) SX: slopes of measured states, unmeasured states and variables
    unknown_names    their names; a slope is written d(state)
    pattern          (n_rows, n_unknowns), COO
    q_pattern        (n_rows, n_q), CSR
    sizes            (n_rows,) how many variables, known or unknown, each row contains
    """

    posed: PosedEquations
    residual: Any
    row_names: tuple[str, ...]
    unknowns: Any
    unknown_names: tuple[str, ...]
    pattern: Any
    q_pattern: Any
    sizes: IntArray

    def slopes(self, columns: Iterable[int]) -> dict[int, str]:
        """Which of the columns are slopes, and of which state."""
        state_of = {f"d({n})": n for n in self.posed.states}
        names = {j: self.unknown_names[j] for j in columns}
        return {j: state_of[n] for j, n in names.items() if n in state_of}


@dataclass(frozen=True)
class Subsystem:
    """Equations that stand alone: they predict slopes of measured states from data and parameters.

    experiment  index of the experiment
    equations   names of the rows, in order of solution;  rows: places in `ReducedSystem.residual`
    unknowns    names of the columns;  columns: places in `ReducedSystem.unknowns`
    parameters  free unknowns of the problem that occur in the equations
    slopes      states whose slope is predicted
    implicit    unknowns that cannot be written explicitly; if there are any, the slopes are no
                closed expressions, and the subsystem is left to the dynamics
    """

    experiment: int
    equations: tuple[str, ...]
    rows: tuple[int, ...]
    unknowns: tuple[str, ...]
    columns: tuple[int, ...]
    parameters: tuple[str, ...]
    slopes: tuple[str, ...]
    implicit: tuple[str, ...]

    @property
    def explicit(self) -> bool:
        """Whether the slopes are closed expressions of what is known."""
        return not self.implicit


class Surplus(NamedTuple):
    """Equations that hold more than is needed: consistency checks of data, or contradictions.

    equations  names of equations that overlap
    needless   how many of them are superfluous
    """

    experiment: int
    equations: tuple[str, ...]
    needless: int


class Suitable(NamedTuple):
    """What can be computed algebraically in one experiment.

    subsystems  smallest ones that predict a slope and contain a parameter; the smallest first
    equations   names of all suitable equations
    slopes      state -> predicted slope, SX of q, data, time and inputs; explicit ones only
    surplus     superfluous equations
    """

    subsystems: tuple[Subsystem, ...]
    equations: tuple[str, ...]
    slopes: Mapping[str, Any]
    surplus: tuple[Surplus, ...]


def reduce(posed: PosedEquations) -> ReducedSystem:
    """The reduced system for what the experiment measures."""
    rows, columns = select(posed, posed.data_names)
    return ReducedSystem(
        posed=posed,
        residual=posed.residual[rows.tolist()],
        row_names=tuple(posed.row_names[i] for i in rows),
        unknowns=posed.variables[columns.tolist()],
        unknown_names=tuple(posed.variable_names[j] for j in columns),
        pattern=posed.pattern[rows][:, columns].tocoo(),
        q_pattern=posed.q_pattern[rows],
        sizes=np.diff(posed.pattern[rows].indptr),
    )


def suitable(reduced: ReducedSystem) -> Suitable:
    """The suitable part of a reduced system, and its smallest suitable subsystems."""
    result = parts(reduced.pattern)
    rows = [*result.well_rows, *used_rows(reduced, result)]
    columns = [*result.well_columns, *result.over_columns]
    order = blocks(reduced.pattern, rows, columns)
    solved = _solve(reduced, rows, columns)
    implicit = set(solved.implicit)
    subsystems = _subsystems(reduced, order, implicit)
    expressions = dict(zip(columns, solved.expressions, strict=True))
    closed = {s for one in subsystems if one.explicit for s in one.slopes}
    slopes = reduced.slopes(columns)
    return Suitable(
        subsystems=subsystems,
        equations=tuple(reduced.row_names[i] for i in sorted({*rows, *result.over_rows})),
        slopes={s: expressions[j] for j, s in sorted(slopes.items()) if s in closed},
        surplus=_surplus(reduced, result),
    )


def predicted_slopes(reduced: ReducedSystem, subsystem: Subsystem) -> dict[str, Any]:
    """State -> its slope as SX of q, data, time and inputs (and of the implicit unknowns)."""
    solved = _solve(reduced, subsystem.rows, subsystem.columns)
    slopes = reduced.slopes(subsystem.columns)
    by_column = dict(zip(subsystem.columns, solved.expressions, strict=True))
    return {state: by_column[j] for j, state in slopes.items()}


def used_rows(reduced: ReducedSystem, result: DulmageMendelsohn) -> list[int]:
    """The rows of the overconstrained part that are used; see the top of the file."""
    if not result.over_columns:
        return []
    over = reduced.pattern.tocsr()[result.over_rows][:, result.over_columns]
    rows = reduced.residual[result.over_rows]
    curved = np.array(ca.which_depends(rows, reduced.unknowns, 2, True))
    order = np.lexsort((reduced.sizes[result.over_rows], np.diff(over.indptr), curved))
    return [result.over_rows[i] for i in first_matched(over, order)]


def first_matched(pattern: csr_array, order: IntArray) -> list[int]:
    """The rows, as early in `order` as possible, that can be matched with all columns."""
    place = np.empty(len(order))
    place[order] = np.arange(1.0, len(order) + 1)
    entries = pattern.tocoo()
    priced = csr_array((place[entries.row], (entries.row, entries.col)), shape=pattern.shape)
    chosen, _ = min_weight_full_bipartite_matching(priced)
    return sorted(int(i) for i in chosen)


def _solve(reduced: ReducedSystem, rows: Iterable[int], columns: Iterable[int]) -> Solved:
    """`solve_for` on a part alone, at its own cost; indices are those of the whole."""
    rows, columns = list(rows), list(columns)
    n = range(len(rows))
    solved = solve_for(reduced.residual[rows], reduced.unknowns[columns], n, n)
    return Solved(solved.expressions, tuple(columns[j] for j in solved.implicit), solved.remaining)


def _subsystems(
    reduced: ReducedSystem, order: list[Block], implicit: set[int]
) -> tuple[Subsystem, ...]:
    needs = _needs(reduced, order)
    result = []
    for number, block in enumerate(order):
        if not reduced.slopes(block.columns):
            continue  # whatever it adds predicts no further slope
        members = sorted(_closure(number, needs))
        subsystem = _subsystem(reduced, [order[k] for k in members], implicit)
        if subsystem.parameters:
            result.append(subsystem)
    return tuple(sorted(result, key=lambda s: (len(s.rows), s.rows)))


def _subsystem(reduced: ReducedSystem, members: list[Block], implicit: set[int]) -> Subsystem:
    rows = [i for block in members for i in block.rows]
    columns = [j for block in members for j in block.columns]
    names = reduced.unknown_names
    q = np.unique(reduced.q_pattern[rows].indices)
    return Subsystem(
        experiment=reduced.posed.experiment,
        equations=tuple(reduced.row_names[i] for i in rows),
        rows=tuple(rows),
        unknowns=tuple(names[j] for j in columns),
        columns=tuple(columns),
        parameters=tuple(reduced.posed.q_names[i] for i in q),
        slopes=tuple(reduced.slopes(columns).values()),
        implicit=tuple(names[j] for j in columns if j in implicit),
    )


def _needs(reduced: ReducedSystem, order: list[Block]) -> list[set[int]]:
    """For each block, the other blocks that compute unknowns it contains."""
    adjacent = reduced.pattern.tocsr()
    block_of = {j: k for k, block in enumerate(order) for j in block.columns}
    return [
        {block_of[int(j)] for j in adjacent[block.rows].indices} - {k}
        for k, block in enumerate(order)
    ]


def _closure(start: int, needs: list[set[int]]) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        new = needs[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def _surplus(reduced: ReducedSystem, result: DulmageMendelsohn) -> tuple[Surplus, ...]:
    """Rows without an unknown are superfluous each by itself, the others together."""
    counts = np.diff(reduced.pattern.tocsr().indptr)
    index, names = reduced.posed.experiment, reduced.row_names
    alone = [i for i in sorted(result.over_rows) if counts[i] == 0]
    shared = tuple(names[i] for i in sorted(result.over_rows) if counts[i] > 0)
    left = len(result.spare_rows) - len(alone)
    return (
        *(Surplus(index, (names[i],), 1) for i in alone),
        *([Surplus(index, shared, left)] if shared else []),
    )


class Member(NamedTuple):
    """A slope to be fitted: that of a state in the experiment of that index."""

    experiment: int
    state: str


@dataclass(frozen=True)
class SlopeGroup:
    """Slopes whose predictions share unknowns: one problem for step 3.

    parameters    free unknowns of the problem, in its order
    members       the slopes that depend on them
    subsystems    what predicts them; the smallest first
    individually  parameters in which every slope is linear while the others are held
    jointly       parameters in which the slopes are linear together
    """

    parameters: tuple[str, ...]
    members: tuple[Member, ...]
    subsystems: tuple[Subsystem, ...]
    individually: tuple[str, ...]
    jointly: tuple[str, ...]

    @property
    def equations(self) -> tuple[str, ...]:
        """Names of all equations, each once."""
        return tuple(dict.fromkeys(e for s in self.subsystems for e in s.equations))


def groups(
    subsystems: Iterable[Subsystem],
    reduced: Sequence[ReducedSystem],
    slopes: Sequence[Mapping[str, Any]],
    order: Sequence[str],
) -> tuple[SlopeGroup, ...]:
    """The explicit subsystems, gathered by the unknowns they share.

    reduced, slopes  of each experiment: its reduced system and predicted slopes
    order            the problem's free unknowns
    """
    explicit = [s for s in subsystems if s.explicit]
    shared = connected(s.parameters for s in explicit)
    number = {name: k for k, names in enumerate(shared) for name in names}
    place = {name: i for i, name in enumerate(order)}
    gathered: dict[int, list[Subsystem]] = {}
    for one in sorted(explicit, key=lambda s: (min(place[n] for n in s.parameters), len(s.rows))):
        gathered.setdefault(number[one.parameters[0]], []).append(one)
    return tuple(_group(own, reduced, slopes, place) for own in gathered.values())


def _group(
    own: list[Subsystem],
    reduced: Sequence[ReducedSystem],
    slopes: Sequence[Mapping[str, Any]],
    place: Mapping[str, int],
) -> SlopeGroup:
    names = sorted({n for s in own for n in s.parameters}, key=place.__getitem__)
    members = sorted({Member(s.experiment, x) for s in own for x in s.slopes})
    p = stack(ca.SX.sym(n) for n in names)
    symbol = dict(zip(names, ca.vertsplit(p), strict=True))
    predictions = stack(
        _in_common([slopes[k][m.state] for m in members if m.experiment == k], reduced[k], symbol)
        for k in sorted({m.experiment for m in members})
    )
    linear = linear_parameters(predictions, p)
    return SlopeGroup(
        parameters=tuple(names),
        members=tuple(members),
        subsystems=tuple(sorted(own, key=lambda s: (len(s.rows), s.experiment, s.rows))),
        individually=tuple(names[i] for i in linear.individually),
        jointly=tuple(names[i] for i in linear.jointly),
    )


def _in_common(slopes: list[Any], reduced: ReducedSystem, symbol: Mapping[str, Any]) -> Any:
    """The slopes in symbols that all experiments of the group have in common."""
    posed = reduced.posed
    old = [(posed.q[i], n) for i, n in enumerate(posed.q_names) if n in symbol]
    new = stack(symbol[n] for _, n in old)
    return ca.substitute(stack(slopes), stack(s for s, _ in old), new)
