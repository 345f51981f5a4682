"""Step 3: every group of slopes, posed on a ladder of smoothing levels and in both forms.

One level of smoothing cannot be trusted: cross validation may smooth away the dynamics of scarce
data (problem 6 of the paper is lost that way). So each rung of the ladder and each form of the
residuals gives a candidate; step 5 judges them. The first candidate, smoothed slopes as in the
paper, is the one that is solved with a proof.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from igpe.algebraic.base import Found, Route
from igpe.algebraic.curves import Curves
from igpe.algebraic.global_solver import GlobalSolver
from igpe.algebraic.linear import Linear
from igpe.algebraic.local import Local
from igpe.algebraic.posing import Form, Posing
from igpe.algebraic.regression import Regression
from igpe.problem import Problem
from igpe.structure.findings import Reach
from igpe.structure.groups import Group
from igpe.structure.structure import Structure

SAME = 1e-3  # candidates whose parameters all differ by less, relatively, are one


@dataclass(frozen=True)
class Routes:
    """How an algebraic problem is solved.

    linear  for problems linear in their parameters: always global
    proven  for the others, on the first candidate
    quick   for the others, on the further candidates
    """

    linear: Route = Linear()
    proven: Route = GlobalSolver()
    quick: Route = Local()

    def seeded(self, seed: int) -> "Routes":
        """The same routes with another seed, as far as they have one."""
        return replace(self, proven=_seeded(self.proven, seed), quick=_seeded(self.quick, seed))

    def choose(self, regression: Regression, *, prove: bool) -> Route:
        """The route for one problem."""
        if regression.linear:
            return self.linear
        return self.proven if prove else self.quick


def _seeded(route: Route, seed: int) -> Route:
    return route.seeded(seed) if isinstance(route, (Local, GlobalSolver)) else route


@dataclass(frozen=True)
class Algebraic:
    """One candidate of step 3.

    parameters  unknown -> value, of all groups and of start values read off the curves
    answers     one per group: the group and what its route found
    curves      the smoothed measurements it came from
    origin      smoothing and form, in words
    """

    parameters: Mapping[str, float]
    answers: tuple[tuple[Group, Found], ...]
    curves: Curves
    origin: str


def estimate_algebraic(
    problem: Problem, structure: Structure, ladder: Sequence[Curves], routes: Routes
) -> list[Algebraic]:
    """The candidates of step 3, distinct ones only; the first is the paper's, with its proof."""
    starts = [smoothed_starts(problem, structure, curves) for curves in ladder]
    if not structure.groups:
        return [Algebraic(starts[0], (), ladder[0], "nothing algebraic")]
    found: list[Algebraic] = []
    for curves, start in zip(ladder, starts, strict=True):
        for form in Form:
            posing = Posing(problem, structure, curves, form)
            candidate = _candidate(posing, routes, start, prove=not found)
            if all(_differ(candidate.parameters, other.parameters) for other in found):
                found.append(candidate)
    return found


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
    answers = []
    for group in posing.structure.groups:
        regression = posing.regression(group)
        answer = routes.choose(regression, prove=prove).estimate(regression)
        if answer.estimate.status.usable:
            parameters |= answer.estimate.parameters
        answers.append((group, answer))
    return Algebraic(parameters, tuple(answers), posing.curves, posing.origin)


def _differ(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    if a.keys() != b.keys():
        return True
    return any(abs(a[n] - b[n]) > SAME * max(abs(a[n]), abs(b[n])) for n in a)
