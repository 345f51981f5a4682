"""Coverage of the default 95 % intervals from few measurements whose errors nobody knows.

Measurements of five small models are simulated from closed forms with normal errors of an unknown
standard deviation, 4 to 12 of them. `igpe.estimate` and `igpe.bootstrap`, all defaults, give an
interval of each unknown; compared with the truth. A case is one model with one number of
measurements and 10 drawn sets. Of each set one unknown counts, in turn, so that what is counted is
independent. The band is that of a binomial share of 95 % in so many sets, at 99.9 %.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most
from pyomo import dae
from scipy.stats import binom

import igpe
from trust.run import Answer, run

SETS = 10  # of a case
LEVEL, SURE = 0.95, 0.999


class Small(NamedTuple):
    """A model: its right-hand side, its closed form, the truth, and how it is measured.

    noise  standard deviation; horizon: of the measurements, from 0 on
    """

    rate: Callable[[Any, Any], Any]
    course: Callable[..., np.ndarray]
    truth: dict[str, float]
    start: float
    horizon: float
    noise: float


MODELS = {
    "decay": Small(lambda m, x: -m.k * x, lambda t, k: np.exp(-k * t), {"k": 0.7}, 1.0, 3.0, 0.03),
    "second_order": Small(
        lambda m, x: -m.k * x**2, lambda t, k: 1 / (1 + k * t), {"k": 1.5}, 1.0, 4.0, 0.03
    ),
    "relaxation": Small(
        lambda m, x: m.k * (m.c - x),
        lambda t, k, c: c + (0.2 - c) * np.exp(-k * t),
        {"k": 0.8, "c": 2.0},
        0.2,
        5.0,
        0.05,
    ),
    "logistic": Small(
        lambda m, x: m.r * x * (1 - x / m.c),
        lambda t, r, c: c / (1 + (c / 0.1 - 1) * np.exp(-r * t)),
        {"r": 1.2, "c": 1.5},
        0.1,
        6.0,
        0.04,
    ),
    "source": Small(
        lambda m, x: m.s - m.d * x,
        lambda t, s, d: s / d + (1.0 - s / d) * np.exp(-d * t),
        {"s": 0.5, "d": 0.9},
        1.0,
        4.0,
        0.02,
    ),
}
COUNTS = (4, 6, 8, 12)  # measurements
CASES = [f"{name}-{count}-{k}" for name in MODELS for count in COUNTS for k in range(2)]


def _model(small: Small) -> Callable[[Any], Any]:
    def model(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x = pyo.Var(m.t)
        m.dx = dae.DerivativeVar(m.x)
        for name in small.truth:
            m.add_component(name, pyo.Var(bounds=(1e-3, 20.0)))
        m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == small.rate(m, m.x[t]))
        return m

    return model


def _work(case: str) -> Answer:
    name, count, batch = case.rsplit("-", 2)
    small, number = MODELS[name], int(count)
    seed = [sorted(MODELS).index(name), number, int(batch)]
    random = np.random.default_rng(seed)
    times = np.linspace(0, small.horizon, number + 1)[1:]
    names = list(small.truth)
    answers: dict[str, list[bool]] = {"estimate": [], "bootstrap": []}
    lost = 0
    for k in range(SETS):
        values = small.course(times, **small.truth) + small.noise * random.standard_normal(number)
        run_ = igpe.Experiment(pd.DataFrame({"time": times, "x": values}), start={"x": small.start})
        problem = igpe.Problem(_model(small), parameters=names, experiments=run_)
        chosen = names[k % len(names)]
        truth = small.truth[chosen]
        try:
            result = igpe.estimate(problem)
            table = igpe.bootstrap(problem, result, seed=k).to_frame()
        except igpe.errors.IgpeError:
            lost += 1
            continue
        one = next(p for p in result.estimates if p.name == chosen)
        answers["estimate"].append(bool(one.lower <= truth <= one.upper))
        row = table.loc[chosen]
        answers["bootstrap"].append(bool(row["lower"] <= truth <= row["upper"]))
    return {**answers, "lost": lost}


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Coverage of each kind of interval, and of each number of measurements."""
    answers = run("small_samples", CASES, _work, given, limit=120.0)
    lost = sum(a.get("lost", SETS) for a in answers.values())
    for kind in ("estimate", "bootstrap"):
        inside = np.array([hit for a in answers.values() for hit in a.get(kind, [])])
        n = max(len(inside), 1)
        low, high = (binom.ppf(p, n, LEVEL) / n for p in ((1 - SURE) / 2, (1 + SURE) / 2))
        share = float(np.mean(inside)) if len(inside) else 0.0
        yield at_least(kind, f"coverage of {n} intervals", 100 * share, "%", 100 * low)
        yield at_most(kind, f"coverage of {n} intervals", 100 * share, "%", 100 * high)
        for count in COUNTS:
            here = [a.get(kind, []) for c, a in answers.items() if f"-{count}-" in c]
            some = [hit for hits in here for hit in hits]
            if some:
                figure = f"coverage, {count} measurements"
                yield at_most(kind, figure, 100 * float(np.mean(some)), "%")
    yield at_most("both", "sets without an answer", float(lost))
