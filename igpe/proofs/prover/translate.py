"""CasADi's expressions as tapes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import casadi as ca

from igpe.equations.operations import Node, nodes_of
from igpe.proofs.prover.tape import (
    ADD,
    CONST,
    COS,
    EXP,
    INPUT,
    LOG,
    MUL,
    NEG,
    PARAMETER,
    POWER,
    SIN,
    SQUARE,
    STATE,
    SUB,
    TIME,
    Tape,
)
from igpe.proofs.prover.writer import Writer


class UnknownOperation(Exception):
    """An operation that has no enclosure here; its name is the message."""


class Symbols(NamedTuple):
    """What the expressions are made of: SX columns of states, parameters, inputs, and time."""

    x: Any
    q: Any
    u: Any
    t: Any


def tape(expressions: Any, symbols: Symbols, index: Sequence[int]) -> Tape:
    """The expressions as a tape.

    index   which of the problem's unknowns each entry of `symbols.q` is
    raises  UnknownOperation
    """
    variables = ca.vertcat(symbols.x, symbols.q, symbols.u, symbols.t)
    function = ca.Function("f", [ca.SX(0, 1), variables], [ca.densify(expressions)])
    nodes, results = nodes_of(function)
    leaves = [(STATE, i) for i in range(symbols.x.numel())]
    leaves += [(PARAMETER, int(k)) for k in index]
    leaves += [(INPUT, i) for i in range(symbols.u.numel())] + [(TIME, 0)]
    return _Translator(nodes, leaves).written(results)


class _Translator(Writer):
    """Translates nodes one by one."""

    def __init__(self, nodes: list[Node], leaves: list[tuple[int, int]]) -> None:
        super().__init__()
        self.nodes, self.leaves = nodes, leaves
        self.places: list[int] = []

    def written(self, results: Sequence[int]) -> Tape:
        for node in self.nodes:
            self.places.append(self._node(node))
        return self.finished([self.places[r] for r in results])

    def _node(self, node: Node) -> int:
        if node.name == "CONST":
            return self.put(CONST, number=node.value)
        if node.name == "PARAMETER":
            op, k = self.leaves[int(node.value)]
            return self.put(op, k)
        if node.name not in _RULES:
            raise UnknownOperation(node.name.lower())
        return _RULES[node.name](self, *(self.places[k] for k in node.arguments))


_RULES: Mapping[str, Callable[..., int]] = {
    "ASSIGN": lambda w, a: a,
    "ADD": lambda w, a, b: w.put(ADD, a, b),
    "SUB": lambda w, a, b: w.put(SUB, a, b),
    "MUL": lambda w, a, b: w.product(a, b),
    "DIV": lambda w, a, b: w.quotient(a, b),
    "INV": lambda w, a: w.one_over(a),
    "NEG": lambda w, a: w.put(NEG, a),
    "TWICE": lambda w, a: w.put(MUL, w.put(CONST, number=2.0), a),
    "SQ": lambda w, a: w.put(SQUARE, a),
    "POW": lambda w, a, b: w.power(a, b),
    "CONSTPOW": lambda w, a, b: w.power(a, b),
    "SQRT": lambda w, a: w.function(POWER, a, 0.5),
    "EXP": lambda w, a: w.function(EXP, a),
    "LOG": lambda w, a: w.function(LOG, a),
    "SIN": lambda w, a: w.function(SIN, a),
    "COS": lambda w, a: w.function(COS, a),
    "TANH": lambda w, a: w.tanh(a),
}
"""By CasADi's name of the operation."""
