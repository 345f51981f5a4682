"""A sound model, and ways to spoil one, for the test of what is refused."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyomo.environ as pyo
from ode import over_time
from pyomo import dae


def model(times: Iterable[float]) -> Any:
    """A vanishes by k; `feed` is an input, B = 2 A an algebraic variable, C an Expression."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.B = pyo.Var(m.t, units=pyo.units.mol), pyo.Var(m.t)
    m.dA = dae.DerivativeVar(m.A)
    m.k = pyo.Var(bounds=(0, 5))
    m.feed = pyo.Param(m.t, mutable=True, default=0.0)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] + m.feed[t])
    m.double = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] == 2 * m.A[t])
    m.C = pyo.Expression(m.t, rule=lambda m, t: 3 * m.A[t])
    return m


def spoilt(change: Callable[[Any], Any]) -> Callable[[Iterable[float]], Any]:
    """A builder of `model` with something done to it."""

    def spoilt_model(times: Iterable[float]) -> Any:
        m = model(times)
        change(m)
        return m

    return spoilt_model


def with_rate(rule: Callable[[Any, float], Any]) -> Callable[[Iterable[float]], Any]:
    """A builder of `model` with another differential equation."""

    def change(m: Any) -> None:
        m.del_component("rate")
        m.rate = pyo.Constraint(m.t, rule=rule)

    return spoilt(change)


def raises(times: Iterable[float]) -> Any:
    raise KeyError("no table")


def with_another_argument(times: Iterable[float], change: Any = None) -> Any:
    """`igpe` takes its second argument for the experiment's."""
    m = model(times)
    if change is not None:
        change(m)
    return m


def returns_none(times: Iterable[float]) -> Any:
    model(times)


def abstract(times: Iterable[float]) -> Any:
    m = pyo.AbstractModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t)
    return m


def without_units(times: Iterable[float]) -> Any:
    m = over_time(times, "A", k=(0, 5))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
    return m


def without_time(times: Iterable[float]) -> Any:
    m = pyo.ConcreteModel()
    m.k = pyo.Var()
    return m


def without_derivative(times: Iterable[float]) -> Any:
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.k = pyo.Var(m.t), pyo.Var()
    return m


def second_time(m: Any) -> None:
    m.z = dae.ContinuousSet(bounds=(0, 1))


def second_derivative(m: Any) -> None:
    m.ddA = dae.DerivativeVar(m.A, wrt=(m.t, m.t))


def a_name_twice(m: Any) -> None:
    m.A = pyo.Var(bounds=(0, 1))  # Pyomo only warns


def two_derivatives(m: Any) -> None:
    m.dA_again = dae.DerivativeVar(m.A)


def defined_scalar(m: Any) -> None:
    free_scalar(m)
    m.half = pyo.Constraint(expr=2 * m.q == m.k)


def free_scalar(m: Any) -> None:
    m.q = pyo.Var()
    m.double.deactivate()
    m.double_q = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] == m.q * m.A[t])


def input_without_value(m: Any) -> None:
    m.acid = pyo.Param(m.t, mutable=True)
    m.double.deactivate()
    m.double_acid = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] == m.acid[t] * m.A[t])


def start_square(m: Any) -> None:
    m.begin = pyo.Constraint(expr=m.A[m.t.first()] ** 2 == m.k)


def start_cancels(m: Any) -> None:
    first = m.t.first()
    m.begin = pyo.Constraint(expr=m.A[first] - m.A[first] == m.k)


def no_equation_for_B(m: Any) -> None:
    m.double.deactivate()
    m.del_component("rate")
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] + m.B[t])


def piecewise(m: Any) -> None:
    no_equation_for_B(m)
    m.curve = pyo.Piecewise(
        m.t,
        m.B,
        m.A,
        pw_pts=[0.0, 1.0, 2.0],
        f_rule=[0.0, 1.0, 4.0],
        pw_constr_type="EQ",
        unbounded_domain_var=True,
    )


def no_equation_for_A(m: Any) -> None:
    m.del_component("rate")


def uses_math(m: Any, t: float) -> Any:
    return m.dA[t] == -m.k * m.A[t] * math.exp(-t)


def uses_numpy(m: Any, t: float) -> Any:
    return m.dA[t] == -np.exp(m.k) * m.A[t]


def takes_a_float(m: Any, t: float) -> Any:
    return m.dA[t] == -math.sqrt(m.k) * m.A[t]


def branches_on_state(m: Any, t: float) -> Any:
    return m.dA[t] == (-m.k if m.A[t] > 1 else 0) * m.A[t]


def branches_on_time(m: Any, t: float) -> Any:
    return m.dA[t] == (-m.k * m.A[t] if pyo.sin(t) < 0.5 else -2 * m.k * m.A[t])


def skips_inside(m: Any, t: float) -> Any:
    return pyo.Constraint.Skip if m.t.ord(t) > 3 else m.dA[t] == -m.k * m.A[t]


def mixes_times(m: Any, t: float) -> Any:
    return m.dA[t] == -m.k * m.A[m.t.last()]


def pendulum(times: Iterable[float]) -> Any:
    """x and y on a circle, though the force is known: one equation too many."""
    m = over_time(times, "x y u v", "force", g=(1, 20))
    m.to_x = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.u[t])
    m.to_y = pyo.Constraint(m.t, rule=lambda m, t: m.dy[t] == m.v[t])
    m.to_u = pyo.Constraint(m.t, rule=lambda m, t: m.du[t] == -m.force[t] * m.x[t])
    m.to_v = pyo.Constraint(m.t, rule=lambda m, t: m.dv[t] == -m.force[t] * m.y[t] - m.g)
    m.circle = pyo.Constraint(m.t, rule=lambda m, t: m.x[t] ** 2 + m.y[t] ** 2 == 1)
    m.force.fix(1.0)
    return m


def external(m: Any) -> None:
    m.f = pyo.ExternalFunction(function=lambda x: x)
    m.del_component("rate")
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.f(m.A[t]))


def own_grid(times: Iterable[float]) -> Any:
    return model([0.0, 0.7, 1.7, 2.0])


def own_times(times: Iterable[float]) -> Any:
    return model([0.0, 2.0])


def scalar_without_value(m: Any) -> None:
    m.q = pyo.Param(mutable=True)
    m.double.deactivate()
    m.double_q = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] == m.q * m.A[t])


def constant_k(m: Any) -> None:
    m.del_component("rate")
    m.del_component("k")
    m.k = pyo.Param(initialize=0.3)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])


def start_fixed_without_value(m: Any) -> None:
    m.A[m.t.first()].fix()
