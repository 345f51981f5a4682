"""Small models whose best designs are known."""

import pyomo.environ as pyo
from ode import ode, over_time
from pyomo import dae

decay = ode({"A": lambda m, t: -m.k * m.A[t]}, k=(0, 10), A0=(0, 10))
"""dA/dt = -k A."""


consecutive = ode(
    {"A": lambda m, t: -m.k1 * m.A[t], "B": lambda m, t: m.k1 * m.A[t] - m.k2 * m.B[t]},
    k1=(0, 5),
    k2=(0, 5),
)
"""A -> B -> C."""


def enzyme(times):
    """Michaelis and Menten's rate at a substrate S that is held; the product P is measured."""
    m = over_time(times, "P", Vmax=(0, 100), Km=(0, 100))
    m.S = pyo.Param(mutable=True, default=1.0)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dP[t] == m.Vmax * m.S / (m.Km + m.S))
    return m


def reactor(times):
    """A fed and heated tank: A -> B with Arrhenius' law; r is implicit where `cubic` is not 0."""
    m = over_time(times, "A B", k=(0, 5), E=(0, 50))
    m.r = pyo.Var(m.t, initialize=0.1, bounds=(0, None))
    m.feed = pyo.Param(m.t, mutable=True, default=0.0)
    m.T = pyo.Param(m.t, mutable=True, default=350.0)
    m.cubic = pyo.Param(mutable=True, default=0.0)
    m.law = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.r[t] + m.cubic * m.r[t] ** 3 == m.k * pyo.exp(-m.E * (350 / m.T[t] - 1)) * m.A[t]
        ),
    )
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed[t] - m.r[t])
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.r[t])
    return m


def product(times):
    """dA/dt = -k c A: only the product k c can be known; `rest` appears nowhere."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t, bounds=(0, None))
    m.dA = dae.DerivativeVar(m.A)
    m.k, m.c, m.rest = (pyo.Var(bounds=(0, 10)) for _ in range(3))
    m.A0 = pyo.Var(bounds=(0, 10))
    m.sd = pyo.Var(bounds=(1e-4, 1))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.c * m.A[t])
    return m


line = ode({"y": lambda m, t: m.b}, a=(-5, 5), b=(-5, 5), free_a=(None, None))
"""y = a + b t."""


explosion = ode({"A": lambda m, t: m.k * m.A[t] ** 2}, k=(0, 5))
"""dA/dt = k A²: infinite at t = 1 / (k A0)."""
