"""Reading a user's pyomo.dae model: what varies with time, what does not, and what is what.

Components are spoken of by their name without the time index: with t = 0.5, `c[0.5,A]` belongs to
`c[A]`.

pyomo.dae.flatten gathers components along time through slices, each of which searches all members
of its component: a model of a thousand equations takes minutes that way. Here every member is
looked at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyomo.environ as pyo
from pyomo.common.modeling import unique_component_name
from pyomo.core.expr.visitor import (
    identify_components,
    identify_mutable_parameters,
    identify_variables,
)
from pyomo.dae import ContinuousSet, DerivativeVar, Integral
from pyomo.repn import generate_standard_repn

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError

Components = dict[str, Any]
AlongTime = dict[str, dict[float, Any]]
Place = tuple[str, float | None]
"""A component's name without its time index, and its time (None if it has none)."""
Series: TypeAlias = Mapping[float, Any]
"""Pyomo component data of one quantity, by time."""


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
    members: dict[Place, Any] = {}
    varying: AlongTime = {}
    blocks: dict[int, Place] = {id(model): ("", None)}
    for component in filter(wanted, model.component_objects(ctype, active=True)):
        for index, data in _members(component):
            name, at = place = _place(component, index, time, blocks)
            if members.setdefault(place, data) is not data:
                raise ModelError(
                    f"Two quantities are called '{name}', because two members of a set have "
                    "the same text, such as 1 and '1'. Rename one of them."
                )
            if at is not None:
                varying.setdefault(name, {})[at] = data
    called: dict[int, str] = {}  # by the names used, else by the last one declared
    for name, series in varying.items():
        quantity = id(next(iter(series.values())))
        other = called.get(quantity)
        if other in used and name in used:
            raise ModelError(
                f"'{other}' and '{name}' refer to the same quantity (a Reference). Use only one "
                "name."
            )
        if other is None or other not in used:
            called[quantity] = name
    constant = {name: data for (name, at), data in members.items() if at is None}
    return constant, {n: dict(sorted(varying[n].items())) for n in called.values()}


def _members(component: Any) -> Iterator[tuple[Any, Any]]:
    """The active members; a constraint that is feasible whatever the values are is none."""
    if not component.is_indexed():
        yield None, component
    elif hasattr(component, "mutable"):  # a Param makes its members when asked for them
        yield from ((index, component[index]) for index in component.index_set())
    else:
        for index, data in component.items():
            is_trivial = getattr(data, "expr", None) is pyo.Constraint.Feasible
            if getattr(data, "active", True) and not is_trivial:
                yield index, data


def _place(component: Any, index: Any, time: Any, blocks: dict[int, Place]) -> Place:
    block = component.parent_block()
    if id(block) not in blocks:
        blocks[id(block)] = _place(block.parent_component(), block.index(), time, blocks)
    parent, of_parent = blocks[id(block)]
    name, at = component.local_name, None
    if component.is_indexed():
        key = index if isinstance(index, tuple) else (index,)
        position = position_in(component, time)
        at = None if position is None else float(key[position])
        rest = ",".join(str(k) for i, k in enumerate(key) if i != position)
        name = f"{name}[{rest}]" if rest else name
    return f"{parent}.{name}" if parent else name, of_parent if at is None else at


def sets_of(component: Any) -> tuple[Any, ...]:
    """The sets whose product indexes a component; none of one without index."""
    # Sets computed of others, as m.t - m.measured, stay one: Pyomo warns unless that is said.
    index_set = component.index_set()
    return (
        tuple(index_set.subsets(expand_all_set_operators=False)) if component.is_indexed() else ()
    )


def position_in(component: Any, index_set: Any) -> int | None:
    """Where in the component's index a set stands, such as the time; None if it is not there."""
    before = 0
    for subset in sets_of(component):
        if subset is index_set:
            return before
        before += subset.dimen or 1
    return None


def differences_of(derivative: Any) -> Any:
    """The constraint by which pyomo.dae discretised a DerivativeVar; None if it did not."""
    return derivative.parent_block().component(f"{derivative.local_name}_disc_eq")


def is_over(derivative: Any, index_set: Any, *, alone: bool = False) -> bool:
    """Return True if a derivative is taken by this very set, or by it alone, once.

    Two sets are equal for Pyomo if they have the same points: this is no way to tell them apart.
    """
    by = derivative.get_continuousset_list()
    return any(s is index_set for s in by) and not (alone and len(by) > 1)


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
    conditions    name -> Constraints without time, or at the first time alone (start, couplings)
    idle          those of `series` that have a derivative by time which no equation uses
    is_relaxed    whether its constraints were left out, and bounds of variables over time need not
                  hold
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
    idle: Set[str] = frozenset()
    is_relaxed: bool = False

    def over_time(self, name: str) -> Series | None:
        """The time series of that name, whatever it is; None if there is none."""
        families = (self.states, self.series, self.expressions)
        return next((family[name] for family in families if name in family), None)

    @property
    def first(self) -> float:
        """The first time."""
        return float(self.time.first())

    @property
    def in_space(self) -> list[Any]:
        """The model's ContinuousSets other than the time."""
        return [s for s in self.model.component_objects(ContinuousSet) if s is not self.time]


def read(model: Any, used: Set[str] = frozenset(), times: Set[float] = frozenset()) -> Instance:
    """Sort the components of a Pyomo model (discretised by pyomo.dae or not).

    used    names by which an experiment calls quantities: one that has a Reference goes by its own
            name or by the Reference's
    times   that it was built for, by which the time is known where all sets are discretised
    raises  ModelError if it is no model, has no time or several, or higher derivatives, or one
            quantity is used by two names
    """
    if not hasattr(model, "component_objects"):
        raise ModelError(
            f"The builder returned a {type(model).__name__}; expected a Pyomo model. Is `return "
            "m` missing?"
        )
    if isinstance(model, pyo.AbstractModel):
        raise ModelError(
            "The builder returned an AbstractModel; igpe needs a ConcreteModel. Return "
            "model.create_instance() from the builder, or build a pyo.ConcreteModel()."
        )
    # After discretisation pyomo.dae only changes the ctype of a DerivativeVar, not its class.
    derivatives = [v for v in model.component_objects() if isinstance(v, DerivativeVar)]
    time = _time(model, derivatives, times)
    derivatives += _without_integrals(model, time)
    derivatives = [d for d in derivatives if is_over(d, time)]
    if not derivatives:
        raise ModelError(
            f"The model has no derivative with respect to its time '{time.name}', so it has no "
            "differential equation in time. Declare one: m.dc = DerivativeVar(m.c, wrt=m.t)."
        )
    for d in derivatives:  # a sparse Var makes its members when they are asked for
        for index in d:
            d.get_state_var()[index]
    scalars, variables = along_time(model, time, pyo.Var, used=used)
    added = {id(differences_of(d)) for d in derivatives}
    conditions, over_time = along_time(model, time, pyo.Constraint, lambda c: id(c) not in added)
    first = {float(time.first())}
    conditions |= {n: next(iter(s.values())) for n, s in over_time.items() if s.keys() == first}
    over_time = {n: s for n, s in over_time.items() if n not in conditions}
    equations = {n: s for n, s in over_time.items() if next(iter(s.values())).equality}
    every = _slopes(variables, derivatives, time.name)
    slopes = _changing(every, variables, (equations, conditions))
    numbers, parameters = along_time(model, time, pyo.Param, lambda p: p.mutable, used)
    # A discretised DerivativeVar is listed among the Vars: it is a slope, no more.
    others = {id(data) for d in derivatives for data in d.values()}
    series = {
        name: members
        for name, members in variables.items()
        if name not in slopes and id(next(iter(members.values()))) not in others
    }
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
        idle=frozenset(every.keys() - slopes.keys()),
    )


def _time(model: Any, derivatives: list[Any], times: Set[float]) -> Any:
    """The set that is the time: the only one that is not discretised, or that holds the times."""
    sets = list(model.component_objects(ContinuousSet))
    if not sets:
        raise ModelError(
            "The model has no pyomo.dae ContinuousSet, so it is not dynamic. Declare one for "
            "time: m.t = ContinuousSet(initialize=times)."
        )
    if not derivatives:
        raise ModelError(
            "The model has no pyomo.dae DerivativeVar, so it has no differential equations. "
            "Declare one for each state: m.dA = DerivativeVar(m.A)."
        )
    undiscretised = [s for s in sets if not s.get_discretization_info()]
    candidates = undiscretised or sets
    if len(candidates) > 1:
        holding = [s for s in candidates if times and times <= set(map(float, s))]
        if undiscretised:
            is_time = _likely_time(candidates, derivatives, times)
            first = next(s.name for s in candidates if s is not is_time)
            raise ModelError(
                f"The model has several ContinuousSets: {[s.name for s in sets]}. igpe integrates "
                "over only one of them, time. Pass a grid for each of the others, for example "
                f"igpe.Problem(..., space={{'{first}': 50}}), or discretise them in the builder: "
                f"pyo.TransformationFactory('dae.finite_difference').apply_to(m, wrt=m.{first}, "
                "nfe=50)."
            )
        if len(holding) != 1:
            raise ModelError(
                f"The ContinuousSets {[s.name for s in sets]} are all discretised, so igpe "
                "cannot tell which of them is time. Do not discretise time: apply_to(m, wrt=m.x, "
                "...)."
            )
        candidates = holding
    others = [s.name for s in sets if s is not candidates[0] and times <= set(map(float, s))]
    if others and times and not times <= set(map(float, candidates[0])):
        raise ModelError(
            f"The ContinuousSet '{others[0]}' contains the times, but it is discretised. Leave "
            f"time out of space= and apply_to; discretise '{candidates[0].name}' instead."
        )
    return candidates[0]


def _likely_time(sets: Sequence[Any], derivatives: Sequence[Any], times: Set[float]) -> Any:
    """The set that is most likely the time, where several may be: for messages."""
    by = [id(x) for d in derivatives for x in d.get_continuousset_list()]
    first, last = min(times, default=0.0), max(times, default=0.0)
    return max(
        sets,
        key=lambda s: (
            times <= set(map(float, s)),
            id(s) in by,
            s.first() <= first and last <= s.last(),
            s.local_name in {"t", "time"},
        ),
    )


def _without_integrals(model: Any, time: Any) -> list[Any]:
    """Make integrals Expressions; returns the derivatives of those over time, which are states now.

    Pyomo writes those over space over all points only once time is discretised too, and for objects
    that no equation holds. Its trapezoidal rule over time would depend on where igpe evaluates.
    """
    derivatives = []
    for integral in list(model.component_objects(Integral)):
        block = integral.parent_block()
        if integral.get_continuousset() is not time:
            for index, data in integral.items():
                data.set_value(integral._rule(block, index))
        elif _is_used(model, integral):
            derivatives.append(_running(integral, time))
        block.reclassify_component_type(integral, pyo.Expression)
    return derivatives


def _is_used(model: Any, integral: Any) -> bool:
    """Whether a constraint contains it."""
    members = {id(data) for data in integral.values()}
    kinds = {type(data) for data in integral.values()}
    every = model.component_data_objects(pyo.Constraint, active=True)
    return any(id(one) in members for c in every for one in identify_components(c.expr, kinds))


def _running(integral: Any, time: Any) -> Any:
    """The derivative of the integral from the start to each time; the last is the integral.

    raises  ModelError if this Pyomo does not tell the integrand
    """
    block, place = integral.parent_block(), integral.loc
    try:
        integrand = integral._rule._fcn.__globals__["rule"]
    except (AttributeError, KeyError) as error:
        raise ModelError(
            f"igpe cannot read the integrand of '{integral.name}'. Make the integral a state: its "
            "derivative is the integrand, and its start value is 0."
        ) from error
    sets = [integral.index_set()] if integral.is_indexed() else []
    name = unique_component_name(block, f"integral_{integral.local_name}")
    block.add_component(name, pyo.Var(*sets, time, initialize=0.0))
    state = block.component(name)
    derivative = DerivativeVar(state, wrt=time)
    block.add_component(unique_component_name(block, f"d{name}"), derivative)

    def equation(b: Any, *index: Any) -> Any:
        others = index[:-1]
        return derivative[index] == integrand(b, *others[:place], index[-1], *others[place:])

    rule = pyo.Constraint(*sets, time, rule=equation)
    block.add_component(unique_component_name(block, f"{name}_rule"), rule)
    for index, data in integral.items():
        others = () if index is None else index if isinstance(index, tuple) else (index,)
        state[(*others, time.first())].fix(0.0)
        data.set_value(state[(*others, time.last())])
    return derivative


def _slopes(variables: AlongTime, derivatives: list[Any], time: str) -> dict[str, dict[float, Any]]:
    home = {id(data): (name, t) for name, series in variables.items() for t, data in series.items()}
    slopes: dict[str, dict[float, Any]] = {}
    for derivative in derivatives:
        state = derivative.get_state_var()
        if len(derivative.get_continuousset_list()) > 1 or isinstance(state, DerivativeVar):
            raise ModelError(
                f"'{derivative.name}' is a higher-order or mixed derivative with respect to "
                f"'{time}', which igpe takes for time. If '{time}' is time, make the first "
                "derivative a state of its own: m.v = Var(m.t), m.dv = DerivativeVar(m.v), m.dx "
                "== m.v. If the model has no time, fit it with Pyomo alone, or with parmest."
            )
        if derivative and id(state[next(iter(derivative))]) not in home:
            raise ModelError(
                f"'{derivative.name}' is the derivative of '{state.local_name}', which the model "
                f"does not contain any more. Is the name '{state.local_name}' used twice?"
            )
        for index, data in derivative.items():
            name, t = home[id(state[index])]
            if t in slopes.setdefault(name, {}):
                raise ModelError(f"State '{name}' has two DerivativeVars. Keep one of them.")
            slopes[name][t] = data
    return slopes


def _usual(series: Series) -> Any:
    """A member at a time between the first and the last."""
    members = list(series.values())
    return members[len(members) // 2]


def _held(constraint: Any) -> set[int]:
    """The variables of a constraint, also of none."""
    if constraint is None:
        return set()
    return {id(v) for v in identify_variables(constraint.expr, include_fixed=True)}


def _changing(
    slopes: dict[str, dict[float, Any]], variables: AlongTime, constraints: tuple[Any, Any]
) -> dict[str, dict[float, Any]]:
    """The slopes of states alone: not of what has a derivative that no equation uses, or is fixed.

    At boundaries in space balances are skipped, so the derivative there is idle and the variable an
    algebraic one. What is fixed at all times but the first is a known number, its slope 0.

    raises  ModelError if it is fixed at numbers that change and its slope is used
    """
    over_time, conditions = constraints
    usual = [*map(_usual, over_time.values()), *conditions.values()]
    used = set[int]().union(*map(_held, usual))
    kept = {}
    for name, series in slopes.items():
        later = list(variables[name].values())[1:]
        if not used & {id(data) for data in series.values()}:
            continue
        if not (later and all(data.fixed for data in later)):
            kept[name] = series
            continue
        if len({data.value for data in later}) > 1:
            raise ModelError(
                f"'{name}' is fixed at values that change with time, and the equations use its "
                f"derivative. Where '{name}' is fixed, skip its differential equation "
                f"(Constraint.Skip). Or write an equation for '{name}' instead of fixing it."
            )
        for data in series.values():
            data.fix(0.0)
    return kept


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

    @property
    def numbers(self) -> dict[str, float]:
        """State -> start value, where it is fixed, or an equation holds nothing but the state."""
        numbers = dict(self.fixed)
        for state, constraint in self.conditions.items():
            held = list(identify_variables(constraint.expr, include_fixed=True))
            if len(held) == 1 and not list(identify_mutable_parameters(constraint.expr)):
                repn = generate_standard_repn(constraint.body, compute_values=True)
                if repn.is_linear() and repn.linear_coefs:
                    given = pyo.value(constraint.upper) - repn.constant
                    numbers[state] = given / repn.linear_coefs[0]
        return numbers


def _linked(
    conditions: Mapping[str, Any], state_of: Mapping[int, str], known: Set[str]
) -> Iterator[tuple[str, str]]:
    """Conditions on several states, each with the one that is not known yet, one after the other.

    known  states whose start is known
    """
    for name, constraint in conditions.items():
        states = {state_of[i] for i in _held(constraint) & state_of.keys()} - known
        if len(states) == 1:
            yield name, (state := states.pop())
            left = {n: c for n, c in conditions.items() if n != name}
            yield from _linked(left, state_of, known | {state})
            return


Form: TypeAlias = Callable[[Instance], Instance]
"""What is made of a model whenever it is built, as `with_bounds`."""


def as_inequalities(model: Any, name: str, series: Series) -> dict[str, dict[float, Any]]:
    """Lower and upper bounds of a variable as constraints by time, named as one would read them.

    Those of one side are one constraint over time, also where they change.
    """
    home = unique_component_name(model, "bounds")
    model.add_component(home, pyo.ConstraintList())
    made: dict[str, dict[float, Any]] = {}
    for sign, bounds in (
        (">=", {t: v.lb for t, v in series.items() if v.lb is not None}),
        ("<=", {t: v.ub for t, v in series.items() if v.ub is not None}),
    ):
        values = {f"{bound:g}" for bound in bounds.values()}
        of = f"{name} {sign} {values.pop() if len(values) == 1 else 'its bound'}"
        for t, bound in bounds.items():
            expr = series[t] >= bound if sign == ">=" else series[t] <= bound
            made.setdefault(of, {})[t] = getattr(model, home).add(expr)
    return made


def bounded_over_time(instance: Instance) -> dict[str, Series]:
    """The states, algebraic variables and slopes, written d(state), that have bounds."""
    slopes = {f"d({name})": series for name, series in instance.slopes.items()}
    families = {**instance.states, **instance.series, **slopes}
    return {
        name: series
        for name, series in families.items()
        if any(v.is_variable_type() and v.bounds != (None, None) for v in series.values())
    }


def bounds_over_time(instance: Instance) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Lower and upper bounds (n_times,) of all that `bounded_over_time` has."""
    bounds = {}
    for name, series in bounded_over_time(instance).items():
        pairs = [v.bounds if v.is_variable_type() else (None, None) for v in series.values()]
        lower = np.array([-np.inf if low is None else low for low, _ in pairs])
        upper = np.array([np.inf if high is None else high for _, high in pairs])
        bounds[name] = lower, upper
    return bounds


def has_constant_bounds(instance: Instance) -> bool:
    """Whether no bounds change with time."""
    each = bounds_over_time(instance).values()
    return all(len({*side}) == 1 for both in each for side in both)


def with_bounds(instance: Instance, names: Set[str] | None = None) -> Instance:
    """The instance with the bounds of these variables over time, or of all, as inequalities."""
    inequalities = dict(instance.inequalities)
    for name, series in bounded_over_time(instance).items():
        if names is None or name in names:
            inequalities |= as_inequalities(instance.model, name, series)
    return replace(instance, inequalities=inequalities)


def without_constraints(instance: Instance) -> Instance:
    """The relaxed instance, without inequalities over time and `ModelStarts.others`."""
    others = model_starts(instance).others
    conditions = {n: c for n, c in instance.conditions.items() if n not in others}
    return replace(instance, inequalities={}, conditions=conditions, is_relaxed=True)


def model_starts(instance: Instance) -> ModelStarts:
    """Start values of the states that the model gives.

    One may also be what an equation over time says at the first time in place of its balance.
    What only says where an algebraic variable starts is left to the equations.
    """
    first = instance.first
    initial = {name: series[first] for name, series in instance.states.items()}
    fixed = {name: float(x.value) for name, x in initial.items() if x.fixed and x.value is not None}
    state_of = {id(x): name for name, x in initial.items()}
    scalars = {id(x) for x in instance.scalars.values()}
    derived = {id(s[first]) for n, s in instance.series.items() if n in instance.idle}
    conditions, others = {}, {}
    for name, constraint in instance.conditions.items():
        held = _held(constraint)
        states = [state_of[i] for i in held if i in state_of]
        is_start = constraint.equality and len(states) == 1 and held <= scalars | set(state_of)
        if is_start and states[0] not in conditions and states[0] not in fixed:
            conditions[states[0]] = constraint
        elif not (constraint.equality and len(held & derived) == 1 and held <= scalars | derived):
            others[name] = constraint
    slopes = {id(data) for series in instance.slopes.values() for data in series.values()}
    for series in instance.equations.values():
        held = _held(series.get(first))
        states = [state_of[i] for i in held if i in state_of]
        if len(states) == 1 and held <= scalars | set(state_of):
            is_known = states[0] in conditions or states[0] in fixed
            if not is_known and slopes & _held(_usual(series)):
                conditions[states[0]] = series[first]
    usable = {n: c for n, c in others.items() if c.equality and _held(c) <= scalars | set(state_of)}
    for name, state in _linked(usable, state_of, {*fixed, *conditions}):
        conditions[state] = others.pop(name)
    return ModelStarts(fixed, conditions, others)
