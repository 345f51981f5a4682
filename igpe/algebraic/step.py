"""Step 3: every group of slopes, posed on a ladder of smoothing levels and in both forms.

One level of smoothing cannot be trusted: cross validation may smooth away the dynamics of scarce
data (problem 6 of the paper is lost that way). So each rung of the ladder and each form of the
residuals gives a candidate; step 5 judges them. The first candidate, smoothed slopes as in the
paper, is the one that is solved with a proof.

From structure and smoothed curves to the algebraic estimation problems of step 3.

A group of slopes can be posed in two forms (`TargetForm`); `regression` explains both.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.algebraic.base import (
    Contribution,
    Regression,
    ResidualWeights,
    Route,
    RouteResult,
    StateErrors,
    Target,
    reseeded,
)
from igpe.algebraic.curves import Curves, known_start
from igpe.algebraic.local import LinearRoute, LocalSearch, rounding
from igpe.algebraic.projected import Projected
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible, require_going_on
from igpe.equations.symbols import stack
from igpe.numerics.optima import has_same_values
from igpe.problem.inputs import evaluate, just_before
from igpe.problem.problem import Problem
from igpe.smoothing.base import description
from igpe.structure.identifiability.identifiability import Access
from igpe.structure.structure import Structure
from igpe.structure.subsystems import Member, SlopeGroup

NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)  # quadrature on [-1, 1]


class TargetForm(enum.Enum):
    """Which residuals step 3 minimises; the value is what the user reads."""

    SLOPES = "slopes"
    INTEGRALS = "integrated slopes"


@dataclass(frozen=True)
class Posing:
    """How step 3 is posed: with which curves, in which form, and how its residuals count."""

    problem: Problem
    structure: Structure
    curves: Curves
    form: TargetForm
    weights: ResidualWeights = StateErrors()

    @property
    def origin(self) -> str:
        """In words."""
        return f"{self.form.value} of {description(self.curves.smoother)}"

    def regression(self, group: SlopeGroup) -> Regression:
        """The group's estimation problem, its residuals in units of their standard errors."""
        posed = [self._posed(member) for member in group.members]
        weights = self.weights.of([p.target for p in posed])
        return Regression(
            box=self.problem.box.select(group.parameters),
            pieces=tuple(
                Contribution(
                    _prediction(self.structure, group, member),
                    self._known(member.experiment, one.places),
                    one.combine,
                    one.target.value,
                    weight,
                )
                for member, one, weight in zip(group.members, posed, weights, strict=True)
            ),
            origin=self.origin,
            linear=set(group.jointly) == set(group.parameters),
        )

    def _posed(self, member: Member) -> "_Posed":
        curve = self.curves.of[member.experiment][member.state]
        if self.form is TargetForm.SLOPES:
            times, _, _ = self.problem.experiments[member.experiment].measurements.of(member.state)
            places = np.unique(times)
            return _Posed(places, None, Target(curve.slope(places), curve.slope_error(places)))
        edges = _edges(self.problem, member)
        places, combine = _quadrature(edges)
        error = np.hypot(curve.value_error(edges[1:]), curve.value_error(edges[:-1]))
        return _Posed(places, combine, Target(np.diff(curve.value(edges)), error))

    def _known(self, experiment: int, places: FloatArray) -> FloatArray:
        """(n_known, n_places): smoothed data, time and inputs, as `_prediction` needs them.

        What jumps at a place, by an input or by a condition on time, is taken before the jump, as
        integrators report it.
        """
        posed, run = self.structure.reduced[experiment].posed, self.problem.experiments[experiment]
        smooth = self.curves.of[experiment]
        data = [smooth[n].value(places) for n in posed.data_names]
        start = run.start_time
        sides = [just_before(t) if t > start else t for t in places]
        inputs = [[evaluate(run.inputs[n], t) for t in sides] for n in posed.input_names]
        return np.vstack([*data, sides, *inputs])


class _Posed(NamedTuple):
    """Where a slope is predicted, `combine` as in `Contribution`, and what that is fitted to."""

    places: FloatArray
    combine: FloatArray | None
    target: Target


def _prediction(structure: Structure, group: SlopeGroup, member: Member) -> Any:
    """CasADi function (known, parameters of the group) -> slope of the member."""
    posed = structure.reduced[member.experiment].posed
    slope = structure.slopes[member.experiment][member.state]
    p = stack(ca.SX.sym(n) for n in group.parameters)
    at = {n: i for i, n in enumerate(posed.q_names)}
    own = [n for n in group.parameters if n in at]
    old = stack(posed.q[at[n]] for n in own)
    new = stack(p[group.parameters.index(n)] for n in own)
    known = ca.vertcat(posed.data, posed.time, posed.inputs)
    return ca.Function("predict", [known, p], [ca.substitute(slope, old, new)])


def _edges(problem: Problem, member: Member) -> FloatArray:
    """Times between which slopes are integrated: those measured, and a known start."""
    run, starts = problem.experiments[member.experiment], problem.starts[member.experiment]
    times, _, _ = run.measurements.of(member.state)
    if known_start(run, starts, member.state) is None:
        return np.unique(times)
    return np.unique(np.append(times, run.start_time))


def _quadrature(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Places (n_intervals * n,) and weights (n_intervals, n) that integrate over each interval."""
    half = np.diff(edges)[:, None] / 2
    middle = (edges[1:] + edges[:-1])[:, None] / 2
    places = middle + half * NODES
    return places.ravel(), half * WEIGHTS


ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class RouteSelection:
    """How an algebraic problem is solved.

    linear  for problems linear in their parameters: always global
    proven  for the others, on the first candidate
    quick   for the others, on the further candidates
    factor  local optima with an objective up to this many times the best become candidates too;
            2 is about the 95 % region of two parameters and the dozen independent numbers that
            smoothed slopes hold (Beale 1960: 1 + p / (n - p) F); at most 10
    most    number of such further candidates in all, the nearest to their best first
    """

    linear: Route = LinearRoute()
    proven: Route = Projected()
    quick: Route = LocalSearch()
    factor: float = 2.0
    most: int = 6

    def seeded(self, seed: int) -> "RouteSelection":
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
    passed      on the first candidate: number of good local optima beyond `RouteSelection.most`
    """

    parameters: Mapping[str, float]
    answers: tuple[tuple[SlopeGroup, RouteResult], ...]
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
    routes: RouteSelection,
    weights: ResidualWeights = StateErrors(),
) -> list[Algebraic]:
    """The candidates of step 3, distinct ones only; the first is the paper's, with its proof.

    After the best of each posing come further local optima that are nearly as good. At Ctrl-C those
    that are there, the last perhaps without some groups; raises KeyboardInterrupt if none is.
    """
    starts = [smoothed_starts(problem, structure, curves) for curves in ladder]
    if not structure.groups:
        return [Algebraic(starts[0], (), ladder[0], "nothing algebraic")]
    result: list[Algebraic] = []
    further: list[_Further] = []
    posings = (
        (Posing(problem, structure, curves, form, weights), start)
        for curves, start in zip(ladder, starts, strict=True)
        for form in TargetForm
    )
    try:
        for posing, start in posings:
            require_going_on()
            with interruptible():
                candidate = _candidate(posing, routes, start, prove=not result)
                if _new(candidate, result, problem.box):
                    result.append(candidate)
                further += _further(candidate, posing, routes.factor)
    except KeyboardInterrupt:
        if not result:
            raise
    return _with_further(result, sorted(further, key=lambda f: f.ratio), routes.most, problem.box)


def smoothed_starts(problem: Problem, structure: Structure, curves: Curves) -> dict[str, float]:
    """Unknown start values of measured states, read off the smoothed curves."""
    values: dict[str, list[float]] = {}
    for finding in structure.findings:
        if finding.reach is not Access.SMOOTHING:
            continue
        for e, smooth in zip(problem.experiments, curves.of, strict=True):
            for state in finding.states:
                if state in smooth:
                    at = np.array([e.start_time])
                    values.setdefault(finding.unknown, []).append(float(smooth[state].value(at)[0]))
    box = problem.box.select(values)
    return box.mapping(box.clip(np.array([np.mean(v) for v in values.values()])))


def _candidate(
    posing: Posing, routes: RouteSelection, start: Mapping[str, float], *, prove: bool
) -> Algebraic:
    parameters = dict(start)
    answers: list[tuple[SlopeGroup, RouteResult]] = []
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
    result = []
    for k, (group, answer) in enumerate(candidate.answers):
        best = answer.estimate.objective
        least = rounding(posing.regression(group)) if answer.others else 0.0
        for number, other in enumerate(answer.others):
            if other.objective <= factor * best + least:
                lost = tuple(n for n in group.parameters if n not in other.parameters)
                kept = {n: v for n, v in candidate.parameters.items() if n not in group.parameters}
                answers = list(candidate.answers)
                answers[k] = (group, RouteResult(other, lost))
                about = f" for {', '.join(group.parameters)}" if len(answers) > 1 else ""
                origin = f"{_ordinal(number)} local optimum{about} of {candidate.origin}"
                one = Algebraic(
                    {**kept, **other.parameters}, tuple(answers), candidate.curves, origin
                )
                result.append(_Further(other.objective / max(best, least), one))
    return result


def _with_further(
    result: list[Algebraic], further: Sequence[_Further], most: int, box: Box
) -> list[Algebraic]:
    distinct = list(result)
    for one in further:
        if _new(one.candidate, distinct, box):
            distinct.append(one.candidate)
    kept = distinct[: len(result) + most]
    return [replace(kept[0], passed=len(distinct) - len(kept)), *kept[1:]]


def _ordinal(number: int) -> str:
    return ORDINALS[number] if number < len(ORDINALS) else f"{number + 2}th"


def _new(candidate: Algebraic, result: Sequence[Algebraic], box: Box) -> bool:
    return all(_differ(candidate.parameters, other.parameters, box) for other in result)


def _differ(a: Mapping[str, float], b: Mapping[str, float], box: Box) -> bool:
    if a.keys() != b.keys():
        return True
    own = box.select(a)
    return not has_same_values(own.vector(a), own.vector(b), own)
