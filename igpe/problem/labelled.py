"""Pyomo's own convention for estimation, parmest's labelled models.

A `pyomo.contrib.parmest.experiment.Experiment` returns from `get_labeled_model()` a model with the
suffixes `experiment_outputs` (measured variable -> value, or a list of repeated values),
`unknown_parameters`, `measurement_error` (variable -> standard deviation) and `experiment_inputs`.
Such a model brings its own times, and often its own discretisation, which is kept. One without a
time is read as what stays the same over a time of igpe's own, at whose end it is measured.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo.core.expr.visitor import identify_variables, replace_expressions
from pyomo.dae import ContinuousSet, DerivativeVar
from pyomo.util.calc_var_value import calculate_variable_from_constraint

from igpe.core.errors import ModelError
from igpe.problem.building import Builder
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table, linear_input, step_input
from igpe.problem.model import Instance, read, sets_of
from igpe.problem.noise.sigma import Sigma

STATIC_TIMES = (0.0, 0.5, 1.0)
CLOCK = "time_passed"  # the state of a model without time
FEW = 0.25  # an input with fewer distinct values than this share of its times is read as steps


def read_labelled(
    experiments: Any, *, planned: bool = False
) -> tuple[Builder, list[str], list[Experiment]]:
    """Builder, unknown parameters and measurements of parmest experiments.

    planned  whether outputs may lack values, as in models for the design of experiments: they are 0
    raises ModelError if one has no labelled model, is not dynamic, or lacks outputs or parameters
    """
    given = list(experiments) if isinstance(experiments, Iterable) else [experiments]
    others = [type(e).__name__ for e in given if not hasattr(e, "get_labeled_model")]
    if others or not given:
        raise ModelError(
            f"from_parmest was given {others or 'nothing'}; expected a list of parmest "
            "experiments, each with a method get_labeled_model()."
        )
    runs: list[Experiment] = []
    parameters: list[str] = []
    for number, source in enumerate(given, start=1):
        model, inputs = _labelled_model(source)
        instance = read(model)
        names = [v.name for v in model.unknown_parameters]
        if parameters and names != parameters:
            raise ModelError(
                f"Experiment {number} has the unknown parameters {names}, but the first "
                f"experiment has {parameters}. All experiments must have the same unknown "
                "parameters."
            )
        parameters = names
        controls = inputs | _held_controls(instance)
        runs.append(_experiment(str(number), instance, controls, planned=planned))
    sources = {run.name: source for run, source in zip(runs, given, strict=True)}
    return _Labelled(sources), parameters, runs


class _Labelled:
    """The builder of parmest experiments (pickle keeps it if it can keep their models)."""

    __name__ = "get_labeled_model"
    is_labelled = True  # unknowns may be fixed and the time discretised

    def __init__(self, sources: dict[str, Any]) -> None:
        self._sources = sources

    def __call__(self, times: Sequence[float], experiment: Experiment) -> Any:
        # a planned experiment is none of these: its model is that of the first
        source = self._sources.get(experiment.name) or next(iter(self._sources.values()))
        return _labelled_model(source, times)[0]


def _labelled_model(
    source: Any, times: Sequence[float] = STATIC_TIMES
) -> tuple[Any, dict[str, Table]]:
    """A copy of a labelled model, and the inputs that it tabulates.

    times  for a model that has none
    """
    try:
        model = source.get_labeled_model().clone()
    except Exception as error:
        raise ModelError(
            f"{type(source).__name__}.get_labeled_model() failed: {type(error).__name__}: "
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
    if next(model.component_objects(ContinuousSet), None) is None:
        _lay_over_time(model, times)
    _insert_known(model)
    return model, _varying_inputs(model)


def _lay_over_time(model: Any, times: Sequence[float]) -> None:
    """Let a model without time hold at all times, in place; it is measured at the last."""
    unknown = {id(v) for v in model.unknown_parameters}
    every = list(model.component_data_objects(pyo.Var, active=True))
    free = [v for v in every if not v.fixed and id(v) not in unknown]
    written = [v for v in model.experiment_outputs if v.is_expression_type()]
    equations = list(model.component_data_objects(pyo.Constraint, active=True))
    names = {id(v): v.name.replace(".", "_") for v in (*free, *written)}
    for data in (*free, *written):
        if data.parent_component() is data:
            data.parent_block().del_component(data)
    time = ContinuousSet(initialize=sorted(set(times)))
    model.add_component("time", time)
    over: dict[int, Any] = {}
    for v in free:
        over[id(v)] = pyo.Var(time, bounds=v.bounds, initialize=v.value)
        model.add_component(names[id(v)], over[id(v)])

    def at(expression: Any) -> Any:
        return lambda _, t: replace_expressions(expression, {i: v[t] for i, v in over.items()})

    for e in written:
        named = pyo.Expression(time, rule=at(e.expr))
        model.add_component(names[id(e)], named)
        over[id(e)] = named
    for number, constraint in enumerate(equations):
        rule = at(constraint.expr)
        constraint.deactivate()
        model.add_component(f"equation_{number}", pyo.Constraint(time, rule=rule))
    _add_clock(model, time)
    for suffix in (model.experiment_outputs, getattr(model, "measurement_error", {})):
        _move(suffix, over, time.last())


def _add_clock(model: Any, time: Any) -> None:
    """A state, which a model over time needs."""
    clock = pyo.Var(time, initialize=0.0)
    model.add_component(CLOCK, clock)
    slope = DerivativeVar(clock, wrt=time)
    model.add_component(f"d{CLOCK}", slope)
    model.add_component("passing", pyo.Constraint(time, rule=lambda _, t: slope[t] == 1))
    clock[time.first()].fix(0.0)


def _move(suffix: Any, over: dict[int, Any], last: float) -> None:
    """Values of what is over time now; a constant that is among the outputs says nothing."""
    for data, value in list(suffix.items()):
        del suffix[data]
        if id(data) in over:
            suffix[over[id(data)][last]] = value


def _insert_known(model: Any) -> None:
    """Fix what equations between several times make of fixed values, as a control that is held."""
    unknown = {id(v) for v in model.unknown_parameters}
    waiting = [
        c
        for c in model.component_data_objects(pyo.Constraint, active=True)
        if c.equality and not _is_over_time(c)
    ]
    while True:
        left = []
        for constraint in waiting:
            held = list(identify_variables(constraint.expr))
            free = [v for v in held if not v.fixed or id(v) in unknown]
            if len(free) == 1 and id(free[0]) not in unknown and _is_over_time(free[0]):
                calculate_variable_from_constraint(free[0], constraint)
                free[0].fix()
                constraint.deactivate()
            else:
                left.append(constraint)
        if len(left) == len(waiting):
            return
        waiting = left


def _is_over_time(data: Any) -> bool:
    return any(isinstance(s, ContinuousSet) for s in sets_of(data.parent_component()))


def _held_controls(instance: Instance) -> dict[str, Table]:
    """Variables that are fixed at numbers that change, as tables."""
    measured = {id(v) for v in instance.model.experiment_outputs}
    tables = {}
    for name, series in instance.series.items():
        members = series.values()
        is_fixed = all(v.is_variable_type() and v.fixed for v in members)
        if is_fixed and not measured & set(map(id, members)):
            values = {t: float(v.value) for t, v in series.items()}
            if len(set(values.values())) > 1:
                tables[name] = _table(values)
    return tables


def _experiment(
    name: str, instance: Instance, inputs: dict[str, Table], *, planned: bool
) -> Experiment:
    place = {
        id(data): (quantity, float(t))
        for family in (instance.states, instance.series, instance.expressions)
        for quantity, series in family.items()
        for t, data in series.items()
    }
    outputs = list(instance.model.experiment_outputs.items())
    if constant := [v.name for v, _ in outputs if id(v) not in place]:
        raise ModelError(f"The outputs {constant[:5]} in experiment_outputs do not vary with time.")
    errors = getattr(instance.model, "measurement_error", pyo.Suffix())
    given = [(v, 0.0 if planned and value is None else value) for v, value in outputs]
    rows = [(*place[id(v)], one, errors.get(v)) for v, value in given for one in _values(v, value)]
    long = pd.DataFrame(rows, columns=["name", "time", "value", "sigma"]).astype({"sigma": float})
    long["again"] = long.groupby(["name", "time"]).cumcount()
    wide = long.pivot_table(index=["time", "again"], columns="name", values=["value", "sigma"])
    table = wide["value"].reset_index("time").reset_index(drop=True)
    sigma: Sigma = "equal"  # as in parmest's sum of squared errors
    if long["sigma"].notna().all():
        sigma = {n: wide["sigma"][n].fillna(1.0).to_numpy() for n in table.columns if n != "time"}
    return Experiment(
        table,
        name=name,
        start_time=instance.first,
        inputs=inputs,
        sigma=sigma,
        replicates=bool(long["again"].any()),
    )


def _values(output: Any, given: Any) -> Iterator[float]:
    """One value, or repeated ones.

    raises  ModelError if there is none, as in a model for the design of experiments
    """
    repeated = [given] if np.ndim(given) == 0 else list(given)
    if None in repeated:
        raise ModelError(
            f"The output '{output.name}' in experiment_outputs has no value: there is nothing to "
            "fit. Give measured values: m.experiment_outputs[m.x[t]] = 1.3."
        )
    yield from map(float, repeated)


def _varying_inputs(model: Any) -> dict[str, Table]:
    """Make immutable Params over time mutable, so that the equations show them, and tabulate them.

    Their rules baked numbers into the constraints; these are written again by their own rules.
    """
    times = list(model.component_objects(ContinuousSet))
    tables = {}
    for parameter in list(model.component_objects(pyo.Param, active=True)):
        if parameter.mutable or not any(parameter.index_set() is t for t in times):
            continue
        values = {float(t): float(parameter[t]) for t in parameter.index_set()}
        tables[parameter.name] = _table(values)
        block, name, index = parameter.parent_block(), parameter.local_name, parameter.index_set()
        block.del_component(parameter)
        block.add_component(name, pyo.Param(index, initialize=values, mutable=True))
    if tables:  # the constraints over time are written again
        for constraint in list(model.component_objects(pyo.Constraint, active=True)):
            index, rule, name = constraint.index_set(), constraint.rule, constraint.local_name
            over_time = any(s is t for s in sets_of(constraint) for t in times)
            if rule is not None and over_time and not name.endswith("_disc_eq"):
                block = constraint.parent_block()
                block.del_component(constraint)
                block.add_component(name, pyo.Constraint(index, rule=rule))
    return tables


def _table(values: dict[float, float]) -> Table:
    times = np.array(sorted(values))
    numbers = np.array([values[t] for t in times])
    if len(np.unique(numbers)) > max(1, FEW * len(numbers)):
        return linear_input(times, numbers)
    jumps = np.append(True, np.diff(numbers) != 0)
    return step_input(times[jumps], numbers[jumps])
