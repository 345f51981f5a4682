"""Reading a user's pyomo.dae model: what varies with time, what does not, and what is what.

The builder is the user's function `model(times)` (or `model(times, experiment)`): it returns an
ordinary Pyomo model with one ContinuousSet made of `times`. It is called afresh for every use, so
the user's own objects are never changed. Components are spoken of by their name without the time
index: `c[0.5,A]` belongs to `c[A]`.

A model's components, gathered along time.

pyomo.dae.flatten does the same through slices, each of which searches all members of its component:
a model of a thousand equations takes minutes that way. Here every member is looked at once.

Where the model itself says that states start: fixed values and equations at the first time.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyomo.environ as pyo
from pyomo.core.base.block import Block
from pyomo.core.expr.visitor import identify_variables
from pyomo.dae import ContinuousSet, DerivativeVar

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


Builder: TypeAlias = Callable[..., Any]
Series: TypeAlias = Mapping[float, Any]
"""Pyomo component data of one quantity, by time."""

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Instance:
    """A built model, its components sorted by what they are. Names carry no time index.

    model         the Pyomo model
    time          its ContinuousSet
    states        name -> Vars over time that have a derivative
    slopes        state's name -> the derivative's Vars over time (same keys as `states`)
    series        name -> all other Vars and mutable Params over time (algebraic variables, inputs)
    scalars       name -> Vars and mutable Params without time (parameters, constants)
    expressions   name -> Expressions over time
    equations     name -> equality Constraints over time (without pyomo.dae's own)
    inequalities  name -> inequality Constraints over time
    conditions    name -> Constraints without time (start, boundary, on parameters)
    """

    model: Any
    time: Any
    states: Mapping[str, Series]
    slopes: Mapping[str, Series]
    series: Mapping[str, Series]
    scalars: Mapping[str, Any]
    expressions: Mapping[str, Series]
    equations: Mapping[str, Series]
    inequalities: Mapping[str, Series]
    conditions: Mapping[str, Any]

    def over_time(self, name: str) -> Series | None:
        """The time series of that name, whatever it is; None if there is none."""
        for family in (self.states, self.series, self.expressions):
            if name in family:
                return family[name]
        return None

    @property
    def first(self) -> float:
        """The first time."""
        return float(self.time.first())


def build(builder: Builder, times: Iterable[float], experiment: Any = None) -> Instance:
    """Call the user's builder and read what it returns.

    raises ModelError if the builder fails or the model is not of a form igpe reads
    """
    if isinstance(builder, Block) or not callable(builder):
        raise ModelError(
            f"The model is a {type(builder).__name__}; wanted a function model(times) that builds "
            "and returns it, for any list of times."
        )
    moments = sorted({float(t) for t in times})
    try:
        model = _call(builder, moments, experiment)
    except Exception as error:
        raise ModelError(
            f"The model's builder {_name(builder)} failed for times {_short(moments)}: "
            f"{type(error).__name__}: {error}. It must build the model for any list of times; "
            "tabulated data belong in Experiment(inputs=...)."
        ) from error
    return read(model, _named_by(experiment))


def _named_by(experiment: Any) -> frozenset[str]:
    """Names of quantities over time that an experiment uses."""
    if experiment is None:
        return frozenset()
    return frozenset((*experiment.told, *experiment.start, *experiment.inputs))


def read(model: Any, used: Set[str] = frozenset()) -> Instance:
    """Sort the components of a Pyomo model (discretised by pyomo.dae or not).

    used    names by which an experiment calls quantities: one that has a Reference goes by its own
            name or by the Reference's
    raises  ModelError if it is no model, has no time or several, or higher derivatives, or one
            quantity is used by two names
    """
    if not hasattr(model, "component_objects"):
        raise ModelError(
            f"The builder returned a {type(model).__name__}; wanted a Pyomo model "
            "(did it forget `return m`?)."
        )
    derivatives = [v for v in model.component_objects(descend_into=True) if _is_derivative(v)]
    time = _time(model, derivatives)
    derivatives = [d for d in derivatives if time in d.get_continuousset_list()]
    scalars, variables = along_time(model, time, pyo.Var, used=used)
    slopes, states = _slopes(variables, derivatives)
    numbers, parameters = along_time(model, time, pyo.Param, lambda p: p.mutable, used)
    return Instance(
        model=model,
        time=time,
        states=states,
        slopes=slopes,
        series=_others(variables, states, derivatives) | parameters,
        scalars=scalars | numbers,
        expressions=along_time(model, time, pyo.Expression, used=used)[1],
        **_constraints(model, time, derivatives),
    )


def _call(builder: Builder, times: list[float], experiment: Any) -> Any:
    """`builder(times)`, or with the experiment where the builder has a place for it.

    Its place is a parameter called `experiment`, or the second positional one unless that has a
    value of its own (`scale=2.0`; None is none).
    """
    given = inspect.signature(builder).parameters
    positional = [p for p in given.values() if p.kind in POSITIONAL]
    named = given.get("experiment")
    if named is not None and named.kind in (*POSITIONAL[1:], inspect.Parameter.KEYWORD_ONLY):
        return builder(times, experiment=experiment)
    is_second = len(positional) > 1 and (
        positional[1].default is None or positional[1].default is inspect.Parameter.empty
    )
    return builder(times, experiment) if is_second else builder(times)


def _name(builder: Builder) -> str:
    return f"`{getattr(builder, '__name__', type(builder).__name__)}`"


def _short(times: list[float]) -> str:
    shown = ", ".join(f"{t:g}" for t in times[:4])
    return f"[{shown}{', ...' if len(times) > 4 else ''}]"  # noqa: PLR2004


def _is_derivative(component: Any) -> bool:
    # After discretisation pyomo.dae only changes the ctype of a DerivativeVar, not its class.
    return isinstance(component, DerivativeVar)


def _time(model: Any, derivatives: list[Any]) -> Any:
    sets = list(model.component_objects(ContinuousSet, descend_into=True))
    if not sets:
        raise ModelError(
            "The model has no pyomo.dae ContinuousSet, so it is not dynamic. Make one of the "
            "times: m.t = ContinuousSet(initialize=times)."
        )
    if not derivatives:
        raise ModelError(
            "The model has no pyomo.dae DerivativeVar: nothing in it changes by a differential "
            "equation. Declare one for each state: m.dA = DerivativeVar(m.A)."
        )
    undiscretised = [s for s in sets if not s.get_changed()]
    candidates = undiscretised if len(undiscretised) == 1 else sets
    if len(candidates) != 1:
        raise ModelError(
            f"The model has several ContinuousSets: {[s.name for s in sets]}. igpe reads one time; "
            "discretise the others in the builder (pyomo.dae.finite_difference)."
        )
    return candidates[0]


def _slopes(
    variables: AlongTime, derivatives: list[Any]
) -> tuple[dict[str, Series], dict[str, Series]]:
    home = {id(data): (name, t) for name, series in variables.items() for t, data in series.items()}
    slopes: dict[str, dict[float, Any]] = {}
    for derivative in derivatives:
        if len(derivative.get_continuousset_list()) > 1:
            raise ModelError(
                f"'{derivative.name}' is a higher or mixed derivative; make the first derivative a "
                "state of its own: m.v = Var(m.t), m.dv = DerivativeVar(m.v), m.dx == m.v."
            )
        state = derivative.get_state_var()
        for index, data in derivative.items():
            name, t = home[id(state[index])]
            if t in slopes.setdefault(name, {}):
                raise ModelError(f"State '{name}' has two DerivativeVars; keep one of them.")
            slopes[name][t] = data
    return dict(slopes), {name: variables[name] for name in slopes}


def _others(
    variables: AlongTime, states: Mapping[str, Series], derivatives: list[Any]
) -> dict[str, Series]:
    # A discretised DerivativeVar is listed among the Vars: it is a slope, no more.
    slopes = {id(data) for d in derivatives for data in d.values()}
    return {
        name: series
        for name, series in variables.items()
        if name not in states and id(next(iter(series.values()))) not in slopes
    }


def _constraints(model: Any, time: Any, derivatives: list[Any]) -> dict[str, Any]:
    added = {id(c) for d in derivatives for c in _discretisation(d)}
    conditions, over_time = along_time(model, time, pyo.Constraint, lambda c: id(c) not in added)
    equations: dict[str, Series] = {}
    inequalities: dict[str, Series] = {}
    for name, series in over_time.items():
        family = equations if next(iter(series.values())).equality else inequalities
        family[name] = series
    return {"equations": equations, "inequalities": inequalities, "conditions": conditions}


def _discretisation(derivative: Any) -> list[Any]:
    """The constraint pyomo.dae added for a derivative when it discretised the model, if it did."""
    added = derivative.parent_block().component(f"{derivative.local_name}_disc_eq")
    return [] if added is None else [added]


@dataclass(frozen=True)
class ModelStarts:
    """Start values found in a built model.

    fixed       state -> number
    conditions  state -> Pyomo constraint that holds this state at the first time and otherwise
                only parameters
    others      name -> the remaining constraints without time: boundary conditions, couplings
    """

    fixed: Mapping[str, float]
    conditions: Mapping[str, Any]
    others: Mapping[str, Any]

    @property
    def states(self) -> set[str]:
        """States whose start the model gives."""
        return set(self.fixed) | set(self.conditions)


def model_starts(instance: Instance) -> ModelStarts:
    """What the model says about the start of its states."""
    first = instance.first
    initial = {name: series[first] for name, series in instance.states.items()}
    fixed = {name: float(x.value) for name, x in initial.items() if x.fixed and x.value is not None}
    state_of = {id(x): name for name, x in initial.items()}
    scalars = {id(x) for x in instance.scalars.values()}
    conditions, others = {}, {}
    for name, constraint in instance.conditions.items():
        variables = {id(v): v for v in identify_variables(constraint.expr, include_fixed=True)}
        states = [state_of[i] for i in variables if i in state_of]
        strangers = [i for i in variables if i not in state_of and i not in scalars]
        is_start = constraint.equality and len(states) == 1 and not strangers
        if is_start and states[0] not in conditions and states[0] not in fixed:
            conditions[states[0]] = constraint
        else:
            others[name] = constraint
    return ModelStarts(fixed, conditions, others)
