"""Families of models of any number of states, with seeded data.

chain    A1 -> A2 -> ... -> An, n - 1 rate constants, all states measured
network  mass action of 1.5 n random reactions with 0.3 n rate constants, 50 states measured
tube     axial dispersion and a reaction of second order in n cells, 3 unknowns, 3 cells measured
column   distillation on n trays, whose temperatures are implicit variables (bubble points), 3
         unknowns, 4 trays measured
heat     a ring of n bodies with n/2 more contacts; few of them, and as many conductances as wanted
"""

from collections.abc import Callable
from functools import partial
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


def heat(n: int, unknowns: int, outputs: int, count: int) -> Case:
    """Every tenth body begins warm; `unknowns` conductances stand in turn at the contacts.

    outputs, count  how many bodies are measured, and how often
    """
    rng = np.random.default_rng([n, unknowns])
    first, second = np.append(np.arange(n), rng.integers(n, size=n // 2)), np.roll(np.arange(n), -1)
    second = np.append(second, (first[n:] + rng.integers(1, n, size=n // 2)) % n)
    contacts = np.arange(len(first))
    which, truth = contacts % unknowns, 10 ** rng.uniform(-0.5, 0.5, unknowns)
    ends = np.append(first, second), np.append(contacts, contacts)
    signs = np.repeat([1.0, -1.0], len(first))
    incidence = csc_array((signs, ends), (n, len(first)))

    def slope(t: float, x: np.ndarray, q: np.ndarray) -> np.ndarray:
        return np.asarray(incidence @ (q[which] * (x[second] - x[first])))

    def model(times: Any) -> Any:
        m, rows = _states(times, n), incidence.tocsr()
        m.k = pyo.Var(pyo.RangeSet(0, unknowns - 1), bounds=(1e-2, 1e2))

        @m.Constraint(m.i, m.t)
        def balance(m: Any, i: int, t: float) -> Any:
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            pairs = zip(rows.indices[part].tolist(), rows.data[part].tolist(), strict=True)
            return m.dx[i, t] == sum(
                s * m.k[int(which[c])] * (m.x[int(second[c]), t] - m.x[int(first[c]), t])
                for c, s in pairs
            )

        return m

    start = np.where(np.arange(n) % 10 == 0, 1.0, 0.0)
    by_x, times = csc_array(abs(incidence) @ abs(incidence).T), np.linspace(0.2, 6, count)
    names = [f"k[{i}]" for i in range(unknowns)]
    measured = np.linspace(0, n, outputs, endpoint=False).astype(int).tolist()
    return _case(
        model, dict(zip(names, truth, strict=True)), Equations(slope, by_x, start, times), measured
    )


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


ANTOINE = np.array([[6.90565, 1211.033, 220.79], [6.95464, 1344.8, 219.482]])  # mm Hg, degrees C
PRESSURE, FEED, PART = 760.0, 1.0, 0.5  # mm Hg; kmol/min of feed; benzene in it


def column(n: int) -> Case:
    """Benzene and toluene: efficiency of the trays, their holdup, and flow of vapour."""
    by_x, times = csc_array(np.eye(n) + np.eye(n, k=-1) + np.eye(n, k=1)), np.linspace(0, n, 31)
    return _case(
        partial(_trays, n),
        {"E": 0.75, "M": 0.4, "V": 2.5},
        Equations(_distilled, by_x, np.full(n, PART), times),
        (1, n // 4, n // 2 + 2, n - 2),
    )


def _distilled(t: float, x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """dx/dt of all trays."""
    n = len(x)
    degrees, (a, b, c) = np.full(n, 95.0), ANTOINE.T[..., None]  # of both, for all trays
    for _ in range(8):  # Newton's method for the bubble points
        vapours = 10 ** (a - b / (c + degrees))
        gap = x * vapours[0] + (1 - x) * vapours[1] - PRESSURE
        by = vapours * np.log(10) * b / (c + degrees) ** 2
        degrees = degrees - gap / (x * by[0] + (1 - x) * by[1])
    equal, (efficiency, holdup, vapour) = (
        x * 10 ** (a[0] - b[0] / (c[0] + degrees)) / PRESSURE,
        q,
    )
    y = np.append(equal[0], x[1:] + efficiency * (equal[1:] - x[1:]))
    liquid = 0.6 * vapour + FEED * (np.arange(n) <= n // 2)
    gain = np.append(liquid[1:] * x[1:], vapour * x[-1]) + FEED * PART * (np.arange(n) == n // 2)
    gain[1:] += vapour * y[:-1]
    loss = liquid * x + vapour * y
    loss[0], loss[-1] = (liquid[1] - vapour) * x[0] + vapour * y[0], 2 * vapour * x[-1]
    ends = np.isin(np.arange(n), (0, n - 1))
    return np.asarray((gain - loss) / holdup / np.where(ends, 10, 1))


def _trays(n: int, times: Any) -> Any:
    middle = n // 2
    m = _states(times, n)
    m.T = pyo.Var(m.i, m.t, bounds=(50, 150), initialize=95)
    for name, low, high in (("E", 0.2, 1.0), ("M", 0.05, 5.0), ("V", 1.8, 4.0)):
        m.add_component(name, pyo.Var(bounds=(low, high)))

    def vapour(k: int, degrees: Any) -> Any:
        a, b, c = ANTOINE[k].tolist()
        return 10 ** (a - b / (c + degrees))

    @m.Constraint(m.i, m.t)
    def bubble_point(m: Any, i: int, t: float) -> Any:
        x, degrees = m.x[i, t], m.T[i, t]
        return x * vapour(0, degrees) + (1 - x) * vapour(1, degrees) == PRESSURE

    def gas(m: Any, i: int, t: float) -> Any:
        x, equal = m.x[i, t], m.x[i, t] * vapour(0, m.T[i, t]) / PRESSURE
        return x + m.E * (equal - x) if i else equal

    @m.Constraint(m.i, m.t)
    def balance(m: Any, i: int, t: float) -> Any:
        x, below = m.x[i, t], gas(m, i - 1, t) if i else 0.0
        above, under = (0.6 * m.V + FEED * (k <= middle) for k in (i + 1, i))
        if i == n - 1:  # the condenser
            return m.dx[i, t] == m.V * (below - x) / (10 * m.M)
        if i == 0:  # the reboiler
            gain, loss = above * m.x[1, t], (above - m.V) * x + m.V * gas(m, 0, t)
            return m.dx[i, t] == (gain - loss) / (10 * m.M)
        gain = above * m.x[i + 1, t] + m.V * below + FEED * PART * (i == middle)
        return m.dx[i, t] == (gain - under * x - m.V * gas(m, i, t)) / m.M

    return m


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


FAMILIES: dict[str, Callable[[int], Case]] = {
    "chain": chain,
    "network": network,
    "tube": tube,
    "column": column,
}
