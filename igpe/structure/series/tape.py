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
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple

import casadi as ca

from igpe.equations.operations import OPERATION_NAMES, replayed
from igpe.equations.symbols import stack

MOST_FACTORS = 64  # of a whole power that is multiplied out


class Kind(Enum):
    """What a node is made of."""

    CONST = "number"
    INPUT = "symbol"
    ADD = "a + b"
    SUB = "a - b"
    MUL = "a b"
    DIV = "a / b"
    INTEGRAL = "z' = w g'"


class Node(NamedTuple):
    """One operation.

    arguments  positions of the nodes it is applied to; of an INTEGRAL g, and w, which may be later
    value      of a CONST; exponent of an INTEGRAL that is a power
    name       of the function that an INTEGRAL is; (argument, element) of an INPUT
    steady     whether it does not vary with time
    """

    kind: Kind
    arguments: tuple[int, ...]
    value: float
    name: Any
    steady: bool


class UnknownOperation(Exception):
    """An operation that has no derivative everywhere, or none that is known here."""


class Tape:
    """All nodes of an SX function with one dense output, in the order of their computation.

    function  its arguments are columns of symbols
    steady    for each argument, whether it does not vary with time
    nodes     equal ones are made one
    results   positions of the nodes that the outputs are
    raises    UnknownOperation
    """

    def __init__(self, function: Any, steady: tuple[bool, ...]) -> None:
        self.nodes: list[Node] = []
        self._position: dict[Any, int] = {}
        found = replayed(
            function,
            lambda a, i: self._node(Kind.INPUT, (), name=(a, i), steady=steady[a]),
            self.constant,
            self._applied,
        )
        zero = self.constant(0.0)
        self.results = [found.get(i, zero) for i in range(function.numel_out(0))]

    def constant(self, value: float) -> int:
        """The node of a number."""
        return self._node(Kind.CONST, (), value=float(value), steady=True)

    def add(self, a: int, b: int) -> int:
        """a + b."""
        return self._node(Kind.ADD, (a, b))

    def sub(self, a: int, b: int) -> int:
        """a - b."""
        return self._node(Kind.SUB, (a, b))

    def mul(self, a: int, b: int) -> int:
        """a b."""
        return self._node(Kind.MUL, (a, b))

    def div(self, a: int, b: int) -> int:
        """a / b."""
        return self._node(Kind.DIV, (a, b))

    def neg(self, a: int) -> int:
        """-a."""
        return self.sub(self.constant(0.0), a)

    def integral(self, name: str, g: int, weight: Callable[[int], int], value: float = 0.0) -> int:
        """The function of that name of g; weight(z) is w in z' = w g'."""
        key = (Kind.INTEGRAL, g, name, value)
        if key not in self._position:
            place = self._position[key] = len(self.nodes)
            steady = self.nodes[g].steady
            self.nodes.append(Node(Kind.INTEGRAL, (g, place), value, name, steady))
            w = weight(place)
            self.nodes[place] = Node(Kind.INTEGRAL, (g, w), value, name, steady)
        return self._position[key]

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
        """a**b, multiplied out where b is a whole number."""
        if self.nodes[b].kind is not Kind.CONST:
            return self.exp(self.mul(b, self.log(a)))
        return self.constant_power(a, self.nodes[b].value)

    def constant_power(self, a: int, c: float) -> int:
        """a**c: w = c z / a."""
        if c != round(c) or abs(c) > MOST_FACTORS:
            factor = self.constant(c)
            return self.integral("power", a, lambda z: self.div(self.mul(factor, z), a), c)
        found = self.constant(1.0)
        for bit in f"{int(abs(c)):b}":
            found = self.mul(found, found)
            found = self.mul(found, a) if bit == "1" else found
        return found if c >= 0 else self.inv(found)

    def _node(
        self,
        kind: Kind,
        arguments: tuple[int, ...],
        *,
        value: float = 0.0,
        name: Any = "",
        steady: bool | None = None,
    ) -> int:
        key = (kind, arguments, value, name)
        if key not in self._position:
            still = all(self.nodes[a].steady for a in arguments) if steady is None else steady
            self._position[key] = len(self.nodes)
            self.nodes.append(Node(kind, arguments, value, name, still))
        return self._position[key]

    def _applied(self, operation: int, operands: list[int]) -> int:
        name = OPERATION_NAMES[operation]
        if name not in _RULES:
            raise UnknownOperation(_NAMED.get(name, f"'{name.lower()}'"))
        return _RULES[name](self, *operands)


def tape_of(expressions: Any, symbols: list[Any], steady: tuple[bool, ...]) -> Tape:
    """The tape of an SX column in columns of symbols."""
    return Tape(ca.Function("f", symbols, [ca.densify(expressions)]), steady)


def _two(tape: Tape, name: str, g: int) -> int:
    """(exp(g) +- exp(-g)) / 2."""
    up, down = tape.exp(g), tape.exp(tape.neg(g))
    return tape.mul(tape.constant(0.5), (tape.add if name == "cosh" else tape.sub)(up, down))


def _rest(tape: Tape, g: int, sign: float) -> int:
    """1 + sign g**2."""
    return tape.add(tape.constant(1.0), tape.mul(tape.constant(sign), tape.mul(g, g)))


def _tanh(tape: Tape, g: int) -> int:
    return tape.integral("tanh", g, lambda z: _rest(tape, z, -1.0))


def _inverse_function(name: str, sign: float, power: float) -> Callable[[Tape, int], int]:
    """A function with derivative (1 + sign g**2)**power."""
    return lambda tape, g: tape.integral(
        name, g, lambda z: tape.constant_power(_rest(tape, g, sign), power)
    )


_RULES: Mapping[str, Callable[..., int]] = {
    "ASSIGN": lambda tape, a: a,
    "ADD": Tape.add,
    "SUB": Tape.sub,
    "MUL": Tape.mul,
    "DIV": Tape.div,
    "INV": Tape.inv,
    "NEG": Tape.neg,
    "TWICE": lambda tape, a: tape.add(a, a),
    "SQ": lambda tape, a: tape.mul(a, a),
    "POW": Tape.power,
    "CONSTPOW": Tape.power,
    "SQRT": lambda tape, a: tape.constant_power(a, 0.5),
    "EXP": Tape.exp,
    "LOG": Tape.log,
    "SIN": Tape.sin,
    "COS": Tape.cos,
    "TAN": lambda tape, a: tape.div(tape.sin(a), tape.cos(a)),
    "SINH": lambda tape, a: _two(tape, "sinh", a),
    "COSH": lambda tape, a: _two(tape, "cosh", a),
    "TANH": _tanh,
    "ATAN": _inverse_function("atan", 1.0, -1.0),
    "ATANH": _inverse_function("atanh", -1.0, -1.0),
    "ASINH": _inverse_function("asinh", 1.0, -0.5),
    "ASIN": _inverse_function("asin", -1.0, -0.5),
}
"""How CasADi's operations are made of the tape's own."""

_CHOICE = "a condition on states or unknowns"
_NAMED = dict.fromkeys(("LT", "LE", "EQ", "NE", "NOT", "AND", "OR", "IF_ELSE_ZERO"), _CHOICE) | {
    "FABS": "an absolute value",
    "FMIN": "a smallest value of several",
    "FMAX": "a largest value of several",
}
"""What the others are called, where CasADi's name says little."""


def degree(tape: Tape) -> int:
    """d, for all outputs over their common denominator; integrals count as variables."""
    found: list[tuple[int, int]] = []
    for node in tape.nodes:
        found.append(_of_node(node, found))
    integrals = [_of_derivative(node, found) for node in tape.nodes if node.kind is Kind.INTEGRAL]
    outputs = [*(found[i] for i in set(tape.results)), *integrals]
    below = sum(down for _, down in outputs)
    return max((up for up, _ in outputs), default=0) + below


def degree_of_minor(d: int, start: int, orders: int, rank: int) -> int:
    """Bound of the degree of a minor of the sensitivity matrix, mixed rows included.

    d, start  degrees of the equations, and of the start values in what was drawn
    """
    return rank * (start * (2 * d * (orders + 1) + 1) + 1)


def _of_node(node: Node, found: list[tuple[int, int]]) -> tuple[int, int]:
    """Degrees of numerator and denominator."""
    if node.kind is Kind.CONST:
        return 0, 0
    if node.kind in (Kind.INPUT, Kind.INTEGRAL):
        return 1, 0
    (a, b), (c, d) = (found[i] for i in node.arguments)
    if node.kind is Kind.MUL:
        return a + c, b + d
    if node.kind is Kind.DIV:
        return a + d, b + c
    return max(a + d, b + c), b + d


def _of_derivative(node: Node, found: list[tuple[int, int]]) -> tuple[int, int]:
    """Of w times the derivative of g by its variables."""
    (a, b), (c, d) = (found[i] for i in node.arguments)
    return a + d + c, 2 * b + d


class Piece(NamedTuple):
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
    pieces: tuple[Piece, ...] = ()

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
