"""Bellman's problem, the gas-phase reaction 2 NO + O2 <-> 2 NO2 (test problem 4).

    dx/dt = p1*(126.2 - x)*(91.9 - x)**2 - p2*x**2
    x(0) = 0,  0 <= p <= 0.1

Equation and bounds: Michalik, Chachuat, Marquardt, "Incremental Global Parameter Estimation in
Dynamical Systems", Ind. Eng. Chem. Res. (2009), after Floudas et al., "Handbook of Test Problems
in Local and Global Optimization" (1999). Published optimum: p = (4.5704e-6, 2.7845e-4).

The optimum lies a factor of 20 000 (p1) and 360 (p2) below the upper bounds: scale. The sources
seen give no units. Table 4 of the paper counts one parameter, its equation has two.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "bellman.csv"

OPTIMUM: dict[str, float] = {"p1": 4.57042713789387e-06, "p2": 0.0002784487784574305}
OBJECTIVE: float = 22.030936422752895  # sum of squared residuals, best known
PAPER: dict[str, Any] = {"bias_step4": 0.0177, "global_found": True, "seconds": "< 1"}


def model(times: Iterable[float]) -> Any:
    """x: progress of the reaction; p1, p2: rate constants forward and back."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x = pyo.Var(m.t)
    m.dx = dae.DerivativeVar(m.x)
    m.p1, m.p2 = pyo.Var(bounds=(0, 0.1)), pyo.Var(bounds=(0, 0.1))
    m.rate = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dx[t] == m.p1 * (126.2 - m.x[t]) * (91.9 - m.x[t]) ** 2 - m.p2 * m.x[t] ** 2
        ),
    )
    return m


def problem() -> igpe.Problem:
    """The problem as published: x measured at fourteen times."""
    run = igpe.Experiment(pd.read_csv(DATA), start={"x": 0.0}, start_time=0.0)
    return igpe.Problem(model, parameters=["p1", "p2"], experiments=[run])
