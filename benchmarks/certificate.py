"""Proofs on the differential equations: boxes, seconds and what is left, of published problems.

Times are of the proof alone, the best parameters being given; processor seconds of one core.
"""

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import CONSOLE, MODELS, Row, at_least, at_most, command
from pyomo import dae

import igpe
from igpe.dynamic.residuals import Residuals
from igpe.equations.system import read_systems
from igpe.proof.enclosure import Enclosure
from igpe.proof.posed import posed

LIMITS = {
    "consecutive": 0.1,
    "gas_oil_cracking": 0.1,
    "bellman": 0.1,
    "reversible": 0.4,
    "lotka_volterra": 1.0,
    "cops_gas_oil": 1.0,
}
REPEATS = 3
SAMPLES = 20_000  # of each problem
PER_BOX = 100
PATIENCE = 120.0  # s, for harder problems
SCIP = 10.0  # s, many times ours
SLACK = 1e-6  # of a residual: what the integration in between may be off

FIRST = """
import importlib, sys, time
sys.path.append({models!r})
case = importlib.import_module("bellman")
import igpe
problem = case.problem()
began = time.perf_counter()
igpe.certify(problem, case.OPTIMUM)
print(time.perf_counter() - began, time.process_time())
"""


def timed(name: str, gap: float) -> tuple[float, igpe.DynamicCertificate]:
    """Least processor seconds of some proofs, and the proof."""
    case = importlib.import_module(name)
    problem, least = case.problem(), np.inf
    for _ in range(REPEATS + 1):  # the first may compile or load
        began = time.process_time()
        found = igpe.certify(problem, case.OPTIMUM, gap=gap, time_limit=300)
        least = min(least, time.process_time() - began)
    return least, found


def problems(_: Any) -> Iterator[Row]:
    """The published problems at two gaps."""
    for name, limit in LIMITS.items():
        seconds, found = timed(name, 1e-3)
        CONSOLE.print(f"{name}: {found}\n", highlight=False, soft_wrap=True)
        yield at_most(name, f"gap 1e-3, {found.examined} boxes, time", seconds, "s", limit)
        yield at_most(name, "gap 1e-3, not decided", found.open_share, limit=0.0)
        tight, found = timed(name, 1e-6)
        yield at_most(name, f"gap 1e-6, {found.examined} boxes, time", tight, "s")
        yield at_most(name, "gap 1e-6 : 1e-3, time", tight / seconds, limit=1.5)
        yield at_most(name, "gap 1e-6, not decided", found.open_share, limit=0.0)


def first(_: Any) -> Iterator[Row]:
    """The first call in a process, with and without what an earlier one left on disk."""
    code = FIRST.format(models=str(MODELS))
    with tempfile.TemporaryDirectory() as folder:
        for figure, limit in (("first call", 60.0), ("first call, cached", 3.0)):
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "NUMBA_CACHE_DIR": folder},
                capture_output=True,
                text=True,
                check=True,
            )
            wall, processor = (float(v) for v in done.stdout.split())
            yield at_most("bellman", f"{figure}, wall", wall, "s", limit)
            yield at_most("bellman", f"{figure}, process with imports, processor", processor, "s")


def containment(_: Any) -> Iterator[Row]:
    """Residuals of random parameters of random boxes, integrated: how many lie outside."""
    for name in LIMITS:
        problem = importlib.import_module(name).problem()
        residuals = Residuals(problem, read_systems(problem), igpe.Sundials(rtol=1e-10, atol=1e-12))
        outside, checked = violations(problem, residuals)
        yield at_least(name, "residuals checked", checked, "-", SAMPLES)
        yield at_most(name, "outside their enclosure", outside, "-", 0)


def violations(problem: Any, residuals: Residuals) -> tuple[int, int]:
    """How many residuals lie outside what is claimed, and how many were looked at."""
    enclosure, rng = Enclosure(posed(problem), degree=3), np.random.default_rng(1)
    low, high = problem.box.lower, problem.box.upper
    measured = residuals.runs[0].measurements  # of the only experiment
    order = np.lexsort((measured.column, measured.row))
    outside = checked = 0
    while checked < SAMPLES:
        middle = low + (high - low) * rng.random(len(low)) ** 3
        radius = (high - low) * 10 ** rng.uniform(-4, -1)
        lower, upper = np.maximum(low, middle - radius), np.minimum(high, middle + radius)
        claim = enclosure.examine(lower, upper, 1e300)
        rows = enclosure.rows
        for _ in range(PER_BOX // len(rows.low) + 1):
            found = residuals(lower + (upper - lower) * rng.random(len(low)))
            if found is None:
                continue
            r = found.residual[order]
            room = SLACK * (1 + np.abs(r))
            outside += int(((r < rows.low - room) | (r > rows.high + room)).sum())
            outside += int(r @ r < claim.bound * (1 - SLACK))
            checked += len(r)
    return outside, checked


def beyond(_: Any) -> Iterator[Row]:
    """Harder ones, to a gap of 1e-2: unknown start values, oscillations, several temperatures."""
    for name, (problem, start) in harder().items():
        began = time.process_time()
        found = igpe.certify(problem, start, gap=1e-2, time_limit=PATIENCE)
        seconds = time.process_time() - began
        CONSOLE.print(f"{name}: {found}\n", highlight=False, soft_wrap=True)
        yield at_most(name, f"gap 1e-2, {found.examined} boxes, time", seconds, "s")
        yield at_most(name, "gap 1e-2, not decided", found.open_share, limit=0.0)


def harder() -> dict[str, tuple[igpe.Problem, dict[str, float] | None]]:
    """Name -> problem, and good parameters where they are known."""
    pendulum, nagumo = (importlib.import_module(n) for n in ("pendulum", "fitzhugh_nagumo"))
    run = igpe.Experiment(
        nagumo.simulated(0, 0), start={"V": -1.0, "R": 1.0}, start_time=0.0, sigma=nagumo.NOISE
    )
    half = {n: (0.5 * nagumo.TRUTH[n], 1.5 * nagumo.TRUTH[n]) for n in ("a", "b", "c")}
    return {
        "pendulum, 2 parameters, 2 starts": (pendulum.problem(), pendulum.OPTIMUM),
        "FitzHugh-Nagumo, +-50 %": (
            igpe.Problem(nagumo.model, parameters=half, experiments=[run]),
            None,
        ),
        "Arrhenius, 3 temperatures": (arrhenius(), None),
        "methanol (problem 5)": (
            importlib.import_module("methanol").problem(),
            importlib.import_module("methanol").OPTIMUM,
        ),
    }


def decay(times: Iterable[float]) -> Any:
    """A -> B with a rate constant at 320 K and an activation energy in kJ/mol."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t)
    m.dA = dae.DerivativeVar(m.A)
    m.T = pyo.Param(mutable=True, initialize=320.0)
    m.k, m.E = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(10, 150))
    rate = m.k * pyo.exp(-m.E / 8.314e-3 * (1 / m.T - 1 / 320.0))
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -rate * m.A[t])
    return m


def arrhenius() -> igpe.Problem:
    """The decay at 300, 320 and 340 K, with 1 % of noise."""
    rng, times, runs = np.random.default_rng(0), np.linspace(0.2, 2.0, 10), []
    for temperature in (300.0, 320.0, 340.0):
        k = 0.8 * np.exp(-60.0 / 8.314e-3 * (1 / temperature - 1 / 320.0))
        table = pd.DataFrame({"time": times, "A": np.exp(-k * times)})
        table["A"] += 0.01 * rng.standard_normal(len(times))
        more = {"start": {"A": 1.0}, "start_time": 0.0, "inputs": {"T": temperature}}
        runs.append(igpe.Experiment(table, name=f"{temperature:g} K", **more))
    return igpe.Problem(decay, parameters=["k", "E"], experiments=runs)


def scip(_: Any) -> Iterator[Row]:
    """SCIP on the collocated problem, which is another one, for at least as long."""
    for name in LIMITS:
        case = importlib.import_module(name)
        began = time.perf_counter()
        found = igpe.Collocation(solver=igpe.Scip(), time_limit=SCIP).estimate(
            case.problem(), case.OPTIMUM
        )
        gap = 1 - found.lower_bound / found.objective
        yield at_most(name, "SCIP on the collocated problem, gap", gap)
        yield at_most(
            name, "SCIP on the collocated problem, time", time.perf_counter() - began, "s"
        )


SECTIONS = {
    "problems": problems,
    "first": first,
    "containment": containment,
    "beyond": beyond,
    "scip": scip,
}


if __name__ == "__main__":
    command(__doc__, "Proofs on the differential equations", SECTIONS)
