"""Functions in which numbers are an input: problems that differ in numbers alone share one library.

Constant inputs, unknowns that are held and the model's own numbers come as constants of the
functions' operations. Here each use of a constant becomes an entry of a new last input, after
derivatives were taken and with the operations as they are, so that nothing computed changes by a
bit. Where CasADi simplifies (products with 0 or 1, half of twice something) the formula is another
one, and rightly so: with an input of 0 a product with log(0) is not there.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.operations import as_before


class Lifted(NamedTuple):
    """Functions with the same last input, which is to be `numbers` (n,)."""

    functions: tuple[Any, ...]
    numbers: FloatArray


def lifted(functions: Sequence[Any]) -> Lifted:
    """The SX functions with their constants as an input; names and other inputs stay."""
    found: list[float] = []
    symbols: list[Any] = []
    given = [function.sx_in() for function in functions]
    results = [_without(f, g, found, symbols) for f, g in zip(functions, given, strict=True)]
    numbers = ca.vertcat(*symbols) if symbols else ca.SX(0, 1)
    made = (
        ca.Function(f.name(), [*g, numbers], r)
        for f, g, r in zip(functions, given, results, strict=True)
    )
    return Lifted(tuple(made), np.array(found, dtype=float))


def _without(function: Any, given: list[Any], found: list[float], symbols: list[Any]) -> list[Any]:
    """The results with a symbol for each use of a constant, which are added to both lists."""
    work: dict[int, Any | float] = {}
    entries: list[list[Any]] = [[None] * function.nnz_out(i) for i in range(function.n_out())]

    def operand(place: int) -> Any:
        value = work[place]
        if not isinstance(value, float):
            return value
        found.append(value)
        symbols.append(ca.SX.sym("number"))
        return symbols[-1]

    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if operation == ca.OP_OUTPUT:
            entries[outputs[0]][outputs[1]] = operand(inputs[0])
        elif operation == ca.OP_CONST:
            work[outputs[0]] = float(function.instruction_constant(k))
        elif operation == ca.OP_INPUT:
            work[outputs[0]] = given[inputs[0]].nz[inputs[1]]
        else:
            work[outputs[0]] = as_before(operation, [operand(i) for i in inputs])
    patterns = (function.sparsity_out(i) for i in range(function.n_out()))
    return [
        ca.SX(pattern, ca.vertcat(*own)) if own else ca.SX(pattern)
        for pattern, own in zip(patterns, entries, strict=True)
    ]
