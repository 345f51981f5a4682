"""Exact profile likelihoods: how far an unknown may go while the others make up for it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arguments import digest
from igpe.core.arrays import FloatArray
from igpe.core.deadline import session
from igpe.core.errors import EstimationFailed
from igpe.core.status import Progress
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.equations.fingerprint import fingerprint
from igpe.problem.problem import Problem
from igpe.tasks.children import Function, Item, Outcome, Row, Work
from igpe.tasks.crew import Workers
from igpe.tasks.run import Place, run
from igpe.uncertainty.likelihood import chosen, require_confidence, values_of
from igpe.uncertainty.path import Point
from igpe.uncertainty.profiles import ParameterProfile, Profiles, sentences
from igpe.uncertainty.ready import INCREMENTS, Asked, Better, Method, made_ready
from igpe.uncertainty.walk import Steps, Walk, walk

BETTER = 1e-2  # of the rise: an optimum so much lower is another one
AGAIN = 5  # times that profiles begin again at a better optimum


@session()
def profile(
    problem: Problem,
    estimate: Any,
    names: Sequence[str] | str | None = None,
    *,
    confidence: float = 0.95,
    method: Method = SingleShooting(),
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Profiles:
    """Intervals by the likelihood ratio: all values that some fit with it explains well enough.

    Each unknown is held at values further and further from the estimate while all others are
    estimated again; where the sum of squares has risen by what chance explains, the interval ends.
    Unlike linearised errors this is right for curved problems, and the same in all parameters.

    problem    that was estimated
    estimate   a Result or Estimate of the problem, or unknown -> value: the optimum, or near it
    names      of the unknowns; None: all free ones
    confidence of each interval
    method     `SingleShooting` (fast, exact derivatives) or `Collocation` (keeps constraints)
    executor, store, timeout   where profiles are made and kept, one an item, as for
               `igpe.campaign`; one that is ended is left out, and a note says so
    progress   is told a sentence when a profile begins
    returns    the finished profiles if it is interrupted (Ctrl-C) after the first one
    raises     ProblemError for names or an estimate that do not fit the problem, Unsupported by the
               method, EstimationFailed if the model cannot be integrated at the estimate, or no
               profile could be made;  what `igpe.campaign` raises

    If a better optimum is met on the way, all profiles begin again there, and a note says so.
    """
    require_confidence("profile", confidence)
    wanted, values = chosen(problem, names), values_of(problem, estimate)
    place = Place(executor, store, timeout)
    asked = Asked(problem, method, confidence)
    told = "" if store is None else fingerprint(problem)
    began = time.perf_counter()
    notes: list[str] = []
    spent = 0
    for turn in range(AGAIN + 1):
        asked = asked._replace(leaving=turn < AGAIN)
        series = "" if store is None else digest("profile", told, asked[1:], values)
        work = Work(partial(_prepared, values), asked, series)
        found, complete = _pieces(work, wanted, place, progress)
        spent += sum(piece.integrations for piece in found) + found[0].begun
        better = min((p.better for p in found if p.better), key=lambda b: b[1], default=None)
        if better is None:
            break
        begins_again = asked.leaving and complete
        notes = [_told(found[0].whole.objective, *better, problem, began_again=begins_again)]
        if not complete:
            break
        values = problem.box.mapping(better[0]) if begins_again else values
    profiles = tuple(p for piece in found for p in piece.whole.profiles)
    lost = [n for n in wanted if n not in [p.name for p in profiles]]
    why = "There are" if complete else "Interrupted: there are"
    notes += [f"{why} no profiles of {', '.join(lost)}."] if lost else []
    return replace(
        found[0].whole,
        profiles=profiles,
        integrations=spent,
        seconds=time.perf_counter() - began,
        notes=(*notes, *sentences(profiles)),
        complete=complete,
    )


class Piece(NamedTuple):
    """What one item found.

    whole         with this one profile
    better        an optimum met on the way, or None
    begun         integrations until the problem was ready;  integrations: since then
    """

    whole: Profiles
    better: Better | None
    begun: int
    integrations: int


def _pieces(
    work: Work, wanted: Sequence[str], place: Place, progress: Progress | None
) -> tuple[list[Piece], bool]:
    """Of all unknowns in their order; where that is asked for, up to the first better optimum.

    Those that are there at Ctrl-C; whether there was none.
    raises EstimationFailed if there are none, KeyboardInterrupt if it came before the first one
    """

    def items() -> Iterator[Item]:
        for name in wanted:
            if progress is not None:
                progress(f"Profile of {name}")
            yield Item(name, name)

    known: dict[str, Outcome] = {}
    complete = True
    try:
        with closing(run(work, items(), place)) as outcomes:
            for one in outcomes:
                known[one.key] = one
                if work.asked.leaving and (enough := _up_to_better(known, wanted)):
                    known = {name: known[name] for name in enough}
                    break
    except KeyboardInterrupt:
        if not known:
            raise
        complete = False
    return _made(known, wanted), complete


def _made(known: Mapping[str, Outcome], wanted: Sequence[str]) -> list[Piece]:
    """What became profiles, in their order; raises EstimationFailed if nothing did."""
    pieces = [_piece(known[n].row) for n in wanted if n in known and known[n].status is None]
    if not pieces:
        lost = next(iter(known.values()))
        assert lost.status is not None, "all are lost"
        raise EstimationFailed(
            f"No profile could be made. {lost.status.value} {lost.message}", lost.status
        )
    return pieces


def _up_to_better(known: Mapping[str, Outcome], wanted: Sequence[str]) -> list[str]:
    """The first names up to one whose profile met a better optimum; none if that may yet change.

    In the order of the names, so that it does not matter which profile was finished first.
    """
    found = list(takewhile(known.__contains__, wanted))
    first = next((k for k, name in enumerate(found) if known[name].row.get("better")), None)
    return [] if first is None else found[: first + 1]


def _prepared(values: dict[str, float], asked: Asked) -> Function:
    """From the name of an unknown to its profile."""
    made = made_ready(asked, values)
    begun = made.integrations()

    def one(name: str) -> Row:
        before = made.integrations()
        i = asked.problem.box.names.index(name)
        path = made.path(i)
        origin = path.origin
        steps = Steps(made.base.rise, INCREMENTS, made.scale(i))
        sides = [walk(path, origin, sign, steps) for sign in (-1, 1)]
        whole = replace(made.base, profiles=(_profile(asked.problem, i, origin, sides),))
        low = min((p for side in sides for p in side.points), key=lambda p: p.cost, default=origin)
        is_better = low.cost < origin.cost - BETTER * made.base.rise
        better = made.freed(low) if is_better else None
        return {
            "whole": whole.to_dict(),
            "better": None if better is None else {"x": better[0].tolist(), "cost": better[1]},
            "begun": begun,
            "integrations": made.integrations() - before,
        }

    return one


def _piece(row: Row) -> Piece:
    better = row["better"] and (np.array(row["better"]["x"]), float(row["better"]["cost"]))
    return Piece(Profiles.from_dict(row["whole"]), better, row["begun"], row["integrations"])


def _profile(problem: Problem, i: int, origin: Point, sides: Sequence[Walk]) -> ParameterProfile:
    """Both walks as one curve."""
    value = float(origin.x[i])
    points = sorted((*sides[0].points, origin, *sides[1].points), key=lambda p: p.at)
    name, box = problem.box.names[i], problem.box
    ends = np.clip([value + side.at for side in sides], box.lower[i], box.upper[i])
    return ParameterProfile(
        name=name,
        unit=problem.unit(name),
        estimate=value,
        lower=float(ends[0]),
        upper=float(ends[1]),
        lower_end=sides[0].end.value,
        upper_end=sides[1].end.value,
        values=np.array([p.x[i] for p in points]),
        costs=np.array([p.cost for p in points]),
        others=np.array([p.x for p in points]),
    )


def _told(
    before: float, x: FloatArray, objective: float, problem: Problem, *, began_again: bool
) -> str:
    there = ", ".join(f"{n} = {v:.6g}" for n, v in problem.box.mapping(x).items())
    then = (
        "These are the profiles of the better one."
        if began_again
        else "These are still the profiles of the worse one; estimate again from there."
    )
    return (
        f"The estimate (sum of squares {before:.6g}) was not the best: on the way a better optimum "
        f"was met, {there} (sum of squares {objective:.6g}). {then}"
    )
