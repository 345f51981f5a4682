"""A star in a galaxy, after Henon and Heiles: chaotic, and linear in its parameters.

    dx1/dt = x3,   dx2/dt = x4
    dx3/dt = -a x1 - 2 x1 x2
    dx4/dt = -b x2 - x1^2 - c x2^2
    x(0) = (0, 0, 0.3, -0.4),   a = b = 1, c = -1

Design: Carbonell, Iturria-Medina, Jimenez, "Multiple shooting-local linearization method for the
identification of dynamical systems" (2016), example 1: 100 times spread at random over [0, 10], all
states measured with an error of 0.1; start values estimated, the search begins at (9, 1, 2), where
the model explodes at t = 4.4. One published realisation: (1.0314, 0.9839, -1.0101).
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

COUNT, END, NOISE = 100, 10.0, 0.1
STATES = ("x1", "x2", "x3", "x4")
TRUTH: dict[str, float] = {
    **{"a": 1.0, "b": 1.0, "c": -1.0},
    **{"x1(t0)": 0.0, "x2(t0)": 0.0, "x3(t0)": 0.3, "x4(t0)": -0.4},
}
START: dict[str, float] = {"a": 9.0, "b": 1.0, "c": 2.0, **{f"{x}(t0)": 0.0 for x in STATES}}
OPTIMUM: dict[str, float] = {  # of seed 0
    "a": 1.0137593465139279,
    "b": 0.9667028965539067,
    "c": -1.1376290941867901,
    "x1(t0)": -0.019293182024207017,
    "x2(t0)": -0.006014686329496783,
    "x3(t0)": 0.3130671949305459,
    "x4(t0)": -0.4000372564586343,
}
OBJECTIVE: float = 390.33631418525476  # weighted sum of squared residuals there, best known


def model(times: Iterable[float]) -> Any:
    """x1, x2: place; x3, x4: speed."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x1, m.x2, m.x3, m.x4 = (pyo.Var(m.t) for _ in STATES)
    m.d1, m.d2, m.d3, m.d4 = (dae.DerivativeVar(x) for x in (m.x1, m.x2, m.x3, m.x4))
    m.a, m.b, m.c = (pyo.Var(bounds=(-20, 20)) for _ in range(3))
    m.place1 = pyo.Constraint(m.t, rule=lambda m, t: m.d1[t] == m.x3[t])
    m.place2 = pyo.Constraint(m.t, rule=lambda m, t: m.d2[t] == m.x4[t])
    m.speed1 = pyo.Constraint(
        m.t, rule=lambda m, t: m.d3[t] == -m.a * m.x1[t] - 2 * m.x1[t] * m.x2[t]
    )
    m.speed2 = pyo.Constraint(
        m.t, rule=lambda m, t: m.d4[t] == -m.b * m.x2[t] - m.x1[t] ** 2 - m.c * m.x2[t] ** 2
    )
    return m


def simulated(seed: int, batch: int = 0, noise: float = NOISE) -> pd.DataFrame:
    """Columns time, x1 ... x4; `batch` places the times, `seed` makes the errors."""
    times = np.sort(np.random.default_rng([batch, 2]).uniform(0.0, END, COUNT))
    a, b, c, *start = TRUTH.values()

    def slopes(t: float, x: Any) -> list[float]:
        return [x[2], x[3], -a * x[0] - 2 * x[0] * x[1], -b * x[1] - x[0] ** 2 - c * x[1] ** 2]

    run = solve_ivp(slopes, (0.0, END), start, "DOP853", times, rtol=1e-11, atol=1e-13)
    errors = noise * np.random.default_rng([seed, batch]).standard_normal((COUNT, 4))
    table = pd.DataFrame(run.y.T + errors, columns=list(STATES))
    table.insert(0, "time", times)
    return table


def problem(seed: int = 0, batch: int = 0) -> igpe.Problem:
    """All states at 100 times, no start value known."""
    start = dict.fromkeys(STATES, igpe.Unknown(-2, 2))
    run = igpe.Experiment(simulated(seed, batch), start=start, start_time=0.0, sigma=NOISE)
    return igpe.Problem(model, parameters=["a", "b", "c"], experiments=[run])
