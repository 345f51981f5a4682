"""Reading a model's equations at several times and making sure that they agree.

Explicit dependence on time hides in the numbers of a Pyomo constraint. Two readings at different
times that differ show it; then the constraint's rule is asked again with an `Instant`, and the
answer is believed only if it explains all readings.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.arrays import FloatArray
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
    readings = [_read_at(instance, symbols, measured, time) for time in times]
    first = readings[0]
    for family, components in enumerate((instance.equations, instance.expressions)):
        numbers = [
            _sample(r[family].values(), symbols, t) for r, t in zip(readings, times, strict=True)
        ]
        for i, name in enumerate(first[family]):
            heard = np.array([n[i] for n in numbers])
            if _same(heard, heard[0]):
                continue
            first[family][name] = _ask_again(components[name], name, symbols, instance, times)
            told = [_sample([first[family][name]], symbols, t)[0] for t in times]
            if not _same(np.array(told), heard):
                raise _unexplained(name, "its rule computes with numbers that depend on the time")
    return first


def _read_at(instance: Instance, symbols: Symbols, measured: Sequence[str], time: float) -> Reading:
    for equation in instance.equations.values():
        require_at(equation, time)
    translate = Translator(symbols.by_identity(instance, time), symbols.t)
    equations = {n: _difference(c[time], translate) for n, c in instance.equations.items()}
    return Reading(equations, {n: translate(_at(instance, n, time)) for n in measured})


def _at(instance: Instance, name: str, time: float) -> Any:
    series = instance.over_time(name)
    return instance.scalars[name] if series is None else series[time]


def _difference(constraint: Any, translate: Translator) -> Any:
    _, body, upper = constraint.to_bounded_expression()
    return translate(body) - translate(upper)


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
        return _difference(constraint, translate)
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
