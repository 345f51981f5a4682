"""FitzHugh and Nagumo's nerve cell, of which only the voltage is measured.

    dV/dt = c (V - V^3/3 + R)
    dR/dt = -(V - a + b R) / c
    V(0) = -1, R(0) = 1,   a = 0.2, b = 0.2, c = 3

Design: Carbonell, Iturria-Medina, Jimenez, "Multiple shooting-local linearization method for the
identification of dynamical systems" (2016), example 2: 400 times spread at random over [0, 20],
errors of 0.2; all start values estimated, the search begins at a = 2, b = 2, c = 5. Published over
1000 realisations: a = 0.2007, b = 0.1932, c = 2.9794, 29 iterations.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

COUNT, END, NOISE = 400, 20.0, 0.2
TRUTH: dict[str, float] = {"a": 0.2, "b": 0.2, "c": 3.0, "V(t0)": -1.0, "R(t0)": 1.0}
START: dict[str, float] = {"a": 2.0, "b": 2.0, "c": 5.0, "V(t0)": 0.0, "R(t0)": 0.0}
OPTIMUM: dict[str, float] = {  # of seed 0
    "a": 0.19398428571363915,
    "b": 0.19009197272266953,
    "c": 2.999451080336362,
    "V(t0)": -1.0167659918691079,
    "R(t0)": 1.0075215320765667,
}
OBJECTIVE: float = 394.17823956340544  # weighted sum of squared residuals there, best known


def model(times: Iterable[float]) -> Any:
    """V: voltage across the membrane; R: outward current."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.V, m.R = pyo.Var(m.t), pyo.Var(m.t)
    m.dV, m.dR = dae.DerivativeVar(m.V), dae.DerivativeVar(m.R)
    m.a, m.b, m.c = pyo.Var(bounds=(-5, 5)), pyo.Var(bounds=(-5, 5)), pyo.Var(bounds=(0.1, 10))
    m.voltage = pyo.Constraint(
        m.t, rule=lambda m, t: m.dV[t] == m.c * (m.V[t] - m.V[t] ** 3 / 3 + m.R[t])
    )
    m.current = pyo.Constraint(
        m.t, rule=lambda m, t: m.dR[t] == -(m.V[t] - m.a + m.b * m.R[t]) / m.c
    )
    return m


def simulated(seed: int, batch: int = 0, noise: float = NOISE) -> pd.DataFrame:
    """Columns time, V: made without igpe; `batch` places the times, `seed` makes the errors."""
    times = np.sort(np.random.default_rng([batch, 1]).uniform(0.0, END, COUNT))
    a, b, c, *start = TRUTH.values()

    def slopes(t: float, x: Any) -> list[float]:
        return [c * (x[0] - x[0] ** 3 / 3 + x[1]), -(x[0] - a + b * x[1]) / c]

    run = solve_ivp(slopes, (0.0, END), start, "DOP853", times, rtol=1e-10, atol=1e-12)
    errors = noise * np.random.default_rng([seed, batch]).standard_normal(COUNT)
    return pd.DataFrame({"time": times, "V": run.y[0] + errors})


def problem(seed: int = 0, batch: int = 0) -> igpe.Problem:
    """The voltage at 400 times, no start value known."""
    start = {"V": igpe.Unknown(-5, 5), "R": igpe.Unknown(-5, 5)}
    run = igpe.Experiment(simulated(seed, batch), start=start, start_time=0.0, sigma=NOISE)
    return igpe.Problem(model, parameters=["a", "b", "c"], experiments=[run])
