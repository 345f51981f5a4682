"""An `igpe.Problem` as text: what every peer's own form of it is generated from.

The equations are those that igpe read from the Pyomo model, solved for the slopes; CasADi's
instructions are printed one by one, and what is used twice gets a name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca

import igpe
from igpe.equations.compiled import compiled
from igpe.equations.elimination import solve_all
from igpe.equations.operations import Graph
from igpe.equations.symbols import stack
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table
from peers.task import NotPosedError

INFIX = {"ADD": "+", "SUB": "-", "MUL": "*", "DIV": "/"}
CALLS = {n: n.lower() for n in ("SQRT", "EXP", "LOG", "SIN", "COS", "TAN", "SINH", "COSH", "TANH")}


@dataclass(frozen=True)
class Dialect:
    """How a language writes powers and the natural logarithm, and calls the time."""

    power: str
    log: str
    time: str


PYTHON = Dialect("**", "log", "t")
SBML = Dialect("^", "ln", "time")


@dataclass
class Node:
    """A number, a name, or an operation on nodes; `uses` counts where it is needed."""

    text: str = ""
    operation: str = ""
    operands: Sequence["Node"] = ()
    uses: int = 0
    name: str = ""


@dataclass(frozen=True)
class Text:
    """Expressions by name, and before them what they share, in order."""

    shared: Mapping[str, str]
    slopes: Mapping[str, str]
    measured: Mapping[str, str]


@dataclass(frozen=True)
class Course:
    """One experiment. start: state -> number or unknown's name; inputs: name -> number or table."""

    experiment: Experiment
    start: Mapping[str, float | str]
    inputs: Mapping[str, float | Table]


@dataclass(frozen=True)
class Told:
    """The problem; all names are safe in any language, `safe` says how.

    begins  names of the start values that the equations speak of: state -> name
    """

    problem: igpe.Problem
    states: tuple[str, ...]
    inputs: tuple[str, ...]
    unknowns: tuple[str, ...]
    courses: tuple[Course, ...]
    begins: Mapping[str, str]
    _functions: tuple[Any, tuple[str, ...]] = field(repr=False, default=(None, ()))

    def text(self, dialect: Dialect) -> Text:
        """Slopes and measured quantities in a language."""
        function, measured = self._functions
        begins = [self.begins[x] for x in self.states]
        names = [[dialect.time], self.states, self.inputs, self.problem.parameters, begins]
        printed = _Printer(dialect, [list(map(safe, given)) for given in names])
        lines = printed.lines(function)
        n = len(self.states)
        return Text(
            printed.shared,
            dict(zip(self.states, lines[:n], strict=True)),
            dict(zip(map(safe, measured), lines[n:], strict=True)),
        )


def safe(name: str) -> str:
    """The name with letters, digits and underscores alone."""
    return re.sub(r"\W+", "_", name).strip("_")


def told(problem: igpe.Problem) -> Told:
    """The problem as text.

    raises NotPosedError for what few peers could be told
    """
    first = problem.experiments[0]
    system = compiled(problem).systems[0]
    symbols = system.symbols
    solved = solve_all(system.residual, system.unknowns)
    if solved.implicit:
        raise NotPosedError("algebraic variables that are known only implicitly")
    if problem.local or problem.sigma_estimated or problem.priors:
        raise NotPosedError("local parameters, priors or estimated standard deviations")
    if any((e.measured, *e.inputs) != (first.measured, *first.inputs) for e in problem.experiments):
        raise NotPosedError("experiments that measure or set different quantities")
    z = stack(solved.expressions[len(symbols.states) :])
    measured = ca.substitute(stack(system.measured[n] for n in first.measured), symbols.z, z)
    outputs = ca.densify(ca.vertcat(stack(solved.expressions[: len(symbols.states)]), measured))
    given = [symbols.t, symbols.x, symbols.u, symbols.p, symbols.s]
    function = ca.Function("told", [ca.SX(v) for v in given], [outputs])
    states = tuple(map(safe, symbols.states))
    return Told(
        problem,
        states,
        tuple(map(safe, symbols.inputs)),
        tuple(map(safe, problem.box.names)),
        tuple(_course(problem, e, symbols.states, system.starts) for e in problem.experiments),
        {x: f"begin_{x}" for x in states},
        (function, first.measured),
    )


def _course(
    problem: igpe.Problem, run: Experiment, states: Sequence[str], model: Mapping[str, Any]
) -> Course:
    start = {}
    for name in states:
        value: Any = run.start.get(name, model.get(name))
        if isinstance(value, igpe.Unknown):
            value = problem.start_unknown(name, run)
        start[safe(name)] = safe(value) if isinstance(value, str) else float(value)
    if any(callable(v) for v in run.inputs.values()):
        raise NotPosedError("inputs that are functions of time")
    return Course(run, start, {safe(n): v for n, v in run.inputs.items()})  # type: ignore[misc]


class _Printer:
    def __init__(self, dialect: Dialect, names: Sequence[Sequence[str]]) -> None:
        self.dialect, self.names = dialect, names
        self.shared: dict[str, str] = {}

    def lines(self, function: Any) -> list[str]:
        """Each element of the function's result."""
        nodes = Graph.of_function(function, merged=False).evaluate(
            lambda i, j: Node(self.names[i][j]),
            lambda number: Node(f"({number!r})" if number < 0 else repr(number)),
            self._node,
        )
        for node in nodes:
            node.uses += 1
        return [self._printed(node) for node in nodes]

    def _node(self, name: str, operands: list[Node]) -> Node:
        for operand in operands:
            operand.uses += 1
        return Node(operation=name, operands=operands)

    def _printed(self, node: Node) -> str:
        if not node.operation:
            return node.text
        if not node.name:
            node.name = self._written(node)
            if node.uses > 1:
                name = f"shared_{len(self.shared) + 1}"
                self.shared[name], node.name = node.name, name
        return node.name

    def _written(self, node: Node) -> str:
        kind, power = node.operation, self.dialect.power
        a, *b = map(self._printed, node.operands)
        special = {
            "ASSIGN": a,
            "NEG": f"(-{a})",
            "INV": f"(1.0/{a})",
            "TWICE": f"(2.0*{a})",
            "SQ": f"({a}*{a})" if a.isidentifier() else f"({a}{power}2)",
            "LOG": f"{self.dialect.log}({a})",
        }
        if kind in special:
            return special[kind]
        if kind in CALLS:
            return f"{CALLS[kind]}({a})"
        if kind in INFIX:
            return f"({a}{INFIX[kind]}{b[0]})"
        if kind in {"POW", "CONSTPOW"}:
            return f"({a}{power}{b[0]})"
        raise NotPosedError(f"the operation '{kind.lower()}'")
