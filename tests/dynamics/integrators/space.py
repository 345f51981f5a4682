"""A tube with axial dispersion and a reaction by the method of lines, of any number of states."""

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


def tube(cells: int) -> Problem:
    """c_t = D c_zz - v c_z - k c^2 in cells of equal length, fed at 1; three are measured."""

    def model(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.i = pyo.RangeSet(cells)
        for name in "Dvk":
            m.add_component(name, pyo.Var(bounds=(1e-3, 1e2)))
        m.c = pyo.Var(m.i, m.t)
        m.dc = dae.DerivativeVar(m.c, wrt=m.t)

        @m.Constraint(m.i, m.t)
        def balance(m, i, t):
            c, before = m.c[i, t], m.c[i - 1, t] if i > 1 else 1.0
            after = m.c[i + 1, t] if i < cells else c
            diffusion = m.D * cells**2 * (after - 2 * c + before)
            return m.dc[i, t] == diffusion - m.v * cells * (c - before) - m.k * c**2

        return m

    names = [f"c[{i}]" for i in (cells // 4, cells // 2, cells)]
    data = pd.DataFrame({"time": [0.0, 1.0]}).assign(**dict.fromkeys(names, 0.1))
    run = Experiment(data, start={f"c[{i}]": 0.0 for i in range(1, cells + 1)}, sigma=0.01)
    return Problem(model, parameters=["D", "v", "k"], experiments=run)
