"""A CasADi expression as a list of operations, equal ones made one."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.operations import OPERATION_NAMES, replayed


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
