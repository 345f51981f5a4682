"""Does igpe integrate what the user wrote? A second reader of the Pyomo model.

What was translated is compared with the values that Pyomo's own expressions have at many points:
all measured times and times between them, the inputs that are given, start values and bounds, and
magnitudes drawn over decades. Nothing here uses the translation: numbers are put into the model's
variables, Pyomo evaluates its expressions, and the variables get their own numbers back.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from pyomo.common.numeric_types import native_types
from pyomo.core.expr.numeric_expr import SumExpression
from pyomo.core.expr.relational_expr import EqualityExpression
from pyomo.core.expr.visitor import identify_variables

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ModelError
from igpe.equations.symbols import stack
from igpe.equations.system import System
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import evaluate
from igpe.problem.model import Instance, model_starts
from igpe.problem.problem import Problem

TOLERANCE = 1e-9  # of the sum of the absolute terms
ROUNDING = 1e-14  # relative change of a quantity that stands for rounding
SHAKEN = 9  # times that all quantities are changed so
AMPLIFIED = 1e4  # differences up to so many times what such a change makes are rounding
LARGEST = 1e200  # the order of operations decides beyond it whether the result is finite
ALL = 150  # members of a model that are all compared; of larger ones each at `TIMES` times
TIMES = 6
HALF, AT_ENDS = 0.5, 0.2  # shares of the draws
TURN = 6  # all quantities are negative at one of so many points, some at another
DECADES = 4.0  # that quantities are drawn over, up and down
MOST = 8  # quantities that a message names
STARTS = 8  # points at which start conditions are compared

Sides = tuple[Any, Any]
"""A Pyomo expression, and one that is to be subtracted from it."""


def require_agreement(
    problem: Problem,
    experiment: Experiment,
    system: System,
    between: Instance,
    *,
    again: bool = False,
) -> None:
    """Compare a translated system with Pyomo's values of the equations it came from.

    between  an instance at times between the measured ones
    again    whether it was compared between them in another experiment
    raises   ModelError, naming the equation, both values and the point
    """
    pairs = zip(problem.experiments, problem.instances, strict=True)
    measured = [i for e, i in pairs if e.name == experiment.name]
    with np.errstate(all="ignore"):
        comparison = _Comparison(problem, experiment, system, (*measured, between), again)
        with comparison.lent():
            comparison.equations()
            comparison.starts()


class _Comparison:
    """One experiment's equations, as translated and as Pyomo evaluates them.

    instances  at the measured times, and our own at times between
    points     (number of the instance, time) of each column of the table
    table      (n_quantities, n_points) values of dx, x, z, u, p, s one below the other
    series     of each equation and measured quantity its members by time, in each instance
    """

    def __init__(
        self,
        problem: Problem,
        experiment: Experiment,
        system: System,
        instances: tuple[Instance, ...],
        again: bool,
    ) -> None:
        self.system, self.symbols, self.instances = system, system.symbols, instances
        *own, between = [[(k, float(t)) for t in i.time] for k, i in enumerate(instances)]
        self.points = [p for points in own for p in points] + between[-2 if again else 0 :]
        self.names = (*system.equations, *system.measured)
        self.expressions = [system.residual, *system.measured.values()]
        self.series: list[list[Mapping[float, Any]]] = [
            *([i.equations.get(n, {}) for i in instances] for n in system.equations),
            *([i.over_time(n) or {} for i in instances] for n in system.measured),
        ]
        draw = _Draw(problem, experiment, instances[0], system)
        self.parts = draw.parts(np.array([t for _, t in self.points]))
        self.table = np.vstack(self.parts[1:])
        self.lent_values: dict[int, tuple[Any, Any]] = {}

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Give all variables back the values that they had."""
        try:
            yield
        finally:
            for data, number in self.lent_values.values():
                data._value = number

    def _data(self, number: int, time: float) -> list[Any]:
        """Pyomo data of an instance at a time, in the order of the rows."""
        i, s = self.instances[number], self.symbols
        series = i.series
        return [
            *(i.slopes[n].get(time) for n in s.states),
            *(i.states[n].get(time) for n in s.states),
            *(series.get(n, {}).get(time) for n in s.algebraics),
            *(series[n].get(time) if n in series else i.scalars[n] for n in s.inputs),
            *(i.scalars[n] for n in s.parameters),
            *(i.states[n][i.first] for n in s.states),
        ]

    def _set(self, point: int, factors: FloatArray | float = 1.0, *, at: int | None = None) -> None:
        """Put the numbers of a point into the model, where that point is or another one.

        They are NumPy's: 1 / 0 and 0**-n are infinite, as igpe computes them, and no error.
        """
        place = self.points[point if at is None else at]
        column = self.table[:, point] * factors
        for data, number in zip(self._data(*place), column, strict=True):
            if data is not None:
                if id(data) not in self.lent_values:
                    pyo.value(data, exception=False)  # a Param takes its default when first read
                    self.lent_values[id(data)] = data, data._value
                data._value = number

    def equations(self) -> None:
        """Compare residuals and measured quantities."""
        t, *others = self.symbols.vectors
        function = ca.Function("F", [t, ca.vertcat(*others)], self.expressions)
        results = function.call([self.parts[0], self.table])
        translated = np.vstack([one.full() for one in results])
        true, allowed = np.full(translated.shape, np.nan), np.zeros(translated.shape)
        compared = np.zeros(translated.shape, dtype=bool)
        chosen = [set(self._chosen(row)) for row in range(len(self.names))]
        for point in range(len(self.points)):
            self._set(point)
            for row in (k for k, points in enumerate(chosen) if point in points):
                if (sides := self._sides(row, point)) is not None:
                    (body, size), (upper, other) = map(_terms, sides)
                    true[row, point], allowed[row, point] = body - upper, TOLERANCE * (size + other)
                    compared[row, point] = True
        wrong = compared & ~(np.abs(true - translated) <= allowed)
        wrong &= np.isfinite(true) | np.isfinite(translated)
        if wrong.any():
            wrong &= ~self._is_same(true, translated, allowed, compared)
        for row, point in np.argwhere(wrong).tolist():
            values = float(true[row, point]), float(translated[row, point])
            if not self._is_explained(row, point, *values):
                s = self.symbols
                names = [*(f"d({n})" for n in s.states), *s.states, *s.algebraics]
                names += [*s.inputs, *s.parameters]
                used = sorted(self._quantities(row, point) - {-1})
                where = [f"{names[j]} = {self.table[j, point]:.6g}" for j in used]
                time = f"t = {self.points[point][1]:.6g}"
                raise _disagreement(self.names[row], [time, *where], values)

    def _sides(self, row: int, point: int) -> Sides | None:
        """The member of an equation or measured quantity at a point; None if there is none."""
        number, time = self.points[point]
        data = self.series[row][number].get(time)
        return None if data is None else _sides(data)

    def _chosen(self, row: int) -> Sequence[int]:
        """All points; of a large model a share of them for each equation without explicit time.

        The shares of neighbouring equations are shifted, so that every point is one of some.
        """
        n = len(self.points)
        if self.names[row] in self.symbols.states:  # measured: a symbol, no expression
            return [row % n]
        if n * len(self.names) <= ALL or n <= TIMES or self.explicit[row]:
            return range(n)
        return sorted({(row + k * n // TIMES) % n for k in range(TIMES)})

    @cached_property
    def explicit(self) -> Sequence[bool]:
        """Which equations and measured quantities name the time itself."""
        return ca.which_depends(stack(self.expressions), self.symbols.t, 1, True)

    def _is_same(
        self, true: FloatArray, translated: FloatArray, allowed: FloatArray, compared: BoolArray
    ) -> BoolArray:
        """Where an equation is turned round, or Pyomo computes no number but does elsewhere.

        a == b and b == a are one equation; Python turns them round where one side alone is a
        ScalarVar. 0 * sqrt(x) has no value at x < 0, but need not be kept.
        """
        is_equation = np.arange(len(true)) < len(self.system.equations)
        turned = is_equation[:, None] & (np.abs(true + translated) <= allowed)
        right = compared & (turned | (np.abs(true - translated) <= allowed))
        return np.asarray(turned | (np.isnan(true) & right.any(axis=1, keepdims=True)))

    def _is_explained(self, row: int, point: int, true: float, translated: float) -> bool:
        """Whether a difference is rounding, overflow, or what holds at the first time alone.

        A slope at one instant moves nothing: `Expr_if(t > 0, feed, 0)` starts with the feed.
        """
        number, time = self.points[point]
        instance = self.instances[number]
        if time in {instance.first, float(instance.time.last())}:
            held = self._quantities(row, point)
            has_slope = any(0 <= j < len(self.symbols.states) for j in held)
            usual = len(self.points) - 2
            is_usual = held == self._quantities(row, usual)
            is_usual &= self._fixed(row, point) == self._fixed(row, usual)
            if not is_usual or (time == instance.first and has_slope):
                return True
        sides = self._sides(row, point)
        assert sides is not None
        if np.isfinite(true) and np.isfinite(translated):
            return self._is_rounding(sides, point, true - translated)
        self._set(point)
        sizes = [abs(v) for v in _intermediate(sides[0])]
        return any(not np.isfinite(s) or s > LARGEST or 0 < s < 1 / LARGEST for s in sizes)

    def _is_rounding(
        self, sides: Sides, point: int, difference: float, *, at: int | None = None
    ) -> bool:
        """Whether a difference is about what sides change by if every quantity is rounded."""
        random = np.random.default_rng(1)
        residuals = []
        for factor in (0.0, *[ROUNDING] * SHAKEN):
            self._set(point, 1 + factor * random.uniform(-1, 1, len(self.table)), at=at)
            residuals.append(_number(sides[0]) - _number(sides[1]))
        changes = np.abs(np.array(residuals) - residuals[0])
        return bool(abs(difference) <= AMPLIFIED * np.max(changes))

    def _quantities(self, row: int, point: int) -> set[int]:
        """Rows of what a member holds, the start value of a state counting as the state."""
        n_x = len(self.symbols.states)
        first = len(self.table) - n_x
        rows = {id(data): j for j, data in enumerate(self._data(*self.points[point]))}
        held = (v for side in self._sides(row, point) or () for v in identify_variables(side))
        places = (rows.get(id(v), -1) for v in held)
        return {j - first + n_x if j >= first else j for j in places}

    def _fixed(self, row: int, point: int) -> set[float | None]:
        """Numbers of the fixed variables in a member: they may differ at the first time."""
        held = (v for side in self._sides(row, point) or () for v in identify_variables(side))
        return {v.value for v in held if v.fixed and id(v) not in self.lent_values}

    def starts(self) -> None:
        """Compare the start values that the model's own conditions give."""
        instance = self.instances[0]
        conditions = model_starts(instance).conditions
        initial = {id(series[instance.first]) for series in instance.states.values()}
        conditions = {
            n: c
            for n, c in conditions.items()
            if len(initial & {id(v) for v in identify_variables(c.expr)}) == 1
        }
        given = {n: ca.SX(self.system.starts[n]) for n in conditions if n in self.system.starts}
        if not given:
            return
        n_x = len(self.symbols.states)
        before_inputs = len(np.vstack(self.parts[1:4]))
        inputs = slice(before_inputs, before_inputs + len(self.symbols.inputs))
        self.table[inputs] = self.table[inputs, :1]  # a start has those of the first time
        function = ca.Function("starts", [self.symbols.p], [stack(given.values())])
        starts = np.asarray(function(self.parts[5][:, :STARTS]), dtype=float)
        for name, start in zip(given, starts.reshape(len(given), -1), strict=True):
            row, sides = self.symbols.states.index(name), _sides(conditions[name])
            for point, number in enumerate(start.tolist()):
                self.table[[n_x + row, row - n_x], point] = number
                self._set(point, at=0)
                (one, size), (other, more) = map(_terms, sides)
                is_wrong = abs(one - other) > TOLERANCE * (size + more)
                if is_wrong and not self._is_rounding(sides, point, one - other, at=0):
                    raise ModelError(
                        f"igpe reads the start condition '{conditions[name].name}' differently "
                        f"from Pyomo: at the start value {number:.6g} of '{name}' that igpe "
                        f"computes, its two sides are {one:.10g} and {other:.10g} in Pyomo. Write "
                        f"it as {name} == an expression in the parameters and inputs."
                    )


class _Draw:
    """Values of all quantities at points."""

    def __init__(
        self, problem: Problem, experiment: Experiment, instance: Instance, system: System
    ) -> None:
        self.problem, self.experiment, self.instance = problem, experiment, instance
        self.symbols, self.starts = system.symbols, system.starts
        self.random = np.random.default_rng(0)

    def parts(self, times: FloatArray) -> list[FloatArray]:
        """t, dx, x, z, u, p, s: (n, n_times) each; at the start x is s."""
        s, n = self.symbols, len(times)
        n_x, n_z = len(s.states), len(s.algebraics)
        span = float(np.ptp(times)) or 1.0
        sizes = [self._size(name) for name in s.states]
        guesses = [self._guess(name) for name in s.algebraics]
        bounds = self._bounds()
        slopes, widths = [size / span for size in sizes], [_width(*b) for b in bounds]
        drawn = self._decades([*slopes, *sizes, *guesses, *sizes, *widths], n)
        dx, x, z, start, p = np.split(drawn, np.cumsum([n_x, n_x, n_z, n_x]))
        dx *= self.random.random((n_x, n)) < HALF
        is_first = times == times.min()
        x[:, is_first] = start[:, is_first]
        u = np.array([self._input(name, times) for name in s.inputs]).reshape(-1, n)
        return [times[None], dx, x, z, u, self._within(bounds, p), start]

    def _decades(self, sizes: Sequence[float], n: int) -> FloatArray:
        """(len(sizes), n) numbers near the sizes and decades away, some negative."""
        drawn = self.random.uniform(-1, 1, (len(sizes), n))
        turn = np.arange(n) % TURN
        width = np.where(self.random.random(n) < HALF, 1.0, DECADES)
        values = np.array(sizes)[:, None] * 10.0 ** (width * drawn)
        values[:, turn == 1] *= -1.0
        part = values[:, turn == TURN - 2]
        values[:, turn == TURN - 2] = np.where(self.random.random(part.shape) < HALF, -part, part)
        return np.asarray(values)

    def _size(self, state: str) -> float:
        given = self.experiment.start.get(state, self.starts.get(state))
        if isinstance(given, float) and given:
            return abs(given)
        measured: Any = ()
        if state in self.experiment.measured:
            measured = self.experiment.measurements.of(state)[1].tolist()
        return max(map(abs, measured), default=0.0) or self._guess(state)

    def _guess(self, name: str) -> float:
        series = self.instance.over_time(name)
        number = getattr(series[self.instance.first], "value", None) if series else None
        return abs(float(number or 0.0)) or 1.0

    def _input(self, name: str, times: FloatArray) -> FloatArray:
        given = self.experiment.inputs.get(name)
        if given is not None:
            return np.array([evaluate(given, t) for t in times.tolist()])
        varying = self.problem.time_varying[name]
        bounds = (varying.lower, varying.upper, np.nan)
        drawn = self._decades([_width(*bounds)], len(times))
        return np.asarray(self._within([bounds], drawn)[0])

    def _bounds(self) -> list[tuple[float, float, float]]:
        """Of each parameter the lower and upper bound, and the model's value (NaN if none)."""
        box = self.problem.unknowns
        rows = zip(box.names, box.lower.tolist(), box.upper.tolist(), strict=True)
        ends = {name: (low, high) for name, low, high in rows}
        values = {n: self.instance.scalars[n].value for n in self.symbols.parameters}
        return [
            (*ends[self.problem.unknown_of(n, self.experiment)], np.nan if v is None else float(v))
            for n, v in values.items()
        ]

    def _within(self, bounds: list[tuple[float, float, float]], drawn: FloatArray) -> FloatArray:
        """(m, n) numbers drawn, moved between m bounds; some at these and at the nominal value."""
        if not bounds:
            return drawn
        ends = np.array(bounds)
        which = self.random.integers(0, 3, drawn.shape)
        chosen = ends[np.arange(len(bounds))[:, None], which]
        use = np.isfinite(chosen) & (self.random.random(drawn.shape) < AT_ENDS)
        return np.where(use, chosen, np.minimum(np.maximum(drawn, ends[:, :1]), ends[:, 1:2]))


def _width(lower: float, upper: float, nominal: float) -> float:
    """Positive: how large what has these bounds is."""
    sizes = (abs(v) for v in (nominal, upper, lower))
    return next((v for v in sizes if 0 < v < math.inf), 1.0)


def _number(node: Any) -> float:
    """Number that Pyomo computes; NaN where the result is no number."""
    try:
        return float(_evaluated(node))
    except (ArithmeticError, ValueError):
        return math.nan


def _evaluated(node: Any) -> Any:
    """As `pyo.value`, whose visitor takes three times as long."""
    if node.__class__ in native_types:
        return node
    if not node.is_expression_type():
        return node.value
    number = node._apply_operation([_evaluated(argument) for argument in node.args])
    if number.__class__ is complex:
        raise ValueError("a root of a negative number")
    return number


def _terms(node: Any) -> tuple[float, float]:
    """The value of an expression, and the sum of its absolute terms."""
    parts = [_number(a) for a in (node.args if isinstance(node, SumExpression) else (node,))]
    return sum(parts), sum(map(abs, parts))


def _intermediate(node: Any) -> Iterator[float]:
    yield _number(node)
    for argument in getattr(node, "args", ()):
        yield from _intermediate(argument)


def _sides(data: Any) -> tuple[Any, Any]:
    """An expression, and what is to be subtracted from it: Pyomo's body and upper bound."""
    expression = getattr(data, "expr", None)
    if not isinstance(expression, EqualityExpression):
        if not hasattr(data, "to_bounded_expression"):
            return data, 0.0
        return data.to_bounded_expression()[1:]  # type: ignore[no-any-return]
    left, right = expression.args
    is_constant = left.__class__ in native_types or not left.is_potentially_variable()
    return (right, left) if is_constant else (left, right)


def _disagreement(name: str, where: Sequence[str], values: tuple[float, float]) -> ModelError:
    return ModelError(
        f"igpe reads '{name}' differently from Pyomo: at {', '.join(where[:MOST])} Pyomo computes "
        f"{values[0]:.10g}, and igpe {values[1]:.10g}. Write it as a rule indexed by time, with "
        "Pyomo's functions, and give quantities that change with time as inputs: "
        "Experiment(inputs=...)."
    )
