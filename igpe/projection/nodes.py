"""A CasADi expression as a list of operations, equal ones made one."""

from typing import Any, NamedTuple

from igpe.equations.operations import OPERATION_NAMES


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
    work: dict[int, int] = {}
    position: dict[Node, int] = {}
    results = [0] * function.numel_out(0)

    def number(node: Node) -> int:
        return position.setdefault(node, len(position))

    for k in range(function.n_instructions()):
        name = OPERATION_NAMES[function.instruction_id(k)]
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if name == "OUTPUT":
            results[outputs[1]] = work[inputs[0]]
        elif name == "INPUT":
            kind = ("KNOWN", "PARAMETER")[inputs[0]]
            work[outputs[0]] = number(Node(kind, (), inputs[1]))
        elif name == "CONST":
            work[outputs[0]] = number(Node(name, (), function.instruction_constant(k)))
        else:
            arguments = tuple(work[i] for i in inputs[: _arity(function.instruction_id(k))])
            work[outputs[0]] = number(Node(name, arguments))
    return list(position), results


def depth_of(nodes: list[Node]) -> int:
    """Length of the longest chain of operations."""
    depth: list[int] = []
    for node in nodes:
        depth.append(1 + max((depth[a] for a in node.arguments), default=0))
    return max(depth, default=0)


def _arity(operation: int) -> int:
    return 2 if OPERATION_NAMES[operation] in _BINARY else 1


_BINARY = {"ADD", "SUB", "MUL", "DIV", "POW", "CONSTPOW"}
