"""A chain of n reactions with Michaelis and Menten's rate, as large as one likes.

    dx_1/dt = -r(x_1),   dx_i/dt = r(x_(i-1)) - r(x_i),   r(x) = k x / (K + x)

or with rates of first order, a constant for each, where every parameter is to be estimated.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

K, HALF, LAST = 1.5, 0.5, 5.0
SIGMA = 0.01


def builder(n: int) -> Any:
    """The model of n reactions with two parameters."""

    def model(times: Iterable[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.i = pyo.RangeSet(n)
        m.k = pyo.Var(bounds=(0.01, 10), initialize=1.0)
        m.half = pyo.Var(bounds=(0.01, 10), initialize=1.0)
        m.x = pyo.Var(m.i, m.t, initialize=1.0)
        m.dx = dae.DerivativeVar(m.x, wrt=m.t)

        def balance(m: Any, i: int, t: float) -> Any:
            def rate(j: int) -> Any:
                return m.k * m.x[j, t] / (m.half + m.x[j, t])

            return m.dx[i, t] == (rate(i - 1) if i > 1 else 0.0) - rate(i)

        m.balance = pyo.Constraint(m.i, m.t, rule=balance)
        m.start = pyo.Constraint(
            m.i, rule=lambda m, i: m.x[i, m.t.first()] == (1.0 if i == 1 else 0.0)
        )
        return m

    return model


def chain(n: int, points: int, experiments: int = 1, seed: int = 0) -> igpe.Problem:
    """Two parameters, the first min(n, 3) states measured at some times with 1 % noise."""
    runs = [measured(n, points, seed + k) for k in range(experiments)]
    return igpe.Problem(
        model=builder(n),
        parameters=["k", "half"],
        experiments=[
            igpe.Experiment(run, sigma=SIGMA, name=f"run{k}") for k, run in enumerate(runs)
        ],
    )


def measured(n: int, points: int, seed: int) -> pd.DataFrame:
    """Integrated, with noise."""
    times = np.linspace(0, LAST, points + 1)[1:]
    few = min(n, 3)
    start = np.eye(1, few)[0]
    x = solve_ivp(slopes, (0, LAST), start, args=(K, HALF), t_eval=times, rtol=1e-9, atol=1e-12).y
    noisy = x + SIGMA * np.random.default_rng(seed).normal(size=x.shape)
    return pd.DataFrame({"time": times, **{f"x[{i + 1}]": noisy[i] for i in range(few)}})


def slopes(t: float, x: Any, k: float, half: float) -> Any:
    """The chain's slopes; its first states do not feel how many follow."""
    rate = k * x / (half + x)
    return np.concatenate([[0.0], rate[:-1]]) - rate


def first_order(n: int) -> Any:
    """The model of n first-order reactions, each with its own constant."""

    def model(times: Iterable[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.i = pyo.RangeSet(n)
        m.k = pyo.Var(m.i, bounds=(0.01, 10), initialize=1.0)
        m.x = pyo.Var(m.i, m.t, initialize=1.0)
        m.dx = dae.DerivativeVar(m.x, wrt=m.t)
        m.balance = pyo.Constraint(
            m.i,
            m.t,
            rule=lambda m, i, t: (
                m.dx[i, t] == (m.k[i - 1] * m.x[i - 1, t] if i > 1 else 0.0) - m.k[i] * m.x[i, t]
            ),
        )
        m.start = pyo.Constraint(
            m.i, rule=lambda m, i: m.x[i, m.t.first()] == (1.0 if i == 1 else 0.0)
        )
        return m

    return model


def truth(n: int) -> Any:
    """Rate constants of `first_order`."""
    return 1.0 + 0.5 * np.cos(np.arange(n))


def linear_slopes(t: float, x: Any, *k: float) -> Any:
    """Slopes of `first_order`."""
    rate = np.array(k) * x
    return np.concatenate([[0.0], rate[:-1]]) - rate


def many_parameters(n: int, points: int, seed: int = 0) -> igpe.Problem:
    """As many parameters as states, all measured."""
    times, noisy = many_measured(n, points, seed)
    data = pd.DataFrame({"time": times, **{f"x[{i + 1}]": noisy[i] for i in range(n)}})
    return igpe.Problem(
        model=first_order(n),
        parameters=[f"k[{i + 1}]" for i in range(n)],
        experiments=[igpe.Experiment(data, sigma=SIGMA)],
    )


def many_measured(n: int, points: int, seed: int = 0) -> tuple[Any, Any]:
    """Times and (n, points) measurements of `many_parameters`."""
    times = np.linspace(0, LAST, points + 1)[1:]
    start = np.eye(1, n)[0]
    x = solve_ivp(
        linear_slopes, (0, LAST), start, args=tuple(truth(n)), t_eval=times, rtol=1e-9, atol=1e-12
    ).y
    return times, x + SIGMA * np.random.default_rng(seed).normal(size=x.shape)
