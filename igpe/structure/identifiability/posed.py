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
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from igpe.core.arrays import IntArray
from igpe.equations.incidence import incidence, matching
from igpe.equations.symbols import stack
from igpe.equations.system import System
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.problem import Problem

FEWEST_TIMES = 3  # a quantity measured less often has a value, but no slope worth fitting


@dataclass(frozen=True, eq=False)
class Posed:
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


def pose(problem: Problem, index: int, system: System) -> Posed:
    """The equations of experiment `index` in the problem's free unknowns."""
    experiment, symbols = problem.experiments[index], system.symbols
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
    told = [system.measured[n] for n in experiment.measured]
    starts, residual, measured = _inserted(problem, experiment, system, [stack(rows), stack(told)])
    q = stack(free.values())
    often = _measured_often(experiment)
    return Posed(
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
    found: dict[str, Any] = {}
    for i, parameter in enumerate(symbols.parameters):
        found[problem.unknown_of(parameter, experiment)] = symbols.p[i]
    for i, state in enumerate(symbols.states):
        if isinstance(experiment.start.get(state), Unknown):
            found[problem.start_unknown(state, experiment)] = symbols.s[i]
    return {n: found[n] for n in problem.box.names if n in found}


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
    found = incidence(expressions, symbols)
    return csr_array((np.ones(found.nnz, dtype=bool), (found.row, found.col)), shape=found.shape)


def single_starts(posed: Posed) -> Mapping[str, str]:
    """Unknown -> state whose start value it is, and nothing but that."""
    found = {}
    for i, state in enumerate(posed.states):
        indices = posed.start_pattern[[i]].indices
        if len(indices) == 1 and posed.starts[i].is_symbolic():
            found[posed.q_names[int(indices[0])]] = state
    return found


def of_errors_alone(problem: Problem, systems: Sequence[System]) -> set[str]:
    """Names of free unknowns that no equation, start value or measured quantity contains."""
    errors: set[str] = set()
    others: set[str] = set()
    for experiment, system in zip(problem.experiments, systems, strict=True):
        given = [s for s in experiment.start.values() if isinstance(s, str)]
        starts = [s for s in system.starts.values() if not isinstance(s, float)]
        measured = [system.measured[n] for n in experiment.measured]
        model = [*_parameters(system, [system.residual, *starts, *measured]), *given]
        told = [system.measured[n] for n in experiment.estimated_sigma.values()]
        others |= {problem.unknown_of(n, experiment) for n in model}
        errors |= {problem.unknown_of(n, experiment) for n in _parameters(system, told)}
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
