"""Constraints in multiple shooting beside collocation, and unknowns that vary with time.

    python benchmarks/constraints.py [agreement] [cycle] [varying] [--json FILE]

agreement  one decay with noise, 33 constraints from hardly felt to far against the data: relative
           difference of the sums of squares from those of collocation, the largest of each kind
cycle      a noisy limit cycle of van der Pol's oscillator from 100 random starts: how many close
           at the best fit, and how well; processor time of a fit
varying    a feed in 5 to 60 unknown pieces: processor time of single and multiple shooting
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most, command
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

TIMES = np.linspace(0.0, 3.0, 13)
START = {"k": 2.0, "u": 1.0, "A(t0)": 1.0}
ONCE = igpe.search.Restarts(count=0)
PERIOD, TOP = 6.908280930334428, 2.01273153  # of van der Pol's cycle with mu = 1.3, w = 1


def end(m: Any) -> Any:
    """The state at the last time."""
    return m.A[m.t.last()]


Kind = tuple[Callable[[Any, float], Any], tuple[float, ...]]
KINDS: dict[str, Kind] = {
    "end above": (
        lambda m, v: pyo.Constraint(expr=end(m) >= v),
        (0.5, 0.8, 1.2, 1.8, 3.0, 6.0),
    ),
    "path below": (
        lambda m, v: pyo.Constraint(m.t, rule=lambda m, t: m.A[t] <= v),
        (1.8, 1.4, 1.0, 0.5, 0.1),
    ),
    "path above": (
        lambda m, v: pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= v),
        (0.5, 0.8, 1.2, 2.0, 4.0),
    ),
    "slope above": (
        lambda m, v: pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] >= v),
        (-1.2, -0.8, -0.3, 0.0, 0.5),
    ),
    "start and end": (
        lambda m, v: pyo.Constraint(expr=m.A[m.t.first()] == v * end(m)),
        (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0),
    ),
    "end and parameter": (
        lambda m, v: pyo.Constraint(expr=end(m) ** 2 + m.k**2 == v),
        (0.3, 1.0, 3.0, 8.0, 20.0),
    ),
}


def decay(constraint: Callable[[Any, float], Any], value: float) -> igpe.Problem:
    """dA = u - k A with noise, under one constraint."""

    def builder(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A, m.u = pyo.Var(m.t, initialize=1.0), pyo.Var(bounds=(0, 5), initialize=0.1)
        m.dA = dae.DerivativeVar(m.A)
        m.k = pyo.Var(bounds=(0.01, 10), initialize=1.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] + m.u)
        m.limit = constraint(m, value)
        return m

    exact = 1 / 3 + (2 - 1 / 3) * np.exp(-0.9 * TIMES)
    noise = 0.05 * np.random.default_rng(0).normal(size=len(TIMES))
    data = pd.DataFrame({"time": TIMES, "A": exact + noise})
    run = igpe.Experiment(data, start={"A": igpe.Unknown(0, 5)}, sigma=0.05)
    return igpe.Problem(builder, parameters=["k", "u"], experiments=run)


def agreement(given: argparse.Namespace) -> Iterator[Row]:
    """Both methods on the same constraints."""
    for kind, (constraint, values) in KINDS.items():
        off, usable = [], 0
        for value in values:
            problem = decay(constraint, value)
            found = igpe.MultipleShooting(restarts=ONCE).estimate(problem, START)
            known = igpe.Collocation().estimate(problem, START)
            usable += found.status.usable
            off.append(found.objective / known.objective - 1)
        yield at_least(kind, f"converged of {len(values)}", usable, "-", len(values))
        yield at_most(kind, "largest difference", float(np.max(np.abs(off))), "-", 1e-5)


def cycle(given: argparse.Namespace) -> Iterator[Row]:
    """From anywhere inside the bounds."""
    problem = oscillation()
    prepared = igpe.MultipleShooting(restarts=ONCE).prepare(problem)
    random, box = np.random.default_rng(1), problem.box
    starts = [box.mapping(random.uniform(box.lower, box.upper)) for _ in range(100)]
    began = time.process_time()
    found = [prepared.estimate(s) for s in starts]
    seconds = time.process_time() - began
    best = min(e.objective for e in found if e.status.usable)
    good = [e for e in found if e.status.usable and e.objective <= 1.001 * best]
    yield at_least("limit cycle", "best fits of 100", len(good), "-", 95)
    yield at_most("limit cycle", "largest gap", max(map(gap, good)), "-", 1e-6)
    yield at_most("limit cycle", "time of a fit", 1e3 * seconds / len(found), "ms")


def oscillation() -> igpe.Problem:
    """One noisy period, of which the position is measured."""

    def builder(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.y = pyo.Var(m.t), pyo.Var(m.t)
        m.dx, m.dy = dae.DerivativeVar(m.x), dae.DerivativeVar(m.y)
        m.mu, m.w = pyo.Var(bounds=(0.1, 5)), pyo.Var(bounds=(0.1, 3))
        m.of_x = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.y[t])
        m.of_y = pyo.Constraint(
            m.t, rule=lambda m, t: m.dy[t] == m.mu * (1 - m.x[t] ** 2) * m.y[t] - m.w * m.x[t]
        )
        m.closed_x = pyo.Constraint(expr=m.x[m.t.last()] == m.x[m.t.first()])
        m.closed_y = pyo.Constraint(expr=m.y[m.t.last()] == m.y[m.t.first()])
        return m

    times = np.linspace(0.0, PERIOD, 25)
    noise = 0.1 * np.random.default_rng(0).normal(size=len(times))
    data = pd.DataFrame({"time": times, "x": swing(1.3, 1.0, (TOP, 0.0), times)[0] + noise})
    start = {"x": igpe.Unknown(-5, 5), "y": igpe.Unknown(-5, 5)}
    run = igpe.Experiment(data, start=start, sigma=0.1)
    return igpe.Problem(builder, parameters=["mu", "w"], experiments=run)


def swing(mu: float, w: float, start: tuple[float, float], times: Any) -> Any:
    """(2, n_times) the oscillator, by SciPy."""

    def slope(_: float, s: Any) -> list[float]:
        return [s[1], mu * (1 - s[0] ** 2) * s[1] - w * s[0]]

    return solve_ivp(slope, (0, times[-1]), start, rtol=1e-12, atol=1e-13, t_eval=times).y


def gap(found: igpe.Estimate) -> float:
    """How far the cycle is from closing."""
    p = found.parameters
    ends = swing(p["mu"], p["w"], (p["x(t0)"], p["y(t0)"]), np.array([0.0, PERIOD]))
    return float(np.max(np.abs(ends[:, 1] - ends[:, 0])))


def varying(given: argparse.Namespace) -> Iterator[Row]:
    """A feed that jumps twice, sought in more and more pieces."""

    def builder(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A, m.feed = pyo.Var(m.t), pyo.Var(m.t)
        m.dA = dae.DerivativeVar(m.A)
        m.k = pyo.Var(bounds=(0.01, 5))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed[t] - m.k * m.A[t])
        return m

    times = np.linspace(0.0, 8.0, 161)
    feed = igpe.step_input([0.0, 2.4, 5.6], [1.0, 0.2, 2.0])
    ran = solve_ivp(
        lambda t, a: feed.at(t) - 0.8 * a, (0, 8), [1.0], rtol=1e-8, max_step=0.05, t_eval=times
    )
    noise = 0.02 * np.random.default_rng(0).normal(size=len(times))
    data = pd.DataFrame({"time": times, "A": ran.y[0] + noise})
    run = igpe.Experiment(data, start={"A": 1.0}, sigma=0.02)
    for n in (5, 20, 60):
        course = igpe.losses.PiecewiseConstant(
            tuple(np.linspace(0, 8, n + 1)[1:-1]), 0, 5, penalty=5.0
        )
        problem = igpe.Problem(
            builder, parameters=["k"], experiments=run, time_varying={"feed": course}
        ).fixing({"k": 0.8})
        start = dict.fromkeys(problem.box.names, 1.0)
        single = igpe.SingleShooting().prepare(problem)
        multiple = igpe.MultipleShooting(restarts=ONCE, finer=1).prepare(problem)
        one, other = single.estimate(start), multiple.estimate(start)
        off = abs(other.objective / one.objective - 1)
        yield at_most(f"{n} pieces", "difference of both", off, "-", 1e-6)
        for name, method in (("single", single), ("multiple", multiple)):
            began = time.process_time()
            for _ in range(5):
                method.estimate(start)
            yield at_most(f"{n} pieces", name, 200 * (time.process_time() - began), "ms")


if __name__ == "__main__":
    command(
        __doc__,
        "Constraints",
        {"agreement": agreement, "cycle": cycle, "varying": varying},
    )
