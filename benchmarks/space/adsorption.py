"""Breakthrough of benzene from air through a bed of silica gel: linear isotherm and driving force.

    dc/dt = -u dc/dz - (1 - e) / e dq/dt,    dq/dt = k (K c - q),    c = 1 at z = 0

with K = 5120, k = 0.206 1/min, e = 0.5, a bed of 6 ft and u = 200 ft/min: the example of benzene on
silica gel in the chapter on adsorption of Seader, Henley and Roper, Separation Process Principles,
3rd ed., 2011 (23.6 lb/min of air, a tower of 2 ft), which uses Klinkenberg's approximation of the
solution by Anzelius (Z. Angew. Math. Mech. 6, 1926):

    c = 1 - integral from 0 to a of exp(-b - s) I0(2 sqrt(b s)) ds

with a = k K z / u and b = k (t - z / u).
"""

import numpy as np
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import quad
from scipy.special import ive

import igpe
from space.case import Case

SPEED, POROSITY, LENGTH = 200.0, 0.5, 6.0  # ft/min, -, ft
TRUTH = {"K": 5120.0, "k": 0.206}


def model(times):
    """c, q: in the gas and the gel, by volume of each, relative to the feed's; z: ft; t: min."""
    m = pyo.ConcreteModel()
    m.t, m.z = dae.ContinuousSet(initialize=times), dae.ContinuousSet(bounds=(0, LENGTH))
    m.c, m.q = pyo.Var(m.t, m.z), pyo.Var(m.t, m.z)
    m.dcdt, m.dcdz = dae.DerivativeVar(m.c, wrt=m.t), dae.DerivativeVar(m.c, wrt=m.z)
    m.dqdt = dae.DerivativeVar(m.q, wrt=m.t)
    m.K, m.k = pyo.Var(), pyo.Var()

    @m.Constraint(m.t, m.z)
    def gas(m, t, z):
        if z == 0:
            return m.c[t, z] == 1
        held = (1 - POROSITY) / POROSITY * m.dqdt[t, z]
        return m.dcdt[t, z] == -SPEED * m.dcdz[t, z] - held

    @m.Constraint(m.t, m.z)
    def gel(m, t, z):
        return m.dqdt[t, z] == m.k * (m.K * m.c[t, z] - m.q[t, z])

    return m


def exact(times):
    """The solution by Anzelius at the end and in the middle of the bed."""

    def at(z, t):
        a, b = TRUTH["k"] * TRUTH["K"] * z / SPEED, TRUTH["k"] * (t - z / SPEED)

        def density(s):
            root = 2 * np.sqrt(b * s)
            return ive(0, root) * np.exp(root - b - s)

        return 1 - quad(density, 0, a, points=[min(a, b)], limit=200)[0]

    return {f"c[{z:g}]": np.array([at(z, t) for t in times]) for z in (LENGTH / 2, LENGTH)}


CASE = Case(
    model,
    truth=TRUTH,
    bounds={"K": (500, 50000), "k": (0.01, 5)},
    grid={"z": igpe.integrators.FiniteDifference(30, "backward2")},
    columns={"c[3]": 0.01, "c[6]": 0.01},
    times=np.linspace(20, 300, 29),
    start={"c": 0.0, "q": 0.0},
    exact=exact,
)
