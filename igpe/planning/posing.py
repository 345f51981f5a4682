"""A design problem made ready: who is unknown, what is known, what may be chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from igpe.arguments import is_finite, require_mapping, shown
from igpe.arrays import FloatArray
from igpe.box import Box
from igpe.dynamic.base import require_plain
from igpe.equations.initial_value import InitialValueProblem
from igpe.errors import ProblemError
from igpe.estimates import Estimate
from igpe.experiment import Experiment
from igpe.inputs import Table, read_inputs, steps
from igpe.integrators.base import Integrator
from igpe.planning.choosing import Allowed, sets_of_quantities
from igpe.planning.criteria import Criterion
from igpe.planning.evidence import LEAST, Space
from igpe.planning.existing import Existing, Unmeasured, read_noise
from igpe.planning.freedom import Between, Freedom, Noise, Ramps, Sampling
from igpe.planning.planned import Conditions, Planned, planned
from igpe.planning.told import Told
from igpe.problem import Problem
from igpe.result import Result

EMPTY: Mapping[str, Any] = MappingProxyType({})
Values: TypeAlias = Result | Estimate | Mapping[str, float]


@dataclass(frozen=True)
class Posed:
    """What a design is made of.

    whole     the problem with the existing experiments;  template: the one the plan resembles
    plan      the planned experiment, its choices open
    values    unknown of `whole` -> value to linearise at, the held ones too
    sizes     (n,) of `whole.box`, to which errors are relative
    noise     measured quantity -> how exact;  sigma_known: whether that was given
    """

    whole: Problem
    template: Experiment
    plan: Planned
    existing: Existing
    space: Space
    allowed: Allowed
    values: Mapping[str, float]
    sizes: FloatArray
    noise: Mapping[str, Noise]
    sigma_known: bool
    criterion: Criterion
    integrator: Integrator

    def known(self, values: Mapping[str, float]) -> FloatArray:
        """(n, n) information before, of all unknowns of the space, and `LEAST` of each."""
        told = self.existing.at(values, self.sizes).information
        found = LEAST * np.eye(len(self.space.names))
        found[: len(told), : len(told)] += told
        return found

    def told(self, values: Mapping[str, float]) -> Told:
        """What a planned experiment tells if the unknowns have these values."""
        sizes = dict(zip(self.whole.box.names, self.sizes, strict=True))
        ivp = self.plan.with_sensitivities(self._ivp, {**self.values, **values}, sizes)
        bounds = self.plan.lower, self.plan.lower + self.plan.width
        return Told(ivp, self.allowed.times, list(self.noise.values()), self.integrator, bounds)

    @cached_property
    def _ivp(self) -> InitialValueProblem:
        return self.plan.initial_value_problem()


def pose(
    problem: Problem | Unmeasured,
    parameters: Values,
    *,
    free: Mapping[str, Freedom],
    conditions: Mapping[str, Any],
    times: Any,
    measure: Any,
    criterion: Criterion,
    count: int,
    existing: bool,
    like: str | None,
    integrator: Integrator,
) -> Posed:
    """See `igpe.planning.design.design`."""
    require_mapping("free", free, "free={'A': igpe.Between(0, 2)}", ProblemError)
    require_mapping("conditions", conditions, "conditions={'T': 350.0}", ProblemError)
    measured = isinstance(problem, Problem)
    whole = problem if isinstance(problem, Problem) else _unmeasured(problem, free, conditions)
    require_plain(whole, "igpe.design", constraints_too=False)
    template = _template(whole, like)
    values = _values(whole, parameters)
    sizes = _sizes(whole.box, values)
    known = Existing(whole, integrator, counted=existing and measured)
    variance = 1.0
    if measured and not whole.sigma_known and measure is None:
        measurements = known if known.counted else Existing(whole, integrator, counted=True)
        variance = measurements.at(values, sizes).variance
    noise = read_noise(measure, template, whole, variance, counted=measured)
    sampling = _sampling(times, template)
    plan = planned(
        whole, template, free, _conditions(whole, template, conditions, sampling), list(noise)
    )
    return Posed(
        whole=whole,
        template=template,
        plan=plan,
        existing=known,
        space=_space(whole, plan, sizes, count, criterion),
        allowed=_allowed(sampling, len(noise)),
        values=values,
        sizes=sizes,
        noise=noise,
        sigma_known=isinstance(measure, Mapping) or template.sigma_known,
        criterion=criterion,
        integrator=integrator,
    )


def steepness(plan: Planned) -> tuple[FloatArray, FloatArray]:
    """(m, n_choices), (m,): differences of numbers in the unit cube, and their largest size."""
    rows, most, first = [], [], 0
    for freedom in plan.free.values():
        count = 1 if isinstance(freedom, Between) else len(freedom.breaks)
        if isinstance(freedom, Ramps) and freedom.steepest is not None:
            width = freedom.upper - freedom.lower
            for i, gap in enumerate(np.diff(freedom.breaks)):
                row = np.zeros(len(plan.choices))
                row[first + i], row[first + i + 1] = -1.0, 1.0
                rows.append(row)
                most.append(freedom.steepest * float(gap) / width)
        first += count
    return np.array(rows).reshape(len(rows), len(plan.choices)), np.array(most)


def as_before(posed: Posed) -> FloatArray | None:
    """(n_choices,) the numbers of the template; None if it lacks one."""
    numbers: list[float] = []
    for name, freedom in posed.plan.free.items():
        given = posed.template.start.get(name, posed.template.inputs.get(name))
        breaks = (posed.plan.conditions.begin,) if isinstance(freedom, Between) else freedom.breaks
        if isinstance(given, Table):
            numbers += [given.at(t) for t in breaks]
        elif is_finite(given):
            numbers += [float(given)] * len(breaks)  # type: ignore[arg-type]
        else:
            return None
    return np.array(numbers)


def _unmeasured(given: Any, free: Mapping[str, Freedom], conditions: Mapping[str, Any]) -> Problem:
    """The problem of a model without measurements, all that is free amid its bounds."""
    if not isinstance(given, Unmeasured):
        raise ProblemError(
            f"igpe.design got a {type(given).__name__}; wanted an igpe.Problem, or "
            "igpe.Unmeasured(model, ...) if nothing is measured yet."
        )
    middle = {n: _middle(f, given.start_time) for n, f in free.items() if hasattr(f, "lower")}
    return given.problem({**middle, **conditions})


def _middle(freedom: Freedom, begin: float) -> Any:
    amid = (freedom.lower + freedom.upper) / 2
    if isinstance(freedom, Between):
        return amid
    return steps([begin], [amid])


def _template(problem: Problem, like: str | None) -> Experiment:
    if like is None:
        return problem.experiments[0]
    names = [e.name for e in problem.experiments]
    if like not in names:
        raise ProblemError(f"like={like!r} is no experiment of the problem, which has {names}.")
    return problem.experiments[names.index(like)]


def _values(problem: Problem, parameters: Any) -> dict[str, float]:
    """Every unknown -> value, the held ones too."""
    given = getattr(parameters, "parameters", parameters)
    require_mapping("parameters", given, "{'k1': 5.0}, a Result or an Estimate", ProblemError)
    missing = [n for n in problem.box.names if not is_finite(given.get(n))]
    strangers = [n for n in given if n not in problem.unknowns.names]
    if missing or strangers:
        raise ProblemError(
            f"A design needs a finite value of every unknown, {list(problem.box.names)}"
            + f"; none is given for {missing}" * bool(missing)
            + f"; {strangers} are no unknowns" * bool(strangers)
            + ". Give the result of igpe.estimate, or your best guess."
        )
    return {n: float(given[n]) for n in problem.box.names} | dict(problem.fixed)


def _sizes(box: Box, values: Mapping[str, float]) -> FloatArray:
    """To what errors are relative: the value, else the range, else 1."""
    x, width = np.abs(box.vector(values)), box.upper - box.lower
    return np.where(x > 0, x, np.where(np.isfinite(width), width, 1.0))


def _conditions(
    problem: Problem, template: Experiment, given: Mapping[str, Any], sampling: Sampling
) -> Conditions:
    """Those of the template, but for what is given."""
    states, begin, end = problem.instance.states, template.start_time, sampling.times[-1]
    if sampling.times[0] < begin or end <= begin:
        raise ProblemError(
            f"The candidate times run from {sampling.times[0]:g} to {end:g}, but the experiment "
            f"starts at {begin:g}; give times after its start."
        )
    instance = problem.instance
    strangers = [n for n in given if n not in {*states, *instance.scalars, *instance.series}]
    if strangers:
        raise ProblemError(
            f"conditions names {strangers}, which are nothing of the model; it has the states "
            f"{list(states)} and the inputs {sorted([*instance.series, *instance.scalars])}."
        )
    inputs = read_inputs({n: v for n, v in given.items() if n not in states})
    start = {n: v for n, v in given.items() if n in states}
    return Conditions({**template.start, **start}, {**template.inputs, **inputs}, begin, float(end))


def _sampling(times: Any, template: Experiment) -> Sampling:
    if isinstance(times, Sampling):
        return times
    return Sampling(template.times if times is None else times)


def _allowed(sampling: Sampling, measured: int) -> Allowed:
    most = sampling.at_most or len(sampling.times)
    sets = sets_of_quantities(measured, sampling.quantities)
    return Allowed(sampling.times, min(most, len(sampling.times)), sampling.spacing, sets)


def _space(
    problem: Problem, plan: Planned, sizes: FloatArray, count: int, criterion: Criterion
) -> Space:
    names = list(problem.box.names)
    shared = [names.index(n) for n in plan.shared]
    places, own_sizes = [], []
    for k in range(count):
        own = range(len(names), len(names) + len(plan.own))
        names += [f"{n}@{planned_name(problem, k)}" for n in plan.own]
        own_sizes += [sizes[problem.box.names.index(plan.sources[n])] for n in plan.own]
        places.append([*shared, *own])
    interest = [n for n in names if n in (criterion.of or plan.shared)]
    strangers = [n for n in criterion.of if n not in names]
    if strangers or not interest:
        raise ProblemError(
            f"The criterion looks at {strangers or 'nothing'}, which are no unknowns; there are "
            f"{names}. Name some of them: {type(criterion).__name__}(of=({shown(names[0])},))."
        )
    return Space(
        tuple(names),
        np.array([*sizes, *own_sizes]),
        np.array(places, dtype=np.intp),
        np.array([names.index(n) for n in interest], dtype=np.intp),
    )


def planned_name(problem: Problem, k: int) -> str:
    """The name of the k-th planned experiment, which no existing one has."""
    taken = {e.name for e in problem.experiments}
    free = (f"plan{i}" for i in range(1, len(taken) + k + 2))
    return [name for name in free if name not in taken][k]
