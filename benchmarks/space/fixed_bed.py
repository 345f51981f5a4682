"""A fixed bed for the oxidation of o-xylene, started up: mass and heat balance, cooled wall.

    e rho dp/dt = -G dp/dz - rho_B M P r,           p = 0.015 atm at z = 0
    rho_B c_S dT/dt = -G c_p dT/dz + rho_B (-dH) r - 4 U / d (T - T_W),   T = 625 K at z = 0
    r = exp(19.837 - 13636 / T) p p_O

Pseudo-homogeneous, of first order: van Welsenaere and Froment, Chem. Eng. Sci. 25, 1970, p. 1503;
Froment and Bischoff, Chemical Reactor Analysis and Design, 2nd ed., 1990, section 11.5. They give
the steady state; holdup of the gas and heat capacity of the bed (0.25 kcal/kg/K, as the gas) are
added here. Estimated are ln k at 650 K (19.837 - 13636 / 650), the activation temperature and U.
"""

import numpy as np
import pyomo.environ as pyo
from pyomo import dae

import igpe
from space.case import Case

FLUX, BED, MOLAR, HEAT = 4684.0, 1300.0, 29.48, 307000.0  # kg/m2/h, kg/m3, kg/kmol, kcal/kmol
CAPACITY, DIAMETER, OXYGEN = 0.25, 0.025, 0.208  # kcal/kg/K, m, atm
GAS = 0.5  # kg/m3, porosity times density
FEED, INLET, MIDDLE = 0.015, 625.0, 650.0  # atm, K, K


def model(times):
    """p: atm, T: K, z: m, t: h; lnk: kmol/kg/h/atm2 at 650 K, E: K, U: kcal/m2/h/K."""
    m = pyo.ConcreteModel()
    m.t, m.z = dae.ContinuousSet(initialize=times), dae.ContinuousSet(bounds=(0, 3))
    m.p, m.T = pyo.Var(m.t, m.z, initialize=FEED), pyo.Var(m.t, m.z, initialize=INLET)
    m.dpdt, m.dpdz = dae.DerivativeVar(m.p, wrt=m.t), dae.DerivativeVar(m.p, wrt=m.z)
    m.dTdt, m.dTdz = dae.DerivativeVar(m.T, wrt=m.t), dae.DerivativeVar(m.T, wrt=m.z)
    m.lnk, m.E, m.U = pyo.Var(), pyo.Var(), pyo.Var()

    @m.Expression(m.t, m.z)
    def rate(m, t, z):
        of_temperature = pyo.exp(m.lnk - m.E * (1 / m.T[t, z] - 1 / MIDDLE))
        return of_temperature * m.p[t, z] * OXYGEN

    @m.Constraint(m.t, m.z)
    def mass(m, t, z):
        if z == 0:
            return pyo.Constraint.Skip
        return GAS * m.dpdt[t, z] == -FLUX * m.dpdz[t, z] - BED * MOLAR * m.rate[t, z]

    @m.Constraint(m.t, m.z)
    def heat(m, t, z):
        if z == 0:
            return pyo.Constraint.Skip
        lost = 4 * m.U / DIAMETER * (m.T[t, z] - INLET)
        made = -FLUX * CAPACITY * m.dTdz[t, z] + BED * HEAT * m.rate[t, z] - lost
        return BED * CAPACITY * m.dTdt[t, z] == made

    m.p[:, 0].fix(FEED)
    m.T[:, 0].fix(INLET)
    return m


CASE = Case(
    model,
    truth={"lnk": 19.837 - 13636 / MIDDLE, "E": 13636.0, "U": 82.7},
    bounds={"lnk": (-4, 1), "E": (5000, 25000), "U": (30, 200)},
    grid={"z": igpe.integrators.FiniteDifference(30, "backward2")},
    columns={"T[0.3]": 0.5, "T[0.6]": 0.5, "T[1]": 0.5, "T[2]": 0.5, "p[3]": 1e-4},
    times=np.linspace(0.05, 1, 20),
    start={"p": 0.0, "T": INLET},
)
