"""Methanol to hydrocarbons (test problem 5).

    dx1/dt = x1*(-2*p1 + p1*x2/((p2 + p5)*x1 + x2) - p3 - p4)
    dx2/dt = p1*x1*(p2*x1 - x2)/((p2 + p5)*x1 + x2) + p3*x1
    dx3/dt = p1*x1*(x2 + p5*x1)/((p2 + p5)*x1 + x2) + p4*x1
    x(0) = (1, 0, 0),  0 <= p <= 100

Equations and bounds: Michalik, Chachuat, Marquardt, "Incremental Global Parameter Estimation in
Dynamical Systems", Ind. Eng. Chem. Res. (2009), after Floudas et al., "Handbook of Test Problems
in Local and Global Optimization" (1999). Published optimum: p = (5.2407, 1.2176, 0, 0, 0), so
that three bounds are active.

At t = 0 the denominator is p2 + p5: the right-hand side is undefined where both are zero.
The parameters found here agree with the published ones in all digits; the objective that goes
with them was not found in print. `cops_methanol.py` has 2*theta2 where this has 2*p1, and other
data: they are two different problems.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "methanol.csv"

OPTIMUM: dict[str, float] = {
    "p1": 5.24071543391988,
    "p2": 1.2176444009795337,
    "p3": 0.0,
    "p4": 0.0,
    "p5": 0.0,
}
OBJECTIVE: float = 0.10693056192732335  # sum of squared residuals, best known
PAPER: dict[str, Any] = {"bias_step4": 0.0404, "global_found": True, "seconds": "≈ 350"}


def model(times: Iterable[float]) -> Any:
    """x1, x2, x3: fractions of the reactant and two lumps of products; p1..p5: rate constants.

    The guesses keep the denominator away from zero wherever a solver begins.
    """
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x1 = pyo.Var(m.t, initialize=1.0)
    m.x2, m.x3 = pyo.Var(m.t, initialize=0.0), pyo.Var(m.t, initialize=0.0)
    m.dx1, m.dx2 = dae.DerivativeVar(m.x1), dae.DerivativeVar(m.x2)
    m.dx3 = dae.DerivativeVar(m.x3)
    m.p1, m.p2, m.p3, m.p4, m.p5 = (pyo.Var(bounds=(0, 100), initialize=1.0) for _ in range(5))
    m.denominator = pyo.Expression(m.t, rule=lambda m, t: (m.p2 + m.p5) * m.x1[t] + m.x2[t])
    m.rate_1 = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dx1[t] == m.x1[t] * (-2 * m.p1 + m.p1 * m.x2[t] / m.denominator[t] - m.p3 - m.p4)
        ),
    )
    m.rate_2 = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dx2[t]
            == m.p1 * m.x1[t] * (m.p2 * m.x1[t] - m.x2[t]) / m.denominator[t] + m.p3 * m.x1[t]
        ),
    )
    m.rate_3 = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dx3[t]
            == m.p1 * m.x1[t] * (m.x2[t] + m.p5 * m.x1[t]) / m.denominator[t] + m.p4 * m.x1[t]
        ),
    )
    return m


def problem() -> igpe.Problem:
    """The problem as published: all states measured at sixteen times."""
    start = {"x1": 1.0, "x2": 0.0, "x3": 0.0}
    run = igpe.Experiment(pd.read_csv(DATA), start=start, start_time=0.0, sigma="equal")
    return igpe.Problem(model, parameters=["p1", "p2", "p3", "p4", "p5"], experiments=[run])
