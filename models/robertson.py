"""Robertson's stiff autocatalytic reaction.

    A -> B (k1),   2 B -> B + C (k2),   B + C -> A + C (k3)

    dA/dt = -k1*A + k3*B*C
    dB/dt =  k1*A - k3*B*C - k2*B^2
    dC/dt =  k2*B^2
    A(0) = 1, B(0) = C(0) = 0,   k = (0.04, 3e7, 1e4)

Equations and constants: Robertson (1966), after Hairer and Wanner, "Solving Ordinary Differential
Equations II" (1996), p. 3. Design: fifty times, evenly spread over the logarithm from 1e-5 to 1e5,
as in Kim, Ji, Deng, Ma, Rackauckas, "Stiff neural ordinary differential equations", Chaos 31 (2021)
093122. All three are measured here with an error of 5 % of the value, made from a seed.

B rises within milliseconds and then follows A for hours: the constants span nine decades.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

TIMES = np.geomspace(1e-5, 1e5, 50)
NOISE = 0.05  # standard deviation of a measurement, share of the exact value
DECADES = 3.0  # starts lie so many below or above the truth
TRUTH: dict[str, float] = {"k1": 0.04, "k2": 3e7, "k3": 1e4}
OPTIMUM: dict[str, float] = {  # of seed 0
    "k1": 0.04040413453990337,
    "k2": 29447233.37401486,
    "k3": 9881.80879341346,
}
OBJECTIVE: float = 133.7445651424019  # weighted sum of squared residuals there, best known


def model(times: Iterable[float]) -> Any:
    """A, B, C: concentrations; k1, k2, k3: rate constants, not negative."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.B, m.C = pyo.Var(m.t), pyo.Var(m.t), pyo.Var(m.t)
    m.dA, m.dB, m.dC = (dae.DerivativeVar(x) for x in (m.A, m.B, m.C))
    m.k1, m.k2, m.k3 = (pyo.Var(bounds=(0, None)) for _ in range(3))
    m.first = pyo.Expression(m.t, rule=lambda m, t: m.k1 * m.A[t])
    m.second = pyo.Expression(m.t, rule=lambda m, t: m.k2 * m.B[t] ** 2)
    m.third = pyo.Expression(m.t, rule=lambda m, t: m.k3 * m.B[t] * m.C[t])
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.first[t] + m.third[t])
    m.rate_B = pyo.Constraint(
        m.t, rule=lambda m, t: m.dB[t] == m.first[t] - m.third[t] - m.second[t]
    )
    m.rate_C = pyo.Constraint(m.t, rule=lambda m, t: m.dC[t] == m.second[t])
    return m


def simulated(seed: int, noise: float = NOISE) -> pd.DataFrame:
    """Columns time, A, B, C, sd_A, ...: the exact course, made without igpe, with normal errors."""
    k1, k2, k3 = TRUTH.values()

    def slopes(t: float, x: Any) -> list[float]:
        first, second, third = k1 * x[0], k2 * x[1] ** 2, k3 * x[1] * x[2]
        return [-first + third, first - third - second, second]

    run = solve_ivp(
        slopes, (0.0, TIMES[-1]), [1.0, 0.0, 0.0], "Radau", TIMES, rtol=1e-10, atol=1e-20
    )
    exact = run.y.T
    errors = noise * exact * np.random.default_rng(seed).standard_normal(exact.shape)
    table = pd.DataFrame(exact + errors, columns=list("ABC"))
    table.insert(0, "time", TIMES)
    deviations = pd.DataFrame((noise or NOISE) * exact, columns=["sd_A", "sd_B", "sd_C"])
    return pd.concat([table, deviations], axis=1)


def problem(seed: int = 0, noise: float = NOISE) -> igpe.Problem:
    """Fifty times over ten decades, all three concentrations."""
    run = igpe.Experiment(
        simulated(seed, noise),
        start={"A": 1.0, "B": 0.0, "C": 0.0},
        start_time=0.0,
        sigma={n: f"sd_{n}" for n in "ABC"},
    )
    return igpe.Problem(model, parameters=list(TRUTH), experiments=[run])
