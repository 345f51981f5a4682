"""CasADi's expressions as a list of operations, evaluated on whatever has their arithmetic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import casadi as ca

from igpe.core.errors import Unsupported
from igpe.equations.operations import OPERATION_NAMES, in_words
from igpe.proofs.checker import functions


class Number(Protocol):
    """What a tape can be evaluated on: intervals, duals, polynomials."""

    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def __mul__(self, other: Self) -> Self: ...
    def __neg__(self) -> Self: ...
    def square(self) -> Self:
        """x * x."""

    def power(self, exponent: Self) -> Self:
        """To an exponent that is not known; 0 where it is not positive."""

    def through(self, function: functions.Coefficients) -> Self:
        """An elementary function of it."""


N = TypeVar("N", bound=Number)
Constant = Callable[[float], Any]


@dataclass(frozen=True)
class Step:
    """One operation: its number in CasADi, where its operands are and where its result goes."""

    operation: int
    operands: tuple[int, ...]
    result: int
    value: float


class Tape:
    """Expressions of vectors of symbols.

    inputs   SX vectors
    output   SX vector
    raises   Unsupported, naming the operation, where one has no enclosure here
    """

    def __init__(self, inputs: Sequence[Any], output: Any) -> None:
        function = ca.Function("f", list(inputs), [ca.densify(output)])
        self.length = int(ca.densify(output).numel())
        self.steps = [_step(function, k) for k in range(function.n_instructions())]
        unknown = {s.operation for s in self.steps} - set(RULES) - LEAVES
        if unknown:
            names = [OPERATION_NAMES[operation] for operation in unknown]
            raise Unsupported(
                f"The equations use {in_words(names)}. The checker has no bounds for that; it "
                "knows + - * / ** exp log sqrt sin cos tanh."
            )

    def __call__(self, inputs: Sequence[Sequence[N]], constant: Callable[[float], N]) -> list[N]:
        """The expressions' values for the symbols' values."""
        work: dict[int, N] = {}
        numbers: dict[int, float] = {}  # places are used again: constants that stand there now
        results: dict[int, N] = {}
        for s in self.steps:
            if s.operation == ca.OP_OUTPUT:
                results[s.result] = work[s.operands[0]]
                continue
            if s.operation == ca.OP_INPUT:
                found = inputs[s.operands[0]][s.operands[1]]
            elif s.operation == ca.OP_CONST:
                found = constant(s.value)
            elif s.operation in POWERS:
                base, exponent = s.operands
                found = _power(
                    work[base], work[exponent], numbers.get(exponent), base_known=base in numbers
                )
            else:
                rule: Callable[..., Any] = RULES[s.operation]
                found = rule(constant, *(work[i] for i in s.operands))
            work[s.result] = found
            numbers.pop(s.result, None)
            if s.operation == ca.OP_CONST:
                numbers[s.result] = s.value
        return [results[i] for i in range(self.length)]


LARGEST_POWER = 12
LEAVES = {ca.OP_INPUT, ca.OP_OUTPUT, ca.OP_CONST}
POWERS = {ca.OP_POW, ca.OP_CONSTPOW}


def _power(base: N, exponent: N, number: float | None, *, base_known: bool) -> N:
    """base ** exponent; `number` is the exponent where it is a constant.

    Of neither known it is 0 where the base is not positive: so it is integrated.
    """
    if number is None and not base_known:
        return base.power(exponent)
    if number is not None and number == int(number) and 1 <= abs(number) <= LARGEST_POWER:
        found = _whole_power(base, int(abs(number)))
        return found if number > 0 else found.through(functions.reciprocal)
    return (exponent * base.through(functions.log)).through(functions.exp)


def _whole_power(x: N, n: int) -> N:
    if n == 1:
        return x
    half = _whole_power(x, n // 2).square()
    return half * x if n % 2 else half


def _tanh(constant: Constant, x: Any) -> Any:
    twice = (x + x).through(functions.exp)
    return constant(1.0) - constant(2.0) * (twice + constant(1.0)).through(functions.reciprocal)


RULES: dict[int, Callable[..., Any]] = {
    ca.OP_ASSIGN: lambda _, x: x,
    ca.OP_ADD: lambda _, x, y: x + y,
    ca.OP_SUB: lambda _, x, y: x - y,
    ca.OP_MUL: lambda _, x, y: x * y,
    ca.OP_DIV: lambda _, x, y: x * y.through(functions.reciprocal),
    ca.OP_INV: lambda _, x: x.through(functions.reciprocal),
    ca.OP_NEG: lambda _, x: -x,
    ca.OP_TWICE: lambda _, x: x + x,
    ca.OP_SQ: lambda _, x: x.square(),
    ca.OP_POW: lambda _, x, y: x,  # see Tape._power
    ca.OP_CONSTPOW: lambda _, x, y: x,
    ca.OP_SQRT: lambda _, x: x.through(functions.sqrt),
    ca.OP_EXP: lambda _, x: x.through(functions.exp),
    ca.OP_LOG: lambda _, x: x.through(functions.log),
    ca.OP_SIN: lambda _, x: x.through(functions.sin),
    ca.OP_COS: lambda _, x: x.through(functions.cos),
    ca.OP_TANH: _tanh,
}


def _step(function: Any, k: int) -> Step:
    operation = function.instruction_id(k)
    inputs, outputs = function.instruction_input(k), function.instruction_output(k)
    if operation == ca.OP_OUTPUT:
        return Step(operation, (inputs[0],), outputs[1], 0.0)
    value = function.instruction_constant(k) if operation == ca.OP_CONST else 0.0
    return Step(operation, tuple(inputs), outputs[0], value)
