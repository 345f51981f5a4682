"""A problem's equations and initial value problems, each made once and kept with the problem."""

from contextlib import suppress
from typing import Any

import numpy as np
from pyomo.common.gc_manager import PauseGC

from igpe.core.errors import ModelError, Unsupported
from igpe.equations.constants import constants
from igpe.equations.initial_value import InitialValueProblem, initial_value_problem
from igpe.equations.reading.pieces import moves
from igpe.equations.reading.read import read_systems
from igpe.equations.switching import refused
from igpe.equations.system import System
from igpe.problem.problem import Problem


class Compiled:
    """A problem, its equations in CasADi, and the initial value problems that they pose.

    The model is read once: problems that `fixing` and `weighted` make of a problem share what was
    read of it. Their initial value problems are their own.

    problem  what was compiled
    systems  equations of each experiment, in their order; the first process alone compares them
             with the model
    switching  of each experiment: whether events happen, or unknowns or states move a jump
    constants  of each experiment: inputs whose numbers its equations share with other experiments
    kept     what else was made of them, by who made it: it ends with the problem
    raises   ModelError as `read_systems` does, and if such a jump cannot be followed
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._posed: dict[tuple[Any, ...], InitialValueProblem] = {}
        self._shared: dict[Any, InitialValueProblem] = {}
        self.kept: dict[Any, Any] = {}
        known = problem.systems
        with PauseGC():  # a third of the time of large models: their many objects are all in use
            for compare in (True, False):
                missing = [
                    e
                    for e in problem.experiments
                    if known.get(key := (e.name, e.told)) is None and compare is (key not in known)
                ]
                read = read_systems(problem, missing, compare=compare)
                known.update(((e.name, e.told), s) for e, s in zip(missing, read, strict=True))
        self.systems: tuple[System, ...] = tuple(known[e.name, e.told] for e in problem.experiments)
        pairs = zip(problem.experiments, self.systems, strict=True)
        self.constants = constants(problem.experiments, self.systems)
        self.switching = tuple(moves(problem, e, system) for e, system in pairs)

    def initial_value_problem(
        self,
        index: int,
        *,
        until: float = -np.inf,
        plain_powers: bool = False,
        switching: bool = False,
    ) -> InitialValueProblem:
        """The initial value problem of one experiment; the arguments are those of the function.

        switching  whether the caller follows events and jumps that are moved
        raises     Unsupported where there are some and it does not
        """
        if self.switching[index] and not switching:
            raise refused("This method")
        key = index, until, plain_powers
        if key not in self._posed:
            experiment, system = self.problem.experiments[index], self.systems[index]
            names = frozenset() if plain_powers else self.constants[index]
            family = id(system.residual), experiment.told, names, until
            found = initial_value_problem(
                self.problem,
                experiment,
                system,
                until=until,
                plain_powers=plain_powers,
                switches=self.switching[index],
                constants=names,
                like=self._shared.get(family),
            )
            if found.shared is not None:
                self._shared.setdefault(family, found.shared)
            self._posed[key] = found
        return self._posed[key]


def require_smooth_and_normal(problem: Problem, method: str) -> None:
    """Raise Unsupported where events happen, jumps are moved, or priors are not normal.

    What cannot be read is left to who reads it.
    """
    if problem.other_priors:
        raise Unsupported(
            f"{method} knows normal priors alone, and those of {list(problem.other_priors)} are "
            "not. igpe.estimate, igpe.SingleShooting and igpe.sample know them."
        )
    with suppress(ModelError):
        if any(compiled(problem).switching):
            raise refused(method)


def compiled(problem: Problem) -> Compiled:
    """The problem's `Compiled`, made on the first call; raises ModelError as that does."""
    if problem.compiled is None:
        problem.compiled = Compiled(problem)
    found: Compiled = problem.compiled
    return found
