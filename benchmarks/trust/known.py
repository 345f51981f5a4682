"""Verdicts of `igpe.check` on models with known answers.

The models of `tests/structure/known_models.py` and `tests/structure/known_designs.py`, each with
the literature or the derivation its answer comes from. A verdict is false if an unknown that can be
identified is called not identifiable or the other way round, or if a number of values or what can
be determined differs from the source. What is left undecided is counted, and is not false.
"""

import argparse
import importlib
import json
from collections.abc import Iterator
from typing import Any

from figures import Row, at_least, at_most

import igpe
from igpe.structure.identifiability import Identifiable
from trust.run import Answer, run

LEAST = 100  # models
LEAST_NEW = 40  # of inputs, windows, starts and explicit time
MOST_UNDECIDED = 0.05  # of all verdicts
SLOWEST = 10.0  # s of processor time


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """All rows; the full figures without --quick or --only."""
    names = list(_cases())
    answers = run("known", names, work, given)
    for name, answer in answers.items():
        for sentence in answer.get("false", [json.dumps(answer)]):
            yield at_most(f"{name}: {sentence}", "false", 1, "-", 0)
    done = [a for a in answers.values() if "verdicts" in a]
    verdicts = sum(a["verdicts"] for a in done)
    yield at_least("known", "models", len(names), "-", LEAST)
    yield at_least("known", "new models", len(_module("known_designs").DESIGNS), "-", LEAST_NEW)
    yield at_most("known", "without answer", len(answers) - len(done), "-", 0)
    yield at_least("known", "verdicts", verdicts, "-", 1)
    yield at_most("known", "false", sum(len(a["false"]) for a in done), "-", 0)
    undecided = sum(a["undecided"] for a in done) / max(verdicts, 1)
    yield at_most("known", "undecided", undecided, "-", MOST_UNDECIDED)
    yield at_most("known", "slowest", max((a["seconds"] for a in done), default=0), "s", SLOWEST)


def work(name: str) -> Answer:
    """What is false in the verdicts on one model."""
    case = _cases()[name]
    problem = case.problem()
    exact = igpe.check(problem).exact
    lost = set(case.lost.split())
    several = dict(text.rsplit(":", 1) for text in case.several.split())
    false = [
        f"{unknown} is called {verdict.value}"
        for unknown, verdict in exact.verdicts.items()
        if verdict is (Identifiable.YES if unknown in lost else Identifiable.NO)
    ]
    false += [
        f"{unknown} is said to have {number} values"
        for unknown, number in exact.values.items()
        if number != int(several.get(unknown, 1))
    ]
    functions = tuple(f for c in exact.combinations for f in c.functions)
    if case.functions is not None and functions not in ((), case.functions):
        false.append(f"{functions} are said to be determined")
    undecided = len(exact.names(Identifiable.UNDECIDED))
    return {"false": false, "verdicts": len(exact.verdicts), "undecided": undecided}


def _cases() -> dict[str, Any]:
    known, designs = _module("known_models"), _module("known_designs")
    return {c.name: c for c in (*known.KNOWN, *known.PUBLISHED, *designs.DESIGNS)}


def _module(name: str) -> Any:
    return importlib.import_module(name)
