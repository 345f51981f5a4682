"""Methanol to hydrocarbons, the version of the COPS collection.

    dy1/dt = -(2*theta2 - theta1*y2/((theta2 + theta5)*y1 + y2) + theta3 + theta4)*y1
    dy2/dt = theta1*y1*(theta2*y1 - y2)/((theta2 + theta5)*y1 + y2) + theta3*y1
    dy3/dt = theta1*y1*(y2 + theta5*y1)/((theta2 + theta5)*y1 + y2) + theta4*y1
    y(0) = (1, 0, 0),  0 <= theta <= 100

Source: Dolan, More, Munson, "Benchmarking Optimization Software with COPS 3.0", ANL/MCS-273
(2004). COPS has theta >= 0 alone; the upper bounds are added here, as in test problem 5.
Objective reported with COPS 3.0: 9.02229e-3.

The optimum lies in a flat valley with theta5 at its bound: compare objectives, not parameters.
At t = 0 the denominator is theta2 + theta5: the right-hand side is undefined where both are zero.
The first equation has 2*theta2 where `methanol.py` has 2*p1, and the data differ.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "cops_methanol.csv"

OPTIMUM: dict[str, float] = {
    "theta1": 1.7754906862908644,
    "theta2": 2.1681476734386993,
    "theta3": 1.8573949672675218,
    "theta4": 1.802406739059225,
    "theta5": 0.0,
}
OBJECTIVE: float = 0.009022290157315366  # sum of squared residuals, best known


def model(times: Iterable[float]) -> Any:
    """y1, y2, y3: fractions of the reactant and two lumps of products; theta1..theta5: rates.

    The guesses keep the denominator away from zero wherever a solver begins.
    """
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.y1 = pyo.Var(m.t, initialize=1.0)
    m.y2, m.y3 = pyo.Var(m.t, initialize=0.0), pyo.Var(m.t, initialize=0.0)
    m.dy1, m.dy2 = dae.DerivativeVar(m.y1), dae.DerivativeVar(m.y2)
    m.dy3 = dae.DerivativeVar(m.y3)
    m.theta1, m.theta2, m.theta3, m.theta4, m.theta5 = (
        pyo.Var(bounds=(0, 100), initialize=1.0) for _ in range(5)
    )
    m.denominator = pyo.Expression(m.t, rule=lambda m, t: (m.theta2 + m.theta5) * m.y1[t] + m.y2[t])
    m.rate_1 = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dy1[t]
            == -(2 * m.theta2 - m.theta1 * m.y2[t] / m.denominator[t] + m.theta3 + m.theta4)
            * m.y1[t]
        ),
    )
    m.rate_2 = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dy2[t]
            == m.theta1 * m.y1[t] * (m.theta2 * m.y1[t] - m.y2[t]) / m.denominator[t]
            + m.theta3 * m.y1[t]
        ),
    )
    m.rate_3 = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dy3[t]
            == m.theta1 * m.y1[t] * (m.y2[t] + m.theta5 * m.y1[t]) / m.denominator[t]
            + m.theta4 * m.y1[t]
        ),
    )
    return m


def problem() -> igpe.Problem:
    """The problem as published: 17 points, the first at t = 0, where the residuals vanish."""
    start = {"y1": 1.0, "y2": 0.0, "y3": 0.0}
    run = igpe.Experiment(pd.read_csv(DATA), start=start, start_time=0.0, sigma="equal")
    parameters = ["theta1", "theta2", "theta3", "theta4", "theta5"]
    return igpe.Problem(model, parameters=parameters, experiments=[run])
