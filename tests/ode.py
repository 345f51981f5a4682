"""Models of ordinary differential equations, from their right-hand sides alone."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyomo.environ as pyo
from pyomo import dae


def ode(slopes: Mapping[str, Callable[[Any, Any], Any]], **unknowns: Any) -> Callable[[Any], Any]:
    """The builder of a model.

    slopes    state -> its slope, as a function of the model and the time
    unknowns  parameter -> its bounds, or arguments of its `pyo.Var`
    """

    def build(times: Iterable[float]) -> pyo.ConcreteModel:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for name, given in unknowns.items():
            setattr(m, name, pyo.Var(**(given if isinstance(given, dict) else {"bounds": given})))
        for state in slopes:
            setattr(m, state, pyo.Var(m.t))
            setattr(m, f"d{state}", dae.DerivativeVar(getattr(m, state), wrt=m.t))
        for state, slope in slopes.items():
            rate = pyo.Constraint(
                m.t, rule=lambda m, t, s=state, f=slope: getattr(m, f"d{s}")[t] == f(m, t)
            )
            setattr(m, f"rate_{state}", rate)
        return m

    return build
