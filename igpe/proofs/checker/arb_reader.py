"""The equations of one experiment, evaluated in Arb from the Pyomo model itself.

Nothing here uses igpe's translation: Pyomo's own expressions at a measured time are evaluated with
balls, series and derivatives for their variables. Each equation is solved for the one slope or
algebraic variable that no other equation gives, in which it must be linear.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flint
import numpy as np
from pyomo.common.numeric_types import native_types
from pyomo.core.expr.relational_expr import EqualityExpression
from pyomo.core.expr.visitor import identify_variables

from igpe.core.errors import Unsupported
from igpe.problem.experiment import Unknown
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem


class LinearTerm:
    """a z + b, of the z for which an equation is solved."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    def __add__(self, other: Any) -> "LinearTerm":
        is_line = isinstance(other, LinearTerm)
        return (
            LinearTerm(self.a + other.a, self.b + other.b)
            if is_line
            else LinearTerm(self.a, self.b + other)
        )

    def __mul__(self, other: Any) -> Any:
        return (
            NotImplemented
            if isinstance(other, LinearTerm)
            else LinearTerm(self.a * other, self.b * other)
        )

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "LinearTerm":
        return LinearTerm(-self.a, -self.b)

    def __truediv__(self, other: Any) -> Any:
        return (
            NotImplemented
            if isinstance(other, LinearTerm)
            else LinearTerm(self.a / other, self.b / other)
        )


FUNCTIONS = ("exp", "log", "sqrt", "sin", "cos", "tanh")
ARITHMETIC = ("sum", "prod", "mon", "div", "neg", "pow")


class Values:
    """Values of an expression, from those of its variables.

    by_name  of each quantity;  names  id of a variable or mutable Param -> its quantity
    """

    def __init__(self, by_name: dict[str, Any], names: Mapping[int, str]) -> None:
        self.by_name, self.names = by_name, names
        self.kept: dict[int, Any] = {}

    def __call__(self, node: Any) -> Any:
        """Value of a Pyomo expression. Raises Unsupported, naming the operation."""
        if node.__class__ in native_types:
            return flint.arb(float(node))
        if not node.is_expression_type():
            name = self.names.get(id(node), node.name)
            if name not in self.by_name:
                raise Unsupported(f"The check with Arb does not know the values of '{name}'.")
            return self.by_name[name]
        if not node.is_named_expression_type():
            return _computed(node, [self(argument) for argument in node.args])
        if id(node) not in self.kept:
            self.kept[id(node)] = self(node.args[0])
        return self.kept[id(node)]

    def root(self, sides: tuple[Any, Any]) -> Any:
        """Value of the quantity that is a `LinearTerm`, at which the sides are equal."""
        line = self(sides[0]) + -self(sides[1])
        return -line.b / line.a


class Equations:
    """One experiment's equations; quantities go by name, slopes as d(name).

    states   their names;  solved  (name, sides) in the order in which equations are solved
    stops    the start, and increasing times at which something is measured or an input bends
    raises  Unsupported where the model has what this reader does not know
    """

    def __init__(self, problem: Problem, k: int) -> None:
        self.problem, self.k = problem, k
        self.experiment, i = problem.experiments[k], problem.instances[k]
        self.instance, self.states = i, tuple(i.states)
        if self.experiment.events or self.experiment.steady is not None:
            raise Unsupported("The check with Arb does not support events or steady-state starts.")
        times = [float(t) for t in i.time]
        self.usual = times[max(1, len(times) // 2)]
        self.names = self._names(self.usual)
        self.scalars = {
            n: flint.arb(float(x.value)) for n, x in i.scalars.items() if x.value is not None
        }
        self.solved = tuple(self._ordered({n: self._usual(n, s) for n, s in i.equations.items()}))
        measured = {n: i.over_time(n) or {} for n in self.experiment.measured}
        self.outputs = [self._usual(n, series) for n, series in measured.items()]
        tables = [v.times for v in self.experiment.inputs.values() if isinstance(v, Table)]
        first, every = self.experiment.start_time, self.experiment.measurements.times
        inside = {float(t) for t in np.concatenate([every, *tables]) if first < t <= every[-1]}
        self.stops = [float(first), *sorted(inside)]

    def measured_at(self, time: float) -> Iterator[tuple[Any, Any, Any]]:
        """Expression, value and standard deviation of what is measured at a time."""
        m = self.experiment.measurements
        for i in np.flatnonzero(m.times[m.row] == time):
            yield self.outputs[m.column[i]], *(flint.arb(float(v[i])) for v in (m.value, m.sigma))

    def parameters(self, free: Mapping[str, Any]) -> dict[str, Any]:
        """Values of unknowns, and of all that does not vary with time."""
        every = {**{n: flint.arb(v) for n, v in self.problem.fixed.items()}, **free}
        own = {n: self.problem.unknown_of(n, self.experiment) for n in self.problem.parameters}
        return {**every, **self.scalars, **{n: every[unknown] for n, unknown in own.items()}}

    def start(self, parameters: Mapping[str, Any]) -> list[Any]:
        """States at the start."""
        first = self._names(self.instance.first)
        return [self._start(name, parameters, first) for name in self.states]

    def _start(self, name: str, parameters: Mapping[str, Any], first: Mapping[int, str]) -> Any:
        own = self.problem.starts[self.k]
        given: Any = self.experiment.start.get(name, own.fixed.get(name))
        if isinstance(given, Unknown):
            return parameters[self.problem.start_unknown(name, self.experiment)]
        if isinstance(given, str):
            return parameters[given]
        if given is not None:
            return flint.arb(float(given))
        if name not in own.conditions:
            raise Unsupported(f"The check with Arb does not know the start value of '{name}'.")
        t = self.experiment.start_time
        inputs = {n: _input(v, flint.arb(t), t) for n, v in self.experiment.inputs.items()}
        values = Values({**parameters, **inputs, name: UNKNOWN}, first)
        return values.root(_sides(own.conditions[name]))

    def at(
        self, begin: float, time: Any, x: Sequence[Any], parameters: Mapping[str, Any]
    ) -> Values:
        """All quantities at a time, or over times.

        begin  where the segment of the inputs begins;  time  arb or series;  x  the states
        """
        values = Values({**parameters, **dict(zip(self.states, x, strict=True))}, self.names)
        for name, given in self.experiment.inputs.items():
            values.by_name[name] = _input(given, time, begin)
        for name, sides in self.solved:
            values.by_name[name] = UNKNOWN
            values.by_name[name] = Values(values.by_name, self.names).root(sides)
        return values

    def _names(self, time: float) -> dict[int, str]:
        i = self.instance
        names = {id(data): n for n, data in i.scalars.items()}
        for family in (i.states, i.series):
            names |= {id(series[time]): n for n, series in family.items() if time in series}
        return names | {id(s[time]): f"d({n})" for n, s in i.slopes.items() if time in s}

    def _usual(self, name: str, series: Mapping[float, Any]) -> Any:
        """An equation or output at the usual time; at the first it may be a start condition.

        raises  Unsupported if it is another one at other times: only its numbers are known then
        """
        times = [t for t in series if t > self.instance.first]
        keys = {tuple(_key(side, self._names(t)) for side in _sides(series[t])) for t in times}
        if self.usual not in times or len(keys) > 1:
            raise Unsupported(
                f"The check with Arb does not support '{name}', whose expression is not the same "
                "at all times."
            )
        return series[self.usual]

    def _ordered(self, equations: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """Equations, each with the one quantity that those before it do not give."""
        known = {*self.scalars, *self.states, *self.experiment.inputs, *self.problem.parameters}
        left = {n: _sides(e) for n, e in equations.items()}
        while left:
            free = {n: self._held(sides) - known for n, sides in left.items()}
            name = next((n for n, held in free.items() if len(held) == 1), None)
            if name is None:
                raise Unsupported(
                    f"The check with Arb cannot solve the equations {sorted(left)[:MOST]} one "
                    "after the other. Each equation must determine a single slope or algebraic "
                    "variable."
                )
            (solved,) = free[name]
            yield solved, left.pop(name)
            known.add(solved)

    def _held(self, sides: tuple[Any, Any]) -> set[str]:
        every = (v for side in sides for v in identify_variables(side, include_fixed=True))
        return {self.names.get(id(v), v.name) for v in every}


def _computed(node: Any, values: list[Any]) -> Any:
    """Value of one operation."""
    name, first, where = node.getname(), values[0], ""
    if name in FUNCTIONS and not isinstance(first, LinearTerm):
        return first.function(name) if hasattr(first, "function") else getattr(first, name)()
    try:
        if name in ARITHMETIC:
            return node._apply_operation(values)
    except TypeError:  # of a `LinearTerm`
        where = " in an equation that is not linear in the slope or variable that it determines"
    raise Unsupported(f"The check with Arb does not support '{name}'{where}.")


MOST = 5  # equations that a message names
UNKNOWN = LinearTerm(flint.arb(1), flint.arb(0))


def _sides(data: Any) -> tuple[Any, Any]:
    """Both sides of an equation; an expression and 0."""
    equation = getattr(data, "expr", data)
    if isinstance(equation, EqualityExpression):
        return equation.args  # type: ignore[no-any-return]
    return data, 0.0


def _key(node: Any, names: Mapping[int, str]) -> Any:
    """Form of an expression, the same at all times if it does not name the time."""
    if node.__class__ in native_types:
        return float(node)
    if not node.is_expression_type():
        return names.get(id(node), node.name)
    if node.is_named_expression_type():
        return _key(node.args[0], names)
    return node.getname(), *(_key(argument, names) for argument in node.args)


def _input(given: Any, time: Any, begin: float) -> Any:
    """An input on its segment from a time; between points of a table it is linear."""
    if isinstance(given, Table):
        k = int(np.searchsorted(given.times, begin, side="right")) - 1
        value = flint.arb(float(given.values[max(k, 0)]))
        if given.hold or not 0 <= k < len(given.times) - 1:
            return value
        (t, end), last = map(flint.arb, given.times[k : k + 2].tolist()), given.values[k + 1]
        return (time + -t) * ((flint.arb(float(last)) - value) / (end - t)) + value
    if callable(given):
        raise Unsupported("The check with Arb does not support inputs given as functions.")
    return flint.arb(float(given))
