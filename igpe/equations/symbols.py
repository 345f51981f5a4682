"""CasADi symbols for everything a model's equations speak of.

One CasADi column from many expressions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca
from pyomo.core.expr.visitor import identify_variables

from igpe.core.errors import ModelError
from igpe.problem.experiment import Experiment
from igpe.problem.model import Instance, Series
from igpe.problem.problem import Problem


def stack(expressions: Iterable[Any]) -> Any:
    """SX column vector of the expressions; 0 x 1 if there are none."""
    entries = list(expressions)
    return ca.SX(ca.vertcat(*entries)) if entries else ca.SX(0, 1)


class Role(NamedTuple):
    """An entry of one of the vectors of `Symbols`."""

    kind: str
    place: int


@dataclass(frozen=True)
class Symbols:
    """Names and symbols (SX column vectors), in the same order.

    x and dx and s (start values) belong to `states`, z to `algebraics`, u to `inputs`, p to
    `parameters`; t is the time.
    """

    states: tuple[str, ...]
    algebraics: tuple[str, ...]
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    t: Any
    dx: Any
    x: Any
    z: Any
    u: Any
    p: Any
    s: Any

    @property
    def vectors(self) -> tuple[Any, ...]:
        """All symbols, in the order t, dx, x, z, u, p, s."""
        return self.t, self.dx, self.x, self.z, self.u, self.p, self.s

    def by_identity(self, instance: Instance, time: float) -> dict[int, Any]:
        """id(Pyomo data at `time`) -> symbol."""
        return {i: getattr(self, r.kind)[r.place] for i, r in self.roles(instance, time).items()}

    def roles(self, instance: Instance, time: float) -> dict[int, Role]:
        """id(Pyomo data at `time`) -> what it is."""
        found: dict[int, Role] = {}
        for i, name in enumerate(self.states):
            found[id(instance.states[name][instance.first])] = Role("s", i)
            found[id(instance.states[name][time])] = Role("x", i)
            found[id(instance.slopes[name][time])] = Role("dx", i)
        for i, name in enumerate(self.algebraics):
            found[id(instance.series[name][time])] = Role("z", i)
        for i, name in enumerate(self.inputs):
            is_scalar = name in instance.scalars
            data = instance.scalars[name] if is_scalar else instance.series[name][time]
            found[id(data)] = Role("u", i)
        for i, name in enumerate(self.parameters):
            found[id(instance.scalars[name])] = Role("p", i)
        return found


def make_symbols(
    problem: Problem, experiment: Experiment, instance: Instance, time: float
) -> Symbols:
    """Sort the model's variables at `time` into roles and give each a symbol."""
    inputs = (*experiment.inputs, *problem.time_varying)
    names = {
        "states": tuple(instance.states),
        "algebraics": _algebraics(experiment, instance, inputs, time),
        "inputs": tuple(inputs),
        "parameters": problem.parameters,
    }
    return Symbols(
        **names,
        t=ca.SX.sym("t"),
        dx=_vector("d", names["states"]),
        x=_vector("", names["states"]),
        z=_vector("", names["algebraics"]),
        u=_vector("", names["inputs"]),
        p=_vector("", names["parameters"]),
        s=_vector("start ", names["states"]),
    )


def _vector(prefix: str, names: tuple[str, ...]) -> Any:
    return stack(ca.SX.sym(prefix + name) for name in names)


def _algebraics(
    experiment: Experiment, instance: Instance, inputs: tuple[str, ...], time: float
) -> tuple[str, ...]:
    """Variables over time that are used, free, no inputs and no states."""
    used = set()
    measured = [instance.expressions[n] for n in experiment.told if n in instance.expressions]
    for series in (*instance.equations.values(), *measured):
        require_at(series, time)
        used |= {id(v) for v in identify_variables(series[time].expr, include_fixed=False)}
    return tuple(
        name
        for name, series in instance.series.items()
        if name not in inputs and id(series[time]) in used
    )


def require_at(series: Series, time: float) -> None:
    """Raise ModelError if an equation does not exist at that time."""
    if time not in series:
        raise ModelError(
            f"The equation '{next(iter(series.values())).name}' does not exist at time {time:g}; "
            "an equation must hold at all times (it may be skipped at the first)."
        )
