"""What the comparison of a translation with Pyomo's own values costs.

Time within `require_agreement` while a new `Problem` is built and translated, as a share of the
rest of that time. Translated is what can be integrated: the initial value problem of each
experiment. Beside it the share of building and reading the equations alone, the first half.
Medians of many repetitions. Cases: problems of `models/`, and chains of 2, 20 and 100 states
x' = k x / (1 + x) of the neighbour less its own, measured at 20 times.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_most
from pyomo.dae import ContinuousSet, DerivativeVar

import igpe
from igpe.equations.compiled import compiled
from igpe.equations.reading import read
from igpe.equations.reading.agreement import require_agreement

MODELS = ("consecutive", "bellman", "methanol", "lotka_volterra", "urethane")
SIZES = (2, 20, 100)
SHARE = 10.0  # percent
REPEATED = 41


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """A row for each case."""
    cases: dict[str, Callable[[], igpe.Problem]] = {n: _published(n) for n in MODELS}
    cases |= {f"chain of {n}": _chain(n) for n in SIZES}
    for name, make in cases.items():
        if given.only and given.only not in name:
            continue
        times = np.median([_times(make) for _ in range(REPEATED)], axis=0)
        reading, translated, compared = 1000 * times
        yield at_most(name, "comparison", compared, "ms")
        yield at_most(name, "of building and reading", 100 * compared / reading, "%")
        limit = SHARE if name in MODELS or name == f"chain of {SIZES[-1]}" else None
        share = 100 * compared / (reading + translated)
        yield at_most(name, "of building and translating", share, "%", limit)


def _times(make: Callable[[], igpe.Problem]) -> tuple[float, float, float]:
    """Seconds to build a problem and read its equations, to translate these, and to compare."""
    spent = 0.0

    def timed(*given: object) -> None:
        nonlocal spent
        begin = time.perf_counter()
        require_agreement(*given)  # type: ignore[arg-type]
        spent += time.perf_counter() - begin

    with patch.object(read, "require_agreement", timed):
        begin = time.perf_counter()
        problem = make()
        equations = compiled(problem)
        reading = time.perf_counter()
        for k in range(len(problem.experiments)):
            equations.initial_value_problem(k)
        return reading - begin - spent, time.perf_counter() - reading, spent


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
