"""A prepared design problem: unknowns, prior information, and free settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.base import refuse, require_plain
from igpe.dynamics.shooting.reweighting import held_weights
from igpe.equations.compiled import require_smooth_and_normal
from igpe.equations.sizes import NEAREST
from igpe.planning.design_limits import (
    Budget,
    DesignCost,
    PlannedLimits,
    design_cost,
    planned_limits,
)
from igpe.planning.design_variables import (
    DesignVariable,
    ExistingExperiments,
    ProblemWithoutData,
    Sampling,
    placeholder,
    read_noise,
)
from igpe.planning.information import Criterion, RegularisedCriterion, UnknownSpace
from igpe.planning.plan import PlannedExperiment
from igpe.planning.planned_model import (
    ExperimentConditions,
    PlannedModel,
    PlannedSensitivities,
    carried,
    planned,
)
from igpe.planning.sample_choice import SamplingRules, sets_of_quantities
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table, read_inputs, step_input
from igpe.problem.noise.sigma import Deviation
from igpe.problem.plausibility import CELSIUS, warnings_about
from igpe.problem.problem import Problem
from igpe.results.result import Result

EMPTY: Mapping[str, Any] = MappingProxyType({})
ROUNDING = 1e-9  # a value may lie as far outside its bounds
Values: TypeAlias = Result | Estimate | Mapping[str, float]


@dataclass(frozen=True)
class DesignProblem:
    """Template, choices and criterion of a design.

    full      the problem with the existing experiments;  template: the one the plan resembles
    plan      the planned experiment, its choices open
    values    unknown of `full` -> value to linearise at, the held ones too
    sizes     (n,) of `full.box`, to which errors are relative
    noise     measured quantity -> how exact;  sigma_known: whether that was given
    deviations  measured quantity -> its error model, where the experiments have one
    """

    full: Problem
    template: Experiment
    plan: PlannedModel
    existing: ExistingExperiments
    space: UnknownSpace
    allowed: SamplingRules
    values: Mapping[str, float]
    sizes: FloatArray
    noise: Mapping[str, Deviation]
    sigma_known: bool
    deviations: Mapping[str, Deviation]
    given_sizes: frozenset[str]
    criterion: Criterion
    integrator: Integrator
    costs: tuple[DesignCost, ...]
    sampling: Sampling

    @property
    def first(self) -> "DesignProblem":
        """This problem; of several rivals, the one whose settings hold for all."""
        return self

    @property
    def refined(self) -> "DesignProblem":
        """The problem with all allowed sampling times."""
        return replace(self, allowed=replace(self.allowed, times=self.sampling.fine))

    @property
    def sources(self) -> list[str]:
        """Unknowns of `full` that those of the space are, or resemble."""
        own = [self.plan.sources[n] for n in self.plan.own] * len(self.space.places)
        return [*self.full.box.names, *own]

    @property
    def at(self) -> FloatArray:
        """Values of all unknowns of the space."""
        planned = self.plan.values(self.values)
        own = [planned[n] for n in self.plan.own] * len(self.space.places)
        return np.array([*self.full.box.vector(self.values), *own])

    def alone(self, planned: PlannedExperiment) -> Problem:
        """A planned experiment alone, with 0 in the place of its last measurement."""
        same = {n: getattr(planned, n) for n in ("name", "start", "start_time", "inputs")}
        run = placeholder([self.plan.conditions.end], self.noise, sigma=carried(self.noise), **same)
        return Problem(self.full.model, parameters=list(self.full.parameters), experiments=run)

    def warnings(self, experiments: Sequence[PlannedExperiment]) -> tuple[str, ...]:
        """Warnings about conditions of planned experiments that are probably in degrees Celsius."""
        every = (warning for e in experiments for warning in warnings_about(self.alone(e)))
        return tuple(dict.fromkeys(one for one in every if CELSIUS in one))

    @property
    def phi(self) -> RegularisedCriterion:
        """The criterion, finite everywhere."""
        return RegularisedCriterion(self.criterion, self.space.interest)

    def known(self, values: Mapping[str, float]) -> FloatArray:
        """(m, n) rows of what is known before, by all unknowns of the space."""
        rows, more = self.existing.at(values, self.sizes).rows, len(self.plan.shared)
        rows = np.pad(rows, ((0, 0), (0, len(self.space.names) - rows.shape[1])))
        priors, eye = self.plan.problem.normal_priors, np.diag(self.space.sizes)
        own = [
            eye[place] / priors[n].deviation
            for places in self.space.places
            for n, place in zip(self.plan.own, places[more:], strict=True)
            if n in priors
        ]
        return np.vstack([rows, *own])

    def outputs(self, values: Mapping[str, float]) -> PlannedSensitivities:
        """Rows of a planned experiment if the unknowns have these values."""
        sizes = dict(zip(self.full.box.names, self.sizes, strict=True))
        ivp = self.plan.with_sensitivities({**self.values, **values}, sizes)
        bounds = self.plan.lower, self.plan.lower + self.plan.width
        return PlannedSensitivities(
            ivp, self.allowed.times, list(self.noise.values()), self.integrator, bounds
        )

    def limits(self, scenarios: Sequence[Mapping[str, float]]) -> list[PlannedLimits]:
        """The model's constraints in a planned experiment, in all scenarios."""
        each = (planned_limits(self.plan, {**self.values, **s}, self.integrator) for s in scenarios)
        return [limits for limits in each if limits is not None]

    def as_before(self) -> FloatArray | None:
        """(n_choices,) the numbers of the template; None if it lacks one."""
        numbers: list[float] = []
        pairs = zip(self.full.experiments, self.full.starts, strict=True)
        fixed = next((s.fixed for e, s in pairs if e.name == self.template.name), {})
        of_run = {**fixed, **self.template.inputs, **self.template.start}
        for name, variable in self.plan.free.items():
            given = of_run.get(name)
            if isinstance(given, Table):
                numbers += [given.at(t) for t in variable.breaks or (self.plan.conditions.begin,)]
            elif is_finite(given):
                numbers += [float(given)] * variable.count  # type: ignore[arg-type]
            else:
                return None
        return np.array(numbers)


def read_design(
    problem: Problem | ProblemWithoutData,
    parameters: Values,
    *,
    free: Mapping[str, DesignVariable],
    conditions: Mapping[str, Any],
    times: Any,
    measure: Any,
    criterion: Criterion,
    count: int,
    existing: bool,
    like: str | None,
    integrator: Integrator,
    sizes: Mapping[str, float] = EMPTY,
    budgets: Budget | Sequence[Budget] = (),
) -> DesignProblem:
    """See `igpe.planning.design.design`."""
    require_mapping("free", free, "free={'A': igpe.planning.Between(0, 2)}", ProblemError)
    require_mapping("conditions", conditions, "conditions={'T': 350.0}", ProblemError)
    if twice := [n for n in free if n in conditions]:
        raise ProblemError(
            f"Both `free` and `conditions` contain {twice}, but a quantity cannot be both free "
            "and fixed. Remove them from one of the two."
        )
    measured = isinstance(problem, Problem)
    full = problem if isinstance(problem, Problem) else _unmeasured(problem, free, conditions)
    require_plain(full, "igpe.design", constraints_too=False)
    refuse(full, "igpe.design", "censored", "correlated")
    require_smooth_and_normal(full, "igpe.design")
    values = _values(full, parameters)
    full = held_weights(full, parameters) if measured else full
    template = _template(full, like)
    relative_to = _sizes(full.box, values, sizes)
    known = ExistingExperiments(full, integrator, counted=existing and measured)
    variance, unknown = 1.0, not (full.sigma_known or full.sigma_estimated)
    if measured and unknown and not isinstance(measure, Mapping):
        measurements = (
            known if known.counted else ExistingExperiments(full, integrator, counted=True)
        )
        variance = measurements.at(values, relative_to).variance
    _require_possible(full, {**conditions, **free})
    noise = read_noise(measure, template, full, variance, counted=measured)
    sampling = _sampling(times, template)
    if isinstance(problem, ProblemWithoutData) and sampling.times[-1] > problem.until:
        raise ProblemError(
            f"The last candidate time is {sampling.times[-1]:g}, but the experiment ends at "
            f"until={problem.until:g}. Give earlier times, or a later end."
        )
    plan = planned(full, template, free, _conditions(full, template, conditions, sampling), noise)
    _require_effect(free, plan.conditions)
    # error models that follow the model, so that the planned experiments can carry them
    models = measure if isinstance(measure, Mapping) else template.error_models
    each = {n: d if d.estimated else models.get(n) for n, d in noise.items()}
    most = min(sampling.at_most or len(sampling.times), len(sampling.times))
    sets = sets_of_quantities(len(noise), sampling.quantities)
    return DesignProblem(
        full=full,
        template=template,
        plan=plan,
        existing=known,
        space=_space(full, plan, relative_to, count, criterion),
        allowed=SamplingRules(sampling.times, most, sampling.spacing, sets),
        values=values,
        sizes=relative_to,
        noise=noise,
        sigma_known=isinstance(measure, Mapping) or not unknown,
        deviations={n: d for n, d in each.items() if isinstance(d, Deviation) and d.follows},
        given_sizes=frozenset(sizes),
        criterion=criterion,
        integrator=integrator,
        sampling=sampling,
        costs=tuple(design_cost(budget, plan) for budget in _budgets(budgets)),
    )


def _budgets(given: Any) -> list[Budget]:
    """One or several budgets. Raises ProblemError for anything else."""
    every = [given] if isinstance(given, Budget) else given
    if not isinstance(every, Sequence) or not all(isinstance(one, Budget) for one in every):
        raise ProblemError(
            f"`budgets` is {shown(given)}; give one or several igpe.planning.Budget(...), for "
            "example budgets=[igpe.planning.Budget(20, sample=1)]."
        )
    return list(every)


def _template(problem: Problem, like: str | None) -> Experiment:
    """The experiment that planned ones are like."""
    names = [e.name for e in problem.experiments]
    if like is not None and like not in names:
        raise ProblemError(
            f"like={like!r} is not the name of an experiment; the names are {names}."
        )
    return problem.experiments[0 if like is None else names.index(like)]


def _unmeasured(
    given: Any, free: Mapping[str, DesignVariable], conditions: Mapping[str, Any]
) -> Problem:
    """Problem of a model without measurements, with free settings in the middle of their bounds."""
    if not isinstance(given, ProblemWithoutData):
        raise ProblemError(
            f"igpe.design got a {type(given).__name__}; expected an igpe.Problem, or "
            "igpe.planning.ProblemWithoutData(model, ...) if there are no measurements yet."
        )
    variables = {n: f for n, f in free.items() if isinstance(f, DesignVariable)}
    middle = {n: (f.lower + f.upper) / 2 for n, f in variables.items()}
    profiles = {
        n: step_input([given.start_time], [middle[n]]) for n, f in variables.items() if f.breaks
    }
    return given.problem({**middle, **profiles, **conditions})


def _values(problem: Problem, parameters: Any) -> dict[str, float]:
    """Every unknown -> value, the held ones too."""
    given = getattr(parameters, "parameters", parameters)
    require_mapping("parameters", given, "{'k1': 5.0}, a Result or an Estimate", ProblemError)
    missing = [n for n in problem.box.names if not is_finite(given.get(n))]
    unknown_names = [n for n in given if n not in problem.unknowns.names]
    if missing or unknown_names:
        raise ProblemError(
            f"A design needs a finite value for every unknown, {list(problem.box.names)}"
            + f"; it is missing for {missing}" * bool(missing)
            + f"; {unknown_names} are not unknowns" * bool(unknown_names)
            + ". Give the result of igpe.estimate, or your best guess."
        )
    values = {n: float(given[n]) for n in problem.box.names}
    require_inside(problem.box, values, "parameters")
    return values | dict(problem.fixed)


def require_inside(box: Box, values: Mapping[str, float], role: str) -> None:
    """Raise ProblemError if a value lies outside its bounds, beyond rounding."""
    x = box.vector(values)
    slack = ROUNDING * np.maximum(np.abs(x), 1.0)
    outside = (x < box.lower - slack) | (x > box.upper + slack)
    for i in np.flatnonzero(outside)[:1]:
        raise ProblemError(
            f"`{role}` has {box.names[i]} = {x[i]:g}, outside its bounds [{box.lower[i]:g}, "
            f"{box.upper[i]:g}]. Give a value inside the bounds, or change the bounds."
        )


def _require_possible(problem: Problem, settings: Mapping[str, Any]) -> None:
    """Raise ProblemError for start values and inputs beyond the bounds of their Pyomo variables."""
    i = problem.instance
    for name, given in settings.items():
        series = i.over_time(name)
        component = next(iter(series.values())) if series else i.scalars.get(name)
        lower, upper = getattr(component, "bounds", None) or (None, None)
        ends = getattr(given, "lower", given), getattr(given, "upper", given)
        low, high = (-np.inf if lower is None else lower), (np.inf if upper is None else upper)
        if is_finite(*ends) and not low <= min(ends) <= max(ends) <= high:
            raise ProblemError(
                f"'{name}' is planned between {ends[0]:g} and {ends[1]:g}, but the model's "
                f"bounds are [{low:g}, {high:g}]. Choose a range inside these bounds, or "
                "change the bounds in the model."
            )


def _require_effect(free: Mapping[str, DesignVariable], held: ExperimentConditions) -> None:
    """Raise ProblemError for profiles with numbers that act before or after the experiment only."""
    for name, variable in free.items():
        breaks = variable.breaks
        if breaks and (
            breaks[-variable.late] >= held.end or any(b <= held.begin for b in breaks[1:2])
        ):
            raise ProblemError(
                f"free['{name}'] has breaks at {list(breaks)}, but the experiment runs from "
                f"{held.begin:g} to {held.end:g}, so some of its values have no effect. The "
                "breaks must lie between the start and the end of the experiment."
            )


def _sizes(box: Box, values: Mapping[str, float], given: Mapping[str, float]) -> FloatArray:
    """Sizes to which errors are relative.

    By default the value. One that may be 0 or negative counts as at least a hundredth of its range:
    near 0 the value is no measure of accuracy.
    """
    require_mapping("sizes", given, "sizes={'k1': 0.5}", ProblemError)
    unknown = [n for n in given if n not in box.names]
    bad = {n: v for n, v in given.items() if not (is_finite(v) and v > 0)}
    if unknown or bad:
        raise ProblemError(
            f"`sizes` has {unknown or bad}. Give a positive number for each name; the names of "
            f"unknowns are {list(box.names)}."
        )
    width = box.upper - box.lower
    crosses = (box.lower <= 0) & (box.upper >= 0) & np.isfinite(width) & ~box.in_logarithms
    sizes = np.maximum(np.abs(box.vector(values)), np.where(crosses, NEAREST * width, 0.0))
    sizes = np.array([given.get(n, s) for n, s in zip(box.names, sizes, strict=True)], dtype=float)
    if zero := [n for n, s in zip(box.names, sizes, strict=True) if s == 0]:
        raise ProblemError(
            f"The values of {zero} are 0, and there are no bounds, so the errors have no "
            "reference size. Give bounds, or the reference sizes of the errors: "
            f"sizes={{{zero[0]!r}: 1.0}}."
        )
    return sizes


def _conditions(
    problem: Problem, template: Experiment, given: Mapping[str, Any], sampling: Sampling
) -> ExperimentConditions:
    """Conditions of the template, replaced where values are given."""
    i, begin, end = problem.instance, template.start_time, sampling.times[-1]
    if sampling.times[0] < begin or end <= begin:
        raise ProblemError(
            f"The candidate times run from {sampling.times[0]:g} to {end:g}, but the experiment "
            f"starts at {begin:g}; give times after its start."
        )
    if unknown_names := [n for n in given if n not in {*i.states, *i.scalars, *i.series}]:
        raise ProblemError(
            f"`conditions` contains {unknown_names}, which the model does not have; it has the "
            f"states {list(i.states)} and the inputs {sorted([*i.series, *i.scalars])}."
        )
    inputs = read_inputs({n: v for n, v in given.items() if n not in i.states})
    start = {n: v for n, v in given.items() if n in i.states}
    return ExperimentConditions(
        {**template.start, **start}, {**template.inputs, **inputs}, begin, float(end)
    )


def _sampling(times: Any, template: Experiment) -> Sampling:
    """The requested samples; by default those of the template, with its replicates."""
    if isinstance(times, Sampling):
        return times
    if times is not None:
        return Sampling(times)
    m = template.measurements
    count = np.zeros((len(m.times), len(m.names)), dtype=int)
    np.add.at(count, (m.row, m.column), 1)
    return Sampling(np.repeat(m.times, np.maximum(count.max(axis=1), 1)))


def _space(
    problem: Problem, plan: PlannedModel, sizes: FloatArray, count: int, criterion: Criterion
) -> UnknownSpace:
    names = list(problem.box.names)
    shared = [names.index(n) for n in plan.shared]
    places, own_sizes = [], []
    for k in range(count):
        own = range(len(names), len(names) + len(plan.own))
        names += [f"{n}@{planned_name(problem, k)}" for n in plan.own]
        own_sizes += [sizes[problem.box.names.index(plan.sources[n])] for n in plan.own]
        places.append([*shared, *own])
    chosen = criterion.of or plan.shared or names[len(problem.box) :]
    interest = [n for n in names if n in chosen]
    if unknown_names := [n for n in criterion.of if n not in names]:
        raise ProblemError(
            f"Unknown names in the criterion: {unknown_names}. The unknowns are "
            f"{names}. Use names of unknowns, for example "
            f"{type(criterion).__name__}(of=({shown(names[-1])},))."
        )
    if not interest:
        raise ProblemError(
            "The planned experiment depends on no unknown: the parameters of the problem, "
            f"{list(problem.parameters)}, are fixed. Plan with a problem in which they are free."
        )
    return UnknownSpace(
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
