"""Irreversible first-order chain A -> B -> C (test problem 1).

    dx1/dt = -p1*x1
    dx2/dt =  p1*x1 - p2*x2
    x(0) = (1, 0),  0 <= p <= 10

Equations and bounds: Michalik, Chachuat, Marquardt, "Incremental Global Parameter Estimation in
Dynamical Systems", Ind. Eng. Chem. Res. (2009), after Floudas et al., "Handbook of Test Problems
in Local and Global Optimization" (1999). Published optimum: p = (5.0035, 1.0000).

The data are free of noise, rounded to three decimals; one of them is corrected (data/README.md).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "consecutive.csv"

OPTIMUM: dict[str, float] = {"p1": 5.003486444942574, "p2": 0.9999997774748225}
OBJECTIVE: float = 1.18584486008597e-06  # least sum of squared residuals, by 40-digit arithmetic
PAPER: dict[str, Any] = {"bias_step4": 0.0038, "global_found": True, "seconds": "< 1"}


def model(times: Iterable[float]) -> Any:
    """x1, x2: fractions of A and B; p1, p2: rate constants."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x1, m.x2 = pyo.Var(m.t), pyo.Var(m.t)
    m.dx1, m.dx2 = dae.DerivativeVar(m.x1), dae.DerivativeVar(m.x2)
    m.p1, m.p2 = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0, 10))
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dx1[t] == -m.p1 * m.x1[t])
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dx2[t] == m.p1 * m.x1[t] - m.p2 * m.x2[t])
    return m


def problem() -> igpe.Problem:
    """The problem as published: both states measured at ten times."""
    start = {"x1": 1.0, "x2": 0.0}
    run = igpe.Experiment(pd.read_csv(DATA), start=start, start_time=0.0, sigma="equal")
    return igpe.Problem(model, parameters=["p1", "p2"], experiments=[run])
