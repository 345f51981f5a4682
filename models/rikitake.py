"""Rikitake's two disc dynamos, whose field reverses chaotically.

    dx1/dt = -mu x1 + x2 x3
    dx2/dt = -alpha x1 - mu x2 + x1 x3
    dx3/dt = 1 - x1 x2
    x(0) = (-2, -2, 0),   mu = 0.5, alpha = 0.46125

Design: Carbonell, Iturria-Medina, Jimenez, "Multiple shooting-local linearization method for the
identification of dynamical systems" (2016), example 3: 200 times spread at random over [0, 40], all
states measured with an error of 0.1; start values estimated, the search begins at (5, 5). Published
with 10 nodes: no realisation converged.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

COUNT, END, NOISE = 200, 40.0, 0.1
STATES = ("x1", "x2", "x3")
TRUTH: dict[str, float] = {
    **{"mu": 0.5, "alpha": 0.46125},
    **{"x1(t0)": -2.0, "x2(t0)": -2.0, "x3(t0)": 0.0},
}
START: dict[str, float] = {"mu": 5.0, "alpha": 5.0, **{f"{x}(t0)": 0.0 for x in STATES}}
OPTIMUM: dict[str, float] = {  # of seed 0
    "mu": 0.5002151707929392,
    "alpha": 0.4617874817884163,
    "x1(t0)": -2.0095088566720083,
    "x2(t0)": -2.010316249119681,
    "x3(t0)": 0.022446548626934123,
}
OBJECTIVE: float = 591.4710439411393  # weighted sum of squared residuals there, best known


def model(times: Iterable[float]) -> Any:
    """x1, x2: currents; x3: speed of rotation."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x1, m.x2, m.x3 = (pyo.Var(m.t) for _ in STATES)
    m.d1, m.d2, m.d3 = (dae.DerivativeVar(x) for x in (m.x1, m.x2, m.x3))
    m.mu, m.alpha = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0, 10))
    m.first = pyo.Constraint(m.t, rule=lambda m, t: m.d1[t] == -m.mu * m.x1[t] + m.x2[t] * m.x3[t])
    m.second = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.d2[t] == -m.alpha * m.x1[t] - m.mu * m.x2[t] + m.x1[t] * m.x3[t],
    )
    m.rotation = pyo.Constraint(m.t, rule=lambda m, t: m.d3[t] == 1 - m.x1[t] * m.x2[t])
    return m


def simulated(seed: int, batch: int = 0, noise: float = NOISE) -> pd.DataFrame:
    """Columns time, x1, x2, x3; `batch` places the times, `seed` makes the errors."""
    times = np.sort(np.random.default_rng([batch, 3]).uniform(0.0, END, COUNT))
    mu, alpha, *start = TRUTH.values()

    def slopes(t: float, x: Any) -> list[float]:
        first = -mu * x[0] + x[1] * x[2]
        return [first, -alpha * x[0] - mu * x[1] + x[0] * x[2], 1 - x[0] * x[1]]

    run = solve_ivp(slopes, (0.0, END), start, "DOP853", times, rtol=1e-12, atol=1e-14)
    errors = noise * np.random.default_rng([seed, batch]).standard_normal((COUNT, 3))
    table = pd.DataFrame(run.y.T + errors, columns=list(STATES))
    table.insert(0, "time", times)
    return table


def problem(seed: int = 0, batch: int = 0) -> igpe.Problem:
    """All states at 200 times, no start value known."""
    start = dict.fromkeys(STATES, igpe.Unknown(-10, 10))
    run = igpe.Experiment(simulated(seed, batch), start=start, start_time=0.0, sigma=NOISE)
    return igpe.Problem(model, parameters=["mu", "alpha"], experiments=[run])
