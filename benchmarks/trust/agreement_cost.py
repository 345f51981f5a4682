"""What the comparison of a translation with Pyomo's own values costs.

Processor time of `read_systems` of a new `Problem` (which compares) less that of a second reading
(which does not), as a share of the time to build the problem and to read it without comparing.
Smallest of several repetitions. Cases: problems of `models/`, and chains of 2, 20 and 100 states
x' = k x / (1 + x) of the neighbour less its own, measured at 20 times.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_most
from pyomo.dae import ContinuousSet, DerivativeVar

import igpe
from igpe.equations.system import read_systems

MODELS = ("consecutive", "bellman", "methanol", "lotka_volterra", "urethane")
SIZES = (2, 20, 100)
SHARE = 10.0  # percent
REPEATED = 7


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """A row for each case."""
    cases: dict[str, Callable[[], igpe.Problem]] = {n: _published(n) for n in MODELS}
    cases |= {f"chain of {n}": _chain(n) for n in SIZES}
    for name, make in cases.items():
        if given.only and given.only not in name:
            continue
        built, first, second = np.min([_times(make) for _ in range(REPEATED)], axis=0)
        yield at_most(name, "build and read", 1000 * (built + second), "ms")
        share = 100 * (first - second) / (built + second)
        limit = SHARE if name == f"chain of {SIZES[-1]}" or name in MODELS else None
        yield at_most(name, "comparison", share, "%", limit)


def _times(make: Callable[[], igpe.Problem]) -> tuple[float, float, float]:
    """Seconds to build the problem, to read and compare it, to read it again."""
    start = time.process_time()
    problem = make()
    built = time.process_time()
    read_systems(problem)
    first = time.process_time()
    read_systems(problem)
    return built - start, first - built, time.process_time() - first


def _published(name: str) -> Callable[[], igpe.Problem]:
    return importlib.import_module(name).problem  # type: ignore[no-any-return]


def _chain(n: int) -> Callable[[], igpe.Problem]:
    times = np.linspace(0.0, 10.0, 20)
    names = [f"x[{i}]" for i in range(1, n + 1)]
    data = pd.DataFrame({"time": times, **{name: 1 + 0 * times for name in names}})
    run = igpe.Experiment(data, start=dict.fromkeys(names, 1.0))

    def model(times: list[float]) -> pyo.ConcreteModel:
        m = pyo.ConcreteModel()
        m.t, m.S = ContinuousSet(initialize=times), pyo.RangeSet(n)
        m.x = pyo.Var(m.t, m.S, initialize=1.0)
        m.dx = DerivativeVar(m.x, wrt=m.t)
        m.k = pyo.Var(m.S, bounds=(0, 5), initialize=1.0)

        def rate(m: pyo.ConcreteModel, t: float, i: int) -> object:
            come = m.k[i - 1] * m.x[t, i - 1] / (1 + m.x[t, i - 1]) if i > 1 else 0.0
            return m.dx[t, i] == come - m.k[i] * m.x[t, i] / (1 + m.x[t, i])

        m.rate = pyo.Constraint(m.t, m.S, rule=rate)
        return m

    return lambda: igpe.Problem(model, parameters=["k"], experiments=run)
