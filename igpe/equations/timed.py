"""What of an initial value problem depends on time alone: its switches, and its pulses.

A condition on known times becomes an input that is held, so that every method cuts its pieces there
as it does for any table. Where a function of time rises abruptly after a time without change, an
integrator has to land, or it may step over the whole pulse and see nothing.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError
from igpe.equations.known_times import Changing, Segments, abrupt, stretches, switched
from igpe.equations.operations import Graph, apply_to_sx
from igpe.problem.inputs import SAME, Table

TIME, UNKNOWN, STATE = 1, 2, 4  # what an expression depends on, as bits
CONDITIONS = {"LT", "LE", "EQ", "NE", "NOT", "AND", "OR", "FLOOR", "CEIL", "SIGN"}
"""Operations whose results jump."""
SUMS = {"ADD", "SUB", "NEG"}
LINEAR = {*SUMS, "TWICE", "ASSIGN"}
REGULAR = {"EXP", "LOG", "SQRT", "SIN", "COS", "SQ", "INV"}
"""Of a + b t they change everywhere or at regular times: none has a pulse after a time at rest."""
POWERS = {"EXP", "MUL", "DIV", "INV", "SQ", "NEG"}
"""Of products of powers of exponentials they are such products."""


class _Node(NamedTuple):
    operation: str
    operands: tuple[int, ...]
    expression: Any
    depends: int
    is_affine: bool = False  # a + b t, with a and b that do not depend on time
    is_regular: bool = True

    @property
    def by_time(self) -> bool:
        return bool(self.depends & TIME)

    @property
    def is_condition(self) -> bool:
        """Whether it is a condition on time alone."""
        return self.operation in CONDITIONS and self.depends == TIME


def _is_linear(operation: str, nodes: list[_Node]) -> bool:
    """Whether the result is linear in those operands that depend on time."""
    if operation == "MUL":
        return not (nodes[0].by_time and nodes[1].by_time)
    return operation in LINEAR or (operation == "DIV" and not nodes[1].by_time)


def _is_regular(operation: str, nodes: list[_Node]) -> bool:
    moving = [node for node in nodes if node.by_time]
    if operation in {"MUL", *LINEAR}:
        return all(node.is_regular for node in moving)
    if operation == "DIV":
        return nodes[0].is_regular and (nodes[1].is_affine or not nodes[1].by_time)
    if operation in {"POW", "CONSTPOW"}:
        return len(moving) == 1 and moving[0].is_affine
    if operation == "SQ" and nodes[0].operation in {"SIN", "COS"}:
        return nodes[0].is_regular
    return operation in REGULAR and all(node.is_affine for node in moving)


@dataclass(frozen=True)
class TimeSymbols:
    """Symbols of an initial value problem, and the horizon.

    t, u, q, rest  symbols: time, inputs, unknowns, and all others;  tables  one for each of u
    first, last    the horizon
    by_held        whether conditions on inputs that are held count as well
    """

    t: Any
    u: Any
    q: Any
    rest: Any
    tables: tuple[Table, ...]
    first: float
    last: float
    by_held: bool = False

    @cached_property
    def segments(self) -> Segments:
        """The horizon between the breaks of the tables."""
        inside = {float(t) for table in self.tables for t in table.times}
        edges = [self.first, *sorted(t for t in inside if self.first < t < self.last), self.last]
        pairs = [[table.segment(t) for table in self.tables] for t in edges[:-1]]
        inputs = [[a for a, _ in row] + [b for _, b in row] for row in pairs]
        return Segments(np.array(edges), np.array(inputs, dtype=float).reshape(len(edges) - 1, -1))

    def moves(self, expressions: Any) -> bool:
        """Whether they depend on time, directly or by an input that runs with it."""
        running = [self.u[i] for i, table in enumerate(self.tables) if self._runs(table)]
        return bool(ca.depends_on(ca.SX(expressions), ca.vertcat(self.t, *running)))

    def _runs(self, table: Table) -> bool:
        return self.by_held or not table.hold

    def nodes(self, column: Any) -> tuple[list[_Node], list[int]]:
        """The operations of a column with what each depends on; which of them its rows are."""
        symbols = [(self.t, TIME)]
        symbols += [(self.u[i], TIME * self._runs(table)) for i, table in enumerate(self.tables)]
        symbols += [(s, UNKNOWN) for s in ca.vertsplit(self.q)]
        symbols += [(s, STATE) for s in ca.vertsplit(self.rest)]
        graph = Graph.of(column, [ca.vertcat(*(s for s, _ in symbols))])
        nodes: list[_Node] = []
        for name, arguments, value, place in graph.nodes:
            if name == "INPUT":
                expression, depends = symbols[place[1]]
                nodes.append(_Node(name, (), expression, depends, bool(depends & TIME)))
                continue
            operands = [nodes[k] for k in arguments]
            of = [operand.expression for operand in operands]
            expression = ca.SX(value) if name == "CONST" else apply_to_sx(name, of)
            depends = reduce(or_, (operand.depends for operand in operands), 0)
            affine = bool(depends & TIME) and _is_linear(name, operands)
            affine = affine and all(o.is_affine for o in operands if o.by_time)
            regular = affine or not depends & TIME or _is_regular(name, operands)
            nodes.append(_Node(name, arguments, expression, depends, affine, regular))
        return nodes, graph.results

    def function(self, expression: Any, slopes: int = 0) -> tuple[Any, ...]:
        """(t, [a, b], q) -> the expression, and its slopes, where u = a + b t."""
        a, b = (ca.SX.sym(n, self.u.numel()) for n in ("a", "b"))
        derivatives = ca.substitute([ca.SX(expression)], [ca.vec(self.u)], [a + b * self.t])
        for _ in range(slopes):
            derivatives.append(ca.jacobian(derivatives[-1], self.t))
        given = [self.t, ca.vertcat(a, b), self.q]
        return tuple(ca.Function("of_time", given, [ca.densify(e)]) for e in derivatives)


class Held:
    """Expressions in which conditions on time alone are switches, held between their jumps.

    expressions  as given;  switches, tables  symbols and tables that came in
    conditions   each condition, a function (t, [a, b]), and its table
    raises       ModelError for a condition that changes too often
    """

    def __init__(
        self, clock: TimeSymbols, expressions: Iterable[Any], known: Iterable[float]
    ) -> None:
        """known: times that matter besides; a jump equal to one up to rounding lies there."""
        self._clock, self._known = clock, [float(t) for t in known]
        self.switches: list[Any] = []
        self.tables: list[Table] = []
        self.conditions: list[tuple[Any, Table]] = []
        self.expressions = [self._without(e) for e in expressions]

    def differs(self, segments: Segments, times: FloatArray) -> float | None:
        """The first of the times at which a condition is not what it is just before.

        At the start of the horizon what counts is the time just after.
        """
        for time in times:
            here = segments.at(np.array([time]))[0]
            before = time > segments.edges[0]
            for condition, table in self.conditions:
                if float(condition(time, here)) != table.at(time, before=before):
                    return float(time)
        return None

    def _without(self, expressions: Any) -> Any:
        """The column with switches where it has conditions on time."""
        column = ca.densify(ca.SX(expressions))
        if not self._clock.moves(column):
            return expressions
        nodes, rows = self._clock.nodes(column)
        if not any(node.is_condition for node in nodes):
            return expressions
        used = {k for node in nodes if not node.is_condition for k in node.operands} | {*rows}
        made: list[Any] = []
        for k, node in enumerate(nodes):
            if node.is_condition:
                made.append(self._switch(node.expression) if k in used else None)
            elif node.operands:
                made.append(apply_to_sx(node.operation, [made[i] for i in node.operands]))
            else:
                made.append(node.expression)
        return ca.reshape(ca.vertcat(*(made[r] for r in rows)), *column.shape)

    def _switch(self, condition: Any) -> Any:
        """The symbol of a condition, or its number."""
        (function,) = self._clock.function(condition)
        t, inputs, q = function.sx_in()
        alone = ca.Function("alone", [t, inputs], [function(t, inputs, ca.DM.zeros(*q.shape))])
        table = switched(alone, self._clock.segments)
        table = replace(table, times=np.array([self._snapped(float(t)) for t in table.times]))
        self.conditions.append((alone, table))
        if len(table.values) == 1:
            return ca.SX(table.values[0])
        for symbol, other in zip(self.switches, self.tables, strict=True):
            if np.array_equal(table.times, other.times):
                if np.array_equal(table.values, other.values):
                    return symbol
                if np.array_equal(table.values, 1 - other.values):
                    return 1 - symbol
        self.switches.append(ca.SX.sym(f"switch {len(self.switches)}"))
        self.tables.append(table)
        return self.switches[-1]

    def _snapped(self, time: float) -> float:
        for other in self._known:
            if abs(other - time) <= SAME * np.spacing(max(abs(other), abs(time))):
                return other
        self._known.append(time)
        return time


def as_products(expressions: Any, switches: Any) -> Any:
    """The column in which a choice by a switch is a product: what is not chosen is taken 0 times.

    For arithmetic that knows no choices. The product has no value where what is not chosen has
    none.
    """
    column = ca.densify(ca.SX(expressions))
    symbols = ca.vertcat(*ca.symvar(ca.vertcat(column, switches)))
    forms = [form for s in ca.vertsplit(switches) for form in (s, 1 - s)]

    def operation(name: str, operands: list[Any]) -> Any:
        if name == "IF_ELSE_ZERO" and any(ca.is_equal(operands[0], form, 2) for form in forms):
            return operands[0] * operands[1]
        return apply_to_sx(name, operands)

    return ca.vertcat(
        *Graph.of(column, [symbols]).evaluate(lambda _, i: symbols[i], ca.SX, operation)
    )


@dataclass(frozen=True)
class Stops:
    """Where integrators have to land.

    known   increasing, whatever the unknowns are
    fixed, moving  functions of time with pulses, and those whose pulses the unknowns move
    """

    segments: Segments
    known: tuple[float, ...]
    fixed: tuple[Changing, ...] = ()
    moving: tuple[Changing, ...] = ()

    def through(self, q: FloatArray) -> tuple[float, ...]:
        """Times all through the pulses, for a mesh; those that move as the unknowns q have them."""
        numbers = np.asarray(q, dtype=float)
        known = _times(self.segments, self.fixed, np.zeros(0), (), through=True)
        with suppress(ModelError):
            return _times(self.segments, self.moving, numbers, known, through=True)
        return known

    def at(self, q: FloatArray) -> tuple[float, ...] | None:
        """All of them for unknowns q (n_q,), increasing; None if they are too many to follow."""
        if not self.moving:
            return self.known
        with suppress(ModelError):
            return _times(self.segments, self.moving, np.asarray(q, dtype=float), self.known)
        return None


def stops(clock: TimeSymbols, expressions: Iterable[Any]) -> Stops:
    """The times that an integrator must not step over.

    raises  ModelError if a function of time rises and falls too often
    """
    column = ca.vertcat(*(ca.SX(e) for e in expressions))
    if not clock.moves(column):
        return Stops(Segments(np.array([clock.first, clock.last]), np.zeros((1, 0))), ())
    irregular = list(_irregular(*clock.nodes(column)))
    alone = replace(clock, q=ca.SX(0, 1))

    def changing(part: _Part) -> Changing:
        where = None
        if part.driver is not None:
            with suppress(ModelError):
                where = stretches(Changing(*alone.function(part.driver, 2)), clock.segments)
        own = clock if part.by_unknown else alone
        return Changing(*own.function(part.value, 2), stretches=where)

    known, moving = (
        tuple(changing(part) for part in irregular if part.by_unknown is by) for by in (False, True)
    )
    times = _times(clock.segments, known, np.zeros(0), ())
    return Stops(clock.segments, times, known, moving)


def _times(
    segments: Segments,
    functions: Iterable[Changing],
    numbers: FloatArray,
    known: tuple[float, ...],
    *,
    through: bool = False,
) -> tuple[float, ...]:
    """Increasing, inside the horizon, none where the segments have an edge anyway."""
    times = [abrupt(f, segments, numbers, through=through) for f in functions]
    first, last = segments.edges[[0, -1]]
    near = 1e-12 * (last - first)
    kept: list[float] = []
    for time in np.unique(np.concatenate([np.array(known), *times])).tolist():
        apart = np.abs(segments.edges - time).min() > near and (not kept or time - kept[-1] > near)
        if apart and first < time < last:
            kept.append(time)
    return tuple(kept)


class _Part(NamedTuple):
    """An expression of time that may have pulses.

    by_unknown  whether unknowns move them
    driver      the expression of time alone with which it rises and falls, whatever the unknowns
    """

    value: Any
    by_unknown: bool
    driver: Any | None


def _irregular(nodes: list[_Node], rows: list[int]) -> Iterator[_Part]:
    """The largest parts that depend on no state and may have pulses.

    Sums are taken apart, so that a small pulse beside a large one counts as much.
    """
    seen: set[int] = set()
    waiting = list(rows)
    while waiting:
        k = waiting.pop()
        node = nodes[k]
        if k in seen or not node.by_time:
            continue
        seen.add(k)
        if node.depends & STATE:
            waiting += node.operands
            if node.operation == "EXP":  # exp(s(t) + x) = exp(s(t)) exp(x)
                for i, sign in _terms(nodes, node.operands[0], 1):
                    yield _part(nodes, i, ca.exp(sign * nodes[i].expression), exponent=True)
        elif _is_linear(node.operation, [nodes[i] for i in node.operands]):
            waiting += node.operands
        elif not node.is_regular:
            yield _part(nodes, k, node.expression, exponent=False)


def _part(nodes: list[_Node], k: int, value: Any, *, exponent: bool) -> _Part:
    driver, *others = _drivers(nodes, k, exponent=exponent)
    by_unknown = bool(nodes[k].depends & UNKNOWN)
    known = None if driver is None or others else nodes[driver].expression
    return _Part(value, by_unknown, known)


def _drivers(nodes: list[_Node], k: int, *, exponent: bool) -> set[int | None]:
    """The functions w of time alone in exp(c w + d) and its products, with c, d of the unknowns.

    exponent  whether k is the exponent itself
    returns   their places; None among them for what has another form

    A rate constant by Arrhenius' law, and quotients of such, rise and fall with 1 / T alone.
    """
    node = nodes[k]
    if not node.by_time:
        return set()
    of = [nodes[i] for i in node.operands]
    if exponent:
        apart = _is_linear(node.operation, of)
        apart &= bool(node.depends & UNKNOWN) or sum(o.by_time for o in of) == 1
    else:
        apart = node.operation in POWERS
    if not apart:
        return {k if exponent and not node.depends & UNKNOWN else None}
    inside = exponent or node.operation == "EXP"
    return set[int | None]().union(*(_drivers(nodes, i, exponent=inside) for i in node.operands))


def _terms(nodes: list[_Node], k: int, sign: int) -> Iterator[tuple[int, int]]:
    """The terms of a sum that depend on time, on no state, and not linearly; with their signs."""
    node = nodes[k]
    if not node.depends & STATE:
        if node.by_time and not node.is_affine:
            yield k, sign
    elif node.operation in SUMS:
        first = -sign if node.operation == "NEG" else sign
        rest = -sign if node.operation == "SUB" else sign
        for i, own in zip(node.operands, (first, rest), strict=False):
            yield from _terms(nodes, i, own)
