"""CasADi expressions as a list of sums, products, quotients and integrals.

Sums, products and quotients of power series follow from their coefficients. Every other function is
the integral of something made of these: z = exp(g) of z g', z = log(g) of g'/g, z = g**c of
c z g'/g. So its series follows from that of g and from one number, its value at the start.

Bounds of the degrees of rational expressions, for the probability that a random point misleads.

With f = P/Q and numerator and denominator of degree at most d in all variables, coefficient k of
the series is P[k] / Q**(2k), and each further order adds at most 2 d to the degree of P[k]. A
derivative by an unknown and the output on top add d each; start values of degree s multiply all by
s. By the lemma of Schwartz and Zippel a polynomial of degree D vanishes at a random point of a
field of p numbers with probability D/p at most.

An initial value problem with outputs, as it is expanded in power series.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import casadi as ca

from igpe.equations.operations import Graph, Node
from igpe.equations.symbols import stack

MOST_FACTORS = 64  # of a whole power that is multiplied out


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

    def add(self, a: int, b: int) -> int:
        """a + b."""
        return self.put(Node("ADD", (a, b)))

    def sub(self, a: int, b: int) -> int:
        """a - b."""
        return self.put(Node("SUB", (a, b)))

    def mul(self, a: int, b: int) -> int:
        """a b."""
        return self.put(Node("MUL", (a, b)))

    def div(self, a: int, b: int) -> int:
        """a / b."""
        return self.put(Node("DIV", (a, b)))

    def neg(self, a: int) -> int:
        """-a."""
        return self.sub(self.constant(0.0), a)

    def integral(self, name: str, g: int, weight: Callable[[int], int], value: float = 0.0) -> int:
        """The function of that name of g; weight(z) is w in z' = w g'."""
        key = Node(name, (g,), value)
        if key not in self._positions:
            place = self.append(key)
            self.nodes[place] = key._replace(arguments=(g, weight(place)))
        return self._positions[key]

    def exp(self, g: int) -> int:
        """exp(g): w = z."""
        return self.integral("exp", g, lambda z: z)

    def log(self, g: int) -> int:
        """log(g): w = 1/g."""
        return self.integral("log", g, lambda z: self.inv(g))

    def inv(self, a: int) -> int:
        """1 / a."""
        return self.div(self.constant(1.0), a)

    def sin(self, g: int) -> int:
        """sin(g): w = cos(g), which is made with it."""
        return self.integral("sin", g, lambda z: self.cos(g))

    def cos(self, g: int) -> int:
        """cos(g): w = -sin(g)."""
        return self.integral("cos", g, lambda z: self.neg(self.sin(g)))

    def power(self, a: int, b: int) -> int:
        """a**b, multiplied out where b is an integer."""
        if self.nodes[b].name != "CONST":
            return self.exp(self.mul(b, self.log(a)))
        return self.constant_power(a, self.nodes[b].value)

    def constant_power(self, a: int, c: float) -> int:
        """a**c: w = c z / a."""
        if c != round(c) or abs(c) > MOST_FACTORS:
            factor = self.constant(c)
            return self.integral("power", a, lambda z: self.div(self.mul(factor, z), a), c)
        result = self.constant(1.0)
        for bit in f"{int(abs(c)):b}":
            result = self.mul(result, result)
            result = self.mul(result, a) if bit == "1" else result
        return result if c >= 0 else self.inv(result)


ELEMENTARY = frozenset({"CONST", "INPUT", "ADD", "SUB", "MUL", "DIV"})
"""Names of the nodes of a `SeriesGraph` that are no integrals."""


def series_graph(expressions: Any, symbols: list[Any], steady: tuple[bool, ...]) -> SeriesGraph:
    """The graph of an SX column in columns of symbols.

    steady  for each column, whether it does not vary with time
    raises  UnknownOperation
    """
    source, graph = Graph.of(expressions, symbols), SeriesGraph(steady)
    source.require(_RULES)
    graph.results = source.evaluate(
        lambda column, i: graph.put(Node("INPUT", place=(column, i))),
        graph.constant,
        lambda name, operands: _RULES[name](graph, *operands),
    )
    return graph


def _two(graph: SeriesGraph, name: str, g: int) -> int:
    """(exp(g) +- exp(-g)) / 2."""
    up, down = graph.exp(g), graph.exp(graph.neg(g))
    return graph.mul(graph.constant(0.5), (graph.add if name == "cosh" else graph.sub)(up, down))


def _rest(graph: SeriesGraph, g: int, sign: float) -> int:
    """1 + sign g**2."""
    return graph.add(graph.constant(1.0), graph.mul(graph.constant(sign), graph.mul(g, g)))


def _tanh(graph: SeriesGraph, g: int) -> int:
    return graph.integral("tanh", g, lambda z: _rest(graph, z, -1.0))


def _inverse_function(name: str, sign: float, power: float) -> Callable[[SeriesGraph, int], int]:
    """A function with derivative (1 + sign g**2)**power."""
    return lambda graph, g: graph.integral(
        name, g, lambda z: graph.constant_power(_rest(graph, g, sign), power)
    )


_RULES: Mapping[str, Callable[..., int]] = {
    "ASSIGN": lambda graph, a: a,
    "ADD": SeriesGraph.add,
    "SUB": SeriesGraph.sub,
    "MUL": SeriesGraph.mul,
    "DIV": SeriesGraph.div,
    "INV": SeriesGraph.inv,
    "NEG": SeriesGraph.neg,
    "TWICE": lambda graph, a: graph.add(a, a),
    "SQ": lambda graph, a: graph.mul(a, a),
    "POW": SeriesGraph.power,
    "CONSTPOW": SeriesGraph.power,
    "SQRT": lambda graph, a: graph.constant_power(a, 0.5),
    "EXP": SeriesGraph.exp,
    "LOG": SeriesGraph.log,
    "SIN": SeriesGraph.sin,
    "COS": SeriesGraph.cos,
    "TAN": lambda graph, a: graph.div(graph.sin(a), graph.cos(a)),
    "SINH": lambda graph, a: _two(graph, "sinh", a),
    "COSH": lambda graph, a: _two(graph, "cosh", a),
    "TANH": _tanh,
    "ATAN": _inverse_function("atan", 1.0, -1.0),
    "ATANH": _inverse_function("atanh", -1.0, -1.0),
    "ASINH": _inverse_function("asinh", 1.0, -0.5),
    "ASIN": _inverse_function("asin", -1.0, -0.5),
}
"""How CasADi's operations become sums, products, quotients and integrals."""


def degree(graph: SeriesGraph) -> int:
    """d, for all outputs over their common denominator; integrals count as variables."""
    degrees: list[tuple[int, int]] = []
    for node in graph.nodes:
        degrees.append(_of_node(node, degrees))
    integrals = [_of_derivative(n, degrees) for n in graph.nodes if n.name not in ELEMENTARY]
    outputs = [*(degrees[i] for i in set(graph.results)), *integrals]
    below = sum(down for _, down in outputs)
    return max((up for up, _ in outputs), default=0) + below


def degree_of_minor(d: int, start: int, orders: int, rank: int) -> int:
    """Bound of the degree of a minor of the sensitivity matrix, mixed rows included.

    d, start  degrees of the equations, and of the start values in what was drawn
    """
    return rank * (start * (2 * d * (orders + 1) + 1) + 1)


def _of_node(node: Node, degrees: list[tuple[int, int]]) -> tuple[int, int]:
    """Degrees of numerator and denominator."""
    if node.name == "CONST":
        return 0, 0
    if node.name == "INPUT" or node.name not in ELEMENTARY:
        return 1, 0
    (a, b), (c, d) = (degrees[i] for i in node.arguments)
    if node.name == "MUL":
        return a + c, b + d
    if node.name == "DIV":
        return a + d, b + c
    return max(a + d, b + c), b + d


def _of_derivative(node: Node, degrees: list[tuple[int, int]]) -> tuple[int, int]:
    """Of w times the derivative of g by its variables."""
    (a, b), (c, d) = (degrees[i] for i in node.arguments)
    return a + d + c, 2 * b + d


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
    inputs           (n_u,) keys: without pieces an input is a function of time of which nothing is
                     known; inputs with the same key are the same function
    pieces           the inputs as they are, up to the last measurement
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
    inputs: tuple[Hashable, ...] = field(default=())
    pieces: tuple[InputSegment, ...] = ()

    @property
    def symbols(self) -> list[Any]:
        """The arguments of f, g and the outputs."""
        return [self.x, self.y, self.q, self.u, self.t]

    def instants(self) -> "list[Dynamics]":
        """The dynamics as each piece begins, its inputs as numbers; itself without pieces."""
        levels = dict.fromkeys(piece.levels for piece in self.pieces)
        return [self._held(one) for one in levels] or [self]

    def _held(self, levels: tuple[Fraction, ...]) -> "Dynamics":
        old, new = [self.u], [stack(float(v) for v in levels)]
        f, g, outputs = ca.substitute([self.f, self.g, self.outputs], old, new)
        empty = ca.SX(0, 1)
        return replace(self, u=empty, f=f, g=g, outputs=outputs, inputs=(), pieces=())
