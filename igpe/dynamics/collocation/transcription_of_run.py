"""What makes a user's model one experiment: parameters, start values, inputs, residuals."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.modeling import unique_component_name
from pyomo.core.expr.visitor import identify_variables, replace_expressions

from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import evaluate
from igpe.problem.loss import ROUNDING
from igpe.problem.model import Instance, model_starts
from igpe.problem.problem import Problem


class Scalars:
    """The unknowns as Pyomo variables, gathered experiment by experiment.

    unknowns  name -> variables, one for each experiment that has it
    links     pairs of variables that are the same unknown
    """

    def __init__(self, problem: Problem) -> None:
        self.unknowns: dict[str, list[Any]] = {}
        self.links: list[tuple[Any, Any]] = []
        box = problem.unknowns
        self._fixed = problem.fixed
        self._bounds = dict(zip(box.names, zip(box.lower, box.upper, strict=True), strict=True))

    def take(self, name: str, variable: Any) -> None:
        """From now on the variable is the unknown of this name."""
        lower, upper = (float(b) for b in self._bounds[name])
        variable.domain = pyo.Reals
        variable.unfix()
        known = self.unknowns.setdefault(name, [])
        known.append(variable)
        if name in self._fixed:
            variable.setlb(None)
            variable.setub(None)
            variable.fix(self._fixed[name])
            return
        # Bounds stand once; IPOPT would count them twice.
        variable.setlb(lower if len(known) == 1 else None)
        variable.setub(upper if len(known) == 1 else None)
        if len(known) > 1:
            self.links.append((known[0], variable))


def set_conditions(
    problem: Problem, experiment: Experiment, instance: Instance, scalars: Scalars
) -> list[Any]:
    """Turn the instance into the experiment; returns its weighted squared residuals."""
    replaced = _parameters(problem, experiment, instance, scalars)
    replaced |= _pieces(problem, experiment, instance, scalars)
    _inputs(experiment, instance)
    _starts(problem, experiment, instance, scalars)
    residuals = _residuals(experiment, instance, replaced)
    if replaced:
        _replace(instance.model, replaced)
    _leave_out(instance, residuals)
    return [r**2 for r in residuals]


def _parameters(
    problem: Problem, experiment: Experiment, instance: Instance, scalars: Scalars
) -> dict[int, Any]:
    """Hand the parameters out; id(mutable Param) -> the variable that takes its place."""
    replaced: dict[int, Any] = {}
    for name in problem.parameters:
        component = instance.scalars[name]
        if not component.is_variable_type():
            home = unique_component_name(instance.model, "parameter")
            instance.model.add_component(home, pyo.Var(initialize=pyo.value(component, False)))
            replaced[id(component)] = component = getattr(instance.model, home)
        scalars.take(problem.unknown_of(name, experiment), component)
        instance.scalars[name] = component  # type: ignore[index]
    return replaced


def _pieces(
    problem: Problem, experiment: Experiment, instance: Instance, scalars: Scalars
) -> dict[int, Any]:
    """Id of what varies with time, at each time -> the variable of its piece there.

    An element owns its right end: at a break the piece before it.
    """
    replaced: dict[int, Any] = {}
    for name in problem.time_varying:
        pieces = problem.pieces(name, experiment)
        home = unique_component_name(instance.model, "pieces")
        instance.model.add_component(home, pyo.Var(range(len(pieces))))
        variables = list(getattr(instance.model, home).values())
        for unknown, variable in zip(pieces, variables, strict=True):
            scalars.take(unknown, variable)
        begins = np.array(list(pieces.values())) + ROUNDING * (
            experiment.times[-1] - instance.first
        )
        for t, data in instance.series[name].items():
            place = max(int(np.searchsorted(begins, t, side="left")) - 1, 0)
            replaced[id(data)] = variables[place]
    return replaced


def _inputs(experiment: Experiment, instance: Instance) -> None:
    first = instance.first
    for name, value in experiment.inputs.items():
        if name in instance.scalars:
            _set(instance.scalars[name], evaluate(value, first))
            continue
        for t, data in instance.series[name].items():
            # An element owns its right end: there a jump has not happened yet.
            _set(data, evaluate(value, float(t), before=t > first))


def _set(data: Any, value: float) -> None:
    if data.is_variable_type():
        data.fix(value, skip_validation=True)
    else:
        data.set_value(value)


def _starts(
    problem: Problem,
    experiment: Experiment,
    instance: Instance,
    scalars: Scalars,
) -> None:
    own = model_starts(instance)
    home = unique_component_name(instance.model, "start")
    equal = pyo.ConstraintList()
    instance.model.add_component(home, equal)
    for state, value in experiment.start.items():
        x = instance.states[state][instance.first]
        if state in own.conditions:
            own.conditions[state].deactivate()
        x.unfix()
        if isinstance(value, Unknown):
            scalars.take(problem.start_unknown(state, experiment), x)
        elif isinstance(value, str):
            equal.add(x == instance.scalars[value])
        else:
            x.fix(value, skip_validation=True)


def _residuals(experiment: Experiment, instance: Instance, replaced: dict[int, Any]) -> list[Any]:
    found = []
    m = experiment.measurements
    for row, column, value, sigma in zip(m.row, m.column, m.value, m.sigma, strict=True):
        series = instance.over_time(m.names[column])
        if series is None:
            raise AssertionError("Problem checks that everything measured is in the model")
        quantity = series[float(m.times[row])]
        if replaced:
            quantity = _replaced(quantity, replaced)
        found.append((quantity - float(value)) / float(sigma))
    return found


def _replace(model: Any, replaced: dict[int, Any]) -> None:
    for constraint in model.component_data_objects(pyo.Constraint, active=True):
        constraint.set_value(_replaced(constraint.expr, replaced))


def _replaced(expression: Any, replaced: dict[int, Any]) -> Any:
    return replace_expressions(
        expression, replaced, descend_into_named_expressions=True, remove_named_expressions=True
    )


def _leave_out(instance: Instance, residuals: Iterable[Any]) -> None:
    """Deactivate equations of the first time that only determine what nothing else uses.

    A Radau method has no equation for slopes at the first time. There the model's right-hand side
    may be undefined (0/0), and nothing depends on it.
    """
    first = instance.first
    families = (instance.slopes, instance.series)
    spare = {
        id(series[first])
        for family in families
        for series in family.values()
        if _is_spare(series[first], is_slope=family is instance.slopes)
    }
    here = {c for c in (s.get(first) for s in instance.equations.values()) if c is not None}
    inside = {c: _variables(c.expr) & spare for c in here if c.active}
    uses = Counter(v for found in inside.values() for v in found)
    for constraint in instance.model.component_data_objects(pyo.Constraint, active=True):
        if constraint not in inside:
            uses.update(_variables(constraint.expr) & spare)
    for residual in residuals:
        uses.update(_variables(residual) & spare)
    _peel(inside, uses)


def _is_spare(data: Any, *, is_slope: bool) -> bool:
    if not data.is_variable_type() or data.fixed:
        return False
    return is_slope or (data.lb is None and data.ub is None)


def _variables(expression: Any) -> set[int]:
    return {id(v) for v in identify_variables(expression, include_fixed=False)}


def _peel(inside: dict[Any, set[int]], uses: Counter[int]) -> None:
    while True:
        alone = [c for c, found in inside.items() if any(uses[v] == 1 for v in found)]
        if not alone:
            return
        for constraint in alone:
            constraint.deactivate()
            uses.subtract(inside.pop(constraint))
