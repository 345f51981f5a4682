"""Models distributed in space: are published parameters estimated from noisy measurements?

    python benchmarks/space.py [CASE ...] [front] [--json FILE]

Six published models (benchmarks/space) are measured at a few positions, with normal errors of seed
1; data come from an exact solution or from a grid three times as fine. Figures of each parameter:
its distance from the published one as a share of what is allowed, the larger of three standard
errors and 2 %; the error of the grid in standard errors. Of each case: processor seconds.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_most, command
from pyomo import dae

import igpe

CASES = ("dispersion", "adsorption", "fixed_bed", "slab", "chromatography", "heat")
ERRORS, SHARE = 3.0, 0.02
LEGIBLE = str.maketrans("[]", "()")  # brackets are markup of the table


def measure(name: str, _: argparse.Namespace) -> Iterator[Row]:
    """Figures of one case."""
    case = import_module(f"space.{name}").CASE
    problem = case.problem()
    start = time.process_time()
    result = igpe.estimate(problem, certify=False)
    yield at_most(name, "seconds of the processor", time.process_time() - start, "s")
    start = time.process_time()
    errors = igpe.uncertainty.grid_error(problem, result)
    yield at_most(name, "seconds for the error of the grid", time.process_time() - start, "s")
    for parameter, true in case.truth.items():
        label = f"{name} {parameter.translate(LEGIBLE)}"
        error = errors.loc[parameter, "standard_error"]
        allowed = max(ERRORS * error, SHARE * abs(true))
        distance = abs(result.parameters[parameter] - true)
        yield at_most(label, "distance / allowed", distance / allowed, limit=1.0)
        grid = errors.loc[parameter, "grid_error"] / error
        yield at_most(label, "error of the grid / standard error", grid)


def front(_: argparse.Namespace) -> Iterator[Row]:
    """A step through a tube of length 1 at a speed of 1."""
    times = np.linspace(0.02, 2, 100)
    table = pd.DataFrame({"time": times, "c[1]": 0.0})
    run = igpe.Experiment(table, start={"c": 0.0}, start_time=0.0, sigma=0.01)
    for scheme in ("backward", "backward2", "backward_weno"):
        for intervals in (25, 50, 100, 200):
            grid = {"x": igpe.integrators.FiniteDifference(intervals, scheme)}
            problem = igpe.Problem(tube, parameters=["u"], experiments=run, space=grid)
            outlet = igpe.simulate(problem, {"u": 1.0}, times)["c[1]"].to_numpy()
            case = f"front {scheme} {intervals}"
            error = np.abs(outlet - (times > 1)).mean()
            yield at_most(case, "mean error", float(error))
            over = max(-outlet.min(), outlet.max() - 1.0, 0.0)
            yield at_most(case, "overshoot", float(over))


def tube(times: Sequence[float]) -> pyo.ConcreteModel:
    """Plug flow; c: relative to the feed's."""
    m = pyo.ConcreteModel()
    m.t, m.x = dae.ContinuousSet(initialize=times), dae.ContinuousSet(bounds=(0, 1))
    m.c, m.u = pyo.Var(m.t, m.x), pyo.Var(bounds=(0.1, 10))
    m.dcdt, m.dcdx = dae.DerivativeVar(m.c, wrt=m.t), dae.DerivativeVar(m.c, wrt=m.x)
    m.c[:, 0].fix(1.0)

    @m.Constraint(m.t, m.x)
    def balance(m: Any, t: float, x: float) -> Any:
        return m.dcdt[t, x] == -m.u * m.dcdx[t, x] if x > 0 else pyo.Constraint.Skip

    return m


if __name__ == "__main__":
    command(__doc__, "space", {name: partial(measure, name) for name in CASES} | {"front": front})
