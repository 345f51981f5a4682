"""Models over time for tests: their variables in one line, or all of them by their slopes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyomo.environ as pyo
from pyomo import dae

Rule = Callable[[Any, Any], Any]


def over_time(times: Any, states: str, others: str = "", **unknowns: Any) -> pyo.ConcreteModel:
    """A model without equations; its time is `t`.

    times     of its ContinuousSet
    states    names of variables over time that have a derivative: d<name>
    others    names of variables over time without one
    unknowns  parameter -> its bounds, or arguments of its `pyo.Var`
    """
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    for name, given in unknowns.items():
        setattr(m, name, pyo.Var(**(given if isinstance(given, dict) else {"bounds": given})))
    for name in (*states.split(), *others.split()):
        setattr(m, name, pyo.Var(m.t))
    for state in states.split():
        setattr(m, f"d{state}", dae.DerivativeVar(getattr(m, state), wrt=m.t))
    return m


def over_space(
    times: Any, names: str, slopes: str, points: Any = (0, 1), space: str = "x", **unknowns: Any
) -> pyo.ConcreteModel:
    """A model without equations over time and one set in space.

    names     of variables over both
    slopes    their derivatives, named by what they are by: c_t, c_x, c_xx
    points    of the set `space`
    unknowns  as in `over_time`
    """
    m = over_time(times, "", **unknowns)
    setattr(m, space, dae.ContinuousSet(initialize=points))
    for name in names.split():
        setattr(m, name, pyo.Var(m.t, m.component(space)))
    for slope in slopes.split():
        name, by = slope.split("_")
        setattr(m, slope, dae.DerivativeVar(m.component(name), wrt=list(map(m.component, by))))
    return m


def ode(
    slopes: Mapping[str, Rule],
    *,
    inputs: Sequence[str] = (),
    outputs: Mapping[str, Rule] | None = None,
    **unknowns: Any,
) -> Callable[[Any], Any]:
    """The builder of a model.

    slopes    state -> its slope, as a function of the model and the time
    inputs    quantities that experiments give
    outputs   further quantities -> their values, as functions of the model and the time
    unknowns  parameter -> its bounds, or arguments of its `pyo.Var`
    """

    def build(times: Iterable[float]) -> pyo.ConcreteModel:
        m = over_time(times, " ".join(slopes), " ".join(inputs), **unknowns)
        for state, slope in slopes.items():
            rate = pyo.Constraint(
                m.t, rule=lambda m, t, s=state, f=slope: getattr(m, f"d{s}")[t] == f(m, t)
            )
            setattr(m, f"rate_{state}", rate)
        for name, value in (outputs or {}).items():
            setattr(m, name, pyo.Expression(m.t, rule=value))
        return m

    return build


def row(
    members: Iterable[int | str],
    slope: Callable[[Any, Any, Any], Any],
    *,
    name: str = "x",
    indexed: Mapping[str, tuple[Iterable[int | str], Any]] | None = None,
    **unknowns: Any,
) -> Callable[[Any], Any]:
    """The builder of a model whose states are the members of one variable, x[i].

    slope     of a member, as a function of the model, its index and the time
    indexed   parameter -> its own indices, and bounds
    unknowns  as in `over_time`
    """

    def build(times: Iterable[float]) -> pyo.ConcreteModel:
        m = over_time(times, "", **unknowns)
        for parameter, (indices, bounds) in (indexed or {}).items():
            setattr(m, parameter, pyo.Var(list(indices), bounds=bounds))
        m.i = pyo.Set(initialize=list(members))
        setattr(m, name, pyo.Var(m.i, m.t))
        rate = dae.DerivativeVar(getattr(m, name), wrt=m.t)
        setattr(m, f"d{name}", rate)
        m.balance = pyo.Constraint(m.i, m.t, rule=lambda m, i, t: rate[i, t] == slope(m, i, t))
        return m

    return build
