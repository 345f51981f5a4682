"""Simulating a problem at given parameters, for users, for reports and as guesses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arguments import require_mapping, shown
from igpe.core.arrays import FloatArray
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.base import Profile
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.symbols import stack
from igpe.equations.undefined import undefined_ahead, undefined_at_start
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem, takes_problem
from igpe.smoothing.base import Smooth

SLACK = 1e-3  # of a variable's largest size: errors of integration
NEWTON, CLOSE = 30, 1e-9  # steps to another root, and the last one's relative length
MOST_SOLVED = 20  # implicit variables of which another root is looked for


@takes_problem
def simulate(
    problem: Problem,
    parameters: Any,
    times: npt.ArrayLike | None = None,
    *,
    integrator: Integrator = Sundials(),
) -> pd.DataFrame:
    """Simulate every experiment at the given values of the unknowns.

    problem     the problem whose experiments are simulated
    parameters  a dict {unknown: value} with every free unknown of the problem, or a Result or
                Estimate
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
    given = None if times is None else distinct_times(times)
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
    runs = simulate_all(problem, integrator, values, grids)
    tables = []
    for k, (e, (ivp, run)) in enumerate(zip(problem.experiments, runs, strict=True)):
        if not run.status.usable:
            at_start = undefined_at_start(problem, k, values)
            raise EstimationFailed(
                f"Experiment {e.name} could be integrated only to time {run.reached:g} instead of "
                f"{run.times[-1]:g}. {run.reason}{at_start or _undefined(ivp, run, values)}",
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
    slack = np.maximum(SLACK * np.max(np.abs(y), axis=0, initial=0.0), CLOSE * ivp.implicit_scale)
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


class OtherRoot(NamedTuple):
    """Another root of the implicit equations at the start than the one of a run.

    sentence   says what both are
    is_chosen  whether the model gives an initial value to the variable, and so chooses a root
    """

    sentence: str
    is_chosen: bool


def other_root(
    ivp: InitialValueProblem, run: Trajectory, values: Mapping[str, float]
) -> OtherRoot | None:
    """The root that Newton's method meets from elsewhere, the one of the run divided out."""
    n = len(ivp.implicit)
    y = run.implicit[0] if len(run.implicit) else np.full(n, np.nan)
    if not 0 < n <= MOST_SOLVED or not np.isfinite(y).all() or ivp.switching or ivp.rest:
        return None
    a, b = ivp.input_segment(ivp.t0)
    q = np.array([values[name] for name in ivp.unknowns], dtype=float)
    old = [ivp.t, ivp.x, ivp.u, ivp.q]
    g = ca.substitute([ivp.g], old, [ivp.t0, ca.DM(run.states[0]), ca.DM(a + b * ivp.t0), q])[0]
    by = ca.jacobian(g, ivp.y)
    if not ca.depends_on(by, ivp.y):
        return None
    step = ca.Function("step", [ivp.y], [ca.solve(by, ca.densify(g))])
    of_model = [name in ivp.algebraic or name.startswith("d(") for name in ivp.implicit]
    for start in _elsewhere(ivp, y):
        other = _deflated(step, start, y)
        size = np.maximum(np.maximum(np.abs(y), np.abs(other)), CLOSE)
        far = np.where(of_model, np.abs(other - y) / size, 0.0)
        if (far > SLACK).any() and ((ivp.lower <= other) & (other <= ivp.upper)).all():
            k = int(np.argmax(far))
            return OtherRoot(
                f"At the start, {ivp.implicit[k]} = {other[k]:.4g} solves the equations as "
                f"{ivp.implicit[k]} = {y[k]:.4g} does, which igpe follows. If the model means the "
                "other root, give this variable an initial value (initialize=...) or bounds.",
                bool(ivp.given[k]),
            )
    return None


def _elsewhere(ivp: InitialValueProblem, y: FloatArray) -> Iterator[FloatArray]:
    """Where one variable, or all of them, have another sign or size."""
    n = len(y)
    y = np.where(y == 0, ivp.implicit_scale, y)
    for factor in (-1.0, 2.0, 0.5, 10.0, 0.1):
        yield factor * y
        if n > 1:
            yield from np.where(np.eye(n, dtype=bool), factor, 1.0) * y


@np.errstate(all="ignore")  # where Newton's method runs away
def _deflated(step: Any, y: FloatArray, known: FloatArray) -> FloatArray:
    """Another root than `known`, by Newton's method; NaN if it does not converge.

    The equations are multiplied by 1 + 1 / |y - known|^2, which keeps Newton's method from `known`
    and only changes the length of its steps (Farrell, Birkisson and Funke 2015, SIAM Journal on
    Scientific Computing 37, A2026-A2045).

    step  gives g_y^-1 g
    """
    size = np.maximum(np.abs(known), CLOSE)
    for _ in range(NEWTON):
        away, move = (y - known) / size, -step(y).full().ravel()
        square = away @ away
        slope = -2 * (away / size) @ move / (square**2 + square)
        y = y + move / (1 - slope)
        if (np.abs(move) <= CLOSE * np.maximum(np.abs(y), size)).all():
            return y
    return np.full(len(y), np.nan)


def values_of(problem: Problem, given: Any) -> dict[str, float]:
    """Return the value of every free unknown, in the problem's order.

    given   unknown -> value, or what an estimation returned
    raises  ProblemError if one has none, a value belongs to no unknown, or is not finite
    """
    parameters: Mapping[str, float] = getattr(given, "parameters", given)
    require_mapping("The argument `parameters`", parameters, "{'k1': 0.5}", ProblemError)
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


def distinct_times(times: npt.ArrayLike) -> FloatArray:
    """Distinct increasing times. Raises ProblemError if there are none, or not all are finite."""
    try:
        grid = np.unique(np.asarray(times, dtype=float))
    except (TypeError, ValueError):
        grid = np.array([np.nan])
    if grid.size == 0 or not np.isfinite(grid).all():
        raise ProblemError(
            f"The times are {shown(times)}; give one or more finite numbers. If you omit the "
            "times, igpe chooses evenly spaced times in each experiment."
        )
    return grid


BESIDE = 1e-6  # of the duration: how near to a jump both its sides are shown
POINTS = 200  # places at which a simulation is kept for a guess


def simulate_all(
    problem: Problem,
    integrator: Integrator,
    values: Mapping[str, float],
    times: tuple[FloatArray, ...],
) -> tuple[tuple[InitialValueProblem, Trajectory], ...]:
    """Integrate every experiment at given unknowns, reporting at its own `times`.

    Where equations are compiled free unknowns stay free, as the compiler has seen these equations;
    but 0 is put in, since what it multiplies may have no value.
    """
    free = problem.box.names if integrator.compiles else ()
    known = {n: v for n, v in values.items() if n in problem.unknowns.names}
    put = {n: v for n, v in known.items() if n not in free or v == 0}
    held = problem.fixing(put) if put else problem
    simulated = []
    for k, grid in enumerate(times):
        ivp = compiled(held).initial_value_problem(k, until=float(grid[-1]), switching=True)
        simulation = integrator.simulation(ivp, grid, sensitivities=False)
        simulated.append((ivp, simulation.run(np.array([values[n] for n in ivp.unknowns]))))
    return tuple(simulated)


@dataclass(frozen=True)
class Simulated:
    """All experiments simulated once, on first use."""

    problem: Problem
    integrator: Integrator
    values: Mapping[str, float]

    @cached_property
    def runs(self) -> tuple[tuple[InitialValueProblem, Trajectory], ...]:
        """Of each experiment its initial value problem and trajectory on a fine grid."""
        grids = tuple(fine_grid(self.problem, k) for k in range(len(self.problem.experiments)))
        return simulate_all(self.problem, self.integrator, self.values, grids)

    def series(self, experiment: int, name: str) -> tuple[FloatArray, FloatArray] | None:
        """Times and values of a state or algebraic variable, as far as the simulation came."""
        ivp, run = self.runs[experiment]
        if name not in ivp.states and name not in ivp.algebraic:
            return None
        q = np.array([self.values[n] for n in ivp.unknowns])
        values = quantities_along(ivp, run, q, [name])[0]
        there = np.isfinite(values)
        return (run.times[there], values[there]) if there.any() else None


def quantities(ivp: InitialValueProblem) -> dict[str, Any]:
    """Slopes written d(state), algebraic variables and states, as expressions of the problem."""
    slopes = {f"d({n})": ivp.f[i] for i, n in enumerate(ivp.states)}
    states = {n: ivp.x[i] for i, n in enumerate(ivp.states)}
    return slopes | ivp.algebraic | states


def quantities_along(
    ivp: InitialValueProblem, run: Trajectory, q: FloatArray, names: Sequence[str]
) -> FloatArray:
    """(n, n_times) some of `quantities` along a trajectory at unknowns q (n_q,)."""
    known = quantities(ivp)
    rows = np.array([[table.at(t) for table in ivp.tables] for t in run.times])
    inputs, count = rows.reshape(len(run.times), -1).T, len(run.times)
    at = run.times[None], run.states.T, run.implicit.T, inputs, np.tile(q[:, None], count)
    arguments, output = [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q], stack(known[n] for n in names)
    return np.asarray(ca.Function("along", arguments, [output])(*at))


def fine_grid(problem: Problem, experiment: int, points: int = POINTS) -> FloatArray:
    """Evenly spread times of an experiment, its measured ones, and both sides of known jumps."""
    e = problem.experiments[experiment]
    first, last = e.start_time, float(e.times[-1])
    steps = [table.times for table in e.inputs.values() if isinstance(table, Table) and table.hold]
    doses = [
        event.at + event.delay
        for event in e.events
        if isinstance(event.at, (int, float)) and isinstance(event.delay, (int, float))
    ]
    jumps = np.unique(np.concatenate([doses, *steps]))
    if len(jumps) > points:  # they look like a curve
        jumps = jumps[:0]
    near = BESIDE * (last - first)
    sides = np.concatenate([jumps - near, jumps + near])
    inside = sides[(sides > first) & (sides < last)]
    return np.unique(np.concatenate([np.linspace(first, last, points), e.times, inside]))


def profiles(simulated: Simulated, curves: Sequence[Mapping[str, Smooth]]) -> list[Profile]:
    """For each experiment: (name, times) -> smoothed values, else simulated ones, else None.

    Trajectories to begin the correction with.
    """

    def guess(k: int, name: str, times: FloatArray) -> FloatArray | None:
        if name in curves[k]:
            return curves[k][name].value(times)
        series = simulated.series(k, name)
        return None if series is None else np.interp(times, *series)

    return [partial(guess, k) for k in range(len(curves))]
