"""How igpe's time grows with a problem: data points, states, parameters, experiments, starts.

    python benchmarks/growth.py [points] [states] [parameters] [experiments] [starts] [--json FILE]

points, states, experiments  a chain of n reactions, 2 parameters, 3 measured states (kinetic_chain)
parameters                   as many first-order reactions as parameters, all states measured
starts                       igpe.search.MultiStart by single shooting on Lotka and Volterra's
                             equations

`igpe` is `igpe.estimate` as a whole. `scipy` is `scipy.optimize.least_squares` with LSODA, by
differences, from 20 starts spread alike, bounds respected; the equations are given to it as a NumPy
function. Where
20 starts would take long a few are carried out and the time of 20 is reckoned from theirs. Seconds
of the processor.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from figures import Row, at_most, command
from kinetic_chain import (
    LAST,
    SIGMA,
    chain,
    linear_slopes,
    many_measured,
    many_parameters,
    measured,
    slopes,
)
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

import igpe

POINTS = (10, 30, 100, 300)
STATES = (3, 10, 30)
PARAMETERS = (2, 4, 8)
EXPERIMENTS = (1, 2, 4, 8)
STARTS = (4, 16, 64)
SCIPY_STARTS = 20
SCIPY_ENOUGH = 10.0  # s after which no further start begins
SCIPY_MOST = {"states": 30, "parameters": 8, "points": 300, "experiments": 8}
LOWER, UPPER = 0.01, 10.0


def points(given: argparse.Namespace) -> Iterator[Row]:
    """Measured times of one experiment of 3 states."""
    for n in POINTS:
        yield _igpe("points", n, lambda n=n: chain(3, n))
        yield from _scipy("points", n, partial(_chain_residuals, 3, n, 1), 2)


def states(given: argparse.Namespace) -> Iterator[Row]:
    """All of them are integrated, 3 are measured."""
    for n in STATES:
        yield _igpe("states", n, lambda n=n: chain(n, 20))
        yield from _scipy("states", n, partial(_chain_residuals, n, 20, 1), 2)


def parameters(given: argparse.Namespace) -> Iterator[Row]:
    """As many states, all measured."""
    for n in PARAMETERS:
        yield _igpe("parameters", n, lambda n=n: many_parameters(n, 20))
        yield from _scipy("parameters", n, partial(_many_residuals, n, 20), n)


def experiments(given: argparse.Namespace) -> Iterator[Row]:
    """Repetitions with other noise, 3 states each."""
    for n in EXPERIMENTS:
        yield _igpe("experiments", n, lambda n=n: chain(3, 20, n))
        yield from _scipy("experiments", n, partial(_chain_residuals, 3, 20, n), 2)


def starts(given: argparse.Namespace) -> Iterator[Row]:
    """Of local searches, all of them carried out."""
    problem = importlib.import_module("lotka_volterra").problem()
    igpe.search.MultiStart(trials=1, starts=1).estimate(problem, {})
    for n in STARTS:
        begun = time.process_time()
        igpe.search.MultiStart(trials=n, starts=n).estimate(problem, {})
        yield at_most(f"starts {n}", "igpe", time.process_time() - begun, "s")


def _igpe(what: str, n: int, make: Callable[[], igpe.Problem]) -> Row:
    problem = make()
    begun = time.process_time()
    result = igpe.estimate(problem, seed=0)
    seconds = time.process_time() - begun
    assert result.status.usable, f"{what} {n}: {result.status}"
    return at_most(f"{what} {n}", "igpe", seconds, "s")


def _scipy(
    what: str, n: int, residuals: Callable[[], Callable[[Any], Any]], count: int
) -> Iterator[Row]:
    if n > SCIPY_MOST[what]:
        return
    function = residuals()
    rng = np.random.default_rng(0)
    begins = LOWER * (UPPER / LOWER) ** rng.uniform(size=(SCIPY_STARTS, count))
    begun, costs = time.process_time(), []
    for start in begins:
        if time.process_time() - begun > SCIPY_ENOUGH:
            break
        try:
            costs.append(least_squares(function, start, bounds=(LOWER, UPPER)).cost)
        except ValueError:  # an integration that broke down
            costs.append(np.inf)
    seconds = (time.process_time() - begun) * SCIPY_STARTS / len(costs)
    yield at_most(f"{what} {n}", f"scipy, {SCIPY_STARTS} starts", seconds, "s")
    found = np.mean(np.array(costs) <= min(costs) * (1 + 1e-3))
    yield at_most(f"{what} {n}", "scipy, starts that find it", 100 * float(found), "%")


def _chain_residuals(n: int, points_: int, runs: int) -> Callable[[Any], Any]:
    data = [measured(n, points_, seed) for seed in range(runs)]
    times = data[0]["time"].to_numpy()
    values = np.array([d.drop(columns="time").to_numpy().T for d in data])
    return _residuals(slopes, n, times, values)


def _many_residuals(n: int, points_: int) -> Callable[[Any], Any]:
    times, values = many_measured(n, points_)
    return _residuals(linear_slopes, n, times, values[None])


def _residuals(
    right: Callable[..., Any], n: int, times: Sequence[float], values: Any
) -> Callable[[Any], Any]:
    """Of `values` (runs, measured, times); every run is integrated, as it might differ."""
    start = np.eye(1, n)[0]

    def residuals(p: Any) -> Any:
        found = []
        for value in values:
            run = solve_ivp(
                right, (0, LAST), start, "LSODA", times, args=tuple(p), rtol=1e-8, atol=1e-10
            )
            found.append((run.y[: len(value)] - value) / SIGMA)
        return np.ravel(found)

    return residuals


if __name__ == "__main__":
    igpe.estimate(chain(3, 10), seed=0)  # whatever is imported or made once
    sections = {
        "points": points,
        "states": states,
        "parameters": parameters,
        "experiments": experiments,
        "starts": starts,
    }
    command(__doc__, "Growth", sections)
