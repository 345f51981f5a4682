"""Lotka-Volterra, prey and predator (test problem 6).

    dx1/dt = p1*x1*(1 - x2)
    dx2/dt = p2*x2*(x1 - 1)
    x(0) = (1.2, 1.1),  0 <= p <= 10

Equations and bounds: Michalik, Chachuat, Marquardt, "Incremental Global Parameter Estimation in
Dynamical Systems", Ind. Eng. Chem. Res. (2009), after Floudas et al., "Handbook of Test Problems
in Local and Global Optimization" (1999). Published optimum: p = (3.2434, 0.9209).

The hard one: ten noisy points on almost three periods, many local minima (34 of 300 random local
starts reached the optimum), and the one problem where the paper's IGPE missed it. The next best
minimum found has p = (10, 6.4962) and a sum of squares of 0.019201.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "lotka_volterra.csv"

OPTIMUM: dict[str, float] = {"p1": 3.2434287715634302, "p2": 0.9208983804815113}
OBJECTIVE: float = 0.0012492368553793443  # sum of squared residuals, best known
PAPER: dict[str, Any] = {"bias_step4": 0.3252, "global_found": False, "seconds": "< 1"}


def model(times: Iterable[float]) -> Any:
    """x1, x2: prey and predator, relative to their equilibrium; p1, p2: rate constants."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x1, m.x2 = pyo.Var(m.t), pyo.Var(m.t)
    m.dx1, m.dx2 = dae.DerivativeVar(m.x1), dae.DerivativeVar(m.x2)
    m.p1, m.p2 = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0, 10))
    m.prey = pyo.Constraint(m.t, rule=lambda m, t: m.dx1[t] == m.p1 * m.x1[t] * (1 - m.x2[t]))
    m.predator = pyo.Constraint(m.t, rule=lambda m, t: m.dx2[t] == m.p2 * m.x2[t] * (m.x1[t] - 1))
    return m


def problem() -> igpe.Problem:
    """The problem as published: both states measured at ten times."""
    start = {"x1": 1.2, "x2": 1.1}
    run = igpe.Experiment(pd.read_csv(DATA), start=start, start_time=0.0, sigma="equal")
    return igpe.Problem(model, parameters=["p1", "p2"], experiments=[run])


def design() -> dict[str, Any]:
    """What `igpe design` may choose of the next experiment: the start, and ten of forty samples."""
    return {
        "free": {"x1": igpe.planning.Between(0.5, 2.0), "x2": igpe.planning.Between(0.5, 2.0)},
        "times": igpe.planning.Sampling([k / 4 for k in range(1, 41)], at_most=10, spacing=0.5),
    }
