"""The experiment that is planned, as a problem of its own: what is free in it, what is not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.equations.initial_value import InitialValueProblem, initial_value_problem
from igpe.equations.reading.read import read_system
from igpe.planning.freedom import Between, Deviation, Freedom, Levels, Ramps
from igpe.planning.sensitivity_problem import Choice, sensitivity_problem
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table, linear, steps
from igpe.problem.noise.sigma import Estimated
from igpe.problem.problem import Problem


@dataclass(frozen=True)
class Conditions:
    """What is the same in all planned experiments.

    start, inputs  as for `Experiment`;  begin, end: when it starts, and the last candidate time
    """

    start: Mapping[str, Any]
    inputs: Mapping[str, Any]
    begin: float
    end: float


@dataclass(frozen=True)
class Planned:
    """A planned experiment whose choices are open.

    problem   it alone, with operating parameters and start values to choose among the unknowns
    free      name -> what may be chosen;  conditions: all else
    choices   the numbers to choose
    sources   unknown of `problem`, not chosen -> the whole problem's that it is, or resembles
    shared    unknowns of the whole problem that it tells of
    own       those of `problem` that each planned experiment has for itself
    """

    problem: Problem
    free: Mapping[str, Freedom]
    conditions: Conditions
    choices: tuple[Choice, ...]
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
        (experiment,) = self.problem.experiments
        return initial_value_problem(
            self.problem, experiment, read_system(self.problem, experiment)
        )

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
        for name, freedom in self.free.items():
            count = _count(freedom)
            numbers = [float(v) for v in design[first : first + count]]
            first += count
            if name in self.problem.instance.states:
                start[name] = numbers[0]
            else:
                inputs[name] = (
                    numbers[0] if isinstance(freedom, Between) else _profile(freedom, numbers)
                )
        return start, inputs


def planned(
    problem: Problem,
    template: Experiment,
    free: Mapping[str, Freedom],
    conditions: Conditions,
    measured: Mapping[str, Deviation],
) -> Planned:
    """The planned experiment of a problem, like one of its experiments where nothing is said.

    raises  ProblemError if something free is not in the model, or of the wrong kind
    """
    for name, freedom in free.items():
        _check(problem, name, freedom)
    alone = _alone(problem, template, free, conditions, measured)
    sources = _sources(problem, template, alone, free)
    shared = {n for n in problem.parameters if n not in problem.local}
    return Planned(
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
    free: Mapping[str, Freedom],
    conditions: Conditions,
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
    return {n: d if isinstance(d, Estimated) else 1.0 for n, d in measured.items()}


def _sources(
    problem: Problem, template: Experiment, alone: Problem, free: Mapping[str, Freedom]
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


def _check(problem: Problem, name: str, freedom: Any) -> None:
    instance = problem.instance
    if not isinstance(freedom, Between | Levels | Ramps):
        raise ProblemError(
            f"free['{name}'] is a {type(freedom).__name__}; wanted igpe.Between(lower, upper), "
            "igpe.Levels(breaks, lower, upper) or igpe.Ramps(breaks, lower, upper)."
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
    if name not in instance.series and not isinstance(freedom, Between):
        kind = "a start value" if name in instance.states else "a number without time"
        raise ProblemError(
            f"'{name}' is {kind}, so it has no profile over time; give igpe.Between(lower, upper)."
        )


def _choices(alone: Problem, free: Mapping[str, Freedom], begin: float) -> list[Choice]:
    (experiment,) = alone.experiments
    tabulated = [n for n, given in experiment.inputs.items() if isinstance(given, Table)]
    found = []
    for name, f in free.items():
        if name in tabulated:
            shapes, place = _shapes(f, begin), tabulated.index(name)
            found += [
                Choice(_label(name, f, i), f.lower, f.upper, profile=(place, shape))
                for i, shape in enumerate(shapes)
            ]
        else:
            is_start = name in alone.instance.states
            unknown = alone.start_unknown(name, experiment) if is_start else name
            found.append(Choice(unknown, f.lower, f.upper, unknown=unknown))
    return found


def _label(name: str, freedom: Freedom, i: int) -> str:
    return name if isinstance(freedom, Between) else f"{name} at {freedom.breaks[i]:g}"


def _count(freedom: Freedom) -> int:
    return 1 if isinstance(freedom, Between) else len(freedom.breaks)


def _shapes(freedom: Freedom, begin: float) -> list[Table]:
    """One profile for each number: 1 at its own break, 0 at the others; a constant is 1."""
    if isinstance(freedom, Between):
        return [steps([begin], [1.0])]
    unit = np.eye(len(freedom.breaks))
    return [_profile(freedom, row) for row in unit]


def _profile(freedom: Levels | Ramps, numbers: Any) -> Table:
    make = steps if isinstance(freedom, Levels) else linear
    return make(freedom.breaks, numbers)
