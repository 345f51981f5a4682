"""Oscillations of calcium in a cell, after Kummer et al.: eleven rate constants.

    dG/dt   = k1 + k2 G - k3 PLC G/(G + Km1) - k4 Ca G/(G + Km2)
    dPLC/dt = k5 G - k6 PLC/(PLC + Km3)
    dCa/dt  = k7 PLC Ca Er/(Er + Km4) + k8 PLC + k9 G - k10 Ca/(Ca + Km5) - k11 Ca/(Ca + Km6)
    dEr/dt  = -k7 PLC Ca Er/(Er + Km4) + k11 Ca/(Ca + Km6)

Equations, constants and design: Peifer and Timmer, "Parameter estimation in ordinary differential
equations for biochemical processes using the method of multiple shooting", IET Syst. Biol. 1 (2007)
78-88, eq. 24: 200 times from 0 in steps of 0.1, four states measured with errors of 6.5 % of the
exact value, starts of k1 to k11 uniform in [0, 1]. Published with 17 intervals, 250 starts: 96 %
converged and 49 % in the global optimum; single shooting 16 % and 4 %.

The model is stiff: calcium alone relaxes a thousand times faster than the rest.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

TIMES = np.arange(200) / 10
NOISE = 0.065  # standard deviation of a measurement, share of the exact value
STATES = ("G", "PLC", "Ca", "Er")
RATES = dict(
    zip(
        (f"k{i}" for i in range(1, 12)),
        (0.09, 2.0, 1.27, 3.73, 1.27, 32.24, 2.0, 0.05, 13.58, 153.0, 4.85),
        strict=True,
    )
)
KM = (0.19, 0.73, 29.09, 2.67, 0.16, 0.05)
BEGIN = {"G": 0.12, "PLC": 0.31, "Ca": 0.0058, "Er": 4.3}
TRUTH: dict[str, float] = {**RATES, **{f"{x}(t0)": v for x, v in BEGIN.items()}}
OPTIMUM: dict[str, float] = {  # of seed 0
    "k1": 0.08997979042830424,
    "k2": 2.0018463887204176,
    "k3": 1.2719685867432278,
    "k4": 3.816067267956618,
    "k5": 1.2675528334159523,
    "k6": 32.22804029158753,
    "k7": 2.0090280737079373,
    "k8": 0.050593827813348924,
    "k9": 13.521393452036722,
    "k10": 152.78276319277728,
    "k11": 4.845603837449364,
    "G(t0)": 0.11961514200034003,
    "PLC(t0)": 0.3101278206903507,
    "Ca(t0)": 0.006041435914535651,
    "Er(t0)": 4.295587664799232,
}
OBJECTIVE: float = 784.3512540545391  # weighted sum of squared residuals there, best known


def model(times: Iterable[float]) -> Any:
    """G: active G protein; PLC: active phospholipase; Ca, Er: calcium free and stored."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.G, m.PLC, m.Ca, m.Er = (pyo.Var(m.t, bounds=(1e-4, None)) for _ in STATES)
    m.dG, m.dPLC, m.dCa, m.dEr = (dae.DerivativeVar(x) for x in (m.G, m.PLC, m.Ca, m.Er))
    for name in RATES:
        m.add_component(name, pyo.Var(bounds=(1e-3, 1e3)))

    def saturated(x: Any, km: float) -> Any:
        return x / (x + km)

    m.released = pyo.Expression(
        m.t, rule=lambda m, t: m.k7 * m.PLC[t] * m.Ca[t] * saturated(m.Er[t], KM[3])
    )
    m.stored = pyo.Expression(m.t, rule=lambda m, t: m.k11 * saturated(m.Ca[t], KM[5]))
    m.protein = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dG[t]
            == m.k1
            + m.k2 * m.G[t]
            - m.k3 * m.PLC[t] * saturated(m.G[t], KM[0])
            - m.k4 * m.Ca[t] * saturated(m.G[t], KM[1])
        ),
    )
    m.lipase = pyo.Constraint(
        m.t, rule=lambda m, t: m.dPLC[t] == m.k5 * m.G[t] - m.k6 * saturated(m.PLC[t], KM[2])
    )
    m.free = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dCa[t]
            == m.released[t]
            + m.k8 * m.PLC[t]
            + m.k9 * m.G[t]
            - m.k10 * saturated(m.Ca[t], KM[4])
            - m.stored[t]
        ),
    )
    m.store = pyo.Constraint(m.t, rule=lambda m, t: m.dEr[t] == -m.released[t] + m.stored[t])
    return m


def simulated(seed: int, noise: float = NOISE) -> pd.DataFrame:
    """Columns time, G, PLC, Ca, Er, sd_G, ...: made without igpe, with normal errors."""
    k = list(RATES.values())

    def slopes(t: float, x: Any) -> list[float]:
        g, plc, ca, er = x
        released = k[6] * plc * ca * er / (er + KM[3])
        stored = k[10] * ca / (ca + KM[5])
        return [
            k[0] + k[1] * g - k[2] * plc * g / (g + KM[0]) - k[3] * ca * g / (g + KM[1]),
            k[4] * g - k[5] * plc / (plc + KM[2]),
            released + k[7] * plc + k[8] * g - k[9] * ca / (ca + KM[4]) - stored,
            stored - released,
        ]

    start = list(BEGIN.values())
    run = solve_ivp(slopes, (0.0, TIMES[-1]), start, "LSODA", TIMES, rtol=1e-10, atol=1e-12)
    exact = run.y.T
    errors = noise * exact * np.random.default_rng(seed).standard_normal(exact.shape)
    table = pd.DataFrame(exact + errors, columns=list(STATES))
    table.insert(0, "time", TIMES)
    deviations = pd.DataFrame((noise or NOISE) * exact, columns=[f"sd_{x}" for x in STATES])
    return pd.concat([table, deviations], axis=1)


def problem(
    seed: int = 0, noise: float = NOISE, measured: tuple[str, ...] = STATES
) -> igpe.Problem:
    """All four states, or some; no start value known, errors as they are."""
    run = igpe.Experiment(
        simulated(seed, noise)[["time", *measured, *(f"sd_{x}" for x in measured)]],
        start=dict.fromkeys(STATES, igpe.Unknown(1e-4, 50)),
        start_time=0.0,
        sigma={x: f"sd_{x}" for x in measured},
    )
    return igpe.Problem(model, parameters=list(RATES), experiments=[run])
