"""Scales, offsets and deviations eliminated from the search, beside a search over all unknowns.

    python benchmarks/hierarchical.py [boehm] [elowitz] [borghans] [fujita] [line] [--json FILE]

boehm, elowitz, borghans, fujita
      PEtab problems, from 10 starts scattered over a decade to each side of the published
      parameters: iterations and integrations (sums over the starts), how many starts end
      within 0.1 of the best negative log-likelihood, and standard errors at the best
line  a problem that is no PEtab one, with a scale, an offset and a deviation in an
      expression, from 10 starts over its box
"""

import argparse
import csv
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most, command
from petab_problems import files
from pyomo import dae

import igpe
from igpe.numerics.least_squares.gauss_newton import GaussNewton

STARTS, SEED = 10, 1
NEAR = 0.2  # of minus twice the logarithm of the likelihood
FEWER = 3.0
MOST = 300  # iterations of one search


def published(problem: igpe.Problem, name: str) -> list[np.ndarray]:
    """Starts around the published parameters."""
    table = next(files(name).parent.glob("parameters*.tsv"))
    with table.open() as text:
        rows = {r["parameterId"]: r for r in csv.DictReader(text, delimiter="\t")}
    nominal = problem.box.vector({n: float(rows[n]["nominalValue"]) for n in problem.box.names})
    shifts = np.random.default_rng(SEED).uniform(-1, 1, (STARTS, len(nominal)))
    return [problem.box.clip(nominal * 10.0**shift) for shift in shifts]


def instrument(times: np.ndarray) -> pyo.ConcreteModel:
    """A becomes B, which decays; B and half of A are seen through an unknown instrument."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.B = pyo.Var(m.t, initialize=1.0), pyo.Var(m.t, initialize=0.0)
    m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
    m.k1 = pyo.Var(bounds=(0.01, 100), initialize=1.0)
    m.k2 = pyo.Var(bounds=(0.01, 100), initialize=1.0)
    m.scale = pyo.Var(bounds=(0.1, 1e4), initialize=1.0)
    m.offset = pyo.Var(bounds=(-100, 100), initialize=0.0)
    m.sd = pyo.Var(bounds=(1e-3, 100), initialize=1.0)
    m.seen = pyo.Expression(m.t, rule=lambda m, t: m.offset + m.scale * (m.B[t] + 0.5 * m.A[t]))
    m.rate_a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.A[t])
    m.rate_b = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
    return m


def line() -> igpe.Problem:
    """25 values with normal errors."""
    times = np.linspace(0, 10, 25)
    a = np.exp(-0.8 * times)
    b = 0.8 / (0.3 - 0.8) * (np.exp(-0.8 * times) - np.exp(-0.3 * times))
    seen = 7.0 + 40.0 * (b + 0.5 * a) + np.random.default_rng(0).normal(0, 0.5, len(times))
    data = pd.DataFrame({"time": times, "seen": seen})
    sigma = {"seen": igpe.EstimatedSigma("sd")}
    run = igpe.Experiment(data, start={"A": 1.0, "B": 0.0}, sigma=sigma)
    names = ["k1", "k2", "scale", "offset", "sd"]
    return igpe.Problem(instrument, parameters=names, experiments=run)


def compared(problem: igpe.Problem, starts: list[np.ndarray], case: str) -> Iterator[Row]:
    """The same starts with and without."""
    ends, counts, errors = [], [], []
    for hierarchical in (True, False):
        search = GaussNewton(max_iterations=MOST)
        ready = igpe.SingleShooting(search=search, hierarchical=hierarchical).prepare(problem)
        before, began = ready.residuals.calls, time.process_time()
        fits = [ready.fit(problem.box.mapping(x)) for x in starts]
        kind = "eliminated" if hierarchical else "all searched"
        counts.append(sum(fit.iterations for fit in fits))
        ends.append(np.array([fit.cost for fit in fits]))
        yield at_most(case, f"{kind}: iterations", counts[-1])
        yield at_most(case, f"{kind}: integrations", ready.residuals.calls - before)
        yield at_most(case, f"{kind}: processor time", time.process_time() - began, "s")
        best = min(fits, key=lambda fit: fit.cost)
        errors.append(np.diag(np.linalg.pinv(best.at.jacobian.T @ best.at.jacobian)) ** 0.5)
    yield at_least(case, "times fewer iterations", counts[1] / counts[0], "-", FEWER)
    least = min(cost.min() for cost in ends)
    for cost, kind in zip(ends, ("eliminated", "all searched"), strict=True):
        count = int(sum(cost <= least + NEAR))
        yield at_least(case, f"{kind}: starts at the best", count, "of 10", 1)
    yield at_most(case, "difference of the best", abs(ends[0].min() - ends[1].min()), "-", 1e-3)
    wrong = np.abs(errors[0] / errors[1] - 1).max()
    yield at_most(case, "relative difference of standard errors", wrong, "-", 1e-2)


def collection(name: str) -> Iterator[Row]:
    """A PEtab problem."""
    problem = igpe.petab.read_petab(files(name))
    yield from compared(problem, published(problem, name), name)


def boehm(_: argparse.Namespace) -> Iterator[Row]:
    """Three standard deviations of nine unknowns."""
    yield from collection("Boehm")


def elowitz(_: argparse.Namespace) -> Iterator[Row]:
    """A scale, an offset and a standard deviation of 21 unknowns."""
    yield from collection("Elowitz")


def borghans(_: argparse.Namespace) -> Iterator[Row]:
    """A scale, an offset and a standard deviation of 23 unknowns."""
    yield from collection("Borghans")


def fujita(_: argparse.Namespace) -> Iterator[Row]:
    """Three scales of nineteen unknowns."""
    yield from collection("Fujita")


def own(_: argparse.Namespace) -> Iterator[Row]:
    """Three of five unknowns."""
    problem = line()
    yield from compared(problem, list(problem.box.sobol(STARTS, SEED)), "line")


if __name__ == "__main__":
    cases = {"boehm": boehm, "elowitz": elowitz, "borghans": borghans, "fujita": fujita}
    command(__doc__, "Eliminated unknowns", {**cases, "line": own})
