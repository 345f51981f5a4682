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
from typing import Any

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
from igpe.problem.model import Instance, model_starts
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
PYOMO_VALUES = 20  # members evaluated by `pyo.value` besides
MOST = 8  # quantities that a message names
STARTS = 8  # points at which start conditions are compared
OF_FIXED_LENGTH = frozenset({
    numeric_expr.ProductExpression,
    numeric_expr.MonomialTermExpression,
    numeric_expr.DivisionExpression,
    numeric_expr.NegationExpression,
    numeric_expr.PowExpression,
})
NAMES = "exp log log10 sqrt ceil floor sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh"
FUNCTIONS = {name: getattr(np, name) for name in NAMES.split()}


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
            return self._of_one_form(nodes, points)
        result = np.empty(len(nodes))
        for places in groups:
            result[places] = self._of_one_form([nodes[k] for k in places], points[places])
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
                value[places] = self._of_one_form(members, at)
                size[places] = np.abs(value[places])
        return value, size

    def _arguments(self, nodes: Sequence[Any], points: Any) -> list[FloatArray]:
        return [self.of(column, points) for column in zip(*[n.args for n in nodes], strict=True)]

    def _of_one_form(self, nodes: Sequence[Any], points: Any) -> FloatArray:
        one = nodes[0]
        if one.__class__ in native_types:
            return np.array(nodes, dtype=float)
        if one.is_expression_type():
            return np.asarray(_applied(one, self._arguments(nodes, points)), dtype=float)
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


def _applied(node: Any, values: list[Any]) -> Any:
    """Pyomo's operation on arrays."""
    for kind, apply in NODES.items():
        if isinstance(node, kind):
            return apply(node, *values)
    return node._apply_operation(values)


def _between(node: Any, lower: Any, body: Any, upper: Any) -> Any:
    above = lower < body if node.strict[0] else lower <= body
    return above & (body < upper if node.strict[1] else body <= upper)


NODES: dict[type, Callable[..., Any]] = {
    numeric_expr.Expr_ifExpression: lambda _, test, a, b: np.where(test != 0, a, b),
    numeric_expr.AbsExpression: lambda _, a: np.abs(a),
    numeric_expr.UnaryFunctionExpression: lambda node, a: FUNCTIONS[node.name](a),
    numeric_expr.MaxExpression: lambda _, *of: np.maximum.reduce(of),
    numeric_expr.MinExpression: lambda _, *of: np.minimum.reduce(of),
    RangedExpression: _between,
}
"""Of all others Pyomo's own operation does for arrays. The first that fits decides."""


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
    points     (number of the instance, time) of each column of the table of values
    series     of each equation and measured quantity its members by time, in each instance
    of_row, of_point, bodies, uppers  (n,) the members that are compared: equation or measured
               quantity, point, and two Pyomo expressions whose difference is the value
    """

    def __init__(
        self,
        problem: Problem,
        experiment: Experiment,
        system: System,
        instances: tuple[Instance, ...],
    ) -> None:
        self.system, self.symbols, self.instances = system, system.symbols, instances
        self.points = [(k, float(t)) for k, i in enumerate(instances) for t in i.time]
        self.names = (*system.equations, *system.measured)
        self.expressions = [system.residual, *system.measured.values()]
        self.series: list[list[Mapping[float, Any]]] = [
            *([i.equations.get(n, {}) for i in instances] for n in system.equations),
            *([i.over_time(n) or {} for i in instances] for n in system.measured),
        ]
        self.parts = _Draw(problem, experiment, instances[0], system).parts(
            np.array([t for _, t in self.points])
        )
        self.values = Values(self._rows(), np.vstack(self.parts[1:]))
        members = [
            (row, point, *_sides(data))
            for row, by_instance in enumerate(self.series)
            for point in self._chosen(row)
            if (data := by_instance[self.points[point][0]].get(self.points[point][1])) is not None
        ]
        self.of_row, self.of_point = (np.array([m[i] for m in members]) for i in (0, 1))
        self.bodies, self.uppers = ([m[i] for m in members] for i in (2, 3))

    def _rows(self) -> dict[int, int]:
        """id(Pyomo data) -> row of dx, x, z, u, p, s one below the other."""
        s = self.symbols
        rows: dict[int, int] = {}
        for i in self.instances:
            data: list[Any] = [i.slopes[n].values() for n in s.states]
            data += [i.states[n].values() for n in s.states]
            data += [i.series.get(n, {}).values() for n in s.algebraics]
            data += [i.series[n].values() if n in i.series else [i.scalars[n]] for n in s.inputs]
            data += [[i.scalars[n]] for n in s.parameters]
            data += [[i.states[n][i.first]] for n in s.states]
            for row, members in enumerate(data):
                rows.update(zip(map(id, members), repeat(row)))
        return rows

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

    def equations(self) -> None:
        """Compare residuals and measured quantities."""
        t, *others = self.symbols.vectors
        function = ca.Function("F", [t, ca.vertcat(*others)], self.expressions)
        results = function.call([self.parts[0], self.values.table])
        translated = np.vstack([one.full() for one in results])[self.of_row, self.of_point]
        body, size = self.values.terms(self.bodies, self.of_point)
        upper, other = self.values.terms(self.uppers, self.of_point)
        self._insert_pyomo_values(body)
        true, allowed = body - upper, TOLERANCE * (size + other)
        wrong = ~(np.abs(true - translated) <= allowed)
        wrong &= np.isfinite(true) | np.isfinite(translated)
        if wrong.any():
            wrong &= ~self._is_same(true, translated, allowed)
        for k in np.flatnonzero(wrong).tolist():
            values = float(true[k]), float(translated[k])
            if not self._is_explained(k, *values):
                point, s = int(self.of_point[k]), self.symbols
                names = [*(f"d({n})" for n in s.states), *s.states, *s.algebraics]
                names += [*s.inputs, *s.parameters]
                used = sorted(self._quantities(self.bodies[k], self.uppers[k]) - {-1})
                where = [f"{names[j]} = {self.values.table[j, point]:.6g}" for j in used]
                time = f"t = {self.points[point][1]:.6g}"
                raise _disagreement(self.names[self.of_row[k]], [time, *where], values)

    def _is_same(self, true: FloatArray, translated: FloatArray, allowed: FloatArray) -> BoolArray:
        """Where an equation is turned round, or Pyomo computes no number but does elsewhere.

        a == b and b == a are one equation; Python turns them round where one side alone is a
        ScalarVar. 0 * sqrt(x) has no value at x < 0, but need not be kept.
        """
        turned = np.abs(true + translated) <= allowed
        turned &= self.of_row < len(self.system.equations)
        right = turned | (np.abs(true - translated) <= allowed)
        elsewhere = np.isin(self.of_row, np.unique(self.of_row[right]))
        return np.asarray(turned | (np.isnan(true) & elsewhere))

    def _insert_pyomo_values(self, body: FloatArray) -> None:
        """Put `pyo.value` in the place of our evaluation, at one point of our own instance."""
        point = len(self.points) - 2
        number, time = self.points[point]
        i = self.instances[number]
        over_time = [s for f in (i.slopes, i.states, i.series) for s in f.values() if time in s]
        starts = [series[i.first] for series in i.states.values()]
        for data in (*(series[time] for series in over_time), *i.scalars.values(), *starts):
            row = self.values.rows.get(id(data))
            if row is not None:
                pyo.value(data, exception=False)  # a Param takes its default when first read
                data._value = float(self.values.table[row, point])
        for k in np.flatnonzero(self.of_point == point)[:PYOMO_VALUES]:
            with suppress(ArithmeticError):  # Pyomo raises where arrays become infinite
                value = pyo.value(self.bodies[k], exception=False)
                if isinstance(value, float | int) and np.isfinite(body[k]):
                    body[k] = value

    def _is_explained(self, k: int, true: float, translated: float) -> bool:
        """Whether a difference is rounding, overflow, or what holds at the first time alone.

        A slope at one instant moves nothing: `Expr_if(t > 0, feed, 0)` starts with the feed.
        """
        sides, point = (self.bodies[k], self.uppers[k]), int(self.of_point[k])
        number, time = self.points[point]
        instance = self.instances[number]
        if time in {instance.first, float(instance.time.last())}:
            usual_number, usual_time = self.points[-2]
            usual = self.series[self.of_row[k]][usual_number].get(usual_time, 0.0)
            held = self._quantities(*sides)
            has_slope = any(0 <= row < len(self.symbols.states) for row in held)
            if held != self._quantities(*_sides(usual)) or (time == instance.first and has_slope):
                return True
        if np.isfinite(true) and np.isfinite(translated):
            return _is_rounding(self.values, sides, point, true - translated)
        sizes = [abs(v) for v in self._intermediate(sides[0], np.array([point]))]
        return any(not np.isfinite(s) or s > LARGEST or 0 < s < 1 / LARGEST for s in sizes)

    def _intermediate(self, node: Any, point: IntArray) -> Iterator[float]:
        yield float(self.values.of([node], point)[0])
        for argument in getattr(node, "args", ()):
            yield from self._intermediate(argument, point)

    def _quantities(self, *sides: Any) -> set[int]:
        """What expressions hold, the start value of a state counting as the state."""
        n_x = len(self.symbols.states)
        first = len(self.values.table) - n_x
        held = (v for side in sides for v in identify_variables(side))
        rows = (self.values.rows.get(id(v), -1) for v in held)
        return {row - first + n_x if row >= first else row for row in rows}

    def starts(self) -> None:
        """Compare the start values that the model's own conditions give."""
        instance = self.instances[0]
        conditions = model_starts(instance).conditions
        given = {n: ca.SX(self.system.starts[n]) for n in conditions if n in self.system.starts}
        if not given:
            return
        at = np.arange(len(self.points))[:STARTS]
        function = ca.Function("starts", [self.symbols.p], [stack(given.values())])
        starts = np.asarray(function(self.parts[5][:, at]), dtype=float)
        for name, start in zip(given, starts.reshape(len(given), -1), strict=True):
            row = self.values.rows[id(instance.states[name][instance.first])]
            values = Values(self.values.rows, self.values.table[:, at].copy())
            values.table[row] = start
            sides = _sides(conditions[name])
            (one, size), (other, more) = (values.terms([side] * len(at), at) for side in sides)
            for k in np.flatnonzero(np.abs(one - other) > TOLERANCE * (size + more)).tolist():
                if not _is_rounding(values, sides, k, float(one[k] - other[k])):
                    where = [f"the start value {start[k]:.6g}"]
                    pair = float(one[k]), float(other[k])
                    raise _disagreement(conditions[name].name, where, pair)


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


def _is_rounding(values: Values, sides: tuple[Any, Any], point: int, difference: float) -> bool:
    """Whether a difference is about what both sides change by if every quantity is rounded."""
    n = 9
    change = 1 + ROUNDING * np.random.default_rng(1).uniform(-1, 1, (len(values.table), n))
    at = values.table[:, [point]]
    shaken = Values(values.rows, np.hstack([at, at * change]))
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
    is_constant = left.__class__ in native_types or not left.is_potentially_variable()
    return (right, left) if is_constant else (left, right)


def _disagreement(name: str, where: Sequence[str], values: tuple[float, float]) -> ModelError:
    return ModelError(
        f"igpe does not read '{name}' as it is written: at {', '.join(where[:MOST])} Pyomo "
        f"computes {values[0]:.10g}, igpe {values[1]:.10g}. Write it with Pyomo's functions as a "
        "rule over the time, and what changes with time as an input: Experiment(inputs=...)."
    )
