"""Where the model itself says that states start: fixed values and equations at the first time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyomo.core.expr.visitor import identify_variables

from igpe.problem.model import Instance


@dataclass(frozen=True)
class ModelStarts:
    """Start values found in a built model.

    fixed       state -> number
    conditions  state -> Pyomo constraint that holds this state at the first time and otherwise
                only parameters
    others      name -> the remaining constraints without time: boundary conditions, couplings
    """

    fixed: Mapping[str, float]
    conditions: Mapping[str, Any]
    others: Mapping[str, Any]

    @property
    def states(self) -> set[str]:
        """States whose start the model gives."""
        return set(self.fixed) | set(self.conditions)


def model_starts(instance: Instance) -> ModelStarts:
    """What the model says about the start of its states."""
    first = instance.first
    initial = {name: series[first] for name, series in instance.states.items()}
    fixed = {name: float(x.value) for name, x in initial.items() if x.fixed and x.value is not None}
    state_of = {id(x): name for name, x in initial.items()}
    scalars = {id(x) for x in instance.scalars.values()}
    conditions, others = {}, {}
    for name, constraint in instance.conditions.items():
        variables = {id(v): v for v in identify_variables(constraint.expr, include_fixed=True)}
        states = [state_of[i] for i in variables if i in state_of]
        strangers = [i for i in variables if i not in state_of and i not in scalars]
        is_start = constraint.equality and len(states) == 1 and not strangers
        if is_start and states[0] not in conditions and states[0] not in fixed:
            conditions[states[0]] = constraint
        else:
            others[name] = constraint
    return ModelStarts(fixed, conditions, others)
