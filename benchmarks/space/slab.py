"""Carbon diffuses into a steel plate from both sides: half of a plane sheet.

    dc/dt = D d2c/dx2,    c = c_S at x = 0,    dc/dx = 0 at x = l,    c = 0.25 % at first

D = 1.6e-11 m2/s (0.0576 mm2/h), c_S = 1.20 %: Callister and Rethwisch, Materials Science and
Engineering, 8th ed., 2010, example problem 5.2 (carburising at 950 C), here of a plate of 2 l = 2
mm. The solution is Crank's (The Mathematics of Diffusion, 2nd ed., 1975, equation 4.17).
"""

import numpy as np
import pyomo.environ as pyo
from pyomo import dae

import igpe
from space.case import Case

HALF, FIRST = 1.0, 0.25  # mm, %
TRUTH = {"D": 0.0576, "surface": 1.2}
TERMS = 200


def model(times):
    """c: % by weight; x: mm from the surface; t: h; D: mm2/h; surface: %."""
    m = pyo.ConcreteModel()
    m.t, m.x = dae.ContinuousSet(initialize=times), dae.ContinuousSet(bounds=(0, HALF))
    m.c = pyo.Var(m.t, m.x)
    m.dcdt, m.dcdx = dae.DerivativeVar(m.c, wrt=m.t), dae.DerivativeVar(m.c, wrt=m.x)
    m.d2cdx2 = dae.DerivativeVar(m.c, wrt=(m.x, m.x))
    m.D, m.surface = pyo.Var(), pyo.Var()

    @m.Constraint(m.t, m.x)
    def diffusion(m, t, x):
        if x == 0:
            return m.c[t, x] == m.surface
        if x == HALF:
            return m.dcdx[t, x] == 0
        return m.dcdt[t, x] == m.D * m.d2cdx2[t, x]

    return m


def exact(times):
    """Crank's series."""
    odd = 2 * np.arange(TERMS) + 1.0

    def at(x, t):
        decay = np.exp(-TRUTH["D"] * odd**2 * np.pi**2 * t / (4 * HALF**2))
        wave = np.sin(odd * np.pi * x / (2 * HALF))
        return TRUTH["surface"] + (FIRST - TRUTH["surface"]) * 4 / np.pi * np.sum(
            decay * wave / odd
        )

    return {f"c[{x:g}]": np.array([at(x, t) for t in times]) for x in (0.2, 0.5, 1.0)}


CASE = Case(
    model,
    truth=TRUTH,
    bounds={"D": (1e-3, 1), "surface": (0.3, 3)},
    grid={"x": igpe.integrators.FiniteDifference(30, "central")},
    columns={"c[0.2]": 0.01, "c[0.5]": 0.01, "c[1]": 0.01},
    times=np.linspace(0.5, 10, 20),
    start={"c": FIRST},
    exact=exact,
)
