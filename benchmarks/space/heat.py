"""Pyomo's own example of a partial differential equation (examples/dae/PDE_example.py).

    pi^2 du/dt = k d2u/dx2,   u = sin(pi x) at t = 0,   u = 0 at x = 0,   du/dx = -pi exp(-t) at 1

which exp(-t) sin(pi x) solves for k = 1; k is estimated.
"""

import numpy as np
import pyomo.environ as pyo
from pyomo import dae

import igpe
from space.case import Case


def model(times):
    """u: temperature; k: conductivity."""
    m = pyo.ConcreteModel()
    m.t, m.x = dae.ContinuousSet(initialize=times), dae.ContinuousSet(bounds=(0, 1))
    m.u = pyo.Var(m.x, m.t)
    m.dudt, m.dudx = dae.DerivativeVar(m.u, wrt=m.t), dae.DerivativeVar(m.u, wrt=m.x)
    m.dudx2 = dae.DerivativeVar(m.u, wrt=(m.x, m.x))
    m.k = pyo.Var()

    @m.Constraint(m.x, m.t)
    def equation(m, x, t):
        if x in (0, 1) or t == 0:
            return pyo.Constraint.Skip
        return np.pi**2 * m.dudt[x, t] == m.k * m.dudx2[x, t]

    @m.Constraint(m.x)
    def start(m, x):
        if x in (0, 1):
            return pyo.Constraint.Skip
        return m.u[x, 0] == pyo.sin(np.pi * x)

    m.lower = pyo.Constraint(m.t, rule=lambda m, t: m.u[0, t] == 0)
    m.upper = pyo.Constraint(m.t, rule=lambda m, t: np.pi * pyo.exp(-t) + m.dudx[1, t] == 0)
    return m


CASE = Case(
    model,
    truth={"k": 1.0},
    bounds={"k": (0.01, 100)},
    grid={"x": igpe.integrators.FiniteDifference(25, "central")},
    columns={"u[0.5]": 0.01, "u[0.8]": 0.01},
    times=np.linspace(0.1, 2, 20),
    exact=lambda t: {f"u[{x}]": np.exp(-t) * np.sin(np.pi * x) for x in (0.5, 0.8)},
)
