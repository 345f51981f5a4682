"""A CasADi expression as a list of operations, equal ones made one."""

from typing import Any, NamedTuple

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
