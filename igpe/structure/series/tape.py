"""CasADi expressions as a list of sums, products, quotients and integrals.

Sums, products and quotients of power series follow from their coefficients. Every other function is
the integral of something made of these: z = exp(g) of z g', z = log(g) of g'/g, z = g**c of
c z g'/g. So its series follows from that of g and from one number, its value at the start.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import casadi as ca

from igpe.equations.operations import OPERATION_NAMES, replayed

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
