"""Asking a model's rules about a time: what they say, and whether they branch on it."""

from contextlib import suppress
from typing import Any

from pyomo.common.errors import PyomoException

from igpe.equations.instant import Instant, Watched
from igpe.errors import ModelError
from igpe.model import Instance

REFUSALS = (TypeError, ValueError, LookupError, AttributeError, RuntimeError, PyomoException)
"""What a rule may raise when it is asked with an `Instant`."""


def said(data: Any, time: float, instant: Instant) -> Any:
    """What the rule behind a component's member at `time` says when asked with `instant`.

    raises ValueError if there is no rule over the time, and whatever the rule raises
    """
    component, index = data.parent_component(), data.index()
    is_indexed_by_time = index == time or (isinstance(index, tuple) and time in index)
    rule = getattr(component, "rule", None) or getattr(component, "_rule", None)
    if not is_indexed_by_time or rule is None:
        raise ValueError("it is not written as a rule over the time")
    key = tuple(instant if i == time else i for i in index) if isinstance(index, tuple) else instant
    return rule(data.parent_block(), key)


def refuse_branches(instance: Instance, time: float) -> None:
    """Refuse equations and expressions that ask `if t < 5`: the rest of the package would see only
    one of the branches. The ends of the horizon may be asked for (`if t == 0: Skip`).

    raises ModelError, naming the equation and the time it asks about
    """
    first, last = instance.first, float(instance.time.last())
    for family in (instance.equations, instance.expressions):
        for name, series in family.items():
            watched = Watched(time)
            with suppress(*REFUSALS):  # what cannot be asked is compared by its numbers alone
                said(series[time], time, watched)
            inside = [t for t in watched.seen if first < t < last and t != time]
            if inside:
                raise ModelError(
                    f"'{name}' branches on the time at {inside[0]:g}, which only its own instant "
                    "would see. Make what changes a mutable Param over time and give it as an "
                    "input: Experiment(inputs={'u': igpe.steps([...], [...])})."
                )
