"""Unknowns on which nothing depends but standard deviations that are estimated."""

from collections.abc import Sequence
from typing import Any

import casadi as ca

from igpe.equations.symbols import stack
from igpe.equations.system import System
from igpe.problem.problem import Problem


def of_errors_alone(problem: Problem, systems: Sequence[System]) -> set[str]:
    """Names of free unknowns that no equation, start value or measured quantity contains."""
    errors: set[str] = set()
    others: set[str] = set()
    for experiment, system in zip(problem.experiments, systems, strict=True):
        given = [s for s in experiment.start.values() if isinstance(s, str)]
        starts = [s for s in system.starts.values() if not isinstance(s, float)]
        measured = [system.measured[n] for n in experiment.measured]
        model = [*_parameters(system, [system.residual, *starts, *measured]), *given]
        told = [system.measured[n] for n in experiment.estimated_sigma.values()]
        others |= {problem.unknown_of(n, experiment) for n in model}
        errors |= {problem.unknown_of(n, experiment) for n in _parameters(system, told)}
    return (errors - others) & set(problem.box.names)


def _parameters(system: System, expressions: Sequence[Any]) -> list[str]:
    if not expressions or not system.symbols.parameters:
        return []
    depends = ca.which_depends(stack(expressions), system.symbols.p, 1, False)
    return [n for n, is_in in zip(system.symbols.parameters, depends, strict=True) if is_in]
