"""Step 4: what algebra could not reach is estimated on the dynamics, with the rest held."""

from collections.abc import Mapping

from igpe.dynamic.base import Estimator, is_plain
from igpe.dynamic.collocation import Collocation
from igpe.dynamic.multistart import MultiStart
from igpe.estimates import Estimate
from igpe.problem import Problem
from igpe.status import Status

FEW = 4  # starts where every one is a collocation problem of its own


def complement(problem: Problem, found: Mapping[str, float], search: Estimator) -> Estimate:
    """All free unknowns: those `found`, and the others from many starts with these held.

    A problem with constraints is searched by collocation, which keeps them, from few starts. Where
    the search proves something, its bound holds with what was `found` held.
    """
    rest = problem.fixing(found)
    if len(rest.box) == 0:
        return Estimate(dict(found), float("nan"), Status.NOTHING_TO_DO, "all found in step 3")
    if not is_plain(problem) and isinstance(search, MultiStart):
        search = MultiStart(Collocation(), trials=FEW, starts=FEW, seed=search.seed)
    answer = search.estimate(rest, {})
    return Estimate(
        {**found, **answer.parameters},
        answer.objective,
        answer.status,
        answer.method,
        answer.lower_bound,
        seconds=answer.seconds,
        trail=answer.trail,
        notes=answer.notes,
    )
