"""Exact profile likelihoods: how far an unknown may go while the others make up for it."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from igpe.arrays import FloatArray
from igpe.dynamic.single_shooting import SingleShooting
from igpe.problem import Problem
from igpe.progress import Progress
from igpe.uncertainty.likelihood import chosen, require_confidence, values_of
from igpe.uncertainty.path import Point
from igpe.uncertainty.profiles import ParameterProfile, Profiles, sentences
from igpe.uncertainty.ready import INCREMENTS, Asked, Better, Method, made_ready
from igpe.uncertainty.walk import Steps, Walk, walk

BETTER = 1e-2  # of the rise: an optimum so much lower is another one
AGAIN = 5  # times that profiles begin again at a better optimum


def profile(
    problem: Problem,
    estimate: Any,
    names: Sequence[str] | str | None = None,
    *,
    confidence: float = 0.95,
    method: Method = SingleShooting(),
    executor: Executor | None = None,
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
    executor   where the profiles are made, one a task; None: here. The problem's model must then
               be a function that can be pickled
    progress   is told a sentence when a profile begins
    raises     ProblemError for names or an estimate that do not fit the problem, Unsupported by the
               method, EstimationFailed if the model cannot be integrated at the estimate

    If a better optimum is met on the way, all profiles begin again there, and a note says so.
    """
    require_confidence("profile", confidence)
    wanted, values = chosen(problem, names), values_of(problem, estimate)
    asked = Asked(problem, method, confidence)
    began = time.perf_counter()
    notes: list[str] = []
    spent = 0
    for turn in range(AGAIN + 1):
        asked = asked._replace(leaving=turn < AGAIN)
        found = list(_pieces(asked, values, wanted, executor, progress))
        spent += sum(piece.integrations for piece in found)
        base = found[0].base
        better = min((b for piece in found for b in piece.better), key=lambda b: b[1], default=None)
        if better is None:
            break
        notes = [_told(base.objective, *better, problem, began_again=asked.leaving)]
        values = problem.box.mapping(better[0]) if asked.leaving else values
    profiles = tuple(p for piece in found for p in piece.profiles)
    return replace(
        base,
        profiles=profiles,
        integrations=spent,
        seconds=time.perf_counter() - began,
        notes=(*notes, *sentences(profiles)),
    )


class Piece(NamedTuple):
    """What one task found: base has all but the profiles."""

    base: Profiles
    profiles: tuple[ParameterProfile, ...]
    better: tuple[Better, ...]
    integrations: int


def _pieces(
    asked: Asked,
    values: dict[str, float],
    wanted: Sequence[str],
    executor: Executor | None,
    progress: Progress | None,
) -> Iterator[Piece]:
    if executor is None:
        yield _piece(asked, values, wanted, progress)
        return
    tasks = [executor.submit(_piece, asked, values, [name]) for name in wanted]
    for name, task in zip(wanted, tasks, strict=True):
        if progress is not None:
            progress(f"Profile of {name}")
        yield task.result()


def _piece(
    asked: Asked, values: dict[str, float], wanted: Sequence[str], progress: Progress | None = None
) -> Piece:
    """The profiles of some unknowns; ends early where a better optimum is met."""
    made = made_ready(asked, values)
    profiles: list[ParameterProfile] = []
    better: list[Better] = []
    for name in wanted:
        if progress is not None:
            progress(f"Profile of {name}")
        i = asked.problem.box.names.index(name)
        path = made.path(i)
        origin = path.origin
        steps = Steps(made.base.rise, INCREMENTS, made.scale(i))
        sides = [walk(path, origin, sign, steps) for sign in (-1, 1)]
        profiles.append(_profile(asked.problem, i, origin, sides))
        low = min((p for side in sides for p in side.points), key=lambda p: p.cost, default=origin)
        if low.cost < origin.cost - BETTER * made.base.rise:
            better.append(made.freed(low))
            if asked.leaving:
                break
    return Piece(made.base, tuple(profiles), tuple(better), made.integrations())


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
