"""The horizons of incremental shooting as a table and as pictures.

Functions that draw take axes or make them, and return them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate, Horizon, equivalent_iterations
from igpe.core.markup import label as escaped
from igpe.dynamics.integrators.base import Trajectory
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.guess import fine_grid
from igpe.dynamics.shooting.residuals import simulate as integrate
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.results.plots.axes import colour, labelled

PANEL = (3.0, 2.4)  # inches
MARGIN = 0.15  # around the data of what a panel shows, in their range


def horizons_of(estimate: Estimate) -> tuple[Horizon, ...]:
    """The horizons that an estimate came from; empty if its method has none."""
    return tuple(h for h in estimate.trail if isinstance(h, Horizon))


def horizon_table(estimate: Estimate) -> str:
    """As Table 3 of Michalik et al. (2009), ISS: a column for each horizon.

    estimate  of `IncrementalShooting`
    """
    horizons = horizons_of(estimate)
    if not horizons:
        return "The estimate has no horizons."
    rows = {
        "until": [_until(h) for h in horizons],
        "iterations": [str(h.iterations) for h in horizons],
        "integrations": [str(h.integrations) for h in horizons],
        "relaxations": [str(h.relaxations) for h in horizons],
        "sum of squares": [f"{h.objective:.4g}" for h in horizons],
    }
    rows |= {n: [f"{h.parameters[n]:.5g}" for h in horizons] for n in estimate.parameters}
    lines = pd.DataFrame.from_dict(rows, orient="index").to_string(header=False)
    return (
        f"{lines}\nequivalent iterations on the whole horizon: "
        f"{equivalent_iterations(horizons):.3g}; with all further starts "
        f"{estimate.equivalent_iterations:.3g} (integrations: "
        f"{estimate.equivalent_integrations:.3g})"
    )


def plot_horizons(estimate: Estimate, axes: Any = None) -> Any:
    """Each unknown's estimate and bounds from horizon to horizon, one panel for each unknown.

    estimate  of `IncrementalShooting`
    axes      matplotlib axes, one for each unknown; None makes a figure
    returns   array of axes
    raises    ProblemError if the estimate has no horizons, or nothing was estimated
    """
    horizons = _some_horizons(estimate)
    drawn = _axes(1, len(estimate.parameters), axes).ravel()
    number = np.arange(1, len(horizons) + 1)
    for ax, name in zip(drawn, estimate.parameters, strict=True):
        value = np.array([h.parameters[name] for h in horizons])
        low, high = (
            np.array([getattr(h, side)[name] for h in horizons]) for side in ("lower", "upper")
        )
        ax.plot(number, value, "o-", color="tab:blue", label="estimate")
        seen = np.isfinite(low) & np.isfinite(high)
        shown = _around(value, 0.2)  # bounds may be far wider
        ax.vlines(number[seen], low[seen], high[seen], color="tab:orange", label="bounds")
        ax.set_ylim(*shown)
        ax.set_xticks(number)
        ax.set_xlabel("horizon")
        ax.set_ylabel(escaped(name))
    return drawn


def plot_film_strip(problem: Problem, estimate: Estimate, axes: Any = None) -> Any:
    """The fit of every horizon, with the measurements it knew (filled) and those it did not.

    Curves go on to the last measurement where the model can be integrated so far.

    problem   that was estimated;  estimate: of `IncrementalShooting`
    axes      matplotlib axes, one for each horizon of each experiment; None makes a figure
    returns   (n_experiments, n_horizons) axes
    raises    ProblemError if the estimate has no horizons
    """
    horizons = _some_horizons(estimate)
    shape = len(problem.experiments), len(horizons)
    drawn = _axes(*shape, axes).reshape(shape)
    for column, horizon in enumerate(horizons):
        courses = _courses(problem, horizon)
        for row, experiment in enumerate(problem.experiments):
            units = {n: problem.unit(n) for n in experiment.measured}
            _panel(drawn[row, column], experiment, horizon, courses[row], units)
        drawn[0, column].set_title(f"t ≤ {_until(horizon)}", fontsize="medium")
    for row in drawn:
        row[-1].legend(fontsize="small")
    return drawn


def _some_horizons(estimate: Estimate) -> tuple[Horizon, ...]:
    horizons = horizons_of(estimate)
    if not horizons:
        raise ProblemError(
            f"The estimate ({estimate.method}, {estimate.status.name}) has no horizons to draw. "
            "Give one of igpe.IncrementalShooting, of a problem that leaves something to estimate."
        )
    return horizons


def _courses(problem: Problem, horizon: Horizon) -> tuple[Trajectory, ...]:
    """Each experiment at the horizon's parameters: NaN where the model cannot be integrated."""
    grids = tuple(fine_grid(problem, k) for k in range(len(problem.experiments)))
    runs = integrate(problem, Sundials(), horizon.parameters, grids)
    return tuple(run for _, run in runs)


def _panel(
    ax: Any,
    experiment: Experiment,
    horizon: Horizon,
    course: Trajectory,
    units: Mapping[str, str],
) -> None:
    end, shown = horizon.until[experiment.name], []
    for number, name in enumerate(experiment.measured):
        times, values, _ = experiment.measurements.of(name)
        shade, known = colour(number), times <= end
        label = labelled(name, units[name])
        ax.plot(times[known], values[known], "o", color=shade, markersize=4, label=label)
        ax.plot(times[~known], values[~known], "o", color=shade, markersize=4, fillstyle="none")
        ax.plot(course.times, course.measured[:, number], color=shade)
        shown.append(values)
    ax.axvline(end, color="gray", linewidth=0.8, linestyle=":")
    ax.set_xlabel("time")
    ax.set_ylim(*_around(np.concatenate(shown), MARGIN))


def _around(values: FloatArray, margin: float) -> tuple[float, float]:
    """Limits that show all values, with a margin relative to their range."""
    extra = margin * (float(np.ptp(values)) or 1.0)
    return float(values.min()) - extra, float(values.max()) + extra


def _until(horizon: Horizon) -> str:
    return ", ".join(f"{end:g}" for end in dict.fromkeys(horizon.until.values()))


def _axes(rows: int, columns: int, axes: Any) -> Any:
    if axes is not None:
        return np.atleast_1d(np.asarray(axes, dtype=object))
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import, not needed without pictures

    size = PANEL[0] * max(columns, 1), PANEL[1] * max(rows, 1)
    _, grid = plt.subplots(
        rows, max(columns, 1), figsize=size, squeeze=False, layout="constrained", sharex=False
    )
    return grid
