"""The initial value problem that one experiment poses, as a function of its free unknowns q.

dx = f(t, x, y, u, q),   0 = g(t, x, y, u, q),   x(t0) = x0(q),   measured = h(t, x, y, u, q)
"""

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from pyomo.common.errors import PyomoException

from igpe.arrays import FloatArray
from igpe.equations.elimination import solve_all
from igpe.equations.instant import Instant
from igpe.equations.stack import stack
from igpe.equations.system import System
from igpe.equations.translate import Translator
from igpe.errors import DataError, Unsupported
from igpe.experiment import Experiment, Unknown
from igpe.inputs import Table, TimeExpression, evaluate
from igpe.problem import Problem

PLACES = 65  # times at which an input given as a function is compared with its expression


@dataclass(frozen=True)
class InitialValueProblem:
    """One experiment as a function of the unknowns it depends on. All symbols are SX vectors.

    states    names of x;  implicit: names of y (algebraic variables that are solved numerically)
    unknowns  names of q: the problem's free unknowns that matter here, in their order
    t0        start time
    t, x, y, u, q   symbols; u holds only inputs given by tables
    f, g, start     see above
    measured  h, in the order of the experiment's measured names
    algebraic names -> expressions of the model's algebraic variables
    tables    one for each entry of u
    guess     (n_y,) where a search for consistent y may begin
    """

    states: tuple[str, ...]
    implicit: tuple[str, ...]
    unknowns: tuple[str, ...]
    t0: float
    t: Any
    x: Any
    y: Any
    u: Any
    q: Any
    f: Any
    g: Any
    start: Any
    measured: Any
    algebraic: dict[str, Any]
    tables: tuple[Table, ...]
    guess: FloatArray

    def breaks(self, last: float) -> list[float]:
        """Times between start and `last` at which an input or its slope jumps."""
        inside = {float(t) for table in self.tables for t in table.times}
        return sorted(t for t in inside if self.t0 < t < last)

    def input_segment(self, time: float) -> tuple[FloatArray, FloatArray]:
        """(n_u,), (n_u,): coefficients a, b of u = a + b t from `time` to the next break."""
        pairs = [table.segment(time) for table in self.tables]
        return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])


def initial_value_problem(
    problem: Problem, experiment: Experiment, system: System
) -> InitialValueProblem:
    """The experiment's initial value problem; the problem's fixed unknowns become numbers.

    raises Unsupported if the problem has time-varying unknowns
    """
    if problem.time_varying:
        raise Unsupported(
            f"{sorted(problem.time_varying)} vary with time; this method estimates constant "
            "unknowns only."
        )
    symbols = system.symbols
    free = _Free(problem)
    p = [free(problem.unknown_of(n, experiment)) for n in symbols.parameters]
    start = [_start(n, problem, experiment, system, free) for n in symbols.states]
    u, tables = _inputs(symbols, experiment)
    solved = solve_all(system.residual, system.unknowns)
    y = stack(system.unknowns[j] for j in solved.implicit)
    parameters = stack(p)
    initial = ca.substitute(stack(start), symbols.p, parameters)

    def inserted(expressions: Any) -> Any:
        old = [symbols.p, symbols.s, symbols.u]
        return ca.substitute([ca.SX(expressions)], old, [parameters, initial, u])[0]

    n_states = len(symbols.states)
    measured = [system.measured[n] for n in experiment.measured]
    z = stack(solved.expressions[n_states:])
    return InitialValueProblem(
        states=symbols.states,
        implicit=tuple(system.unknown_names[j] for j in solved.implicit),
        unknowns=tuple(free.found),
        t0=experiment.start_time,
        t=symbols.t,
        x=symbols.x,
        y=y,
        u=stack(symbols.u[i] for i, table in enumerate(tables) if table),
        q=stack(free.found.values()),
        f=inserted(stack(solved.expressions[:n_states])),
        g=inserted(solved.remaining),
        start=initial,
        measured=inserted(ca.substitute(stack(measured), symbols.z, z)),
        algebraic={n: inserted(z[i]) for i, n in enumerate(symbols.algebraics)},
        tables=tuple(t for t in tables if t),
        guess=np.ones(len(solved.implicit)),
    )


class _Free:
    """Gives each unknown a symbol on first use, or its number if the problem holds it fixed."""

    def __init__(self, problem: Problem) -> None:
        self.fixed = problem.fixed
        self.order = problem.box.names
        self.symbols: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        if name in self.fixed:
            return ca.SX(self.fixed[name])
        return self.symbols.setdefault(name, ca.SX.sym(name))

    @property
    def found(self) -> dict[str, Any]:
        """The symbols handed out, in the problem's order."""
        return {n: self.symbols[n] for n in self.order if n in self.symbols}


def _start(
    state: str, problem: Problem, experiment: Experiment, system: System, free: _Free
) -> Any:
    value: Any = experiment.start.get(state, system.starts.get(state))
    if isinstance(value, Unknown):
        return free(problem.start_unknown(state, experiment))
    if isinstance(value, str):
        return free(problem.unknown_of(value, experiment))
    return ca.SX(value)


def _inputs(symbols: Any, experiment: Experiment) -> tuple[Any, list[Table | None]]:
    values, tables = [], []
    for i, (name, given) in enumerate(experiment.inputs.items()):
        tables.append(given if isinstance(given, Table) else None)
        if isinstance(given, Table):
            values.append(symbols.u[i])
        elif callable(given):
            values.append(_of_time(name, given, symbols.t, experiment))
        else:
            values.append(ca.SX(given))
    return stack(values), tables


def _of_time(name: str, given: TimeExpression, t: Any, experiment: Experiment) -> Any:
    """The function as an expression of t, believed only if it gives the function's numbers."""
    places = np.linspace(experiment.start_time, experiment.times[-1], PLACES)
    try:
        expression = ca.SX(Translator({}, t)(given(Instant(experiment.start_time))))
        told = np.asarray(ca.Function("input", [t], [expression])(places[None])).ravel()
        same = np.allclose(told, [evaluate(given, p) for p in places], rtol=1e-10, equal_nan=True)
        why = "" if same else "its numbers differ from those of the expression"
    except (TypeError, ValueError, PyomoException) as error:
        why = str(error)
    if why:
        raise DataError(
            f"Input '{name}' depends on time in a way igpe cannot follow ({why}). Write it with "
            "Pyomo's functions of t (pyo.exp(-t)) and without `if`, or give it as igpe.linear or "
            "igpe.steps."
        )
    return expression
