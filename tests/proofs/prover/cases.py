"""Problems for the proofs, and their residuals by an integration that shares nothing with them."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.proofs.prover.posed import Dynamic, Posed


class Integrated:
    """Residuals of a problem in the order of its proofs, by DOP853 on the model's equations."""

    def __init__(self, problem: Any, dynamic: Dynamic) -> None:
        self.dynamic = dynamic
        each = range(len(problem.experiments))
        self.ivps = [compiled(problem).initial_value_problem(k) for k in each]
        names = problem.box.names
        self.index = [[names.index(n) for n in ivp.unknowns] for ivp in self.ivps]

    def __call__(self, p: Any) -> Any:
        parts = [self.dynamic.unmeasured(p).residual]
        for ivp, run, index in zip(self.ivps, self.dynamic.experiments, self.index, strict=True):
            parts.append(_run(ivp, run, p[index]))
        return np.concatenate(parts)


def _run(ivp: InitialValueProblem, run: Posed, q: Any) -> Any:
    slopes = ca.Function("f", [ivp.t, ivp.x, ivp.u, ivp.q], [ivp.f])
    told = ca.Function("h", [ivp.t, ivp.x, ivp.u, ivp.q], [ivp.measured])
    x = np.asarray(ca.Function("s", [ivp.q], [ivp.start])(q), dtype=float).ravel()
    found = []
    for k, (a, b) in enumerate(pairwise([run.course.start, *run.course.stops])):
        line = run.course.inputs[k]

        def u(t: float, line: Any = line) -> Any:
            return line[:, 0] + line[:, 1] * t

        if b > a:
            x = solve_ivp(
                lambda t, x, u=u: np.asarray(slopes(t, x, u(t), q), dtype=float).ravel(),
                (a, b), x, method="DOP853", rtol=1e-12, atol=1e-13,
            ).y[:, -1]  # fmt: skip
        values = np.asarray(told(b, x, u(b), q), dtype=float).ravel()
        rows = slice(run.course.first[k], run.course.first[k + 1])
        column, value = run.course.column[rows], run.course.value[rows]
        found.append((values[column] - value) * run.course.weight[rows])
    return np.concatenate(found)


def _everything(times: Iterable[float]) -> Any:
    """A made-up model with all functions, an input, time itself and an algebraic variable."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.a, m.b, m.y = pyo.Var(m.t), pyo.Var(m.t), pyo.Var(m.t)
    m.u = pyo.Var(m.t)
    m.da, m.db = dae.DerivativeVar(m.a), dae.DerivativeVar(m.b)
    m.k, m.w = pyo.Var(bounds=(0.2, 2.0)), pyo.Var(bounds=(0.5, 3.0))
    m.one = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.da[t] == -m.k * pyo.exp(-m.b[t]) * m.a[t] / (0.5 + m.a[t]) + m.u[t],
    )
    m.two = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.db[t] == pyo.sin(m.w * m.a[t]) - pyo.sqrt(1 + m.b[t] ** 2) + 0.3 * pyo.cos(t)
        ),
    )
    m.told = pyo.Constraint(
        m.t, rule=lambda m, t: m.y[t] == pyo.log(2 + m.a[t]) + pyo.tanh(m.b[t]) + m.a[t] ** 1.5
    )
    return m


def everything() -> Any:
    """Two experiments with unknown start values of their own, an input with a kink, and a prior."""
    times = np.array([0.0, 0.3, 0.8, 1.0, 1.7])
    runs = []
    for k, name in enumerate(("one", "two")):
        data = pd.DataFrame({
            "time": times,
            "y": [2.0, 1.9, 1.7, 1.6, 1.4 + 0.1 * k],
            "b": [0.2, 0.1, -0.1, -0.1, -0.3],
        })
        start = {"a": igpe.Unknown(0.8, 1.2), "b": 0.2}
        inputs = {"u": igpe.linear([0.0, 0.5, 3.0], [0.1, 0.4, 0.0])}
        runs.append(
            igpe.Experiment(
                data, name=name, start=start, start_time=0.0, inputs=inputs, sigma=0.1 + 0.1 * k
            )
        )
    return igpe.Problem(
        _everything,
        parameters=["k", "w"],
        experiments=runs,
        priors={"k": igpe.Normal(0.7, 0.2)},
    )
