"""Do model, experiments and parameters fit together? Every refusal of `Problem` is here.

Names and bounds of the parameters that a problem estimates, from the models and the call.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from pyomo.core.expr.visitor import identify_variables
from pyomo.environ import value

from igpe.core.arguments import closest, require_mapping, shown
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.errors import DataError, ModelError, ProblemError
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.losses import L1, Huber, LeastSquares, NormalPrior, PiecewiseConstant
from igpe.problem.model import Instance, ModelStarts
from igpe.problem.units import conversion, converted, converted_error, model_unit, unit_name

Bounds = tuple[float, float]


def expanded(role: str, names: Any, instances: Sequence[Instance]) -> tuple[str, ...]:
    """Names of scalar parameters; an indexed component's name stands for its members.

    Members that every model fixes are left out: they are known.
    """
    if isinstance(names, str):
        raise ProblemError(f"{role}={names!r} is one text; wanted names: {role}=[{names!r}].")
    listed = list(names) if isinstance(names, Iterable) else [names]
    if not all(isinstance(name, str) for name in listed):
        raise ProblemError(f"{role} is {shown(names)}; wanted names: {role}=['k1', 'k2'].")
    scalars = list(dict.fromkeys(s for i in instances for s in i.scalars))
    found: list[str] = []
    for name in listed:
        members = [s for s in scalars if s.startswith(f"{name}[")]
        free = [s for s in members if not all(_is_fixed(s, i) for i in instances)]
        found += free if free and name not in scalars else members or [name]
    twice = sorted({n for n in found if found.count(n) > 1})
    if twice:
        raise ProblemError(f"Parameters {twice} are listed more than once; list each once.")
    return tuple(found)


def _is_fixed(name: str, instance: Instance) -> bool:
    component = instance.scalars.get(name)
    return component is None or (component.is_variable_type() and component.fixed)


def shared_bounds(name: str, one: Bounds, other: Bounds) -> Bounds:
    """What lies within the bounds of two experiments' models."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    if not low < high:
        raise ProblemError(
            f"Parameter '{name}' has bounds {one} in one experiment's model and {other} in "
            "another's, which do not overlap; give it the same bounds, or make it local."
        )
    return low, high


def bounds_of(name: str, given: Bounds | None, instance: Instance) -> Bounds:
    component = instance.scalars[name]
    pair = given if given is not None else getattr(component, "bounds", (None, None))
    try:
        lower, upper = pair
        low = -np.inf if lower is None else float(lower)
        high = np.inf if upper is None else float(upper)
    except (TypeError, ValueError):
        raise ProblemError(
            f"The bounds of parameter '{name}' are {pair!r}; give a pair (lower, upper), with None "
            "where there is no bound."
        ) from None
    if not low < high:
        raise ProblemError(
            f"Parameter '{name}' has bounds [{low:g}, {high:g}]; wanted lower < upper. "
            "Fix the variable in the model if it is known; exchange the bounds if they are crossed."
        )
    return low, high


def with_logarithms(box: Box, names: Iterable[str]) -> Box:
    """The box, in which some parameters (or all their members) are sought in logarithms.

    raises ProblemError if one is no unknown, or its bounds are not positive and finite
    """
    wanted = set(names)
    found = frozenset(n for n in box.names if n.split("@", maxsplit=1)[0] in wanted)
    strangers = sorted(wanted - {n.split("@", maxsplit=1)[0] for n in found})
    if strangers:
        raise ProblemError(
            f"logarithmic names {strangers}, which are not among the unknowns {list(box.names)}."
        )
    inside = box.select(found)
    loose = [
        n
        for n, low, high in zip(inside.names, inside.lower, inside.upper, strict=True)
        if not (low > 0 and np.isfinite(high))
    ]
    if loose:
        raise ProblemError(
            f"{loose} are sought in logarithms, but their bounds are not positive and finite; give "
            f"them: parameters={{'{loose[0]}': (1e-5, 1e5), ...}}."
        )
    return replace(box, logarithmic=found)


class Parts(NamedTuple):
    """What a problem is made of: the user's builder, and the rest by the names of `Problem`."""

    model: Any
    experiments: tuple[Experiment, ...]
    instances: tuple[Instance, ...]
    parameters: tuple[str, ...]
    local: frozenset[str]
    time_varying: Mapping[str, PiecewiseConstant]


def name_experiments(experiments: Sequence[Experiment] | Experiment) -> list[Experiment]:
    """The experiments as a list, each with its own name (`1`, `2`, ... where none is given)."""
    given: Any = experiments
    runs = list(given) if isinstance(given, Iterable) else [given]
    strangers = [type(e).__name__ for e in runs if not isinstance(e, Experiment)]
    if strangers or not runs:
        raise ProblemError(
            f"experiments holds {strangers or 'nothing'}; wanted one or several igpe.Experiment, "
            "for example [igpe.Experiment(pd.read_csv('run1.csv'), start={...})]."
        )
    named = []
    for number, e in enumerate(runs, start=1):
        own = copy.copy(e)
        own.name = e.name or str(number)
        named.append(own)
    names = [e.name for e in named]
    if len(set(names)) < len(names):
        raise ProblemError(f"The experiments are named {names}; give each its own name.")
    return named


def convert_units(experiment: Experiment, instance: Instance) -> Experiment:
    """The experiment with its measurements in the model's units."""
    measurements = experiment.measurements
    result = copy.copy(experiment)
    models = dict(experiment.error_models)
    for name, given in experiment.units.items():
        if name == "time":
            factor, offset = conversion(name, given, model_unit({0: instance.time}))
            result.start_time = factor * experiment.start_time + offset
        elif name not in experiment.measured:
            raise DataError(
                f"units are given for '{name}', which is not among {experiment.measured}."
            )
        else:
            series = instance.over_time(name)
            if series is None:
                continue
            factor, offset = conversion(name, given, model_unit(series))
            if name in models:
                models[name] = converted_error(name, given, models[name], factor, offset)
        measurements = converted(measurements, name, factor, offset)
    result.measurements = measurements
    result.error_models = MappingProxyType(models)
    return result


def check_arguments(local: Any, priors: Any, loss: Any, time_varying: Any) -> None:
    """What a problem is made of has the right kind; names are looked up later."""
    if not isinstance(local, Iterable):
        raise ProblemError(
            f"local is {shown(local)}; wanted a list of parameters (empty if all are shared): "
            "local=['k1']."
        )
    if not isinstance(loss, LeastSquares | L1 | Huber):
        raise ProblemError(
            f"loss is {shown(loss)}; wanted igpe.losses.LeastSquares(), igpe.losses.L1() or "
            "igpe.losses.Huber(delta)."
        )
    _check_each("priors", priors, NormalPrior, "igpe.losses.NormalPrior(mean, deviation)")
    _check_each(
        "time_varying",
        time_varying,
        PiecewiseConstant,
        "igpe.losses.PiecewiseConstant(breaks, lower, ..)",
    )


def _check_each(role: str, given: Any, kind: type, wanted: str) -> None:
    require_mapping(role, given, f"{role}={{'k1': {wanted}}}", ProblemError)
    for name, value_ in given.items():
        if not isinstance(value_, kind):
            raise ProblemError(f"{role} of '{name}' is {shown(value_)}; wanted {wanted}.")


def check_weights(experiments: Sequence[Experiment], priors: Mapping[str, NormalPrior]) -> None:
    """Standard deviations of all or of none; a prior means nothing beside unknown ones."""
    known = [e.name for e in experiments if e.sigma_known or e.estimated_sigma]
    unknown = [e.name for e in experiments if e.name not in known]
    if known and unknown:
        raise ProblemError(
            f"The experiments {known} have standard deviations, {unknown} have none, so they "
            "cannot be weighed against each other; give all experiments sigma=..., or none."
        )
    if priors and unknown:
        raise ProblemError(
            f"Priors are given for {list(priors)}, but their weight beside measurements of "
            "unknown exactness would depend on the units; give the measurements standard "
            "deviations (sigma=...), or leave the priors out."
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
            f"Standard deviations to be held are {shown(sigma)}; give an array of positive numbers "
            f"for each experiment, as long as {sizes}."
        )
    return held


def check_model(parts: Parts) -> None:
    """The parameters exist and are scalar, and nothing else is left free."""
    starts = [s for e in parts.experiments for s in e.start.values()]
    is_nothing = not parts.parameters and not parts.time_varying
    if is_nothing and not any(isinstance(s, Unknown) for s in starts):
        raise ProblemError(
            "No parameters are named; list the model's Vars that are to be estimated."
        )
    strangers = sorted(parts.local - set(parts.parameters))
    for experiment, instance in zip(parts.experiments, parts.instances, strict=True):
        for name in parts.parameters:
            _check_parameter(parts, experiment, name, instance)
        unknown = [n for n in parts.time_varying if n not in instance.series]
        if unknown:
            raise ProblemError(
                f"{_where(parts, experiment)}time_varying names {unknown}; the model's variables "
                f"over time that are no states are {sorted(instance.series)}."
            )
    if strangers:
        raise ProblemError(f"local={strangers} are not among the parameters {parts.parameters}.")


def is_labelled(builder: Any) -> bool:
    """Whether the models come from parmest, which fixes unknowns and discretises time."""
    return bool(getattr(builder, "is_labelled", False))


def _check_parameter(parts: Parts, experiment: Experiment, name: str, instance: Instance) -> None:
    place = _where(parts, experiment)
    if instance.over_time(name) is not None:
        raise ProblemError(
            f"{place}'{name}' varies with time, so it is no parameter; declare it in "
            "time_varying=, or make it a scalar Var."
        )
    if name not in instance.scalars:
        elsewhere = any(name in i.scalars for i in parts.instances)
        raise ProblemError(
            f"{place}the model has no scalar Var '{name}'; it has {sorted(instance.scalars)}."
            f"{closest(name, instance.scalars)} Parameters must be Var or mutable Param, without "
            "time."
            + " All experiments' models need all parameters; declare it there too."
            * elsewhere
        )
    component = instance.scalars[name]
    if component.is_variable_type() and not component.is_continuous():
        raise ProblemError(
            f"{place}parameter '{name}' is a Var of the domain {component.domain.name}; igpe "
            "estimates real numbers. Use pyo.Reals with bounds, or estimate once for each value."
        )
    if component.is_variable_type() and component.fixed and not is_labelled(parts.model):
        raise ProblemError(
            f"{place}parameter '{name}' is fixed at {value(component)} in the model, and named in "
            f"parameters=. Leave it out of parameters to keep it fixed, or remove the line that "
            f"fixes it (m.{name}.fix(...)) to estimate it."
        )
    units = {unit_name(i.scalars[name]) for i in parts.instances if name in i.scalars}
    if len(units) > 1 and name not in parts.local:
        raise ProblemError(
            f"Parameter '{name}' has the units {sorted(units)} in the experiments' models; give it "
            "one unit, or make it local."
        )


def check_experiment(
    parts: Parts, experiment: Experiment, instance: Instance, starts: ModelStarts
) -> None:
    """What the experiment names exists in the model, and everything it must know is given."""
    _check_measured(experiment, instance)
    _check_estimated(experiment, instance)
    _check_inputs(parts, experiment, instance)
    _check_starts(parts, experiment, instance, starts)
    _check_free(parts, experiment, instance)


def _where(parts: Parts, experiment: Experiment) -> str:
    return "" if len(parts.experiments) == 1 else f"Experiment '{experiment.name}': "


def _check_measured(experiment: Experiment, instance: Instance) -> None:
    strangers = [n for n in experiment.measured if instance.over_time(n) is None]
    if strangers:
        known = [*instance.states, *instance.series, *instance.expressions]
        raise DataError(
            f"Columns {strangers} are nothing that varies with time in the model, which has "
            f"{known}.{closest(strangers[0], known)} Rename the columns (columns={{...}}), add an "
            "Expression over time for what is measured, or leave them out with only=[...]."
        )


def _check_estimated(experiment: Experiment, instance: Instance) -> None:
    for column, name in experiment.estimated_sigma.items():
        if instance.over_time(name) is None and name not in instance.scalars:
            raise DataError(
                f"The standard deviation of '{column}' is igpe.EstimatedSigma({name!r}), but "
                "the model "
                f"has no such Var, Param or Expression over time; its parameters are "
                f"{sorted(instance.scalars)}."
            )
        if column in experiment.units:
            raise DataError(
                f"units are given for '{column}', whose standard deviation is estimated in the "
                "model's unit; convert the measurements, and leave the unit out."
            )


def _check_inputs(parts: Parts, experiment: Experiment, instance: Instance) -> None:
    place = _where(parts, experiment)
    for name in experiment.inputs:
        if name in parts.parameters:
            raise ProblemError(
                f"{place}'{name}' is given as an input and named as a parameter; take one away."
            )
        if name in parts.time_varying:
            raise ProblemError(
                f"{place}'{name}' is given as an input and estimated by time_varying=; take one "
                "away."
            )
        if name in instance.states or name in experiment.measured:
            raise ProblemError(
                f"{place}'{name}' is given as an input, but the model computes it or the data "
                "measure it; take one of them away."
            )
        if name not in instance.series and name not in instance.scalars:
            raise ProblemError(
                f"{place}the model has no input '{name}'. Inputs are Vars or mutable Params: "
                f"{sorted([*instance.series, *instance.scalars])}."
            )


def _check_starts(
    parts: Parts, experiment: Experiment, instance: Instance, starts: ModelStarts
) -> None:
    place = _where(parts, experiment)
    strangers = [n for n in experiment.start if n not in instance.states]
    if strangers:
        raise ProblemError(
            f"{place}start values are given for {strangers}; the states are "
            f"{list(instance.states)}."
        )
    missing = [n for n in instance.states if n not in experiment.start and n not in starts.states]
    if missing:
        raise ProblemError(
            f"{place}the states {missing} have no start value. Give it in "
            f"Experiment(start={{'{missing[0]}': ...}}) as a number, a parameter's name, or "
            "igpe.Unknown(lower, upper) to estimate it."
        )
    named = [v for v in experiment.start.values() if isinstance(v, str)]
    unknown = [n for n in named if n not in parts.parameters]
    if unknown:
        raise ProblemError(
            f"{place}start values name {unknown}, which are not among the parameters "
            f"{list(parts.parameters)}."
        )


def _check_free(parts: Parts, experiment: Experiment, instance: Instance) -> None:
    """No scalar variable in the equations is left without a value."""
    known = {*parts.parameters, *experiment.inputs}
    scalars = {id(v): n for n, v in instance.scalars.items() if n not in known}
    for variable in _used(instance):
        name = scalars.get(id(variable))
        if name is not None and not variable.fixed:
            raise ModelError(
                f"The equations use '{name}', which is not fixed, not a parameter and not an "
                "input. Name it in parameters=[...], fix it, or give it in Experiment(inputs=...)."
            )
    for name, series in instance.series.items():
        data = next(iter(series.values()))
        named = name in experiment.inputs or name in parts.time_varying
        given = named or data.is_variable_type()
        if not given and value(data, exception=False) is None:
            raise ProblemError(f"Input '{name}' has no value; give it in Experiment(inputs=...).")


def _used(instance: Instance) -> Iterable[Any]:
    for equation in instance.equations.values():
        constraint = equation[max(equation)]
        yield from identify_variables(constraint.expr, include_fixed=False)
