"""Reading a user's pyomo.dae model: what varies with time, what does not, and what is what.

The builder is the user's function `model(times)` (or `model(times, experiment)`): it returns an
ordinary Pyomo model with one ContinuousSet made of `times`. It is called afresh for every use, so
the user's own objects are never changed. Components are spoken of by their name without the time
index: `c[0.5,A]` belongs to `c[A]`.

pyomo.dae.flatten gathers components along time through slices, each of which searches all members
of its component: a model of a thousand equations takes minutes that way. Here every member is
looked at once.
"""

import inspect
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyomo.environ as pyo
from pyomo.core.base.block import Block
from pyomo.core.expr.visitor import identify_variables
from pyomo.dae import ContinuousSet, DerivativeVar

from igpe.core.errors import ModelError

Components = dict[str, Any]
AlongTime = dict[str, dict[float, Any]]
Place = tuple[str, float | None]
"""A component's name without its time index, and its time (None if it has none)."""
Builder: TypeAlias = Callable[..., Any]
Series: TypeAlias = Mapping[float, Any]
"""Pyomo component data of one quantity, by time."""
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
FEW = 10  # times that stand for all of an experiment
SHOWN = 4  # times that a message lists


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
    blocks: dict[int, Place] = {id(model): ("", None)}
    for component in filter(wanted, model.component_objects(ctype, active=True)):
        for index, data in _members(component):
            if getattr(data, "active", True):
                name, at = _place(component, index, time, blocks)
                if at is None:
                    constant[name] = data
                else:
                    varying.setdefault(name, {})[at] = data
    called: dict[int, str] = {}  # by the names used, else by the last one declared
    for name, series in varying.items():
        quantity = id(next(iter(series.values())))
        other = called.get(quantity)
        if other in used and name in used:
            raise ModelError(
                f"'{other}' and '{name}' are one quantity (a Reference); use one of the names."
            )
        if other is None or other not in used:
            called[quantity] = name
    return constant, {n: dict(sorted(varying[n].items())) for n in called.values()}


def _members(component: Any) -> Iterator[tuple[Any, Any]]:
    if not component.is_indexed():
        yield None, component
    elif hasattr(component, "mutable"):  # a Param makes its members when asked for them
        yield from ((index, component[index]) for index in component.index_set())
    else:
        yield from component.items()


def _place(component: Any, index: Any, time: Any, blocks: dict[int, Place]) -> Place:
    block = component.parent_block()
    if id(block) not in blocks:
        blocks[id(block)] = _place(block.parent_component(), block.index(), time, blocks)
    parent, of_parent = blocks[id(block)]
    name, at = component.local_name, None
    if component.is_indexed():
        key = index if isinstance(index, tuple) else (index,)
        position = _position(component, time)
        at = None if position is None else float(key[position])
        rest = ",".join(str(k) for i, k in enumerate(key) if i != position)
        name = f"{name}[{rest}]" if rest else name
    return f"{parent}.{name}" if parent else name, of_parent if at is None else at


def _position(component: Any, time: Any) -> int | None:
    """Where in the component's index the time stands."""
    before = 0
    for subset in component.index_set().subsets():
        if subset is time:
            return before
        before += subset.dimen or 1
    return None


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
        families = (self.states, self.series, self.expressions)
        return next((family[name] for family in families if name in family), None)

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
        with _quiet():
            model = _call(builder, moments, experiment)
    except ModelError:  # with a hint of its own
        raise
    except Exception as error:
        name = getattr(builder, "__name__", type(builder).__name__)
        listed = ", ".join([
            *(f"{t:g}" for t in moments[:SHOWN]),
            *["..."] * (len(moments) > SHOWN),
        ])
        raise ModelError(
            f"The model's builder `{name}` failed for times [{listed}]: {type(error).__name__}: "
            f"{error}. It must build the model for any list of times; tabulated data belong in "
            "Experiment(inputs=...)."
        ) from error
    if experiment is None:
        return read(model)
    return read(model, frozenset((*experiment.told, *experiment.start, *experiment.inputs)))


def build_all(builder: Builder, experiments: Sequence[Any]) -> tuple[Instance, ...]:
    """The model of each experiment, built at its start and the times of its table.

    Of these at a few where a builder says by `kind_of_experiment` that its equations do not depend
    on the times it is given; at the ends alone once it has built another of that kind.
    """
    says = callable(getattr(builder, "kind_of_experiment", None))
    seen, found = set[Hashable](), list[Instance]()
    for e in experiments:
        times = [e.start_time, *e.times.tolist()]
        if says:
            step = len(times) if (kind := kind_of(builder, e)) in seen else len(times) // FEW or 1
            times = [*times[:-1:step], times[-1]]
            seen.add(kind)
        found.append(build(builder, times, e))
    return tuple(found)


def kind_of(builder: Builder, experiment: Any) -> Hashable:
    """Experiments of one kind are given the same equations, whatever the times they are built at.

    A builder that takes no experiment has one kind of them for each horizon, as rules may end with
    it; of one that takes it `builder.kind_of_experiment(experiment)`. Without that each is its own.
    """
    if callable(kind := getattr(builder, "kind_of_experiment", None)):
        found: Hashable = kind(experiment)
        return found
    if _takes_experiment(builder) is not None:
        return str(experiment.name)
    outputs = experiment.told, tuple(experiment.start)
    return (*outputs, experiment.start_time, float(experiment.times[-1]))


@contextmanager
def _quiet() -> Iterator[None]:
    """Let Pyomo not print errors of the builder, which are raised as well."""
    handlers = logging.getLogger("pyomo").handlers

    def is_warning(record: logging.LogRecord) -> bool:
        return record.levelno < logging.ERROR

    for handler in handlers:
        handler.addFilter(is_warning)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_warning)


def _call(builder: Builder, times: list[float], experiment: Any) -> Any:
    """`builder(times)`, or with the experiment where the builder has a place for it."""
    place = _takes_experiment(builder)
    if place is None:
        return builder(times)
    return builder(times, **{place: experiment}) if place else builder(times, experiment)


def _takes_experiment(builder: Builder) -> str | None:
    """The name by which a builder takes the experiment, "" by its place, None if it does not.

    Its place is a parameter called `experiment`, or the second positional one unless that has a
    value of its own (`scale=2.0`; None is none).
    """
    given = inspect.signature(builder).parameters
    named = given.get("experiment")
    if named is not None and named.kind in (*POSITIONAL[1:], inspect.Parameter.KEYWORD_ONLY):
        return "experiment"
    second = [p.default for p in given.values() if p.kind in POSITIONAL][1:2]
    takes_it = any(default is None or default is inspect.Parameter.empty for default in second)
    return "" if takes_it else None


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
    # After discretisation pyomo.dae only changes the ctype of a DerivativeVar, not its class.
    derivatives = [v for v in model.component_objects() if isinstance(v, DerivativeVar)]
    time = _time(model, derivatives)
    derivatives = [d for d in derivatives if time in d.get_continuousset_list()]
    scalars, variables = along_time(model, time, pyo.Var, used=used)
    slopes = _slopes(variables, derivatives)
    numbers, parameters = along_time(model, time, pyo.Param, lambda p: p.mutable, used)
    # A discretised DerivativeVar is listed among the Vars: it is a slope, no more.
    others = {id(data) for d in derivatives for data in d.values()}
    series = {
        name: members
        for name, members in variables.items()
        if name not in slopes and id(next(iter(members.values()))) not in others
    }
    added = {id(d.parent_block().component(f"{d.local_name}_disc_eq")) for d in derivatives}
    conditions, over_time = along_time(model, time, pyo.Constraint, lambda c: id(c) not in added)
    equations = {n: s for n, s in over_time.items() if next(iter(s.values())).equality}
    return Instance(
        model=model,
        time=time,
        states={name: variables[name] for name in slopes},
        slopes=slopes,
        series=series | parameters,
        scalars=scalars | numbers,
        expressions=along_time(model, time, pyo.Expression, used=used)[1],
        equations=equations,
        inequalities={n: s for n, s in over_time.items() if n not in equations},
        conditions=conditions,
    )


def _time(model: Any, derivatives: list[Any]) -> Any:
    sets = list(model.component_objects(ContinuousSet))
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


def _slopes(variables: AlongTime, derivatives: list[Any]) -> dict[str, dict[float, Any]]:
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
    return slopes


@dataclass(frozen=True)
class ModelStarts:
    """Where the model itself says that states start: fixed values, equations at the first time.

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
    """Start values of the states that the model gives."""
    initial = {name: series[instance.first] for name, series in instance.states.items()}
    fixed = {name: float(x.value) for name, x in initial.items() if x.fixed and x.value is not None}
    state_of = {id(x): name for name, x in initial.items()}
    scalars = {id(x) for x in instance.scalars.values()}
    conditions, others = {}, {}
    for name, constraint in instance.conditions.items():
        held = {id(v) for v in identify_variables(constraint.expr, include_fixed=True)}
        states = [state_of[i] for i in held if i in state_of]
        is_start = constraint.equality and len(states) == 1 and held <= scalars | set(state_of)
        if is_start and states[0] not in conditions and states[0] not in fixed:
            conditions[states[0]] = constraint
        else:
            others[name] = constraint
    return ModelStarts(fixed, conditions, others)
