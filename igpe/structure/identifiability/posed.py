"""One experiment's equations as the problem poses them: in its free unknowns q, with patterns.

Fixed unknowns are numbers here, and start values are what the experiment or the model says they
are, so that what remains as a symbol is a variable over time, the time, an input, or one of q.

Unknowns on which nothing depends but standard deviations that are estimated.

Which unknown has an influence on what is measured, through algebra and dynamics.

Every equation is matched with a slope or algebraic variable it may be solved for. Then everything
else in the equation influences that variable; a slope influences its state; what gives a start
value influences the state. Equations that must be solved together form a strongly connected part
under any matching, so the answer does not depend on which one was found. (By structure: terms that
cancel and functions that are constant are not noticed.)

The problem's experiments in the form that is expanded in power series.

A constant input is its number. One given as a function of time is that function. One given by a
table is what the table says between the start and the last measurement: on each piece between two
of its times a number, or a straight line. A condition on time, or on inputs, is a further input
that is held: 0 or 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
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
from igpe.equations.symbols import stack
from igpe.equations.system import System
from igpe.equations.time.timed import Held, TimeSymbols, as_products
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


def pose(problem: Problem, index: int) -> PosedEquations:
    """The equations of experiment `index` in the problem's free unknowns."""
    experiment, system = problem.experiments[index], compiled(problem).systems[index]
    symbols = system.symbols
    n_inputs = len(experiment.inputs)
    u = [symbols.u[i] for i in range(len(symbols.inputs))]
    slopes = (f"d({n})" for n in symbols.states)
    names = (*slopes, *symbols.states, *symbols.algebraics, *symbols.inputs[n_inputs:])
    variables = ca.vertcat(symbols.dx, symbols.x, symbols.z, *u[n_inputs:])
    extra = [n for n in experiment.measured if n not in names]
    data = dict(zip(names, ca.vertsplit(variables), strict=True))
    data |= {n: ca.SX.sym(n) for n in extra}
    free = _free(problem, experiment, system)
    rows = [system.residual, *(data[n] - system.measured[n] for n in extra)]
    outputs = [system.measured[n] for n in experiment.measured]
    starts, residual, measured = _inserted(
        problem, experiment, system, [stack(rows), stack(outputs)]
    )
    q = stack(free.values())
    often = _measured_often(experiment)
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
        once=frozenset(n for n in experiment.measured if _count(experiment, n) > 0),
        measured=dict(zip(experiment.measured, ca.vertsplit(measured), strict=True)),
        time=symbols.t,
        input_names=tuple(experiment.inputs),
        inputs=stack(u[:n_inputs]),
        pattern=_pattern(residual, variables),
        q_pattern=_pattern(residual, q),
        start_pattern=_pattern(starts, q),
    )


def _free(problem: Problem, experiment: Experiment, system: System) -> dict[str, Any]:
    """Free unknown -> symbol, in the problem's order."""
    symbols = system.symbols
    result: dict[str, Any] = {}
    for i, parameter in enumerate(symbols.parameters):
        result[problem.unknown_of(parameter, experiment)] = symbols.p[i]
    for i, state in enumerate(symbols.states):
        if isinstance(experiment.start.get(state), Unknown):
            result[problem.start_unknown(state, experiment)] = symbols.s[i]
    return {n: result[n] for n in problem.box.names if n in result}


def _inserted(
    problem: Problem, experiment: Experiment, system: System, columns: list[Any]
) -> list[Any]:
    """Start values, and then each of the columns, in free unknowns."""
    symbols = system.symbols
    p = stack(
        problem.fixed.get(problem.unknown_of(n, experiment), symbols.p[i])
        for i, n in enumerate(symbols.parameters)
    )
    given = stack(_start(problem, experiment, system, state) for state in symbols.states)
    starts = ca.substitute(given, symbols.p, p)
    return [starts, *ca.substitute(columns, [symbols.p, symbols.s], [p, starts])]


def _start(problem: Problem, experiment: Experiment, system: System, state: str) -> Any:
    symbols = system.symbols
    value = experiment.start.get(state, system.starts.get(state))
    if isinstance(value, Unknown):
        name = problem.start_unknown(state, experiment)
        return problem.fixed.get(name, symbols.s[symbols.states.index(state)])
    if isinstance(value, str):
        return symbols.p[symbols.parameters.index(value)]
    return value


def _measured_often(experiment: Experiment) -> tuple[str, ...]:
    return tuple(n for n in experiment.measured if _count(experiment, n) >= FEWEST_TIMES)


def _count(experiment: Experiment, name: str) -> int:
    times, _, _ = experiment.measurements.of(name)
    return len(np.unique(times))


def _pattern(expressions: Any, symbols: Any) -> Any:
    result = incidence(expressions, symbols)
    return csr_array(
        (np.ones(result.nnz, dtype=bool), (result.row, result.col)), shape=result.shape
    )


def single_starts(posed: PosedEquations) -> Mapping[str, str]:
    """Unknown -> state whose start value it is, and nothing but that."""
    result = {}
    for i, state in enumerate(posed.states):
        indices = posed.start_pattern[[i]].indices
        if len(indices) == 1 and posed.starts[i].is_symbolic():
            result[posed.q_names[int(indices[0])]] = state
    return result


def of_errors_alone(problem: Problem) -> set[str]:
    """Names of free unknowns that no equation, start value or measured quantity contains."""
    errors: set[str] = set()
    others: set[str] = set()
    for experiment, system in zip(problem.experiments, compiled(problem).systems, strict=True):
        given = [s for s in experiment.start.values() if isinstance(s, str)]
        starts = [s for s in system.starts.values() if not isinstance(s, float)]
        measured = [system.measured[n] for n in experiment.measured]
        model = [*_parameters(system, [system.residual, *starts, *measured]), *given]
        outputs = [system.measured[n] for n in experiment.estimated_sigma.values()]
        others |= {problem.unknown_of(n, experiment) for n in model}
        errors |= {problem.unknown_of(n, experiment) for n in _parameters(system, outputs)}
    return (errors - others) & set(problem.box.names)


def _parameters(system: System, expressions: Sequence[Any]) -> list[str]:
    if not expressions or not system.symbols.parameters:
        return []
    depends = ca.which_depends(stack(expressions), system.symbols.p, 1, False)
    return [n for n, is_in in zip(system.symbols.parameters, depends, strict=True) if is_in]


@dataclass(frozen=True, eq=False)
class Influence:
    """Directed graphs of one experiment as matrices: entry (i, j) says that i influences j.

    Nodes are the variables of `posed`, then its unknowns q, then measured expressions.

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


def influence(posed: PosedEquations) -> Influence:
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


def _targets(posed: PosedEquations) -> dict[int, int]:
    """Row -> the node it determines: a slope, an algebraic variable or a measured expression."""
    n_x, n_e = posed.n_states, posed.n_equations
    solvable = [j for j in range(n_x + n_e) if not n_x <= j < 2 * n_x]
    result = matching(posed.pattern[:n_e][:, solvable].tocoo())
    first = len(posed.variable_names) + len(posed.q_names)
    extra = {r: first + r - n_e for r in range(n_e, len(posed.row_names))}
    return {r: solvable[c] for r, c in result.items()} | extra


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


@dataclass(frozen=True)
class Output:
    """What is measured, or could be, in one experiment.

    name   of the quantity
    since  times from the start at which it is measured; none if it is not
    start  the time of the start
    """

    name: str
    since: tuple[Fraction, ...]
    start: float = 0.0

    @property
    def times(self) -> int:
        """At how many times it is measured."""
        return len(self.since)

    @property
    def at_start(self) -> bool:
        """Whether one of these is the start."""
        return Fraction(0) in self.since

    @property
    def last(self) -> float:
        """The last of them."""
        return self.start + float(max(self.since, default=Fraction(0)))

    @property
    def continuous(self) -> bool:
        """Whether it is measured so often that it counts as known over time."""
        return self.times >= FEWEST_TIMES


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
        return replace(
            self.dynamics, outputs=ca.substitute([expressions], [self.posed.data], [data])[0]
        )


def expand(
    problem: Problem, posed: Sequence[PosedEquations], slopes: Sequence[Mapping[str, Any]] = ()
) -> tuple[SeriesExpansion, ...]:
    """Every experiment, with all its states and algebraic variables among the outputs.

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
    names = posed.variable_names
    others = [m for m in names[n:] if m not in posed.measured]
    variable = dict(zip(names[n:], ca.vertsplit(posed.variables[n:]), strict=True))
    outputs = stack([*posed.measured.values(), *(variable[m] for m in others)])
    measured = tuple(_measured(experiment, m) for m in posed.measured)
    given = _Given.of(posed, experiment, measured)
    (start,) = given.inserted([posed.starts])
    f, g, h, *predicted = given.without_conditions(
        [
            stack(solved.expressions[:n]),
            solved.remaining,
            ca.substitute(outputs, unknowns, stack(solved.expressions)),
            *slopes.values(),
        ],
    )
    tables = given.tables
    dynamics = Dynamics(
        x=posed.variables[n : 2 * n],
        y=stack(unknowns[j] for j in solved.implicit),
        q=posed.q,
        u=stack(given.symbols),
        t=posed.time,
        f=f,
        g=g,
        start=start,
        outputs=h,
        t0=experiment.start_time,
        columns=tuple(problem.box.names.index(q) for q in posed.q_names),
        inputs=tuple((v.times.tobytes(), v.values.tobytes(), v.hold) for v in tables),
        pieces=_pieces(tables, experiment.start_time, given.last) if tables else (),
    )
    own = dict(zip(slopes, predicted, strict=True))
    return SeriesExpansion(dynamics, (*measured, *(Output(m, ()) for m in others)), posed, own)


@dataclass
class _Given:
    """What stands for the inputs of `posed`: numbers, expressions of time, or tables.

    symbols, tables  of inputs that vary before the last measurement, and of conditions
    single  times of measurements that count one by one: the last of what is known over time
    """

    posed: PosedEquations
    values: Any
    symbols: list[Any]
    tables: list[Table]
    measured: int
    single: list[float]
    times: list[float]
    first: float
    last: float

    @classmethod
    def of(
        cls, posed: PosedEquations, experiment: Experiment, measured: tuple[Output, ...]
    ) -> "_Given":
        last = max((m.last for m in measured), default=experiment.times[-1])
        times = [np.unique(experiment.measurements.of(m.name)[0]).tolist() for m in measured]
        given = [_given(name, posed, experiment, last) for name in posed.input_names]
        values = stack(posed.inputs[i] if isinstance(v, Table) else v for i, v in enumerate(given))
        return cls(
            posed=posed,
            values=values,
            symbols=[posed.inputs[i] for i, v in enumerate(given) if isinstance(v, Table)],
            tables=[v for v in given if isinstance(v, Table)],
            measured=len(measured),
            single=[
                t
                for o, own in zip(measured, times, strict=True)
                for t in own[-1 if o.continuous else 0 :]
            ],
            times=[t for own in times for t in own],
            first=experiment.start_time,
            last=float(last),
        )

    def inserted(self, expressions: Sequence[Any]) -> list[Any]:
        """The expressions with what stands for the inputs."""
        return list(ca.substitute(list(expressions), [self.posed.inputs], [self.values]))

    def without_conditions(self, expressions: Sequence[Any]) -> list[Any]:
        """The same without conditions on time and inputs, which come to the tables; h is third."""
        parts, posed = self.inserted(expressions), self.posed
        data = zip(posed.data_names, ca.vertsplit(posed.data), strict=True)
        clock = TimeSymbols(
            posed.time,
            stack(self.symbols),
            posed.q,
            stack([posed.variables, *(d for n, d in data if n not in posed.variable_names)]),
            tuple(self.tables),
            self.first,
            self.last,
            by_held=True,
        )
        known = [*clock.segments.edges, *self.times]
        try:
            measured = Held(clock, [parts[2][: self.measured]], known)
            at = measured.differs(clock.segments, np.unique(self.single))
            result = Held(clock, parts, known)
        except IgpeError as error:
            raise UnknownOperation(str(error)) from error
        if at is not None:
            raise UnknownOperation(f"a measured expression that jumps at the measured t = {at:g}")
        self.symbols += result.switches
        self.tables += result.tables
        flags = [
            symbol
            for symbol, table in zip(self.symbols, self.tables, strict=True)
            if table.hold and set(table.values) <= {0.0, 1.0}
        ]
        return (
            [as_products(e, stack(flags)) for e in result.expressions]
            if flags
            else result.expressions
        )


def _measured(experiment: Experiment, name: str) -> Output:
    times = np.unique(experiment.measurements.of(name)[0])
    since = (rational(float(t)) - rational(experiment.start_time) for t in times)
    return Output(name, tuple(since), experiment.start_time)


def _given(name: str, posed: PosedEquations, experiment: Experiment, last: float) -> Any:
    """A table that varies before the last measurement, or an expression of time."""
    given = experiment.inputs[name]
    if isinstance(given, Table):
        inside = given.times[(given.times > experiment.start_time) & (given.times < last)]
        seen = [given.at(t) for t in (experiment.start_time, *inside)]
        seen.append(given.at(last, before=True))
        return ca.SX(seen[0]) if np.ptp(seen) == 0 else given
    if not callable(given):
        return ca.SX(given)
    try:
        return of_time(name, given, posed.time, experiment)
    except IgpeError as error:
        raise UnknownOperation(f"the input '{name}', which is no expression of time") from error


def _pieces(tables: Sequence[Table], first: float, last: float) -> tuple[InputSegment, ...]:
    """Between all breaks of all tables, joined where nothing changes."""
    inside = sorted({float(t) for table in tables for t in table.times if first < t < last})
    t0, begins = rational(first), [first, *inside]
    result: list[InputSegment] = []
    for begin, end in zip(begins, [*inside, None], strict=True):
        lines = [_line(table, begin) for table in tables]
        at = rational(begin)
        origin = [_line(table, first)[0] for table in tables]
        levels = [
            line[0] if table.hold else o
            for table, line, o in zip(tables, lines, origin, strict=True)
        ]
        piece = InputSegment(
            start=at - t0,
            end=None if end is None else rational(end) - t0,
            levels=tuple(levels),
            rises=tuple(value - level for (value, _), level in zip(lines, levels, strict=True)),
            slopes=tuple(slope for _, slope in lines),
        )
        if result and _continues(result[-1], piece):
            piece = result.pop()._replace(end=piece.end)
        result.append(piece)
    return tuple(result)


def _continues(one: InputSegment, other: InputSegment) -> bool:
    length = other.start - one.start
    rises = tuple(r + s * length for r, s in zip(one.rises, one.slopes, strict=True))
    return (one.levels, rises, one.slopes) == (other.levels, other.rises, other.slopes)


def _line(table: Table, time: float) -> tuple[Fraction, Fraction]:
    """Value and slope from `time` on, in the numbers that the table was written with."""
    k = int(np.searchsorted(table.times, time, side="right")) - 1
    if k < 0 or table.hold or k >= len(table.times) - 1:
        return rational(float(table.values[max(k, 0)])), Fraction(0)
    times, values = (
        [rational(float(v[i])) for i in (k, k + 1)] for v in (table.times, table.values)
    )
    slope = (values[1] - values[0]) / (times[1] - times[0])
    return values[0] + slope * (rational(time) - times[0]), slope
