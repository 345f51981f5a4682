"""A decay, its problem for all files beside this one."""

from pathlib import Path

import pyomo.environ as pyo
from pyomo import dae

import igpe


def model(times):
    """d(A)/dt = -k A."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t)
    m.dA = dae.DerivativeVar(m.A)
    m.k = pyo.Var(bounds=(0.1, 3.0))

    @m.Constraint(m.t)
    def balance(m, t):
        return m.dA[t] == -m.k * m.A[t]

    return m


def problem():
    """k and the start value of A from one table."""
    table = Path(__file__).with_name("decay.csv")
    start = {"A": igpe.Unknown(0.5, 2.0)}
    return igpe.Problem(
        model, parameters=["k"], experiments=[igpe.Experiment(table, start=start, sigma=0.02)]
    )
