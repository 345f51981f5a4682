"""JAK2-STAT5 signalling in cells stimulated with erythropoietin: real measurements, and a delay.

    dx1/dt = -k1*x1*EpoR + k2*q8           STAT5 in the cytoplasm,  x1(0) = x1_0
    dx2/dt = -x2^2 + k1*x1*EpoR            phosphorylated
    dx3/dt = -k2*x3 + x2^2                 dimer
    dq1/dt = 8/tau*(x3 - q1),  dqi/dt = 8/tau*(q(i-1) - qi), i = 2..8       x3(t - tau), nearly
    measured: pSTAT = s1*(x2 + x3),  tSTAT = s2*(x1 + x2 + x3)

Equations: Peifer, Timmer, "Parameter estimation in ordinary differential equations for biochemical
processes using the method of multiple shooting", IET Syst. Biol. 1 (2007), eq. 25 with a chain of
eight stages for the delay; s1 = 0.33 and s2 = 0.26 are known. Data: Swameye et al., PNAS (2003).
EpoR, the activity of the receptor, is an input: measured, linear in between, held after t = 50.
Times in minutes, concentrations in arbitrary units.

The optimum below is a little better than the paper's point, which has a sum of squares of 45.1: the
valley between them is flat. Were EpoR to fall to zero at t = 60 it would be 44.1 here.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

DATA = Path(__file__).parents[1] / "data" / "stat5.csv"
STAGES = 8  # of the chain
S1, S2 = 0.33, 0.26

OPTIMUM: dict[str, float] = {
    "k1": 2.26930,
    "k2": 0.121455,
    "tau": 4.62568,
    "x1_0": 3.68694,
}
OBJECTIVE: float = 43.8271527  # weighted sum of squared residuals, best known
PAPER: dict[str, tuple[float, float]] = {  # value, standard error
    "k1": (2.12, 0.22),
    "k2": (0.109, 0.015),
    "tau": (5.2, 0.6),
    "x1_0": (3.71, 0.07),
}


def model(times: Iterable[float]) -> Any:
    """x1, x2, x3: STAT5; q: the chain; k1, k2: 1/min; tau: min; x1_0: at the start."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.stage = pyo.RangeSet(STAGES)
    m.x1 = pyo.Var(m.t, initialize=1.0)
    m.x2, m.x3, m.EpoR = (pyo.Var(m.t, initialize=0.1) for _ in range(3))
    m.q = pyo.Var(m.stage, m.t, initialize=0.1)
    m.dx1, m.dx2, m.dx3 = (dae.DerivativeVar(x, wrt=m.t) for x in (m.x1, m.x2, m.x3))
    m.dq = dae.DerivativeVar(m.q, wrt=m.t)
    m.k1, m.k2 = pyo.Var(bounds=(0, 100), initialize=1.0), pyo.Var(bounds=(0, 10), initialize=1.0)
    m.tau = pyo.Var(bounds=(0.1, 60), initialize=1.0)
    m.x1_0 = pyo.Var(bounds=(0, 20), initialize=1.0)
    m.activation = pyo.Expression(m.t, rule=lambda m, t: m.k1 * m.x1[t] * m.EpoR[t])
    m.pSTAT = pyo.Expression(m.t, rule=lambda m, t: S1 * (m.x2[t] + m.x3[t]))
    m.tSTAT = pyo.Expression(m.t, rule=lambda m, t: S2 * (m.x1[t] + m.x2[t] + m.x3[t]))
    m.rate_1 = pyo.Constraint(
        m.t, rule=lambda m, t: m.dx1[t] == -m.activation[t] + m.k2 * m.q[STAGES, t]
    )
    m.rate_2 = pyo.Constraint(m.t, rule=lambda m, t: m.dx2[t] == m.activation[t] - m.x2[t] ** 2)
    m.rate_3 = pyo.Constraint(m.t, rule=lambda m, t: m.dx3[t] == m.x2[t] ** 2 - m.k2 * m.x3[t])
    m.delay = pyo.Constraint(
        m.stage,
        m.t,
        rule=lambda m, i, t: (
            m.dq[i, t] == STAGES / m.tau * ((m.x3[t] if i == 1 else m.q[i - 1, t]) - m.q[i, t])
        ),
    )
    return m


def problem() -> igpe.Problem:
    """The problem as published: 15 values of pSTAT, 16 of tSTAT, with their standard errors."""
    table = pd.read_csv(DATA)
    known = table.dropna(subset="EpoR")
    start: dict[str, Any] = {"x1": "x1_0", "x2": 0.0, "x3": 0.0}
    start |= {f"q[{i}]": 0.0 for i in range(1, 1 + STAGES)}
    run = igpe.Experiment(
        table[["time", "pSTAT", "tSTAT", "sd_pSTAT", "sd_tSTAT"]],
        start=start,
        start_time=0.0,
        inputs={"EpoR": igpe.linear_input(known["time"], known["EpoR"])},
        sigma={"pSTAT": "sd_pSTAT", "tSTAT": "sd_tSTAT"},
    )
    return igpe.Problem(model, parameters=["k1", "k2", "tau", "x1_0"], experiments=[run])
