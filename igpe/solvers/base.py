"""What every outside solver answers and must offer, and how two runs confirm a closed gap.

Deterministic solvers compute in floating point: now and then rounding cuts off a whole tree, and
what is called proved is not.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyomo.environ as pyo

from igpe.core.errors import ModelError
from igpe.core.status import Status


@dataclass(frozen=True)
class Answer:
    """How a solve ended. The variables' values themselves are in the Pyomo model.

    status       CONVERGED from a local solver, OPTIMAL_WITHIN_GAP from one that proves
    objective    value of the incumbent, evaluated in the model; nan if there is none
    lower_bound  proven bound on the objective; -inf if nothing is proven
    message      the solver's own words
    seconds      wall time, model translation included
    iterations   the solver's own count: steps of an interior point method, nodes of a tree
    """

    status: Status
    objective: float = np.nan
    lower_bound: float = -np.inf
    message: str = ""
    seconds: float = 0.0
    iterations: int = 0

    @property
    def gap(self) -> float:
        """(objective - lower_bound) relative to the objective; inf if either is missing."""
        if not np.isfinite([self.objective, self.lower_bound]).all():
            return np.inf
        return (self.objective - self.lower_bound) / max(abs(self.objective), 1e-12)


class Solver(Protocol):
    """Minimises a Pyomo model; it changes nothing in it but the values of variables."""

    @property
    def install(self) -> str:
        """One sentence that says how to install the solver."""
        ...

    def available(self) -> bool:
        """Return True if the solver can be used here."""
        ...

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """Minimise the model's one active objective, beginning at its variables' values.

        time_limit  wall time, s; None for no limit
        returns     an Answer; if it has an incumbent, its values are in the model, else the model's
                    values are as before. Status.NO_SOLVER, with `install` as the message, if the
                    solver is not there.
        raises      ModelError unless there is exactly one active objective, to be minimised
        """
        ...


def name_of(solver: Solver) -> str:
    """Name of a solver in messages: that of its program, else of its class."""
    return str(getattr(solver, "name", type(solver).__name__))


def no_solver(solver: Solver) -> Answer:
    """The answer of a solver that is not installed."""
    return Answer(Status.NO_SOLVER, message=solver.install)


def objective_of(model: Any) -> Any:
    """The one active objective of a model.

    raises ModelError if there is none, if there are several, or if it is to be maximised
    """
    active = list(model.component_data_objects(pyo.Objective, active=True, descend_into=True))
    if len(active) != 1:
        raise ModelError(
            f"The model has {len(active)} active objectives {[o.name for o in active]}; expected "
            "one. Deactivate the others."
        )
    if active[0].sense != pyo.minimize:
        raise ModelError(
            f"The objective '{active[0].name}' is to be maximised; minimise its negative instead."
        )
    return active[0]


LEAST = 1.0  # s, what the second solver has at least
OPEN = 1e-2  # a gap that was closed and is wider than this when evaluated exactly is open
WIDEST = 0.1  # gap that is called closed, whatever the solver was given


def solve_confirmed(
    solver: Solver, witness: Solver, model: Any, time_limit: float | None
) -> Answer:
    """Solve a model; a closed gap counts only as far as a second solver confirms it.

    witness     the second solver, or the same with another seed and tolerance; it has the time left
    time_limit  wall time of both together, s; None for no limit
    returns     the solver's Answer if it closed no gap; else the second one, with the better
                objective and the weaker bound
    """
    start = time.perf_counter()
    answer = solver.solve(model, time_limit=time_limit)
    if answer.status is not Status.OPTIMAL_WITHIN_GAP:
        return answer
    spent = time.perf_counter() - start
    left = None if time_limit is None else max(time_limit - spent, LEAST)
    second = witness.solve(model, time_limit=left)
    objective = min(answer.objective, second.objective)
    bound = min(answer.lower_bound, second.lower_bound)
    return replace(second, objective=objective, lower_bound=bound)


def confirmed_status(answer: Answer, distance: float, unit: float) -> Status:
    """Status of the answer, as far as the incumbent evaluated exactly confirms it.

    distance  of that incumbent's objective to the proven bound;  unit: what counts as 1 of it
    returns   BEST_OF_SEVERAL in the place of OPTIMAL_WITHIN_GAP if the two are farther apart than
              the solver says
    """
    closed = max(OPEN, min(2 * answer.gap, WIDEST)) * unit
    if answer.status is Status.OPTIMAL_WITHIN_GAP and not distance <= closed:
        return Status.BEST_OF_SEVERAL
    return answer.status
