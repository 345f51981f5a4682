"""CasADi symbols for everything that a model's equations contain."""

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

    def roles(self, instance: Instance, time: float) -> dict[int, Role]:
        """id(Pyomo data at `time`) -> what it is."""
        series, scalars = instance.series, instance.scalars
        data = {
            "s": [instance.states[n][instance.first] for n in self.states],
            "x": [instance.states[n][time] for n in self.states],
            "dx": [instance.slopes[n][time] for n in self.states],
            "z": [series[n][time] for n in self.algebraics],
            "u": [scalars[n] if n in scalars else series[n][time] for n in self.inputs],
            "p": [scalars[n] for n in self.parameters],
        }
        return {id(d): Role(kind, i) for kind, row in data.items() for i, d in enumerate(row)}


def make_symbols(
    problem: Problem, experiment: Experiment, instance: Instance, time: float
) -> Symbols:
    """Sort the model's variables at `time` into roles and give each a symbol."""
    states = tuple(instance.states)
    inputs = (*experiment.inputs, *problem.time_varying)
    used = set()
    measured = [instance.expressions[n] for n in experiment.outputs if n in instance.expressions]
    for series in (*instance.equations.values(), *measured):
        require_at(series, time)
        used |= {id(v) for v in identify_variables(series[time].expr, include_fixed=False)}
    over_time = instance.series.items()
    algebraics = tuple(n for n, s in over_time if n not in inputs and id(s[time]) in used)
    is_short = len(instance.equations) < len(states) + len(algebraics)
    is_short &= not instance.in_space  # there a boundary condition may be what is missing
    lost = [n for n in instance.idle if (is_short if n in algebraics else n in experiment.outputs)]
    if lost:
        raise ModelError(
            f"No equation over time contains the derivative of '{min(lost)}', so the model does "
            "not determine it. Write its differential equation as an equality (==) that holds at "
            "all times, also between those of the data."
        )

    def vector(names: Iterable[str], prefix: str = "") -> Any:
        return stack(ca.SX.sym(prefix + name) for name in names)

    return Symbols(
        states=states,
        algebraics=algebraics,
        inputs=inputs,
        parameters=problem.parameters,
        t=ca.SX.sym("t"),
        dx=vector(states, "d"),
        x=vector(states),
        z=vector(algebraics),
        u=vector(inputs),
        p=vector(problem.parameters),
        s=vector(states, "start "),
    )


def require_at(series: Series, time: float) -> None:
    """Raise ModelError if an equation does not exist at that time."""
    if time not in series:
        raise ModelError(
            f"The equation '{next(iter(series.values())).name}' does not exist at time {time:g}; "
            "an equation must hold at all times (only the first time may be skipped)."
        )


LINES = ca.OP_ADD, ca.OP_SUB, ca.OP_NEG, ca.OP_MUL, ca.OP_DIV, ca.OP_TWICE


def without_logarithm(expression: Any) -> Any:
    """The argument of a logarithm with a known scale and offset: it holds the same information.

    It has a value at 0, where many states start. Any other expression stays as it is.
    """
    inner = expression
    while inner.n_dep() and not inner.is_op(ca.OP_LOG):
        parts = [inner.dep(i) for i in range(inner.n_dep())]
        unknown = [part for part in parts if not part.is_constant()]
        is_line = any(map(inner.is_op, LINES)) and len(unknown) == 1
        if not is_line or (inner.is_op(ca.OP_DIV) and parts[1] is unknown[0]):
            return expression
        inner = unknown[0]
    return inner.dep(0) if inner.is_op(ca.OP_LOG) else expression
