"""The tables of the incremental single shooting paper beside ours, and what it did not try.

    python benchmarks/iss_tables.py [SECTION ...] [--seed N] [--runs N] [--processes N]
                                    [--store FILE] [--json FILE]

Michalik, Hannemann, Marquardt, Comput. Chem. Eng. 33 (2009). A run is correct if it converges with
every parameter within 5 % of the global optimum, which is searched from the truth. The paper's
noise is not in print: ours is made from seeds, `--seed` is the first. Runs are made by several
processes if asked for (times are then what each takes while the others work), and kept in a store.

    table1       Bulirsch's problem from starts within 500
    table2       Lotka-Volterra with 5, 10 and 20 % noise
    wide         the same from starts up to ten times as far, or spread over five decades
    table3       horizon by horizon from the paper's start
    integrators  the same counts from each, also roughly set; the time of a run, and of all 500
    robertson    a stiff reaction from starts three decades off
    urethane     a DAE with four experiments and eight parameters
"""

# ruff: noqa: E402 - threads and paths must be set before modules are loaded
import os
import sys
from pathlib import Path

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).resolve().parent.parent / "models"))

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from statistics import median
from typing import Any, NamedTuple

import bulirsch
import lotka_volterra_iss as lotka
import numpy as np
import pandas as pd
import robertson
import urethane
from figures import CONSOLE, Row, Section, at_least, at_most, command
from rich.table import Table

import igpe
from igpe.core.estimates import equivalent_iterations

WITHIN = 0.05  # of every parameter: a correct solution
NAMES = ("correct", "wrong", "integration error", "optimisation error")
FAILED = {"INTEGRATION_BROKE": 2, "STALLED": 2, "FAILED": 3, "ITERATION_LIMIT": 3, "RAISED": 3}
WHERE: dict[str, Any] = {}  # runs are made and kept, as the command line says
ROUGH = {"rtol": 1e-7, "atol": 1e-9, "max_steps": 500}  # on the last horizon, too
Start = Mapping[str, float]
Draw = Callable[[np.random.Generator], Any]


class Runs(NamedTuple):
    """Many runs of one method.

    counts      in the order of NAMES;  iterations, integrations: equivalent ones, of all starts
    seconds     each took;  again: whether it began again elsewhere
    """

    counts: tuple[int, ...]
    iterations: tuple[float, ...]
    integrations: tuple[float, ...]
    seconds: tuple[float, ...]
    again: tuple[bool, ...]

    @property
    def told(self) -> str:
        """The counts as the paper prints them."""
        return "/".join(map(str, self.counts))

    @classmethod
    def joined(cls, parts: Sequence["Runs"]) -> "Runs":
        """All of them together."""
        counts = tuple(map(sum, zip(*(p.counts for p in parts), strict=True)))
        return cls(counts, *(sum(many, ()) for many in list(zip(*parts, strict=True))[1:]))


def outcome(run: pd.Series, optimum: Start) -> int:
    """Its place in NAMES."""
    near = [abs(run[n] - v) < WITHIN * abs(v) for n, v in optimum.items()]
    return FAILED.get(run["status"], 0 if all(near) else 1)


def run(method: Any, problem: igpe.Problem, starts: Sequence[Start], optimum: Start) -> Runs:
    """All starts of one problem."""
    found = igpe.campaign(problem, method, starts, **WHERE).table
    kinds = [outcome(row, optimum) for _, row in found.iterrows()]
    return Runs(
        tuple(map(kinds.count, range(4))),
        tuple(found["equivalent_iterations"]),
        tuple(found["equivalent_integrations"]),
        tuple(found["seconds"]),
        tuple(found["found_by"].str.startswith("best of")),
    )


def best(problem: igpe.Problem, truth: Start) -> Start:
    """The optimum next to the truth."""
    return igpe.SingleShooting(igpe.integrators.Automatic()).estimate(problem, truth).parameters


def drawn(names: Sequence[str], draw: Draw, seed: int, count: int) -> list[Start]:
    """Starts from a generator of their own, apart from the noise's."""
    random = np.random.default_rng([seed, 2009])
    return [dict(zip(names, map(float, draw(random)), strict=True)) for _ in range(count)]


def uniform(low: Any, high: Any, size: int) -> Draw:
    """Evenly between two numbers."""
    return lambda random: random.uniform(low, high, size)


def count_rows(
    case: str, runs: Runs, least: float = 1.0, iterations: float | None = None
) -> Iterator[Row]:
    """Counts, equivalent iterations and time against their targets."""
    total = len(runs.seconds)
    yield at_least(case, f"correct of {total}, {runs.told}", runs.counts[0], "-", least * total)
    middle = median(runs.iterations)
    yield at_most(case, "equivalent iterations, median", middle, "-", iterations)
    yield at_most(case, "equivalent integrations, median", median(runs.integrations))
    yield at_most(case, "runs that began again", 100 * sum(runs.again) / total, "%")
    yield at_most(case, "time of a run, mean", 1e3 * sum(runs.seconds) / total, "ms")


PEERS: tuple[tuple[str, Any], ...] = (
    ("ISS as published", igpe.IncrementalShooting.as_published()),
    ("SS as published", igpe.SingleShooting.as_published()),
    ("SS", igpe.SingleShooting(igpe.integrators.Automatic())),
)


def beside(
    problem: igpe.Problem, truth: Start, starts: Sequence[Start], paper: Any
) -> Iterator[tuple[str, str, str]]:
    """The other methods: name, the paper's counts, ours."""
    optimum = best(problem, truth)
    for name, method in PEERS:
        published = paper[name.split()[0]] if "published" in name else ()
        yield name, "/".join(map(str, published)), run(method, problem, starts, optimum).told


def table1(seed: int, count: int) -> Iterator[Row]:
    """Bulirsch's problem: 10 noise seeds for each mu; the other methods on the first."""
    text = Table("mu", "method", "paper", "here", title="Table 1: " + ", ".join(NAMES))
    for mu in bulirsch.MUS:
        total = Runs.joined([_bulirsch(seed + k, mu, count) for k in range(10)])
        starts = drawn(["p"], uniform(*bulirsch.STARTS, 1), seed, count)
        problem, paper = bulirsch.problem(mu, seed), bulirsch.PAPER[mu]
        for row in beside(problem, bulirsch.TRUTH, starts, paper):
            text.add_row(f"{mu:g}", *row)
        text.add_row(f"{mu:g}", "ISS, 10 seeds", "/".join(map(str, paper["ISS"])), total.told)
        yield from count_rows(f"I, mu = {mu:g}", total, iterations=7.0 if mu <= 20 else None)
    CONSOLE.print(text)


def table2(seed: int, count: int) -> Iterator[Row]:
    """Lotka-Volterra with three levels of noise; the other methods, for k >= 0, on the first."""
    text = Table("noise", "method", "paper", "here", title="Table 2: " + ", ".join(NAMES))
    draw = uniform(*lotka.STARTS, 4)
    for noise, seeds, least in ((0.05, 12, 1.0), (0.1, 12, 1.0), (0.2, 10, 0.95)):
        case = f"II, {noise:.0%} noise"
        found = [_lotka(seed + k, noise, draw, count) for k in range(seeds)]
        total, worst = Runs.joined(found), min(f.counts[0] for f in found)
        paper = "/".join(map(str, lotka.PAPER["ISS"])) if noise == lotka.NOISE else ""
        text.add_row(f"{noise:.0%}", f"ISS, {seeds} seeds", paper, total.told)
        yield at_least(case, "correct, worst seed", worst, "-", count if least == 1 else 0)
        yield from count_rows(case, total, least, 8.5 if noise == lotka.NOISE else None)
    positive = lotka.problem(seed, bounds=(0.0, np.inf))
    starts = drawn(list(lotka.TRUTH), draw, seed, count)
    for row in beside(positive, lotka.TRUTH, starts, lotka.PAPER):
        text.add_row("5%, k >= 0", *row)
    CONSOLE.print(text)


def _bulirsch(seed: int, mu: float, count: int) -> Runs:
    problem = bulirsch.problem(mu, seed)
    starts = drawn(["p"], uniform(*bulirsch.STARTS, 1), seed, count)
    return run(igpe.IncrementalShooting(), problem, starts, best(problem, bulirsch.TRUTH))


def _lotka(seed: int, noise: float, draw: Draw, count: int) -> Runs:
    problem = lotka.problem(seed, noise)
    starts = drawn(list(lotka.TRUTH), draw, seed, count)
    return run(igpe.IncrementalShooting(), problem, starts, best(problem, lotka.TRUTH))


def wide(seed: int, count: int) -> Iterator[Row]:
    """Lotka-Volterra from starts far off."""
    draws: dict[str, Draw] = {
        "U(0, 100)": uniform(0.0, 100.0, 4),
        "logU(1e-3, 1e2)": lambda random: 10 ** random.uniform(-3, 2, 4),
    }
    for name, draw in draws.items():
        found = Runs.joined([_lotka(seed + k, lotka.NOISE, draw, count) for k in range(3)])
        yield from count_rows(f"II from {name}", found, 0.99)


def table3(seed: int, count: int) -> Iterator[Row]:
    """The paper's start: one run, horizon by horizon, and the same on more noise seeds."""
    found = igpe.IncrementalShooting().estimate(lotka.problem(seed), lotka.PAPER_START)
    heads = [f"t <= {h['until']:g}" for h in lotka.PAPER_HORIZONS]
    text = Table("", *heads, title=f"Table 3: the paper's numbers / ours (seed {seed})")
    for key in ("iterations", *lotka.TRUTH):
        ours = [h.iterations if key == "iterations" else h.parameters[key] for h in found.trail]
        pairs = zip(lotka.PAPER_HORIZONS, ours, strict=True)
        text.add_row(key, *(f"{theirs[key]:.4g} / {mine:.4g}" for theirs, mine in pairs))
    CONSOLE.print(text)
    case, paper = "Table 3", f"equivalent iterations (paper {lotka.PAPER_EQUIVALENT})"
    yield at_most(case, paper, equivalent_iterations(found.trail), limit=8.5)
    yield at_most(case, "equivalent integrations", found.equivalent_integrations)
    method, more = igpe.IncrementalShooting(), (lotka.problem(seed + k) for k in range(10))
    worst = max(method.estimate(p, lotka.PAPER_START).equivalent_iterations for p in more)
    yield at_most(case, "equivalent iterations, worst of 10 seeds", worst)


def integrators(seed: int, count: int) -> Iterator[Row]:
    """The same counts whatever integrates, the time of a run, and of the paper's 500."""
    limits: dict[Any, float] = {
        igpe.integrators.RungeKutta: 10.0,
        igpe.integrators.Sundials: 60.0,
    }
    problem, told = lotka.problem(seed), set()
    starts = drawn(list(lotka.TRUTH), uniform(*lotka.STARTS, 4), seed, count)
    optimum = best(problem, lotka.TRUTH)
    for integrator, limit in limits.items():
        for name, settings in (("", {}), (", rough", ROUGH)):
            method = igpe.IncrementalShooting(integrator(**settings))
            found = run(method, problem, starts, optimum)
            told.add(found.counts)
            case, mean = f"II by {integrator.__name__}{name}", 1e3 * sum(found.seconds) / count
            yield at_most(case, f"time of a run, mean, {found.told}", mean, "ms", limit)
    yield at_most("II", "different counts of integrators", len(told) - 1, "-", 0)
    yield at_most("500 runs", "time", _five_hundred(seed, count), "s", 10.0)


def _five_hundred(seed: int, count: int) -> float:
    """Seconds for both tables: five cases, with all that is translated for them."""
    began = time.perf_counter()
    for mu in bulirsch.MUS:
        _bulirsch(seed, mu, count)
    _lotka(seed, lotka.NOISE, uniform(*lotka.STARTS, 4), count)
    return time.perf_counter() - began


def stiff(seed: int, count: int) -> Iterator[Row]:
    """Robertson's reaction from starts three decades off."""
    problem, truth = robertson.problem(seed), np.array(list(robertson.TRUTH.values()))
    off = uniform(-robertson.DECADES, robertson.DECADES, 3)
    starts = drawn(list(robertson.TRUTH), lambda random: truth * 10 ** off(random), seed, count)
    optimum = best(problem, robertson.TRUTH)
    yield from count_rows(
        "Robertson", run(igpe.IncrementalShooting(), problem, starts, optimum), 0.95
    )
    single = run(PEERS[2][1], problem, starts, optimum)
    yield at_most("Robertson", f"correct by single shooting, {single.told}", single.counts[0])


def dae(seed: int, count: int) -> Iterator[Row]:
    """The urethane reaction, a DAE: as many starts as half the others, anywhere in its bounds."""
    lower, upper = np.array(list(urethane.BOUNDS.values())).T
    starts = drawn(list(urethane.BOUNDS), uniform(lower, upper, len(lower)), seed, count // 2)
    problem = urethane.problem()
    for name, method in (("ISS", igpe.IncrementalShooting()), PEERS[2], PEERS[1]):
        found = run(method, problem, starts, urethane.OPTIMUM)
        other = at_most("urethane", f"correct by {name}, {found.told}", found.counts[0])
        yield from count_rows("urethane", found, 0.95) if name == "ISS" else [other]


SECTIONS: dict[str, Callable[[int, int], Iterator[Row]]] = {
    "table1": table1,
    "table2": table2,
    "wide": wide,
    "table3": table3,
    "integrators": integrators,
    "robertson": stiff,
    "urethane": dae,
}


def asked(section: Callable[[int, int], Iterator[Row]]) -> Section:
    """A section that is asked for by the command line."""

    def made(given: Namespace) -> Iterator[Row]:
        several = ProcessPoolExecutor(given.processes) if given.processes > 1 else nullcontext()
        with several as executor:
            WHERE.update(executor=executor, store=given.store)
            yield from section(given.seed, given.runs)

    return made


def options(parser: ArgumentParser) -> None:
    """Seed of the noise, starts for each, and where they are run."""
    parser.add_argument("--seed", type=int, default=1001)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--store", type=Path, help="keeps finished runs, and is resumed from")


if __name__ == "__main__":
    sections = {name: asked(section) for name, section in SECTIONS.items()}
    command(__doc__, "Incremental single shooting", sections, options)
