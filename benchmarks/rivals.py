"""Rival networks: 200 simulated cases of five rivals each, ranked by the defaults of `igpe.rivals`.

    python benchmarks/rivals.py [ranking] [neighbours] [--count 200] [--quick]
                                [--store FOLDER] [--json FILE]

A case draws eight of all reactions X -> Y, X + Y -> Z and 2 X -> Y of four species, five of the
connected networks of two or three of them that can run from A and B (`igpe.kinetics.networks`), one
of these as the truth, rate constants between 0.2 and 2, two experiments with other start values,
10 to 15 times, two or three measured species, and errors of 3 % of each one's largest value. Data
are SciPy's; bounds of all rate constants are 0 and 20.

Such rivals are mostly grossly wrong. In `neighbours` the four others differ from the truth by one
reaction, which is added, left out or exchanged; they have one to four reactions.

first         the true network has the best AICc
reported      it is not first, but reported as not distinguishable from the best: AICc worse by less
              than 2, or it is the best one with further reactions that the likelihood ratio does
              not exclude, or it has the same outputs (`Rivals.indistinguishable`)
excluded      neither
--quick 20 cases
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import time
from collections.abc import Iterator
from itertools import combinations_with_replacement, permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from figures import Row, at_least, at_most, command
from scipy.integrate import solve_ivp
from trust.run import Answer, run_all

import igpe
from igpe import kinetics

SPECIES, POSSIBLE, RIVALS, NOISE = "ABCD", 8, 5, 0.03
LONGEST = 600.0  # s of processor time of a case
WORKERS = 1


class Case(NamedTuple):
    """Rivals by name, the true one with its rate constants, and the experiments."""

    rivals: dict[str, kinetics.Batch]
    truth: str
    values: dict[str, float]
    runs: list[igpe.Experiment]


def pool() -> list[str]:
    """All reactions that may be possible."""
    first = [f"{x} -> {y}" for x, y in permutations(SPECIES, 2)]
    second = [
        f"2 {x} -> {z}" if x == y else f"{x} + {y} -> {z}"
        for x, y in combinations_with_replacement(SPECIES, 2)
        for z in SPECIES
        if z not in (x, y)
    ]
    return [*first, *second]


def draw(number: int, *, near: bool) -> Case:
    """The case of that number; `near`: its rivals are neighbours of the truth."""
    random = np.random.default_rng([28 if near else 27, number])
    names: list[str] = []
    while len(names) < RIVALS:
        chosen = random.permutation(pool())[:POSSIBLE].tolist()
        bounds = {f"k{k}": (0.0, 20.0) for k in range(1, POSSIBLE + 1)}
        few, many = (1, 4) if near else (2, 3)
        how = {"present": ["A", "B"], "bounds": bounds}
        try:
            every = kinetics.networks(chosen, at_least=few, at_most=many, **how)
        except igpe.errors.ModelError:
            continue
        if len(every) >= RIVALS:
            names = _rivals(random, list(every), near=near)
    truth = names[0]
    names = random.permutation(names[:RIVALS]).tolist()
    reactor = every[truth]
    values = {p: float(np.exp(random.uniform(np.log(0.2), np.log(2)))) for p in reactor.parameters}
    times = np.linspace(0.0, 5.0, int(random.integers(10, 16)) + 1)[1:]
    count = int(random.integers(2, 4))
    drawn = random.permutation(list(SPECIES)).tolist()
    measured = sorted([s for s in drawn if s in reactor.species][:count])
    runs = []
    for k in range(2):
        start = dict.fromkeys((s for s in SPECIES if s in reactor.species), 0.0)
        start |= {"A": float(random.uniform(0.5, 2)), "B": float(random.uniform(0.5, 2)) * k}
        exact = simulated(reactor, values, start, times)
        sigma = {n: NOISE * max(float(np.ptp(exact[n])), 0.05) for n in measured}
        data = {n: exact[n] + sigma[n] * random.standard_normal(len(times)) for n in measured}
        table = pd.DataFrame({"time": times} | data)
        runs.append(igpe.Experiment(table, name=f"run{k + 1}", start=start, sigma=sigma))
    return Case({n: every[n] for n in names}, truth, values, runs)  # type: ignore[misc]


def _rivals(random: np.random.Generator, every: list[str], *, near: bool) -> list[str]:
    """The truth, of two or three reactions, and what may be beside it."""
    drawn = random.permutation(every).tolist()
    if not near:
        return drawn
    truth = next((n for n in drawn if n.count(";") in (1, 2)), "")
    return [truth, *(n for n in drawn if n != truth and _differ_by_one(n, truth))]


def _differ_by_one(name: str, other: str) -> bool:
    """Whether one reaction is added, left out or exchanged."""
    one, two = set(name.split("; ")), set(other.split("; "))
    return len(one - two) <= 1 and len(two - one) <= 1


def simulated(
    reactor: kinetics.Batch, values: dict[str, float], start: dict[str, float], times: np.ndarray
) -> dict[str, np.ndarray]:
    """Concentrations by SciPy, with mass action written here."""
    steps = [(r.equation, values[r.parameters[0]]) for r in reactor.steps]
    names = list(start)

    def slope(t: float, c: np.ndarray) -> np.ndarray:
        change = np.zeros(len(names))
        for equation, k in steps:
            rate = k * np.prod([c[names.index(s)] ** float(n) for s, n in equation.left.items()])
            for s, n in equation.net.items():
                change[names.index(s)] += float(n) * rate
        return change

    how = {"method": "LSODA", "rtol": 1e-10, "atol": 1e-12}
    run = solve_ivp(slope, (0.0, times[-1]), list(start.values()), t_eval=times, **how)
    return dict(zip(names, run.y, strict=True))


def answer(key: str) -> Answer:
    """What the defaults make of a case: its number, and "near" before it for neighbours."""
    case = draw(int(key.rsplit(maxsplit=1)[-1]), near=key.startswith("near"))
    problems = {
        name: igpe.Problem(reactor, parameters=reactor.parameters, experiments=case.runs)
        for name, reactor in case.rivals.items()
    }
    began = time.process_time()
    found = igpe.rivals(problems, seed=0)
    seconds = time.process_time() - began
    order = list(found.results)
    return {
        "truth": case.truth,
        "values": case.values,
        "order": order,
        "deltas": found.deltas,
        "reported": list(found.indistinguishable),
        "same": [list(pair) for pair in found.same],
        "failures": dict(found.failures),
        "left_out": {n: found.table["left_out"][n] for n in order},
        "used": seconds,
    }


def ranking(given: argparse.Namespace) -> Iterator[Row]:
    """Rivals at random."""
    yield from figures(given, "")


def neighbours(given: argparse.Namespace) -> Iterator[Row]:
    """Rivals that differ from the truth by one reaction."""
    yield from figures(given, "near ")


def figures(given: argparse.Namespace, kind: str) -> Iterator[Row]:
    """Shares of cases, and seconds."""
    count = 20 if given.quick else given.count
    store = given.store / "rivals.jsonl" if given.store else None
    keys = [f"{kind}{k}" for k in range(count)]
    found = run_all(store, keys, answer, LONGEST, WORKERS)
    done = {k: a for k, a in found.items() if "order" in a}
    first = [k for k, a in done.items() if a["order"][0] == a["truth"]]
    reported = [k for k, a in done.items() if k not in first and a["truth"] in a["reported"]]
    excluded = [k for k in found if k not in {*first, *reported}]
    share = 100 / len(found)
    known = share * (len(first) + len(reported))
    yield at_least("all", "true network first or reported indistinguishable", known, "%", 90)
    yield at_most("all", "first", share * len(first), "%")
    yield at_most("all", "reported", share * len(reported), "%")
    close = [k for k in reported if done[k]["deltas"][done[k]["truth"]] < 2]
    yield at_most("all", "of these by AICc alone", share * len(close), "%")
    several = [len(a["reported"]) for a in done.values()]
    yield at_most("all", "rivals reported beside the first, mean of 4", float(np.mean(several)))
    best = [k for k, a in done.items() if min(a["left_out"], key=a["left_out"].get) == a["truth"]]
    yield at_most("all", "first by cross-validation alone", share * len(best), "%")
    yield at_most("all", "cases ended without an answer", len(found) - len(done), "-", 0)
    yield at_most("all", "rivals without a fit", sum(len(a["failures"]) for a in done.values()))
    seconds = [a["used"] for a in done.values()]
    yield at_most("all", "median of processor time", float(np.median(seconds)), "s")
    yield at_most("all", "worst processor time", max(seconds), "s")
    for k in excluded:
        deltas = found[k].get("deltas", {})
        yield at_most(
            f"case {k}",
            "AICc of the truth over the best",
            deltas.get(found[k].get("truth"), np.nan),
        )


def options(parser: argparse.ArgumentParser) -> None:
    """Beside --json."""
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--store", type=Path, help="folder; a run that was stopped continues there")


if __name__ == "__main__":
    command(__doc__, "Rival networks", {"ranking": ranking, "neighbours": neighbours}, options)
