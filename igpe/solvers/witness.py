"""A closed gap that two runs agree on.

Deterministic solvers compute in floating point: now and then a whole tree is cut off by rounding,
and what is called proved is not.
"""

import time
from dataclasses import replace
from typing import Any

from igpe.core.status import Status
from igpe.solvers.base import Answer, Solver

LEAST = 1.0  # s, what the witness has at least
OPEN = 1e-2  # a gap that was closed and is wider than this when evaluated exactly is open
WIDEST = 0.1  # gap that is called closed, whatever was asked of the solver


def solve_confirmed(
    solver: Solver, witness: Solver, model: Any, time_limit: float | None
) -> Answer:
    """The solver's answer; a closed gap counts only as far as the witness comes to it as well.

    witness     another solver, or the same with another seed and tolerance; it has the time left
    time_limit  wall time of both together, s; None for no limit
    returns     the solver's Answer if it closed no gap; else the witness's, with the better
                objective and the weaker bound
    """
    began = time.perf_counter()
    answer = solver.solve(model, time_limit=time_limit)
    if answer.status is not Status.OPTIMAL_WITHIN_GAP:
        return answer
    spent = time.perf_counter() - began
    left = None if time_limit is None else max(time_limit - spent, LEAST)
    second = witness.solve(model, time_limit=left)
    objective = min(answer.objective, second.objective)
    bound = min(answer.lower_bound, second.lower_bound)
    return replace(second, objective=objective, lower_bound=bound)


def believed(answer: Answer, distance: float, unit: float) -> Status:
    """The answer's status, if the incumbent evaluated exactly agrees.

    distance  of that incumbent's objective to the proven bound;  unit: what counts as 1 of it
    returns   BEST_OF_SEVERAL in the place of OPTIMAL_WITHIN_GAP if the two are farther apart than
              the solver says
    """
    closed = max(OPEN, min(2 * answer.gap, WIDEST)) * unit
    if answer.status is Status.OPTIMAL_WITHIN_GAP and not distance <= closed:
        return Status.BEST_OF_SEVERAL
    return answer.status
