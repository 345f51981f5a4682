"""Asking a model's rules about a time."""

from typing import Any

from pyomo.common.errors import PyomoException

from igpe.equations.reading.instant import OUTSIDE, UNDECIDED, plain

REFUSALS = (TypeError, ValueError, LookupError, AttributeError, RuntimeError, PyomoException)
"""What a rule may raise when it is asked with an `Instant`."""


def reason(error: Exception) -> str:
    """Why a rule cannot be asked with an `Instant`, in igpe's words where Pyomo's mislead."""
    text = str(error)
    if "Implicit conversion of Pyomo numeric value" in text:
        return OUTSIDE
    if "Cannot convert non-constant Pyomo expression" in text:
        return UNDECIDED
    return text


def said(data: Any, time: float, instant: Any) -> Any:
    """What the rule behind a component's member at `time` says when asked with `instant`.

    raises ValueError if there is no rule over the time, and whatever the rule raises
    """
    component, index = data.parent_component(), data.index()
    is_indexed_by_time = index == time or (isinstance(index, tuple) and time in index)
    rule = getattr(component, "rule", None) or getattr(component, "_rule", None)
    if not is_indexed_by_time or rule is None:
        raise ValueError("it is not written as a rule over the time")
    key = tuple(instant if i == time else i for i in index) if isinstance(index, tuple) else instant
    return plain(rule(data.parent_block(), key))
