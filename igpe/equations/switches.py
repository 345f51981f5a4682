"""Conditions of a model that its unknowns decide.

Where an unknown moves the time at which `Expr_if` changes its branch, sensitivities lack the jump
that they make there. Conditions of our own (`with_safe_powers`) do not count: nothing jumps there.
"""

from typing import Any, NamedTuple

import casadi as ca

from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.operations import replayed

COMPARISONS = frozenset({ca.OP_LT, ca.OP_LE, ca.OP_EQ, ca.OP_NE})
JUMPS = frozenset({ca.OP_FLOOR, ca.OP_CEIL, ca.OP_SIGN})  # conditions as well


def switching(ivp: InitialValueProblem) -> tuple[str, ...]:
    """The free unknowns that a condition of the model depends on, directly or through states."""
    symbols = ca.vertcat(ivp.q, ivp.x, ivp.y, ivp.t, ivp.u)
    graph = _Graph()
    results = [_rows(graph, symbols, part) for part in (ivp.f, ivp.start, ivp.g, ivp.measured)]
    n_q, n_x, n_y = (v.numel() for v in (ivp.q, ivp.x, ivp.y))
    by_slope, by_start, by_rest, _ = results
    needs = {n_q + i: by_slope.get(i, 0) | by_start.get(i, 0) for i in range(n_x)}
    implicit = _union(by_rest.values())
    needs |= {n_q + n_x + i: implicit for i in range(n_y)}
    found = _closed(_union(graph.conditions()), needs)
    return tuple(name for i, name in enumerate(ivp.unknowns) if found >> i & 1)


class _Node(NamedTuple):
    """An operation: on which nodes, on which symbols it depends (bits), its number if constant."""

    operation: int
    operands: tuple[int, ...]
    symbols: int
    number: float | None = None


class _Graph:
    """Expressions as nodes; each knows the nodes before it."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []

    def given(self, _: int, element: int) -> int:
        """The node of a symbol."""
        return self._add(_Node(ca.OP_INPUT, (), 1 << element))

    def constant(self, number: float) -> int:
        """The node of a number."""
        return self._add(_Node(ca.OP_CONST, (), 0, number))

    def apply(self, operation: int, operands: list[int]) -> int:
        """The node of an operation."""
        symbols = _union(self.nodes[i].symbols for i in operands)
        return self._add(_Node(operation, tuple(operands), symbols))

    def conditions(self) -> list[int]:
        """The symbols of each condition of the model's own."""
        uses: dict[int, list[int]] = {}
        for k, node in enumerate(self.nodes):
            for i in node.operands:
                uses.setdefault(i, []).append(k)
        return [
            node.symbols
            for k, node in enumerate(self.nodes)
            if node.operation in JUMPS
            or (node.operation in COMPARISONS and not self._of_safe_power(k, uses))
        ]

    def _of_safe_power(self, condition: int, uses: dict[int, list[int]]) -> bool:
        """Whether all that depends on the condition is (base if base > 0 else 1) ** n, or 0."""
        zero, base = self.nodes[condition].operands
        if self.nodes[condition].operation != ca.OP_LT or self.nodes[zero].number != 0:
            return False
        negations = [k for k in uses[condition] if self.nodes[k].operation == ca.OP_NOT]
        chosen = [self.nodes[k] for k in uses[condition] if k not in negations]
        otherwise = [self.nodes[k] for i in negations for k in uses.get(i, [])]
        if any(n.operation != ca.OP_IF_ELSE_ZERO for n in (*chosen, *otherwise)):
            return False
        values = {n.operands[1] for n in chosen}
        rests = [self.nodes[n.operands[1]].number for n in otherwise]
        powers = {v for v in values if self._is_power_of(v, condition)}
        return bool(powers) and values == {base, *powers} and set(rests) <= {0.0, 1.0}

    def _is_power_of(self, node: int, condition: int) -> bool:
        """Whether it is (base if condition else 1) ** n, or that times something."""
        operation, operands, _, _ = self.nodes[node]
        if operation in {ca.OP_MUL, ca.OP_NEG, ca.OP_TWICE}:
            return any(self._is_power_of(i, condition) for i in operands)
        if operation == ca.OP_DIV:
            return self._is_power_of(operands[0], condition)
        if operation != ca.OP_POW or self.nodes[operands[0]].operation != ca.OP_ADD:
            return False
        parts = [self.nodes[i] for i in self.nodes[operands[0]].operands]
        return any(p.operation == ca.OP_IF_ELSE_ZERO and p.operands[0] == condition for p in parts)

    def _add(self, node: _Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def _rows(graph: _Graph, symbols: Any, expressions: Any) -> dict[int, int]:
    """The symbols that each row of a column depends on."""
    function = ca.Function("rows", [symbols], [ca.densify(expressions)])
    found = replayed(function, graph.given, graph.constant, graph.apply)
    return {i: graph.nodes[node].symbols for i, node in found.items()}


def _union(sets: Any) -> int:
    found = 0
    for each in sets:
        found |= each
    return found


def _closed(found: int, needs: dict[int, int]) -> int:
    """The set with all that its members depend on."""
    while True:
        more = found | _union(needed for i, needed in needs.items() if found >> i & 1)
        if more == found:
            return found
        found = more
