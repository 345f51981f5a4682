"""A tube with axial dispersion and a reaction by the method of lines, of any number of states."""

import pandas as pd
from ode import row

from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


def tube(cells: int) -> Problem:
    """c_t = D c_zz - v c_z - k c^2 in cells of equal length, fed at 1; three are measured."""

    def slope(m, i, t):
        c, before = m.c[i, t], m.c[i - 1, t] if i > 1 else 1.0
        after = m.c[i + 1, t] if i < cells else c
        diffusion = m.D * cells**2 * (after - 2 * c + before)
        return diffusion - m.v * cells * (c - before) - m.k * c**2

    model = row(range(1, cells + 1), slope, name="c", **dict.fromkeys("Dvk", (1e-3, 1e2)))
    names = [f"c[{i}]" for i in (cells // 4, cells // 2, cells)]
    data = pd.DataFrame({"time": [0.0, 1.0]}).assign(**dict.fromkeys(names, 0.1))
    run = Experiment(data, start={f"c[{i}]": 0.0 for i in range(1, cells + 1)}, sigma=0.01)
    return Problem(model, parameters=["D", "v", "k"], experiments=run)
