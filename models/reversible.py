"""Reversible first-order chain A <-> B <-> C (test problem 2).

    dx1/dt = -p1*x1 + p2*x2
    dx2/dt =  p1*x1 - (p2 + p3)*x2 + p4*x3
    dx3/dt =  p3*x2 - p4*x3
    x(0) = (1, 0, 0),  0 <= p1, p2 <= 10,  10 <= p3, p4 <= 50

Equations and bounds: Michalik, Chachuat, Marquardt, "Incremental Global Parameter Estimation in
Dynamical Systems", Ind. Eng. Chem. Res. (2009), after Floudas et al., "Handbook of Test Problems
in Local and Global Optimization" (1999). Published optimum: p = (4.000, 2.000, 40.013, 20.007).

The three equations add up to zero. The data are those of p = (4, 2, 40, 20) truncated to four
decimals, without noise; one of them is corrected (data/README.md). Table 4 of the paper counts
three parameters, its equations have four.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "reversible.csv"

OPTIMUM: dict[str, float] = {
    "p1": 3.999981453853702,
    "p2": 2.000020920356591,
    "p3": 40.01283526512123,
    "p4": 20.006590495344085,
}
OBJECTIVE: float = 1.889755675514885e-07  # sum of squared residuals, best known
PAPER: dict[str, Any] = {"bias_step4": 0.0180, "global_found": True, "seconds": "< 1"}


def model(times: Iterable[float]) -> Any:
    """x1, x2, x3: fractions of A, B, C; p1, p2: A <-> B; p3, p4: B <-> C."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x1, m.x2, m.x3 = pyo.Var(m.t), pyo.Var(m.t), pyo.Var(m.t)
    m.dx1, m.dx2 = dae.DerivativeVar(m.x1), dae.DerivativeVar(m.x2)
    m.dx3 = dae.DerivativeVar(m.x3)
    m.p1, m.p2 = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0, 10))
    m.p3, m.p4 = pyo.Var(bounds=(10, 50)), pyo.Var(bounds=(10, 50))
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dx1[t] == -m.p1 * m.x1[t] + m.p2 * m.x2[t])
    m.rate_B = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.dx2[t] == m.p1 * m.x1[t] - (m.p2 + m.p3) * m.x2[t] + m.p4 * m.x3[t],
    )
    m.rate_C = pyo.Constraint(m.t, rule=lambda m, t: m.dx3[t] == m.p3 * m.x2[t] - m.p4 * m.x3[t])
    return m


def problem() -> igpe.Problem:
    """The problem as published: all states measured at twenty times."""
    start = {"x1": 1.0, "x2": 0.0, "x3": 0.0}
    run = igpe.Experiment(pd.read_csv(DATA), start=start, start_time=0.0, sigma="equal")
    return igpe.Problem(model, parameters=["p1", "p2", "p3", "p4"], experiments=[run])
