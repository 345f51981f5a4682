"""A pendulum with friction, from ten readings of its angle of which two are missing.

    dphi/dt = omega
    domega/dt = -(g/l) sin(phi) - alpha omega,   g = 9.81

Data and bounds: Houska, Logist, Diehl, Van Impe, "A tutorial on numerical methods for state and
parameter estimation in nonlinear dynamic systems" (2012), Listing 1 and Fig. 2. Published: l =
1.001 +/- 0.1734, alpha = 1.847 +/- 0.4059. These are reproduced with both start values estimated
and a standard deviation of 0.1, though the residuals' own is 0.04.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "pendulum.csv"

SIGMA = 0.1
PUBLISHED: dict[str, tuple[float, float]] = {"l": (1.001, 0.1734), "alpha": (1.847, 0.4059)}
OPTIMUM: dict[str, float] = {
    "l": 1.0009278878540595,
    "alpha": 1.8470767596549476,
    "phi(t0)": 1.0063936482772313,
    "omega(t0)": -0.005486050168986211,
}
OBJECTIVE: float = 0.6567513576900161  # weighted sum of squared residuals there, best known


def model(times: Iterable[float]) -> Any:
    """phi: angle, rad; omega: its rate, 1/s; l: length, m; alpha: friction, 1/s."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.phi, m.omega = pyo.Var(m.t), pyo.Var(m.t)
    m.dphi, m.domega = dae.DerivativeVar(m.phi), dae.DerivativeVar(m.omega)
    m.l, m.alpha = pyo.Var(bounds=(0.05, 2)), pyo.Var(bounds=(0, 4))
    m.turning = pyo.Constraint(m.t, rule=lambda m, t: m.dphi[t] == m.omega[t])
    m.falling = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.domega[t] == -9.81 / m.l * pyo.sin(m.phi[t]) - m.alpha * m.omega[t],
    )
    return m


def problem() -> igpe.Problem:
    """The problem as published; the paper lets l go down to zero, where the model has a pole."""
    start = {"phi": igpe.Unknown(-2, 2), "omega": igpe.Unknown(-10, 10)}
    run = igpe.Experiment(pd.read_csv(DATA), start=start, sigma=SIGMA)
    return igpe.Problem(model, parameters=["l", "alpha"], experiments=[run])
