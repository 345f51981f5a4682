"""Michaelis and Menten's decay of a substrate: small, curved, and quickly simulated.

dS/dt = -vmax S / (km + S),   S(0) = 2,   vmax = 1, km = 0.8,   15 measurements with errors of
0.04
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe


def decay_model(times: Iterable[float]) -> Any:
    """Michaelis and Menten's decay of a substrate."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.S = pyo.Var(m.t)
    m.dS = dae.DerivativeVar(m.S)
    m.vmax, m.km = pyo.Var(bounds=(0.01, 20)), pyo.Var(bounds=(0.01, 50))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dS[t] == -m.vmax * m.S[t] / (m.km + m.S[t]))
    return m


DECAY_TRUTH: dict[str, float] = {"vmax": 1.0, "km": 0.8}


def decay_data(seed: int, noise: float = 0.04, count: int = 15) -> pd.DataFrame:
    """Columns time, S: simulated by an integrator of its own."""
    times = np.linspace(0.2, 4.0, count)
    v, k = DECAY_TRUTH.values()
    run = solve_ivp(
        lambda t, s: -v * s / (k + s), (0, 4), [2.0], "DOP853", times, rtol=1e-11, atol=1e-13
    )
    errors = noise * np.random.default_rng([7, seed]).standard_normal(count)
    return pd.DataFrame({"time": times, "S": run.y[0] + errors})


def decay(seed: int = 0, sigma: float | None = 0.04, **settings: Any) -> igpe.Problem:
    """vmax and km, strongly correlated, from one course."""
    run = igpe.Experiment(decay_data(seed), start={"S": 2.0}, start_time=0.0, sigma=sigma)
    return igpe.Problem(decay_model, parameters=["vmax", "km"], experiments=[run], **settings)
