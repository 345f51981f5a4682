"""Step 3: every group of slopes, posed on a ladder of smoothing levels and in both forms.

One level of smoothing cannot be trusted: cross validation may smooth away the dynamics of scarce
data (problem 6 of the paper is lost that way). So each rung of the ladder and each form of the
residuals gives a candidate; step 5 judges them. The first candidate, smoothed slopes as in the
paper, is the one that is solved with a proof.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from igpe.algebraic.base import Found, Route, StateErrors, Weights, reseeded
from igpe.algebraic.curves import Curves
from igpe.algebraic.local import Linear, Local, rounding
from igpe.algebraic.posing import Form, Posing
from igpe.algebraic.projected import Projected
from igpe.algebraic.regression import Regression
from igpe.core.box import Box
from igpe.core.deadline import interruptible, require_going_on
from igpe.numerics.optima import has_same_values
from igpe.problem.problem import Problem
from igpe.structure.findings import Reach
from igpe.structure.groups import Group
from igpe.structure.structure import Structure

ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class Routes:
    """How an algebraic problem is solved.

    linear  for problems linear in their parameters: always global
    proven  for the others, on the first candidate
    quick   for the others, on the further candidates
    factor  local optima with an objective up to this many times the best become candidates too;
            2 is about the 95 % region of two parameters and the dozen independent numbers that
            smoothed slopes hold (Beale 1960: 1 + p / (n - p) F); at most 10
    most    number of such further candidates in all, the nearest to their best first
    """

    linear: Route = Linear()
    proven: Route = Projected()
    quick: Route = Local()
    factor: float = 2.0
    most: int = 6

    def seeded(self, seed: int) -> "Routes":
        """The same routes with another seed, as far as they have one."""
        proven, quick = reseeded(self.proven, seed), reseeded(self.quick, seed)
        return replace(self, proven=proven, quick=quick)

    def choose(self, regression: Regression, *, prove: bool) -> Route:
        """The route for one problem."""
        if regression.linear:
            return self.linear
        return self.proven if prove else self.quick


@dataclass(frozen=True)
class Algebraic:
    """One candidate of step 3.

    parameters  unknown -> value, of all groups and of start values read off the curves
    answers     one per group: the group and what its route found
    curves      the smoothed measurements it came from
    origin      smoothing and form, in words
    passed      on the first candidate: number of good local optima beyond `Routes.most`
    """

    parameters: Mapping[str, float]
    answers: tuple[tuple[Group, Found], ...]
    curves: Curves
    origin: str
    passed: int = 0


class _Further(NamedTuple):
    """A candidate with another local optimum for one group, and how many times worse that is."""

    ratio: float
    candidate: Algebraic


def estimate_algebraic(
    problem: Problem,
    structure: Structure,
    ladder: Sequence[Curves],
    routes: Routes,
    weights: Weights = StateErrors(),
) -> list[Algebraic]:
    """The candidates of step 3, distinct ones only; the first is the paper's, with its proof.

    After the best of each posing come further local optima that are nearly as good. At Ctrl-C those
    that are there, the last perhaps without some groups; raises KeyboardInterrupt if none is.
    """
    starts = [smoothed_starts(problem, structure, curves) for curves in ladder]
    if not structure.groups:
        return [Algebraic(starts[0], (), ladder[0], "nothing algebraic")]
    found: list[Algebraic] = []
    further: list[_Further] = []
    posings = (
        (Posing(problem, structure, curves, form, weights), start)
        for curves, start in zip(ladder, starts, strict=True)
        for form in Form
    )
    try:
        for posing, start in posings:
            require_going_on()
            with interruptible():
                candidate = _candidate(posing, routes, start, prove=not found)
                if _new(candidate, found, problem.box):
                    found.append(candidate)
                further += _further(candidate, posing, routes.factor)
    except KeyboardInterrupt:
        if not found:
            raise
    return _with_further(found, sorted(further, key=lambda f: f.ratio), routes.most, problem.box)


def smoothed_starts(problem: Problem, structure: Structure, curves: Curves) -> dict[str, float]:
    """Unknown start values of measured states, read off the smoothed curves."""
    values: dict[str, list[float]] = {}
    for finding in structure.findings:
        if finding.reach is not Reach.SMOOTHING:
            continue
        for e, smooth in zip(problem.experiments, curves.of, strict=True):
            for state in finding.states:
                if state in smooth:
                    at = np.array([e.start_time])
                    values.setdefault(finding.unknown, []).append(float(smooth[state].value(at)[0]))
    box = problem.box.select(values)
    return box.mapping(box.clip(np.array([np.mean(v) for v in values.values()])))


def _candidate(
    posing: Posing, routes: Routes, start: Mapping[str, float], *, prove: bool
) -> Algebraic:
    parameters = dict(start)
    answers: list[tuple[Group, Found]] = []
    for group in posing.structure.groups:
        regression = posing.regression(group)
        try:
            require_going_on()
            with interruptible():
                answer = routes.choose(regression, prove=prove).estimate(regression)
        except KeyboardInterrupt:
            if not answers:
                raise
            break
        if answer.estimate.status.usable:
            parameters |= answer.estimate.parameters
        answers.append((group, answer))
    return Algebraic(parameters, tuple(answers), posing.curves, posing.origin)


def _further(candidate: Algebraic, posing: Posing, factor: float) -> list[_Further]:
    """The candidate with one group at another of its optima, for all that are nearly as good."""
    found = []
    for k, (group, answer) in enumerate(candidate.answers):
        best = answer.estimate.objective
        least = rounding(posing.regression(group)) if answer.others else 0.0
        for number, other in enumerate(answer.others):
            if other.objective <= factor * best + least:
                lost = tuple(n for n in group.parameters if n not in other.parameters)
                kept = {n: v for n, v in candidate.parameters.items() if n not in group.parameters}
                answers = list(candidate.answers)
                answers[k] = (group, Found(other, lost))
                about = f" for {', '.join(group.parameters)}" if len(answers) > 1 else ""
                origin = f"{_ordinal(number)} local optimum{about} of {candidate.origin}"
                one = Algebraic(
                    {**kept, **other.parameters}, tuple(answers), candidate.curves, origin
                )
                found.append(_Further(other.objective / max(best, least), one))
    return found


def _with_further(
    found: list[Algebraic], further: Sequence[_Further], most: int, box: Box
) -> list[Algebraic]:
    distinct = list(found)
    for one in further:
        if _new(one.candidate, distinct, box):
            distinct.append(one.candidate)
    kept = distinct[: len(found) + most]
    return [replace(kept[0], passed=len(distinct) - len(kept)), *kept[1:]]


def _ordinal(number: int) -> str:
    return ORDINALS[number] if number < len(ORDINALS) else f"{number + 2}th"


def _new(candidate: Algebraic, found: Sequence[Algebraic], box: Box) -> bool:
    return all(_differ(candidate.parameters, other.parameters, box) for other in found)


def _differ(a: Mapping[str, float], b: Mapping[str, float], box: Box) -> bool:
    if a.keys() != b.keys():
        return True
    own = box.select(a)
    return not has_same_values(own.vector(a), own.vector(b), own)
