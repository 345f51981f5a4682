"""Experiments as the checker reads them: tapes for slopes, starts and measured quantities.

Priors are measurements of the unknowns themselves: they join the first experiment's, at its start.
CasADi's expressions become lists of operations, evaluated on whatever has their arithmetic. Inputs
given by tables are straight lines between two stops: on a line through (t_0, y_0) with slope b an
input is y_0 + b (t - t_0). The slope is an interval that holds the exact
(y_1 - y_0) / (t_1 - t_0), and what it is rounded to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import Unsupported
from igpe.equations.compiled import compiled
from igpe.equations.operations import OPERATION_NAMES, in_words
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem
from igpe.proofs.checker import functions
from igpe.proofs.checker.interval import UNIT, Interval, outward, point, up
from igpe.proofs.checker.polynomial import Polynomial, TaylorSpace


class Number(Protocol):
    """Arithmetic on which a tape can be evaluated: intervals, duals, polynomials."""

    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def __mul__(self, other: Self) -> Self: ...
    def __neg__(self) -> Self: ...
    def square(self) -> Self:
        """x * x."""

    def power(self, exponent: Self) -> Self:
        """Power with an exponent that is not known; 0 where the base is not positive."""

    def through(self, function: functions.Coefficients) -> Self:
        """An elementary function of it."""


N = TypeVar("N", bound=Number)
Constant = Callable[[float], Any]


class Instruction(NamedTuple):
    """One operation: its number in CasADi, the places of its operands and of its result."""

    operation: int
    operands: tuple[int, ...]
    result: int
    value: float


class ReplayTape:
    """Expressions of vectors of symbols.

    inputs   SX vectors
    output   SX vector
    raises   Unsupported, naming the operation, where one has no enclosure here
    """

    def __init__(self, inputs: Sequence[Any], output: Any) -> None:
        function = ca.Function("f", list(inputs), [ca.densify(output)])
        self.length = int(ca.densify(output).numel())
        self.instructions = [_instruction(function, k) for k in range(function.n_instructions())]
        unknown = {s.operation for s in self.instructions} - set(RULES) - LEAVES - POWERS
        if unknown:
            names = [OPERATION_NAMES[operation] for operation in unknown]
            raise Unsupported(
                f"The equations use {in_words(names)}. The checker has no bounds for this "
                "operation; it supports + - * / ** exp log sqrt sin cos tanh."
            )

    def __call__(self, inputs: Sequence[Sequence[N]], constant: Callable[[float], N]) -> list[N]:
        """The expressions' values for the symbols' values."""
        work: dict[int, N] = {}
        numbers: dict[int, float] = {}  # places are used again: constants that stand there now
        results: dict[int, N] = {}
        for s in self.instructions:
            if s.operation == ca.OP_OUTPUT:
                results[s.result] = work[s.operands[0]]
                continue
            if s.operation == ca.OP_INPUT:
                value = inputs[s.operands[0]][s.operands[1]]
            elif s.operation == ca.OP_CONST:
                value = constant(s.value)
            elif s.operation in POWERS:
                base, exponent = s.operands
                value = _power(
                    work[base], work[exponent], numbers.get(exponent), base_known=base in numbers
                )
            else:
                value = RULES[s.operation](constant, *(work[i] for i in s.operands))
            work[s.result] = value
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
        power = _whole_power(base, int(abs(number)))
        return power if number > 0 else power.through(functions.reciprocal)
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
    ca.OP_SQRT: lambda _, x: x.through(functions.sqrt),
    ca.OP_EXP: lambda _, x: x.through(functions.exp),
    ca.OP_LOG: lambda _, x: x.through(functions.log),
    ca.OP_SIN: lambda _, x: x.through(functions.sin),
    ca.OP_COS: lambda _, x: x.through(functions.cos),
    ca.OP_TANH: _tanh,
}


def _instruction(function: Any, k: int) -> Instruction:
    operation = function.instruction_id(k)
    inputs, outputs = function.instruction_input(k), function.instruction_output(k)
    if operation == ca.OP_OUTPUT:
        return Instruction(operation, (inputs[0],), outputs[1], 0.0)
    value = function.instruction_constant(k) if operation == ca.OP_CONST else 0.0
    return Instruction(operation, tuple(inputs), outputs[0], value)


class InputLine(NamedTuple):
    """Straight line of one input, each array for all boxes, or for all stops it leads to."""

    start: FloatArray
    value: FloatArray
    slope: Interval

    def of(self, k: IntArray) -> "InputLine":
        """The lines that lead to these stops."""
        return InputLine(
            self.start[k], self.value[k], Interval(self.slope.low[k], self.slope.high[k])
        )

    def between(self, time: Interval) -> Interval:
        """Range of the input over some times."""
        return point(self.value) + self.slope * (time - point(self.start))

    def polynomial(self, space: TaylorSpace, t: FloatArray, h: FloatArray) -> Polynomial:
        """Input at t + tau h, for a length h known up to two units of rounding."""
        length = outward(h * (1 - 8 * UNIT), h * (1 + 8 * UNIT))
        parts = [self.between(point(t)), self.slope * length][: space.order + 1]
        c = np.zeros((space.size, len(parts), len(t)))
        for i, part in enumerate(parts):
            c[0, i] = part.middle
        return Polynomial(space, c, up(np.sum([part.radius for part in parts], axis=0)))


def line(table: Table, begins: Sequence[float]) -> InputLine:
    """A table from each of some times until it, or its slope, jumps again.

    Before its first and after its last point it is constant; one that is held always is.
    """
    t, y = table.times, table.values
    k = np.searchsorted(t, np.asarray(begins), side="right") - 1
    inside = (k >= 0) & (k < len(t) - 1) & (not table.hold)
    k = np.maximum(k, 0)
    after = np.minimum(k + 1, len(t) - 1)
    rise, run = point(y[after]) - point(y[k]), point(t[after]) - point(t[k])
    slope = rise / Interval(np.where(inside, run.low, 1.0), np.where(inside, run.high, 1.0))
    low, high = (np.where(inside, end, 0.0) for end in (slope.low, slope.high))
    return InputLine(t[k], y[k], Interval(low, high))


At = tuple[IntArray, FloatArray, FloatArray]
"""What is measured at one time: columns, values y and sigma, exact doubles."""


@dataclass(frozen=True)
class Replay:
    """One experiment as the checker integrates it.

        x' = slopes(t, x, p, u),  x(t0) = start(p),  r = (measured(t, x, p, u) - y) / sigma

    states   how many
    times    (n_times,) increasing, none before t0: where something is measured, or an input jumps;
             what is measured at t0 is measured at the start
    rows     for each time the measured quantities (column), values y and sigma
    inputs   u: one for each input given by a table, as it leads to each of the times
    """

    states: int
    t0: float
    slopes: ReplayTape
    start: ReplayTape
    measured: ReplayTape
    times: FloatArray
    rows: tuple[At, ...]
    inputs: tuple[InputLine, ...] = ()


def replays(problem: Problem) -> tuple[Replay, ...]:
    """Read each experiment, with the problem's free unknowns in the order of `problem.box`.

    raises Unsupported where a sum of squares has parts that the checker does not know
    """
    unsupported = {
        "a loss other than LeastSquares()": not problem.loss.is_squares,
        "unknowns that vary with time": problem.time_varying,
        "standard deviations that follow the fit": problem.weights_follow_fit,
        "estimated standard deviations": problem.sigma_estimated,
        "values below a limit of detection": problem.is_censored,
        "priors that are not normal": problem.other_priors,
    }
    if names := ", ".join(what for what, there in unsupported.items() if there):
        raise Unsupported(
            f"The checker does not support {names}. It verifies certificates of problems "
            "without them."
        )
    return tuple(_replay(problem, k) for k in range(len(problem.experiments)))


def _replay(problem: Problem, k: int) -> Replay:
    """One experiment; priors of free unknowns join the first one's (others are a constant)."""
    experiment, names = problem.experiments[k], problem.box.names
    ivp = compiled(problem).initial_value_problem(k, plain_powers=True)
    if ivp.implicit:
        raise Unsupported(
            "The checker does not support implicit algebraic variables; experiment "
            f"{experiment.name} "
            "has some."
        )
    m = experiment.measurements
    rows = {float(m.times[r]): m.row == r for r in np.unique(m.row)}
    measured: dict[float, At] = {t: (m.column[a], m.value[a], m.sigma[a]) for t, a in rows.items()}
    ivp = ivp.without_conditions(np.array(sorted(measured)))
    p = ca.SX.sym("p", len(names))
    q = ca.vertcat(*(p[names.index(n)] for n in ivp.unknowns))
    f, start, h = (ca.substitute([e], [ivp.q], [q])[0] for e in (ivp.f, ivp.start, ivp.measured))
    last = max(measured)
    free = {names.index(n): prior for n, prior in problem.normal_priors.items()}
    if free and k == 0:
        priors = (
            np.array(list(free), dtype=np.intp) + h.numel(),
            np.array([prior.mean for prior in free.values()]),
            np.array([prior.deviation for prior in free.values()]),
        )
        column, value, sigma = map(
            np.concatenate, zip(measured.get(ivp.t0, NOTHING), priors, strict=True)
        )
        measured[ivp.t0] = column, value, sigma
        h = ca.vertcat(h, p)
    times = sorted({*measured, *ivp.breaks(last)})
    symbols = [ivp.t, ivp.x, p, ivp.u]
    return Replay(
        states=len(ivp.states),
        t0=ivp.t0,
        slopes=ReplayTape(symbols, f),
        start=ReplayTape([p], start),
        measured=ReplayTape(symbols, h),
        times=np.array(times),
        rows=tuple(measured.get(t, NOTHING) for t in times),
        inputs=tuple(line(table, [ivp.t0, *times[:-1]]) for table in ivp.tables),
    )


NOTHING: At = np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)
