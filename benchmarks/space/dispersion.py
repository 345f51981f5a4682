"""A tubular reactor with axial dispersion and a reaction of first order, started up.

    tau dc/dt = -dc/dx + D d2c/dx2 - tau k c,    c - D dc/dx = 1 at x = 0,    dc/dx = 0 at x = 1

with x the share of the length, tau = 5.15 min, D = 1 / Pe = 1 / 7.5 and k = 0.25 1/min: Fogler,
Elements of Chemical Reaction Engineering, 4th ed., 2006, example 14-2 (closed-closed vessel).
"""

import numpy as np
import pyomo.environ as pyo
from pyomo import dae

import igpe
from space.case import Case

TAU = 5.15  # min


def model(times):
    """c: concentration relative to the feed's; D: dispersion number; k: 1/min."""
    m = pyo.ConcreteModel()
    m.t, m.x = dae.ContinuousSet(initialize=times), dae.ContinuousSet(bounds=(0, 1))
    m.c = pyo.Var(m.t, m.x)
    m.dcdt, m.dcdx = dae.DerivativeVar(m.c, wrt=m.t), dae.DerivativeVar(m.c, wrt=m.x)
    m.d2cdx2 = dae.DerivativeVar(m.c, wrt=(m.x, m.x))
    m.D, m.k = pyo.Var(), pyo.Var()

    @m.Constraint(m.t, m.x)
    def balance(m, t, x):
        if x in (0, 1):
            return pyo.Constraint.Skip
        moved = -m.dcdx[t, x] + m.D * m.d2cdx2[t, x]
        return m.dcdt[t, x] == moved / TAU - m.k * m.c[t, x]

    @m.Constraint(m.t)
    def inlet(m, t):
        return m.c[t, 0] - m.D * m.dcdx[t, 0] == 1

    @m.Constraint(m.t)
    def outlet(m, t):
        return m.dcdx[t, 1] == 0

    return m


CASE = Case(
    model,
    truth={"D": 1 / 7.5, "k": 0.25},
    bounds={"D": (0.01, 1), "k": (0.01, 2)},
    grid={"x": igpe.integrators.FiniteDifference(30, "central")},
    columns={"c[0.5]": 0.01, "c[1]": 0.01},
    times=np.linspace(1, 20, 20),
    start={"c": 0.0},
)
