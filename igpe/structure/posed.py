"""One experiment's equations as the problem poses them: in its free unknowns q, with patterns.

Fixed unknowns are numbers here, and start values are what the experiment or the model says they
are, so that what remains as a symbol is a variable over time, the time, an input, or one of q.
`influence` says which unknown has an influence on what is measured, by patterns alone; `expand`
brings the experiments into the form of power series.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from igpe.core.arrays import IntArray
from igpe.core.errors import IgpeError
from igpe.equations.compiled import compiled
from igpe.equations.elimination import solve_all
from igpe.equations.incidence import incidence, matching
from igpe.equations.operations import UnknownOperation
from igpe.equations.reading.pieces import of_time
from igpe.equations.symbols import stack, without_logarithm
from igpe.equations.system import System
from igpe.equations.timed import Held, TimeSymbols, as_products
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem
from igpe.structure.series.field import rational
from igpe.structure.series.graph import Dynamics, InputSegment

FEWEST_TIMES = 3  # a quantity measured less often has a value, but no slope worth fitting


@dataclass(frozen=True, eq=False)
class PosedEquations:
    """Symbols are SX columns; patterns are boolean matrices in CSR form.

    experiment      index of the experiment in the problem
    states          names of the states x; their slopes are the first variables, x the next
    row_names       constraints of the model, then "measured h" for each measured expression h
    n_equations     how many of the rows are the model's
    residual        (n_rows,), zero where the model holds: F(...), then data - h
    variable_names  d(x), x, algebraic variables, time-varying unknowns
    variables       the symbols of these
    q_names, q      the problem's free unknowns of this experiment
    starts          (n_states,) start values: numbers, or expressions of q
    data_names      what is measured often enough to have a course over time
    data            a symbol for each: that of the variable, or a new one for an expression
    once            what is measured at all
    measured        name -> expression of everything measured, in the variables and q
    time, inputs    symbols; input_names in the experiment's order
    pattern         (n_rows, n_variables) which row contains which variable
    q_pattern       (n_rows, n_q) which row contains which unknown
    start_pattern   (n_states, n_q) which start value contains which unknown
    """

    experiment: int
    states: tuple[str, ...]
    row_names: tuple[str, ...]
    n_equations: int
    residual: Any
    variable_names: tuple[str, ...]
    variables: Any
    q_names: tuple[str, ...]
    q: Any
    starts: Any
    data_names: tuple[str, ...]
    data: Any
    once: frozenset[str]
    measured: Mapping[str, Any]
    time: Any
    input_names: tuple[str, ...]
    inputs: Any
    pattern: Any
    q_pattern: Any
    start_pattern: Any

    @property
    def n_states(self) -> int:
        """Number of states, and of slopes."""
        return len(self.states)

    @cached_property
    def single_starts(self) -> dict[str, str]:
        """Unknown -> state whose start value it is, and nothing but that."""
        ends = self.start_pattern.indptr
        rows = [self.start_pattern.indices[a:b] for a, b in pairwise(ends)]
        return {
            self.q_names[int(row[0])]: state
            for i, (state, row) in enumerate(zip(self.states, rows, strict=True))
            if len(row) == 1 and self.starts[i].is_symbolic()
        }


def pose(problem: Problem, index: int) -> PosedEquations:
    """The equations of experiment `index` in the problem's free unknowns."""
    experiment, system = problem.experiments[index], compiled(problem).systems[index]
    symbols, n_inputs = system.symbols, len(experiment.inputs)
    u = [symbols.u[i] for i in range(len(symbols.inputs))]
    slopes = (f"d({n})" for n in symbols.states)
    names = (*slopes, *symbols.states, *symbols.algebraics, *symbols.inputs[n_inputs:])
    variables = ca.vertcat(symbols.dx, symbols.x, symbols.z, *u[n_inputs:])
    extra = [n for n in experiment.measured if n not in names]
    data = dict(zip(names, ca.vertsplit(variables), strict=True))
    data |= {n: ca.SX.sym(n) for n in extra}
    switches = compiled(problem).switching[index]
    rows = [_with_impulses(system), *(data[n] - system.measured[n] for n in extra)]
    columns = [stack(rows), stack(system.measured[n] for n in experiment.measured)]
    columns = _without_zeros(experiment, symbols.u, columns)
    free, starts, (residual, measured) = _in_unknowns(problem, experiment, system, columns)
    q = stack(free.values())
    count = {n: len(np.unique(experiment.measurements.of(n)[0])) for n in experiment.measured}
    # Curves through jumps have no slopes: where states switch nothing is left to algebra.
    often = tuple(n for n, times in count.items() if times >= FEWEST_TIMES and not switches)
    return PosedEquations(
        experiment=index,
        states=symbols.states,
        row_names=(*system.equations, *(f"measured {n}" for n in extra)),
        n_equations=len(system.equations),
        residual=residual,
        variable_names=names,
        variables=variables,
        q_names=tuple(free),
        q=q,
        starts=starts,
        data_names=often,
        data=stack(data[n] for n in often),
        once=frozenset(n for n, times in count.items() if times > 0),
        measured=dict(zip(experiment.measured, ca.vertsplit(measured), strict=True)),
        time=symbols.t,
        input_names=tuple(experiment.inputs),
        inputs=stack(u[:n_inputs]),
        pattern=pattern(residual, variables),
        q_pattern=pattern(residual, q),
        start_pattern=pattern(starts, q),
    )


def _without_zeros(experiment: Experiment, u: Any, columns: list[Any]) -> list[Any]:
    """The columns without what an input of 0 takes away: it joins nothing."""
    before = experiment.steady or {}  # what acts before a steady-state start counts as well
    own = enumerate(experiment.inputs.items())
    none = [i for i, (n, v) in own if v == before.get(n, 0.0) == 0.0]  # tables are not
    zeros = [ca.SX(0)] * len(none)
    kept: list[Any] = ca.substitute(columns, [u[i] for i in none], zeros) if none else columns
    return kept


def _with_impulses(system: System) -> Any:
    """The residual with all that events contain beside the slopes that they change: who sees whom.

    It has no meaning in numbers.
    """
    slopes = ca.vertsplit(system.symbols.dx)
    for jump in system.events:
        others = [jump.delay, *(e for e in (jump.at, jump.gap) if e is not None)]
        for i, after in jump.after.items():
            slopes[i] = slopes[i] - after - sum(others, ca.SX(0))
    return ca.substitute([system.residual], [system.symbols.dx], [stack(slopes)])[0]


def _in_unknowns(
    problem: Problem, experiment: Experiment, system: System, columns: list[Any]
) -> tuple[dict[str, Any], Any, list[Any]]:
    """Free unknown -> symbol, in the problem's order; start values and columns in these."""
    symbols = system.symbols
    unknown = [problem.unknown_of(n, experiment) for n in symbols.parameters]
    symbol = {name: symbols.p[i] for i, name in enumerate(unknown)}
    given = []
    for i, state in enumerate(symbols.states):
        value = system.start_of(state, experiment)
        if isinstance(value, Unknown):
            name = problem.start_unknown(state, experiment)
            symbol[name] = symbols.s[i]
            value = problem.fixed.get(name, symbols.s[i])
        elif isinstance(value, str):
            value = symbols.p[symbols.parameters.index(value)]
        given.append(value)
    p = stack(problem.fixed.get(name, symbols.p[i]) for i, name in enumerate(unknown))
    starts = ca.substitute(stack(given), symbols.p, p)
    result = ca.substitute(columns, [symbols.p, symbols.s], [p, starts])
    return {n: symbol[n] for n in problem.box.names if n in symbol}, starts, result


def pattern(expressions: Any, symbols: Any) -> Any:
    """Boolean matrix in CSR form: which expression contains which symbol."""
    result = incidence(expressions, symbols)
    ones = np.ones(result.nnz, dtype=bool)
    return csr_array((ones, (result.row, result.col)), shape=result.shape)


def of_errors_alone(problem: Problem) -> set[str]:
    """Names of free unknowns on which nothing depends but standard deviations."""
    errors: set[str] = set()
    others: set[str] = set()
    for experiment, system in zip(problem.experiments, compiled(problem).systems, strict=True):
        starts = [s for s in system.starts.values() if not isinstance(s, float)]
        measured = [system.measured[n] for n in experiment.measured]
        deviations = [system.measured[n] for n in experiment.estimated_sigma.values()]
        model = _parameters(system, [system.residual, *starts, *measured])
        model += [s for s in experiment.start.values() if isinstance(s, str)]
        others |= {problem.unknown_of(n, experiment) for n in model}
        errors |= {problem.unknown_of(n, experiment) for n in _parameters(system, deviations)}
    return (errors - others) & set(problem.box.names)


def _parameters(system: System, expressions: Sequence[Any]) -> list[str]:
    if not expressions or not system.symbols.parameters:
        return []
    depends = ca.which_depends(stack(expressions), system.symbols.p, 1, False)
    return [n for n, is_in in zip(system.symbols.parameters, depends, strict=True) if is_in]


@dataclass(frozen=True, eq=False)
class Influence:
    """Directed graphs of one experiment as matrices: entry (i, j) says that i influences j.

    Nodes are the variables of `posed`, then its unknowns q, then measured expressions. Every
    equation is matched with a slope or algebraic variable, which everything else in it influences;
    a slope influences its state, and so does what gives its start value. Equations that must be
    solved together form a strongly connected part under any matching, so the choice does not
    matter. (By structure: terms that cancel and functions that are constant are not noticed.)

    names      of the nodes
    always     through algebra and dynamics
    instantly  through algebra alone: at one time, whatever happened before
    """

    posed: PosedEquations
    names: tuple[str, ...]
    always: Any
    instantly: Any

    def visible(self) -> set[str]:
        """Unknowns that influence something measured."""
        return self.upstream(self.posed.once - {*self.posed.q_names})

    def upstream(self, names: Set[str]) -> set[str]:
        """Unknowns among the nodes of these names, and those that influence one of them."""
        ends = [i for i, n in enumerate(self.names) if n in names]
        seen = {self.names[i] for i in reached(csr_array(self.always.T), ends)}
        return seen & {*self.posed.q_names}

    def downstream(self, unknown: str) -> list[str]:
        """States and algebraic variables that the unknown influences, in the model's order."""
        seen = reached(self.always, [self.node(unknown)])
        n, last = self.posed.n_states, len(self.posed.variable_names)
        return [self.names[i] for i in sorted(seen.tolist()) if n <= i < last]

    def node(self, unknown: str) -> int:
        """Number of the node of an unknown."""
        return len(self.posed.variable_names) + self.posed.q_names.index(unknown)


def reached(graph: Any, starts: Iterable[int]) -> IntArray:
    """Nodes to which a path leads from one of the starts, these included."""
    edges, n = graph.tocoo(), graph.shape[0]
    begin = sorted(set(starts))
    tails = np.concatenate([edges.row, np.full(len(begin), n)])
    heads = np.concatenate([edges.col, np.array(begin, dtype=int)])
    wider = csr_array((np.ones(len(tails)), (tails, heads)), shape=(n + 1, n + 1))
    order = breadth_first_order(wider, n, return_predecessors=False)
    return np.asarray(order[1:], dtype=int)


def influence(posed: PosedEquations) -> Influence:
    """Who influences whom in one experiment."""
    n, n_x, n_e = len(posed.variable_names), posed.n_states, posed.n_equations
    first, size = n + len(posed.q_names), n + len(posed.q_names) + len(posed.row_names) - n_e
    # Row -> the node it determines: a slope, an algebraic variable or a measured expression.
    solvable = [j for j in range(n_x + n_e) if not n_x <= j < 2 * n_x]
    matched = matching(posed.pattern[:n_e][:, solvable].tocoo())
    target = {r: solvable[c] for r, c in matched.items()}
    target |= {r: first + r - n_e for r in range(n_e, len(posed.row_names))}

    def edges(pattern: Any, target: Mapping[int, int], shift: int) -> list[tuple[int, int]]:
        """From every column (shifted) to the target of its row."""
        entries = pattern.tocoo()
        pairs = zip(entries.row.tolist(), entries.col.tolist(), strict=True)
        return [(c + shift, target[r]) for r, c in pairs if r in target]

    def graph(pairs: list[tuple[int, int]]) -> Any:
        ends = np.array([(a, b) for a, b in pairs if a != b], dtype=int).reshape(-1, 2)
        return csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(size, size))

    causes = edges(posed.pattern, target, 0) + edges(posed.q_pattern, target, n)
    state = {i: i + n_x for i in range(n_x)}
    always = [*causes, *state.items(), *edges(posed.start_pattern, state, n)]
    extra = (r.removeprefix("measured ") for r in posed.row_names[n_e:])
    names = (*posed.variable_names, *posed.q_names, *extra)
    return Influence(posed, names, graph(always), graph(causes))


@dataclass(frozen=True)
class Output:
    """What is measured, or could be, in one experiment.

    name   of the quantity
    since  times from the start at which it is measured; none if it is not
    """

    name: str
    since: tuple[Fraction, ...]

    @property
    def continuous(self) -> bool:
        """Whether it is measured so often that it counts as known over time."""
        return len(self.since) >= FEWEST_TIMES


@dataclass(frozen=True, eq=False)
class SeriesExpansion:
    """One experiment as it is expanded.

    dynamics  of the experiment
    outputs   what each of its outputs is
    posed     where it came from
    slopes    state -> slope predicted from the data, in the inputs of `dynamics`
    """

    dynamics: Dynamics
    outputs: tuple[Output, ...]
    posed: PosedEquations
    slopes: Mapping[str, Any] = field(default_factory=dict)

    def following(self, expressions: Any) -> Dynamics:
        """The dynamics with other outputs: expressions of data and time, and of its inputs.

        The data are what the outputs of that name are.
        """
        place = {output.name: i for i, output in enumerate(self.outputs)}
        data = stack(self.dynamics.outputs[place[n]] for n in self.posed.data_names)
        outputs = ca.substitute([expressions], [self.posed.data], [data])[0]
        return replace(self.dynamics, outputs=outputs)


def expand(
    problem: Problem, posed: Sequence[PosedEquations], slopes: Sequence[Mapping[str, Any]] = ()
) -> tuple[SeriesExpansion, ...]:
    """Every experiment, with all its states and algebraic variables among the outputs.

    A constant input is its number. One given as a function of time is that function. One given by
    a table is what the table says between the start and the last measurement: on each piece
    between two of its times a number, or a straight line. A condition on time, or on inputs, is a
    further input that is held: 0 or 1.

    slopes  of each experiment, state -> slope predicted from its data
    raises  UnknownOperation for conditions that cannot be followed
    """
    own = slopes or [{}] * len(posed)
    return tuple(_expanded(problem, *one) for one in zip(posed, own, strict=True))


def _expanded(
    problem: Problem, posed: PosedEquations, slopes: Mapping[str, Any]
) -> SeriesExpansion:
    experiment, n = problem.experiments[posed.experiment], posed.n_states
    unknowns = ca.vertcat(posed.variables[:n], posed.variables[2 * n :])
    solved = solve_all(posed.residual[: posed.n_equations], unknowns)
    names, first = posed.variable_names, experiment.start_time
    others = [m for m in names[n:] if m not in posed.measured]
    variable = dict(zip(names[n:], ca.vertsplit(posed.variables[n:]), strict=True))
    outputs = map(without_logarithm, posed.measured.values())
    outputs = stack([*outputs, *(variable[m] for m in others)])
    times = {m: np.unique(experiment.measurements.of(m)[0]).tolist() for m in posed.measured}
    last = float(max((t for own in times.values() for t in own), default=experiment.times[-1]))
    given = [_given(name, posed, experiment, last) for name in posed.input_names]
    varying = [i for i, v in enumerate(given) if isinstance(v, Table)]
    inputs = [
        posed.inputs,
        stack(posed.inputs[i] if i in varying else v for i, v in enumerate(given)),
    ]
    (start,) = ca.substitute([posed.starts], *([one] for one in inputs))
    columns = [
        stack(solved.expressions[:n]),
        solved.remaining,
        ca.substitute(outputs, unknowns, stack(solved.expressions)),
        *slopes.values(),
    ]
    expressions = list(ca.substitute(columns, *([one] for one in inputs)))
    symbols, tables = [posed.inputs[i] for i in varying], [given[i] for i in varying]
    f, g, h, *predicted = _without_conditions(
        posed, expressions, (symbols, tables), times, (first, last)
    )
    dynamics = Dynamics(
        x=posed.variables[n : 2 * n],
        y=stack(unknowns[j] for j in solved.implicit),
        q=posed.q,
        u=stack(symbols),
        t=posed.time,
        f=f,
        g=g,
        start=start,
        outputs=h,
        t0=first,
        columns=tuple(problem.box.names.index(q) for q in posed.q_names),
        pieces=_pieces(tables, first, last) if tables else (),
    )
    t0 = rational(first)
    measured = [Output(m, tuple(rational(t) - t0 for t in own)) for m, own in times.items()]
    own = dict(zip(slopes, predicted, strict=True))
    return SeriesExpansion(dynamics, (*measured, *(Output(m, ()) for m in others)), posed, own)


def _without_conditions(
    posed: PosedEquations,
    expressions: list[Any],
    varying: tuple[list[Any], list[Table]],
    times: Mapping[str, list[float]],
    span: tuple[float, float],
) -> list[Any]:
    """The expressions without conditions on time and inputs, which come to the varying inputs.

    expressions  the third is that of the outputs, those measured first
    varying      symbols and tables of inputs that vary before the last measurement
    times        of the measurements of each quantity
    span         the start and the last measurement
    """
    symbols, tables = varying
    new = (d for n, d in zip(posed.data_names, ca.vertsplit(posed.data), strict=True)
           if n not in posed.variable_names)  # fmt: skip
    variables = stack([posed.variables, *new])
    clock = TimeSymbols(
        posed.time, stack(symbols), posed.q, variables, tuple(tables), *span, by_held=True
    )
    known = [*clock.segments.edges, *(t for own in times.values() for t in own)]
    # What is known over time counts at its last measurement only.
    single = [t for own in times.values() for t in own[-1 if len(own) >= FEWEST_TIMES else 0 :]]
    try:
        measured = Held(clock, [expressions[2][: len(times)]], known)
        at = measured.differs(clock.segments, np.unique(single))
        result = Held(clock, expressions, known)
    except IgpeError as error:
        raise UnknownOperation(str(error)) from error
    if at is not None:
        raise UnknownOperation(
            f"a measured expression that jumps at the measurement time t = {at:g}"
        )
    symbols += result.switches
    tables += result.tables
    flags = [
        s for s, t in zip(symbols, tables, strict=True) if t.hold and {*t.values} <= {0.0, 1.0}
    ]
    return [as_products(e, stack(flags)) if flags else e for e in result.expressions]


def _given(name: str, posed: PosedEquations, experiment: Experiment, last: float) -> Any:
    """A table that varies before the last measurement, or an expression of time."""
    given, first = experiment.inputs[name], experiment.start_time
    if isinstance(given, Table):
        inside = given.times[(given.times > first) & (given.times < last)]
        seen = [*(given.at(t) for t in (first, *inside)), given.at(last, before=True)]
        return ca.SX(seen[0]) if np.ptp(seen) == 0 else given
    if not callable(given):
        return ca.SX(given)
    try:
        return of_time(name, given, posed.time, experiment)
    except IgpeError as error:
        what = f"the input '{name}', a function of time that igpe cannot read as an expression"
        raise UnknownOperation(what) from error


def _pieces(tables: Sequence[Table], first: float, last: float) -> tuple[InputSegment, ...]:
    """Between all breaks of all tables, joined where nothing changes."""
    inside = sorted({float(t) for table in tables for t in table.times if first < t < last})
    origin, t0 = [_line(table, first)[0] for table in tables], rational(first)
    result: list[InputSegment] = []
    for begin, end in zip([first, *inside], [*inside, None], strict=True):
        values, slopes = zip(*(_line(table, begin) for table in tables), strict=True)
        levels = tuple(
            v if table.hold else o for table, v, o in zip(tables, values, origin, strict=True)
        )
        piece = InputSegment(
            start=rational(begin) - t0,
            end=None if end is None else rational(end) - t0,
            levels=levels,
            rises=tuple(value - level for value, level in zip(values, levels, strict=True)),
            slopes=slopes,
        )
        if result:
            one = result[-1]
            length = piece.start - one.start
            rises = tuple(r + s * length for r, s in zip(one.rises, one.slopes, strict=True))
            if (one.levels, rises, one.slopes) == piece[2:]:
                piece = result.pop()._replace(end=piece.end)
        result.append(piece)
    return tuple(result)


def _line(table: Table, time: float) -> tuple[Fraction, Fraction]:
    """Value and slope from `time` on, in the numbers that the table was written with."""
    k = int(np.searchsorted(table.times, time, side="right")) - 1
    if k < 0 or table.hold or k >= len(table.times) - 1:
        return rational(float(table.values[max(k, 0)])), Fraction(0)
    (t, following), (value, other) = (
        [rational(float(v[i])) for i in (k, k + 1)] for v in (table.times, table.values)
    )
    slope = (other - value) / (following - t)
    return value + slope * (rational(time) - t), slope
