"""What functions compute but for their numbers: equal formulas are derived and compiled once.

`SharedFormula` makes each use of a constant an entry of a new last input, before derivatives are
taken, with the operations as they are, so that no value changes by a bit. Constants that
differentiation treats in a way of their own, as exponents, stay in the formula. A number that most
rows of many contain, as the width of a cell, is one entry, and what rows compute of it is computed
once: it is the model's, and no experiment's own. Where CasADi
simplifies (products with 0 or 1) the formula is another one, and rightly so: with an input of 0 a
product with log(0) is not there.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
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
MANY = 40  # rows from which numbers that they have in common are looked for


class SharedFormula:
    """An SX function with its numbers apart. Equal ones differ in nothing but these.

    plain    the function as it was
    numbers  (n,) what its last input, which `function` has besides, is to be
    """

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self._steps = list(_steps(plain))
        values = [value for *_, lifted in self._steps for value in lifted.values()]
        self._places = _places(values, plain.size1_out(0))
        self.numbers: FloatArray = np.empty(max(self._places, default=-1) + 1)
        self.numbers[self._places] = values
        sizes = [str(plain.sparsity_in(i)) for i in range(plain.n_in())]
        results = [
            (plain.size_out(i), plain.sparsity_out(i).row(), plain.sparsity_out(i).colind())
            for i in range(plain.n_out())
        ]
        built = [
            (operation, inputs, outputs, value, tuple(lifted))
            for operation, inputs, outputs, value, lifted in self._steps
        ]
        parts = sizes, results, built, self._places
        self.key = hashlib.sha256(repr(parts).encode()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharedFormula) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def function(self) -> Any:
        """The function with its numbers as a last input."""
        given, numbers = self.plain.sx_in(), ca.SX.sym("number", len(self.numbers))
        single = ca.vertsplit(numbers) if len(self.numbers) else ()
        left, work = (single[k] for k in self._places), dict[int, Any]()
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
        return ca.Function(self.plain.name(), [*given, numbers], self.once(made))

    def once(self, results: Sequence[Any]) -> list[Any]:
        """Results in which what rows have in common is computed once, if numbers are shared."""
        is_shared = len(self._places) > len(self.numbers)
        return list(ca.cse(list(results))) if is_shared else list(results)


def _places(values: Sequence[float], rows: int) -> list[int]:
    """Where each number stands among the different ones; only frequent ones stand together."""
    counts = Counter(values) if rows >= MANY else Counter[float]()
    together: dict[float, int] = {}
    places: list[int] = []
    free = 0
    for value in values:
        place = together.get(value, free)
        if value and 2 * counts[value] >= rows:  # 0 has two signs
            together[value] = place
        free += place == free
        places.append(place)
    return places


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
