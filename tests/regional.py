"""Small problems whose likelihood regions are known: by formulas, mirrored, without limits."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from ode import ode, over_time
from scipy import special

import igpe

TIMES = np.array([0.2, 0.5, 1.0, 1.5, 2.5, 4.0])
SIGMA = 0.02
TRUTH = {"k1": 0.4, "k2": 2.0}
BOUNDS = {"k1": (0.0, 8.0), "k2": (0.0, 8.0)}


def two_decays(times: Any) -> Any:
    """y = exp(-k1 t) + exp(-k2 t): mirror images fit alike."""
    m = over_time(times, "a b", "y", k1=(0, 8), k2=(0, 8))
    m.one = pyo.Constraint(m.t, rule=lambda m, t: m.da[t] == -m.k1 * m.a[t])
    m.two = pyo.Constraint(m.t, rule=lambda m, t: m.db[t] == -m.k2 * m.b[t])
    m.sum = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] == m.a[t] + m.b[t])
    return m


def one_decay(times: Any) -> Any:
    """y' = -(k1 + k2) y: only the sum is determined."""
    return _of_y(times, lambda m, y: -(m.k1 + m.k2) * y, k1=(0, 8), k2=(0, 8))


def second_order(times: Any) -> Any:
    """y' = -k1 y - k2 y²."""
    return _of_y(times, lambda m, y: -m.k1 * y - m.k2 * y**2, k1=(0, 4), k2=(0, 3))


def _of_y(times: Any, slope: Any, **bounds: tuple[float, float]) -> Any:
    """One state y; slope: of (model, y); bounds: of the unknowns."""
    return ode({"y": lambda m, t: slope(m, m.y[t])}, **bounds)(times)


def measured(y: Any, seed: int = 3) -> pd.DataFrame:
    """The measurements, with normal errors."""
    noise = SIGMA * np.random.default_rng(seed).standard_normal(len(TIMES))
    return pd.DataFrame({"time": TIMES, "y": y + noise})


def of_two(k1: Any, k2: Any) -> Any:
    """What `two_decays` predicts, (..., n_times)."""
    k1, k2 = np.asarray(k1)[..., None], np.asarray(k2)[..., None]
    return np.exp(-k1 * TIMES) + np.exp(-k2 * TIMES)


@cache
def mirrored(*, known: bool = True, **bounds: Any) -> igpe.Problem:
    """Two decays, with the standard deviation given or not."""
    sigma = {"sigma": SIGMA} if known else {}
    run = igpe.Experiment(
        measured(of_two(**TRUTH)), start={"a": 1.0, "b": 1.0}, start_time=0.0, **sigma
    )
    return igpe.Problem(two_decays, parameters={**BOUNDS, **bounds}, experiments=[run])


@cache
def undetermined() -> igpe.Problem:
    """One decay by the sum of two rates."""
    data = measured(np.exp(-1.5 * TIMES))
    run = igpe.Experiment(data, start={"y": 1.0}, start_time=0.0, sigma=SIGMA)
    return igpe.Problem(one_decay, parameters=BOUNDS, experiments=[run])


def squares(points: Any, *, known: bool = True) -> Any:
    """Sum of squares of `mirrored` at points (k, 2), by the formula."""
    data = measured(of_two(**TRUTH))["y"].to_numpy()
    residual = (of_two(points[:, 0], points[:, 1]) - data) / (SIGMA if known else 1.0)
    return (residual**2).sum(axis=1)


@cache
def saturated() -> tuple[igpe.Problem, Any]:
    """Michaelis-Menten from S = 2, and its sum of squares at points (k, 2) by Lambert's W."""
    y = _substrate(1.0, 0.5) + 0.05 * np.random.default_rng(5).standard_normal(len(TIMES))

    def model(times: Any) -> Any:
        return _of_y(times, lambda m, y: -m.V * y / (m.K + y), V=(0.1, 3), K=(0.05, 4))

    run = igpe.Experiment(
        pd.DataFrame({"time": TIMES, "y": y}), start={"y": 2.0}, start_time=0.0, sigma=0.05
    )

    def squares_of(points: Any) -> Any:
        return (((_substrate(points[:, :1], points[:, 1:]) - y) / 0.05) ** 2).sum(axis=1)

    return igpe.Problem(model, parameters=["V", "K"], experiments=[run]), squares_of


def _substrate(rate: Any, half: Any) -> Any:
    return half * special.lambertw(2 / half * np.exp((2 - rate * TIMES) / half)).real
