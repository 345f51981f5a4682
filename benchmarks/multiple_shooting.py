"""Multiple shooting on the published examples: every figure that is asked of it.

    python benchmarks/multiple_shooting.py [pendulum fitzhugh_nagumo henon_heiles rikitake calcium
                                            calcium_partial coverage steps]
                                           [--share 1.0] [--json FILE]

All sections if none is named; `--share 0.1` takes a tenth of the realisations and starts. A fit
converged if its status says so, and is global if its objective is that of the fit begun at the
truth, but for a part in a thousand (calcium: a hundredth). "One search" is a single continuation
with as many intervals as said; "as it is" judges by chi squared and tries again by itself, with
tighter links, more intervals and other starts.

    pendulum         Houska et al.: estimates, errors, and 100 random starts
    fitzhugh_nagumo  Carbonell et al., example 2: 1000 realisations in 20 batches
    henon_heiles     Carbonell et al., example 1: 200 realisations
    rikitake         Carbonell et al., example 3: 100 realisations of one set of times
    calcium          Peifer and Timmer, Table 1: 250 starts and three seeds of the noise
    calcium_partial  the same with two of four states measured (not in the paper)
    coverage         95 % intervals over 200 seeds
    steps            time of one Gauss-Newton iteration, and how it grows with the intervals
    reduced          the same with many states and three unknowns: derivatives through all intervals
                     beside those of each, in time of the processor
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from figures import Row, Section, at_least, at_most, command
from intervals import lorenz, ring, side_by_side

import igpe
from igpe.core.estimates import Horizon
from igpe.numerics.covariance import uncertainty
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains import Chain, Chained, condensed
from igpe.numerics.least_squares.proposal import proposal, simplified
from igpe.numerics.least_squares.soft_links import SoftLinks

ALIKE, ALIKE_CALCIUM = 1e-3, 1e-2
ENDED = (igpe.Status.CONVERGED, igpe.Status.BEST_OF_SEVERAL)
NONE = igpe.search.Restarts(count=0)
AMOUNTS = ("all", "few")  # of directions
STATES, FASTER = 32, 5.0  # so many times faster few directions are to be, with so many states


class Run(NamedTuple):
    """One fit: whether it converged, whether it is global, and what it took."""

    found: igpe.Estimate
    converged: bool
    is_global: bool
    seconds: float

    @property
    def iterations(self) -> int:
        """Of the search that found it, all stages together."""
        return sum(h.iterations for h in self.found.trail if isinstance(h, Horizon))


def one_search(intervals: int, **settings: Any) -> igpe.MultipleShooting:
    """A single continuation."""
    links = (SoftLinks(),)
    return igpe.MultipleShooting(
        intervals=intervals, finer=1, links=links, restarts=NONE, **settings
    )


def run(prepared: Any, start: Mapping[str, float], best: float, alike: float = ALIKE) -> Run:
    """One fit, judged by the best objective."""
    begin = time.perf_counter()
    found = prepared.estimate(start)
    seconds = time.perf_counter() - begin
    converged = found.status in ENDED
    return Run(found, converged, converged and found.objective <= best * (1 + alike), seconds)


def best_of(problem: igpe.Problem, truth: Mapping[str, float]) -> float:
    """The objective of the fit begun at the truth."""
    return igpe.SingleShooting(igpe.integrators.Automatic()).estimate(problem, truth).objective


def told(
    case: str, runs: list[Run], converged: float | None = None, globally: float | None = None
) -> Iterator[Row]:
    """Shares in percent, with targets; and what it took."""
    for name, count, goal in (
        ("converged", sum(r.converged for r in runs), converged),
        ("global", sum(r.is_global for r in runs), globally),
    ):
        share = 100 * count / len(runs)
        figure = f"{name}, of {len(runs)}"
        if goal is None:
            yield at_most(case, figure, share, "%")
        else:
            yield at_least(case, figure, share, "%", goal)
    seconds = [r.seconds for r in runs]
    yield at_most(case, "time of a fit, mean", float(np.mean(seconds)), "s")
    yield at_most(case, "time of a fit, longest", max(seconds), "s")
    yield at_most(case, "iterations, mean", float(np.mean([r.iterations for r in runs])))


def pendulum(share: float) -> Iterator[Row]:
    """Estimates and errors to the digits in print; random starts in the box."""
    model = importlib.import_module("pendulum")
    problem = model.problem()
    fit = (
        igpe
        .MultipleShooting()
        .prepare(problem)
        .fit({"l": 1.5, "alpha": 1.0, "phi(t0)": 0.0, "omega(t0)": 0.0})
    )
    held = np.zeros(4, dtype=bool)
    errors = uncertainty(fit.x, fit.at.residual, fit.at.jacobian, held=held, sigma_known=True)
    for i, (name, (value, error)) in enumerate(model.PUBLISHED.items()):
        off = abs(fit.x[i] - value)
        yield at_most(f"{name} = {fit.x[i]:.4f}, paper {value}", "difference", off, limit=5e-4)
        off = abs(errors.standard_error[i] - error)
        case = f"sd of {name} = {errors.standard_error[i]:.5f}, paper {error}"
        yield at_most(case, "difference", off, limit=5e-5)
    random = np.random.default_rng(501)
    count = max(round(100 * share), 1)
    starts = [
        {"l": length, "alpha": a, "phi(t0)": 0.0, "omega(t0)": 0.0}
        for length, a in random.uniform((0.05, 0.0), (2.0, 4.0), (count, 2))
    ]
    for intervals in (1, 7, 9):
        for name, method in both(intervals):
            prepared = method.prepare(problem)
            runs = [run(prepared, s, model.OBJECTIVE) for s in starts]
            goal = 95 if name == "as it is" else None
            yield from told(f"{intervals} intervals, {name}", runs, globally=goal)


def both(intervals: int, **settings: Any) -> list[tuple[str, igpe.MultipleShooting]]:
    """The method in one search, and as it is."""
    return [
        ("one search", one_search(intervals, **settings)),
        ("as it is", igpe.MultipleShooting(intervals=intervals, **settings)),
    ]


def realisations(
    name: str, seeds: list[tuple[int, int]], methods: list[tuple[str, igpe.MultipleShooting]]
) -> dict[str, list[Run]]:
    """Every method on the same data; seeds are (noise, times)."""
    model = importlib.import_module(name)
    found: dict[str, list[Run]] = {which: [] for which, _ in methods}
    for seed, batch in seeds:
        problem = model.problem(seed, batch)
        best = best_of(problem, model.TRUTH)
        for which, method in methods:
            found[which].append(run(method.prepare(problem), model.START, best))
    return found


def batches(count: int) -> list[tuple[int, int]]:
    """So many seeds, spread over 20 sets of times."""
    return [(seed, seed % 20) for seed in range(count)]


def means(
    case: str, runs: list[Run], goals: Mapping[str, tuple[float, float | None]]
) -> Iterator[Row]:
    """Mean over the global fits beside the truth: name -> (truth, largest difference)."""
    for name, (truth, limit) in goals.items():
        values = [r.found.parameters[name] for r in runs if r.is_global]
        off = abs(float(np.mean(values)) - truth)
        spread = float(np.std(values))
        yield at_most(f"{case}, sd {spread:.4f}", f"mean {name}: |mean - truth|", off, limit=limit)


def fitzhugh_nagumo(share: float) -> Iterator[Row]:
    """All realisations at 50 nodes, a tenth of them at fewer."""
    model = importlib.import_module("fitzhugh_nagumo")
    zero = {"R": 0.0}
    for nodes, count in ((50, 1000), (20, 100), (10, 100), (5, 100)):
        seeds = batches(max(round(count * share), 1))
        found = realisations("fitzhugh_nagumo", seeds, both(nodes, unobserved=zero))
        for which, runs in found.items():
            case = f"{nodes} intervals, {which}"
            goal = 99 if which == "as it is" else None
            rows = list(told(case, runs, goal, goal))
            if nodes == 50 and which == "as it is":
                rows[-1] = at_most(case, rows[-1].figure, rows[-1].value, limit=15)
                limits = {"a": 0.001, "b": 0.005, "c": 0.005}
                rows += means(case, runs, {n: (model.TRUTH[n], v) for n, v in limits.items()})
            yield from rows


def henon_heiles(share: float) -> Iterator[Row]:
    """From parameters at which the model explodes."""
    model = importlib.import_module("henon_heiles")
    for nodes in (50, 20, 10):
        seeds = batches(max(round(200 * share), 1))
        found = realisations("henon_heiles", seeds, both(nodes))
        for which, runs in found.items():
            case = f"{nodes} intervals, {which}"
            goal = 100 if which == "as it is" else None
            yield from told(case, runs, goal, goal)
            yield from means(case, runs, {n: (model.TRUTH[n], None) for n in "abc"})


def rikitake(share: float) -> Iterator[Row]:
    """As in the paper: 100 realisations of one set of times."""
    model = importlib.import_module("rikitake")
    for nodes, goal in ((50, 100.0), (25, 100.0), (15, 95.0), (10, 85.0)):
        seeds = [(seed, 0) for seed in range(max(round(100 * share), 1))]
        for which, runs in realisations("rikitake", seeds, both(nodes)).items():
            case = f"{nodes} intervals, {which}"
            yield from told(case, runs, globally=goal if which == "as it is" else None)
            if any(r.is_global for r in runs):
                yield from means(case, runs, {n: (model.TRUTH[n], None) for n in ("mu", "alpha")})


def calcium(share: float) -> Iterator[Row]:
    """250 starts of the first seed, 40 of two more; single shooting beside it."""
    model = importlib.import_module("calcium")
    for seed, count in ((0, 250), (1, 40), (2, 40)):
        problem = model.problem(seed)
        best = best_of(problem, model.TRUTH)
        random = np.random.default_rng(502 + seed)
        starts = [
            {n: random.uniform() for n in model.TRUTH} for _ in range(max(round(count * share), 1))
        ]
        for which, method in both(17):
            prepared = method.prepare(problem)
            runs = [run(prepared, s, best, ALIKE_CALCIUM) for s in starts]
            judged = which == "as it is"
            case = f"noise {seed}, {which} (paper: 96 %, 49 %)"
            rows = list(told(case, runs, 98 if judged else None, 95 if judged else None))
            if judged:
                rows[2] = at_most(case, rows[2].figure, rows[2].value, "s", 0.5)
            yield from rows
        if seed == 0:
            single = igpe.SingleShooting(igpe.integrators.Automatic(seconds=5.0)).prepare(problem)
            runs = [run(single, s, best, ALIKE_CALCIUM) for s in starts[:25]]
            yield from list(told("noise 0, single shooting (paper: 16 %, 4 %)", runs))[:4]


def calcium_partial(share: float) -> Iterator[Row]:
    """Only two of the four states measured: one search in each number of intervals."""
    model = importlib.import_module("calcium")
    problem = model.problem(measured=("G", "Ca"))
    best = best_of(problem, model.TRUTH)
    random = np.random.default_rng(505)
    count = max(round(20 * share), 1)
    starts = [{n: random.uniform() for n in model.TRUTH} for _ in range(count)]
    for intervals in (34, 66):
        prepared = igpe.MultipleShooting(intervals=intervals, finer=1, restarts=NONE).prepare(
            problem
        )
        runs = [run(prepared, s, best, ALIKE_CALCIUM) for s in starts]
        yield from told(f"G and Ca measured, {intervals} intervals", runs, globally=50)


def coverage(share: float) -> Iterator[Row]:
    """How often 95 % intervals hold the truth, and how z = (estimate - truth) / error scatters."""
    for name in ("calcium", "fitzhugh_nagumo"):
        model = importlib.import_module(name)
        inside, z = [], []
        for seed in range(max(round(200 * share), 2)):
            problem = model.problem(seed)
            fit = igpe.MultipleShooting(intervals=17).prepare(problem).fit(model.TRUTH)
            held = on_bounds(fit.x, fit.at, problem.box)
            at = uncertainty(fit.x, fit.at.residual, fit.at.jacobian, held=held, sigma_known=True)
            truth = problem.box.vector(model.TRUTH)
            free = ~held
            inside.append(((at.lower <= truth) & (truth <= at.upper))[free].mean())
            z += list(((fit.x - truth) / at.standard_error)[free])
        value = 100 * float(np.mean(inside))
        row = at_least(name, f"95 % intervals, {len(inside)} seeds", value, "%", 93)
        yield row._replace(target="93 to 98", reached=93 <= value <= 98)
        yield at_most(name, "sd of z", float(np.std(z)))


def steps(_: float) -> Iterator[Row]:
    """An evaluation, the step and the level function: what an accepted iteration costs."""
    for name, intervals, limit in (
        ("henon_heiles", 50, 2.0),
        ("calcium", 17, 4.0),
        ("calcium", 199, None),
    ):
        model = importlib.import_module(name)
        method = igpe.MultipleShooting(intervals=intervals)
        prepared = method.prepare(model.problem())
        point = prepared.begin(prepared.problem.box.vector(model.TRUTH))
        space = prepared.space(point)
        for which, chains in (("rough", prepared.stages.free), ("exact", prepared.chains)):
            at = chains(point)
            step = proposal(at, point, space)
            parts = {
                "evaluation": partial(chains, point),
                "step": partial(proposal, at, point, space),
                "level function": partial(simplified, step, at, 0.5),
            }
            laps = {part: 1e3 * shortest(call) for part, call in parts.items()}
            case = f"{name}, {intervals} intervals, {which}"
            for part, value in laps.items():
                yield at_most(case, part, value, "ms")
            yield at_most(case, "iteration", sum(laps.values()), "ms", limit)

    for intervals in (100, 1000, 10_000):
        call = partial(condensed, chained(intervals))
        yield at_most(f"{intervals} intervals", "condensing", 1e3 * shortest(call, 5), "ms")


def reduced(_: float) -> Iterator[Row]:
    """Lorenz' model of 1996 in 20 intervals, all states measured, near the true parameters."""
    for n_x in (16, 32, 64):
        exact = lorenz(n_x, 20)
        noise = 0.1 * np.random.default_rng(507).normal(size=(20, n_x))
        values = np.vstack([exact.starts + noise, exact.starts[-1:]])
        prepared = igpe.MultipleShooting(intervals=20, links=()).prepare(ring(n_x, 20, values))
        point = prepared.begin(np.array([1.02, 0.95, 7.8]))
        space, calls = prepared.space(point), {}
        whole = prepared.stages.free.integrated(prepared.method.integrator)
        for name, chains in zip(AMOUNTS, (whole, prepared.chains), strict=True):
            at = chains(point)
            step = proposal(at, point, space)
            trial = chains(point.moved(step.move, 0.1))
            calls[name, "evaluation"] = partial(chains, point)
            calls[name, "step"] = partial(proposal, at, point, space)
            calls[name, "level function"] = partial(simplified, step, trial, 0.1)
        took = dict(zip(calls, map(median, side_by_side(list(calls.values()))), strict=True))
        for (name, part), seconds in took.items():
            yield at_most(f"{n_x} states, {name} directions", part, 1e3 * seconds, "ms")
        sums = {
            which: sum(s for (name, _), s in took.items() if name == which) for which in AMOUNTS
        }
        case = f"{n_x} states"
        faster = took["all", "evaluation"] / took["few", "evaluation"]
        if n_x == STATES:
            yield at_least(case, "few faster, evaluation", faster, "times", FASTER)
        else:
            yield at_most(case, "few faster, evaluation", faster, "times")
        yield at_most(case, "few faster, iteration", sums["all"] / sums["few"], "times")


def chained(intervals: int) -> Chained:
    """A chain of four states and eleven unknowns, four residuals in each interval."""
    random = np.random.default_rng(506)
    k, n_x, n, m = intervals, 4, 11, 4 * intervals
    chain = Chain(
        residual=random.normal(size=m),
        by_node=random.normal(size=(m, n_x)),
        by_unknown=random.normal(size=(m, n)),
        owner=np.repeat(np.arange(k), 4),
        gap=random.normal(size=(k, n_x)),
        step=0.3 * random.normal(size=(k, n_x, n_x)),
        drift=random.normal(size=(k, n_x, n)),
    )
    return Chained((chain,), Linearised(np.zeros(0), np.zeros((0, n))))


def shortest(call: Callable[[], Any], laps: int = 30) -> float:
    """Seconds of the shortest call."""
    found = math.inf
    for _ in range(laps):
        begin = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - begin)
    return found


SECTIONS: dict[str, Callable[[float], Iterator[Row]]] = {
    "pendulum": pendulum,
    "fitzhugh_nagumo": fitzhugh_nagumo,
    "henon_heiles": henon_heiles,
    "rikitake": rikitake,
    "calcium": calcium,
    "calcium_partial": calcium_partial,
    "coverage": coverage,
    "steps": steps,
    "reduced": reduced,
}


def of_share(section: Callable[[float], Iterator[Row]]) -> Section:
    """A section that is asked for by the command line."""
    return lambda given: section(given.share)


if __name__ == "__main__":
    command(
        __doc__,
        "Multiple shooting",
        {name: of_share(section) for name, section in SECTIONS.items()},
        lambda parser: parser.add_argument("--share", type=float, default=1.0),
    )
