"""The zoo: small problems with known parameters, for the conformance tests of every family.

The measurements come from a plain right-hand side integrated by scipy, so that nothing of igpe
takes part in making the answers it is tested against.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from pyomo import dae
from scipy.integrate import solve_ivp


@dataclass(frozen=True)
class Case:
    """A model, its true parameters, and an independent simulation of it.

    builder     times -> Pyomo model
    rhs         (states in the order of `start`, parameters, inputs) -> slopes
    near        a start 10 to 20 % off the truth
    algebraics  (states (n_states, n_times), parameters) -> algebraic variables by name
    start       state -> number, or the name of a parameter
    inputs      name -> number, or pandas Series over time (linear between its points)
    """

    name: str
    builder: Callable[[Iterable[float]], Any]
    rhs: Callable[[Any, Any, Any], Sequence[Any]]
    truth: Mapping[str, float]
    near: Mapping[str, float]
    start: Mapping[str, float | str]
    times: tuple[float, ...]
    measured: tuple[str, ...]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    algebraics: Callable[[Any, Any], Mapping[str, Any]] = lambda x, p: {}

    def data(self, noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
        """Columns `time` and the measured names.

        noise  standard deviation of normal noise, as a fraction of each column's largest value
        """
        states = self._states()
        p = SimpleNamespace(**self.truth)
        exact = dict(zip(self.start, states, strict=True)) | dict(self.algebraics(states, p))
        table = pd.DataFrame({name: exact[name] for name in self.measured})
        errors = np.random.default_rng(seed).standard_normal(table.shape)
        table += noise * table.abs().max().to_numpy() * errors
        table.insert(0, "time", self.times)
        return table

    def problem(self, noise: float = 0.0, seed: int = 0) -> Any:
        """The `igpe.Problem` of estimating `truth` from `data(noise, seed)`."""
        import igpe  # noqa: PLC0415 - the simulation must not need it

        known: dict[str, Any] = {"start": self.start, "start_time": 0.0, "inputs": self.inputs}
        run = igpe.Experiment(self.data(noise, seed), **known, sigma="equal")
        return igpe.Problem(self.builder, parameters=list(self.truth), experiments=[run])

    def _states(self) -> Any:
        """(n_states, n_times), integrated from stop to stop so that no step meets a kink."""
        p = SimpleNamespace(**self.truth)
        tables = [u for u in self.inputs.values() if isinstance(u, pd.Series)]
        stops = sorted({0.0, *self.times}.union(*(u.index for u in tables)))

        def slopes(t: float, x: Any) -> Any:
            return self.rhs(x, p, self._inputs_at(t))

        start = [self.truth[v] if isinstance(v, str) else v for v in self.start.values()]
        found = {0.0: np.array(start, dtype=float)}
        for a, b in pairwise(stops):
            leg = solve_ivp(slopes, (a, b), found[a], method="DOP853", rtol=1e-11, atol=1e-13)
            found[b] = leg.y[:, -1]
        return np.column_stack([found[t] for t in self.times])

    def _inputs_at(self, t: float) -> SimpleNamespace:
        u = self.inputs.items()
        return SimpleNamespace(**{
            n: v if np.isscalar(v) else np.interp(t, v.index, v) for n, v in u
        })


def _until(end: float, n: int = 20) -> tuple[float, ...]:
    return tuple(float(t) for t in np.linspace(end / n, end, n))


def decay(times: Iterable[float]) -> Any:
    """A vanishes."""
    m = over_time(times, "A", k=(0, 5))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
    return m


def demand(times: Iterable[float]) -> Any:
    """Oxygen that was consumed: A0 is the start value of A, and stands in what is measured."""
    m = decay(times)
    m.A0 = pyo.Var(bounds=(0.1, 20))
    m.y = pyo.Var(m.t)
    m.used = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] == m.A0 - m.A[t])
    return m


def consecutive(times: Iterable[float]) -> Any:
    """A -> B -> C."""
    m = over_time(times, "A B C", k1=(0, 10), k2=(0, 10))
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.A[t])
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
    m.rate_C = pyo.Constraint(m.t, rule=lambda m, t: m.dC[t] == m.k2 * m.B[t])
    return m


def reversible(times: Iterable[float]) -> Any:
    """A <-> B."""
    m = over_time(times, "A B", kf=(0, 10), kb=(0, 10))
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.kf * m.A[t] + m.kb * m.B[t])
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.kf * m.A[t] - m.kb * m.B[t])
    return m


def michaelis_menten(times: Iterable[float]) -> Any:
    """S -> P by an enzyme."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.S, m.P = pyo.Var(m.t, initialize=1.0), pyo.Var(m.t, initialize=0.0)
    m.dS, m.dP = dae.DerivativeVar(m.S), dae.DerivativeVar(m.P)
    m.vmax = pyo.Var(bounds=(0.01, 10), initialize=1.0)
    m.km = pyo.Var(bounds=(0.01, 10), initialize=1.0)
    m.r = pyo.Expression(m.t, rule=lambda m, t: m.vmax * m.S[t] / (m.km + m.S[t]))
    m.rate_S = pyo.Constraint(m.t, rule=lambda m, t: m.dS[t] == -m.r[t])
    m.rate_P = pyo.Constraint(m.t, rule=lambda m, t: m.dP[t] == m.r[t])
    return m


def logistic(times: Iterable[float]) -> Any:
    """Growth to the capacity K."""
    m = over_time(
        times,
        "X",
        r={"bounds": (0.01, 5), "initialize": 1.0},
        K={"bounds": (0.5, 50), "initialize": 1.0},
    )
    m.growth = pyo.Constraint(m.t, rule=lambda m, t: m.dX[t] == m.r * m.X[t] * (1 - m.X[t] / m.K))
    return m


def lotka_volterra(times: Iterable[float]) -> Any:
    """Prey x and predator y, with all four rates unknown."""
    m = over_time(times, "x y", a=(0, 5), b=(0, 5), c=(0, 5), d=(0, 5))
    m.prey = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.x[t] * (m.a - m.b * m.y[t]))
    m.predator = pyo.Constraint(m.t, rule=lambda m, t: m.dy[t] == m.y[t] * (m.d * m.x[t] - m.c))
    return m


def stirred_tank(times: Iterable[float]) -> Any:
    """2 A -> B in a fed tank; one input is a Param, the other a Var."""
    m = over_time(times, "A", "feed", k=(0, 10), volume={"bounds": (0.1, 10), "initialize": 1.0})
    m.flow = pyo.Param(m.t, mutable=True, default=0.0)
    m.exchange = pyo.Expression(m.t, rule=lambda m, t: m.flow[t] * (m.feed[t] - m.A[t]) / m.volume)
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.exchange[t] - m.k * m.A[t] ** 2)
    return m


def fast_equilibrium(times: Iterable[float]) -> Any:
    """A <-> B at equilibrium, B vanishes; A and B are algebraic, and explicit in their total."""
    m = over_time(times, "total", "A B", k=(0, 10), K=(0.01, 10))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dtotal[t] == -m.k * m.B[t])
    m.equilibrium = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] == m.K * m.A[t])
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] + m.B[t] == m.total[t])
    return m


def dimer(times: Iterable[float]) -> Any:
    """2 M <-> D at equilibrium, M vanishes; M is the root of a quadratic equation."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.total = pyo.Var(m.t, initialize=1.0)
    m.dtotal = dae.DerivativeVar(m.total)
    m.M = pyo.Var(m.t, bounds=(0, None), initialize=0.5)
    m.k, m.K = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0.01, 10), initialize=1.0)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dtotal[t] == -m.k * m.M[t])
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.total[t] == m.M[t] + 2 * m.K * m.M[t] ** 2)
    return m


def _monomer(total: Any, K: float) -> Any:
    return (np.sqrt(1 + 8 * K * total) - 1) / (4 * K)


_CHAIN: dict[str, Any] = {
    "builder": consecutive,
    "rhs": lambda x, p, u: [-p.k1 * x[0], p.k1 * x[0] - p.k2 * x[1], p.k2 * x[1]],
    "truth": {"k1": 1.0, "k2": 0.4},
    "near": {"k1": 1.15, "k2": 0.35},
    "start": {"A": 1.0, "B": 0.0, "C": 0.0},
    "times": _until(6.0),
}

ZOO: tuple[Case, ...] = (
    Case(
        name="decay",
        builder=decay,
        rhs=lambda x, p, u: [-p.k * x[0]],
        truth={"k": 0.7},
        near={"k": 0.8},
        start={"A": 2.0},
        times=_until(4.0),
        measured=("A",),
    ),
    Case(
        name="demand",
        builder=demand,
        rhs=lambda x, p, u: [-p.k * x[0]],
        truth={"k": 0.7, "A0": 2.0},
        near={"k": 0.8, "A0": 2.2},
        start={"A": "A0"},
        times=_until(4.0),
        measured=("y",),
        algebraics=lambda x, p: {"y": p.A0 - x[0]},
    ),
    Case(name="consecutive", measured=("A", "B", "C"), **_CHAIN),
    Case(name="unmeasured_intermediate", measured=("A", "C"), **_CHAIN),
    Case(
        name="reversible",
        builder=reversible,
        rhs=lambda x, p, u: [-p.kf * x[0] + p.kb * x[1], p.kf * x[0] - p.kb * x[1]],
        truth={"kf": 0.8, "kb": 0.3},
        near={"kf": 0.9, "kb": 0.26},
        start={"A": 1.0, "B": 0.0},
        times=_until(4.0),
        measured=("A", "B"),
    ),
    Case(
        name="michaelis_menten",
        builder=michaelis_menten,
        rhs=lambda x, p, u: [-p.vmax * x[0] / (p.km + x[0]), p.vmax * x[0] / (p.km + x[0])],
        truth={"vmax": 1.2, "km": 0.8},
        near={"vmax": 1.05, "km": 0.95},
        start={"S": 3.0, "P": 0.0},
        times=_until(5.0),
        measured=("S", "P"),
    ),
    Case(
        name="logistic",
        builder=logistic,
        rhs=lambda x, p, u: [p.r * x[0] * (1 - x[0] / p.K)],
        truth={"r": 0.9, "K": 5.0},
        near={"r": 1.0, "K": 4.4},
        start={"X": 0.3},
        times=_until(8.0),
        measured=("X",),
    ),
    Case(
        name="lotka_volterra",
        builder=lotka_volterra,
        rhs=lambda x, p, u: [p.a * x[0] - p.b * x[0] * x[1], p.d * x[0] * x[1] - p.c * x[1]],
        truth={"a": 1.0, "b": 0.6, "c": 1.0, "d": 0.4},
        near={"a": 1.1, "b": 0.67, "c": 0.89, "d": 0.36},
        start={"x": 4.0, "y": 1.5},
        times=_until(9.64, n=40),  # one and a half periods
        measured=("x", "y"),
    ),
    Case(
        name="stirred_tank",
        builder=stirred_tank,
        rhs=lambda x, p, u: [u.flow * (u.feed - x[0]) / p.volume - p.k * x[0] ** 2],
        truth={"k": 0.5, "volume": 1.5},
        near={"k": 0.57, "volume": 1.3},
        start={"A": 0.2},
        times=_until(8.0),
        measured=("A",),
        inputs={"flow": pd.Series([0.2, 1.0, 1.0, 0.1], index=[0.0, 2.0, 5.0, 8.0]), "feed": 2.0},
    ),
    Case(
        name="fast_equilibrium",
        builder=fast_equilibrium,
        rhs=lambda x, p, u: [-p.k * p.K / (1 + p.K) * x[0]],
        truth={"k": 0.9, "K": 0.5},
        near={"k": 1.0, "K": 0.57},
        start={"total": 1.0},
        times=_until(6.0),
        measured=("A", "B"),
        algebraics=lambda x, p: {"A": x[0] / (1 + p.K), "B": p.K * x[0] / (1 + p.K)},
    ),
    Case(
        name="dimer",
        builder=dimer,
        rhs=lambda x, p, u: [-p.k * _monomer(x[0], p.K)],
        truth={"k": 0.6, "K": 0.5},
        near={"k": 0.68, "K": 0.43},
        start={"total": 3.0},
        times=_until(6.0),
        measured=("total", "M"),
        algebraics=lambda x, p: {"M": _monomer(x[0], p.K)},
    ),
)

CASES = {case.name: case for case in ZOO}

every_case = pytest.mark.parametrize("case", ZOO, ids=lambda c: c.name)
