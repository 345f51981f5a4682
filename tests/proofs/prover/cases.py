"""Problems for the proofs, and their residuals by an integration that shares nothing with them."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from evaluated import Evaluated
from ode import over_time
from scipy.integrate import solve_ivp

import igpe
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.proofs.prover.enclosure import BoxEnclosure, is_exponential, logarithmic, scaled
from igpe.proofs.prover.posed import Dynamic, PosedExperiment


class Integrated:
    """Residuals of a problem in the order of its proofs, by DOP853 on the model's equations."""

    def __init__(self, problem: Any, dynamic: Dynamic) -> None:
        self.dynamic = dynamic
        each = range(len(problem.experiments))
        ivps = [compiled(problem).initial_value_problem(k) for k in each]
        names = problem.box.names
        self.index = [[names.index(n) for n in ivp.unknowns] for ivp in ivps]
        self.functions = [_functions(ivp) for ivp in ivps]

    def __call__(self, p: Any) -> Any:
        parts = [self.dynamic.unmeasured(p).residual]
        runs = self.dynamic.experiments
        for functions, run, index in zip(self.functions, runs, self.index, strict=True):
            parts.append(_run(*functions, run, p[index]))
        return np.concatenate(parts)


def monomials(enclosure: BoxEnclosure, lower: Any, upper: Any, point: Any) -> Any:
    """Monomials of a box's polynomials at one of its points (n_p,), to rounding."""
    middle, radius = scaled(lower, upper).T
    delta = np.where(radius > 0, (point - middle) / np.where(radius > 0, radius, 1.0), 0.0)
    which = is_exponential(lower, upper, enclosure.divides)
    if which.any():
        m, r = logarithmic(lower[which], upper[which]).T
        delta[which] = np.log(point[which] / m) / r
    return np.prod(np.append(delta, 1.0)[enclosure.algebra.factors], axis=1)  # -1: a factor of 1


def _functions(ivp: InitialValueProblem) -> tuple[Evaluated, Evaluated, Evaluated]:
    """Slopes, measured quantities and start."""
    given = [ivp.t, ivp.x, ivp.u, ivp.q]
    return Evaluated(given, ivp.f), Evaluated(given, ivp.measured), Evaluated([ivp.q], ivp.start)


def _run(
    slopes: Evaluated, measured: Evaluated, start: Evaluated, run: PosedExperiment, q: Any
) -> Any:
    x, found = start(q), []
    for k, (a, b) in enumerate(pairwise([run.schedule.start, *run.schedule.stops])):
        line = run.schedule.inputs[k]

        def u(t: float, line: Any = line) -> Any:
            return line[:, 0] + line[:, 1] * t

        if b > a:
            x = solve_ivp(
                lambda t, x, u=u: slopes(t, x, u(t), q),
                (a, b), x, method="DOP853", rtol=1e-12, atol=1e-13,
            ).y[:, -1]  # fmt: skip
        values = measured(b, x, u(b), q)
        rows = slice(run.schedule.first[k], run.schedule.first[k + 1])
        column, value = run.schedule.column[rows], run.schedule.value[rows]
        found.append((values[column] - value) * run.schedule.weight[rows])
    return np.concatenate(found)


def _everything(times: Iterable[float]) -> Any:
    """A made-up model with all functions, an input, time itself and an algebraic variable."""
    m = over_time(times, "a b", "y u", k=(0.2, 2.0), w=(0.5, 3.0))
    m.one = pyo.Constraint(
        m.t, rule=lambda m, t: m.da[t] == -m.k * pyo.exp(-m.b[t]) * m.a[t] / (0.5 + m.a[t]) + m.u[t]
    )
    m.two = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.db[t] == pyo.sin(m.w * m.a[t]) - pyo.sqrt(1 + m.b[t] ** 2) + 0.3 * pyo.cos(t)
        ),
    )
    m.outputs = pyo.Constraint(
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
        inputs = {"u": igpe.linear_input([0.0, 0.5, 3.0], [0.1, 0.4, 0.0])}
        runs.append(
            igpe.Experiment(
                data, name=name, start=start, start_time=0.0, inputs=inputs, sigma=0.1 + 0.1 * k
            )
        )
    return igpe.Problem(
        _everything,
        parameters=["k", "w"],
        experiments=runs,
        priors={"k": igpe.losses.NormalPrior(0.7, 0.2)},
    )
