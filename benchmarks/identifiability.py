"""Structural identifiability: right answers on models with known ones, and the time it takes.

    python benchmarks/identifiability.py [--json FILE]

known   the models of `tests/structure/known_models.py`, each with the source of its answer: an
        answer is right if exactly the unknowns are found that cannot be identified, and, where the
        source says so, what can be determined of them; and if every other unknown has as many
        values as it is known to have, or is undecided. How many models are decided wholly is told.
        Times are processor times of the whole `igpe.check`, with all that is built and translated
        for it, and in the first with the import of SymPy.
simulated  the same by integrations and singular values, which share no code with the exact test;
        where no gap shows they decide nothing
chain   twenty states and thirty parameters in a row, with all starts known or unknown
models  the published problems of `models/`: how long the exact test alone takes
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from figures import MODELS, Row, at_least, at_most, command

import igpe
from igpe.structure.identifiability import (
    Identifiable,
    identifiability,
    moved_unknowns,
)

LEAST = 25  # models with known answers, and of those decided globally
SLOWEST, SLOWEST_CHAIN, SLOWEST_PUBLISHED = 5.0, 30.0, 1.0  # s


class Timed(NamedTuple):
    """A result and the processor time it took."""

    result: Any
    seconds: float


def timed(call: Callable[[], Any]) -> Timed:
    """One call."""
    begin = time.process_time()
    result = call()
    return Timed(result, time.process_time() - begin)


def figures() -> Iterator[Row]:
    """All rows."""
    known = importlib.import_module("known_models")
    models = (*known.KNOWN, *known.PUBLISHED)
    yield from answers(models)
    yield from simulated(models)
    yield from chains(known.cascade)
    yield from published()


def answers(cases: Any) -> Iterator[Row]:
    """One row for each model, and how many are right."""
    right = decided = 0
    times = []
    for case in cases:
        problem = case.problem()
        found, seconds = timed(lambda problem=problem: igpe.check(problem).exact)
        is_right = agrees(case, found)
        right += is_right
        decided += set(found.values) == set(found.names(Identifiable.YES))
        times.append(seconds)
        yield at_most(case.name, "time", seconds, "s", SLOWEST)
        yield at_least(case.name, "right", is_right, "-", 1)
    yield at_least("known", "models", len(cases), "-", LEAST)
    yield at_least("known", "right", right, "-", len(cases))
    yield at_least("known", "globally decided", decided, "-", LEAST)
    yield at_most("known", "slowest", max(times), "s", SLOWEST)


def agrees(case: Any, found: Any) -> bool:
    """Whether the answer is the known one."""
    lost = set(found.names(Identifiable.NO)) == set(case.lost.split())
    functions = tuple(f for c in found.combinations for f in c.functions)
    several = dict(text.rsplit(":", 1) for text in case.several.split())
    counted = all(number == int(several.get(n, 1)) for n, number in found.values.items())
    return lost and counted and not found.why and case.functions in (None, functions)


def simulated(cases: Any) -> Iterator[Row]:
    """How many the integrations decide, and how many of these wrongly."""
    decided, wrong = 0, 0
    for case in cases:
        problem = case.problem()
        moved = moved_unknowns(problem, seed=0)
        if moved is not None:
            names = {n for n, m in zip(problem.box.names, moved, strict=True) if m}
            decided, wrong = decided + 1, wrong + (names != set(case.lost.split()))
    yield at_most("simulated", "decided", decided)
    yield at_most("simulated", "wrong", wrong, "-", 0)


def chains(cascade: Any) -> Iterator[Row]:
    """The chain, measured at one end or the other."""
    for measured, lost in ((20, 0), (1, 28)):
        problem = cascade(20, measured=(measured,))
        found, seconds = timed(lambda problem=problem: igpe.check(problem).exact)
        name = f"chain, x[{measured}] measured"
        yield at_most(name, "time", seconds, "s", SLOWEST_CHAIN)
        yield at_least(name, "right", len(found.names(Identifiable.NO)) == lost, "-", 1)


def published() -> Iterator[Row]:
    """The exact test of every published problem."""
    for file in sorted(MODELS.glob("*.py")):
        problem = importlib.import_module(file.stem).problem()
        told = igpe.check(problem, identifiability=False)
        posed = [reduced.posed for reduced in told.reduced]
        _, seconds = timed(lambda p=problem, e=posed, s=told.slopes: identifiability(p, e, s))
        yield at_most(file.stem, "exact test", seconds, "s", SLOWEST_PUBLISHED)


if __name__ == "__main__":
    tests = Path(__file__).parents[1] / "tests"
    sys.path += [str(tests), str(tests / "structure")]
    command(__doc__, "Structural identifiability", {"all": lambda _: figures()})
