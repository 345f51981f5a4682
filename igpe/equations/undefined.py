"""Where an initial value problem has a slope without a finite value, and which operation causes it.

For messages about integrations that failed.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from scipy.optimize import brentq

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError, ProblemError
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem, initial_value_problem
from igpe.equations.operations import Graph, apply_to_sx
from igpe.equations.translate import to_pyomo
from igpe.problem.plausibility import CELSIUS, warnings_about
from igpe.problem.problem import Problem

AHEAD = 40  # halvings of the time that is left, to see where a slope has no value
LONGEST = 60  # characters of an operation that a sentence shows
NOWHERE = "The slope of '{}' divides by 0 whatever the values are. {}"
CAUSES = (
    "The algebraic equations do not determine all their variables, or an equation divides by an "
    "input that is 0. With a grid in space, two equations may contain the same difference: choose "
    "another scheme (space=...)."
)
MOST_NAMES = 4  # variables whose values a sentence gives


class Undefined(NamedTuple):
    """A slope without a finite value.

    state      whose slope
    time       where
    operation  what has no finite value there, as text; empty if it is not known or too long
    values     of its variables, as text; of all states if it is not known
    of_time    whether the time is among its variables
    is_fixed   whether it has no value at the start whatever the unknowns are
    is_nowhere  whether it divides by 0 whatever the values are
    """

    state: str
    time: float
    operation: str
    values: str
    of_time: bool
    is_fixed: bool
    is_nowhere: bool


def undefined_ahead(
    ivp: InitialValueProblem, time: float, x: FloatArray, q: FloatArray, last: float
) -> Undefined | None:
    """The first slope without a finite value on the tangent at a point.

    x, q     (n_x,), (n_q,) the states at `time`, and the unknowns
    returns  None if all slopes are finite up to `last`, or where algebraic variables are implicit
    """
    if ivp.implicit or not last > time:
        return None
    slopes = ca.Function("slopes", [ivp.t, ivp.x, ivp.u, ivp.q], [ca.densify(ivp.f)])
    a, b = ivp.input_segment(time)

    def at(when: float, there: FloatArray) -> FloatArray:
        return np.asarray(slopes(when, there, a + b * when, q), dtype=float).ravel()

    tangent = at(time, x)
    for when in time + (last - time) * np.append(0.0, 0.5 ** np.arange(AHEAD, -1, -1)):
        there = x + tangent * (when - time) if when > time else x
        wrong = ~np.isfinite(at(when, there))
        if wrong.any():
            return _undefined(ivp, int(np.argmax(wrong)), [when, there, a + b * when, q])
    return None


def undefined_at_start(problem: Problem, k: int, values: Mapping[str, float]) -> str:
    """Which slope of experiment `k` has no finite value at the start, and what to do.

    Empty if all have one. For messages about an integration that failed: 0/0, which rests at 0, is
    none here.
    """
    undefined = _found_at_start(problem, k, values, as_written=True)
    return "" if undefined is None else _sentence(problem, k, undefined)


def undefined_at_starts(problem: Problem, values: Mapping[str, float]) -> str:
    """The same of the first experiment with such a slope."""
    runs = range(len(problem.experiments))
    return next(filter(None, (undefined_at_start(problem, k, values) for k in runs)), "")


def require_slopes_at_start(problem: Problem) -> None:
    """Raise ProblemError where a slope has no value at the start, whatever the unknowns are.

    ModelError where it has none at all.
    Where it is infinite, or where the time or a quotient is the cause, collocation may do without.
    """
    middle = problem.box.mapping(problem.box.middle)
    for k in range(len(problem.experiments)):
        undefined = _found_at_start(problem, k, middle)
        if undefined is None:
            continue
        if undefined.is_nowhere and not undefined.operation:
            raise ModelError(NOWHERE.format(undefined.state, _celsius(problem) or CAUSES))
        if undefined.is_nowhere or (undefined.is_fixed and not undefined.of_time):
            raise ProblemError(_sentence(problem, k, undefined).strip())


def _found_at_start(
    problem: Problem, k: int, values: Mapping[str, float], *, as_written: bool = False
) -> Undefined | None:
    """The first slope of experiment `k` without a finite value at the start.

    Doses at the start change the states before there is a slope.
    """
    experiment = problem.experiments[k]
    if any(event.at == experiment.start_time for event in experiment.events):
        return None
    ivp = compiled(problem).initial_value_problem(k, switching=True)
    ivp = replace(ivp, f=ivp.written) if as_written else ivp
    q = np.array([values[n] for n in ivp.unknowns], dtype=float)
    undefined = _first_at_start(ivp, q)
    if undefined is None or not undefined.is_nowhere:
        return undefined
    named = _with_named_inputs(problem, k)  # numbers are folded: what divides by 0 is gone
    return undefined if named is None else _first_at_start(named, q) or undefined


def _first_at_start(ivp: InitialValueProblem, q: FloatArray) -> Undefined | None:
    if ivp.rest is not None:
        return None
    start = ca.Function("start", [ivp.q], [ca.densify(ivp.start)])
    x = np.asarray(start(q), dtype=float).ravel()
    undefined = undefined_ahead(ivp, ivp.t0, x, q, ivp.t0 + 1.0)
    return None if undefined is None or undefined.time > ivp.t0 else undefined


def _with_named_inputs(
    problem: Problem, k: int, *, plain: bool = False
) -> InitialValueProblem | None:
    """The initial value problem with the inputs that are numbers as symbols; None without any.

    plain  whether quotients and powers stay as they are at 0
    """
    experiment, system = problem.experiments[k], compiled(problem).systems[k]
    numbers = frozenset(n for n, v in experiment.inputs.items() if isinstance(v, float))
    if not numbers:
        return None
    flow = system.flow or system
    posed = initial_value_problem(problem, experiment, flow, constants=numbers, plain_powers=plain)
    return posed.shared


def _sentence(problem: Problem, k: int, undefined: Undefined) -> str:
    start = problem.experiments[k].start_time
    run = f" of experiment '{problem.experiments[k].name}'" * (len(problem.experiments) > 1)
    cause = f": {undefined.operation} is undefined at {undefined.values}" * bool(
        undefined.operation
    )
    advice = (
        "Let the experiment start later: pass start_time=... and omit the measurements before it."
        if undefined.of_time
        else "Check the start values and this equation."
    )
    if undefined.is_nowhere:
        advice = "Correct these inputs, or write the equation so that it has a value there."
    state = f"the slope of '{undefined.state}' has no finite value"
    return (
        f" At the start{run}, t = {start:g}, {state}{cause}. {advice} {_celsius(problem)}".rstrip()
    )


def _celsius(problem: Problem) -> str:
    """Warnings of temperatures that are not in kelvin."""
    return " ".join(one for one in warnings_about(problem) if CELSIUS in one)


def _undefined(ivp: InitialValueProblem, k: int, at: list[Any]) -> Undefined:
    """Slope number k and the operation in it that causes that it has no finite value.

    at  values of t, x, u and q
    """
    columns = [ivp.t, ivp.x, ivp.u, ivp.q]
    symbols, values = ca.vertcat(*columns), np.concatenate([np.ravel(v) for v in at])
    cause = _operation(ivp.written[k], symbols, values)
    varying = [u for i, u in enumerate(ca.vertsplit(ivp.u)) if i not in ivp.constants]
    moving = ca.vertcat(ivp.t, ivp.x, ivp.q, *varying)
    if cause is not None and cause.is_op(ca.OP_DIV) and not ca.depends_on(cause.dep(1), moving):
        cause = 1 / cause.dep(1)
    operation = cause if cause is not None and cause.n_dep() else None
    shown = ca.symvar(operation) if operation is not None else ca.vertsplit(ivp.x)
    numbers = ca.Function("numbers", [symbols], [ca.vertcat(*shown)])
    named = zip(map(str, shown), np.asarray(numbers(values)).ravel(), strict=True)
    text = "" if operation is None else _text(operation, shown)
    return Undefined(
        state=ivp.states[k],
        time=float(at[0]),
        operation=text if len(text) <= LONGEST else "",
        values=", ".join([f"{n} = {v:.3g}" for n, v in named][:MOST_NAMES]),
        of_time=operation is not None and bool(ca.depends_on(operation, ivp.t)),
        is_fixed=operation is not None
        and _is_fixed(ivp, operation, ca.Function("operation", [symbols], [operation])(values)),
        is_nowhere=cause is not None and not ca.depends_on(cause, moving),
    )


def _is_fixed(ivp: InitialValueProblem, operation: Any, value: Any) -> bool:
    """Whether an operation other than a quotient is no number at the start, without unknowns.

    Nor without inputs, which may be measured and other just after.
    """
    at_start = ca.substitute(operation, ivp.x, ivp.start)
    moves = ca.depends_on(at_start, ca.vertcat(ivp.q, ivp.u))
    return bool(np.isnan(float(value)) and not operation.is_op(ca.OP_DIV) and not moves)


def _text(operation: Any, symbols: list[Any]) -> str:
    """The operation as Pyomo writes it, empty if Pyomo cannot; symbols are its own."""
    variables = [pyo.Var(name=str(s)) for s in symbols]
    try:
        return str(to_pyomo(operation, ca.vertcat(*symbols), variables)[0])
    except ModelError:  # a condition
        return ""


def _operation(expression: Any, symbols: Any, values: FloatArray) -> Any | None:
    """The operation in an SX expression that has no finite value although its operands have."""
    graph, nodes = _nodes(expression, symbols)
    numbers = ca.Function("numbers", [symbols], [ca.densify(ca.vertcat(*nodes))])
    is_finite = np.isfinite(np.asarray(numbers(values), dtype=float).ravel())
    here = graph.results[0]
    if is_finite[here]:
        return None
    while lost := [i for i in graph.nodes[here].arguments if not is_finite[i]]:
        here = lost[0]
    return nodes[here]


def _nodes(expressions: Any, symbols: Any) -> tuple[Graph, list[Any]]:
    """All operations in an SX column, each as an expression."""
    graph, nodes = Graph.of(expressions, [symbols]), list[Any]()
    for node in graph.nodes:
        if node.name in ("INPUT", "CONST"):
            nodes.append(symbols[node.place[1]] if node.name == "INPUT" else ca.SX(node.value))
        else:
            nodes.append(apply_to_sx(node.name, [nodes[i] for i in node.arguments]))
    return graph, nodes


def quotient_by_zero(problem: Problem, k: int, times: FloatArray) -> str:
    """The first quotient in slopes of experiment `k` whose divisor inputs make 0; empty if none.

    A rate such as k A / (1 + K/u) has a finite value there, but bounds of the quotient have none.

    times  (n,) increasing, at which something is measured
    """
    ivp = compiled(problem).initial_value_problem(k, plain_powers=True).without_conditions(times)
    if any(node.is_constant() and not np.isfinite(float(node)) for node in _slope_nodes(ivp)):
        named = _with_named_inputs(problem, k, plain=True)  # numbers are folded
        ivp = ivp if named is None else named.without_conditions(times)
    others, last = ca.vertcat(ivp.t, ivp.x, ivp.q), float(times[-1])
    stops = [ivp.t0, *ivp.breaks(last), last]
    for node in _slope_nodes(ivp):
        if not (node.is_op(ca.OP_DIV) or node.is_op(ca.OP_INV)):
            continue
        below = node.dep(node.n_dep() - 1)
        if not ca.depends_on(below, others):
            divisor = ca.Function("divisor", [ivp.u], [below])
            pieces = (_root(divisor, ivp, *ends) for ends in pairwise(stops))
            for t in (one for one in pieces if one is not None):
                text = _text(node, ca.symvar(node)) or "a quotient"
                return f"{text} divides by 0 at time {t:.4g}"
    return ""


def root_of_zero(ivp: InitialValueProblem) -> str:
    """The first square root or fractional power in slopes that is taken of 0 at the start.

    As text; empty if there is none. It has a value there, but not all derivatives.
    """
    nothing = np.full(len(ivp.unknowns), np.nan)  # of what unknowns move
    start = ca.Function("start", [ivp.q], [ca.densify(ivp.start)])(nothing)
    a, b = ivp.input_segment(ivp.t0)
    for node in filter(_is_root, _slope_nodes(ivp)):
        base = ca.Function("base", [ivp.t, ivp.x, ivp.u, ivp.q], [node.dep(0)])
        if float(base(ivp.t0, start, a + b * ivp.t0, nothing)) == 0:
            return _text(node, ca.symvar(node)) or "a power"
    return ""


def _is_root(node: Any) -> bool:
    """Whether it is a square root, or a power whose exponent is no whole number."""
    if node.is_op(ca.OP_SQRT):
        return True
    if not (node.is_op(ca.OP_POW) or node.is_op(ca.OP_CONSTPOW)):
        return False
    exponent = node.dep(1)
    return not exponent.is_constant() or not float(exponent).is_integer()


def _slope_nodes(ivp: InitialValueProblem) -> list[Any]:
    return _nodes(ivp.f, ca.vertcat(ivp.t, ivp.x, ivp.q, ivp.u))[1]


def _root(divisor: Any, ivp: InitialValueProblem, begin: float, end: float) -> float | None:
    """A time at which a function of inputs is 0 or changes its sign; None if it has no other ends.

    begin, end  of a piece on which all inputs are linear
    """
    a, b = ivp.input_segment(begin)

    def at(t: float) -> float:
        return float(divisor(a + b * t))

    if not at(begin) * at(end) <= 0:
        return None
    return float(brentq(at, begin, end))
