"""CasADi's elementary operations, by name and in the order of a function's instructions."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import casadi as ca

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
