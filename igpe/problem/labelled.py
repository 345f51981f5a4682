"""Pyomo's own convention for estimation: parmest's labelled models.

A `pyomo.contrib.parmest.experiment.Experiment` returns from `get_labeled_model()` a model with the
suffixes `experiment_outputs` (measured variable -> value), `unknown_parameters`,
`measurement_error` (variable -> standard deviation) and `experiment_inputs`. Such a model brings
its own times, and often its own discretisation, which is kept.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo.dae import ContinuousSet

from igpe.core.errors import ModelError
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table, linear_input, step_input
from igpe.problem.model import Builder, Instance, read
from igpe.problem.noise.sigma import Sigma

FEW = 0.25  # an input with fewer distinct values than this share of its times is read as steps


def read_labelled(experiments: Any) -> tuple[Builder, list[str], list[Experiment]]:
    """Builder, unknown parameters and measurements of parmest experiments.

    raises ModelError if one has no labelled model, is not dynamic, or lacks outputs or parameters
    """
    given = list(experiments) if isinstance(experiments, Iterable) else [experiments]
    others = [type(e).__name__ for e in given if not hasattr(e, "get_labeled_model")]
    if others or not given:
        raise ModelError(
            f"from_parmest was given {others or 'nothing'}; wanted a list of parmest experiments, "
            "each with a method get_labeled_model()."
        )
    runs: list[Experiment] = []
    parameters: list[str] = []
    for number, source in enumerate(given, start=1):
        model, inputs = _labelled_model(source)
        names = [v.name for v in model.unknown_parameters]
        if parameters and names != parameters:
            raise ModelError(
                f"Experiment {number} has the unknown parameters {names}, the first has "
                f"{parameters}; all must have the same."
            )
        parameters = names
        runs.append(_experiment(str(number), read(model), inputs))
    sources = {run.name: source for run, source in zip(runs, given, strict=True)}
    return _Labelled(sources), parameters, runs


class _Labelled:
    """The builder of parmest experiments (pickle keeps it if it can keep their models)."""

    __name__ = "get_labeled_model"
    is_labelled = True  # unknowns may be fixed and the time discretised

    def __init__(self, sources: dict[str, Any]) -> None:
        self._sources = sources

    def __call__(self, times: Sequence[float], experiment: Experiment) -> Any:
        return _labelled_model(self._sources[experiment.name])[0]


def _labelled_model(source: Any) -> tuple[Any, dict[str, Table]]:
    """A copy of a labelled model, and the inputs that it tabulates."""
    try:
        model = source.get_labeled_model().clone()
    except Exception as error:
        raise ModelError(
            f"get_labeled_model of a {type(source).__name__} failed: {type(error).__name__}: "
            f"{error}. It must return a labelled Pyomo model."
        ) from error
    missing = [s for s in ("experiment_outputs", "unknown_parameters") if not hasattr(model, s)]
    if missing:
        raise ModelError(
            f"The labelled model lacks the suffixes {missing}; parmest's convention needs "
            "experiment_outputs and unknown_parameters."
        )
    for objective in model.component_objects(pyo.Objective, active=True):
        objective.deactivate()
    for design, value in getattr(model, "experiment_inputs", {}).items():
        if design.is_variable_type():  # what the experimenter set is known
            design.fix(design.value if value is None else value)
    return model, _varying_inputs(model)


def _experiment(name: str, instance: Instance, inputs: dict[str, Table]) -> Experiment:
    place = {
        id(data): (quantity, float(t))
        for family in (instance.states, instance.series, instance.expressions)
        for quantity, series in family.items()
        for t, data in series.items()
    }
    outputs = list(instance.model.experiment_outputs.items())
    if constant := [v.name for v, _ in outputs if id(v) not in place]:
        raise ModelError(f"The experiment_outputs {constant[:5]} do not vary with time.")
    errors = getattr(instance.model, "measurement_error", pyo.Suffix())
    rows = [(*place[id(v)], float(value), errors.get(v)) for v, value in outputs]
    long = pd.DataFrame(rows, columns=["name", "time", "value", "sigma"]).astype({"sigma": float})
    table = long.pivot_table(index="time", columns="name", values="value", sort=True).reset_index()
    sigma: Sigma = "equal"  # as in parmest's sum of squared errors
    if long["sigma"].notna().all():
        spread = long.pivot_table(index="time", columns="name", values="sigma", dropna=False)
        sigma = {n: spread[n].fillna(1.0).to_numpy() for n in table.columns if n != "time"}
    return Experiment(table, name=name, start_time=instance.first, inputs=inputs, sigma=sigma)


def _varying_inputs(model: Any) -> dict[str, Table]:
    """Make immutable Params over time mutable, so that the equations show them, and tabulate them.

    Their rules baked numbers into the constraints; these are written again by their own rules.
    """
    times = list(model.component_objects(ContinuousSet))
    found = {}
    for parameter in list(model.component_objects(pyo.Param, active=True)):
        if parameter.mutable or not any(parameter.index_set() is t for t in times):
            continue
        values = {float(t): float(parameter[t]) for t in parameter.index_set()}
        found[parameter.name] = _table(values)
        block, name, index = parameter.parent_block(), parameter.local_name, parameter.index_set()
        block.del_component(parameter)
        block.add_component(name, pyo.Param(index, initialize=values, mutable=True))
    if found:  # the constraints over time are written again
        for constraint in list(model.component_objects(pyo.Constraint, active=True)):
            index, rule, name = constraint.index_set(), constraint.rule, constraint.local_name
            over_time = any(s is t for s in index.subsets() for t in times)
            if rule is not None and over_time and not name.endswith("_disc_eq"):
                block = constraint.parent_block()
                block.del_component(constraint)
                block.add_component(name, pyo.Constraint(index, rule=rule))
    return found


def _table(values: dict[float, float]) -> Table:
    times = np.array(sorted(values))
    numbers = np.array([values[t] for t in times])
    if len(np.unique(numbers)) > max(1, FEW * len(numbers)):
        return linear_input(times, numbers)
    jumps = np.append(True, np.diff(numbers) != 0)
    return step_input(times[jumps], numbers[jumps])
