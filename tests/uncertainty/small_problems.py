"""Small problems for tests of uncertainty: a line, a product that cannot be split, two valleys."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from ode import ode

import igpe

TIMES = np.linspace(0.5, 5.0, 10)


line_model = ode({"A": lambda m, t: m.k}, k=(-10, 10))
"""dA/dt = k: linear in all unknowns, so that every textbook formula is exact."""


def line(sigma=0.2, seed=1, runs=1, **settings):
    """A = start + 0.7 t with errors of 0.2; the start unknown, one slope for all runs."""
    random = np.random.default_rng(seed)
    experiments = []
    for number in range(runs):
        values = 1.0 + number + 0.7 * TIMES + 0.2 * random.standard_normal(len(TIMES))
        table = pd.DataFrame({"time": TIMES, "A": values})
        start = {"A": igpe.Unknown(-20, 20)}
        experiments.append(
            igpe.Experiment(table, start=start, start_time=0.0, sigma=sigma, name=f"r{number}")
        )
    return igpe.Problem(line_model, parameters=["k"], experiments=experiments, **settings)


def kept_line(sigma=0.2):
    """The line with a constraint that only collocation can keep: its end stays below 4.5."""

    def model(times):
        m = line_model(times)
        last = m.t.last()
        m.low = pyo.Constraint(expr=m.A[last] <= 4.5)
        return m

    return igpe.Problem(model, parameters=["k"], experiments=line(sigma).experiments)


product_model = ode({"A": lambda m, t: -m.k1 * m.k2 * m.A[t]}, k1=(0.1, 10), k2=(0.01, 100))
"""dA/dt = -k1 k2 A: only the product is known."""


def product():
    """A decay with k1 k2 = 0.5."""
    values = np.exp(-0.5 * TIMES) + 0.02 * np.random.default_rng(3).standard_normal(len(TIMES))
    run = igpe.Experiment(
        pd.DataFrame({"time": TIMES, "A": values}), start={"A": 1.0}, start_time=0.0, sigma=0.02
    )
    return igpe.Problem(product_model, parameters=["k1", "k2"], experiments=[run])


PRODUCT_NEAR = {"k1": 1.0, "k2": 0.5}


hump_model = ode({"A": lambda m, t: m.w**4 / 4 - m.w**2 / 2 + 0.1 * m.w - m.A[t]}, w=(-3, 3))
"""dA/dt = cos(w) - A: several w fit alike, one best."""


def hump():
    """The right-hand side has two valleys in w: near -1.05 (deeper) and near 0.95."""
    w = -1.05
    level = w**4 / 4 - w**2 / 2 + 0.1 * w
    values = level * (1 - np.exp(-TIMES))
    run = igpe.Experiment(
        pd.DataFrame({"time": TIMES, "A": values}), start={"A": 0.0}, start_time=0.0, sigma=0.08
    )
    return igpe.Problem(hump_model, parameters=["w"], experiments=[run])


def lines(*names):
    """A short, noisy line A and a long, exact line B that share nothing; or one of them."""
    rng = np.random.default_rng(5)
    tables = {}
    for name, start, slope, error, times in (
        ("A", 1.0, 0.5, 0.3, np.linspace(0, 8, 8)),
        ("B", 3.0, -0.2, 0.02, np.linspace(0.1, 7.9, 60)),
    ):
        values = start + slope * times + error * rng.standard_normal(len(times))
        tables[name] = pd.DataFrame({"time": times, name: values})
    slopes = {n: lambda m, t, n=n: m.component(f"k{n}") for n in names}
    build = ode(slopes, **{f"k{n}": (-10, 10) for n in names})
    run = igpe.Experiment(
        pd.concat([tables[n] for n in names]).sort_values("time"),
        start={n: igpe.Unknown(-20, 20) for n in names}, start_time=0.0,
    )  # fmt: skip
    return igpe.Problem(build, parameters=[f"k{n}" for n in names], experiments=run)
