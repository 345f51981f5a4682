"""Does igpe integrate what the user wrote? A second reader of the Pyomo model.

What was translated is compared with the values that Pyomo's own expressions have at many points:
all measured times and times between them, the inputs that are given, start values and bounds, and
magnitudes drawn over decades. Nothing here uses the translation: expressions are evaluated node by
node with Pyomo's operations, members of one form together as arrays. One member of each component
is evaluated by `pyo.value` besides.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import repeat
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from pyomo.common.numeric_types import native_types
from pyomo.core.expr import numeric_expr
from pyomo.core.expr.base import ExpressionBase
from pyomo.core.expr.relational_expr import (
    EqualityExpression,
    RangedExpression,
    RelationalExpression,
)
from pyomo.core.expr.visitor import identify_variables

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import ModelError
from igpe.equations.symbols import stack
from igpe.equations.system import System
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import evaluate
from igpe.problem.model import Instance, Series, model_starts
from igpe.problem.problem import Problem

TOLERANCE = 1e-9  # of the sum of the absolute terms
ROUNDING = 1e-14  # relative change of a quantity that stands for rounding
AMPLIFIED = 1e4  # differences up to so many times what such a change makes are rounding
LARGEST = 1e200  # the order of operations decides beyond it whether the result is finite
ALL = 150  # members of a model that are all compared; of larger ones each at `TIMES` times
TIMES = 6
HALF, AT_ENDS = 0.5, 0.2  # shares of the draws
TURN = 6  # all quantities are negative at one of so many points, some at another
DECADES = 4.0  # that quantities are drawn over, up and down
ASKED = 20  # members evaluated by `pyo.value` besides
MOST = 8  # quantities that a message names
STARTS = 8  # points at which start conditions are compared


class Members(NamedTuple):
    """Pyomo expressions to be evaluated.

    rows    (n,) which equation or measured quantity each is a member of
    points  (n,) at which point
    bodies, uppers   Pyomo expressions; the value of a member is their difference
    """

    rows: IntArray
    points: IntArray
    bodies: list[Any]
    uppers: list[Any]


class Values:
    """Values of all quantities at all points, and of expressions in them.

    rows   id(Pyomo data) -> row of the table
    table  (n_quantities, n_points)
    """

    def __init__(self, rows: dict[int, int], table: FloatArray) -> None:
        self.rows, self.table = rows, table

    def of(self, nodes: Sequence[Any], points: IntArray) -> FloatArray:
        """(n,) values of n expressions, each at its point; those of one form at once."""
        groups = _grouped(nodes)
        if len(groups) == 1:
            return self._alike(nodes, points)
        result = np.empty(len(nodes))
        for places in groups:
            result[places] = self._alike([nodes[k] for k in places], points[places])
        return result

    def terms(self, nodes: Sequence[Any], points: IntArray) -> tuple[FloatArray, FloatArray]:
        """(n,) values, and (n,) sums of the absolute terms."""
        value, size = np.empty(len(nodes)), np.empty(len(nodes))
        for places in _grouped(nodes):
            members, at = [nodes[k] for k in places], points[places]
            if isinstance(members[0], numeric_expr.SumExpression):
                parts = self._arguments(members, at)
                value[places], size[places] = sum(parts), sum(map(np.abs, parts))
            else:
                value[places] = self._alike(members, at)
                size[places] = np.abs(value[places])
        return value, size

    def _arguments(self, nodes: Sequence[Any], points: Any) -> list[FloatArray]:
        return [self.of(column, points) for column in zip(*[n.args for n in nodes], strict=True)]

    def _alike(self, nodes: Sequence[Any], points: Any) -> FloatArray:
        one = nodes[0]
        if one.__class__ in native_types:
            return np.array(nodes, dtype=float)
        if not one.is_expression_type():
            return self._leaves(nodes, points)
        return np.asarray(_applied(one, self._arguments(nodes, points)), dtype=float)

    def _leaves(self, nodes: Sequence[Any], points: Any) -> FloatArray:
        rows = list(map(self.rows.get, map(id, nodes), repeat(-1)))
        found = self.table[rows, points]
        for k in (k for k, row in enumerate(rows) if row < 0) if min(rows) < 0 else ():
            number = pyo.value(nodes[k], exception=False)
            found[k] = np.nan if number is None else number
        return np.asarray(found)


def _grouped(nodes: Sequence[Any]) -> list[Sequence[int]]:
    """Places of nodes that can be evaluated together."""
    kinds: set[Any] = set(map(type, nodes))
    if len(kinds) == 1:
        form = _form(*kinds)
        if form is None or len(set(map(form, nodes))) == 1:
            return [range(len(nodes))]
    groups: dict[Any, list[int]] = {}
    for place, node in enumerate(nodes):
        kind: Any = type(node)
        form = _form(kind)
        groups.setdefault((kind, form and form(node)), []).append(place)
    return list(groups.values())


@cache
def _form(kind: Any) -> Callable[[Any], Any] | None:
    """What distinguishes nodes of one kind; None if nothing does."""
    if issubclass(kind, numeric_expr.UnaryFunctionExpression):
        return attrgetter("name")
    if issubclass(kind, RelationalExpression):
        return lambda node: getattr(node, "strict", None)
    if not issubclass(kind, ExpressionBase) or kind in OF_FIXED_LENGTH:
        return None
    return methodcaller("nargs")


OF_FIXED_LENGTH = frozenset({
    numeric_expr.ProductExpression,
    numeric_expr.MonomialTermExpression,
    numeric_expr.DivisionExpression,
    numeric_expr.NegationExpression,
    numeric_expr.PowExpression,
})
PLAIN = (
    "exp",
    "log",
    "log10",
    "sqrt",
    "ceil",
    "floor",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
)
INVERSE = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
FUNCTIONS = {n: getattr(np, n) for n in PLAIN} | {f"a{n}": getattr(np, f"arc{n}") for n in INVERSE}
"""Pyomo's name of a function -> NumPy's function."""


def _applied(node: Any, values: list[Any]) -> Any:
    """Pyomo's operation on arrays."""
    if isinstance(node, numeric_expr.Expr_ifExpression):
        return np.where(values[0] != 0, values[1], values[2])
    if isinstance(node, numeric_expr.AbsExpression):
        return np.abs(values[0])
    if isinstance(node, numeric_expr.UnaryFunctionExpression):
        return FUNCTIONS[node.name](values[0])
    if isinstance(node, numeric_expr.MaxExpression | numeric_expr.MinExpression):
        fold = np.maximum if isinstance(node, numeric_expr.MaxExpression) else np.minimum
        return fold.reduce(values)
    if isinstance(node, RangedExpression):
        lower, body, upper = values
        above = lower < body if node.strict[0] else lower <= body
        return above & (body < upper if node.strict[1] else body <= upper)
    return node._apply_operation(values)


def require_agreement(
    problem: Problem, experiment: Experiment, system: System, between: Instance
) -> None:
    """Compare a translated system with Pyomo's values of the equations it came from.

    between  an instance at times between the measured ones; the values of its Vars are changed
    raises   ModelError, naming the equation, both values and the point
    """
    pairs = zip(problem.experiments, problem.instances, strict=True)
    measured = [i for e, i in pairs if e.name == experiment.name]
    with np.errstate(all="ignore"):
        comparison = _Comparison(problem, experiment, system, (*measured, between))
        comparison.equations()
        comparison.starts()


class _Comparison:
    """One experiment's equations, as translated and as Pyomo evaluates them.

    instances  at the measured times, and our own at times between
    points     (number of the instance, time) of each column of the table
    """

    def __init__(
        self,
        problem: Problem,
        experiment: Experiment,
        system: System,
        instances: tuple[Instance, ...],
    ) -> None:
        self.system, self.instances = system, instances
        self.first = instances[0].first
        self.points = [(k, float(t)) for k, i in enumerate(instances) for t in i.time]
        self.names = (*system.equations, *system.measured)
        draw = _Draw(problem, experiment, instances[0], system)
        self.parts = draw.parts(np.array([t for _, t in self.points]))
        self.values = Values(self._rows(), np.vstack(self.parts[1:]))

    def _rows(self) -> dict[int, int]:
        """id(Pyomo data) -> row of dx, x, z, u, p, s one below the other."""
        s = self.system.symbols
        rows: dict[int, int] = {}
        n_x = len(s.states)
        after = 2 * n_x + len(s.algebraics)
        p = after + len(s.inputs)
        for instance in self.instances:
            families: list[tuple[int, Sequence[str], Mapping[str, Series]]] = [
                (0, s.states, instance.slopes),
                (n_x, s.states, instance.states),
                (2 * n_x, s.algebraics, instance.series),
                (after, s.inputs, instance.series),
            ]
            for start, names, family in families:
                for row, name in enumerate(names, start):
                    rows.update(zip(map(id, family.get(name, {}).values()), repeat(row)))
            for start, names in ((after, s.inputs), (p, s.parameters)):
                for row, name in enumerate(names, start):
                    if name in instance.scalars:
                        rows[id(instance.scalars[name])] = row
            for row, name in enumerate(s.states, p + len(s.parameters)):
                rows[id(instance.states[name][instance.first])] = row
        return rows

    def equations(self) -> None:
        """Compare residuals and measured quantities."""
        members = self._members()
        translated = self._translated()[members.rows, members.points]
        body, size = self.values.terms(members.bodies, members.points)
        upper, other = self.values.terms(members.uppers, members.points)
        self._ask_pyomo(members, body)
        true, size = body - upper, size + other
        wrong = ~(np.abs(true - translated) <= TOLERANCE * size)
        wrong &= np.isfinite(true) | np.isfinite(translated)
        if wrong.any():
            wrong &= ~self._is_same(members, true, translated, TOLERANCE * size)
        for k in np.flatnonzero(wrong):
            if not self._is_explained(members, int(k), float(true[k]), float(translated[k])):
                raise self._difference(members, int(k), float(true[k]), float(translated[k]))

    @cached_property
    def explicit(self) -> Sequence[bool]:
        """Which equations and measured quantities name the time itself."""
        return ca.which_depends(stack(self._expressions), self.system.symbols.t, 1, True)

    def _is_same(
        self, members: Members, true: FloatArray, translated: FloatArray, allowed: FloatArray
    ) -> BoolArray:
        """Where an equation is turned round, or Pyomo computes no number but does elsewhere.

        a == b and b == a are one equation; Python turns them round where one side alone is a
        ScalarVar. 0 * sqrt(x) has no value at x < 0, but need not be kept.
        """
        turned = np.abs(true + translated) <= allowed
        turned &= members.rows < len(self.system.equations)
        right = turned | (np.abs(true - translated) <= allowed)
        elsewhere = np.unique(members.rows[right])
        return np.asarray(turned | (np.isnan(true) & np.isin(members.rows, elsewhere)))

    @cached_property
    def _expressions(self) -> list[Any]:
        return [self.system.residual, *self.system.measured.values()]

    def _translated(self) -> FloatArray:
        """(n_equations + n_measured, n_points) values of the translation."""
        t, *others = self.system.symbols.vectors
        function = ca.Function("F", [t, ca.vertcat(*others)], self._expressions)
        results = function.call([self.parts[0], self.values.table])
        return np.vstack([one.full() for one in results])

    def _members(self) -> Members:
        rows, points, bodies, uppers = [], [], [], []
        for row, series in enumerate(self._series()):
            for point in self._chosen(row):
                number, time = self.points[point]
                data = series[number].get(time)
                if data is not None:
                    body, upper = _sides(data)
                    rows.append(row)
                    points.append(point)
                    bodies.append(body)
                    uppers.append(upper)
        return Members(np.array(rows), np.array(points), bodies, uppers)

    def _series(self) -> Iterator[list[Mapping[float, Any]]]:
        """Each equation and measured quantity over time, in both instances."""
        for name in self.system.equations:
            yield [i.equations.get(name, {}) for i in self.instances]
        for name in self.system.measured:
            yield [i.over_time(name) or {} for i in self.instances]

    def _chosen(self, row: int) -> Sequence[int]:
        """All points; of a large model a share of them for each equation without explicit time.

        The shares of neighbouring equations are shifted, so that every point is one of some.
        """
        n = len(self.points)
        if self.names[row] in self.system.symbols.states:  # measured: a symbol, no expression
            return [row % n]
        if n * len(self.names) <= ALL or n <= TIMES or self.explicit[row]:
            return range(n)
        return sorted({(row + k * n // TIMES) % n for k in range(TIMES)})

    def _ask_pyomo(self, members: Members, body: FloatArray) -> None:
        """Put `pyo.value` in the place of our evaluation, at one point of our own instance."""
        point = len(self.points) - 2
        self._set(point)
        for k in np.flatnonzero(members.points == point)[:ASKED]:
            with suppress(ArithmeticError):  # Pyomo raises where arrays become infinite
                number = pyo.value(members.bodies[k], exception=False)
                if isinstance(number, float | int) and np.isfinite(body[k]):
                    body[k] = number

    def _set(self, point: int) -> None:
        number, time = self.points[point]
        instance = self.instances[number]
        families = (instance.slopes, instance.states, instance.series)
        at = [series[time] for family in families for series in family.values() if time in series]
        starts = [series[instance.first] for series in instance.states.values()]
        for data in (*at, *instance.scalars.values(), *starts):
            row = self.values.rows.get(id(data))
            if row is not None:
                pyo.value(data, exception=False)  # a Param takes its default when first read
                data._value = float(self.values.table[row, point])

    def _is_explained(self, members: Members, k: int, true: float, translated: float) -> bool:
        """Whether a difference is rounding, overflow, or what holds at the first time alone.

        A slope at one instant moves nothing: `Expr_if(t > 0, feed, 0)` starts with the feed.
        """
        body, point = members.bodies[k], int(members.points[k])
        number, time = self.points[point]
        instance = self.instances[number]
        if time in {instance.first, float(instance.time.last())}:
            usual = self._member(int(members.rows[k]), len(self.points) - 2)
            held = self._quantities(body, members.uppers[k])
            has_slope = any(0 <= row < len(self.system.symbols.states) for row in held)
            if held != self._quantities(*usual) or (time == instance.first and has_slope):
                return True
        if not (np.isfinite(true) and np.isfinite(translated)):
            return self._overflows(body, point)
        return _is_rounding(self.values, (body, members.uppers[k]), point, true - translated)

    def _member(self, row: int, point: int) -> tuple[Any, Any]:
        number, time = self.points[point]
        instance, name = self.instances[number], self.names[row]
        is_equation = row < len(self.system.equations)
        series = instance.equations.get(name) if is_equation else instance.over_time(name)
        return _sides((series or {}).get(time, 0.0))

    def _quantities(self, *sides: Any) -> set[int]:
        """What expressions hold, the start value of a state counting as the state."""
        n_x = len(self.system.symbols.states)
        first = len(self.values.table) - n_x
        held = (v for side in sides for v in identify_variables(side))
        rows = (self.values.rows.get(id(v), -1) for v in held)
        return {row - first + n_x if row >= first else row for row in rows}

    def _overflows(self, body: Any, point: int) -> bool:
        """Whether a result is so large or small that the order of operations counts."""
        sizes = [abs(v) for v in self._intermediate(body, np.array([point]))]
        return any(not np.isfinite(s) or s > LARGEST or 0 < s < 1 / LARGEST for s in sizes)

    def _intermediate(self, node: Any, point: IntArray) -> Iterator[float]:
        yield float(self.values.of([node], point)[0])
        for argument in getattr(node, "args", ()):
            yield from self._intermediate(argument, point)

    def _difference(self, members: Members, k: int, true: float, translated: float) -> ModelError:
        row, point = int(members.rows[k]), int(members.points[k])
        s = self.system.symbols
        names = [*(f"d({n})" for n in s.states), *s.states, *s.algebraics, *s.inputs, *s.parameters]
        used = sorted(self._quantities(members.bodies[k], members.uppers[k]) - {-1})
        where = [f"{names[j]} = {self.values.table[j, point]:.6g}" for j in used]
        return _disagreement(
            self.names[row], [f"t = {self.points[point][1]:.6g}", *where], (true, translated)
        )

    def starts(self) -> None:
        """Compare the start values that the model's own conditions give."""
        s = self.system.symbols
        instance = self.instances[0]
        conditions = model_starts(instance).conditions
        names = [n for n in conditions if n in self.system.starts]
        if not names:
            return
        at = np.arange(len(self.points))[:STARTS]
        p = self.parts[5][:, at]
        told = ca.Function("starts", [s.p], [stack(ca.SX(self.system.starts[n]) for n in names)])
        start = np.asarray(told(p), dtype=float).reshape(len(names), -1)
        for name, value in zip(names, start, strict=True):
            table = self.values.table[:, at].copy()
            row = self.values.rows[id(instance.states[name][instance.first])]
            table[row] = value
            self._compare_start(conditions[name], Values(self.values.rows, table), row)

    def _compare_start(self, condition: Any, values: Values, row: int) -> None:
        body, upper = _sides(condition)
        at = np.arange(values.table.shape[1])
        value, size = values.terms([body] * len(at), at)
        other, more = values.terms([upper] * len(at), at)
        wrong = np.abs(value - other) > TOLERANCE * (size + more)
        for k in np.flatnonzero(wrong).tolist():
            if _is_rounding(values, (body, upper), k, float(value[k] - other[k])):
                continue
            start = f"the start value {values.table[row, k]:.6g}"
            raise _disagreement(condition.name, [start], (float(value[k]), float(other[k])))


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
        span = float(times.max() - times.min()) or 1.0
        sizes = [self._size(name) for name in s.states]
        slopes = [size / span for size in sizes]
        guesses = [self._guess(name) for name in s.algebraics]
        bounds = self._bounds()
        widths = [_width(*b) for b in bounds]
        drawn = self._decades([*slopes, *sizes, *guesses, *sizes, *widths], n)
        drawn[:n_x] *= self.random.random((n_x, n)) < HALF
        x, start = drawn[n_x : 2 * n_x], drawn[2 * n_x + n_z : 3 * n_x + n_z]
        is_first = times == times.min()
        x[:, is_first] = start[:, is_first]
        u = np.array([self._input(name, times) for name in s.inputs]).reshape(-1, n)
        p = self._within(bounds, drawn[3 * n_x + n_z :])
        return [times[None], drawn[:n_x], x, drawn[2 * n_x : 2 * n_x + n_z], u, p, start]

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
        if given is None:
            varying = self.problem.time_varying[name]
            bounds = (varying.lower, varying.upper, np.nan)
            drawn = self._decades([_width(*bounds)], len(times))
            return np.asarray(self._within([bounds], drawn)[0])
        return np.array([evaluate(given, t) for t in times.tolist()])

    def _bounds(self) -> list[tuple[float, float, float]]:
        """Of each parameter the lower and upper bound, and the model's value (NaN if none)."""
        box = self.problem.unknowns
        places = {name: k for k, name in enumerate(box.names)}
        lower, upper = box.lower.tolist(), box.upper.tolist()
        bounds = []
        for name in self.symbols.parameters:
            k = places[self.problem.unknown_of(name, self.experiment)]
            value = self.instance.scalars[name].value
            bounds.append((lower[k], upper[k], np.nan if value is None else float(value)))
        return bounds

    def _within(self, bounds: list[tuple[float, float, float]], drawn: FloatArray) -> FloatArray:
        """(m, n) numbers drawn, moved between m bounds; some at these and at the nominal value."""
        if not bounds:
            return drawn
        ends = np.array(bounds)
        which = self.random.integers(0, 3, drawn.shape)
        chosen = ends[np.arange(len(bounds))[:, None], which]
        use = np.isfinite(chosen) & (self.random.random(drawn.shape) < AT_ENDS)
        wide = np.minimum(np.maximum(drawn, ends[:, :1]), ends[:, 1:2])
        return np.where(use, chosen, wide)


def _width(lower: float, upper: float, nominal: float) -> float:
    """Positive: how large what has these bounds is."""
    sizes = (abs(v) for v in (nominal, upper, lower))
    return next((v for v in sizes if 0 < v < math.inf), 1.0)


def _is_rounding(values: Values, sides: tuple[Any, Any], point: int, difference: float) -> bool:
    """Whether a difference is about what both sides change by if every quantity is rounded."""
    n = 9
    change = 1 + ROUNDING * np.random.default_rng(1).uniform(-1, 1, (len(values.table), n))
    at = values.table[:, [point]]
    table = np.hstack([at, at * change])
    shaken = Values(values.rows, table)
    body, upper = (shaken.of([side] * (n + 1), np.arange(n + 1)) for side in sides)
    true, *others = body - upper
    return bool(abs(difference) <= AMPLIFIED * np.max(np.abs(np.array(others) - true)))


def _sides(data: Any) -> tuple[Any, Any]:
    """An expression, and what is to be subtracted from it: Pyomo's body and upper bound."""
    expression = getattr(data, "expr", None)
    if not isinstance(expression, EqualityExpression):
        if not hasattr(data, "to_bounded_expression"):
            return data, 0.0
        return data.to_bounded_expression()[1:]  # type: ignore[no-any-return]
    left, right = expression.args
    if left.__class__ in native_types or not left.is_potentially_variable():
        return right, left
    return left, right


def _disagreement(name: str, where: Sequence[str], values: tuple[float, float]) -> ModelError:
    true, translated = values
    return ModelError(
        f"igpe does not read '{name}' as it is written: at {', '.join(where[:MOST])} Pyomo "
        f"computes {true:.10g}, igpe {translated:.10g}. Write it with Pyomo's functions as a rule "
        "over the time, and what changes with time as an input: Experiment(inputs=...)."
    )
