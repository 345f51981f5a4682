"""What every outside solver answers and must offer, and how two runs confirm a closed gap.

Deterministic solvers compute in floating point: now and then rounding cuts off a whole tree, and
what is called proved is not.

Bounds hold within a global solver's tolerances, also for small objectives. Global solvers have
absolute tolerances: to SCIP and Couenne the objective is one more constraint, which holds to 1e-7
or so, and their linear programs round. Six-point Michaelis-Menten fit, optimum 1.5e-12: SCIP 10
called 2.9e-8 optimal, with the bound 2.9e-8, at a feasibility of 1e-9. So a margin is taken off
every bound, and where it is wider than the requested gap, the solver gets the objective again,
divided by a unit that makes the margin small.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr.visitor import identify_variables

from igpe.core.errors import ModelError
from igpe.core.estimates import relative_gap
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
        known = np.isfinite([self.objective, self.lower_bound]).all()
        return relative_gap(self.objective, self.lower_bound) if known else np.inf


class Solver(Protocol):
    """Minimises a Pyomo model; it changes nothing in it but the values of variables."""

    @property
    def install(self) -> str:
        """Installation instructions for the solver, in one sentence."""
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


MARGIN = 1e-6  # taken off a bound on an objective of order one
PASSES = 4
REST = 60.0  # s for all passes if there is no time limit; the first one is not limited
FINER = 10.0  # the requested gap over the margin, in a further pass
INFINITE = 1e19  # solvers report their infinity as 1e20 or larger
SMALLEST = 1e-12  # size of an objective that is smaller

Once = Callable[[float, float, float | None], Answer]


class Goal(NamedTuple):
    """When a gap is closed, and how exact bounds are.

    gap       distance of incumbent and bound, relative to the incumbent
    absolute  the same in the objective's own unit, for an optimum near 0; None: the margin, for an
              objective of order one or more, else that part of its size
    margin    by which a bound may be off, for an objective of order one
    """

    gap: float
    absolute: float | None
    margin: float = MARGIN


def solve_closed(once: Once, model: Any, goal: Goal, time_limit: float | None) -> Answer:
    """Answer of a global solver whose bound holds and whose closed gap is closed.

    once        (unit, absolute gap in that unit, seconds left) -> the answer of one run for which
                the objective was divided by the unit; objective and bound in the model's own unit
    returns     OPTIMAL_WITHIN_GAP only if incumbent and bound are not farther apart than twice what
                was requested; BEST_OF_SEVERAL if the solver says so and they are
    """
    start, size = time.perf_counter(), _size(objective_of(model))
    best, unit, left = Answer(Status.FAILED), _within(size or 1.0), time_limit
    aim = goal.absolute or 0.0
    for k in range(PASSES):
        if k > 0:
            limit = REST if time_limit is None else time_limit
            left = max(limit - (time.perf_counter() - start), 0.0)
        free = model.component_data_objects(pyo.Var, descend_into=True)
        before = pyo.ComponentMap((v, v.value) for v in free if not v.fixed)
        answer = once(unit, max(aim / unit, goal.margin), left)
        answer = _weakened(answer, goal.margin, unit)
        best = _better(best, answer, before) if k else answer
        best = _agreed(best, goal.margin, unit)
        # An objective below the absolute gap counts as 0: its figures are the solver's rounding.
        size = size or abs(best.objective)
        closest = goal.margin * _within(size) if goal.absolute is None else goal.absolute
        relative = goal.gap * abs(best.objective)
        aim = relative if abs(best.objective) > closest else closest
        finer = aim / (FINER * goal.margin)
        closed = best.objective - best.lower_bound <= 2 * aim
        if closed or answer.status is not Status.OPTIMAL_WITHIN_GAP or not 0 < finer < unit / 2:
            break
        unit = finer
    if k > 0 and time_limit is None and best.status is Status.TIME_LIMIT:  # that was REST
        best = replace(best, status=Status.OPTIMAL_WITHIN_GAP)
    return _judged(best, 2 * max(relative, closest))


def _judged(answer: Answer, tolerance: float) -> Answer:
    """The answer with a closed gap called so, and no other."""
    distance = answer.objective - answer.lower_bound
    if distance <= tolerance and answer.status.usable:
        return replace(answer, status=Status.OPTIMAL_WITHIN_GAP)
    if answer.status is not Status.OPTIMAL_WITHIN_GAP:
        return answer
    words = f"the solver's tolerances leave a gap of {distance:.2g} between incumbent and bound"
    message = f"{answer.message}; {words}" if np.isfinite(distance) else answer.message
    return replace(answer, status=Status.BEST_OF_SEVERAL, message=message)


def _weakened(answer: Answer, margin: float, unit: float) -> Answer:
    """The answer with the margin taken off its bound."""
    raw = answer.lower_bound
    if not abs(raw) < INFINITE * unit:
        return replace(answer, lower_bound=-np.inf)
    return replace(answer, lower_bound=raw - margin * max(unit, abs(raw)))


def _agreed(answer: Answer, margin: float, unit: float) -> Answer:
    """The answer without a bound that the incumbent refutes."""
    bound, value = answer.lower_bound, answer.objective
    if bound - value > FINER * margin * max(unit, abs(bound)):
        words = f"the bound {bound:.6g} lies above the objective {value:.6g} of a known point"
        message = f"{answer.message}; {words}, so nothing is proved"
        return replace(answer, lower_bound=-np.inf, message=message)
    return replace(answer, lower_bound=float(np.fmin(bound, value)))


def _better(first: Answer, second: Answer, before: Any) -> Answer:
    """Both runs' better incumbent and better bound; the model's variables stand at the incumbent.

    before  variable -> value at the first run's incumbent
    """
    if second.status in (Status.FAILED, Status.INFEASIBLE, Status.NO_SOLVER):
        message = f"{first.message}; then {second.message}"
        second = replace(first, message=message, iterations=second.iterations)
    if not second.objective <= first.objective:
        for variable, value in before.items():
            variable.set_value(value, skip_validation=True)
    return replace(
        second,
        objective=float(np.fmin(first.objective, second.objective)),
        lower_bound=max(first.lower_bound, second.lower_bound),
        iterations=first.iterations + second.iterations,
    )


def _within(size: float) -> float:
    return min(1.0, max(SMALLEST, size))


def _size(objective: Any) -> float:
    """Size of the objective: the largest at the start, in the middle and at two corners; or 0."""
    variables, sizes = list(identify_variables(objective.expr, include_fixed=False)), [0.0]
    with restored(variables):
        starts = [v.value or 0.0 for v in variables]
        for share in (None, 0.0, 0.5, 1.0):
            for variable, start in zip(variables, starts, strict=True):
                low, high = variable.bounds
                bounded = share is not None and low is not None and high is not None
                place = low + share * (high - low) if bounded else start
                variable.set_value(place, skip_validation=True)
            sizes.append(abs(value_of(objective) or 0.0))
    return max(sizes)


@contextmanager
def restored(variables: Sequence[Any]) -> Iterator[Callable[[], None]]:
    """Give the variables their values back at the end, unless the function it gives was called."""
    before, kept = [v.value for v in variables], []
    try:
        yield lambda: kept.append(True)
    finally:
        if not kept:
            for variable, value in zip(variables, before, strict=True):
                variable.set_value(value, skip_validation=True)


def value_of(objective: Any) -> float | None:
    """The objective's value at the variables' values; None if it has no finite one there."""
    try:
        value = float(pyo.value(objective))
    except (ArithmeticError, TypeError, ValueError):
        return None
    return value if np.isfinite(value) else None


@contextmanager
def divided(objective: Any, unit: float) -> Iterator[None]:
    """The model with its objective divided by the unit; it is as before afterwards."""
    expression = objective.expr
    if unit != 1.0:
        objective.set_value(expression / unit)
    try:
        yield
    finally:
        if unit != 1.0:
            objective.set_value(expression)
