"""CasADi expressions as sums, products, quotients and integrals, and the dynamics made of them.

Sums, products and quotients of power series follow from their coefficients. Every other function is
the integral of something made of these: z = exp(g) of z g', z = log(g) of g'/g, z = g**c of
c z g'/g. So its series follows from that of g and from one number, its value at the start.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import casadi as ca

from igpe.equations.operations import Graph, Node
from igpe.equations.symbols import stack

Weight = Callable[["SeriesGraph", int, int], int]
"""(graph, g, z) -> the node w in z' = w g'."""


class SeriesGraph(Graph):
    """Expressions of sums, products, quotients and integrals alone.

    A node with another name than ADD, SUB, MUL, DIV, CONST and INPUT is an integral: the function
    of that name of g, with arguments (g, w) and z' = w g'. w may stand behind it; the value is the
    exponent of a power.

    steady_columns  for each column of symbols, whether it does not vary with time
    steady          for each node, whether it does not vary with time
    """

    def __init__(self, steady_columns: tuple[bool, ...] = ()) -> None:
        super().__init__()
        self._steady_columns = steady_columns
        self.steady: list[bool] = []

    def append(self, node: Node) -> int:
        """Append the node and return its position."""
        is_symbol = node.name == "INPUT"
        still = (self.steady[a] for a in node.arguments)
        self.steady.append(self._steady_columns[node.place[0]] if is_symbol else all(still))
        return super().append(node)

    def constant(self, value: float) -> int:
        """The node of a number."""
        return self.put(Node("CONST", value=float(value)))

    def make(self, name: str, *operands: int) -> int:
        """The node of one of CasADi's operations."""
        known = name in ELEMENTARY
        return self.put(Node(name, operands)) if known else _RULES[name](self, *operands)

    def integral(self, name: str, g: int, weight: Weight, value: float = 0.0) -> int:
        """The function of that name of g, with z' = weight g'."""
        key = Node(name, (g,), value)
        if key not in self._positions:
            place = self.append(key)
            self.nodes[place] = key._replace(arguments=(g, weight(self, g, place)))
        return self._positions[key]

    def power(self, a: int, c: float) -> int:
        """a**c: w = c z / a. CasADi has made products of small whole powers."""
        factor = self.constant(c)
        return self.integral(
            "power", a, lambda graph, a, z: graph.make("DIV", graph.make("MUL", factor, z), a), c
        )


def series_graph(expressions: Any, symbols: list[Any], steady: tuple[bool, ...]) -> SeriesGraph:
    """The graph of an SX column in columns of symbols.

    steady  for each column, whether it does not vary with time
    raises  UnknownOperation
    """
    source, graph = Graph.of(expressions, symbols), SeriesGraph(steady)
    source.require(ELEMENTARY | _RULES.keys())
    graph.results = source.evaluate(
        lambda column, i: graph.put(Node("INPUT", place=(column, i))),
        graph.constant,
        lambda name, operands: graph.make(name, *operands),
    )
    return graph


def _square_and(graph: SeriesGraph, g: int, sign: float) -> int:
    """1 + sign g**2."""
    signed = graph.make("MUL", graph.constant(sign), graph.make("MUL", g, g))
    return graph.make("ADD", graph.constant(1.0), signed)


def _hyperbolic(operation: str) -> Callable[[SeriesGraph, int], int]:
    """(exp(g) +- exp(-g)) / 2."""
    return lambda graph, g: graph.make(
        "MUL",
        graph.constant(0.5),
        graph.make(operation, graph.make("EXP", g), graph.make("EXP", graph.make("NEG", g))),
    )


def _inverse_function(name: str, sign: float, power: float) -> Callable[[SeriesGraph, int], int]:
    """A function with derivative (1 + sign g**2)**power."""

    def weight(graph: SeriesGraph, g: int, z: int) -> int:
        base = _square_and(graph, g, sign)
        return graph.make("INV", base) if power == -1 else graph.power(base, power)

    return lambda graph, g: graph.integral(name, g, weight)


def _general_power(graph: SeriesGraph, a: int, b: int) -> int:
    if graph.nodes[b].name == "CONST":
        return graph.power(a, graph.nodes[b].value)
    return graph.make("EXP", graph.make("MUL", b, graph.make("LOG", a)))


ELEMENTARY = frozenset({"CONST", "INPUT", "ADD", "SUB", "MUL", "DIV"})
"""Names of the nodes of a `SeriesGraph` that are no integrals."""

_RULES: Mapping[str, Callable[..., int]] = {
    "ASSIGN": lambda graph, a: a,
    "INV": lambda graph, a: graph.make("DIV", graph.constant(1.0), a),
    "NEG": lambda graph, a: graph.make("SUB", graph.constant(0.0), a),
    "TWICE": lambda graph, a: graph.make("ADD", a, a),
    "SQ": lambda graph, a: graph.make("MUL", a, a),
    "POW": _general_power,
    "CONSTPOW": _general_power,
    "SQRT": lambda graph, a: graph.power(a, 0.5),
    "EXP": lambda graph, a: graph.integral("exp", a, lambda graph, g, z: z),
    "LOG": lambda graph, a: graph.integral("log", a, lambda graph, g, z: graph.make("INV", g)),
    "SIN": lambda graph, a: graph.integral("sin", a, lambda graph, g, z: graph.make("COS", g)),
    "COS": lambda graph, a: graph.integral(
        "cos", a, lambda graph, g, z: graph.make("NEG", graph.make("SIN", g))
    ),
    "TAN": lambda graph, a: graph.make("DIV", graph.make("SIN", a), graph.make("COS", a)),
    "SINH": _hyperbolic("SUB"),
    "COSH": _hyperbolic("ADD"),
    "TANH": lambda graph, a: graph.integral(
        "tanh", a, lambda graph, g, z: _square_and(graph, z, -1.0)
    ),
    "ATAN": _inverse_function("atan", 1.0, -1.0),
    "ATANH": _inverse_function("atanh", -1.0, -1.0),
    "ASINH": _inverse_function("asinh", 1.0, -0.5),
    "ASIN": _inverse_function("asin", -1.0, -0.5),
}
"""How CasADi's operations become sums, products, quotients and integrals."""


class InputSegment(NamedTuple):
    """The inputs between two of their breaks; times count from the start.

    At time t0 + e s input i is levels[i] + e (rises[i] + slopes[i] (s - start)): at e = 1 as it is
    given, and for small e the experiment in which all times and ramps are e times as long.

    start, end  of the piece; end: None after the last break
    """

    start: Fraction
    end: Fraction | None
    levels: tuple[Fraction, ...]
    rises: tuple[Fraction, ...]
    slopes: tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class Dynamics:
    """dx = f(x, y, q, u, t),  0 = g(x, y, q, u, t),  x(t0) = start(q). All symbols are SX columns.

    x, y, q, u, t    symbols: states, implicit algebraic variables, unknowns, inputs, time
    f, g, start      see above
    outputs          SX column in the same symbols
    t0               the time at which the series begin
    columns          (n_q,) which of all unknowns each q is
    pieces           the inputs up to the last measurement; at least one where there are inputs
    """

    x: Any
    y: Any
    q: Any
    u: Any
    t: Any
    f: Any
    g: Any
    start: Any
    outputs: Any
    t0: float
    columns: tuple[int, ...]
    pieces: tuple[InputSegment, ...] = ()

    @property
    def symbols(self) -> list[Any]:
        """The arguments of f, g and the outputs."""
        return [self.x, self.y, self.q, self.u, self.t]

    def instants(self) -> "list[Dynamics]":
        """The dynamics as each piece begins, its inputs as numbers; itself without pieces."""
        result = []
        for levels in dict.fromkeys(piece.levels for piece in self.pieces):
            f, g, outputs = ca.substitute(
                [self.f, self.g, self.outputs], [self.u], [stack(float(v) for v in levels)]
            )
            empty = ca.SX(0, 1)
            result.append(replace(self, u=empty, f=f, g=g, outputs=outputs, pieces=()))
        return result or [self]
