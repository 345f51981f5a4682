"""What every outside solver answers, and what it must offer to stand behind the wall."""

from dataclasses import dataclass
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
    message      what the solver itself said
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
        """The sentence that says how to install it."""
        ...

    def available(self) -> bool:
        """Whether it can be used here."""
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
    found = list(model.component_data_objects(pyo.Objective, active=True, descend_into=True))
    if len(found) != 1:
        raise ModelError(
            f"The model has {len(found)} active objectives {[o.name for o in found]}; wanted one. "
            "Deactivate the others."
        )
    if found[0].sense != pyo.minimize:
        raise ModelError(
            f"The objective '{found[0].name}' is to be maximised; write it as a minimum of its "
            "negative."
        )
    return found[0]
