"""CasADi's expressions as a list of operations, evaluated on whatever has their arithmetic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import casadi as ca

from igpe.errors import Unsupported
from igpe.replay import functions


class Number(Protocol):
    """What a tape can be evaluated on: intervals, duals, polynomials."""

    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def __mul__(self, other: Self) -> Self: ...
    def __neg__(self) -> Self: ...
    def square(self) -> Self:
        """x * x."""

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
            names = [n for n in dir(ca) if n.startswith("OP_") and getattr(ca, n) in unknown]
            raise Unsupported(
                f"The equations use {', '.join(names)}, of which the checker has no enclosure; it "
                "knows sums, products, quotients, powers, exp, log, sqrt, sin, cos and tanh."
            )

    def __call__(self, inputs: Sequence[Sequence[N]], constant: Callable[[float], N]) -> list[N]:
        """The expressions' values for the symbols' values."""
        work: dict[int, N] = {}
        results: dict[int, N] = {}
        for s in self.steps:
            if s.operation == ca.OP_INPUT:
                work[s.result] = inputs[s.operands[0]][s.operands[1]]
            elif s.operation == ca.OP_CONST:
                work[s.result] = constant(s.value)
            elif s.operation == ca.OP_OUTPUT:
                results[s.result] = work[s.operands[0]]
            elif s.operation in POWERS:
                work[s.result] = self._power(s, work)
            else:
                rule: Callable[..., Any] = RULES[s.operation]
                work[s.result] = rule(constant, *(work[i] for i in s.operands))
        return [results[i] for i in range(self.length)]

    def _power(self, step: Step, work: dict[int, N]) -> N:
        base, exponent = step.operands
        constants = [s for s in self.steps if s.result == exponent and s.operation == ca.OP_CONST]
        written = [s for s in self.steps if s.result == exponent and s.operation != ca.OP_OUTPUT]
        if len(written) == 1 and constants:
            number = constants[0].value
            if number == int(number) and 1 <= abs(number) <= LARGEST_POWER:
                found = _whole_power(work[base], int(abs(number)))
                return found if number > 0 else found.through(functions.reciprocal)
        return (work[exponent] * work[base].through(functions.log)).through(functions.exp)


LARGEST_POWER = 12
LEAVES = {ca.OP_INPUT, ca.OP_OUTPUT, ca.OP_CONST}
POWERS = {ca.OP_POW, ca.OP_CONSTPOW}


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
