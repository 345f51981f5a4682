"""A pulse of fructose and glucose through a column of ion exchange resin: two components.

    (1 + (1 - e) / e H_i) dc_i/dt = -u dc_i/dx + D d2c_i/dx2,    u c_i - D dc_i/dx = u c_F at x = 0

with linear isotherms H = 0.54 and 0.28, e = 0.38 and a length of 53.6 cm: Klatt, Hanisch and
Duennebier, Journal of Process Control 12, 2002, p. 203 (model-based control of a simulated moving
bed for this separation). D = 3.81e-6 m2/s; the speed of 0.4 mm/s and the pulse of 5 min are ours.
"""

import numpy as np
import pyomo.environ as pyo
from pyomo import dae

import igpe
from space.case import Case

RATIO = (1 - 0.38) / 0.38
LENGTH, SPEED = 53.6, 2.4  # cm, cm/min


def model(times):
    """c: concentrations relative to the pulse's; x: cm; t: min; D: cm2/min; H: Henry constants."""
    m = pyo.ConcreteModel()
    m.t, m.x = dae.ContinuousSet(initialize=times), dae.ContinuousSet(bounds=(0, LENGTH))
    m.s = pyo.Set(initialize=["fructose", "glucose"])
    m.c, m.feed = pyo.Var(m.t, m.x, m.s), pyo.Param(m.t, mutable=True, initialize=0.0)
    m.dcdt, m.dcdx = dae.DerivativeVar(m.c, wrt=m.t), dae.DerivativeVar(m.c, wrt=m.x)
    m.d2cdx2 = dae.DerivativeVar(m.c, wrt=(m.x, m.x))
    m.H, m.D = pyo.Var(m.s), pyo.Var()

    @m.Constraint(m.t, m.x, m.s)
    def balance(m, t, x, s):
        if x == 0:
            return SPEED * m.c[t, x, s] - m.D * m.dcdx[t, x, s] == SPEED * m.feed[t]
        if x == LENGTH:
            return m.dcdx[t, x, s] == 0
        moved = -SPEED * m.dcdx[t, x, s] + m.D * m.d2cdx2[t, x, s]
        return (1 + RATIO * m.H[s]) * m.dcdt[t, x, s] == moved

    return m


CASE = Case(
    model,
    truth={"H[fructose]": 0.54, "H[glucose]": 0.28, "D": 2.286},
    bounds={"H[fructose]": (0.01, 5), "H[glucose]": (0.01, 5), "D": (0.2, 20)},
    grid={"x": igpe.integrators.FiniteDifference(40, "central")},
    columns={"c[53.6,fructose]": 0.005, "c[53.6,glucose]": 0.005},
    times=np.linspace(15, 65, 41),
    start={"c": 0.0},
    inputs={"feed": igpe.step_input([0.0, 5.0], [1.0, 0.0])},
)
