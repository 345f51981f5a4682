"""What the grid in space does to a fit: igpe estimates once more on a grid twice as fine.

The parameters follow a coarse grid, so a few steps of the search on the fine one are part of every
comparison. How far estimates move tells their error (see `igpe.uncertainty.grid_error`).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from igpe.core.deadline import if_in_time
from igpe.core.errors import IgpeError
from igpe.core.markup import listed, number
from igpe.core.status import Clock
from igpe.dynamics.shooting.base import is_plain, minimises_squares
from igpe.dynamics.shooting.residuals import ExhaustedError, Residuals
from igpe.equations.compiled import compiled
from igpe.estimation.settings import Settings
from igpe.estimation.steps import Steps
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.problem.problem import Problem
from igpe.results.result import Result
from igpe.results.result_data import TOO_COARSE, Parameter
from igpe.uncertainty.grid import FACTOR

NEAR = 8  # iterations on the finer grid
FINER = 0.8  # of the objective: what is left of it on a finer grid where the coarse one misfits
MOST_STATES = 100  # of all experiments, where a model is built once more without being asked for
WORK = 200_000_000  # of its integrations (`Residuals.work`): some 5 s
MOST_NAMED = 3
COARSE = (
    f"{TOO_COARSE}: on a grid with twice as many intervals, the sum of squares near the same "
    "parameter values falls from {:.6g} to {:.6g}. Use a finer grid or a scheme of "
    "higher order (space=...) before you judge the model. igpe did not search for a better fit on "
    "this grid."
)
UNKNOWN = "The intervals do not include the error of the grid in space. "
BY_FUNCTION = "Estimate it with igpe.uncertainty.grid_error(problem, result)."
BY_HAND = "Estimate again with twice as many intervals to see how large it is."
LARGE = (
    "A grid in space with twice as many intervals gives {}. The intervals do not include the error "
    "of the grid, which may be larger than the standard error{}. Use a finer grid or a scheme of "
    "higher order (space=...)."
)
SMALL = (
    "The intervals do not include the error of the grid in space. With twice as many intervals in "
    "space, {} changes by {} of its standard error{}."
)


def coarse_grid(steps: Steps, settings: Settings) -> str:
    """The sentence on a grid in space that misfits at the estimate; empty if none does."""
    at = steps.best.at
    fine = None if at is None else _refined(steps, settings, enough=FINER * at.cost)
    if at is None or fine is None or not fine.cost < FINER * at.cost:
        return ""
    return COARSE.format(at.cost, fine.cost)


def with_grid_error(steps: Steps, settings: Settings, result: Result, clock: Clock) -> Result:
    """The result with a sentence on the error of the grid in space, if the problem has one."""
    problem = steps.problem
    is_told = any(a.startswith(TOO_COARSE) for a in result.actions)
    if is_told or not (problem.given["space"] and len(problem.box)):
        return result
    fine, how = None, BY_FUNCTION if _is_comparable(problem) else BY_HAND
    if result.status.usable and not result.status.is_early and _states(steps) <= MOST_STATES:
        with clock.step("grid in space", "Estimating once more on a finer grid in space"):
            fine, how = if_in_time(lambda: _refined(steps, settings)), BY_HAND
    if fine is None:
        return replace(result, actions=(*result.actions, UNKNOWN + how))
    values = problem.box.mapping(fine.x)
    known = [p for p in result.estimates if p.name in values and 0 < p.error < np.inf]
    shares = {p.name: FACTOR * abs(values[p.name] - p.value) / p.error for p in known}
    if not shares:
        return result
    moved = [p for p in known if shares[p.name] > 1]
    if moved:
        return replace(result, actions=(*result.actions, _moved(moved, values)))
    worst = max(shares, key=lambda name: shares[name])
    others = ", and the other unknowns by less" if len(shares) > 1 else ""
    said = SMALL.format(worst, f"{100 * shares[worst] / FACTOR:.2g} %", others)
    return replace(result, notes=(*result.notes, said))


def _is_comparable(problem: Problem) -> bool:
    """Whether `igpe.uncertainty.grid_error` knows the problem's objective."""
    return is_plain(problem) and minimises_squares(problem)


def _states(steps: Steps) -> int:
    made, count = compiled(steps.problem), len(steps.problem.experiments)
    return sum(len(made.initial_value_problem(k).states) for k in range(count))


def _moved(moved: Sequence[Parameter], values: dict[str, float]) -> str:
    """The sentence on those that a finer grid moves by more than their standard errors."""
    pairs = [
        f"{p.name} = {number(values[p.name], p.error)} instead of {number(p.value, p.error)}"
        for p in moved[:MOST_NAMED]
    ]
    names = [p.name for p in moved]
    return LARGE.format(listed(pairs), f" of {listed(names)}" if len(values) > 1 else "")


def _refined(steps: Steps, settings: Settings, enough: float = -np.inf) -> Fit | None:
    """The search taken up on the finer grid; None where there is no grid, or it fails."""
    problem = steps.problem
    if steps.best.at is None or not (problem.given["space"] and _is_comparable(problem)):
        return None
    x = problem.box.vector(steps.best.estimate.parameters)
    search = GaussNewton(max_iterations=NEAR, enough=enough)
    with suppress(IgpeError, ExhaustedError):
        finer = problem.on_finer_grid()
        if finer.box.names != problem.box.names:  # as of parameters that vary in space
            return None
        residuals = Residuals(finer, settings.integrator)
        residuals.most_work = WORK
        fit = search.fit(residuals, x, problem.box)
        return None if fit.at is None else fit
    return None
