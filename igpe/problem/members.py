"""Names of members such as `c[0.5,A]`: which of the model's a column or a start value means.

Members are named by their component and their indices without the time. In a table and in
`start` they may be written in other forms: `c[0.50]`, with a colon for the time `c[:,0.5]`, in
`start` also without any index, `c`, which stands for all members, or with a colon for all of an
index, `c[:,A]`. A measured position that is no point of a grid in space lies between two of them.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyomo.environ as pyo
from pyomo.core.base.component import ComponentBase
from pyomo.dae import ContinuousSet

from igpe.core.errors import DataError
from igpe.core.markup import closest
from igpe.problem.model import Instance, position_in, sets_of

CLOSE = 1e-9  # relative difference of two positions that are one
GROUPS = re.compile(r"\[([^\[\]]*)\]")
SHOWN = 5  # members that a message lists


class Indexed(NamedTuple):
    """A name taken apart.

    component  without indices, with a mark where they stood: `c[]`
    keys       indices without the time, as texts
    """

    component: str
    keys: tuple[str, ...]


def member(name: str) -> Indexed:
    """Take a name apart."""
    keys = (k.strip().strip("'\"") for group in GROUPS.findall(name) for k in group.split(","))
    return Indexed(GROUPS.sub("[]", name), tuple(keys))


def equal(one: str, other: str) -> bool:
    """Return True if two indices are the same text or the same number."""
    if one == other:
        return True
    a, b = number(one), number(other)
    return a is not None and b is not None and math.isclose(a, b, rel_tol=CLOSE)


def number(key: str) -> float | None:
    """An index as a number, an int as one; None if it is none."""
    try:
        return int(key)
    except ValueError:
        pass
    try:
        value = float(key)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def named(name: str, known: Iterable[str]) -> str | None:
    """The known name that means the same member; None if there is none."""
    of = member(name)
    keys = tuple(k for k in of.keys if k != ":")
    for other in known:
        if other == name:
            return other
        if other.partition("[")[0] == name.partition("[")[0]:
            it = member(other)
            is_same = it.component == of.component and len(it.keys) == len(keys)
            if is_same and all(map(equal, keys, it.keys)):
                return other
    return None


def with_positions(instance: Instance, names: Iterable[str]) -> Instance:
    """The instance with an Expression for each measured position between two points of a grid.

    names   of columns; linear between the two neighbours
    raises  DataError if a position lies outside the grid
    """
    known = [*instance.states, *instance.series, *instance.expressions]
    added: dict[str, Any] = {}
    for name in names:
        if "[" in name and named(name, known) is None:
            neighbours = _neighbours(name, known, instance)
            if neighbours is not None:
                added[name] = _between(instance, name, *neighbours)
    if not added:
        return instance
    return replace(instance, expressions={**instance.expressions, **added})


def in_logarithms(name: str) -> str:
    """What the logarithm of a measured quantity is called."""
    return f"ln({name})"


def logarithm_of(name: str) -> str | None:
    """The quantity that a measured logarithm is of; None if it is no logarithm."""
    return name[3:-1] if name.startswith("ln(") and name.endswith(")") else None


def with_logarithms(instance: Instance, names: Iterable[str]) -> Instance:
    """The instance with an Expression for each measured logarithm of one of its quantities."""
    known = [*instance.states, *instance.series, *instance.expressions]
    added: dict[str, Any] = {}
    for name in names:
        of = logarithm_of(name)
        series = None if of is None else instance.over_time(named(of, known) or of)
        if series is not None and name not in known:
            expression = pyo.Expression(instance.time, rule=lambda _, t, s=series: pyo.log(s[t]))
            instance.model.add_component(name, expression)
            added[name] = {float(t): expression[t] for t in instance.time}
    return replace(instance, expressions={**instance.expressions, **added}) if added else instance


def _neighbours(
    name: str, known: list[str], instance: Instance
) -> tuple[tuple[str, str], float] | None:
    """The members before and after a position, and the share of the second."""
    of = member(name)
    keys = tuple(k for k in of.keys if k != ":")
    points: dict[int, dict[float, str]] = {}
    for other in known:
        it = member(other)
        if it.component != of.component or len(it.keys) != len(keys):
            continue
        apart = [i for i, (a, b) in enumerate(zip(keys, it.keys, strict=True)) if not equal(a, b)]
        position = number(it.keys[apart[0]]) if len(apart) == 1 else None
        if position is not None and number(keys[apart[0]]) is not None:
            points.setdefault(apart[0], {})[position] = other
    for place, members in points.items():
        grid = np.array(sorted(members))
        if not _is_in_space(instance, members[grid[0]], place):
            continue
        x = float(keys[place])
        if not grid[0] < x < grid[-1]:
            raise DataError(
                f"The column '{name}' is at position {x:g}, but the model's grid runs from "
                f"{grid[0]:g} to {grid[-1]:g}. Give the position in the unit of the model's grid."
            )
        k = int(np.searchsorted(grid, x))
        pair = members[grid[k - 1]], members[grid[k]]
        return pair, float((x - grid[k - 1]) / (grid[k] - grid[k - 1]))
    return None


def _is_in_space(instance: Instance, name: str, place: int) -> bool:
    """Whether an index of a member is a position of a ContinuousSet."""
    series = instance.over_time(name)
    component = next(iter((series or {}).values())).parent_component()
    time = position_in(component, instance.time)
    if time is None:
        return False
    subsets = [s for s in sets_of(component) for _ in range(s.dimen or 1)]
    del subsets[time]
    return place < len(subsets) and isinstance(subsets[place], ContinuousSet)


def _between(instance: Instance, name: str, pair: tuple[str, str], share: float) -> Any:
    one, other = (instance.over_time(n) or {} for n in pair)

    def rule(_: Any, t: float) -> Any:
        return (1 - share) * one[t] + share * other[t]

    expression = pyo.Expression(instance.time, rule=rule)
    instance.model.add_component(name, expression)
    return {float(t): expression[t] for t in instance.time}


def names_of(parameters: Any) -> Any:
    """Parameters by name where they are given as components of a model."""

    def name_of(parameter: Any) -> Any:
        return parameter.name if isinstance(parameter, ComponentBase) else parameter

    if isinstance(parameters, Mapping):
        return {name_of(p): bounds for p, bounds in parameters.items()}
    if isinstance(parameters, (str, ComponentBase)) or not isinstance(parameters, Iterable):
        return name_of(parameters)
    return list(map(name_of, parameters))


def meant(column: str, instance: Instance, parameters: Collection[str]) -> str:
    """A sentence, after a space, about a column that is no quantity over time; may be empty.

    parameters  names of the unknowns
    """
    if column in instance.scalars and column not in parameters:
        return (
            f" '{column}' does not change with time in the model. If it was set in the experiment, "
            f"pass Experiment(inputs=['{column}'])."
        )
    known = [*instance.states, *instance.series, *instance.expressions]
    if column.startswith("Unnamed:"):
        return f" '{column}' has no name in the file: it may be the index of a saved DataFrame."
    members = [n for n in known if column in n.partition("[")[2].rstrip("]").split(",")]
    return f" Did you mean '{members[0]}'?" if len(members) == 1 else closest(column, known)
