"""Urethane from phenyl isocyanate and butanol (test problem 7).

    A + B -> C (r1),   A + C <-> D (r2, r3),   3 A -> E (r4)

    dnA/dt = V*(-r1 - r2 + r3 - 3*r4) + fA                                   (12, corrected)
    dnB/dt = -V*r1 + fB                                                      (13)
    dnC/dt = V*(r1 - r2 + r3)                                                (14)
    0 = nA + nC + 2*nD + 3*nE - (nA0 + nC0 + 2*nD0 + 3*nE0 + fA*(t - t0))    (15)
    0 = nB + nC + nD - (nB0 + nC0 + nD0 + fB*(t - t0))                       (16)
    V = sum of n*M/rho over A, B, C, D, E and the solvent S                  (17)
    k1, k2, k4, kc = kref*exp(-Ea/R*(1/T - 1/Tref)),   k3 = k2/kc            (18 to 22)
    r1 = k1*nA*nB/V^2,  r2 = k2*nA*nC/V^2,  r3 = k3*nD/V,  r4 = k4*nA^2/V^2  (23 to 26)

A phenyl isocyanate, B butanol, C urethane, D allophanate, E isocyanurate, S dimethyl sulfoxide.
Units: mol, litre, hour, kelvin, J/mol.

Equations, bounds, true values: Michalik, Chachuat, Marquardt, "Incremental Global Parameter
Estimation in Dynamical Systems", Ind. Eng. Chem. Res. (2009), eqs. 12 to 26, Tables 2 and 3,
after Bauer, Bock, Koerkel, Schloeder, J. Comput. Appl. Math. 120 (2000) 1-25.

One term is ours: the printed balance of A lacks V*r3. Reaction 3 sets one A free; without it the
balances (15) and (16) would give dnE/dt = V*(r4 - r3/3), a consumption of E that no reaction
explains. With it they give dnE/dt = V*r4.

The four experiments of the paper are not in print. Those here are ours (`data/README.md`); their
designs were chosen by what they tell of the parameters. The paper measures concentrations and V
and computes amounts; here amounts and V are measured, each with an independent error of 0.5 % of
its value: amounts computed from concentrations would share the errors of V.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

FOLDER = Path(__file__).parents[1] / "data"
DATA = FOLDER / "urethane.csv"
DESIGNS = FOLDER / "urethane_designs.csv"
SEED = 0  # of the noise in DATA
NOISE = 0.005  # standard deviation of a measurement, share of its value

HOURS = 8.0
TIMES = np.linspace(0.0, HOURS, 41)[1:]
KNOTS = np.linspace(0.0, HOURS, 4)  # T is linear between them
MEASURED = ("nA", "nB", "nC", "V")

GAS = 8.314  # J/(mol K)
T_REF = 363.16  # K
MOLAR_MASS = {"A": 119.11, "B": 74.12, "C": 193.23, "D": 312.34, "E": 357.33, "S": 78.06}  # g/mol
DENSITY = {"A": 1095, "B": 809, "C": 1415, "D": 1528, "E": 1451, "S": 1101}  # g/L
MOLAR_VOLUME = {c: MOLAR_MASS[c] / DENSITY[c] for c in MOLAR_MASS}  # L/mol

BOUNDS: dict[str, tuple[float, float]] = {
    "kref1": (0, 100),  # L/(mol h)
    "kref2": (0, 100),  # L/(mol h)
    "kref4": (0, 100),  # L/(mol h)
    "kc2": (20, 200),  # L/mol
    "Ea1": (1e4, 1e5),  # J/mol
    "Ea2": (1e4, 1e5),
    "Ea4": (1e4, 1e5),
    "dh2": (1e4, 1e5),
}
TRUTH: dict[str, float] = {  # Table 2
    "kref1": 2.5,
    "kref2": 50.0,
    "kref4": 0.8,
    "kc2": 120.0,
    "Ea1": 42000.0,
    "Ea2": 45000.0,
    "Ea4": 57000.0,
    "dh2": 32000.0,
}
OPTIMUM: dict[str, float] = {  # of DATA
    "kref1": 2.500315670870277,
    "kref2": 50.13011153515057,
    "kref4": 0.8001155015632864,
    "kc2": 120.2231588886205,
    "Ea1": 42006.55535808335,
    "Ea2": 45080.83309550513,
    "Ea4": 57015.49053408328,
    "dh2": 31997.130698570345,
}
OBJECTIVE: float = 630.8841629477017  # weighted sum of squared residuals of DATA, best known
PAPER: dict[str, Any] = {  # Table 3, from other data
    "bias_step4": 0.0057,
    "global_found": True,
    "seconds": "≈ 110",
    "step3": {
        "kref1": 2.566,
        "kref2": 49.890,
        "kref4": 0.799,
        "kc2": 120.728,
        "Ea1": 42383.595,
        "Ea2": 44986.27,
        "Ea4": 56930.189,
        "dh2": 31899.157,
    },
    "step5": {
        "kref1": 2.503,
        "kref2": 50.09,
        "kref4": 0.7995,
        "kc2": 120.3,
        "Ea1": 42000.0,
        "Ea2": 45010.0,
        "Ea4": 56970.0,
        "dh2": 31970.0,
    },
}


def model(times: Iterable[float]) -> Any:
    """nA to nE: amounts; V: volume; T: temperature; kref, Ea, kc2, dh2: to be estimated."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.T = pyo.Param(m.t, mutable=True, default=T_REF)
    m.fA, m.fB = pyo.Param(mutable=True, default=0.0), pyo.Param(mutable=True, default=0.0)
    m.nS = pyo.Param(mutable=True, default=1.0)
    m.nD0, m.nE0 = pyo.Param(mutable=True, default=0.0), pyo.Param(mutable=True, default=0.0)
    m.nA, m.nB, m.nC = (pyo.Var(m.t, initialize=1.0) for _ in range(3))
    m.dnA, m.dnB = dae.DerivativeVar(m.nA), dae.DerivativeVar(m.nB)
    m.dnC = dae.DerivativeVar(m.nC)
    m.nD, m.nE = pyo.Var(m.t, initialize=0.1), pyo.Var(m.t, initialize=0.1)
    m.V = pyo.Var(m.t, initialize=1.0)
    for name, bounds in BOUNDS.items():
        m.add_component(name, pyo.Var(bounds=bounds, initialize=sum(bounds) / 2))
    _add_rates(m)
    m.rate_A = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.dnA[t] == m.V[t] * (-m.r1[t] - m.r2[t] + m.r3[t] - 3 * m.r4[t]) + m.fA,
    )
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dnB[t] == -m.V[t] * m.r1[t] + m.fB)
    m.rate_C = pyo.Constraint(
        m.t, rule=lambda m, t: m.dnC[t] == m.V[t] * (m.r1[t] - m.r2[t] + m.r3[t])
    )
    _add_balances(m)
    return m


def _add_rates(m: Any) -> None:
    """Rate constants (18 to 22) and rates (23 to 26)."""

    def arrhenius(m: Any, t: float, factor: Any, energy: Any) -> Any:
        return factor * pyo.exp(-energy / GAS * (1 / m.T[t] - 1 / T_REF))

    m.k1 = pyo.Expression(m.t, rule=lambda m, t: arrhenius(m, t, m.kref1, m.Ea1))
    m.k2 = pyo.Expression(m.t, rule=lambda m, t: arrhenius(m, t, m.kref2, m.Ea2))
    m.k4 = pyo.Expression(m.t, rule=lambda m, t: arrhenius(m, t, m.kref4, m.Ea4))
    m.kc = pyo.Expression(m.t, rule=lambda m, t: arrhenius(m, t, m.kc2, m.dh2))
    m.k3 = pyo.Expression(m.t, rule=lambda m, t: m.k2[t] / m.kc[t])
    m.r1 = pyo.Expression(m.t, rule=lambda m, t: m.k1[t] * m.nA[t] * m.nB[t] / m.V[t] ** 2)
    m.r2 = pyo.Expression(m.t, rule=lambda m, t: m.k2[t] * m.nA[t] * m.nC[t] / m.V[t] ** 2)
    m.r3 = pyo.Expression(m.t, rule=lambda m, t: m.k3[t] * m.nD[t] / m.V[t])
    m.r4 = pyo.Expression(m.t, rule=lambda m, t: m.k4[t] * m.nA[t] ** 2 / m.V[t] ** 2)


def _add_balances(m: Any) -> None:
    """Balances of isocyanate and butanol groups (15, 16), and the volume (17)."""
    t0 = m.t.first()
    m.balance_A = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.nA[t] + m.nC[t] + 2 * m.nD[t] + 3 * m.nE[t]
            == m.nA[t0] + m.nC[t0] + 2 * m.nD0 + 3 * m.nE0 + m.fA * (t - t0)
        ),
    )
    m.balance_B = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.nB[t] + m.nC[t] + m.nD[t] == m.nB[t0] + m.nC[t0] + m.nD0 + m.fB * (t - t0)
        ),
    )
    v = MOLAR_VOLUME
    m.volume = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.V[t]
            == m.nA[t] * v["A"]
            + m.nB[t] * v["B"]
            + m.nC[t] * v["C"]
            + m.nD[t] * v["D"]
            + m.nE[t] * v["E"]
            + m.nS * v["S"]
        ),
    )


def problem(data: pd.DataFrame | Path = DATA) -> igpe.Problem:
    """Four experiments of forty times; `data` has the columns of DATA."""
    designs = pd.read_csv(DESIGNS, index_col="experiment")
    runs = igpe.read_experiments(
        data,
        start={name: _start(design) for name, design in designs.iterrows()},
        start_time=0.0,
        inputs={name: _inputs(design) for name, design in designs.iterrows()},
        sigma={name: f"sd_{name}" for name in MEASURED},
    )
    return igpe.Problem(model, parameters=list(BOUNDS), experiments=runs)


def _start(design: Any) -> dict[str, float]:
    return {name: float(design[f"{name}0"]) for name in ("nA", "nB", "nC")}


def _inputs(design: Any) -> dict[str, Any]:
    constant = {name: float(design[name]) for name in ("fA", "fB", "nS", "nD0", "nE0")}
    temperatures = [float(design[f"T{i}"]) for i in range(1, 5)]
    return constant | {"T": igpe.linear_input(KNOTS, temperatures)}


def simulated(seed: int, noise: float = NOISE) -> pd.DataFrame:
    """Measurements of the four designs at TRUTH, made without igpe; columns as in DATA.

    seed   of the noise
    noise  standard deviation of the independent normal errors, share of the exact value; the sd
           columns hold that share of the measured value (NOISE if there is no noise)
    """
    random = np.random.default_rng(seed)
    tables = []
    for name, design in pd.read_csv(DESIGNS, index_col="experiment").iterrows():
        exact = exact_course(design)
        measured = exact * (1 + noise * random.standard_normal(exact.shape))
        table = pd.DataFrame(measured, columns=list(MEASURED))
        table.insert(0, "experiment", name)
        table.insert(1, "time", TIMES)
        deviations = (table[list(MEASURED)].abs() * (noise or NOISE)).add_prefix("sd_")
        tables.append(pd.concat([table, deviations], axis=1))
    return pd.concat(tables, ignore_index=True)


def exact_course(
    design: Any, p: Mapping[str, float] = MappingProxyType(TRUTH), times: Any = TIMES
) -> Any:
    """(n_times, 4) nA, nB, nC, V: five plain differential equations, one for each species.

    design  a row of DESIGNS, with T1, T2, ... at equal distances from 0 to HOURS
    p       the parameters;  times: increasing, after 0 and until HOURS
    """
    design = {name: float(value) for name, value in design.items()}
    knots, temperatures = _temperatures(design)
    n = np.array([design[f"n{c}0"] for c in "ABCDE"])
    parts = []
    for begin, end in pairwise(knots):  # T has a kink at each
        inside = times[(begin < times) & (end > times)]
        at = [*inside, end]
        given = design, (knots, temperatures), p
        run = solve_ivp(_slopes, (begin, end), n, "LSODA", at, args=given, rtol=1e-11, atol=1e-14)
        n = run.y[:, -1]
        parts.append(run.y[:, np.isin(at, times)])
    amounts = np.hstack(parts)
    return np.column_stack([*amounts[:3], _volume(amounts, design)])


def _temperatures(design: Mapping[str, float]) -> tuple[Any, Any]:
    """(n,) knots and (n,) temperatures; T is linear between them."""
    count = sum(name[0] == "T" and name[1:].isdigit() for name in design)
    return np.linspace(0.0, HOURS, count), np.array([design[f"T{i + 1}"] for i in range(count)])


def _slopes(t: float, n: Any, design: Any, course: Any, p: Mapping[str, float]) -> list[float]:
    """Slopes of the five amounts."""
    over = (1 / np.interp(t, *course) - 1 / T_REF) / GAS
    k1, k2, k4, kc = (
        p[factor] * np.exp(-p[energy] * over)
        for factor, energy in (("kref1", "Ea1"), ("kref2", "Ea2"), ("kref4", "Ea4"), ("kc2", "dh2"))
    )
    a, b, c, d, _ = n
    v = _volume(n, design)
    r1, r2, r3, r4 = k1 * a * b / v, k2 * a * c / v, k2 / kc * d, k4 * a**2 / v  # mol/h
    slope_a = -r1 - r2 + r3 - 3 * r4 + design["fA"]
    return [slope_a, -r1 + design["fB"], r1 - r2 + r3, r2 - r3, r4]


def _volume(n: Any, design: Any) -> Any:
    """Litres of the amounts n (5, ...) and the solvent."""
    volumes = np.array([MOLAR_VOLUME[c] for c in "ABCDE"])
    return volumes @ n + design["nS"] * MOLAR_VOLUME["S"]
