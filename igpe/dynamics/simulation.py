"""Simulating a problem at given parameters."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.simulated import fine_grid
from igpe.dynamics.shooting.simulated import simulate as integrate
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.undefined import undefined_ahead, undefined_at_start
from igpe.problem.problem import Problem, takes_problem

SLACK = 1e-3  # of a variable's largest size: errors of integration


@takes_problem
def simulate(
    problem: Problem,
    parameters: Mapping[str, float],
    times: npt.ArrayLike | None = None,
    *,
    integrator: Integrator = Sundials(),
) -> pd.DataFrame:
    """Simulate every experiment at the given values of the unknowns.

    problem     the problem whose experiments are simulated
    parameters  a dict {unknown: value} with every free unknown of the problem
    times       times at which values are reported; by default 200 time points, the measurement
                times, and times just before and after known jumps
    integrator  the integrator that solves the equations, with its tolerances
    returns     a table with the columns `experiment`, `time`, the states and the other measured
                quantities; `.attrs["units"]` contains the units of the columns, where they are
                known
    raises      ProblemError if an unknown has no value, if a value is not finite or belongs to no
                unknown, or if a time is not finite or lies before the start; EstimationFailed, with
                the time of the failure, if the integration fails, or if an algebraic variable
                that igpe computes numerically leaves the bounds of its Var
    """
    values = values_of(problem, parameters)
    given = None if times is None else _times(times)
    grids = tuple(
        fine_grid(problem, k) if given is None else given for k in range(len(problem.experiments))
    )
    for e, grid in zip(problem.experiments, grids, strict=True):
        if grid[0] < e.start_time:
            raise ProblemError(
                f"Time {grid[0]:g} lies before {e.start_time:g}, the start time of experiment "
                f"{e.name}."
            )
    reductions = [s.reduction for s in compiled(problem).systems if s.reduction is not None]
    if tied := dict.fromkeys(n for r in reductions for n in (*r.free, *r.bound)):
        problem = problem.reporting([*tied])  # so that they meet the constraints to rounding
    runs = integrate(problem, integrator, values, grids)
    tables = []
    for e, (ivp, run) in zip(problem.experiments, runs, strict=True):
        if not run.status.usable:
            raise EstimationFailed(
                f"Experiment {e.name} could be integrated only to time {run.reached:g} instead of "
                f"{run.times[-1]:g}. {run.reason}{_undefined(ivp, run, values)}",
                run.status,
            )
        if left := beyond_bounds(ivp, run):
            raise EstimationFailed(f"Experiment {e.name}: {left}", Status.INTEGRATION_BROKE)
        columns = {"experiment": e.name, "time": run.times}
        columns |= {n: run.states[:, i] for i, n in enumerate(ivp.states)}
        columns |= {n: run.measured[:, i] for i, n in enumerate(e.measured)}
        tables.append(pd.DataFrame(columns))
    frame = pd.concat(tables, ignore_index=True)
    names = [n for n in frame.columns if n != "experiment"]
    frame.attrs["units"] = {n: unit for n in names if (unit := problem.unit(n))}
    return frame


def beyond_bounds(ivp: InitialValueProblem, run: Trajectory) -> str:
    """When a root of the equations first lies outside its Var's bounds; empty if none does.

    At the start, igpe chooses a root within them. Later it follows the root, also through a
    double one to a branch that the bounds exclude.
    """
    y = run.implicit
    slack = SLACK * np.max(np.abs(y), axis=0, initial=0.0)
    outside = (y < ivp.lower - slack) | (y > ivp.upper + slack)
    if not outside.any():
        return ""
    at = int(np.argmax(outside.any(axis=1)))
    k = int(np.argmax(outside[at]))
    return (
        f"'{ivp.implicit[k]}' is {y[at, k]:.4g} at time {run.times[at]:g}, outside of the bounds "
        f"[{ivp.lower[k]:g}, {ivp.upper[k]:g}] of its Var. Its equation may have several roots; "
        "igpe follows the one that lies within the bounds at the start. Widen the bounds if this "
        "value is correct. Otherwise, write the equation so that it has one root."
    )


def values_of(problem: Problem, parameters: Mapping[str, float]) -> dict[str, float]:
    """Return the value of every free unknown, in the problem's order.

    raises  ProblemError if one has none, a value belongs to no unknown, or is not finite
    """
    unknown_names = [n for n in parameters if n not in problem.unknowns.names]
    if unknown_names:
        raise ProblemError(
            f"Values are given for {unknown_names}, which are not unknowns; the unknowns are "
            f"{list(problem.unknowns.names)}."
        )
    missing = [n for n in problem.box.names if n not in parameters]
    if missing:
        raise ProblemError(
            f"Give values for {missing}; the unknowns are {list(problem.box.names)}."
        )
    return {n: _value(n, parameters[n]) for n in problem.box.names}


def _undefined(ivp: InitialValueProblem, run: Trajectory, values: Mapping[str, float]) -> str:
    """Which slope has no finite value beyond the time that was reached, if that is seen."""
    rows = np.flatnonzero((run.times <= run.reached) & np.isfinite(run.states).all(axis=1))
    if not len(rows):
        return ""
    q = np.array([values[n] for n in ivp.unknowns], dtype=float)
    if at_start := undefined_at_start(ivp, q):
        return at_start
    here = rows[-1]
    undefined = undefined_ahead(ivp, run.times[here], run.states[here], q, run.times[-1])
    if undefined is None:
        return ""
    cause = f": {undefined.operation} is undefined there" * bool(undefined.operation)
    return (
        f" By linear extrapolation, the model would reach {undefined.values} at time "
        f"{undefined.time:g}, where the slope of '{undefined.state}' has no finite value{cause}."
    )


def _value(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise ProblemError(f"The value of '{name}' is {value!r}; give a finite number.")
    return number


def _times(times: npt.ArrayLike) -> FloatArray:
    """Distinct increasing times. Raises ProblemError if there are none, or not all are finite."""
    try:
        grid = np.unique(np.asarray(times, dtype=float))
    except (TypeError, ValueError):
        grid = np.array([np.nan])
    if grid.size == 0 or not np.isfinite(grid).all():
        raise ProblemError(
            f"The times are {times!r}; give one or more finite numbers. If you omit the times, "
            "igpe chooses evenly spaced times in each experiment."
        )
    return grid
