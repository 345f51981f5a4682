"""What of an initial value problem depends on time alone: its switches, and its pulses.

A condition on known times becomes an input that is held, so that every method cuts its pieces there
as it does for any table. Where a function of time rises abruptly after a time without change, an
integrator has to land, or it may step over the whole pulse and see nothing.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError
from igpe.equations.operations import Graph, apply_to_sx
from igpe.equations.time.known_times import Changing, Segments, Switched, abrupt, switched
from igpe.problem.inputs import SAME, Table

TIME, UNKNOWN, STATE, HELD = 1, 2, 4, 8  # what an expression depends on, as bits
CONDITIONS = frozenset({
    "LT",
    "LE",
    "EQ",
    "NE",
    "NOT",
    "AND",
    "OR",
    "FLOOR",
    "CEIL",
    "SIGN",
})
"""Operations whose results jump."""
SUMS = frozenset({"ADD", "SUB", "NEG"})
REGULAR = frozenset({"EXP", "LOG", "SQRT", "SIN", "COS", "SQ", "INV"})
"""Of a + b t they change everywhere or at regular times: none has a pulse after a time at rest."""


class _Node(NamedTuple):
    operation: str
    operands: tuple[int, ...]
    expression: Any
    depends: int
    is_affine: bool  # a + b t, with a and b that do not depend on time
    is_regular: bool

    @property
    def by_time(self) -> bool:
        return bool(self.depends & TIME)


class _Graph:
    """Expressions node by node, with what each depends on."""

    def __init__(self, symbols: list[tuple[Any, int]]) -> None:
        self.nodes: list[_Node] = []
        self.symbols = [(s, bits) for column, bits in symbols for s in ca.vertsplit(column)]

    def rows(self, expressions: Any) -> list[int]:
        """The nodes of the rows of a column."""
        variables = ca.vertcat(ca.SX(0, 1), *(s for s, _ in self.symbols))
        graph = Graph.of(expressions, [variables])
        return graph.evaluate(self._given, self._constant, self._apply)

    def _given(self, _: int, element: int) -> int:
        expression, bits = self.symbols[element]
        return self._add(_Node("INPUT", (), expression, bits, bool(bits & TIME), True))

    def _constant(self, number: float) -> int:
        return self._add(_Node("CONST", (), ca.SX(number), 0, False, True))

    def _apply(self, operation: str, operands: list[int]) -> int:
        nodes = [self.nodes[k] for k in operands]
        depends = 0
        for node in nodes:
            depends |= node.depends
        expression = apply_to_sx(operation, [node.expression for node in nodes])
        affine = bool(depends & TIME) and _is_affine(operation, nodes)
        regular = affine or not depends & TIME or _is_regular(operation, nodes)
        return self._add(_Node(operation, tuple(operands), expression, depends, affine, regular))

    def _add(self, node: _Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def _is_linear(operation: str, nodes: list[_Node]) -> bool:
    """Whether the result is linear in those operands that depend on time."""
    if operation in {*SUMS, "TWICE", "ASSIGN"}:
        return True
    if operation == "MUL":
        return not (nodes[0].by_time and nodes[1].by_time)
    return operation == "DIV" and not nodes[1].by_time


def _is_affine(operation: str, nodes: list[_Node]) -> bool:
    parts = [node.is_affine for node in nodes if node.by_time]
    return all(parts) and _is_linear(operation, nodes)


def _is_regular(operation: str, nodes: list[_Node]) -> bool:
    moving = [node for node in nodes if node.by_time]
    if operation in {"MUL", *SUMS, "TWICE", "ASSIGN"}:
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

    def graph(self) -> _Graph:
        """For the expressions of the problem."""
        inputs = [
            (self.u[i], TIME | HELD if self._runs(table) else HELD)
            for i, table in enumerate(self.tables)
        ]
        return _Graph([(self.t, TIME), *inputs, (self.q, UNKNOWN), (self.rest, STATE)])

    def function(self, expression: Any, slopes: int = 0) -> tuple[Any, ...]:
        """(t, [a, b], q) -> the expression, and its slopes, where u = a + b t."""
        a, b = (ca.SX.sym(n, self.u.numel()) for n in ("a", "b"))
        found = ca.substitute([ca.SX(expression)], [self.u], [a + b * self.t])
        for _ in range(slopes):
            found.append(ca.jacobian(found[-1], self.t))
        given = [self.t, ca.vertcat(a, b), self.q]
        return tuple(ca.Function("of_time", given, [ca.densify(e)]) for e in found)


class Held(NamedTuple):
    """Expressions without conditions on time alone: those are inputs now.

    expressions  as given;  switches, tables  symbols and tables that came in
    conditions   each condition, a function (t, [a, b]), and its table
    """

    expressions: list[Any]
    switches: list[Any]
    tables: list[Table]
    conditions: list[tuple[Any, Table]]

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


def held(clock: TimeSymbols, expressions: Iterable[Any], known: Iterable[float]) -> Held:
    """Replace conditions on time alone by switches, which are held between their jumps.

    known   times that matter besides: a jump that is equal to one up to rounding lies there
    raises  ModelError for a condition that changes too often
    """
    maker = _Switches(clock, known)
    without = [maker.without(e) for e in expressions]
    return Held(without, maker.switches, maker.tables, maker.conditions)


def as_products(expressions: Any, switches: Any) -> Any:
    """The column in which a choice by a switch is a product: what is not chosen is taken 0 times.

    For arithmetic that knows no choices. The product has no value where what is not chosen has
    none.
    """
    column = ca.densify(ca.SX(expressions))
    symbols = ca.vertcat(*ca.symvar(ca.vertcat(column, switches)))

    def operation(name: str, operands: list[Any]) -> Any:
        if name == "IF_ELSE_ZERO" and _is_switch(operands[0], switches):
            return operands[0] * operands[1]
        return apply_to_sx(name, operands)

    rows = Graph.of(column, [symbols]).evaluate(lambda _, i: symbols[i], ca.SX, operation)
    return ca.vertcat(*rows)


def _is_switch(condition: Any, switches: Any) -> bool:
    """Whether it is one of the switches, which are 0 or 1, or 1 less one."""
    return any(
        ca.is_equal(condition, form, 2) for s in ca.vertsplit(switches) for form in (s, 1 - s)
    )


class _Switches:
    def __init__(self, clock: TimeSymbols, known: Iterable[float]) -> None:
        self.clock, self.known = clock, [float(t) for t in known]
        self.switches: list[Any] = []
        self.tables: list[Table] = []
        self.conditions: list[tuple[Any, Table]] = []

    def without(self, expressions: Any) -> Any:
        """The column with switches where it has conditions on time."""
        column = ca.densify(ca.SX(expressions))
        if not self.clock.moves(column):
            return expressions
        graph = self.clock.graph()
        rows = graph.rows(column)
        jumps = [n.operation in CONDITIONS and _of_time_alone(n) for n in graph.nodes]
        if not any(jumps):
            return expressions
        made: list[Any] = []
        for k, node in enumerate(graph.nodes):
            if jumps[k] or not node.operands:
                made.append(node.expression)
                continue
            used = [self._held(graph.nodes[i]) if jumps[i] else made[i] for i in node.operands]
            made.append(apply_to_sx(node.operation, used))
        wanted = [self._held(graph.nodes[r]) if jumps[r] else made[r] for r in rows]
        return ca.reshape(ca.vertcat(*wanted), *column.shape)

    def _held(self, node: _Node) -> Any:
        """The switch of a condition, or its number."""
        (function,) = self.clock.function(node.expression)
        t, inputs, q = function.sx_in()
        two = ca.Function("alone", [t, inputs], [function(t, inputs, ca.DM.zeros(*q.shape))])
        found = switched(two, self.clock.segments)
        table = self._placed(found)
        self.conditions.append((two, table))
        if len(found.values) == 1:
            return ca.SX(found.values[0])
        return self._symbol(table)

    def _placed(self, found: Switched) -> Table:
        times = [self._at(float(t)) for t in found.times]
        return Table(np.array(times), found.values, hold=True)

    def _at(self, time: float) -> float:
        for other in self.known:
            if abs(other - time) <= SAME * np.spacing(max(abs(other), abs(time))):
                return other
        self.known.append(time)
        return time

    def _symbol(self, table: Table) -> Any:
        for symbol, other in zip(self.switches, self.tables, strict=True):
            if np.array_equal(table.times, other.times):
                if np.array_equal(table.values, other.values):
                    return symbol
                if np.array_equal(table.values, 1 - other.values):
                    return 1 - symbol
        self.switches.append(ca.SX.sym(f"switch {len(self.switches)}"))
        self.tables.append(table)
        return self.switches[-1]


def _of_time_alone(node: _Node) -> bool:
    return node.by_time and not node.depends & (UNKNOWN | STATE)


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
    graph = clock.graph()
    rows = graph.rows(column)
    known: list[Changing] = []
    moving: list[Changing] = []
    alone = replace(clock, q=ca.SX(0, 1))
    for expression, by_unknown in _irregular(graph, rows):
        if by_unknown:
            moving.append(Changing(*clock.function(expression, 2)))
        else:
            known.append(Changing(*alone.function(expression, 2)))
    times = _times(clock.segments, known, np.zeros(0), ())
    return Stops(clock.segments, times, tuple(known), tuple(moving))


def _times(
    segments: Segments,
    functions: Iterable[Changing],
    numbers: FloatArray,
    known: tuple[float, ...],
    *,
    through: bool = False,
) -> tuple[float, ...]:
    """Increasing, inside the horizon, none where the segments have an edge anyway."""
    found = [abrupt(f, segments, numbers, through=through) for f in functions]
    times = np.unique(np.concatenate([np.array(known), *found]))
    near = 1e-12 * (segments.edges[-1] - segments.edges[0])
    kept: list[float] = []
    for time in times:
        apart = np.abs(segments.edges - time).min() > near and (not kept or time - kept[-1] > near)
        if apart and segments.edges[0] < time < segments.edges[-1]:
            kept.append(float(time))
    return tuple(kept)


def _irregular(graph: _Graph, rows: list[int]) -> Iterator[tuple[Any, bool]]:
    """The largest parts that depend on no state and may have pulses; whether unknowns move them.

    Sums are taken apart, so that a small pulse beside a large one counts as much.
    """
    seen: set[int] = set()
    open_ = list(rows)
    while open_:
        k = open_.pop()
        node = graph.nodes[k]
        if k in seen or not node.by_time:
            continue
        seen.add(k)
        nodes = [graph.nodes[i] for i in node.operands]
        if node.depends & STATE:
            open_ += node.operands
            if node.operation == "EXP":  # exp(s(t) + x) = exp(s(t)) exp(x)
                for part, sign in _terms(graph, node.operands[0], 1):
                    yield ca.exp(sign * part.expression), bool(part.depends & UNKNOWN)
        elif _is_linear(node.operation, nodes):
            open_ += node.operands
        elif not node.is_regular:
            yield node.expression, bool(node.depends & UNKNOWN)


def _terms(graph: _Graph, k: int, sign: int) -> Iterator[tuple[_Node, int]]:
    """The terms of a sum that depend on time, on no state, and not linearly; with their signs."""
    node = graph.nodes[k]
    if not node.depends & STATE:
        if node.by_time and not node.is_affine:
            yield node, sign
    elif node.operation in SUMS:
        first = -sign if node.operation == "NEG" else sign
        rest = -sign if node.operation == "SUB" else sign
        for i, own in zip(node.operands, (first, rest), strict=False):
            yield from _terms(graph, i, own)
