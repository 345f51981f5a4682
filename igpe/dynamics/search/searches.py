"""Methods from many starts, wherever that is done."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from igpe.core.arguments import SHORT, digest, is_count, is_number, require
from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError, ProblemError
from igpe.core.estimates import Estimate, estimate_of, estimate_row
from igpe.core.json_form import checked_types
from igpe.core.status import Status
from igpe.dynamics.shooting.base import (
    Estimator,
    Profile,
    from_many_starts,
    require_bounds,
    require_start,
)
from igpe.equations.fingerprint import fingerprint
from igpe.problem.problem import Problem
from igpe.tasks.children import Function, Item, Outcome, Row, Work
from igpe.tasks.run import DAMAGED, Place, run

UNANSWERED = {Status.TIMED_OUT, Status.WORKER_DIED, Status.RAISED}

Search: TypeAlias = Callable[[Mapping[str, float]], Estimate]
"""A method prepared for one problem, as a function of the start."""


class Asked(NamedTuple):
    """What a task needs to know.

    whole  whether trails are wanted, which may be long
    """

    problem: Problem
    methods: Mapping[str, Estimator]
    profiles: Sequence[Profile] = ()
    whole: bool = False


class Run(NamedTuple):
    """One search: of which method, from which start (its number), and what was found.

    work  equivalent iterations and integrations (see `Estimate`)
    """

    method: str
    number: int
    estimate: Estimate
    work: tuple[float, float]


def searched(
    asked: Asked,
    starts: FloatArray,
    place: Place,
    *,
    here: Function | None = None,
    begins: Callable[[str], None] = lambda name: None,
) -> Iterator[Run]:
    """Every method from every start, as they become known.

    starts  (count, n) in the order of the problem's box
    here    the function of `prepared`, where this process has it already
    begins  is told the name of a method before its first search
    raises  what the methods and `igpe.tasks.run` raise; ProblemError for profiles with a store
    """
    box = asked.problem.box
    series = "" if place.store is None else _series(asked)
    keys = {name: digest(name, method)[:SHORT] for name, method in asked.methods.items()}
    numbers: dict[str, tuple[str, int]] = {}

    def items() -> Iterator[Item]:
        for name in asked.methods:
            begins(name)
            for number, start in enumerate(starts):
                key = f"{keys[name]} {number} {digest(start)[:SHORT]}"
                numbers[key] = (name, number)
                yield Item(key, (name, box.mapping(start)))

    for outcome in run(Work(prepared, asked, series, here), items(), place):
        name, number = numbers.pop(outcome.key)
        found = Run(name, number, *_told(outcome, box.names))
        # A method that keeps what it has at Ctrl-C has swallowed it.
        cut_short = found.estimate.status is Status.INTERRUPTED
        if asked.whole or not cut_short:
            yield found
        if cut_short:
            raise KeyboardInterrupt


def _series(asked: Asked) -> str:
    wanted = "none where results are kept: courses that are functions cannot be told apart"
    require(not asked.profiles, "store", "profiles", asked.profiles, wanted)
    return digest("searches", fingerprint(asked.problem), asked.whole)


def prepared(asked: Asked, done: Mapping[str, Search] = MappingProxyType({})) -> Function:
    """From (method, start) to an Estimate's row.

    done  methods that are prepared already
    """
    ready = {
        name: done.get(name) or from_many_starts(method, asked.problem, asked.profiles)
        for name, method in asked.methods.items()
    }

    def search(given: tuple[str, Mapping[str, float]]) -> Row:
        name, start = given
        began = time.perf_counter()
        found = replace(ready[name](start), seconds=time.perf_counter() - began)
        row = estimate_row(found)
        return row if asked.whole else row | {"trail": [], "elsewhere": []}

    return search


def is_estimator(given: Any) -> bool:
    """Whether it can estimate; a class of estimators cannot."""
    return callable(getattr(given, "estimate", None)) and not isinstance(given, type)


def given_starts(
    problem: Problem, starts: int | Sequence[Mapping[str, float]], seed: int, owner: str
) -> FloatArray:
    """(count, n) the starts that were given, or so many spread over the bounds by the seed.

    raises ProblemError for starts that are none, and a number of them without bounds
    """
    wanted = "a list of mappings, or how many (above 0)"
    if not isinstance(starts, Sequence):
        require(is_count(starts), owner, "starts", starts, wanted)
        if starts < 1:
            raise ProblemError(f"{starts} starts are asked for; at least one is needed.")
        require(is_count(seed), owner, "seed", seed, "a whole number, 0 or more")
        require_bounds(problem, "A number of starts")
        return problem.box.sobol(int(starts), seed)
    require(not isinstance(starts, str), owner, "starts", starts, wanted)
    if not starts:
        raise ProblemError(f"There is no start for {owner}; give at least one, or a number.")
    for k, start in enumerate(starts):
        require_start(start, problem.box, owner, str(k))
    return np.array([problem.box.vector(start) for start in starts])


def unanswered(outcome: Outcome, parameters: Mapping[str, float]) -> Estimate:
    """What stands for a search that did not end: why, in status and note."""
    assert outcome.status is not None, "the search has not ended"
    return Estimate(
        parameters, np.inf, outcome.status, notes=(outcome.message,), seconds=outcome.seconds
    )


def missing(found: Sequence[Estimate]) -> tuple[str, ...]:
    """A sentence on searches that gave no answer; none if all did."""
    lost = [e for e in found if e.status in UNANSWERED]
    if not lost:
        return ()
    return (f"{len(lost)} of {len(found)} searches gave no answer; {' '.join(lost[0].notes)}",)


def _told(outcome: Outcome, names: Sequence[str]) -> tuple[Estimate, tuple[float, float]]:
    if outcome.status is not None:
        return unanswered(outcome, dict.fromkeys(names, np.nan)), (0.0, 0.0)
    row: dict[str, Any] = outcome.row
    try:
        work = float(row["equivalent_iterations"]), float(row["equivalent_integrations"])
        found = estimate_of(row)
        if set(found.parameters) != set(names) or not is_number(*found.parameters.values()):
            raise ValueError("other unknowns")
        return checked_types(found), work
    except (LookupError, TypeError, ValueError, AttributeError):
        raise DataError(DAMAGED.format(outcome.key)) from None
