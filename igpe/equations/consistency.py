"""Whether start values that are given agree with those that reduced equations give."""

import casadi as ca
import numpy as np

from igpe.core.errors import ModelError
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.symbols import stack
from igpe.equations.system import System
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem

SAME = 1e-6  # relative difference of start values that contradict each other
NOTHING = 1e-9  # of the largest: differences that are rounding
DRAWS = 4  # points at which start values are compared that unknowns move


def require_consistent(
    problem: Problem, experiment: Experiment, system: System, ivp: InitialValueProblem
) -> None:
    """Raise ModelError where given start values contradict what the equations give.

    system  reduced;  ivp: the initial value problem that it poses
    """
    reduction, free_symbols = (
        system.reduction,
        dict(zip(ivp.unknowns, ca.vertsplit(ivp.q), strict=True)),
    )
    if reduction is None:
        return
    unknown = [problem.unknown_of(n, experiment) for n in system.symbols.parameters]
    p = stack(free_symbols[n] if n in free_symbols else problem.fixed[n] for n in unknown)
    starts = dict(zip(ivp.states, ca.vertsplit(ivp.start), strict=True))
    symbols = [system.symbols.p, system.symbols.s], [p, stack(starts[n] for n in reduction.free)]
    computed = {n: ca.substitute([v], *symbols)[0] for n, v in reduction.starts.items()}
    given = {n: ca.substitute(v, system.symbols.p, p) for n, v in reduction.given.items()}
    q, box = ivp.q, problem.box.select(ivp.unknowns)
    both = stack([*(computed[n] for n in reduction.bound), *given.values()])
    rng = np.random.default_rng(0)
    draws = [box.middle * (1 + 0.1 * rng.uniform(-1, 1, len(box))) for _ in range(DRAWS)]
    points = [box.middle, *map(box.clip, draws)] if ca.depends_on(both, q) else [box.middle]
    function, number = ca.Function("starts", [q], [both]), len(reduction.bound)
    values = [np.asarray(function(point)).ravel() for point in points]
    run, free = f"Experiment '{experiment.name}': the start values", list(reduction.free)
    if all(np.isnan(row[:number]).any() for row in values):
        pairs = zip(reduction.bound, values[0][:number], strict=True)
        raise ModelError(
            f"{run} of {[n for n, v in pairs if np.isnan(v)]} follow from "
            f"{list(reduction.constraints)} and the start values of {free}, but these "
            "equations have no root near the values of the model's variables. Correct the "
            "start values, or give the variables values near the root."
        )
    for point, row in zip(points, values, strict=True):
        size, known = (
            NOTHING * np.nanmax(np.abs(row)),
            dict(zip(reduction.bound, row, strict=False)),
        )
        for name, value in zip(given, row[number:], strict=True):
            if abs(known[name] - value) <= SAME * abs(value) + size or np.isnan(known[name]):
                continue
            at = ", ".join(f"{n} = {v:.6g}" for n, v in zip(box.names, point, strict=True))
            is_moved = ca.depends_on(ca.vertcat(computed[name], given[name]), q)
            fixes = f" at {at}. They would determine unknowns that are to be estimated"
            raise ModelError(
                f"{run} contradict the equations {list(reduction.constraints)}: '{name}' is "
                f"given as {value:.6g}, but follows from the others as "
                f"{known[name]:.6g}{fixes * is_moved}. Omit '{name}' from start to let igpe "
                f"compute it, or correct the start values of {free}."
            )
