"""CasADi's elementary operations, by name and in the order of a function's instructions.

A CasADi expression as a list of operations, equal ones made one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray

OPERATION_NAMES: dict[int, str] = {
    getattr(ca, n): n.removeprefix("OP_") for n in dir(ca) if n.startswith("OP_")
}
"""What `Function.instruction_id` returns -> CasADi's name of it, without OP_."""

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
"""Those that Python's own operators carry out, on whatever has them."""

CONDITION = "a condition (Expr_if)"
WORDS = {
    **dict.fromkeys(("LT", "LE", "EQ", "NE", "NOT", "AND", "OR", "IF_ELSE_ZERO"), CONDITION),
    "FABS": "abs",
    "FMIN": "a minimum (min)",
    "FMAX": "a maximum (max)",
}
"""What users call operations whose names in CasADi are others."""


def in_words(names: Iterable[str]) -> str:
    """Operations as users call them, for messages."""
    return ", ".join(sorted({WORDS.get(n.upper(), n.lower()) for n in names}))


T = TypeVar("T")


def replayed(
    function: Any,
    given: Callable[[int, int], T],
    constant: Callable[[float], T],
    apply: Callable[[int, list[T]], T],
) -> dict[int, T]:
    """An SX function's result, built again of something else.

    function  with one output
    given     (argument, element) -> what stands for it
    constant  number -> what stands for it
    apply     (operation's number, operands) -> what stands for the operation
    returns   element of the result -> what it is; structural zeros are left out
    """
    work: dict[int, T] = {}
    results: dict[int, T] = {}
    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if operation == ca.OP_OUTPUT:
            results[outputs[1]] = work[inputs[0]]
        elif operation == ca.OP_INPUT:
            work[outputs[0]] = given(inputs[0], inputs[1])
        elif operation == ca.OP_CONST:
            work[outputs[0]] = constant(function.instruction_constant(k))
        else:
            work[outputs[0]] = apply(operation, [work[i] for i in inputs])
    return results


def as_before(operation: int, operands: list[Any]) -> Any:
    """The operation on SX operands."""
    return (ca.SX.unary if len(operands) == 1 else ca.SX.binary)(operation, *operands)


class Node(NamedTuple):
    """One operation of the expression; equal operations are one node.

    name       CasADi's name without OP_, or KNOWN, PARAMETER, CONST
    arguments  positions of the nodes it is applied to
    value      of a CONST; index of a KNOWN or PARAMETER
    """

    name: str
    arguments: tuple[int, ...]
    value: float = 0.0


def nodes_of(function: Any) -> tuple[list[Node], list[int]]:
    """The function's instructions, with equal ones made one, and which are its results."""
    position: dict[Node, int] = {}

    def number(node: Node) -> int:
        return position.setdefault(node, len(position))

    results = replayed(
        function,
        lambda argument, i: number(Node(("KNOWN", "PARAMETER")[argument], (), i)),
        lambda value: number(Node("CONST", (), value)),
        lambda code, operands: number(Node(OPERATION_NAMES[code], tuple(operands))),
    )
    return list(position), [results[i] for i in range(function.numel_out(0))]


def depth_of(nodes: list[Node]) -> int:
    """Length of the longest chain of operations."""
    depth: list[int] = []
    for node in nodes:
        depth.append(1 + max((depth[a] for a in node.arguments), default=0))
    return max(depth, default=0)


def numbers_of(nodes: list[Node], known: FloatArray, parameters: FloatArray) -> list[FloatArray]:
    """What each node is, (n, n_places) or broadcastable to it.

    known (n_known, n_places);  parameters (n, J)
    """
    found: list[FloatArray] = []
    with np.errstate(all="ignore"):
        for node in nodes:
            if node.name == "CONST":
                found.append(np.full((1, 1), node.value))
            elif node.name == "KNOWN":
                found.append(known[None, int(node.value)])
            elif node.name == "PARAMETER":
                found.append(parameters[:, int(node.value), None])
            else:
                found.append(_NUMBERS[node.name](*(found[a] for a in node.arguments)))
    return found


_NUMBERS: Mapping[str, Callable[..., FloatArray]] = {
    "ASSIGN": np.positive,
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
    "INV": np.reciprocal,
    "NEG": np.negative,
    "TWICE": lambda a: 2 * a,
    "SQ": np.square,
    "POW": np.power,
    "CONSTPOW": np.power,
    "SQRT": np.sqrt,
    "EXP": np.exp,
    "LOG": np.log,
    "TANH": np.tanh,
    "SIN": np.sin,
    "COS": np.cos,
    "FABS": np.abs,
}
"""The operations on numbers."""
