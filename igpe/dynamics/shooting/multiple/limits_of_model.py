"""An experiment's constraints beyond equations and start conditions, as functions with derivatives.

    low <= c(readings, q) <= high            r and s of Houska, Logist, Diehl & Van Impe, section 2

A reading is a state, its slope or an algebraic variable at one time, which the integrator tells
with its derivatives; one constraint may hold several of them, at different times. An inequality
over time is one constraint for each time of the model: start, measured times, and its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from pyomo.core.expr.visitor import identify_variables

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import Unsupported
from igpe.dynamics.integrators.base import Shots
from igpe.dynamics.integrators.cut import interval_of
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.symbols import stack
from igpe.equations.translate import Translator
from igpe.numerics.least_squares.chains.chains import Limits
from igpe.problem.inputs import evaluate
from igpe.problem.model import Instance
from igpe.problem.problem import Problem


class LimitQuantity(NamedTuple):
    """A quantity at a time: a state, an algebraic variable, or a slope written d(state)."""

    name: str
    time: float


@dataclass(frozen=True)
class ModelLimits:
    """The constraints of one experiment.

    names      (c,) of the model's constraints, with their time where they have one
    of         " of run2" where there are several experiments, else nothing
    readings   what they hold;  watched: the names among them, in the order of further outputs
    low, high  (c,)
    function   (readings, q) -> values, their derivative by readings (sparse), by q (dense)
    """

    names: tuple[str, ...]
    of: str
    readings: tuple[LimitQuantity, ...]
    watched: tuple[str, ...]
    low: FloatArray
    high: FloatArray
    function: Any

    @property
    def times(self) -> FloatArray:
        """Distinct times of the readings."""
        return np.unique([r.time for r in self.readings])

    def watching(self, ivp: InitialValueProblem) -> InitialValueProblem:
        """The problem with `watched` as outputs after those that are measured."""
        slopes = {f"d({n})": ivp.f[i] for i, n in enumerate(ivp.states)}
        states = {n: ivp.x[i] for i, n in enumerate(ivp.states)}
        known = slopes | ivp.algebraic | states
        return replace(ivp, measured=stack([ivp.measured, *(known[n] for n in self.watched)]))

    def at(self, shots: Shots, q: FloatArray, places: "Places") -> Limits:
        """Values and derivatives by the experiment's own unknowns q (n_q,)."""
        row, column = places.row, places.column
        value, by_reading, by_q = self.function(shots.measured[row, column], q)
        weight, (c, e) = np.array(by_reading.nonzeros()), self._entries
        by_unknown = np.array(by_q)
        np.add.at(by_unknown, c, weight[:, None] * shots.measured_by_unknown[row[e], column[e]])
        by_node = weight[:, None] * shots.measured_by_start[row[e], column[e]]
        values = np.array(value).ravel()
        return Limits(values, self.low, self.high, by_unknown, c, places.owner[e], by_node)

    def placed(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> "Places":
        """Where the readings stand in outputs at `times` of intervals between `nodes`."""
        first = ivp.measured.numel() - len(self.watched)
        row = np.searchsorted(times, [r.time for r in self.readings]).astype(np.intp)
        column = [first + self.watched.index(r.name) for r in self.readings]
        return Places(row, np.array(column, dtype=np.intp), interval_of(nodes, times)[row])

    @cached_property
    def _entries(self) -> tuple[IntArray, IntArray]:
        """Constraint and reading of each derivative that is not zero."""
        row, column = self.function.sparsity_out(1).get_triplet()
        return np.array(row, dtype=np.intp), np.array(column, dtype=np.intp)


class Places(NamedTuple):
    """(e,) of each reading: its time, its output, and its interval."""

    row: IntArray
    column: IntArray
    owner: IntArray


def model_limits(problem: Problem, k: int, ivp: InitialValueProblem) -> ModelLimits | None:
    """Those of experiment `k`; None if there are none.

    raises ModelError if one cannot be translated, Unsupported if it holds what the equations do not
           determine, or a time before the start
    """
    constraints = dict(_constraints(problem, k))
    if not constraints:
        return None
    symbols = _Symbols(problem, k, ivp)
    translate = Translator(symbols, ivp.t)
    rows = _Rows([], [], [], [])
    for name, constraint in constraints.items():
        symbols.check(name, constraint)
        low, body, high = (translate(part) for part in constraint.to_bounded_expression())
        rows.add(name, ca.SX(body), low, high)
    readings = tuple(symbols.readings)
    v, c = stack(symbols.readings.values()), stack(rows.values)
    by_q = ca.densify(ca.jacobian(c, ivp.q))
    function = ca.Function("limits", [v, ivp.q], [ca.densify(c), ca.jacobian(c, v), by_q])
    watched = tuple(dict.fromkeys(r.name for r in readings))
    low, high = np.array(rows.low), np.array(rows.high)
    of = f" of {problem.experiments[k].name}" if len(problem.experiments) > 1 else ""
    return ModelLimits(tuple(rows.names), of, readings, watched, low, high, function)


def _constraints(problem: Problem, k: int) -> Iterator[tuple[str, Any]]:
    yield from problem.starts[k].others.items()
    for name, series in problem.instances[k].inequalities.items():
        yield from ((f"{name} at {t:g}", c) for t, c in series.items())


class _Rows(NamedTuple):
    """Constraints so far; one whose bound is no number becomes one or two with bound 0."""

    names: list[str]
    values: list[Any]
    low: list[float]
    high: list[float]

    def add(self, name: str, body: Any, low: Any, high: Any) -> None:
        """One more."""
        symbolic = [b for b in (low, high) if b is not None and not ca.SX(b).is_constant()]
        if not symbolic:
            self._append(name, body, _number(low, -np.inf), _number(high, np.inf))
            return
        if low is not None:
            self._append(name, body - low, 0.0, np.inf)
        if high is not None:
            self._append(name, body - high, -np.inf, 0.0)

    def _append(self, name: str, value: Any, low: float, high: float) -> None:
        self.names.append(name)
        self.values.append(value)
        self.low.append(low)
        self.high.append(high)


def _number(bound: Any, otherwise: float) -> float:
    return otherwise if bound is None else float(ca.SX(bound))


class _Symbols(Mapping[int, Any]):
    """id(Pyomo data) -> what it is in constraints of one experiment; readings as they are met."""

    def __init__(self, problem: Problem, k: int, ivp: InitialValueProblem) -> None:
        self.readings: dict[LimitQuantity, Any] = {}
        self.experiment, self.start = problem.experiments[k], ivp.t0
        self._problem, self._q = problem, dict(zip(ivp.unknowns, ca.vertsplit(ivp.q), strict=True))
        instance = problem.instances[k]
        self._readable = _series(instance, ivp)
        self._others = self._scalars(instance) | self._over_time(instance)

    def check(self, name: str, constraint: Any) -> None:
        """Refuse what no equation determines, and times before the start."""
        variables = list(identify_variables(constraint.expr, include_fixed=True))
        lost = sorted({v.name for v in variables if id(v) not in self and not v.fixed})
        if lost:
            raise Unsupported(
                f"The constraint '{name}' holds {lost}, which no equation over time determines and "
                "which are no parameters. Name them in parameters=[...], fix them, or use "
                "igpe.Collocation."
            )
        early = [v.name for v in variables if self._time(v) < self.start]
        if early:
            raise Unsupported(
                f"The constraint '{name}' holds {early} before the experiment starts at "
                f"{self.start:g}; give Experiment(start_time=...), or deactivate the constraint."
            )

    def __getitem__(self, key: int) -> Any:
        if key in self._others:
            return self._others[key]
        reading = self._readable[key]
        if reading not in self.readings:
            self.readings[reading] = ca.SX.sym(f"{reading.name} at {reading.time:g}")
        return self.readings[reading]

    def __contains__(self, key: object) -> bool:
        return key in self._others or key in self._readable

    def __iter__(self) -> Iterator[int]:
        return iter((*self._others, *self._readable))

    def __len__(self) -> int:
        return len(self._others) + len(self._readable)

    def _time(self, variable: Any) -> float:
        reading = self._readable.get(id(variable))
        return np.inf if reading is None else reading.time

    def _unknown(self, name: str) -> Any:
        return self._q[name] if name in self._q else ca.SX(self._problem.fixed[name])

    def _scalars(self, instance: Instance) -> dict[int, Any]:
        ours, experiment = self._problem, self.experiment
        found = {
            id(instance.scalars[n]): self._unknown(ours.unknown_of(n, experiment))
            for n in ours.parameters
        }
        inputs = experiment.inputs.items()
        return found | {
            id(instance.scalars[n]): evaluate(given, self.start)
            for n, given in inputs
            if n in instance.scalars
        }

    def _over_time(self, instance: Instance) -> dict[int, Any]:
        """Inputs as numbers, what varies with time as its pieces; at a jump those before it."""
        found: dict[int, Any] = {}
        for name, given in self.experiment.inputs.items():
            for t, data in instance.series.get(name, {}).items():
                found[id(data)] = evaluate(given, t, before=t > self.start)
        for name in self._problem.time_varying:
            pieces = self._problem.pieces(name, self.experiment)
            for t, data in instance.series[name].items():
                earlier = [n for n, begin in pieces.items() if begin < t] or list(pieces)[:1]
                found[id(data)] = self._unknown(earlier[-1])
        return found


def _series(instance: Instance, ivp: InitialValueProblem) -> dict[int, LimitQuantity]:
    families = [
        *((n, instance.states[n]) for n in ivp.states),
        *((f"d({n})", instance.slopes[n]) for n in ivp.states),
        *((n, instance.series[n]) for n in ivp.algebraic),
    ]
    return {id(data): LimitQuantity(n, t) for n, series in families for t, data in series.items()}
