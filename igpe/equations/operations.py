"""CasADi expressions as a list of operations, which is evaluated on any arithmetic.

`Graph` is the only place where igpe reads CasADi's instructions (the checker keeps its own reader).
Taylor models, power series modulo a prime, polynomials, sums of products, intervals and the
prover's code are made of it by rules: name of the operation -> what to do with the operands.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray

OPERATION_NAMES: dict[int, str] = {
    getattr(ca, n): n.removeprefix("OP_") for n in dir(ca) if n.startswith("OP_")
}
"""What `Function.instruction_id` returns -> CasADi's name of it, without OP_."""


def operation_names(function: Any) -> Iterator[str]:
    """The names of an SX function's operations, in their order."""
    return (OPERATION_NAMES[function.instruction_id(k)] for k in range(function.n_instructions()))


_CODES = {name: code for code, name in OPERATION_NAMES.items()}

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "ASSIGN": lambda a: a,
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "DIV": lambda a, b: a / b,
    "NEG": lambda a: -a,
    "INV": lambda a: 1 / a,
    "TWICE": lambda a: 2 * a,
    "POW": lambda a, b: a**b,
    "CONSTPOW": lambda a, b: a**b,
}
"""Rules for the operations that Python's operators carry out, on any type that has them."""

WORDS = {
    **dict.fromkeys(
        ("LT", "LE", "EQ", "NE", "NOT", "AND", "OR", "IF_ELSE_ZERO"),
        "a condition on states or unknowns (Expr_if)",
    ),
    "FABS": "an absolute value (abs)",
    "FMIN": "a minimum (min)",
    "FMAX": "a maximum (max)",
}
"""What users call operations whose names in CasADi are others."""


def in_words(names: Iterable[str]) -> str:
    """Operations as users call them, for messages."""
    return ", ".join(sorted({WORDS.get(n.upper(), n.lower()) for n in names}))


class UnknownOperation(Exception):
    """Expressions contain operations for which there is no rule; the message names them."""


T = TypeVar("T")


class Node(NamedTuple):
    """One operation.

    name       CasADi's name without OP_; INPUT for a symbol, CONST for a number
    arguments  positions of the nodes it is applied to
    value      of a CONST
    place      of an INPUT: which column of symbols, and which of its elements
    """

    name: str
    arguments: tuple[int, ...] = ()
    value: float = 0.0
    place: tuple[int, int] = (0, 0)


class Graph:
    """Operations in the order in which they are computed.

    nodes    each stands behind its arguments; equal ones are one
    results  positions of the nodes that the expressions are
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.results: list[int] = []
        self._positions: dict[Node, int] = {}

    @classmethod
    def of(cls, expressions: Any, symbols: Sequence[Any]) -> Self:
        """The graph of an SX column in columns of symbols."""
        return cls.of_function(ca.Function("f", list(symbols), [ca.densify(expressions)]))

    @classmethod
    def of_function(cls, function: Any, *, merged: bool = True) -> Self:
        """The graph of an SX function with one dense output.

        merged  whether equal operations become one node; else each instruction is a node
        """
        graph = cls()
        put = graph.put if merged else graph.append
        work: dict[int, int] = {}
        for k in range(function.n_instructions()):
            name = OPERATION_NAMES[function.instruction_id(k)]
            inputs, outputs = function.instruction_input(k), function.instruction_output(k)
            if name == "OUTPUT":
                graph.results.append(work[inputs[0]])
            elif name == "INPUT":
                work[outputs[0]] = put(Node(name, place=(inputs[0], inputs[1])))
            elif name == "CONST":
                work[outputs[0]] = put(Node(name, value=function.instruction_constant(k)))
            else:
                work[outputs[0]] = put(Node(name, tuple(work[i] for i in inputs)))
        return graph

    def put(self, node: Node) -> int:
        """The position of the node, which is appended if it is new."""
        return self._positions[node] if node in self._positions else self.append(node)

    def append(self, node: Node) -> int:
        """Append the node and return its position."""
        position = self._positions[node] = len(self.nodes)
        self.nodes.append(node)
        return position

    def require(self, rules: Iterable[str]) -> None:
        """Raise UnknownOperation unless there is a rule for every operation."""
        if unknown := {n.name for n in self.nodes} - {*rules, "INPUT", "CONST"}:
            raise UnknownOperation(in_words(unknown))

    def depth(self) -> int:
        """Length of the longest chain of operations."""
        depth: list[int] = []
        for node in self.nodes:
            depth.append(1 + max((depth[a] for a in node.arguments), default=0))
        return max(depth, default=0)

    def evaluate(
        self,
        symbol: Callable[[int, int], T],
        constant: Callable[[float], T],
        apply: Callable[[str, list[T]], T],
    ) -> list[T]:
        """The results, computed in another arithmetic.

        symbol    (column, element) -> value of a symbol
        constant  value of a number
        apply     (operation's name, operands) -> value of the operation
        """
        values: list[T] = []
        for node in self.nodes:
            if node.name == "INPUT":
                values.append(symbol(*node.place))
            elif node.name == "CONST":
                values.append(constant(node.value))
            else:
                values.append(apply(node.name, [values[a] for a in node.arguments]))
        return [values[k] for k in self.results]

    @property
    def has_numbers(self) -> bool:
        """Whether `numbers` knows every operation."""
        return {n.name for n in self.nodes} <= {*_NUMBERS, "INPUT", "CONST"}

    def numbers(self, *columns: Sequence[FloatArray] | FloatArray) -> list[FloatArray]:
        """The results in floating point; each column holds arrays that broadcast."""
        with np.errstate(all="ignore"):
            return self.evaluate(
                lambda column, i: columns[column][i],
                lambda value: np.full((1, 1), value),
                lambda name, operands: _NUMBERS[name](*operands),
            )


def apply_to_sx(name: str, operands: Sequence[Any]) -> Any:
    """The operation on SX operands."""
    return (ca.SX.unary if len(operands) == 1 else ca.SX.binary)(_CODES[name], *operands)


_NUMBERS: Mapping[str, Callable[..., FloatArray]] = {
    **ARITHMETIC,
    "SQ": np.square,
    "SQRT": np.sqrt,
    "EXP": np.exp,
    "LOG": np.log,
    "TANH": np.tanh,
    "SIN": np.sin,
    "COS": np.cos,
    "FABS": np.abs,
}
