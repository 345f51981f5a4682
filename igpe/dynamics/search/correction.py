"""Step 5: candidates of step 3 are corrected on the dynamics, all unknowns at once."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from igpe.core.errors import Unsupported
from igpe.core.estimates import Estimate
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.base import (
    Estimator,
    Profile,
    estimate_each,
    is_large,
    is_plain,
    minimises_squares,
    mostly_measured,
)
from igpe.dynamics.shooting.multiple.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.equations.compiled import compiled
from igpe.numerics.optima import is_same_objective
from igpe.problem.problem import Problem
from igpe.solvers.ipopt import Ipopt

WORK = 2_000_000  # of collocation (`most_work`), about 20 s of a processor; the rest by shooting
ITERATIONS = 100  # of IPOPT, which begins next to an optimum; most take a third of it
AMD = (("mumps_pivot_order", 0),)
"""MUMPS's minimum degree: for 100 states twice as fast as the ordering that it would choose."""
IN_INTERVALS = MultipleShooting(restarts=Restarts(count=0), finer=1)
NEARBY = SingleShooting(hierarchical=False)
"""Beside an optimum elimination gains nothing, and takes two to four times as long."""
AGREEING = 2  # candidates that multiple shooting brings to one optimum: it corrects no further ones


def corrections(
    problem: Problem,
    starts: Sequence[Mapping[str, float]],
    guesses: Sequence[Sequence[Profile]],
) -> list[Estimate]:
    """Estimates from the starts, in their order; the last ones may be left out.

    By collocation, or by shooting where that takes less work, or can do what collocation cannot.
    raises  Unsupported
    """
    with suppress(Unsupported):
        quick = _quick(problem, starts, guesses)
        if any(end.status.usable for end in quick):
            return quick
    methods: list[Estimator] = [Collocation(), NEARBY]
    if is_plain(problem):  # an accurate integration finishes it, and is the better judge
        ordering = AMD if is_large(problem) else ()
        solver = Ipopt(max_iterations=ITERATIONS, options=ordering)
        methods[0] = Collocation(solver, max_refinements=0, most_work=WORK)
    ends: list[Estimate] = []
    for method in methods:
        with suppress(Unsupported):
            ends += estimate_each(method, problem, starts[len(ends) :], guesses[len(ends) :])
            if len(ends) == len(starts):
                return ends
    if ends:
        return ends
    return estimate_each(MultipleShooting(restarts=Restarts(count=0)), problem, starts, guesses)


def _quick(
    problem: Problem,
    starts: Sequence[Mapping[str, float]],
    guesses: Sequence[Sequence[Profile]],
) -> list[Estimate]:
    """Many states with less work than collocation; empty if nothing takes less.

    Where most states are measured, intervals begin at the measurements, and no factors of the
    whole program are needed. Where few are, trajectories must be integrated from the start.
    """
    if not (is_plain(problem) and is_large(problem)):
        return []
    if not mostly_measured(problem):
        return estimate_each(NEARBY, problem, starts, guesses)
    equations = compiled(problem)
    each = (equations.initial_value_problem(k) for k in range(len(problem.experiments)))
    if any(ivp.y.numel() for ivp in each) or not minimises_squares(problem):
        return []
    ends: list[Estimate] = []
    for start, profiles in zip(starts, guesses, strict=True):
        ends.append(IN_INTERVALS.estimate(problem, start, profiles))
        usable = [end.objective for end in ends if end.status.usable]
        least = min(usable, default=np.inf)
        if sum(is_same_objective(one, least) for one in usable) >= AGREEING:
            break
    return ends
