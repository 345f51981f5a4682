"""Start values and jumps of all members of an indexed variable, and names of the columns."""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr.visitor import (
    identify_mutable_parameters,
    identify_variables,
    replace_expressions,
)

from igpe.core.arguments import is_finite, shown
from igpe.core.errors import DataError, ProblemError
from igpe.core.markup import bracketed, in_words
from igpe.problem.events import Event
from igpe.problem.experiment import Experiment, Start, Unknown
from igpe.problem.members import SHOWN, equal, member, named, number
from igpe.problem.model import Instance, ModelStarts

INCONSISTENT = 1e-6  # of the largest number: what a condition may miss at the start
ROUNDING = 1e-9  # of the numbers: by how much a start value may miss a bound


def as_members(experiment: Experiment, instance: Instance) -> Experiment:
    """The experiment with the model's names of its columns, and a start value for each state.

    raises  DataError if two columns are one member, ProblemError for a start profile that does not
            fit
    """
    known = [*instance.states, *instance.series, *instance.expressions]
    names = {n: n if "[" not in n else named(n, known) or n for n in experiment.outputs}
    if len(set(names.values())) < len(names):
        twice = sorted(n for n in names if [*names.values()].count(names[n]) > 1)
        raise DataError(
            f"The columns {twice} refer to the same quantity of the model. Keep one of them."
        )
    start = _starts(experiment.start, list(instance.states))
    events = tuple(_on_members(e, list(instance.states)) for e in experiment.events)
    is_same = start == experiment.start and events == experiment.events
    if is_same and all(new == old for old, new in names.items()):
        return experiment
    changed = copy(experiment)

    def renamed(given: Mapping[str, Any]) -> Mapping[str, Any]:
        return MappingProxyType({names.get(n, n): v for n, v in given.items()})

    measured = tuple(names[n] for n in experiment.measured)
    changed.measurements = replace(experiment.measurements, names=measured)
    changed.error_models, changed.units = map(renamed, (experiment.error_models, experiment.units))
    changed.estimated_sigma = renamed(experiment.estimated_sigma)
    changed.start, changed.events = MappingProxyType(start), events
    return changed


def _on_members(event: Event, states: list[str]) -> Event:
    """The event with each state that a name or a pattern means; a full name comes first."""

    def meant(given: Mapping[str, Any]) -> dict[str, Any]:
        single = {n: named(n, states) or n for n in given}
        full = {single[n]: v for n, v in given.items() if single[n] in states}
        starts: dict[str, Any] = {}
        for name in (n for n in given if single[n] not in states):
            members = [s for s in states if _matched(name, s) is not None]
            starts |= dict.fromkeys(members or [name], given[name])
        return starts | full

    return replace(event, add=meant(event.add), set=meant(event.set))


def _starts(given: Mapping[str, Any], states: list[str]) -> dict[str, Start]:
    """One start value for each state that a name or a pattern means; a full name comes first."""
    single = {n: named(n, states) or n for n in given}
    starts = {single[n]: v for n, v in given.items() if single[n] in states}
    if odd := next((n for n, v in starts.items() if not isinstance(v, float | str | Unknown)), ""):
        raise ProblemError(
            f"The start value of '{odd}' is a function or a table, but '{odd}' is a single state. "
            "Give a number, the name of a parameter or igpe.Unknown(lower, upper). If the value "
            "depends on parameters, add a start condition to the model: m.x[0] == 0.1*m.k."
        )
    for name, value in given.items():
        if single[name] in states:
            continue
        members = {s: keys for s in states if (keys := _matched(name, s)) is not None}
        if not members:
            starts[name] = value
        elif isinstance(value, Unknown):
            raise ProblemError(
                f"start= gives '{name}' as igpe.Unknown, but the name stands for several "
                f"states: {list(members)[:SHOWN]}, .... If all of them start at the same "
                f"unknown value, add m.start = pyo.Var(bounds=({value.lower:g}, {value.upper:g})) "
                f"to the model, name it in parameters=, and write start={{'{name}': 'start'}}. "
                "Otherwise give each member its own igpe.Unknown."
            )
        else:
            at = _profile(name, value)
            starts = {s: at(keys) for s, keys in members.items() if s not in starts} | starts
    return starts


def _matched(pattern: str, state: str) -> tuple[str, ...] | None:
    """The indices of a state that a pattern leaves open; None if it does not mean the state."""
    of, it = member(pattern), member(state)
    is_whole = it.component == f"{of.component}[]"  # no index of its own: all are open
    if not is_whole and (of.component != it.component or len(of.keys) != len(it.keys)):
        return None
    pairs = list(zip_longest(of.keys, it.keys, fillvalue=":"))
    if not all(a == ":" or equal(a, b) for a, b in pairs):
        return None
    return tuple(b for a, b in pairs if a == ":")


def _profile(name: str, given: Any) -> Callable[[tuple[str, ...]], Start]:
    """The start value by the open indices of a state."""
    if isinstance(given, (str, float)):
        return lambda _: given
    table = None if callable(given) else dict(given)

    def at(keys: tuple[str, ...]) -> float:
        numbers = [k if (n := number(k)) is None else n for k in keys]
        place = ", ".join(keys)
        if table is not None:
            value = _looked_up(name, table, numbers)
        else:
            try:
                value = given(*numbers)
            except Exception as error:
                raise ProblemError(
                    f"The start profile of '{name}' failed at {place}: {type(error).__name__}: "
                    f"{error}. The profile must return a number for every member; it is called "
                    "with the member's indices."
                ) from error
        if not is_finite(value):
            raise ProblemError(
                f"The start profile of '{name}' is {shown(value)} at {place}; expected a finite "
                "number."
            )
        return float(value)

    return at


def _looked_up(name: str, table: Mapping[Any, float], keys: list[Any]) -> float:
    """The entry of a table, linear between the positions; refused outside of them."""
    key = keys[0] if len(keys) == 1 else tuple(keys)
    if key in table:
        return table[key]
    try:
        x = np.array(sorted(table), dtype=float)
    except (TypeError, ValueError):
        x = np.zeros(0)
    if not isinstance(key, (int, float)) or x.ndim != 1 or not x.size or not x[0] <= key <= x[-1]:
        raise ProblemError(
            f"The start profile of '{name}' has no value at {key}; it has values at "
            f"{list(table)[:SHOWN]}. Give a value there, or values on both sides of it, "
            "between which igpe interpolates."
        )
    return float(np.interp(key, x, [table[p] for p in sorted(table)]))


def require_within_bounds(
    place: str, experiment: Experiment, given: Mapping[str, float], instance: Instance
) -> None:
    """Raise ProblemError if a start value lies outside of the bounds that its Var has.

    given  state -> number, where the model itself has one
    """
    measured = experiment.measurements.value
    scale = float(np.max(np.abs(measured[np.isfinite(measured)]), initial=0.0))
    for state, series in instance.states.items():
        start: Any = experiment.start.get(state, given.get(state))
        low, high = getattr(series[instance.first], "bounds", (None, None))
        lower, upper = -np.inf if low is None else low, np.inf if high is None else high
        if not is_finite(start):  # a parameter's name, an Unknown, or nothing
            continue
        near = ROUNDING * max(abs(start), scale, *(abs(b) for b in (low, high) if b is not None))
        if not lower - near <= start <= upper + near:
            raise ProblemError(
                f"{place}the start value of '{state}' is {start:g}, but the bounds of this Var are "
                f"[{lower:g}, {upper:g}]. Correct the start value, or widen the bounds in the "
                "model."
            )


def require_consistent(
    place: str,
    parameters: Collection[str],
    experiment: Experiment,
    model_starts: ModelStarts,
    instance: Instance,
) -> None:
    """Raise ProblemError if a further condition of the model contradicts known start values.

    place       "Experiment '1': " in problems of several
    parameters  names of the unknowns: what holds one of them may be a constraint on it
    """
    numbers = {**model_starts.numbers, **experiment.start}
    initial = {id(series[instance.first]): name for name, series in instance.states.items()}
    free = {*parameters, *experiment.inputs}
    for name, constraint in model_starts.others.items():
        held = list(identify_variables(constraint.expr, include_fixed=True))
        starts: dict[str, Any] = {n: numbers.get(n) for v in held if (n := initial.get(id(v)))}
        others = [v for v in held if id(v) not in initial]
        if not constraint.equality or not all(is_finite(n) for n in starts.values()):
            continue
        if not all(v.fixed for v in others) or not free.isdisjoint(
            v.name for v in (*others, *identify_mutable_parameters(constraint.expr))
        ):
            continue
        known = {id(v): starts[initial[id(v)]] for v in held if id(v) in initial}
        body = pyo.value(replace_expressions(constraint.body, known), exception=False)
        upper = pyo.value(constraint.upper)
        size = max(map(abs, (upper, body or 0.0, *known.values())))
        if known and body is not None and abs(body - upper) > INCONSISTENT * size:
            condition = " ".join(str(constraint.expr).split())
            listed = in_words([f"{n} = {v:g}" for n, v in starts.items()])
            raise ProblemError(
                f"{place}the condition '{name}', {condition}, contradicts the start values "
                f"{listed}. Remove the condition, or the start value that is fixed or given."
            )


def without_start(place: str, missing: Sequence[str]) -> ProblemError:
    """The error for states that have no start value."""
    bases = [n.split("[")[0] for n in missing]
    members = f" The name '{bases[0]}' stands for all members: start={{'{bases[0]}': 0.0}}."
    return ProblemError(
        f"{place}the states {bracketed(missing)} have no start value. Give each one in "
        f"Experiment(start={{'{missing[0]}': ...}}) as a number, a parameter's name, or "
        f"igpe.Unknown(lower, upper) to estimate it.{members * (bases.count(bases[0]) > 1)}"
    )
