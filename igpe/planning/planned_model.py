"""The experiment that is planned, as a problem of its own: what is free in it, what is not.

An initial value problem whose states are states and sensitivities, as a function of a design.

With S = dx/dp W, Y = dy/dp W and the design d (start values, inputs, operating parameters),

    dx = f(t, x, y, d),     dS = f_x S + f_y Y + f_p W,     0 = g,   0 = g_x S + g_y Y + g_p W,
    told: h and h_x S + h_y Y + h_p W

at given parameters p. As an initial value problem like any other it is integrated by any of the
integrators, and their sensitivities are the exact second derivatives d²h/dp dd that the gradient of
a criterion needs. Profiles are sums of fixed profiles, one for each number to choose, so that no
integrator steps across a jump and nothing depends on where d is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.planning.design_variables import Between, DesignVariable, Levels, Ramps
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table, linear_input, step_input
from igpe.problem.noise.estimated import EstimatedSigma
from igpe.problem.noise.sigma import Deviation
from igpe.problem.problem import Problem

NEAREST = 1e-2  # of its range: so large a number to choose counts at least


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
    shapes, tables, u = _profiles(ivp, choices, design)
    chosen = {c.unknown: i for i, c in enumerate(choices) if c.unknown}
    symbols = {n: ivp.q[i] for i, n in enumerate(ivp.unknowns)}
    p = ca.vertcat(*(symbols.get(n, ca.SX.sym(n)) for n in sizes))
    width, n_x, n_y = ca.diag(ca.DM(list(sizes.values()))), ivp.x.numel(), ivp.y.numel()
    s, y_s = ca.SX.sym("S", n_x, len(sizes)), ca.SX.sym("Y", n_y, len(sizes))
    old = ca.vertcat(ivp.u, ivp.q)
    fixed = [design[chosen[n]] if n in chosen else ca.SX(values[n]) for n in ivp.unknowns]
    new = ca.vertcat(u, *fixed)

    def varied(expression: Any) -> Any:
        by_x, by_y = ca.jacobian(expression, ivp.x), ca.jacobian(expression, ivp.y)
        both = ca.vertcat(
            expression, ca.vec(by_x @ s + by_y @ y_s + ca.jacobian(expression, p) @ width)
        )
        return ca.densify(ca.substitute(both, old, new))

    begins = ca.vertcat(ivp.start, ca.vec(ca.jacobian(ivp.start, p) @ width))
    times = 1 + len(sizes)
    return replace(
        ivp,
        states=(*ivp.states, *(f"d({x})/d({n})" for n in sizes for x in ivp.states)),
        implicit=(*ivp.implicit, *(f"d({y})/d({n})" for n in sizes for y in ivp.implicit)),
        unknowns=tuple(c.label for c in choices),
        x=ca.vertcat(ivp.x, ca.vec(s)),
        y=ca.vertcat(ivp.y, ca.vec(y_s)),
        u=shapes,
        q=design,
        f=varied(ivp.f),
        g=varied(ivp.g),
        start=ca.densify(ca.substitute(begins, old, new)),
        measured=varied(ivp.measured),
        algebraic={},
        tables=tables,
        scale=np.tile(ivp.scale, times),
        largest=np.tile(ivp.largest, times),
        unknown_scale=np.array([NEAREST * (c.upper - c.lower) for c in choices]),
        implicit_scale=np.tile(ivp.implicit_scale, times),
        guess=_padded(ivp.guess, 0.0, times),
        lower=_padded(ivp.lower, -np.inf, times),
        upper=_padded(ivp.upper, np.inf, times),
    )


def _profiles(
    ivp: InitialValueProblem, choices: Sequence[DesignNumber], design: Any
) -> tuple[Any, tuple[Table, ...], Any]:
    """Symbols and tables of the shapes, and the inputs (n_u,) as sums of them."""
    symbols, tables, sums = [], [], []
    for k in range(ivp.u.numel()):
        mine = [(i, c.profile[1]) for i, c in enumerate(choices) if c.profile and c.profile[0] == k]
        if not mine:
            symbols.append(ca.SX.sym(f"u{k}"))
            tables.append(ivp.tables[k])
            sums.append(symbols[-1])
            continue
        shapes = [ca.SX.sym(f"u{k}_{i}") for i, _ in mine]
        symbols += shapes
        tables += [table for _, table in mine]
        sums.append(sum(design[i] * shape for (i, _), shape in zip(mine, shapes, strict=True)))
    return ca.vertcat(ca.SX(0, 1), *symbols), tuple(tables), ca.vertcat(ca.SX(0, 1), *sums)


def _padded(values: FloatArray, rest: float, times: int) -> FloatArray:
    return np.concatenate([values, np.full(len(values) * (times - 1), rest)])


@dataclass(frozen=True)
class ExperimentConditions:
    """What is the same in all planned experiments.

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
    sources   unknown of `problem`, not chosen -> the whole problem's that it is, or resembles
    shared    unknowns of the whole problem that it tells of
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

    def initial_value_problem(self) -> InitialValueProblem:
        """The experiment with its choices and parameters open."""
        return compiled(self.problem).initial_value_problem(0)

    def values(self, whole: Mapping[str, float]) -> dict[str, float]:
        """Unknowns of `problem` that are not chosen, from those of the whole problem."""
        return {n: float(whole[source]) for n, source in self.sources.items()}

    def with_sensitivities(
        self, ivp: InitialValueProblem, whole: Mapping[str, float], sizes: Mapping[str, float]
    ) -> InitialValueProblem:
        """States and sensitivities by shared and own unknowns, as a function of the choices.

        whole, sizes  the whole problem's unknowns -> value, and size to which errors are relative
        """
        ordered = {n: sizes[self.sources[n]] for n in (*self.shared, *self.own)}
        return sensitivity_problem(ivp, self.choices, self.values(whole), ordered)

    def settings(self, design: FloatArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start values and inputs with the numbers (n_choices,) that were chosen."""
        start, inputs = dict(self.conditions.start), dict(self.conditions.inputs)
        first = 0
        for name, variable in self.free.items():
            count = _count(variable)
            numbers = [float(v) for v in design[first : first + count]]
            first += count
            if name in self.problem.instance.states:
                start[name] = numbers[0]
            else:
                inputs[name] = (
                    numbers[0] if isinstance(variable, Between) else _profile(variable, numbers)
                )
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
    for name, variable in free.items():
        _check(problem, name, variable)
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
    start |= {n: Unknown(f.lower, f.upper) for n, f in free.items() if n in states}
    inputs = {n: v for n, v in conditions.inputs.items() if n not in free}
    inputs |= {
        n: _shapes(f, conditions.begin)[0]
        for n, f in free.items()
        if n not in states and n not in scalars
    }
    bounds = {n: _bounds(problem, n, template) for n in problem.parameters}
    bounds |= {n: (f.lower, f.upper) for n, f in free.items() if n in scalars}
    table = pd.DataFrame({"time": [conditions.end]} | {n: [0.0] for n in measured})
    only = Experiment(
        table,
        name="plan",
        start=start,
        start_time=conditions.begin,
        inputs=inputs,
        sigma=carried(measured),
    )
    return Problem(problem.model, parameters=bounds, experiments=only)


def carried(measured: Mapping[str, Deviation]) -> dict[str, Any]:
    """As `Experiment(sigma=...)` has it: what must be computed with the model, 1 for all else."""
    return {n: d if isinstance(d, EstimatedSigma) else 1.0 for n, d in measured.items()}


def _sources(
    problem: Problem, template: Experiment, alone: Problem, free: Mapping[str, DesignVariable]
) -> dict[str, str]:
    """Unknown that is not chosen -> the whole problem's unknown that it is, or resembles."""
    (experiment,) = alone.experiments
    starts = {
        alone.start_unknown(n, experiment): problem.start_unknown(n, template)
        for n, given in experiment.start.items()
        if isinstance(given, Unknown) and n not in free
    }
    unknown = [n for n, source in starts.items() if source not in problem.unknowns.names]
    if unknown:
        raise ProblemError(
            f"The start values {unknown} of the planned experiment are unknown, and nothing is "
            "known to plan with; give numbers in conditions={...}, or let them be free."
        )
    return {n: problem.unknown_of(n, template) for n in problem.parameters} | starts


def _bounds(problem: Problem, name: str, template: Experiment) -> tuple[float, float]:
    one = problem.unknowns.select([problem.unknown_of(name, template)])
    return float(one.lower[0]), float(one.upper[0])


def _check(problem: Problem, name: str, variable: Any) -> None:
    instance = problem.instance
    if not isinstance(variable, Between | Levels | Ramps):
        raise ProblemError(
            f"free['{name}'] is a {type(variable).__name__}; wanted igpe.planning.Between(lower, "
            "upper), "
            "igpe.planning.Levels(breaks, lower, upper) or igpe.planning.Ramps(breaks, lower, "
            "upper)."
        )
    if name in problem.parameters:
        raise ProblemError(
            f"'{name}' is free in the planned experiment, but it is a parameter to be estimated; "
            "take one away."
        )
    if name not in {*instance.states, *instance.scalars, *instance.series}:
        raise ProblemError(
            f"free names '{name}', which is nothing of the model. Start values are chosen by the "
            f"name of their state, {list(instance.states)}; inputs and operating parameters are "
            f"{sorted([*instance.series, *instance.scalars])}."
        )
    if name not in instance.series and not isinstance(variable, Between):
        kind = "a start value" if name in instance.states else "a number without time"
        raise ProblemError(
            f"'{name}' is {kind}, so it has no profile over time; give "
            "igpe.planning.Between(lower, upper)."
        )


def _choices(
    alone: Problem, free: Mapping[str, DesignVariable], begin: float
) -> list[DesignNumber]:
    (experiment,) = alone.experiments
    tabulated = [n for n, given in experiment.inputs.items() if isinstance(given, Table)]
    found = []
    for name, f in free.items():
        if name in tabulated:
            shapes, place = _shapes(f, begin), tabulated.index(name)
            found += [
                DesignNumber(_label(name, f, i), f.lower, f.upper, profile=(place, shape))
                for i, shape in enumerate(shapes)
            ]
        else:
            is_start = name in alone.instance.states
            unknown = alone.start_unknown(name, experiment) if is_start else name
            found.append(DesignNumber(unknown, f.lower, f.upper, unknown=unknown))
    return found


def _label(name: str, variable: DesignVariable, i: int) -> str:
    return name if isinstance(variable, Between) else f"{name} at {variable.breaks[i]:g}"


def _count(variable: DesignVariable) -> int:
    return 1 if isinstance(variable, Between) else len(variable.breaks)


def _shapes(variable: DesignVariable, begin: float) -> list[Table]:
    """One profile for each number: 1 at its own break, 0 at the others; a constant is 1."""
    if isinstance(variable, Between):
        return [step_input([begin], [1.0])]
    unit = np.eye(len(variable.breaks))
    return [_profile(variable, row) for row in unit]


def _profile(variable: Levels | Ramps, numbers: Any) -> Table:
    make = step_input if isinstance(variable, Levels) else linear_input
    return make(variable.breaks, numbers)
