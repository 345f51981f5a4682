"""Bulirsch's ill-posed problem (exemplary system I of incremental single shooting).

    dy1/dt = y2,                                       y1(0) = 0
    dy2/dt = mu^2*y1 - (mu^2 + p^2)*sin(p*t),          y2(0) = pi

For p = pi the solution is y1 = sin(pi*t), y2 = pi*cos(pi*t); any other p adds sinh(mu*t)/mu times
the difference, so that at mu = 40 the last digit of p moves y1(1) by 26 standard deviations.

Equations and design: Michalik, Hannemann, Marquardt, "Incremental single shooting: a robust method
for the estimation of parameters in dynamical systems", Comput. Chem. Eng. 33 (2009), eqs. 12 to 16
and section 4.3.1, after Bulirsch (1971). Equations 13 and 14 exchange the two start values; those
here are the ones that the paper's solution (15, 16) has.

The paper's noise is not in print; here it is made from a seed. At mu = 5 the sum of squares has
some hundred minima between -500 and 500.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

TIMES = np.linspace(0.1, 1.0, 10)
NOISE = 0.05  # standard deviation of every measurement
STARTS = (-500.0, 500.0)  # of p, uniform
MUS = (5.0, 10.0, 20.0, 40.0)
TRUTH: dict[str, float] = {"p": float(np.pi)}
OPTIMUM: dict[float, float] = {  # p of seed 0, by mu
    5.0: 3.141503655680039,
    10.0: 3.1415895374227576,
    20.0: 3.1415926533876517,
    40.0: 3.1415926535897736,
}
OBJECTIVE: dict[float, float] = {  # weighted sum of squares there; at mu = 40 rounding decides it
    5.0: 15.120064823720119,
    10.0: 14.600371992889697,
    20.0: 14.169340028593137,
}
PAPER: dict[float, dict[str, tuple[int, int, int, int]]] = {  # Table 1: correct, wrong, integration
    5.0: {"ISS": (18, 82, 0, 0), "SS": (16, 84, 0, 0)},  # error, optimisation error
    10.0: {"ISS": (100, 0, 0, 0), "SS": (75, 0, 0, 25)},
    20.0: {"ISS": (99, 0, 0, 1), "SS": (20, 0, 0, 80)},
    40.0: {"ISS": (100, 0, 0, 0), "SS": (0, 0, 0, 100)},
}


def model(times: Iterable[float]) -> Any:
    """y1, y2: the solution and its slope; p: to be estimated; mu: how ill-posed it is."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.y1, m.y2 = pyo.Var(m.t), pyo.Var(m.t)
    m.dy1, m.dy2 = dae.DerivativeVar(m.y1), dae.DerivativeVar(m.y2)
    m.mu, m.p = pyo.Param(mutable=True, default=5.0), pyo.Var()
    m.slope = pyo.Constraint(m.t, rule=lambda m, t: m.dy1[t] == m.y2[t])
    m.bend = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.dy2[t] == m.mu**2 * m.y1[t] - (m.mu**2 + m.p**2) * pyo.sin(m.p * t),
    )
    return m


def simulated(seed: int, noise: float = NOISE) -> pd.DataFrame:
    """Columns time, y1, y2: the exact solution with normal errors."""
    exact = np.column_stack([np.sin(np.pi * TIMES), np.pi * np.cos(np.pi * TIMES)])
    errors = noise * np.random.default_rng(seed).standard_normal(exact.shape)
    table = pd.DataFrame(exact + errors, columns=["y1", "y2"])
    table.insert(0, "time", TIMES)
    return table


def problem(mu: float = 10.0, seed: int = 0) -> igpe.Problem:
    """Ten times, both states; p has no bounds, as in the paper."""
    run = igpe.Experiment(
        simulated(seed),
        start={"y1": 0.0, "y2": float(np.pi)},
        start_time=0.0,
        inputs={"mu": mu},
        sigma=NOISE,
    )
    return igpe.Problem(model, parameters=["p"], experiments=[run])
