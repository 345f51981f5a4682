"""Scales, offsets and deviations eliminated from the search, beside a search over all unknowns.

    python benchmarks/hierarchical.py [boehm] [elowitz] [borghans] [fujita] [line] [--json FILE]

boehm, elowitz, borghans, fujita
      PEtab problems, from a Sobol sequence over the logarithms of the bounds
line  a problem that is no PEtab one, with a scale, an offset and a deviation in an
      expression, from a Sobol sequence over its box

Each case: how many starts reach the lowest minus twice the logarithm of the likelihood that any
of the searches reaches, within 0.2, and integrations for each of these: those until it was
reached, and all of the starts that do not reach it. With elimination an integration is an
iteration. The search is igpe's Gauss-Newton; for comparison, SciPy's L-BFGS-B in logarithms, which
knows gradients alone, as most programs do that eliminate. At the best of Gauss-Newton standard
errors are compared.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most, command
from petab_problems import files
from pyomo import dae
from scipy.optimize import minimize

import igpe
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Fit, Logarithms, Residual, Search
from igpe.numerics.least_squares.gauss_newton import GaussNewton

SEED = 1
NEAR = 0.2  # of minus twice the logarithm of the likelihood
FEWER = 3.0
MOST = 300  # iterations of one search
KINDS = {True: "eliminated", False: "all searched"}


@dataclass(frozen=True)
class QuasiNewton:
    """L-BFGS-B, by the gradient of the cost alone."""

    tolerance: float = 1e-9
    absolute: float = 0.0

    def fit(self, residual: Residual, start: np.ndarray, box: Box) -> Fit:
        """See `Search`."""
        logs = Logarithms(box)
        seen, ends = logs.seen(residual), list(zip(logs.box.lower, logs.box.upper, strict=True))

        def half(u: np.ndarray) -> tuple[float, np.ndarray]:
            at = seen(u)
            if at is None or not np.isfinite(at.cost):
                return 1e10, np.zeros(len(u))
            return at.cost / 2, at.jacobian.T @ at.residual

        ended = minimize(
            half, logs.there(box.clip(start)), jac=True, method="L-BFGS-B", bounds=ends,
            options={"maxiter": 4 * MOST, "maxfun": 4 * MOST, "ftol": self.tolerance},
        )  # fmt: skip
        x = logs.home(ended.x)
        status = Status.CONVERGED if ended.success else Status.ITERATION_LIMIT
        return Fit(x, residual(x), status, ended.nfev)


@dataclass(frozen=True)
class Traced:
    """A search that keeps the cost at each point at which it integrates."""

    search: Search
    costs: list[float] = field(default_factory=list)

    @property
    def tolerance(self) -> float:
        """That of the search."""
        return self.search.tolerance

    @property
    def absolute(self) -> float:
        """That of the search."""
        return self.search.absolute

    def fit(self, residual: Residual, start: np.ndarray, box: Box) -> Fit:
        """See `Search`."""

        def kept(x: np.ndarray):
            at = residual(x)
            self.costs.append(np.inf if at is None else at.cost)
            return at

        return self.search.fit(kept, start, box)


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


def compared(problem: igpe.Problem, count: int, case: str) -> Iterator[Row]:
    """The same starts with and without elimination, by both searches."""
    starts = problem.box.sobol(count, SEED)
    traces, best = {}, {}
    for name, search in (
        ("Gauss-Newton", GaussNewton(max_iterations=MOST)),
        ("L-BFGS-B", QuasiNewton()),
    ):
        for is_eliminated, kind in KINDS.items():
            began, fits = time.process_time(), []
            traced = Traced(search)
            ready = igpe.SingleShooting(search=traced, hierarchical=is_eliminated).prepare(problem)
            costs = traces[name, kind] = []
            for x in starts:
                traced.costs.clear()
                fits.append(ready.fit(problem.box.mapping(x)))
                costs.append(np.array(traced.costs))
            best[name, kind] = min(fits, key=lambda fit: fit.cost)
            yield at_most(case, f"{name}, {kind}: processor time", time.process_time() - began, "s")
    least = min(fit.cost for fit in best.values())
    each = {}
    for (name, kind), costs in traces.items():
        hits = [np.flatnonzero(cost <= least + NEAR) for cost in costs]
        spent = sum(int(h[0]) + 1 if len(h) else len(c) for h, c in zip(hits, costs, strict=True))
        reached = sum(len(h) > 0 for h in hits)
        each[name, kind] = spent / reached if reached else np.inf
        yield at_most(case, f"{name}, {kind}: starts at the best", reached, f"of {count}")
        yield at_most(case, f"{name}, {kind}: integrations for each", each[name, kind])
    for name, target in (("Gauss-Newton", FEWER), ("L-BFGS-B", None)):
        fewer = each[name, KINDS[False]] / each[name, KINDS[True]]
        figure = f"{name}: times fewer integrations"
        yield at_least(case, figure, fewer, "-", target) if target else at_most(case, figure, fewer)
    one, other = (best["Gauss-Newton", kind] for kind in KINDS.values())
    if abs(one.cost - other.cost) <= NEAR:
        one, other = (
            np.diag(np.linalg.pinv(fit.at.jacobian.T @ fit.at.jacobian)) ** 0.5
            for fit in (one, other)
        )
        wrong = np.abs(one / other - 1).max()
        yield at_most(case, "relative difference of standard errors", wrong, "-", 1e-2)


def collection(name: str, count: int) -> Iterator[Row]:
    """A PEtab problem."""
    yield from compared(igpe.petab.read_petab(files(name)), count, name)


def boehm(_: argparse.Namespace) -> Iterator[Row]:
    """Three standard deviations of nine unknowns."""
    yield from collection("Boehm", 120)


def elowitz(_: argparse.Namespace) -> Iterator[Row]:
    """A scale, an offset and a standard deviation of 21 unknowns."""
    yield from collection("Elowitz", 20)


def borghans(_: argparse.Namespace) -> Iterator[Row]:
    """A scale, an offset and a standard deviation of 23 unknowns."""
    yield from collection("Borghans", 20)


def fujita(_: argparse.Namespace) -> Iterator[Row]:
    """Three scales of nineteen unknowns."""
    yield from collection("Fujita", 10)


def own(_: argparse.Namespace) -> Iterator[Row]:
    """Three of five unknowns."""
    yield from compared(line(), 20, "line")


if __name__ == "__main__":
    cases = {"boehm": boehm, "elowitz": elowitz, "borghans": borghans, "fujita": fujita}
    command(__doc__, "Eliminated unknowns", {**cases, "line": own})
