"""What is written with conditions on the time: asked between the times at which it changes.

A rule or a function that asks `if t < 0.4` answers with one branch only. An `Instant` remembers
0.4; asked again before, at and after it, the rule tells all branches, and

    if t < 0.4 the first, else the second

is what it says at all times. Conditions stay as deep in the expression as they are in the model.
Inputs that are functions of the time become expressions of it in the same way. Whether two
expressions say the same is seen node by node, for a fraction of what a translation costs.

Jumps whose time is not known before the integration are told apart: `pyo.Expr_if(t < m.T, ...)`
jumps where the unknown T says, `pyo.Expr_if(m.x[t] > 1, ...)` where the state x does (see
`igpe.equations.switching`). Both branches meeting where the condition changes is no jump (see
`Translator`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from pyomo.common.numeric_types import native_types
from pyomo.core.base.var import VarData
from pyomo.core.expr import numeric_expr, relational_expr
from pyomo.environ import value

from igpe.core.errors import DataError, ModelError
from igpe.equations.reading.instant import REFUSALS, Instant, plain, reason
from igpe.equations.symbols import Role
from igpe.equations.system import System
from igpe.equations.translate import FUNCTIONS, PYOMO_ARITHMETIC, Translator
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table, TimeExpression, evaluate
from igpe.problem.problem import Problem

MOST = 400  # times at which one rule may change
LONGEST = 80  # characters of a condition in a message
PLACES = 65  # times at which an input given as a function is compared with its expression

Roles = Mapping[int, Role]
PLAIN = (
    numeric_expr.AbsExpression,
    numeric_expr.MaxExpression,
    numeric_expr.MinExpression,
    numeric_expr.Expr_ifExpression,
    relational_expr.EqualityExpression,
)
Ask = Callable[[float], tuple[Any, set[float]]]
"""The time to pretend -> what is written then, and the numbers the time was compared with."""


class Pieces(NamedTuple):
    """Expressions before, at and after each cut.

    cuts     (n,) times at which it may change, increasing
    answers  (2 n + 1,) before the first cut, at it, between it and the second, ...
    """

    cuts: list[float]
    answers: list[Any]


def places(cuts: Sequence[float], first: float, usual: float) -> list[float]:
    """Times before, at and after each cut; `usual` where there is none."""
    if not cuts:
        return [usual]
    ends = [first, *cuts, cuts[-1] + (cuts[-1] - first)]
    between = [(a + b) / 2 for a, b in pairwise(ends)]
    return [t for pair in zip_longest(between, cuts) for t in pair if t is not None]


def explored(ask: Ask, first: float, usual: float) -> Pieces:
    """Ask until no new time of change shows.

    first   start of the horizon: times before and at it are no cuts
    raises  ValueError if there are too many cuts, and whatever `ask` raises
    """
    cuts: list[float] = []
    answers: dict[float, Any] = {}
    while True:
        seen, now = set(cuts), places(cuts, first, usual)
        for t in now:
            if t not in answers:
                answers[t], numbers = ask(t)
                seen |= {n for n in numbers if first < n < float("inf")}
        if len(seen) == len(cuts):
            return Pieces(cuts, [answers[t] for t in now])
        cuts = sorted(seen)
        if len(cuts) > MOST:
            raise ValueError(f"it changes at more than {MOST} points in time; give it as an input")


class Joined:
    """Rewrites what is written in pieces as one CasADi expression.

    translate  of one piece
    roles      of the components that the pieces are written with
    """

    def __init__(self, translate: Translator, roles: Roles) -> None:
        self.translate, self.roles = translate, roles

    def __call__(self, cuts: Sequence[float], nodes: Sequence[Any]) -> Any:
        """The expression that is nodes[0] before the first cut, nodes[1] at it, and so on."""
        one, *others = nodes = [plain(node) for node in nodes]
        if all(self._same(one, other) for other in others):
            return self.translate(one)
        if all(isinstance(node, numeric_expr.SumExpression) for node in nodes):
            rows = zip_longest(*(n.args for n in nodes), fillvalue=0.0)
            return sum(self(cuts, row) for row in rows)
        if all(is_plain(one, other) and one.nargs() == other.nargs() for other in others):
            columns = zip(*(n.args for n in nodes), strict=True)
            return self.translate.exitNode(one, [self(cuts, column) for column in columns])
        kinds: list[Any] = []
        for node in nodes:
            kinds.append(next((k for k in kinds if self._same(k, node)), node))
        written = {id(k): self.translate(k) for k in kinds}
        t, result, after = self.translate.time, written[id(kinds[-1])], kinds[-1]
        for cut, at, before in reversed(list(zip(cuts, kinds[1::2], kinds[0::2], strict=False))):
            if at is not after and at is not before:
                result, after = _either(t <= cut, written[id(at)], result), at
            if before is not after:
                condition = t < cut if at is after else t <= cut
                result = _either(condition, written[id(before)], result)
            after = before
        return result

    def _same(self, one: Any, other: Any) -> bool:
        return one is other or alike(one, other, self.roles, self.roles)


def _either(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds; conditions are put together of conditions."""
    if not isinstance(then, bool):
        return ca.if_else(condition, then, otherwise)
    if isinstance(otherwise, bool):
        return condition if then else ca.logic_not(condition)
    if then:
        return ca.logic_or(condition, otherwise)
    return ca.logic_and(ca.logic_not(condition), otherwise)


def alike(one: Any, other: Any, roles: Roles, roles_of_other: Roles) -> bool:
    """Whether both have the same operations on the same roles and numbers.

    False where they might say the same in another form.
    """
    one, other = plain(one), plain(other)
    role, role_of_other = roles.get(id(one)), roles_of_other.get(id(other))
    if role is not None or role_of_other is not None:
        return role == role_of_other
    if one.__class__ is not other.__class__:
        return False
    if one.__class__ in native_types or isinstance(one, Instant):
        return isinstance(one, Instant) or bool(one == other)
    if not one.is_expression_type():
        is_free = any(c.is_variable_type() and not c.fixed for c in (one, other))
        number = None if is_free else value(one, exception=False)
        return number is not None and bool(number == value(other, exception=False))
    if not is_plain(one, other) or one.nargs() != other.nargs():
        return False
    pairs = zip(one.args, other.args, strict=True)
    return all(alike(a, b, roles, roles_of_other) for a, b in pairs)


def is_plain(one: Any, other: Any) -> bool:
    """Whether two nodes are of one kind and do the same to their arguments."""
    if one.__class__ is not other.__class__ or not hasattr(one, "args"):
        return False
    if isinstance(one, relational_expr.InequalityExpression | relational_expr.RangedExpression):
        return bool(one.strict == other.strict)
    if isinstance(one, numeric_expr.UnaryFunctionExpression) and not isinstance(one, PLAIN):
        return one.name in FUNCTIONS and bool(one.name == other.name)
    is_named = one.is_named_expression_type()
    return one.__class__ in PYOMO_ARITHMETIC or is_named or isinstance(one, PLAIN)


def mentions(node: Any, ids: set[int]) -> bool:
    """Whether an expression holds an `Instant` or one of the components."""
    kind = node.__class__
    if kind in native_types or (kind is VarData and not ids):
        return False
    if kind is Instant or id(node) in ids:
        return True
    if kind is tuple or kind is list:
        return any(mentions(part, ids) for part in node)
    is_expression = hasattr(node, "is_expression_type") and node.is_expression_type()
    return bool(is_expression) and any(mentions(argument, ids) for argument in node.args)


def moves(problem: Problem, experiment: Experiment, system: System) -> bool:
    """Whether a free unknown or a state moves a jump, an event happens or the start is steady.

    raises ModelError where what decides about such a jump is no comparison that can be followed
    """
    is_moved = bool(system.events) or experiment.steady is not None
    for name, condition in system.jumps:
        causes = list(_moved_by(problem, experiment, system, condition))
        if causes and not _is_followed(system, condition):
            kind, cause, unknown = causes[0]
            shown = str(condition)
            shown = shown if len(shown) <= LONGEST else shown[:LONGEST] + "..."
            hold = f"Fix it (problem.fixing({{'{unknown}': ...}})), or write"
            raise ModelError(
                f"'{name}' jumps where the value of {shown} changes, and this value depends on "
                f"the {kind} '{cause}'. igpe can follow only comparisons of time, states and "
                f"unknowns, such as pyo.Expr_if(t >= m.t0, a, b). {hold if unknown else 'Write'} a "
                "comparison, an igpe.Event, or a smooth transition, for example 1/(1 + "
                "pyo.exp(-(a - b)/width))."
            )
        is_moved |= bool(causes)
    return is_moved


def moved_jumps(problem: Problem, experiment: Experiment, system: System) -> list[str]:
    """Names of what jumps where a free unknown or a state moves the jump."""
    return [
        name
        for name, condition in system.jumps
        if any(True for _ in _moved_by(problem, experiment, system, condition))
    ]


def _is_followed(system: System, condition: Any) -> bool:
    """Whether it is a comparison that time or states decide, or is put together of such."""
    if condition.op() in {ca.OP_AND, ca.OP_OR, ca.OP_NOT}:
        return all(
            _is_followed(system, condition.dep(i)) or condition.dep(i).is_constant()
            for i in range(condition.n_dep())
        )
    s = system.symbols
    return condition.op() in {ca.OP_LT, ca.OP_LE} and bool(
        ca.depends_on(condition, ca.vertcat(s.t, s.x, s.z, s.u))
    )


def _moved_by(
    problem: Problem, experiment: Experiment, system: System, expression: Any
) -> Iterator[tuple[str, str, str]]:
    """What moves a jump: its kind, its name, and the problem's free unknown if it is one."""
    s = system.symbols
    roles = {
        symbol.element_hash(): (kind, place)
        for kind in ("t", "dx", "x", "z", "u", "p", "s")
        for place, symbol in enumerate(ca.vertsplit(getattr(s, kind)))
    }
    for symbol in ca.symvar(ca.SX(expression)):
        kind, place = roles[symbol.element_hash()]
        moving: dict[str, str] = {}  # unknown -> its name in the model
        inner: Any = 0.0
        if kind in {"x", "dx"}:
            yield "state" if kind == "x" else "slope of the state", s.states[place], ""
        elif kind == "p":
            moving = {problem.unknown_of(s.parameters[place], experiment): s.parameters[place]}
        elif kind == "u" and s.inputs[place] in problem.time_varying:
            moving = {unknown: unknown for unknown in problem.pieces(s.inputs[place], experiment)}
        elif kind == "s":
            moving, inner = _start(problem, experiment, system, s.states[place])
        elif kind == "z" and len(s.states) + place in system.solved.implicit:
            yield "variable", s.algebraics[place], ""
        elif kind == "z":
            inner = system.solved.expressions[len(s.states) + place]
        yield from (("unknown", moving[u], u) for u in moving if u in problem.box.names)
        yield from _moved_by(problem, experiment, system, inner)


def _start(
    problem: Problem, experiment: Experiment, system: System, state: str
) -> tuple[dict[str, str], Any]:
    """The unknown (and its name) that a start value is, or the expression that gives it."""
    given: Any = system.start_of(state, experiment)
    if isinstance(given, str):
        return {problem.unknown_of(given, experiment): given}, 0.0
    if isinstance(given, Unknown):
        return {(unknown := problem.start_unknown(state, experiment)): unknown}, 0.0
    return {}, given


def of_time(name: str, given: TimeExpression, t: Any, experiment: Experiment) -> Any:
    """The function as an expression of t, believed only if it gives the function's numbers."""
    first, last = experiment.start_time, float(experiment.times[-1])

    def ask(now: float) -> tuple[Any, set[float]]:
        instant = Instant(np.nan, now)  # looks up nothing
        return plain(given(instant)), instant.seen

    try:
        cuts, answers = explored(ask, first, (first + last) / 2)
        expression = ca.SX(Joined(Translator({}, t), {})(cuts, answers))
    except REFUSALS as error:
        raise _unexplained(name, reason(error)) from error
    times = np.linspace(first, last, PLACES)
    times = np.unique([*times, *experiment.times, *(c for c in cuts if c <= last)])
    came = np.asarray(ca.Function("input", [t], [expression])(times[None])).ravel()
    true = np.array([evaluate(given, time) for time in times.tolist()])
    wrong = ~np.isclose(came, true, rtol=1e-10, atol=0) & (np.isfinite(came) | np.isfinite(true))
    if wrong.any():
        k = int(np.argmax(wrong))
        why = f"at {times[k]:g} it gives {true[k]:g}, but its expression gives {came[k]:g}"
        raise _unexplained(name, why)
    return expression


def ramp(table: Table, t: Any) -> Any:
    """A table that is linear between its times, as an expression of t."""
    a, b = table.segment(float(table.times[-1]))
    result = ca.SX(a + b * t)
    for time in reversed(table.times.tolist()):
        a, b = table.segment(float(np.nextafter(time, -np.inf)))
        result = ca.if_else(t < time, a + b * t, result)
    return result


def _unexplained(name: str, why: str) -> DataError:
    return DataError(
        f"Input '{name}' depends on time in a way that igpe cannot follow: {why}. Write it with "
        "Pyomo's functions of t (pyo.exp(-t), pyo.Expr_if(t < 0.4, ...)), or give it as "
        "igpe.linear_input or igpe.step_input."
    )
