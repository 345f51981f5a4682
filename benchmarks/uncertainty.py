"""Uncertainty: profile intervals beside brute force, what they cost, and whether intervals cover.

    python benchmarks/uncertainty.py [intervals] [speed] [coverage] [--json FILE] [--sets N]

intervals  ends of the profile intervals of problems 1 to 5 of the IGPE paper, of FitzHugh and
           Nagumo's nerve cell and of COPS' methanol problem, beside a grid around each end on which
           every other unknown is fitted from scratch (from the estimate, by Gauss-Newton to the
           last digit on an integration with rtol 1e-10). The difference is relative to the distance
           of the end from the estimate
speed      processor time of the first unknown's profile against re-optimising from scratch at fixed
           steps (a tenth of the linearised half width, until the level is passed): the problem with
           one unknown held is built and fitted for each step (what the C compiler takes is not
           counted); and the ratio of integrations, which leaves building out
coverage   share of 200 sets of measurements, made without igpe, whose intervals hold the true
           parameters: Michaelis and Menten's decay, sigma known and unknown
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import importlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from figures import Row, at_least, at_most, command
from michaelis_menten import DECAY_TRUTH, decay
from published import PAPER

import igpe
from igpe.dynamics.shooting.residuals import Residuals
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.gauss_newton import GaussNewton

MODELS = (*PAPER[:5], "fitzhugh_nagumo", "cops_methanol")
AGREE = 1e-2  # of the distance between end and estimate
FASTER = 5.0
COVERED = (92.0, 98.0)  # %, of intervals that promise 95
AROUND, PLACES = 0.03, 13  # brute force: this share of the distance on either side, so many places
STEP, MOST = 0.1, 60  # fixed steps: of the linearised half width; at most so many

ACCURATE = igpe.integrators.Sundials(rtol=1e-10, atol=1e-12)
TO_THE_END = GaussNewton(tolerance=1e-13, max_iterations=200)


class BruteForce:
    """Refits with some unknown held, each from the estimate, on an accurate integration."""

    def __init__(
        self, problem: igpe.Problem, best: dict[str, float], integrator: Any, search: GaussNewton
    ) -> None:
        self.box = problem.box
        self.residuals = Residuals(problem, integrator)
        self.search = search
        self.integrations = 0
        self.best = self.box.vector(best)

    def cost(self, name: str, value: float) -> float:
        """The least sum of squares with one unknown held."""
        i = self.box.names.index(name)
        others = [k for k in range(len(self.box)) if k != i]

        def residual(x: Any) -> Linearised | None:
            self.integrations += 1
            at = self.residuals(np.insert(x, i, value))
            return None if at is None else Linearised(at.residual, at.jacobian[:, others])

        fit = self.search.fit(residual, self.best[others], self.box.without([name]))
        return fit.cost

    def end(self, name: str, near: float, level: float) -> float:
        """Where the least sum of squares meets a level: on a grid around a value."""
        i = self.box.names.index(name)
        reach = AROUND * abs(near - self.best[i])
        grid = np.linspace(near - reach, near + reach, PLACES)
        costs = np.array([self.cost(name, v) for v in grid])
        above = np.flatnonzero(np.diff(np.sign(costs - level)))
        if len(above) != 1:
            return np.nan
        k = int(above[0])
        share = (level - costs[k]) / (costs[k + 1] - costs[k])
        return float(grid[k] + share * (grid[k + 1] - grid[k]))


def intervals(given: argparse.Namespace) -> Iterator[Row]:
    """Ends beside brute force."""
    for name in MODELS:
        model = importlib.import_module(name)
        problem = model.problem()
        found = igpe.profile(problem, model.OPTIMUM)
        brute = BruteForce(problem, dict(found.parameters), ACCURATE, TO_THE_END)
        worst, ends = 0.0, 0
        for one in found.profiles:
            for end, why in ((one.lower, one.lower_end), (one.upper, one.upper_end)):
                if not why:
                    there = brute.end(one.name, end, found.objective + found.rise)
                    difference = abs(there - end) / abs(end - one.estimate)
                    worst, ends = float(np.fmax(worst, difference)), ends + 1
                    worst = np.inf if np.isnan(there) else worst
        yield at_most(
            name, f"largest difference of {ends} ends from brute force", worst, "-", AGREE
        )
        points = sum(len(p.values) for p in found.profiles)
        yield at_most(name, "integrations for each point", found.integrations / points)


def speed(given: argparse.Namespace) -> Iterator[Row]:
    """Processor time against fixed steps."""
    for name in MODELS:
        model = importlib.import_module(name)
        problem = model.problem()
        first = problem.box.names[0]
        igpe.profile(problem, model.OPTIMUM, first)  # compiled code is in the cache from now on
        began = time.process_time()
        found = igpe.profile(problem, model.OPTIMUM, first)
        ours = time.process_time() - began
        began = time.process_time()
        steps = sum(fixed_steps(problem, found, one) for one in found.profiles)
        theirs = time.process_time() - began
        brute = BruteForce(
            problem, dict(found.parameters), igpe.integrators.Automatic(), GaussNewton()
        )
        for one in found.profiles:
            compiled_steps(brute, found, one)
        again = brute.integrations / found.integrations
        yield at_most(name, f"profile of {first}", 1e3 * ours, "ms")
        yield at_least(
            name, f"fixed steps from scratch ({steps}) / ours", theirs / ours, "x", FASTER
        )
        yield at_most(name, "integrations of the fixed steps / of ours", again, "x")


def places(found: Any, one: Any) -> Iterator[Iterator[float]]:
    """The values of both sides, in fixed steps from the estimate to the bounds."""
    lower, upper = found.linearised[one.name]
    half = (upper - lower) / 2
    half = half if np.isfinite(half) else one.upper - one.lower  # an estimate on its bound
    for sign, why in ((-1, one.lower_end), (1, one.upper_end)):
        if not why:
            yield (one.estimate + sign * k * STEP * half for k in range(1, MOST))


def fixed_steps(problem: igpe.Problem, found: Any, one: Any) -> int:
    """Walk by fixed steps, each a problem of its own; how many."""
    steps = 0
    for side in places(found, one):
        for value in side:
            fixed = problem.fixing({one.name: value})
            start = {n: v for n, v in found.parameters.items() if n != one.name}
            steps += 1
            if (
                igpe.SingleShooting().estimate(fixed, start).objective
                >= found.objective + found.rise
            ):
                break
    return steps


def compiled_steps(brute: BruteForce, found: Any, one: Any) -> None:
    """The same on residuals that are compiled already."""
    for side in places(found, one):
        for value in side:
            if brute.cost(one.name, value) >= found.objective + found.rise:
                break


def coverage(given: argparse.Namespace) -> Iterator[Row]:
    """How often intervals of 95 % hold the truth."""
    sets = given.sets
    for sigma, words in ((0.04, "sigma known"), (None, "sigma unknown")):
        kinds = ("linearised", "profile", "bootstrap, BCa", "bootstrap, percentile")
        held = {kind: dict.fromkeys(DECAY_TRUTH, 0) for kind in kinds}
        for seed in range(sets):
            for kind, name in covering(seed, sigma):
                held[kind][name] += 1
        for kind in kinds:
            for name, count in held[kind].items():
                share = 100 * count / sets
                case, figure = f"{words}, {name}", f"{kind}: of {sets} sets covered"
                if kind == "linearised":
                    yield Row(case, figure, share, "%", "", None)
                else:
                    low, high = COVERED
                    ok = low <= share <= high
                    yield Row(case, figure, share, "%", f"{low:g} to {high:g}", ok)


def covering(seed: int, sigma: float | None) -> Iterator[tuple[str, str]]:
    """Which kinds of intervals hold which true parameter, for one set of measurements."""
    problem = decay(seed, sigma)
    profiles = igpe.profile(problem, igpe.SingleShooting().estimate(problem, DECAY_TRUTH))
    drawn = igpe.bootstrap(problem, profiles, seed=seed).to_frame()
    for name, truth in DECAY_TRUTH.items():
        one, row = profiles[name], drawn.loc[name]
        pairs = {
            "linearised": profiles.linearised[name],
            "profile": (one.lower, one.upper),
            "bootstrap, BCa": (row["lower"], row["upper"]),
            "bootstrap, percentile": (row["percentile_lower"], row["percentile_upper"]),
        }
        yield from ((kind, name) for kind, (low, high) in pairs.items() if low <= truth <= high)


def options(parser: argparse.ArgumentParser) -> None:
    """Of this benchmark alone."""
    parser.add_argument("--sets", type=int, default=200, help="sets of measurements of coverage")


if __name__ == "__main__":
    command(
        __doc__,
        "Uncertainty",
        {"intervals": intervals, "speed": speed, "coverage": coverage},
        options,
    )
