"""A model's components, gathered along time.

pyomo.dae.flatten does the same through slices, each of which searches all members of its component:
a model of a thousand equations takes minutes that way. Here every member is looked at once.
"""

from collections.abc import Callable, Iterator, Set
from typing import Any, NamedTuple

from igpe.core.errors import ModelError

Components = dict[str, Any]
AlongTime = dict[str, dict[float, Any]]


class Place(NamedTuple):
    """A component's name without its time index, and its time (None if it has none)."""

    name: str
    time: float | None


def along_time(
    model: Any,
    time: Any,
    ctype: Any,
    wanted: Callable[[Any], bool] = lambda _: True,
    used: Set[str] = frozenset(),
) -> tuple[Components, AlongTime]:
    """Active component data of a type: without time by name, and over time by name and time.

    time    the ContinuousSet
    wanted  which components (not data) to look at
    used    names to keep where a quantity has several (a Pyomo Reference is one)
    raises  ModelError if two names of one quantity are used
    """
    constant: Components = {}
    varying: AlongTime = {}
    blocks: dict[int, Place] = {id(model): Place("", None)}
    for component in model.component_objects(ctype, active=True, descend_into=True):
        if not wanted(component):
            continue
        for index, data in _members(component):
            if not getattr(data, "active", True):
                continue
            place = _place(component, index, time, blocks)
            if place.time is None:
                constant[place.name] = data
            else:
                varying.setdefault(place.name, {})[place.time] = data
    chosen = _one_name_each(varying, used)
    return constant, {n: dict(sorted(varying[n].items())) for n in chosen}


def _one_name_each(varying: AlongTime, used: Set[str]) -> list[str]:
    """The names by which quantities are called: those used, else the last one declared."""
    called: dict[int, str] = {}
    for name, series in varying.items():
        whole = id(next(iter(series.values())))
        other = called.get(whole)
        if other in used and name in used:
            raise ModelError(
                f"'{other}' and '{name}' are one quantity (a Reference); use one of the names."
            )
        if other is None or other not in used:
            called[whole] = name
    return list(called.values())


def _members(component: Any) -> Iterator[tuple[Any, Any]]:
    if not component.is_indexed():
        yield None, component
    elif hasattr(component, "mutable"):  # a Param makes its members when asked for them
        for index in component.index_set():
            yield index, component[index]
    else:
        yield from component.items()


def _place(component: Any, index: Any, time: Any, blocks: dict[int, Place]) -> Place:
    parent = _block_place(component.parent_block(), time, blocks)
    own = _own_place(component, index, time)
    name = f"{parent.name}.{own.name}" if parent.name else own.name
    return Place(name, parent.time if own.time is None else own.time)


def _block_place(block: Any, time: Any, blocks: dict[int, Place]) -> Place:
    if id(block) not in blocks:
        blocks[id(block)] = _place(block.parent_component(), block.index(), time, blocks)
    return blocks[id(block)]


def _own_place(component: Any, index: Any, time: Any) -> Place:
    if index is None and not component.is_indexed():
        return Place(component.local_name, None)
    key = index if isinstance(index, tuple) else (index,)
    at = _position(component, time)
    rest = ",".join(str(k) for i, k in enumerate(key) if i != at)
    name = f"{component.local_name}[{rest}]" if rest else component.local_name
    return Place(name, None if at is None else float(key[at]))


def _position(component: Any, time: Any) -> int | None:
    """Where in the component's index the time stands."""
    before = 0
    for subset in component.index_set().subsets():
        if subset is time:
            return before
        before += subset.dimen or 1
    return None
