"""Inputs that are functions of the time, as expressions of it."""

from typing import Any

import casadi as ca
import numpy as np

from igpe.core.errors import DataError
from igpe.equations.reading.instant import Instant, plain
from igpe.equations.reading.pieces import Joined, explored
from igpe.equations.reading.rules import REFUSALS, reason
from igpe.equations.translate import Translator
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table, TimeExpression, evaluate

PLACES = 65  # times at which an input given as a function is compared with its expression


def of_time(name: str, given: TimeExpression, t: Any, experiment: Experiment) -> Any:
    """The function as an expression of t, believed only if it gives the function's numbers."""
    first, last = experiment.start_time, float(experiment.times[-1])

    def ask(now: float) -> tuple[Any, set[float]]:
        instant = Instant(np.nan, now)  # looks up nothing
        return plain(given(instant)), instant.seen

    try:
        cuts, answers = explored(ask, first, (first + last) / 2)
        expression = ca.SX(Joined(Translator({}, t), {})(cuts, answers))
    except REFUSALS as error:
        raise _unexplained(name, reason(error)) from error
    places = np.linspace(first, last, PLACES)
    places = np.unique([*places, *experiment.times, *(c for c in cuts if c <= last)])
    came = np.asarray(ca.Function("input", [t], [expression])(places[None])).ravel()
    true = np.array([evaluate(given, p) for p in places.tolist()])
    wrong = ~np.isclose(came, true, rtol=1e-10, atol=0) & (np.isfinite(came) | np.isfinite(true))
    if wrong.any():
        k = int(np.argmax(wrong))
        why = f"at {places[k]:g} it gives {true[k]:g}, the expression {came[k]:g}"
        raise _unexplained(name, why)
    return expression


def ramp(table: Table, t: Any) -> Any:
    """A table that is linear between its times, as an expression of t."""
    a, b = table.segment(float(table.times[-1]))
    result = ca.SX(a + b * t)
    for time in reversed(table.times.tolist()):
        a, b = table.segment(float(np.nextafter(time, -np.inf)))
        result = ca.if_else(t < time, a + b * t, result)
    return result


def _unexplained(name: str, why: str) -> DataError:
    return DataError(
        f"Input '{name}' depends on time in a way igpe cannot follow: {why}. Write it with Pyomo's "
        "functions of t (pyo.exp(-t), pyo.Expr_if(t < 0.4, ...)), or give it as igpe.linear or "
        "igpe.steps."
    )
