"""Catalytic cracking of gas oil, the version of the COPS collection.

    dy1/dt = -(theta1 + theta3)*y1**2
    dy2/dt =  theta1*y1**2 - theta2*y2
    y(0) = (1, 0),  0 <= theta <= 20

Source: Dolan, More, Munson, "Benchmarking Optimization Software with COPS 3.0", ANL/MCS-273
(2004). COPS has theta >= 0 alone; the upper bounds are added here, as in test problem 3.
Objective reported with COPS 3.0: 5.2366e-3.

Same equations as `gas_oil_cracking.py`, other data. With the start values free the sum of
squares falls to 4.32602e-3 (published for TOMLAB/PROPT), a different problem.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "cops_gas_oil.csv"

OPTIMUM: dict[str, float] = {
    "theta1": 11.84673814208509,
    "theta2": 8.344519414507555,
    "theta3": 1.0014400179604477,
}
OBJECTIVE: float = 0.00523659579777668  # sum of squared residuals, best known


def model(times: Iterable[float]) -> Any:
    """y1, y2: fractions of gas oil and gasoline; theta1, theta2, theta3: rate constants."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.y1, m.y2 = pyo.Var(m.t), pyo.Var(m.t)
    m.dy1, m.dy2 = dae.DerivativeVar(m.y1), dae.DerivativeVar(m.y2)
    m.theta1, m.theta2, m.theta3 = (pyo.Var(bounds=(0, 20)) for _ in range(3))
    m.gas_oil = pyo.Constraint(
        m.t, rule=lambda m, t: m.dy1[t] == -(m.theta1 + m.theta3) * m.y1[t] ** 2
    )
    m.gasoline = pyo.Constraint(
        m.t, rule=lambda m, t: m.dy2[t] == m.theta1 * m.y1[t] ** 2 - m.theta2 * m.y2[t]
    )
    return m


def problem() -> igpe.Problem:
    """The problem as published: 21 points, the first at t = 0, where the residuals vanish."""
    start = {"y1": 1.0, "y2": 0.0}
    run = igpe.Experiment(pd.read_csv(DATA), start=start, start_time=0.0, sigma="equal")
    return igpe.Problem(model, parameters=["theta1", "theta2", "theta3"], experiments=[run])
