"""One experiment's equations as the problem poses them: in its free unknowns q, with patterns.

Fixed unknowns are numbers here, and start values are what the experiment or the model says they
are, so that what remains as a symbol is a variable over time, the time, an input, or one of q.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from scipy.sparse import csr_array

from igpe.equations.incidence import incidence
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
