"""Stages of shooting for the plotting room: each is integrated here and drawn from its table."""

from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate, Iterate
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.residuals import fine_grid, simulate
from igpe.equations.compiled import compiled
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.results.plots.search import (
    ShootingStage,
    plot_stages,
    require_horizons,
    selected_iterates,
    until,
)

INSIDE = 20  # times at which an interval is drawn
END = 1e-9  # share of an interval by which its last time lies before the next one begins


def plot_film_strip(problem: Problem, estimate: Estimate, axes: Any = None) -> Any:
    """The fit of every horizon, with the measurements it fits (filled) and later ones (hollow).

    Curves go on to the last measurement where the model can be integrated so far.

    problem   that was estimated;  estimate: of `IncrementalShooting`
    axes      matplotlib axes, one for each horizon of each experiment; None makes a figure
    returns   (n_experiments, n_horizons) axes
    raises    ProblemError if the estimate has no horizons
    """
    horizons = require_horizons(estimate)
    grids = tuple(fine_grid(problem, k) for k in range(len(problem.experiments)))
    stages = []
    for horizon in horizons:
        runs = simulate(problem, Sundials(), horizon.parameters, grids)
        row = [
            ShootingStage(
                _measured(problem, e), _curves(e, run.times, run.measured), horizon.until[e.name]
            )
            for e, (_, run) in zip(problem.experiments, runs, strict=True)
        ]
        stages.append((f"t ≤ {until(horizon)}", row))
    return plot_stages(stages, [e.name for e in problem.experiments], axes)


def plot_pieces(
    problem: Problem, estimate: Estimate, axes: Any = None, *, iterates: int = 4
) -> Any:
    """The model's trajectory on each interval while the gaps between intervals closed.

    problem   that was estimated;  estimate: of `MultipleShooting(record=True)`
    axes      matplotlib axes, one for each iterate of each experiment; None makes a figure
    iterates  at most so many are drawn: the first, the last, and others as gaps become shorter
    returns   (n_experiments, n_iterates) axes
    raises    ProblemError if the estimate has no iterates, or `iterates` is below 1
    """
    recorded = require_horizons(estimate, recorded=True)
    if not isinstance(iterates, int) or iterates < 1:
        raise ProblemError(f"iterates is {iterates!r}; wanted a whole number, 1 or more.")
    selected = selected_iterates(recorded, iterates)
    rows = [
        _intervals(problem, k, [at for _, at in selected]) for k in range(len(problem.experiments))
    ]
    titles = [f"iteration {number}, gap {at.gap:.1e}" for number, at in selected]
    stages = list(zip(titles, zip(*rows, strict=True), strict=True))
    return plot_stages(stages, [e.name for e in problem.experiments], axes)


def _intervals(problem: Problem, index: int, iterates: list[Iterate]) -> list[ShootingStage]:
    """One experiment at each of the iterates."""
    experiment, nodes = problem.experiments[index], iterates[0].nodes[index]
    ivp = compiled(problem).initial_value_problem(index)
    ends = nodes[1:] - END * np.diff(nodes)
    times = np.linspace(nodes[:-1], ends, INSIDE, axis=1).ravel()
    prepared = Automatic(1e-6, 1e-8).prepare(ivp, nodes, times)
    measured, stages = _measured(problem, experiment), []
    for at in iterates:
        values = np.array([at.parameters[n] for n in ivp.unknowns])
        run = prepared.run(at.starts[index], values, derivatives=False)
        curves = _curves(experiment, times, run.measured, INSIDE)
        stages.append(ShootingStage(measured, curves, -np.inf))
    return stages


def _measured(problem: Problem, experiment: Experiment) -> pd.DataFrame:
    tables = []
    for name in experiment.measured:
        times, values, _ = experiment.measurements.of(name)
        unit = problem.unit(name)
        tables.append(pd.DataFrame({"name": name, "time": times, "measured": values, "unit": unit}))
    return pd.concat(tables, ignore_index=True)


def _curves(
    experiment: Experiment, times: FloatArray, values: FloatArray, length: int | None = None
) -> pd.DataFrame:
    """Trajectories (n_times, n_measured) as a table; `length` times are one interval."""
    interval = np.arange(len(times)) // (length or len(times))
    tables = [
        pd.DataFrame({"name": name, "interval": interval, "time": times, "fitted": values[:, k]})
        for k, name in enumerate(experiment.measured)
    ]
    return pd.concat(tables, ignore_index=True)
