"""Three families of models of any number of states, with seeded data.

chain    A1 -> A2 -> ... -> An, n - 1 rate constants, all states measured
network  mass action of 1.5 n random reactions with 0.3 n rate constants, 50 states measured
tube     axial dispersion and a reaction of second order in n cells, 3 unknowns, 3 cells measured
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp
from scipy.sparse import csc_array

import igpe


class Equations(NamedTuple):
    """An initial value problem for SciPy.

    slope  (t, x, q) -> f;  by_x (n, n) pattern of f_x;  start (n,);  times (m,)
    """

    slope: Callable[[float, np.ndarray, np.ndarray], np.ndarray]
    by_x: Any
    start: np.ndarray
    times: np.ndarray

    def course(self, q: np.ndarray) -> np.ndarray:
        """(n, m) by BDF with sparse Jacobians."""
        done = solve_ivp(
            self.slope, (0.0, self.times[-1]), self.start, "BDF", self.times, args=(q,),
            rtol=1e-8, atol=1e-10, jac_sparsity=self.by_x,
        )  # fmt: skip
        assert done.success, done.message
        return np.asarray(done.y)


class Case(NamedTuple):
    """A problem, the true unknowns, and its equations."""

    problem: igpe.Problem
    truth: np.ndarray
    equations: Equations


def chain(n: int) -> Case:
    """Rate constants from 0.5 to 2 times the root of n, so that all states are seen."""
    truth = np.random.default_rng(0).uniform(0.5, 2, n - 1) * np.sqrt(n)

    def slope(t: float, x: np.ndarray, q: np.ndarray) -> np.ndarray:
        flow = q * x[:-1]
        return np.concatenate([[0.0], flow]) - np.concatenate([flow, [0.0]])

    def model(times: Any) -> Any:
        m = _states(times, n)
        m.k = pyo.Var(pyo.RangeSet(0, n - 2), bounds=(0.01, 100))

        @m.Constraint(m.i, m.t)
        def balance(m: Any, i: int, t: float) -> Any:
            gain = m.k[i - 1] * m.x[i - 1, t] if i else 0.0
            return m.dx[i, t] == gain - (m.k[i] * m.x[i, t] if i < n - 1 else 0.0)

        return m

    by_x = csc_array(np.eye(n) + np.eye(n, k=-1))
    times = np.linspace(0, 1.4 * np.sqrt(n), 50)
    names = [f"k[{i}]" for i in range(n - 1)]
    return _case(
        model, dict(zip(names, truth, strict=True)), Equations(slope, by_x, np.eye(n)[0], times)
    )


def network(n: int) -> Case:
    """Reactions i -> k and, three in ten, i + j -> k."""
    rng, count = np.random.default_rng(n), 3 * n // 10
    first, second, third = np.arange(3 * n // 2) % n, *rng.integers(n, size=(2, 3 * n // 2))
    two = rng.uniform(size=len(first)) < 0.3
    rate = np.arange(len(first)) % count
    truth, start = 10 ** rng.uniform(-1, 0.5, count), rng.uniform(0.2, 1, n)
    reactions = np.arange(len(first))
    stoichiometry = (
        csc_array((np.ones(len(first)), (third, reactions)), (n, len(first)))
        - csc_array((np.ones(len(first)), (first, reactions)), (n, len(first)))
        - csc_array((np.ones(int(two.sum())), (second[two], reactions[two])), (n, len(first)))
    )

    def slope(t: float, x: np.ndarray, q: np.ndarray) -> np.ndarray:
        return np.asarray(stoichiometry @ (q[rate] * x[first] * np.where(two, x[second], 1.0)))

    def model(times: Any) -> Any:
        m, rows = _states(times, n), stoichiometry.tocsr()
        m.k = pyo.Var(pyo.RangeSet(0, count - 1), bounds=(1e-2, 1e2))

        def flow(m: Any, r: int, t: float) -> Any:
            plain = m.k[int(rate[r])] * m.x[int(first[r]), t]
            return plain * m.x[int(second[r]), t] if two[r] else plain

        @m.Constraint(m.i, m.t)
        def balance(m: Any, i: int, t: float) -> Any:
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            pairs = zip(rows.indices[part], rows.data[part], strict=True)
            return m.dx[i, t] == sum(float(s) * flow(m, r, t) for r, s in pairs)

        return m

    by_x = csc_array(abs(stoichiometry) @ _participants(n, first, second, two).T)
    measured = range(0, n, max(1, n // 50))
    times = np.linspace(0.2, 4, 20)
    names = [f"k[{i}]" for i in range(count)]
    return _case(
        model, dict(zip(names, truth, strict=True)), Equations(slope, by_x, start, times), measured
    )


def _participants(n: int, first: Any, second: Any, two: Any) -> Any:
    reactions = np.arange(len(first))
    ones = np.ones(len(first))
    both = csc_array((np.ones(int(two.sum())), (second[two], reactions[two])), (n, len(first)))
    return csc_array((ones, (first, reactions)), (n, len(first))) + both


def tube(n: int) -> Case:
    """c_t = D c_zz - v c_z - k c^2, fed at 1."""
    truth = np.array([0.02, 1.0, 1.5])

    def slope(t: float, x: np.ndarray, q: np.ndarray) -> np.ndarray:
        before, after = np.append(1.0, x[:-1]), np.append(x[1:], x[-1])
        return q[0] * n**2 * (after - 2 * x + before) - q[1] * n * (x - before) - q[2] * x**2

    def model(times: Any) -> Any:
        m = _states(times, n)
        for name, low, high in (("D", 1e-3, 1.0), ("v", 0.1, 10.0), ("k", 0.01, 100.0)):
            m.add_component(name, pyo.Var(bounds=(low, high)))

        @m.Constraint(m.i, m.t)
        def balance(m: Any, i: int, t: float) -> Any:
            x, before = m.x[i, t], m.x[i - 1, t] if i else 1.0
            after = m.x[i + 1, t] if i < n - 1 else x
            diffusion = m.D * n**2 * (after - 2 * x + before)
            return m.dx[i, t] == diffusion - m.v * n * (x - before) - m.k * x**2

        return m

    by_x = csc_array(np.eye(n) + np.eye(n, k=-1) + np.eye(n, k=1))
    measured, times = (n // 4, n // 2, n - 1), np.linspace(0.05, 2, 40)
    return _case(
        model,
        dict(zip("Dvk", truth, strict=True)),
        Equations(slope, by_x, np.zeros(n), times),
        measured,
    )


def _states(times: Any, n: int) -> Any:
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.i = pyo.RangeSet(0, n - 1)
    m.x = pyo.Var(m.i, m.t)
    m.dx = dae.DerivativeVar(m.x, wrt=m.t)
    return m


def _case(model: Any, truth: dict[str, float], equations: Equations, measured: Any = None) -> Case:
    n, q = len(equations.start), np.array(list(truth.values()))
    columns = list(range(n) if measured is None else measured)
    values = equations.course(q)[columns].T
    sigma = 0.01 * float(np.abs(values).max())
    values = values + sigma * np.random.default_rng(1).standard_normal(values.shape)
    table = pd.DataFrame(values, columns=[f"x[{i}]" for i in columns])
    table.insert(0, "time", equations.times)
    starts = {f"x[{i}]": float(v) for i, v in enumerate(equations.start)}
    run = igpe.Experiment(table, start=starts, sigma=sigma, start_time=0.0)
    return Case(igpe.Problem(model, parameters=list(truth), experiments=run), q, equations)


FAMILIES: dict[str, Callable[[int], Case]] = {"chain": chain, "network": network, "tube": tube}
