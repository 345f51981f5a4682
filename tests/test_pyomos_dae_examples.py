"""What can be estimated in Pyomo's examples/dae, which its wheel lacks: written anew as builders.

PDE_example.py is in test_space.py.
"""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

import igpe


def of_the_dynopt_guide(times):
    """Pyomo's examples/dae/Parameter_Estimation.py: both start values are the parameters."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x1, m.x2 = pyo.Var(m.t), pyo.Var(m.t)
    m.p1, m.p2 = pyo.Var(bounds=(-1.5, 1.5)), pyo.Var(bounds=(-1.5, 1.5))
    m.dx1, m.dx2 = dae.DerivativeVar(m.x1), dae.DerivativeVar(m.x2)
    m.first = pyo.Constraint(m.t, rule=lambda m, t: m.dx1[t] == m.x2[t])
    m.other = pyo.Constraint(m.t, rule=lambda m, t: m.dx2[t] == 1 - 2 * m.x2[t] - m.x1[t])

    @m.ConstraintList()
    def init(m):
        yield m.x1[0] == m.p1
        yield m.x2[0] == m.p2

    return m


def test_the_parameters_of_dynopts_example_are_those_of_linear_least_squares():
    """x1 = 1 + (a + b t) exp(-t) with a = p1 - 1, b = p2 + a: linear in the parameters."""
    times, x1 = np.array([1.0, 2.0, 3.0, 5.0]), np.array([0.264, 0.594, 0.801, 0.959])
    columns = np.exp(-times)[:, None] * np.column_stack([np.ones(4), times])
    a, b = np.linalg.lstsq(columns, x1 - 1, rcond=None)[0]
    data = pd.DataFrame({"time": times, "x1": x1})
    problem = igpe.Problem(
        of_the_dynopt_guide,
        parameters=["p1", "p2"],
        experiments=igpe.Experiment(data, start_time=0.0, sigma="equal"),
    )
    found = igpe.estimate(problem, certify=False)
    assert found.parameters == pytest.approx({"p1": 1 + a, "p2": b - a}, abs=1e-5)


def with_a_profile(times):
    """Pyomo's examples/dae/simulator_dae_multindex_example.py: A <=> B <=> C, p1 jumps at 0.5."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.p1 = pyo.Param(m.t, mutable=True, initialize=4.0)
    m.p2, m.p3, m.p4 = (pyo.Var(bounds=(1, 100)) for _ in range(3))
    m.za, m.zb, m.zc = pyo.Var(m.t), pyo.Var(m.t), pyo.Var(m.t)
    m.dza, m.dzb = dae.DerivativeVar(m.za), dae.DerivativeVar(m.zb)
    m.one = pyo.Constraint(m.t, rule=lambda m, t: m.dza[t] == -m.p1[t] * m.za[t] + m.p2 * m.zb[t])
    m.two = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.dzb[t] == m.p1[t] * m.za[t] - (m.p2 + m.p3) * m.zb[t] + m.p4 * m.zc[t],
    )
    m.three = pyo.Constraint(m.t, rule=lambda m, t: m.za[t] + m.zb[t] + m.zc[t] == 1)
    m.init = pyo.ConstraintList()
    m.init.add(m.za[0] == 1)
    m.init.add(m.zb[0] == 0)
    return m


def test_the_batch_reactor_of_pyomos_simulator_is_estimated():
    times, truth = np.linspace(0.05, 1.0, 20), {"p2": 2.0, "p3": 40.0, "p4": 20.0}

    def posed(data):
        inputs = {"p1": igpe.step_input([0.0, 0.5], [4.0, 1.0])}
        run = igpe.Experiment(data, start_time=0.0, sigma=1e-3, inputs=inputs)
        return igpe.Problem(with_a_profile, parameters=list(truth), experiments=run)

    names = ["za", "zb", "zc"]
    empty = pd.DataFrame({"time": times} | dict.fromkeys(names, times))
    exact = igpe.simulate(posed(empty), truth, times)[["time", *names]]
    found = igpe.estimate(posed(exact), certify=False)
    assert found.parameters == pytest.approx(truth, rel=1e-3)


SPECIES = ("MeOH", "TG", "DG", "MG", "FAME", "Glycerol")
STEPS = {"k1": ("TG", "DG"), "k2": ("DG", "MG"), "k3": ("MG", "Glycerol")}
AT_210 = """0 2.835 0.0678 0 0 0 0, 130 2.806 0.0356 0.0196 0.0192 0.0335 0,
160 2.755 0.0342 0.0149 0.0254 0.0417 0, 190 2.735 0.0292 0.0138 0.0283 0.0567 0,
220 2.715 0.0220 0.0140 0.0280 0.0797 0.00437, 250 2.698 0.0170 0.00789 0.0312 0.105 0.0124,
280 2.675 0.0129 0.00545 0.0278 0.128 0.0223, 340 2.659 0.00702 0.0059 0.0156 0.158 0.0399,
400 2.648 0.00365 0.00513 0.00792 0.175 0.0517, 460 2.641 0.00266 0.00504 0.00464 0.179 0.0561"""
"""Transesterification at 210 C, mol/L over s, from Pyomo's examples/dae/ReactionKinetics.py (after
http://www.doiserbia.nb.rs/img/doi/0367-598X/2014/0367-598X1300037A.pdf)."""


def network(times):
    """Mass action, as in that example: reactions and species are indices."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.s, m.r = pyo.Set(initialize=SPECIES), pyo.Set(initialize=list(STEPS))
    m.c, m.rate = pyo.Var(m.t, m.s, bounds=(0, None)), pyo.Var(m.t, m.r)
    m.dcdt = dae.DerivativeVar(m.c, wrt=m.t)
    m.k = pyo.Var(m.r, bounds=(0, 0.1))

    @m.Constraint(m.t, m.r)
    def law(m, t, r):
        return m.rate[t, r] == m.k[r] * m.c[t, STEPS[r][0]] * m.c[t, "MeOH"]

    @m.Constraint(m.t, m.s)
    def balance(m, t, s):
        return m.dcdt[t, s] == sum(gained(r, s) * m.rate[t, r] for r in m.r)

    return m


def gained(step, species):
    of, into = STEPS[step]
    return (species in {into, "FAME"}) - (species in {of, "MeOH"})


def test_the_kinetics_of_pyomos_example_are_those_of_scipy():
    rows = np.array([row.split() for row in AT_210.split(",")], dtype=float)
    data = pd.DataFrame(rows, columns=["time", *(f"c[{s}]" for s in SPECIES)])
    first, size = rows[0, 1:], rows[:, 1:].max(axis=0)
    run = igpe.Experiment(
        data,
        start=dict(zip(data.columns[1:], first.tolist(), strict=True)),
        start_time=0.0,
        sigma=dict(zip(data.columns[1:], size.tolist(), strict=True)),
    )
    problem = igpe.Problem(network, parameters=["k"], experiments=run)
    signs = np.array([[gained(r, s) for r in STEPS] for s in SPECIES])

    def misfit(k):
        def slopes(_, c):
            return signs @ (k * c[1:4] * c[0])

        end = rows[:, 0]
        found = solve_ivp(slopes, (0, end[-1]), first, "LSODA", end, rtol=1e-9, atol=1e-12).y.T
        return ((found - rows[:, 1:]) / size).ravel()

    best = least_squares(misfit, [2e-3, 5e-3, 2e-3], x_scale=1e-3, xtol=1e-12)
    found = igpe.estimate(problem, certify=False)
    exact = dict(zip((f"k[{r}]" for r in STEPS), best.x, strict=True))
    assert found.parameters == pytest.approx(exact, rel=1e-3)
