"""The parts of an experiment's equations from which slopes follow by algebra alone.

The reduced system (Michalik et al. 2009, IGPE, eq. 4). Equations with the slope of an unmeasured
state are removed, unless that slope is in the derivative of a measured quantity (below); what
they say is left to the dynamics. In the rest are unknown: slopes of measured quantities, unmeasured
states and their slopes, unmeasured algebraic variables. Known are measured quantities, inputs, time
and, for this analysis, the parameters.

Suitable rows. A set S of equations is suitable if all unknowns that occur in it can be matched with
equations of S. The largest suitable set is the well- and the over-constrained part of Dulmage and
Mendelsohn, and every suitable set lies in it: the unknowns of the two parts are all matched inside
them. Of a suitable S let B be its equations in the underconstrained part. Their unknowns there are
matched with equations of B, so they are at most as many as B. But every non-empty set of equations
of that part has more unknowns than equations, or no alternating path from an unmatched unknown
could enter it; so B is empty. (Counting alone would not do: one superfluous equation pays for a
missing one that it has nothing to do with.) A block of the triangular form together with all blocks
it needs is the smallest suitable subsystem that contains it.

Superfluous equations. Which of them are used decides how the errors of the data reach the slopes:
an amount computed from its own balance is as exact as the amounts measured beside it, one computed
from the volume of the mixture may be worth nothing. Used are first those linear in their unknowns,
for the sake of closed expressions, among them those with the fewest unknowns, among these those
with the fewest variables. Sets of rows that can be matched are a matroid, so the matching with the
least sum of places in this order is the one that a greedy choice would make.

Measured quantities that are no states. An equation h(x, z, y, q, t) = 0 between states x, algebraic
variables z and a measured y also holds for its derivative with respect to time,

    h_x dx/dt + h_z dz/dt + h_y dy/dt + h_t = 0,

and dy/dt is known where y is smoothed. Both go to the reduced system, so that states which only
occur scaled, summed or transformed in what is measured are solved for, and dy/dt is predicted from
the model's equations as the slope of a measured state is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from igpe.core.arrays import IntArray, connected
from igpe.equations.elimination import solve_for
from igpe.equations.incidence import Block, DulmageMendelsohn, blocks, incidence, parts
from igpe.equations.symbols import stack
from igpe.equations.system import linear_parameters
from igpe.structure.posed import PosedEquations, pattern

DERIVATIVE = "derivative of "  # begins the names of the rows


def with_derivatives(posed: PosedEquations) -> PosedEquations:
    """The equations with the derivatives of those that give measured quantities.

    Their rows come last, named "derivative of ...", and so do their unknowns d(y): the derivatives
    of measured expressions and of the algebraic variables in the rows.
    """
    n = posed.n_states
    names = posed.variable_names[2 * n :]
    new = [k for k, name in enumerate(posed.data_names) if name not in posed.variable_names]
    # Columns: algebraic variables, then the measured expressions.
    columns = ca.vertcat(posed.variables[2 * n :], stack(posed.data[k] for k in new))
    names = (*names, *(posed.data_names[k] for k in new))
    rows = _rows(posed, csr_array(incidence(posed.residual, columns)), names)
    if not rows:
        return posed
    moving = stack(ca.SX.sym(f"d({name})") for name in names)
    equations = posed.residual[rows]
    slopes, states = posed.variables[:n], posed.variables[n : 2 * n]
    derived = (
        ca.jtimes(equations, states, slopes)
        + ca.jtimes(equations, columns, moving)
        + ca.jacobian(equations, posed.time)
    )
    residual = ca.vertcat(posed.residual, derived)
    variables = ca.vertcat(posed.variables, moving)
    return replace(
        posed,
        row_names=(*posed.row_names, *(DERIVATIVE + posed.row_names[i] for i in rows)),
        residual=residual,
        variable_names=(*posed.variable_names, *(f"d({name})" for name in names)),
        variables=variables,
        pattern=pattern(residual, variables),
        q_pattern=pattern(residual, posed.q),
    )


def _rows(posed: PosedEquations, algebraic: csr_array, names: tuple[str, ...]) -> list[int]:
    """Equations that give measured quantities, and all that give what these need, in order.

    Only where an unmeasured state is in them: all else follows without derivatives.

    algebraic  (n_rows, n_columns) which row contains which algebraic variable or expression
    """
    barred, n = _undifferentiable(posed), posed.n_states
    hidden = [n + i for i, name in enumerate(posed.states) if name not in posed.data_names]
    by_column, of_hidden = algebraic.tocsc(), posed.pattern[:, hidden]
    result = set[int]()
    for first in (k for k, name in enumerate(names) if name in posed.data_names):
        open_, seen, chosen = {first}, set[int](), set[int]()
        while open_:
            column = open_.pop()
            seen.add(column)
            for i in {int(i) for i in by_column[:, [column]].indices} - barred - chosen:
                chosen.add(i)
                open_ |= {int(j) for j in algebraic[[i]].indices} - seen
        if of_hidden[sorted(chosen)].nnz:
            result |= chosen
    return sorted(result)


def _undifferentiable(posed: PosedEquations) -> set[int]:
    """Rows with slopes, whose derivative is of second order, or with inputs, which may jump."""
    slopes = posed.pattern[:, : posed.n_states].tocoo().row
    inputs = incidence(posed.residual, posed.inputs).row
    once = [
        i
        for i, name in enumerate(posed.row_names[posed.n_equations :], posed.n_equations)
        if name.removeprefix("measured ") not in posed.data_names
    ]
    return {*slopes.tolist(), *inputs.tolist(), *once}


class Selection(NamedTuple):
    """Increasing indices into the rows and the variables of a `PosedEquations`.

    rows     equations without slopes of unmeasured states that nothing measured is a function of
    columns  unknown variables that occur in them
    """

    rows: IntArray
    columns: IntArray


def select(posed: PosedEquations, measured: Iterable[str]) -> Selection:
    """The reduced system if the variables in `measured` are known over time.

    Rows of measured expressions exist only for those the experiment measures often enough.
    """
    known, n = set(measured), posed.n_states
    is_known = np.array([name in known for name in posed.variable_names], dtype=bool)
    extra = [name.removeprefix("measured ") for name in posed.row_names[posed.n_equations :]]
    is_lost = np.array([n not in known and not n.startswith(DERIVATIVE) for n in extra], dtype=bool)
    derived = [i for i, n in enumerate(extra, posed.n_equations) if n.startswith(DERIVATIVE)]
    has_slope = is_known[n : 2 * n].copy()
    has_slope[np.unique(posed.pattern[derived][:, :n].indices)] = True
    is_hidden = np.zeros(len(is_known))
    is_hidden[:n] = ~has_slope
    removed = (posed.pattern @ is_hidden) > 0
    removed[posed.n_equations :] |= is_lost
    rows = np.flatnonzero(~removed)
    is_unknown = ~is_known
    is_unknown[:n] = has_slope
    used = np.unique(posed.pattern[rows].indices)
    return Selection(rows, used[is_unknown[used]])


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
        """Which of the columns are slopes of measured quantities, and of which."""
        state_of = {f"d({n})": n for n in self.posed.data_names}
        names = {j: self.unknown_names[j] for j in columns}
        return {j: state_of[n] for j, n in names.items() if n in state_of}


@dataclass(frozen=True)
class Subsystem:
    """Equations that stand alone: they predict slopes of measured states from data and parameters.

    experiment  index of the experiment
    equations   names of the rows, in order of solution;  rows: places in `ReducedSystem.residual`
    unknowns    names of the columns
    parameters  free unknowns of the problem that occur in the equations
    slopes      states whose slope is predicted
    implicit    unknowns that cannot be written explicitly; if there are any, the slopes are no
                closed expressions, and the subsystem is left to the dynamics
    """

    experiment: int
    equations: tuple[str, ...]
    rows: tuple[int, ...]
    unknowns: tuple[str, ...]
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
    parameters free unknowns of the problem that occur in them, and that they thus tell of
    """

    experiment: int
    equations: tuple[str, ...]
    needless: int
    parameters: tuple[str, ...] = ()


class Suitable(NamedTuple):
    """What can be computed algebraically in one experiment.

    subsystems  smallest ones that predict a slope and contain a parameter; the smallest first
    slopes      measured quantity -> predicted slope, SX of q, data, time and inputs; explicit ones
    states      unmeasured state -> its value, SX of the same; explicit ones
    surplus     superfluous equations
    """

    subsystems: tuple[Subsystem, ...]
    slopes: Mapping[str, Any]
    states: Mapping[str, Any]
    surplus: tuple[Surplus, ...]


def reduce(posed: PosedEquations) -> ReducedSystem:
    """The reduced system for what the experiment measures; `posed` as `with_derivatives` has it."""
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
    n = range(len(rows))  # solved on the part alone, at its own cost
    solved = solve_for(reduced.residual[rows], reduced.unknowns[columns], n, n, squares=True)
    implicit = {columns[j] for j in solved.implicit}
    subsystems = _subsystems(reduced, blocks(reduced.pattern, rows, columns), implicit)
    expressions = dict(zip(columns, solved.expressions, strict=True))
    unknowns = reduced.unknowns

    def is_closed(expression: Any) -> bool:
        return not any(ca.which_depends(expression, unknowns, 1, True))

    of_slopes = {j: s for j, s in reduced.slopes(columns).items() if is_closed(expressions[j])}
    slopes = {of_slopes[j]: _without_cancelled(reduced, expressions[j]) for j in sorted(of_slopes)}
    subsystems = tuple(_with_own_parameters(reduced, one, slopes) for one in subsystems)
    subsystems = tuple(one for one in subsystems if one.parameters)
    closed = {s for one in subsystems if one.explicit for s in one.slopes}
    return Suitable(
        subsystems=subsystems,
        slopes={name: slope for name, slope in slopes.items() if name in closed},
        states={
            name: expressions[j]
            for j, name in enumerate(reduced.unknown_names)
            if name in reduced.posed.states and j in expressions and is_closed(expressions[j])
        },
        surplus=_surplus(reduced, result),
    )


def _surplus(reduced: ReducedSystem, result: DulmageMendelsohn) -> tuple[Surplus, ...]:
    """Rows without an unknown are superfluous each by itself, the others together."""
    counts, over = np.diff(reduced.pattern.tocsr().indptr), sorted(result.over_rows)

    def of(rows: list[int], needless: int) -> Surplus:
        q = np.unique(reduced.q_pattern[rows].indices)
        parameters = tuple(reduced.posed.q_names[i] for i in q)
        names = tuple(reduced.row_names[i] for i in rows)
        return Surplus(reduced.posed.experiment, names, needless, parameters)

    alone = [of([i], 1) for i in over if counts[i] == 0]
    if shared := [i for i in over if counts[i] > 0]:
        alone.append(of(shared, len(result.spare_rows) - len(alone)))
    return tuple(alone)


POINTS = 8  # at which parameters that cancel are recognised
SAME = 1e-10  # relative difference of values that is rounding


def _without_cancelled(reduced: ReducedSystem, slope: Any) -> Any:
    """The slope without the parameters of output equations that cancel in it, such as a gain.

    CasADi does not see that g (k (y / g)) is k y; values at random points show it.
    """
    posed = reduced.posed
    derived = [i for i, name in enumerate(reduced.row_names) if name.startswith(DERIVATIVE)]
    of_outputs = set(np.unique(reduced.q_pattern[derived].indices))
    mine = sorted(of_outputs.intersection(incidence(stack([slope]), posed.q).col.tolist()))
    symbols = [posed.q, posed.data, posed.time, posed.inputs]
    for i in mine:
        value, random = ca.Function("slope", symbols, [slope]), np.random.default_rng(i)
        values = []
        for _ in range(POINTS):
            known = [random.uniform(0.3, 3.0, one.numel()) for one in symbols]
            changed = [known[0].copy(), *known[1:]]
            changed[0][i] *= random.uniform(1.5, 3.0)
            values.append([float(value.call(at)[0]) for at in (known, changed)])
        before, after = np.transpose(values)
        if np.allclose(before, after, rtol=SAME, atol=0.0):
            slope = ca.substitute(slope, posed.q[i], 1)
    return slope


def _with_own_parameters(
    reduced: ReducedSystem, one: Subsystem, slopes: Mapping[str, Any]
) -> Subsystem:
    """The subsystem with those parameters that its slopes depend on, where these are known."""
    if not one.explicit:
        return one  # its slopes are no expressions of what is known
    q = np.unique(incidence(stack(slopes[s] for s in one.slopes), reduced.posed.q).col)
    return replace(one, parameters=tuple(reduced.posed.q_names[i] for i in q))


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


def _subsystems(
    reduced: ReducedSystem, order: list[Block], implicit: set[int]
) -> tuple[Subsystem, ...]:
    """Each block that gives a slope, with all blocks that give unknowns it contains."""
    adjacent, names = reduced.pattern.tocsr(), reduced.unknown_names
    block_of = {j: k for k, block in enumerate(order) for j in block.columns}
    needs: list[set[int]] = []  # of each block with all that it needs, which come before it
    result = []
    for k, block in enumerate(order):
        before = {block_of[int(j)] for j in adjacent[block.rows].indices} - {k}
        needs.append({k}.union(*(needs[i] for i in before)))
        members = [order[i] for i in sorted(needs[k])]
        rows = [i for one in members for i in one.rows]
        q = np.unique(reduced.q_pattern[rows].indices)
        if not len(q) or not reduced.slopes(block.columns):
            continue  # whatever it adds predicts no further slope
        columns = [j for one in members for j in one.columns]
        result.append(
            Subsystem(
                experiment=reduced.posed.experiment,
                equations=tuple(reduced.row_names[i] for i in rows),
                rows=tuple(rows),
                unknowns=tuple(names[j] for j in columns),
                parameters=tuple(reduced.posed.q_names[i] for i in q),
                slopes=tuple(reduced.slopes(columns).values()),
                implicit=tuple(names[j] for j in columns if j in implicit),
            )
        )
    return tuple(sorted(result, key=lambda s: (len(s.rows), s.rows)))


class Member(NamedTuple):
    """A slope to be fitted: that of a state in the experiment of that index."""

    experiment: int
    state: str


@dataclass(frozen=True)
class SlopeGroup:
    """Slopes whose predictions share unknowns: one problem for step 3.

    As large as can be solved, as small as it falls apart ("choose the largest estimation problem
    that can be solved", Michalik et al. 2009, IGPE, section 3.6): all smallest suitable subsystems
    are taken together, those that share an unknown in one group, in whichever experiments they are.

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
    result = []
    for own in gathered.values():
        names = sorted({n for s in own for n in s.parameters}, key=place.__getitem__)
        members = sorted({Member(s.experiment, x) for s in own for x in s.slopes})
        symbol = {name: ca.SX.sym(name) for name in names}
        p, predictions = stack(symbol.values()), []
        for k in sorted({m.experiment for m in members}):
            posed = reduced[k].posed
            old = [i for i, n in enumerate(posed.q_names) if n in symbol]
            predicted = stack(slopes[k][m.state] for m in members if m.experiment == k)
            new = stack(symbol[posed.q_names[i]] for i in old)
            predictions.append(ca.substitute(predicted, stack(posed.q[i] for i in old), new))
        linear = linear_parameters(stack(predictions), p)
        result.append(
            SlopeGroup(
                parameters=tuple(names),
                members=tuple(members),
                subsystems=tuple(sorted(own, key=lambda s: (len(s.rows), s.experiment, s.rows))),
                individually=tuple(names[i] for i in linear.individually),
                jointly=tuple(names[i] for i in linear.jointly),
            )
        )
    return tuple(result)
