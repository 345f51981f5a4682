"""What functions compute but for their numbers: equal formulas are derived and compiled once.

`Formula` makes each use of a constant an entry of a new last input, before derivatives are taken,
with the operations as they are, so that no value changes by a bit. Constants that differentiation
treats in a way of their own, as exponents, stay in the formula. Where CasADi simplifies (products
with 0 or 1) the formula is another one, and rightly so: with an input of 0 a product with log(0) is
not there.
"""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.operations import OPERATION_NAMES, apply_to_sx

LIFTED = {
    getattr(ca, f"OP_{n}")
    for n in ("ADD", "SUB", "MUL", "DIV", "LT", "LE", "EQ", "NE", "IF_ELSE_ZERO", "FMIN", "FMAX")
} | {ca.OP_OUTPUT}
"""Operations whose derivative is the same formula whatever their constants are."""


class Formula:
    """An SX function with its numbers apart. Equal ones differ in nothing but these.

    plain    the function as it was
    numbers  (n,) what its last input, which `function` has besides, is to be
    """

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self._steps = list(_steps(plain))
        self.numbers: FloatArray = np.array([
            value for *_, lifted in self._steps for value in lifted.values()
        ])
        sizes = [str(plain.sparsity_in(i)) for i in range(plain.n_in())]
        results = [
            (plain.size_out(i), plain.sparsity_out(i).row(), plain.sparsity_out(i).colind())
            for i in range(plain.n_out())
        ]
        built = [
            (operation, inputs, outputs, value, tuple(lifted))
            for operation, inputs, outputs, value, lifted in self._steps
        ]
        self.key = hashlib.sha256(repr((sizes, results, built)).encode()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def function(self) -> Any:
        """The function with its numbers as a last input."""
        given, numbers = self.plain.sx_in(), ca.SX.sym("number", len(self.numbers))
        left, work = iter(ca.vertsplit(numbers) if len(self.numbers) else ()), dict[int, Any]()
        results = [[ca.SX(0)] * self.plain.nnz_out(i) for i in range(self.plain.n_out())]
        for operation, inputs, outputs, value, lifted in self._steps:
            if operation == ca.OP_CONST:
                work[outputs[0]] = ca.SX(value)
            elif operation == ca.OP_INPUT:
                work[outputs[0]] = given[inputs[0]].nz[inputs[1]]
            else:
                operands = [next(left) if i in lifted else work[k] for i, k in enumerate(inputs)]
                if operation == ca.OP_OUTPUT:
                    results[outputs[0]][outputs[1]] = operands[0]
                else:
                    work[outputs[0]] = apply_to_sx(OPERATION_NAMES[operation], operands)
        patterns = (self.plain.sparsity_out(i) for i in range(self.plain.n_out()))
        made = [
            ca.SX(pattern, ca.vertcat(*own)) if own else ca.SX(pattern)
            for pattern, own in zip(patterns, results, strict=True)
        ]
        return ca.Function(self.plain.name(), [*given, numbers], made)


def _steps(function: Any) -> Iterator[tuple[int, list[int], list[int], float, dict[int, float]]]:
    """Operation, where it reads and writes, its constant, and operands that are lifted."""
    constants: dict[int, float] = {}
    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        lifted: dict[int, float] = {}
        if operation == ca.OP_CONST:
            constants[outputs[0]] = float(function.instruction_constant(k))
            continue
        if operation != ca.OP_INPUT:
            lifted = {i: constants[n] for i, n in enumerate(inputs) if n in constants}
        if lifted and operation not in LIFTED:
            for i, number in lifted.items():
                yield ca.OP_CONST, [], [inputs[i]], number, {}
            lifted = {}
        if operation != ca.OP_OUTPUT:
            constants.pop(outputs[0], None)
        yield operation, inputs, outputs, 0.0, lifted
