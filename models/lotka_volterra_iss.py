"""Lotka-Volterra with four rate constants (exemplary system II of incremental single shooting).

    dy1/dt = -k1*y1 + k2*y1*y2,        y1(0) = 0.4
    dy2/dt =  k3*y2 - k4*y1*y2,        y2(0) = 1

Equations and design: Michalik, Hannemann, Marquardt, "Incremental single shooting: a robust method
for the estimation of parameters in dynamical systems", Comput. Chem. Eng. 33 (2009), eqs. 19, 20
and section 4.3.2. For many parameters, as k = (0.5, 0.5, 0.5, -0.2), the solution has a pole.

The paper's noise is not in print; here it is made from a seed. At equally spaced times there are
faster doubles: with T = 8.81 the period, all rates (1 + n T/0.5) times as large go through the same
points. The optimum is the slowest.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

TIMES = np.linspace(0.5, 10.0, 20)
START = {"y1": 0.4, "y2": 1.0}
NOISE = 0.05  # standard deviation of a measurement, share of the exact value
STARTS = (0.0, 10.0)  # of each parameter, uniform
TRUTH: dict[str, float] = {"k1": 1.0, "k2": 1.0, "k3": 1.0, "k4": 0.1}
OPTIMUM: dict[str, float] = {  # of seed 0
    "k1": 0.9931174415141389,
    "k2": 0.9954834155309171,
    "k3": 1.0071911782094531,
    "k4": 0.1037862498449926,
}
OBJECTIVE: float = 18.09045983963513  # weighted sum of squared residuals there, best known
PAPER: dict[str, tuple[int, int, int, int]] = {  # Table 2: correct, wrong, integration error,
    "ISS": (69, 2, 29, 0),  # optimisation error
    "SS": (1, 15, 84, 0),
}
PAPER_START = {"k1": 4.2176, "k2": 9.1574, "k3": 7.9221, "k4": 9.5949}  # of Table 3
PAPER_HORIZONS: tuple[dict[str, float], ...] = (  # Table 3
    {"until": 0.5, "iterations": 11, "k1": 4.4363, "k2": 3.6457, "k3": 3.2760, "k4": 6.2779},
    {"until": 1, "iterations": 28, "k1": 1.0868, "k2": 1.0676, "k3": 0.9482, "k4": 0.0523},
    {"until": 2, "iterations": 5, "k1": 0.9172, "k2": 0.9362, "k3": 1.0187, "k4": 0.0977},
    {"until": 4, "iterations": 4, "k1": 1.0089, "k2": 0.9371, "k3": 1.0496, "k4": 0.1039},
    {"until": 8, "iterations": 3, "k1": 0.9933, "k2": 0.9928, "k3": 1.0588, "k4": 0.1050},
    {"until": 10, "iterations": 4, "k1": 0.9824, "k2": 0.9312, "k3": 1.0521, "k4": 0.1046},
)
PAPER_EQUIVALENT = 12.35  # iterations on the whole horizon


def model(times: Iterable[float]) -> Any:
    """y1, y2: predator and prey; k1 to k4: rate constants."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.y1, m.y2 = pyo.Var(m.t), pyo.Var(m.t)
    m.dy1, m.dy2 = dae.DerivativeVar(m.y1), dae.DerivativeVar(m.y2)
    m.k1, m.k2, m.k3, m.k4 = (pyo.Var() for _ in range(4))
    m.predator = pyo.Constraint(
        m.t, rule=lambda m, t: m.dy1[t] == -m.k1 * m.y1[t] + m.k2 * m.y1[t] * m.y2[t]
    )
    m.prey = pyo.Constraint(
        m.t, rule=lambda m, t: m.dy2[t] == m.k3 * m.y2[t] - m.k4 * m.y1[t] * m.y2[t]
    )
    return m


def simulated(seed: int, noise: float = NOISE) -> pd.DataFrame:
    """Columns time, y1, y2, sd_y1, sd_y2: the exact course, made without igpe, with normal errors.

    noise  share of the exact value; the sd columns hold that (or NOISE without noise)
    """
    k1, k2, k3, k4 = TRUTH.values()
    run = solve_ivp(
        lambda t, y: [-k1 * y[0] + k2 * y[0] * y[1], k3 * y[1] - k4 * y[0] * y[1]],
        (0.0, TIMES[-1]), list(START.values()), "DOP853", TIMES, rtol=1e-12, atol=1e-12,
    )  # fmt: skip
    exact = run.y.T
    errors = noise * exact * np.random.default_rng(seed).standard_normal(exact.shape)
    table = pd.DataFrame(exact + errors, columns=["y1", "y2"])
    table.insert(0, "time", TIMES)
    deviations = pd.DataFrame((noise or NOISE) * exact, columns=["sd_y1", "sd_y2"])
    return pd.concat([table, deviations], axis=1)


def problem(
    seed: int = 0, noise: float = NOISE, bounds: tuple[float, float] | None = None
) -> igpe.Problem:
    """Twenty times, both states, known start.

    bounds  of each parameter; None: the paper's infinite ones
    """
    run = igpe.Experiment(
        simulated(seed, noise),
        start=START,
        start_time=0.0,
        sigma={"y1": "sd_y1", "y2": "sd_y2"},
    )
    low, high = bounds or (-np.inf, np.inf)
    return igpe.Problem(model, parameters={n: (low, high) for n in TRUTH}, experiments=[run])
