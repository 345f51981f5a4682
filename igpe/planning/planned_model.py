"""The experiment that is planned: an initial value problem with sensitivities, and its rows.

With S = dx/dp W, Y = dy/dp W and the design d (start values, inputs, operating parameters),

    dx = f(t, x, y, d),     dS = f_x S + f_y Y + f_p W,     0 = g,   0 = g_x S + g_y Y + g_p W,
    outputs: h and h_x S + h_y Y + h_p W

at given parameters p: an initial value problem like any other, for any of the integrators. Profiles
are sums of fixed profiles, one for each number to choose, so that no integrator steps across a jump
and nothing depends on where d is.

A measurement of h with a standard deviation s that the model computes has the information
h'h'/s^2 + 2 s's'/s^2 (outer products), as in `shooting/estimated_sigma`: two rows. Derivatives
by the design are central differences of these rows: exact ones by the second-order variational
equations take as long for short models and seven times as long for others (urethane, ten numbers).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from pyomo.core.expr.visitor import identify_mutable_parameters

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ProblemError
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.base import constraints
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.planning.design_variables import DesignVariable, Ramps, placeholder
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table
from igpe.problem.noise.sigma import Deviation, NoiseModel
from igpe.problem.problem import Problem

CHECKED = 61  # times at which the model's constraints over time are kept
JUST_AFTER = 1e-7  # of the horizon: so long after a jump they are kept as well
NEAREST = 1e-2  # of its range: so large a number to choose counts at least
SHIFT = 1e-3  # of a number's range, either way
ROOT = float(np.sqrt(2.0))


class DesignNumber(NamedTuple):
    """One number to choose.

    label         what the user reads;  lower, upper: its bounds
    unknown       the unknown of the initial value problem that it is; empty for a profile
    profile       which of its tables it is part of, and of which shape; None for an unknown
    """

    label: str
    lower: float
    upper: float
    unknown: str = ""
    profile: tuple[int, Table] | None = None


def sensitivity_problem(
    ivp: InitialValueProblem,
    choices: Sequence[DesignNumber],
    values: Mapping[str, float],
    sizes: Mapping[str, float],
) -> InitialValueProblem:
    """States and sensitivities by `sizes`' unknowns, as a function of the choices.

    values  unknown -> value of all unknowns that are not chosen
    sizes   unknown -> W: sensitivities are by p / W; these unknowns in this order, also those on
            which nothing depends
    """
    design = ca.SX.sym("design", len(choices))
    shapes: list[Any] = []  # symbols of all profiles, with their tables; inputs are sums of them
    tables: list[Table] = []
    u: list[Any] = []
    for k, table in enumerate(ivp.tables):
        own = [(i, c.profile[1]) for i, c in enumerate(choices) if c.profile and c.profile[0] == k]
        parts = [ca.SX.sym(f"u{k}_{i}") for i, _ in own] or [ca.SX.sym(f"u{k}")]
        shapes += parts
        tables += [shape for _, shape in own] or [table]
        pairs = zip(own, parts, strict=False)
        u.append(sum(design[i] * part for (i, _), part in pairs) if own else parts[0])
    chosen = {c.unknown: i for i, c in enumerate(choices) if c.unknown}
    symbols = {n: ivp.q[i] for i, n in enumerate(ivp.unknowns)}
    p = ca.vertcat(ca.SX(0, 1), *(symbols.get(n, ca.SX.sym(n)) for n in sizes))
    width, n_x, n_y = ca.diag(ca.vertcat(*sizes.values())), ivp.x.numel(), ivp.y.numel()
    s, y_s = ca.SX.sym("S", n_x, len(sizes)), ca.SX.sym("Y", n_y, len(sizes))
    old = ca.vertcat(ivp.u, ivp.q)
    fixed = [design[chosen[n]] if n in chosen else ca.SX(values[n]) for n in ivp.unknowns]
    new = ca.vertcat(*u, *fixed)

    def varied(expression: Any) -> Any:
        by_x, by_y = ca.jacobian(expression, ivp.x), ca.jacobian(expression, ivp.y)
        total = by_x @ s + by_y @ y_s + ca.jacobian(expression, p) @ width
        return ca.densify(ca.substitute(ca.vertcat(expression, ca.vec(total)), old, new))

    begins = ca.vertcat(ivp.start, ca.vec(ca.jacobian(ivp.start, p) @ width))
    times = 1 + len(sizes)

    def padded(values: FloatArray, rest: float) -> FloatArray:
        return np.concatenate([values, np.full(len(values) * (times - 1), rest)])

    return replace(
        ivp,
        states=(*ivp.states, *(f"d({x})/d({n})" for n in sizes for x in ivp.states)),
        implicit=(*ivp.implicit, *(f"d({y})/d({n})" for n in sizes for y in ivp.implicit)),
        unknowns=tuple(c.label for c in choices),
        x=ca.vertcat(ivp.x, ca.vec(s)),
        y=ca.vertcat(ivp.y, ca.vec(y_s)),
        u=ca.vertcat(ca.SX(0, 1), *shapes),
        q=design,
        f=varied(ivp.f),
        g=varied(ivp.g),
        start=ca.densify(ca.substitute(begins, old, new)),
        measured=varied(ivp.measured),
        algebraic={},
        tables=tuple(tables),
        scale=np.tile(ivp.scale, times),
        largest=np.tile(ivp.largest, times),
        unknown_scale=np.array([NEAREST * (c.upper - c.lower) for c in choices]),
        implicit_scale=np.tile(ivp.implicit_scale, times),
        guess=padded(ivp.guess, 0.0),
        lower=padded(ivp.lower, -np.inf),
        upper=padded(ivp.upper, np.inf),
        shared=None,
    )


class PredictedOutputs(NamedTuple):
    """Predicted outputs of an experiment.

    value  (n_times, n_measured);  sensitivities: (n_times, n_measured, n), as `sensitivity_problem`
    sigma  (n_times, n_measured) standard deviations of measurements
    """

    value: FloatArray
    sensitivities: FloatArray
    sigma: FloatArray


class PlannedSensitivities:
    """Rows of one experiment at given parameters, as a function of the chosen numbers."""

    def __init__(
        self,
        ivp: InitialValueProblem,
        times: FloatArray,
        noise: Sequence[Deviation],
        integrator: Integrator,
        bounds: tuple[FloatArray, FloatArray],
    ) -> None:
        self.noise, self.bounds = noise, bounds
        self.times, self._replicates = np.unique(times, return_inverse=True)
        names = [n.estimated for n in noise if n.estimated]
        places = {n: len(noise) + i for i, n in enumerate(dict.fromkeys(names))}
        self.estimated = np.array([bool(n.estimated) for n in noise])
        self.deviation = [places[n.estimated] if n.estimated else i for i, n in enumerate(noise)]
        self.outputs = len(noise) + len(places)  # measured quantities, estimated deviations
        self._simulation = integrator.simulation(ivp, self.times, sensitivities=False)

    def rows(self, design: FloatArray) -> FloatArray | None:
        """(n_times, n_measured, n_rows, n) at a design (n_choices,).

        A sample's information is the sum of the products row' row. The first row is the sensitivity
        by the standard deviation. There is a second one if a standard deviation is estimated.
        None where it cannot be integrated, or an estimated deviation is not positive.
        """
        run = self._run(design)
        if run is None:
            return None
        _, s, sigma = run
        columns = [s[:, : len(self.noise)]]
        if self.estimated.any():
            columns.append(np.where(self.estimated[:, None], ROOT * s[:, self.deviation], 0.0))
        rows = np.stack(columns, axis=2) / sigma[..., None, None]
        return rows[self._replicates] if np.isfinite(rows).all() else None

    def predicted(self, design: FloatArray) -> PredictedOutputs | None:
        """Predictions at a design (n_choices,); None where it cannot be integrated."""
        run, m = self._run(design), len(self.noise)
        if run is None or not all(np.isfinite(part).all() for part in run[:2]):
            return None
        return PredictedOutputs(*(part[self._replicates, :m] for part in run))

    def _run(self, design: FloatArray) -> PredictedOutputs | None:
        """Outputs at distinct times; estimated deviations follow the measured quantities."""
        run = self._simulation.run(design)
        if not run.status.usable:
            return None
        h = run.measured[:, : self.outputs]
        rest = run.measured[:, self.outputs :].reshape(len(h), -1, self.outputs)
        s = np.moveaxis(rest, 1, 2)  # (n_times, n_outputs, n)
        pairs = zip(self.noise, h.T, strict=False)
        given = [n.deviation(y) if isinstance(n, NoiseModel) else np.ones_like(y) for n, y in pairs]
        sigma = np.stack(given, axis=1)
        sigma = np.where(sigma > 0, sigma, np.inf)  # a value that is exactly 0 has no information
        model = h[:, self.deviation]
        sigma = np.where(self.estimated, np.where(model > 0, model, np.nan), sigma)
        return PredictedOutputs(h, s, sigma)

    def rows_and_slopes(self, design: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Rows, and their derivatives (..., n_choices) by the design; None where there are none."""
        return with_slopes(self.rows, design, self.bounds)


def with_slopes(
    rows: Callable[[FloatArray], FloatArray | None],
    design: FloatArray,
    bounds: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray] | None:
    """Rows at a design (n_choices,) and their central differences (..., n_choices) within bounds.

    None where the rows cannot be computed
    """
    value, (lower, upper), slopes = rows(design), bounds, []
    for i, shift in enumerate(SHIFT * (upper - lower)):
        low, high = design.copy(), design.copy()
        low[i], high[i] = max(design[i] - shift, lower[i]), min(design[i] + shift, upper[i])
        ends = rows(low), rows(high)
        if value is None or ends[0] is None or ends[1] is None:
            return None
        slopes.append((ends[1] - ends[0]) / (high[i] - low[i]))
    return None if value is None else (value, np.stack(slopes, axis=-1))


class ExperimentConditions(NamedTuple):
    """Conditions that all planned experiments share.

    start, inputs  as for `Experiment`;  begin, end: when it starts, and the last candidate time
    """

    start: Mapping[str, Any]
    inputs: Mapping[str, Any]
    begin: float
    end: float


@dataclass(frozen=True)
class PlannedModel:
    """A planned experiment whose choices are open.

    problem   it alone, with operating parameters and start values to choose among the unknowns
    free      name -> what may be chosen;  conditions: all else
    choices   the numbers to choose
    sources   unknown of `problem`, not chosen -> the full problem's that it is, or resembles
    shared    unknowns of the full problem on which it has information
    own       those of `problem` that each planned experiment has for itself
    """

    problem: Problem
    free: Mapping[str, DesignVariable]
    conditions: ExperimentConditions
    choices: tuple[DesignNumber, ...]
    sources: Mapping[str, str]
    shared: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def lower(self) -> FloatArray:
        """(n_choices,) lower bounds."""
        return np.array([c.lower for c in self.choices])

    @property
    def width(self) -> FloatArray:
        """(n_choices,) upper minus lower bounds."""
        return np.array([c.upper - c.lower for c in self.choices])

    def values(self, full: Mapping[str, float]) -> dict[str, float]:
        """Unknowns of `problem` that are not chosen, from those of the full problem.

        What each experiment measures anew, such as a start value, is what is expected of it.
        """
        expected = {n: prior.mean for n, prior in self.problem.normal_priors.items()}
        return {n: expected.get(n, float(full[source])) for n, source in self.sources.items()}

    def with_sensitivities(
        self, full: Mapping[str, float], sizes: Mapping[str, float]
    ) -> InitialValueProblem:
        """States and sensitivities by shared and own unknowns, as a function of the choices.

        full, sizes  the full problem's unknowns -> value, and size to which errors are relative
        """
        ordered = {n: sizes[self.sources[n]] for n in (*self.shared, *self.own)}
        ivp = compiled(self.problem).initial_value_problem(0)
        return sensitivity_problem(ivp, self.choices, self.values(full), ordered)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Name of a free setting -> the places of its numbers among the choices."""
        ends = np.cumsum([f.count for f in self.free.values()]).tolist()
        return {
            n: slice(end - f.count, end)
            for (n, f), end in zip(self.free.items(), ends, strict=True)
        }

    @cached_property
    def steepness(self) -> tuple[FloatArray, FloatArray]:
        """(m, n_choices), (m,): differences of numbers in the unit cube, and their largest size."""
        rows, most, unit = [], [], np.eye(len(self.choices))
        for name, f in self.free.items():
            if isinstance(f, Ramps) and f.steepest is not None:
                rows += list(np.diff(unit[self.places[name]], axis=0))
                most += list(f.steepest * np.diff(f.breaks) / (f.upper - f.lower))
        return np.array(rows).reshape(len(rows), len(self.choices)), np.array(most)

    @cached_property
    def levels(self) -> dict[int, FloatArray]:
        """Place of a discrete number among the choices -> its values in the unit cube."""
        variables = [f for f in self.free.values() for _ in range(f.count)]
        return {
            i: (np.array(f.levels) - f.lower) / (f.upper - f.lower)
            for i, f in enumerate(variables)
            if f.levels
        }

    @property
    def is_common(self) -> BoolArray:
        """(n_choices,) which numbers all experiments of a plan share."""
        return np.array([f.shared for f in self.free.values() for _ in range(f.count)], dtype=bool)

    def settings(self, design: FloatArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start values and inputs with the numbers (n_choices,) that were chosen."""
        start, inputs = dict(self.conditions.start), dict(self.conditions.inputs)
        for name, variable in self.free.items():
            numbers = [float(v) for v in design[self.places[name]]]
            kind = start if name in self.problem.instance.states else inputs
            kind[name] = variable.setting(numbers)
        return start, inputs


def planned(
    problem: Problem,
    template: Experiment,
    free: Mapping[str, DesignVariable],
    conditions: ExperimentConditions,
    measured: Mapping[str, Deviation],
) -> PlannedModel:
    """The planned experiment of a problem, like one of its experiments where nothing is said.

    raises  ProblemError if something free is not in the model, or of the wrong kind
    """
    _require_choosable(problem, free)
    alone = _alone(problem, template, free, conditions, measured)
    sources = _sources(problem, template, alone, free)
    shared = {n for n in problem.parameters if n not in problem.local}
    return PlannedModel(
        problem=alone,
        free=free,
        conditions=conditions,
        choices=tuple(_choices(alone, free, conditions.begin)),
        sources=sources,
        shared=tuple(n for n in problem.box.names if n in shared),
        own=tuple(n for n, s in sources.items() if n not in shared and s not in problem.fixed),
    )


def _alone(
    problem: Problem,
    template: Experiment,
    free: Mapping[str, DesignVariable],
    conditions: ExperimentConditions,
    measured: Mapping[str, Deviation],
) -> Problem:
    """A problem of one experiment; zeros hold the place of its measurements."""
    states, scalars = problem.instance.states, problem.instance.scalars
    start = {n: v for n, v in conditions.start.items() if n not in free}
    inputs = {n: v for n, v in conditions.inputs.items() if n not in free}
    sources = {n: problem.unknown_of(n, template) for n in problem.parameters}
    known = {n: problem.unknowns.select([source]) for n, source in sources.items()}
    bounds = {n: (float(one.lower[0]), float(one.upper[0])) for n, one in known.items()}
    for n, f in free.items():
        if n in states:
            start[n] = Unknown(f.lower, f.upper)
        elif n in scalars:
            bounds[n] = f.lower, f.upper
        else:
            inputs[n] = f.shapes(conditions.begin)[0]
    only = placeholder(
        _checked(free, conditions) if constraints(problem) else [conditions.end],
        measured,
        name="plan",
        start=start,
        start_time=conditions.begin,
        inputs=inputs,
        sigma=carried(measured),
    )
    return Problem(problem.model, parameters=bounds, experiments=only)


def _checked(free: Mapping[str, DesignVariable], held: ExperimentConditions) -> FloatArray:
    """(n,) times at which the model's constraints over time are kept; where inputs jump, before and
    after."""
    tables = [u for u in held.inputs.values() if isinstance(u, Table)]
    breaks = np.array([
        *(b for f in free.values() for b in f.breaks),
        *(b for u in tables for b in u.times),
    ])
    even = np.linspace(held.begin, held.end, CHECKED)
    inner = breaks[(breaks > held.begin) & (breaks < held.end)]
    after = inner + JUST_AFTER * (held.end - held.begin)
    return np.unique(np.concatenate([even, inner, after]))


def carried(measured: Mapping[str, Deviation]) -> dict[str, Any]:
    """`sigma` of an `Experiment`: estimated deviations, which the model computes; 1 for others."""
    return {n: d if d.estimated else 1.0 for n, d in measured.items()}


def _sources(
    problem: Problem, template: Experiment, alone: Problem, free: Mapping[str, DesignVariable]
) -> dict[str, str]:
    """Unknown that is not chosen -> the full problem's unknown that it is, or resembles."""
    (experiment,) = alone.experiments
    starts = {
        alone.start_unknown(n, experiment): problem.start_unknown(n, template)
        for n, given in experiment.start.items()
        if isinstance(given, Unknown) and n not in free
    }
    if unknown := [n for n, source in starts.items() if source not in problem.unknowns.names]:
        raise ProblemError(
            f"The start values {unknown} of the planned experiment are unknown; give their "
            "values in `conditions`, or list them in `free`."
        )
    return {n: problem.unknown_of(n, template) for n in problem.parameters} | starts


def _require_choosable(problem: Problem, free: Mapping[str, Any]) -> None:
    instance = problem.instance
    names = {*instance.states, *instance.scalars, *instance.series}
    for name, variable in free.items():
        if not isinstance(variable, DesignVariable):
            raise ProblemError(
                f"free['{name}'] is a {type(variable).__name__}; expected "
                "igpe.planning.Between(lower, upper), igpe.planning.OneOf(values), "
                "igpe.planning.Levels(breaks, lower, upper) or "
                "igpe.planning.Ramps(breaks, lower, upper)."
            )
        if name in problem.parameters:
            raise ProblemError(
                f"'{name}' is in `free`, but it is also a parameter to be estimated; remove it "
                "from one of the two."
            )
        if name not in names:
            raise ProblemError(
                f"`free` contains '{name}', which the model does not have. For a start value, "
                f"use the name of its state, {list(instance.states)}; inputs and operating "
                f"parameters are {sorted([*instance.series, *instance.scalars])}."
            )
        if name not in instance.series and variable.breaks:
            kind = "a start value" if name in instance.states else "a constant"
            raise ProblemError(
                f"'{name}' is {kind}, so it cannot have a profile over time; give "
                "igpe.planning.Between(lower, upper)."
            )
    _require_constant_at_start(problem, free)


def _require_constant_at_start(problem: Problem, free: Mapping[str, Any]) -> None:
    """Raise ProblemError for a free input over time in a start condition: no number follows it."""
    series = problem.instance.series
    for state, condition in problem.starts[0].conditions.items():
        if state in free:
            continue
        held = set(map(id, identify_mutable_parameters(condition.expr)))
        if used := [n for n in free if held & set(map(id, series.get(n, {}).values()))]:
            raise ProblemError(
                f"'{used[0]}' is in `free` and varies with time, but the start condition "
                f"'{condition.name}' contains it. igpe does not support this. Put '{state}' into "
                "`free` as well, so that its start value is chosen by itself."
            )


def _choices(
    alone: Problem, free: Mapping[str, DesignVariable], begin: float
) -> list[DesignNumber]:
    (experiment,) = alone.experiments
    tabulated = [n for n, given in experiment.inputs.items() if isinstance(given, Table)]
    numbers = []
    for name, f in free.items():
        if name in tabulated:
            labels = [f"{name} at {b:g}" for b in f.breaks] or [name]
            profiles = [(tabulated.index(name), shape) for shape in f.shapes(begin)]
            pairs = zip(labels, profiles, strict=True)
            numbers += [DesignNumber(n, f.lower, f.upper, profile=one) for n, one in pairs]
        else:
            is_start = name in alone.instance.states
            unknown = alone.start_unknown(name, experiment) if is_start else name
            numbers.append(DesignNumber(unknown, f.lower, f.upper, unknown=unknown))
    return numbers
