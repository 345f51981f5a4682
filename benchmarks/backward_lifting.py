"""Backward lifting: gradients by a sweep back beside all derivatives forwards, and whole fits.

    python benchmarks/backward_lifting.py [gradient|fits] [--json FILE]

A network of reactions between 20 species, each with a rate constant of its own that is unknown,
every third one of second order; all species measured at 41 times, with errors of 0.02, in ten
intervals.

gradient  10, 50 and 200 unknowns, one experiment, at 1.1 times the truth: the gradient of the cost
          by one run and one sweep back, beside all derivatives forwards (the faster of each
          interval's own and of those through all intervals) and beside the states alone
fits      20 to 200 unknowns, one experiment for each 40 of them: from unknowns drawn at random to
          the optimum, by backward lifting and by Gauss-Newton, exact matching alone

Times are of the processor, in this one process, which has one thread.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, Section, at_least, at_most, command
from intervals import side_by_side
from pyomo import dae

import igpe
from igpe.core.arrays import FloatArray
from igpe.numerics.least_squares.chains import Lifted

SPECIES, SIGMA = 20, 0.02
NAMES = [f"x[{i}]" for i in range(SPECIES)]
TIMES = np.linspace(0.0, 2.0, 41)
ONCE = {"intervals": 10, "links": (), "finer": 1, "restarts": igpe.search.Restarts(count=0)}


def reactions(number: int) -> list[tuple[int, int]]:
    """Which species each one uses and makes: around the ring, then at random."""
    rng, found = np.random.default_rng(0), [(i, (i + 1) % SPECIES) for i in range(SPECIES)]
    while len(found) < number:
        one, other = rng.integers(SPECIES, size=2).tolist()
        if one != other and (one, other) not in found:
            found.append((one, other))
    return found[:number]


def builder(number: int) -> Any:
    """The model of so many reactions."""
    pairs = reactions(number)

    def model(times: Iterable[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t, m.i = dae.ContinuousSet(initialize=times), pyo.RangeSet(0, SPECIES - 1)
        m.x, m.k = pyo.Var(m.i, m.t), pyo.Var(range(number), bounds=(0, 20))
        m.dx = dae.DerivativeVar(m.x, wrt=m.t)

        def flow(r: int, t: float) -> Any:
            partner = m.x[(pairs[r][0] + 2) % SPECIES, t] if r % 3 == 0 else 1.0
            return m.k[r] * m.x[pairs[r][0], t] * partner

        def rate(m: Any, i: int, t: float) -> Any:
            made = sum(flow(r, t) for r, (_, end) in enumerate(pairs) if end == i)
            return m.dx[i, t] == made - sum(flow(r, t) for r, p in enumerate(pairs) if p[0] == i)

        m.rate = pyo.Constraint(m.i, m.t, rule=rate)
        return m

    return model


def posed(number: int, runs: int) -> tuple[igpe.Problem, dict[str, float]]:
    """A problem with so many unknowns and experiments, and its truth."""
    rng, model = np.random.default_rng(1), builder(number)
    truth = {f"k[{r}]": float(v) for r, v in enumerate(rng.uniform(0.3, 2.0, number))}
    starts = rng.uniform(0.2, 2.0, (runs, SPECIES))

    def problem(values: Iterable[FloatArray]) -> igpe.Problem:
        experiments = [
            igpe.Experiment(
                pd.DataFrame(v, columns=NAMES).assign(time=TIMES),
                name=f"run {e}",
                start=dict(zip(NAMES, start.tolist(), strict=True)),
                sigma=SIGMA,
            )
            for e, (v, start) in enumerate(zip(values, starts, strict=True))
        ]
        return igpe.Problem(model, parameters=list(truth), experiments=experiments)

    empty = problem([np.zeros((len(TIMES), SPECIES))] * runs)
    shootings = igpe.MultipleShooting(intervals=1).prepare(empty).chains.shootings
    q = empty.box.vector(truth)
    exact = [s.shoot(q, x[None]).measured for s, x in zip(shootings, starts, strict=True)]
    return problem([v + SIGMA * rng.normal(size=v.shape) for v in exact]), truth


def gradient() -> Iterator[Row]:
    """Of one experiment, at one point."""
    for number in (10, 50, 200):
        problem, truth = posed(number, 1)
        method = igpe.MultipleShooting(search=igpe.search.BackwardLifting(), **ONCE)
        prepared = method.prepare(problem)
        point = prepared.begin(1.1 * problem.box.vector(truth))
        (shooting,), (nodes,) = prepared.chains.shootings, point.nodes
        given = (shooting, point.unknowns, nodes)

        def back(given: Any = given) -> FloatArray:
            chain = given[0].chain(*given[1:])
            assert isinstance(chain, Lifted)
            return chain.gradient(chain.residual + chain.shift)

        calls = {
            "states alone": partial(shooting.shoot, *given[1:]),
            "sweep back": back,
            "own": lambda given=given: replace(given[0], form="each").chain(*given[1:]).condensed(),
            "through": lambda given=given: (
                replace(given[0], form="through").chain(*given[1:]).condensed()
            ),
        }
        took = {
            name: median(times)
            for name, times in zip(calls, side_by_side(list(calls.values())), strict=True)
        }
        whole = min(took["own"], took["through"])
        affine = calls["through"]()
        forwards = affine.jacobian.T @ (shooting.chain(*given[1:]).residual + affine.shift)
        error = np.max(np.abs(back() - forwards)) / np.max(np.abs(forwards))
        case, least = f"{number} unknowns", {200: 3.0}.get(number)
        yield at_most(case, "states alone", 1e3 * took["states alone"], "ms")
        yield at_most(case, "gradient by a sweep back", 1e3 * took["sweep back"], "ms")
        yield at_most(case, "all derivatives forwards", 1e3 * whole, "ms")
        yield at_most(case, "sweep / states", took["sweep back"] / took["states alone"], "times")
        faster = ("sweep back faster", whole / took["sweep back"], "times")
        yield at_most(case, *faster) if least is None else at_least(case, *faster, least)
        yield at_most(case, "largest difference, relative", error, "-", 1e-10)


def fits() -> Iterator[Row]:
    """From random unknowns to the optimum."""
    for number in (20, 60, 100, 200):
        problem, truth = posed(number, max(1, number // 40))
        rng = np.random.default_rng(5)
        start = dict(zip(truth, rng.uniform(0.3, 2.0, number).tolist(), strict=True))
        found = {
            "backward lifting": fitted(problem, start, igpe.search.BackwardLifting()),
            "Gauss-Newton": fitted(problem, start, igpe.MultipleShooting().search),
        }
        case = f"{number} unknowns"
        for name, (estimate, seconds) in found.items():
            yield at_most(case, f"{name}: time", seconds, "s")
            yield at_most(case, f"{name}: iterations", float(estimate.trail[0].iterations))
        (one, mine), (other, theirs) = found.values()
        off = abs(one.objective / other.objective - 1)
        yield at_most(case, "objectives differ, relative", off, "-", 1e-6)
        yield at_most(case, "Gauss-Newton / backward lifting", theirs / mine, "times")


def fitted(
    problem: igpe.Problem, start: Mapping[str, float], search: Any
) -> tuple[igpe.Estimate, float]:
    """An estimate and the processor's seconds for it, all being compiled; best of three."""
    prepared, took = igpe.MultipleShooting(search=search, **ONCE).prepare(problem), []
    for _ in range(3):
        begin = time.process_time()
        estimate = prepared.estimate(start)
        took.append(time.process_time() - begin)
    return estimate, min(took)


if __name__ == "__main__":
    sections: dict[str, Section] = {"gradient": lambda _: gradient(), "fits": lambda _: fits()}
    command(__doc__, "Backward lifting", sections)
