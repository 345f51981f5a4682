"""An experiment's constraints beyond equations and start conditions, as functions with derivatives.

    low <= c(readings, q) <= high            r and s of Houska, Logist, Diehl & Van Impe, section 2

A reading is a state, its slope or an algebraic variable at one time, which the integrator reports
with its derivatives; one constraint may hold several of them, at different times. An inequality
over time is one constraint for each time of the model: start, measured times, and its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import casadi as ca
import numpy as np
from pyomo.core.expr.visitor import identify_mutable_parameters, identify_variables

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import EstimationFailed, IgpeError, ModelError, Unsupported
from igpe.core.estimates import Estimate
from igpe.core.markup import in_words
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator, Shots
from igpe.dynamics.integrators.cut import interval_of
from igpe.dynamics.simulation import fine_grid, quantities, quantities_along, simulate_all
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.symbols import stack
from igpe.equations.translate import Translator
from igpe.numerics.least_squares.chains import Limits
from igpe.problem.inputs import evaluate
from igpe.problem.model import (
    bounded_over_time,
    bounds_over_time,
    has_constant_bounds,
    with_bounds,
)
from igpe.problem.problem import Problem

INTEGRATOR = Automatic(slack=100.0)
FAR = 3.0  # standard errors between a constraint and its limit from which it is inactive
ROUNDING = 1e-9  # of a constraint's size: what is no distance from its limit
MOST = 40_000  # constraints over time in a model that is built to look at them
SLACK = 1e-6  # of a state's size, by which an integrated state may pass its bound
NEXT = 1e-3  # of the same, by which one stays away from its bound where a search stalls there
PASSED = 1e-5  # of the same, by which one over time may be passed between the times of a model
SAME = 1e-6  # of the same: what errors of integration may be

SymbolicInput: TypeAlias = Callable[[float, bool], Any]
"""(time, whether before a jump there) -> value, a number or a CasADi expression."""


def _evaluated(value: Any, time: float, before: bool) -> float:
    return evaluate(value, time, before=before)


class LimitQuantity(NamedTuple):
    """A quantity at a time: a state, an algebraic variable, or a slope written d(state)."""

    name: str
    time: float


class Places(NamedTuple):
    """(e,) of each reading: its time, its output, and its interval."""

    row: IntArray
    column: IntArray
    owner: IntArray


@dataclass(frozen=True)
class ModelLimits:
    """The constraints of one experiment.

    names      (c,) of the model's constraints, with their time where they have one
    of         " of run2" where there are several experiments, else nothing
    readings   what they hold;  watched: the names among them, in the order of further outputs
    low, high  (c,)
    when       (c,) times of those over time, else NaN
    function   (readings, q) -> values, their derivative by readings (sparse), by q (dense)
    """

    names: tuple[str, ...]
    of: str
    readings: tuple[LimitQuantity, ...]
    watched: tuple[str, ...]
    low: FloatArray
    high: FloatArray
    when: FloatArray
    function: Any

    @property
    def times(self) -> FloatArray:
        """Distinct times of the readings."""
        return np.unique([r.time for r in self.readings])

    def constraint(self, i: int) -> str:
        """The name of one of them in the model, without its time."""
        return self.names[i].rpartition(" at ")[0] or self.names[i]

    @property
    def equations(self) -> BoolArray:
        """(c,) which of them are equations."""
        return np.asarray(self.low == self.high)

    @property
    def joins_times(self) -> bool:
        """Whether a constraint holds readings at several times."""
        row, reading = self._entries
        times = {(i, self.readings[j].time) for i, j in zip(row, reading, strict=True)}
        return len(times) > len(set(row))

    def watching(self, ivp: InitialValueProblem) -> InitialValueProblem:
        """The problem with `watched` as outputs after those that are measured."""
        known = quantities(ivp)
        outputs = stack([ivp.measured, *(known[n] for n in self.watched)])
        return replace(ivp, measured=outputs, shared=None)

    def at(self, shots: Shots, q: FloatArray, places: Places) -> Limits:
        """Values and derivatives by the experiment's own unknowns q (n_q,)."""
        row, column = places.row, places.column
        value, by_reading, by_q = self.function(shots.measured[row, column], q)
        weight, (c, e) = np.array(by_reading.nonzeros()), self._entries
        by_unknown = np.array(by_q)
        np.add.at(by_unknown, c, weight[:, None] * shots.measured_by_unknown[row[e], column[e]])
        by_node = weight[:, None] * shots.measured_by_start[row[e], column[e]]
        values = np.array(value).ravel()
        return Limits(values, self.low, self.high, by_unknown, c, places.owner[e], by_node)

    def placed(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Places:
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


class LimitsAlong(NamedTuple):
    """Constraints of an experiment along its trajectory.

    value  (c,);  along (c, n) their derivatives by the problem's free unknowns
    """

    limits: ModelLimits
    value: FloatArray
    along: FloatArray


def limits_along(problem: Problem, k: int, x: FloatArray) -> LimitsAlong | None:
    """The constraints of experiment `k` at the free unknowns x (n,).

    returns None if there are none, or if the model cannot be integrated to all their times
    raises  as `model_limits`
    """
    return _followed(problem, k)(x)


def _followed(problem: Problem, k: int) -> Callable[[FloatArray], LimitsAlong | None]:
    """`limits_along` of experiment `k`, compiled once."""
    last = float(problem.instances[k].time.last())
    ivp = compiled(problem).initial_value_problem(k, until=last, switching=True)
    if (made := model_limits(problem, k, ivp)) is None:
        return lambda _: None
    limits, index = made, [problem.box.names.index(n) for n in ivp.unknowns]
    if limits.readings:
        ivp, times = limits.watching(ivp), limits.times
        simulation = INTEGRATOR.simulation(ivp, times, sensitivities=True)
        row, column, _ = limits.placed(ivp, times[[0, -1]], times)

    def at(x: FloatArray) -> LimitsAlong | None:
        read, moved, q = np.zeros(0), np.zeros((0, len(index))), x[index]
        if limits.readings:
            run = simulation.run(q)
            if not run.status.usable:
                return None
            read, moved = run.measured[row, column], run.measured_by_unknown[row, column]
        value, by_reading, by_q = limits.function(read, q)
        along = np.zeros((len(limits.low), len(x)))
        along[:, index] = np.array(by_q) + np.array(ca.mtimes(by_reading, ca.DM(moved)))
        return LimitsAlong(limits, np.array(value).ravel(), along)

    return at


def at_more_times(problem: Problem, k: int, *, bounds_too: bool) -> Problem:
    """With the model of experiment `k` at more times, unless it keeps its own.

    bounds_too  whether bounds of states and algebraic variables are inequalities there
    """
    with suppress(ModelError):
        times = np.union1d(fine_grid(problem, k), [*problem.instances[k].time])
        problem = problem.built_at(k, times[times >= problem.experiments[k].start_time])
    if not bounds_too or problem.instances[k].is_relaxed:
        return problem
    instances = [*problem.instances]
    if sum(map(len, bounded_over_time(instances[k]).values())) > MOST:
        return problem
    instances[k] = with_bounds(instances[k])
    return problem.with_instances(instances)


class Approach(NamedTuple):
    """A time at which a constraint over time is nearest to its limit, or passes it most.

    row    of `LimitsAlong`
    time   by a parabola through the distances at three times
    slack  its distance from the limit then, of a quantity of this size
    gradient  (n,) then, towards what the constraint forbids
    """

    row: int
    slack: float
    size: float
    time: float
    gradient: FloatArray


def approaches(made: LimitsAlong) -> Iterator[Approach]:
    """All approaches of constraints over time to their limits."""
    limits, every, along = made
    of = np.array([limits.constraint(i) for i in range(len(limits.names))])
    for name in sorted(set(of[np.isfinite(limits.when)])):
        own = np.flatnonzero(of == name)
        value, when = every[own], limits.when[own]
        size = float(np.max(np.abs(value)))
        for side, limit in ((1.0, limits.high[own]), (-1.0, limits.low[own])):
            slack = np.pad(side * (limit - value), 1, constant_values=np.inf)
            is_least = (slack[1:-1] <= slack[:-2]) & (slack[1:-1] < slack[2:])
            for j in np.flatnonzero(is_least).tolist():
                near, weights, time = [j], np.ones(1), float(when[j])
                if 0 < j < len(own) - 1 and when[j - 1] < when[j] < when[j + 1]:
                    near = [j - 1, j, j + 1]
                    time = _vertex(when[near], side * (limit - value)[near])
                    weights = _weights(when[near], time)
                least = float(weights @ slack[1:-1][near])
                gradient = side * weights @ along[own[near]]
                yield Approach(int(own[j]), least, size, time, gradient)


def _vertex(t: FloatArray, value: FloatArray) -> float:
    """The time of the least value of a parabola through three points (3,) around it."""
    before, after = np.diff(value) / np.diff(t)
    bend = (after - before) / (t[2] - t[0])
    if not (np.isfinite(bend) and bend > 0):
        return float(t[1])
    return float(np.clip(0.5 * (t[0] + t[1] - before / bend), t[0], t[2]))


def _weights(t: FloatArray, at: float) -> FloatArray:
    """(3,) of the values at three times in the parabola through them, at another time."""
    a, b, c = t
    return np.array([
        (at - b) * (at - c) / ((a - b) * (a - c)),
        (at - a) * (at - c) / ((b - a) * (b - c)),
        (at - a) * (at - b) / ((c - a) * (c - b)),
    ])


def passed_between(problem: Problem, k: int, x: FloatArray) -> tuple[FloatArray, list[str]]:
    """Times at which constraints over time are passed most, and the names of these.

    raises  as `limits_along`
    """
    fine = at_more_times(problem, k, bounds_too=False)
    if not fine.instances[k].inequalities or (made := limits_along(fine, k, x)) is None:
        return np.zeros(0), []
    passed = [one for one in approaches(made) if one.slack < -PASSED * one.size]
    names = sorted({made.limits.constraint(one.row) for one in passed})
    return np.unique([one.time for one in passed]), names


def passed_bounds(
    problem: Problem, integrator: Integrator, x: FloatArray, slack: float = SLACK
) -> list[str]:
    """Variables over time, and slopes, that leave their bounds at the unknowns x (n,).

    slack  by how much of their size they may
    """
    if not any(bounded_over_time(i) for i in problem.instances if not i.is_relaxed):
        return []
    passed, grids = [], list[FloatArray]()
    for k, instance in enumerate(problem.instances):
        fine = fine_grid(problem, k)
        grids.append(np.union1d(fine, [t for t in instance.time if t >= fine[0]]))
    values = problem.box.mapping(x)
    runs = simulate_all(problem, integrator, values, tuple(grids))
    for k, (ivp, run) in enumerate(runs):
        instance = problem.instances[k]
        if not has_constant_bounds(instance):
            instance = at_more_times(problem, k, bounds_too=False).instances[k]
        bounded = bounds_over_time(instance)
        names = [name for name in bounded if name in quantities(ivp)]
        q = problem.box.select(ivp.unknowns).vector(values)
        own = np.array(instance.time, dtype=float)
        at = np.searchsorted(own, run.times).clip(0, len(own) - 1)
        along = quantities_along(ivp, run, q, names)
        for name, value in zip(names, along, strict=True):
            lower, upper = bounded[name]
            room = slack * float(np.nanmax(np.abs(value), initial=0.0))
            if ((value < lower[at] - room) | (value > upper[at] + room)).any():
                passed.append(name)
    return list(dict.fromkeys(passed))


def touched_bounds(problem: Problem, x: FloatArray) -> list[str]:
    """Implicit variables that come next to their bounds at the unknowns x (n,)."""
    touched = set[str]()
    for k in range(len(problem.experiments)):
        implicit = set(compiled(problem).initial_value_problem(k, switching=True).implicit)
        if not implicit & bounded_over_time(problem.instances[k]).keys():
            continue
        bounded = problem.formed(partial(with_bounds, names=frozenset(implicit)))
        if (made := limits_along(at_more_times(bounded, k, bounds_too=False), k, x)) is None:
            continue
        near = {made.limits.constraint(a.row) for a in approaches(made) if a.slack <= NEXT * a.size}
        touched |= {n for n in implicit if any(one.startswith(f"{n} ") for one in near)}
    return sorted(touched)


def without_bounds(problem: Problem, method: Any, estimate: Estimate) -> Estimate:
    """The estimate of a method without bounds of variables over time, which names those passed."""
    passed = list[str]()
    if estimate.status.usable and not estimate.status.is_early:
        with suppress(IgpeError):  # it may break down after the measurements
            x = problem.box.vector(estimate.parameters)
            passed = passed_bounds(problem, method.integrator, x)
    note = (
        f"{type(method).__name__} does not enforce bounds of variables over time, and the estimate "
        f"leaves those of {in_words(passed)}. Use igpe.Collocation or igpe.MultipleShooting."
    )
    return replace(estimate, notes=(*estimate.notes, *[note] * bool(passed)))


def _over_times(problem: Problem) -> Sequence[Callable[[FloatArray], LimitsAlong]]:
    """The constraints of each experiment that has some, with those over time at many times.

    raises  as `model_limits`; the functions, EstimationFailed if the model cannot be integrated
    """
    made = []
    for k, experiment in enumerate(problem.experiments):
        fine = at_more_times(problem, k, bounds_too=False)
        if fine.starts[k].others or fine.instances[k].inequalities:
            made.append(partial(_reached, _followed(fine, k), experiment.name))
    return made


def _reached(
    follow: Callable[[FloatArray], LimitsAlong | None], name: str, x: FloatArray
) -> LimitsAlong:
    if (along := follow(x)) is None:
        raise EstimationFailed(
            f"The model of '{name}' cannot be integrated to all times of its constraints.",
            Status.INTEGRATION_BROKE,
        )
    return along


def violated(problem: Problem, *points: FloatArray) -> list[set[str]]:
    """Names of the constraints that the trajectories violate, at each of these unknowns (n,).

    An equation counts as violated unless it holds whatever the unknowns are.
    raises  as `limits_along`; EstimationFailed if the model cannot be integrated
    """
    followed = _over_times(problem)
    return [_violated([follow(x) for follow in followed], x) for x in points]


def _violated(each: Iterable[LimitsAlong], x: FloatArray) -> set[str]:
    names = set[str]()
    for limits, value, along in each:
        size = np.abs(value)
        still = np.linalg.norm(along * x, axis=1) <= SAME * size
        holds = limits.equations & still & (np.abs(value - limits.low) <= SAME * size)
        slack = np.minimum(value - limits.low, limits.high - value)
        lost = ~holds & ~(slack >= ROUNDING * size)
        names |= {limits.constraint(i) for i in np.flatnonzero(lost).tolist()}
    return names


def within_reach(problem: Problem, x: FloatArray, covariance: FloatArray) -> set[str]:
    """Names of the constraints that are violated at x (n,), or `FAR` standard errors from there.

    covariance  (n, n) of the unknowns. It tells where a constraint would be violated first; the
                model itself tells whether it is
    raises      as `violated`
    """
    followed = _over_times(problem)
    each = [follow(x) for follow in followed]
    names = _violated(each, x)
    for limits, value, along in each:
        reach = along @ covariance
        error = np.sqrt(np.einsum("cn,cn->c", reach, along))
        below, above = value - limits.low, limits.high - value
        slack = np.minimum(below, above) - FAR * error
        side = np.where(below < above, -FAR, FAR)
        looked_at = set[str]()
        for i in np.argsort(slack).tolist():  # the worst time of each is enough
            name = limits.constraint(i)
            if not slack[i] >= 0 and not limits.equations[i] and name not in names | looked_at:
                looked_at.add(name)
                there = problem.box.clip(x + side[i] * reach[i] / error[i])
                names |= {name} & _violated((follow(there) for follow in followed), there)
    return names


def model_limits(
    problem: Problem,
    k: int,
    ivp: InitialValueProblem,
    inputs: Mapping[str, SymbolicInput] = MappingProxyType({}),
) -> ModelLimits | None:
    """Those of experiment `k`; None if there are none.

    inputs  those whose values are expressions in the unknowns of `ivp`, in place of the
            experiment's own
    raises ModelError if one cannot be translated, Unsupported if it holds what the equations do not
           determine, or a time before the start
    """
    constraints: list[tuple[str, float | None, Any]] = [
        (name, None, c) for name, c in problem.starts[k].others.items()
    ]
    for name, series in problem.instances[k].inequalities.items():
        constraints += [(f"{name} at {t:g}", t, c) for t, c in series.items()]
    if not constraints:
        return None
    symbols = _Symbols(problem, k, ivp, inputs)
    translate = Translator(symbols, ivp.t)
    rows: list[tuple[str, Any, float, float, float]] = []
    for name, time, constraint in constraints:
        symbols.begin(name, time, constraint)
        when = np.nan if time is None else time
        low, body, high = (translate(part) for part in constraint.to_bounded_expression())
        low, high = (None if b is None else ca.SX(b) for b in (low, high))
        if all(b is None or b.is_constant() for b in (low, high)):
            least, most = (
                w if b is None else float(b) for b, w in ((low, -np.inf), (high, np.inf))
            )
            rows.append((name, body, least, most, when))
            continue
        # A bound that is no number: one or two constraints with bound 0.
        rows += [(name, body - low, 0.0, np.inf, when)] if low is not None else []
        rows += [(name, body - high, -np.inf, 0.0, when)] if high is not None else []
    names, values, *numbers = zip(*rows, strict=True)
    low_ones, high_ones, times = map(np.array, numbers)
    readings = tuple(symbols.readings)
    v, c = stack(symbols.readings.values()), stack(map(ca.SX, values))
    by_q = ca.densify(ca.jacobian(c, ivp.q))
    function = ca.Function("limits", [v, ivp.q], [ca.densify(c), ca.jacobian(c, v), by_q])
    watched = tuple(dict.fromkeys(r.name for r in readings))
    of = f" of {problem.experiments[k].name}" if len(problem.experiments) > 1 else ""
    return ModelLimits(names, of, readings, watched, low_ones, high_ones, times, function)


class _Symbols(Mapping[int, Any]):
    """id(Pyomo data) -> what it is in constraints of one experiment; readings as they are met."""

    def __init__(
        self,
        problem: Problem,
        k: int,
        ivp: InitialValueProblem,
        inputs: Mapping[str, SymbolicInput],
    ) -> None:
        self.readings: dict[LimitQuantity, Any] = {}
        self._moving: dict[int, tuple[str, Any, SymbolicInput]] = {}  # inputs without time
        self.start, instance, experiment = ivp.t0, problem.instances[k], problem.experiments[k]
        free = dict(zip(ivp.unknowns, ca.vertsplit(ivp.q), strict=True))
        families = [
            *((n, instance.states[n]) for n in ivp.states),
            *((f"d({n})", instance.slopes[n]) for n in ivp.states),
            *((n, instance.over_time(n) or {}) for n in ivp.algebraic),
        ]
        self._readable = {
            id(data): LimitQuantity(n, t) for n, series in families for t, data in series.items()
        }

        def unknown(name: str) -> Any:
            return free[name] if name in free else ca.SX(problem.fixed[name])

        others = {
            id(instance.scalars[n]): unknown(problem.unknown_of(n, experiment))
            for n in problem.parameters
        }
        for name, value in experiment.inputs.items():  # at a jump those before it
            of = inputs.get(name, partial(_evaluated, value))
            if name in instance.scalars:
                self._moving[id(instance.scalars[name])] = name, value, of
            for t, data in instance.series.get(name, {}).items():
                others[id(data)] = of(t, t > self.start)
        for name in problem.time_varying:
            pieces = problem.pieces(name, experiment)
            for t, data in instance.series[name].items():
                earlier = [n for n, begin in pieces.items() if begin < t] or list(pieces)[:1]
                others[id(data)] = unknown(earlier[-1])
        self._others: dict[int, Any] = others

    def begin(self, name: str, time: float | None, constraint: Any) -> None:
        """Stand for what a constraint contains; inputs have their values at its time.

        raises Unsupported for what no equation determines, times before the start, and inputs that
               change with time if neither they nor the constraint have a time
        """
        variables = list(identify_variables(constraint.expr, include_fixed=True))
        free = [v for v in variables if not v.fixed and id(v) not in self._moving]
        lost = sorted({v.name for v in free if id(v) not in self})
        if lost:
            raise Unsupported(
                f"The constraint '{name}' contains {lost}. No time-dependent equation determines "
                "these variables, and they are not parameters. Name them in parameters=[...], or "
                "fix them."
            )
        read = ((v, self._readable.get(id(v))) for v in variables)
        early = [v.name for v, reading in read if reading and reading.time < self.start]
        if early:
            raise Unsupported(
                f"The constraint '{name}' contains {early}, at times before the experiment "
                f"starts (at {self.start:g}). Start the experiment earlier "
                "(Experiment(start_time=...)), or deactivate the constraint."
            )
        used = {id(c) for c in (*variables, *identify_mutable_parameters(constraint.expr))}
        for component in self._moving.keys() & used:
            own, value, of = self._moving[component]
            if time is None and not isinstance(value, float):
                raise Unsupported(
                    f"The constraint '{name}' contains the input '{own}', which changes with "
                    "time, but neither of them is indexed by time. Index the input by time."
                )
            now = self.start if time is None else time
            self._others[component] = of(now, now > self.start)

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
