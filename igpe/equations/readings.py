"""Reading a model's equations at several times and making sure that they agree.

Explicit dependence on time hides in the numbers of a Pyomo constraint. Two readings at different
times that differ show it; then the constraint's rule is asked again with an `Instant`, and the
answer is believed only if it explains all readings.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.arrays import FloatArray
from igpe.equations.alike import Roles, alike
from igpe.equations.instant import Instant
from igpe.equations.rules import REFUSALS, refuse_branches, said
from igpe.equations.stack import stack
from igpe.equations.symbols import Symbols, require_at
from igpe.equations.translate import Translator
from igpe.errors import ModelError
from igpe.model import Instance

SAME = 1e-10  # largest relative difference of two readings that say the same


class Reading(NamedTuple):
    """What the model says: name -> expression."""

    equations: dict[str, Any]
    measured: dict[str, Any]


def read_equations(
    instance: Instance, symbols: Symbols, measured: Sequence[str], times: Sequence[float]
) -> Reading:
    """The equations (as expressions that must be zero) and measured quantities.

    times   generic times of the instance at which they are read and compared
    raises  ModelError if they differ between times and no symbol for the time explains it
    """
    refuse_branches(instance, times[0])
    told = {n: _over_time(instance, n, times) for n in measured}
    roles = [symbols.roles(instance, time) for time in times]
    first = Reading(*(_read_at(c, instance, symbols, times[0]) for c in (instance.equations, told)))
    for family, series, components in (
        (first.equations, instance.equations, instance.equations),
        (first.measured, told, instance.expressions),
    ):
        doubtful = _changing(series, roles, times)
        if not doubtful:
            continue
        others = [_read_at(doubtful, instance, symbols, t) for t in times[1:]]
        readings = [{n: family[n] for n in doubtful}, *others]
        numbers = [_sample(r.values(), symbols, t) for r, t in zip(readings, times, strict=True)]
        for i, name in enumerate(doubtful):
            heard = np.array([n[i] for n in numbers])
            if _same(heard, heard[0]):
                continue
            family[name] = _ask_again(components[name], name, symbols, instance, times)
            answers = [_sample([family[name]], symbols, t)[0] for t in times]
            if not _same(np.array(answers), heard):
                raise _unexplained(name, "its rule computes with numbers that depend on the time")
    return first


def _changing(
    components: Mapping[str, Any], roles: Sequence[Roles], times: Sequence[float]
) -> dict[str, Any]:
    """Those of the components over time whose members at the times are not plainly alike."""
    found = dict(components)
    for name, series in components.items():
        for time in times:
            require_at(series, time)
        sides = [_sides(series[time]) for time in times]
        if all(
            alike(one, other, roles[0], its)
            for its, those in zip(roles[1:], sides[1:], strict=True)
            for one, other in zip(sides[0], those, strict=True)
        ):
            del found[name]
    return found


def _read_at(
    components: Mapping[str, Any], instance: Instance, symbols: Symbols, time: float
) -> dict[str, Any]:
    """What components over time say at one time."""
    translate = Translator(symbols.by_identity(instance, time), symbols.t)
    found = {}
    for name, series in components.items():
        require_at(series, time)
        sides = [translate(side) for side in _sides(series[time])]
        found[name] = sides[0] - sides[1] if len(sides) > 1 else sides[0]
    return found


def _over_time(instance: Instance, name: str, times: Sequence[float]) -> Mapping[float, Any]:
    series = instance.over_time(name)
    return dict.fromkeys(times, instance.scalars[name]) if series is None else series


def _sides(component: Any) -> tuple[Any, ...]:
    """Both sides of a constraint; anything else is one."""
    if not hasattr(component, "to_bounded_expression"):
        return (component,)
    _, body, upper = component.to_bounded_expression()
    return body, upper


def _sample(expressions: Iterable[Any], symbols: Symbols, time: float) -> FloatArray:
    """(n,) the expressions at one generic point, and at the given time."""
    generator = np.random.default_rng(0)
    point = [generator.uniform(0.5, 1.5, v.shape) for v in symbols.vectors[1:]]
    function = ca.Function("sample", list(symbols.vectors), [stack(expressions)])
    return np.asarray(function(time, *point), dtype=float).ravel()


def _same(a: FloatArray, b: FloatArray) -> bool:
    return np.allclose(a, b, rtol=SAME, atol=1e-300, equal_nan=True)


def _ask_again(
    series: Any, name: str, symbols: Symbols, instance: Instance, times: Sequence[float]
) -> Any:
    """Call the rule of an equation or expression with a symbol for the time."""
    time = times[0]
    translate = Translator(_with_expressions(instance, symbols, time), symbols.t)
    try:
        answer = said(series[time], time, Instant(time))
        if series[time].parent_component().ctype is not pyo.Constraint:
            return translate(answer)
        constraint = pyo.Constraint(expr=answer)
        constraint.construct()
        body, upper = map(translate, _sides(constraint))
        return body - upper
    except REFUSALS as error:
        raise _unexplained(name, str(error)) from error


def _with_expressions(instance: Instance, symbols: Symbols, time: float) -> dict[int, Any]:
    """Symbols at that time, and the named expressions, which may hide the time as well."""
    found = symbols.by_identity(instance, time)
    for series in instance.expressions.values():
        with suppress(ModelError, *REFUSALS):
            found[id(series[time])] = Translator(found, symbols.t)(
                said(series[time], time, Instant(time))
            )
    return found


def _unexplained(name: str, why: str) -> ModelError:
    return ModelError(
        f"'{name}' changes with time in a way igpe cannot follow ({why}). Write it with Pyomo's "
        "functions of t (pyo.exp(-t)) and without `if`, or make the changing quantity a mutable "
        "Param over time and give it in Experiment(inputs=...)."
    )
