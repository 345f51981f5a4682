"""Checks that model, experiments and parameters fit together, with all messages of `Problem`.

Names and bounds of the parameters that a problem estimates, from the models and the call.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import casadi as ca
import numpy as np
from pyomo.core.expr.visitor import identify_variables
from pyomo.environ import Param, value

from igpe.core.arguments import require_mapping, shown
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.errors import DataError, ModelError, ProblemError
from igpe.core.markup import bracketed, closest, in_words
from igpe.problem.events import check_events
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table
from igpe.problem.losses import Loss, NormalPrior, PiecewiseConstant, Prior, check_priors
from igpe.problem.measurements import Measurements, conversion, converted, time_unit, unit_name
from igpe.problem.members import in_logarithms, meant
from igpe.problem.model import Instance
from igpe.problem.noise.sigma import as_deviations
from igpe.problem.starts import require_consistent, require_within_bounds, without_start

Bounds = tuple[float, float]
ALIKE = 1e-6  # relative difference of wavelengths, and of ratios of errors, that is rounding
OPTIONS = ("nonnegative", "smooth", "unwanted")  # of spectra, in which shared ones agree
KINDS = {
    "priors": (NormalPrior | Prior, "igpe.losses.NormalPrior(mean, deviation)"),
    "time_varying": (PiecewiseConstant, "igpe.losses.PiecewiseConstant(breaks, lower, ..)"),
}


def expanded(role: str, names: Any, instances: Sequence[Instance]) -> tuple[str, ...]:
    """Names of scalar parameters; an indexed component's name stands for its members.

    Members that every model fixes are left out: they are known.
    """
    if isinstance(names, str):
        raise ProblemError(f"{role}={names!r} is a string; expected a list: {role}=[{names!r}].")
    listed = list(names) if isinstance(names, Iterable) else [names]
    if not all(isinstance(name, str) for name in listed):
        raise ProblemError(f"`{role}` is {shown(names)}; expected names: {role}=['k1', 'k2'].")

    def is_known(name: str) -> bool:
        members = [i.scalars[name] for i in instances if name in i.scalars]
        return all(c.is_variable_type() and c.fixed for c in members)

    scalars = list(dict.fromkeys(s for i in instances for s in i.scalars))
    every: list[str] = []
    for name in listed:
        members = [s for s in scalars if s.startswith(f"{name}[")]
        free = [s for s in members if not is_known(s)]
        every += free if free and name not in scalars else members or [name]
    if twice := sorted({n for n in every if every.count(n) > 1}):
        raise ProblemError(f"Parameters {twice} are listed more than once. List each once.")
    return tuple(every)


def bounds_of(name: str, given: Bounds | None, instances: Sequence[Instance]) -> Bounds:
    """What lies within the bounds of a parameter in these models, or the bounds that are given."""
    first, (lowest, highest) = None, (-np.inf, np.inf)
    for component in (instance.scalars[name] for instance in instances):
        pair = given if given is not None else getattr(component, "bounds", (None, None))
        try:
            lower, upper = pair
            low = -np.inf if lower is None else float(lower)
            high = np.inf if upper is None else float(upper)
        except (TypeError, ValueError):
            raise ProblemError(
                f"The bounds of parameter '{name}' are {pair!r}; expected a pair (lower, upper), "
                "where None means no bound."
            ) from None
        if not low < high:
            raise ProblemError(
                f"Parameter '{name}' has bounds [{low:g}, {high:g}]; expected lower < upper. Fix "
                "the variable in the model if its value is known; swap the bounds if they are "
                "reversed."
            )
        first = first or (low, high)
        lowest, highest = max(lowest, low), min(highest, high)
        if not lowest < highest:
            raise ProblemError(
                f"Parameter '{name}' has bounds {first} in the model of one experiment and "
                f"{(low, high)} in that of another; these ranges do not overlap. Give it the "
                "same bounds in both, or make it local."
            )
    return lowest, highest


def uncertain_inputs(experiments: Sequence[Experiment]) -> tuple[str, ...]:
    """Names of inputs that are known with an error.

    raises DataError if an experiment gives such an input without one
    """
    names = tuple(dict.fromkeys(n for e in experiments for n in e.uncertain_inputs))
    for name in names:
        if lacking := [e.name for e in experiments if name not in e.uncertain_inputs]:
            raise DataError(
                f"The input '{name}' is uncertain (NormalPrior) in some experiments, but not in "
                f"{bracketed(lacking)}. Give the error in all experiments: inputs={{'{name}': "
                "igpe.losses.NormalPrior(mean, deviation)}; use a small deviation where "
                "the input is exact."
            )
        if before := [e.name for e in experiments if name in (e.steady or {})]:
            raise DataError(
                f"The input '{name}' is uncertain (NormalPrior), but `steady` gives it another "
                f"value before the start of {bracketed(before)}. igpe does not support this. Give "
                "the input as a number."
            )
    return names


def check_uncertain(
    names: Sequence[str], parameters: Sequence[str], instances: Sequence[Instance]
) -> None:
    """Raise ProblemError unless inputs known with an error are scalars, and no parameters."""
    for name in names:
        if name in parameters:
            raise ProblemError(
                f"'{name}' is an uncertain input (NormalPrior), but it is also among the "
                "parameters. Remove it from parameters=."
            )
        if any(name not in i.scalars for i in instances):
            raise ProblemError(
                f"'{name}' is an uncertain input (NormalPrior), but the model has no scalar of "
                "that name. Only constant inputs can have an error: write "
                f"m.{name} = pyo.Param(mutable=True, initialize=1.0), without time as its index."
            )


def with_logarithms(box: Box, names: Iterable[str]) -> Box:
    """The box, in which some parameters (or all their members) are sought in logarithms.

    raises ProblemError if one is not an unknown, or its bounds are not positive and finite
    """
    wanted = set(names)
    chosen = frozenset(n for n in box.names if n.split("@", maxsplit=1)[0] in wanted)
    if unknown := sorted(wanted - {n.split("@", maxsplit=1)[0] for n in chosen}):
        raise ProblemError(
            f"logarithmic= contains {unknown}, which are not among the unknowns {list(box.names)}."
        )
    inside = box.select(chosen)
    rows = zip(inside.names, inside.lower, inside.upper, strict=True)
    if loose := [n for n, low, high in rows if not (low > 0 and np.isfinite(high))]:
        raise ProblemError(
            f"igpe searches for {loose} on a logarithmic scale, which needs positive, finite "
            f"bounds. Pass positive bounds: parameters={{'{loose[0]}': (1e-5, 1e5), ...}}."
        )
    return replace(box, logarithmic=chosen)


def name_experiments(experiments: Sequence[Experiment] | Experiment) -> list[Experiment]:
    """The experiments as a list, each with its own name (`1`, `2`, ... where none is given)."""
    given: Any = experiments
    runs = list(given) if isinstance(given, Iterable) else [given]
    others = [type(e).__name__ for e in runs if not isinstance(e, Experiment)]
    if others or not runs:
        is_list = isinstance(given, list | tuple)
        held = f"contains {others or 'nothing'}" if is_list else f"is a {type(given).__name__}"
        raise ProblemError(
            f"`experiments` {held}; expected a list of igpe.Experiment objects, "
            "for example [igpe.Experiment(pd.read_csv('run1.csv'), start={...})]."
        )
    named = [copy.copy(e) for e in runs]
    for number, e in enumerate(named, start=1):
        e.name = e.name or str(number)
    names = [e.name for e in named]
    if len(set(names)) < len(names):
        raise ProblemError(
            f"Several experiments have the same name: {names}. Give each one its own name."
        )
    return named


def convert_units(experiment: Experiment, instance: Instance) -> Experiment:
    """The experiment with its measurements in the model's units."""
    measurements, result = experiment.measurements, copy.copy(experiment)
    models = dict(experiment.error_models)
    for name, given in experiment.units.items():
        _require_converted(experiment, name)
        if name == "time":  # a model without any unit takes that of the data
            own = time_unit(instance) or ("" if _has_units(instance) else given)
        elif (series := instance.over_time(name)) is None:
            continue
        else:
            own = unit_name(next(iter(series.values())))
        factor, offset = conversion(name, given, own)
        if name == "time":
            result.start_time = factor * experiment.start_time + offset
            result.spectra = result.spectra and result.spectra.at_times(factor, offset)
            result.inputs = MappingProxyType({
                n: v.at_times(factor, offset) if isinstance(v, Table) else v
                for n, v in experiment.inputs.items()
            })
        if name in models:
            if offset != 0:  # 5 % of it would be something else
                raise DataError(
                    f"The error of '{name}' is proportional to its value in '{given}', but the "
                    "zero point of this unit differs from that of the model's unit. Give the data "
                    "in the model's unit, or sigma as a number."
                )
            models[name] = models[name].scaled(factor)
        measurements = _converted(measurements, name, factor, offset)
    result.measurements, result.error_models = measurements, MappingProxyType(models)
    return result


def _require_converted(experiment: Experiment, name: str) -> None:
    """Raise DataError for the unit of anything but times and measured columns."""
    if name == "time" or {name, in_logarithms(name)} & set(experiment.measured):
        return
    if name in experiment.inputs:
        raise DataError(
            f"`units` contains the input '{name}', but igpe converts only times and measured "
            f"columns. Give the values of '{name}' in the model's unit (for example K, not degC), "
            f"and leave '{name}' out of `units`."
        )
    raise DataError(
        f"`units` contains '{name}', but the measured columns are {experiment.measured}."
    )


def _converted(measurements: Measurements, name: str, factor: float, offset: float) -> Measurements:
    """The measurements with one column in another unit; logarithms are shifted."""
    logarithm = in_logarithms(name)
    if logarithm not in measurements.names:
        return converted(measurements, name, factor, offset)
    if offset != 0:
        raise DataError(
            f"The errors of '{name}' are log-normal, but the unit of the data and the unit in the "
            "model have different zero points. Give the data in the model's unit."
        )
    return converted(measurements, logarithm, 1.0, float(np.log(factor)))


def _has_units(instance: Instance) -> bool:
    states = (next(iter(series.values())) for series in instance.states.values())
    return any(map(unit_name, (*states, *instance.scalars.values())))


def check_arguments(local: Any, loss: Any, **mappings: Any) -> None:
    """What a problem is made of has the right kind; names are looked up later."""
    if not isinstance(local, Iterable):
        raise ProblemError(
            f"`local` is {shown(local)}; expected a list of parameters (empty if all are shared): "
            "local=['k1']."
        )
    if not isinstance(loss, Loss):
        raise ProblemError(
            f"`loss` is {shown(loss)}; expected igpe.losses.LeastSquares(), igpe.losses.L1() or "
            "igpe.losses.Huber(delta)."
        )
    for role, given in mappings.items():
        kind, wanted = KINDS[role]
        require_mapping(role, given, f"{role}={{'k1': {wanted}}}", ProblemError)
        for name, one in given.items():
            if not isinstance(one, kind):
                raise ProblemError(f"`{role}` of '{name}' is {shown(one)}; expected {wanted}.")


def check_weights(
    experiments: Sequence[Experiment], priors: Mapping[str, NormalPrior | Prior], unknowns: Box
) -> None:
    """Standard deviations of all or of none; a prior means nothing beside unknown ones."""
    check_priors(priors, unknowns)
    known = [e.name for e in experiments if e.sigma_known or e.estimated_sigma]
    unknown = [e.name for e in experiments if e.name not in known]
    if known and unknown:
        raise ProblemError(
            f"The experiments {known} have standard deviations, but {unknown} have none, so igpe "
            "cannot weight them against each other. Pass sigma=... for all experiments, or for "
            "none."
        )
    if priors and unknown:
        raise ProblemError(
            f"Priors are given for {list(priors)}, but the measurements have no standard "
            "deviations, so the weight of a prior would depend on the units. Pass sigma=..., or "
            "leave the priors out."
        )


def held_sigma(experiments: Sequence[Experiment], sigma: Any) -> tuple[FloatArray, ...]:
    """Standard deviations as arrays: a positive number for each measurement."""
    sizes = [len(e.measurements.value) for e in experiments]
    try:
        held = tuple(np.array(s, dtype=float) for s in sigma)
    except (TypeError, ValueError):
        held = ()
    fits = [s.shape for s in held] == [(n,) for n in sizes]
    if not (fits and all((np.isfinite(s) & (s > 0)).all() for s in held)):
        raise ProblemError(
            f"The standard deviations are {shown(sigma)}; expected one array of positive "
            f"numbers for each experiment, of lengths {sizes}."
        )
    return held


def is_labelled(builder: Any) -> bool:
    """Whether the models come from parmest, which fixes unknowns and discretises time."""
    return bool(getattr(builder, "is_labelled", False))


def check_problem(problem: Any) -> None:
    """Refuse a problem whose parameters, experiments and models do not fit together.

    problem  a `Problem` whose parts are known
    raises   the first fault: parameters that are not scalar, something that is left free, names in
             an experiment that are not in the model, starts that are not given
    """
    starts = [s for e in problem.experiments for s in e.start.values()]
    is_nothing = not problem.parameters and not problem.time_varying
    if is_nothing and not any(isinstance(s, Unknown) for s in starts):
        raise ProblemError("No parameters are named. List the Vars that igpe should estimate.")
    runs = [*zip(problem.experiments, problem.instances, problem.starts, strict=True)]
    places = [f"Experiment '{e.name}': " * (len(runs) > 1) for e in problem.experiments]
    for place, (_, instance, _) in zip(places, runs, strict=True):
        for name in problem.parameters:
            _check_parameter(problem, place, name, instance)
        if unknown := [n for n in problem.time_varying if n not in instance.series]:
            raise ProblemError(
                f"{place}time_varying= contains {unknown}; the model's time-dependent variables "
                f"that are not states are {sorted(instance.series)}."
            )
    times = {e.units.get("time", "") for e in problem.experiments}
    if len(times) > 1 and not time_unit(problem.instances[0]):
        raise DataError(
            f"The experiments' times are in the units {sorted(times)}. The model has no unit of "
            "time to which they could be converted. Give all times in the same unit."
        )
    if others := sorted(problem.local - set(problem.parameters)):
        raise ProblemError(
            f"`local` contains {others}, which are not among the parameters {problem.parameters}."
        )
    for place, (experiment, instance, model_starts) in zip(places, runs, strict=True):
        _check_measured(problem, experiment, instance)
        _check_inputs(problem, place, experiment, instance)
        _check_starts(problem, place, experiment, model_starts.states, instance)
        require_within_bounds(place, experiment, model_starts.fixed, instance)
        require_consistent(place, problem.parameters, experiment, model_starts, instance)
        states = list(instance.states)
        check_events(problem, place, experiment.events, states, instance.series)
        _check_free(problem, experiment, instance)


def _check_parameter(problem: Any, place: str, name: str, instance: Instance) -> None:
    if instance.over_time(name) is not None:
        raise ProblemError(
            f"{place}'{name}' varies with time, so it cannot be a parameter. Declare it in "
            "time_varying=, or make it a scalar Var."
        )
    if name not in instance.scalars:
        fixed = instance.model.component(name.partition("[")[0])
        mend = ""
        if fixed is not None and fixed.ctype is Param:  # a number in the equations
            mend = f" '{name}' is a Param that cannot change; declare it with mutable=True."
        everywhere = (
            f" Another experiment's model has '{name}'. Declare it in the models of all "
            "experiments."
        )
        raise ProblemError(
            f"{place}the model has no scalar Var '{name}'; it has {sorted(instance.scalars)}."
            f"{mend or closest(name, instance.scalars)} Parameters must be Vars or mutable "
            "Params that are not indexed by time."
            f"{everywhere * any(name in i.scalars for i in problem.instances)}"
        )
    component = instance.scalars[name]
    if component.is_variable_type() and not component.is_continuous():
        raise ProblemError(
            f"{place}parameter '{name}' is a Var of the domain {component.domain.name}, but igpe "
            "estimates real numbers. Use pyo.Reals with bounds, or run one estimation for "
            "each value."
        )
    if component.is_variable_type() and component.fixed and not is_labelled(problem.model):
        raise ProblemError(
            f"{place}parameter '{name}' is fixed at {value(component)} in the model, but "
            "parameters= contains it. Remove it from parameters= to keep it fixed, or remove "
            f"the line that fixes it (m.{name}.fix(...)) to estimate it."
        )
    if instance is not next(i for i in problem.instances if name in i.scalars):
        return  # its units were compared with all others' when the first was looked at
    units = {unit_name(i.scalars[name]) for i in problem.instances if name in i.scalars}
    if len(units) > 1 and name not in problem.local:
        raise ProblemError(
            f"Parameter '{name}' has different units in the models of the experiments: "
            f"{sorted(units)}. Give it the same unit in all models, or make it local."
        )


def _check_measured(problem: Any, experiment: Experiment, instance: Instance) -> None:
    if unknown := [n for n in experiment.measured if instance.over_time(n) is None]:
        known = [*instance.states, *instance.series, *instance.expressions]
        raise DataError(
            f"The model has no time-dependent quantities named {unknown}. It has "
            f"{bracketed(known)}.{meant(unknown[0], instance, problem.parameters)}"
            " Rename the columns (columns={...}), add an Expression indexed by time for it, or "
            "leave the columns out with only=[...]." + as_deviations(unknown, experiment.measured)
        )
    given = {*experiment.inputs, *problem.time_varying}
    others = [n for n in experiment.measured if n in instance.series and n not in given]
    if params := [n for n in others if not _is_var(instance, n)]:
        raise DataError(
            f"The columns {params} are Params of the model, not measurements. For inputs, write "
            f"Experiment(inputs={params}); otherwise, leave the columns out with only=[...]."
        )
    for column, name in experiment.estimated_sigma.items():
        if instance.over_time(name) is None and name not in instance.scalars:
            raise DataError(
                f"The standard deviation of '{column}' is igpe.EstimatedSigma({name!r}), but the "
                "model has neither a parameter nor a time-dependent Var or Expression of this "
                f"name. Its parameters are {sorted(instance.scalars)}."
            )
        if column in experiment.units:
            raise DataError(
                f"`units` contains '{column}', whose standard deviation is estimated in the "
                "model's unit. Convert the measurements, and leave this column out of units=."
            )


def _is_var(instance: Instance, name: str) -> bool:
    return bool(next(iter(instance.series[name].values())).is_variable_type())


def _check_inputs(problem: Any, place: str, experiment: Experiment, instance: Instance) -> None:
    known = sorted([*instance.series, *instance.scalars])
    if unknown := [n for n in experiment.steady or {} if n not in experiment.inputs]:
        raise ProblemError(
            f"{place}steady= contains {unknown}, which are not among the inputs "
            f"{list(experiment.inputs)}. Give them in Experiment(inputs=...) as well."
        )
    for name in experiment.inputs:
        given = f"{place}'{name}' is given as an input"
        if name in problem.parameters:
            raise ProblemError(f"{given} and also as a parameter. Keep only one of the two.")
        if name in problem.time_varying:
            raise ProblemError(f"{given} and also in time_varying=. Keep only one of the two.")
        if name in instance.states or name in experiment.measured:
            raise ProblemError(
                f"{given}, but it is also a state or a measured column. Keep only one of the two."
            )
        if name not in known:
            raise ProblemError(
                f"{place}the model has no input '{name}'. Its Vars and mutable Params, which can "
                f"be inputs, are {known}."
            )


def _may_bind_states(problem: Any, experiment: Experiment, instance: Instance) -> bool:
    """Whether slopes and algebraic variables cannot be matched with the equations.

    So it may be as well where equations contain several slopes each: these may cancel. Then states
    may follow from others, and reading the equations says which need start values.
    """
    others = {*experiment.inputs, *problem.time_varying}
    series = [*instance.slopes.values()]
    slopes = len(series)
    series += [s for n, s in instance.series.items() if n not in others]
    place = {id(data): j for j, s in enumerate(series) for data in s.values()}
    rows, columns = list[int](), list[int]()
    for i, equation in enumerate(instance.equations.values()):
        held = identify_variables(equation[max(equation)].expr, include_fixed=False)
        pairs = [(i, place[id(v)]) for v in held if id(v) in place]
        rows, columns = rows + [i for i, _ in pairs], columns + [j for _, j in pairs]
    pattern = ca.Sparsity.triplet(len(instance.equations), len(series), rows, columns)
    among = [i for i, j in {*zip(rows, columns, strict=True)} if j < slopes]
    if len(among) > len({*among}) + 1:  # two equations with two of them
        return True
    return int(ca.sprank(pattern)) < len(instance.equations)


def _algebraic(
    problem: Any, experiment: Experiment, instance: Instance, names: Sequence[str]
) -> list[str]:
    """Those of the names that are algebraic variables, not inputs."""
    others = {*instance.idle, *experiment.inputs, *problem.time_varying}
    return [n for n in names if n not in others and n in instance.series and _is_var(instance, n)]


def _check_starts(
    problem: Any, place: str, experiment: Experiment, known: set[str], instance: Instance
) -> None:
    start, states = experiment.start, list(instance.states)
    if unknown := [n for n in start if n not in states]:
        idle = [n for n in unknown if n in instance.idle]
        why = f" No equation uses the derivative of {in_words(idle)}." if idle else ""
        if follow := _algebraic(problem, experiment, instance, unknown):
            it, has = ("them", "have") if len(follow) > 1 else ("it", "has")
            why += (
                f" {in_words(follow)} {has} no time derivative: the equations give {it} from the "
                f"states. Omit {it} from start, and give start values of the states."
            )
        raise ProblemError(
            f"{place}start= contains {unknown}, but the states are {bracketed(states)}.{why}"
        )
    missing = [n for n in states if n not in start and n not in known]
    if missing and not _may_bind_states(problem, experiment, instance):
        raise without_start(place, missing)
    early = [n for n in states if n in known and n not in start]
    if early and instance.first < experiment.start_time:
        raise ProblemError(
            f"{place}the model gives the start values of {bracketed(early)} at its first time, "
            f"{instance.first:g}, but the experiment begins at {experiment.start_time:g}. Pass "
            f"Experiment(start_time={instance.first:g}), or let the model's time begin with the "
            f"experiment: m.{instance.time.local_name} = ContinuousSet(initialize=times)."
        )
    refers = [v for v in start.values() if isinstance(v, str)]
    if unknown := [n for n in refers if n not in problem.parameters]:
        state = next(n for n, v in start.items() if v == unknown[0])
        is_input = (
            f" '{unknown[0]}' is an input. Give the start value as a number, or write a Constraint "
            f"in the model: m.{state}[m.t.first()] == m.{unknown[0]}."
        )
        raise ProblemError(
            f"{place}start= refers to {unknown}, which are not among the parameters "
            f"{list(problem.parameters)}.{is_input * (unknown[0] in experiment.inputs)}"
        )


def _remedy(name: str, variable: Any, instance: Instance) -> str:
    """What to do about a scalar variable without a value; a constraint may be meant to give one."""
    for constraint, data in instance.conditions.items():
        if any(v is variable for v in identify_variables(data.expr)):
            return (
                f"Constraint '{constraint}' contains '{name}'. If the constraint defines '{name}', "
                f"write an Expression instead: m.{name} = pyo.Expression(expr=...)."
            )
    return "Name it in parameters=[...], fix it, or give it in Experiment(inputs=...)."


def _check_free(problem: Any, experiment: Experiment, instance: Instance) -> None:
    """No scalar variable in the equations is left without a value."""
    known = {id(instance.scalars.get(n)) for n in (*problem.parameters, *experiment.inputs)}
    scalars = {id(v): n for n, v in instance.scalars.items() if id(v) not in known}
    for equation in instance.equations.values():
        for variable in identify_variables(equation[max(equation)].expr, include_fixed=False):
            if id(variable) in scalars and not variable.fixed:
                name = scalars[id(variable)]
                raise ModelError(
                    f"The equations use '{name}', which is neither fixed nor a parameter nor an "
                    f"input. {_remedy(name, variable, instance)}"
                )
    for name, series in instance.series.items():
        data = next(iter(series.values()))
        given = name in {*experiment.inputs, *problem.time_varying} or data.is_variable_type()
        if not given and value(data, exception=False) is None:
            raise ProblemError(f"Input '{name}' has no value. Pass it in Experiment(inputs=...).")


def spectral_groups(experiments: Sequence[Experiment]) -> list[list[int]]:
    """Numbers of the experiments with spectra, grouped by common pure spectra.

    raises ProblemError if experiments of a group differ in wavelengths, options or weights
    """
    groups: dict[int, list[int]] = {}
    for k, e in enumerate(experiments):
        if e.spectra is not None:
            groups.setdefault(-1 if e.spectra.shared else k, []).append(k)
    for group in groups.values():
        _check_alike([experiments[k] for k in group])
    return [*groups.values()]


def _check_alike(group: Sequence[Experiment]) -> None:
    for e in group[1:]:
        for difference in _differences(group[0].spectra, e.spectra):
            raise ProblemError(
                f"The spectra of experiments {group[0].name} and {e.name} do not have the same "
                f"{difference}. Shared spectra must agree in this. Change one, or pass "
                "shared=False to igpe.Spectra if the species have separate spectra."
            )


def _differences(first: Any, one: Any) -> Iterator[str]:
    """Why two spectra cannot be shared."""
    w = first.wavelengths
    if len(w) != len(one.wavelengths) or not np.allclose(w, one.wavelengths, rtol=ALIKE):
        yield "wavelengths"
    if any(getattr(first, name) != getattr(one, name) for name in OPTIONS):
        yield "`nonnegative`, `smooth` and `unwanted`"
    ratio = one.noise / first.noise
    if not np.allclose(ratio, ratio[0], rtol=ALIKE):
        yield "ratio of errors between wavelengths"
    for species in set(first.pure) & set(one.pure):
        if not np.allclose(first.pure[species], one.pure[species]):
            yield f"`pure` spectrum of '{species}'"
