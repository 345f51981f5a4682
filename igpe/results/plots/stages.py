"""How shooting went: horizons of incremental shooting, iterates of multiple shooting."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate, Horizon, equivalent_iterations
from igpe.core.markup import label
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.residuals import fine_grid, simulate
from igpe.equations.compiled import compiled
from igpe.problem.problem import Problem
from igpe.results.plots.axes import MARKERS, axes_for, colour, labelled

PANEL = (3.4, 2.6)  # inches
MARGIN = 0.15  # around the data of what a panel shows, in their range
INSIDE = 20  # times at which an interval is drawn
END = 1e-9  # share of an interval by which its last time lies before the next one begins
SHORTER = 0.3  # how much the largest gap is from one drawn iterate to the next, of the one before
SMALLEST_GAP = 1e-16  # a gap that is drawn


def horizon_table(estimate: Estimate) -> str:
    """As Table 3 of Michalik et al. (2009), ISS: a column for each horizon.

    estimate  of `IncrementalShooting`
    """
    horizons = [h for h in estimate.trail if isinstance(h, Horizon)]
    if not horizons:
        return "The estimate has no horizons."
    rows = {"until": [_until(h) for h in horizons]}
    for name in ("iterations", "integrations", "relaxations"):
        rows[name] = [str(getattr(h, name)) for h in horizons]
    rows["sum of squares"] = [f"{h.objective:.4g}" for h in horizons]
    rows |= {n: [f"{h.parameters[n]:.5g}" for h in horizons] for n in estimate.parameters}
    lines = pd.DataFrame.from_dict(rows, orient="index").to_string(header=False)
    return (
        f"{lines}\nequivalent iterations on the whole horizon: "
        f"{equivalent_iterations(horizons):.3g}; with all further starts "
        f"{estimate.equivalent_iterations:.3g} (integrations: "
        f"{estimate.equivalent_integrations:.3g})"
    )


def plot_film_strip(problem: Problem, estimate: Estimate, axes: Any = None) -> Any:
    """The fit of every horizon, with the measurements it fits (filled) and later ones (hollow).

    Curves go on to the last measurement where the model can be integrated so far.

    problem   that was estimated;  estimate: of `IncrementalShooting`
    axes      matplotlib axes, one for each horizon of each experiment; None makes a figure
    returns   (n_experiments, n_horizons) axes
    raises    ProblemError if the estimate has no horizons
    """
    horizons = [h for h in estimate.trail if isinstance(h, Horizon)]
    if not horizons:
        raise ProblemError(
            f"The estimate ({estimate.method}, {estimate.status.name}) has no horizons to draw. "
            "Give one of igpe.IncrementalShooting, of a problem that leaves something to estimate."
        )
    drawn = _grid(problem, [f"t ≤ {_until(h)}" for h in horizons], axes)
    grids = tuple(fine_grid(problem, k) for k in range(len(problem.experiments)))
    for column, horizon in zip(drawn.T, horizons, strict=True):
        runs = simulate(problem, Sundials(), horizon.parameters, grids)
        for k, (ax, (_, run)) in enumerate(zip(column, runs, strict=True)):
            last = horizon.until[problem.experiments[k].name]
            _draw(ax, problem, k, [(run.times, run.measured)], last)
    return _with_legend(drawn, axes)


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
    stages = _recorded(estimate)
    if not isinstance(iterates, int) or iterates < 1:
        raise ProblemError(f"iterates is {iterates!r}; wanted a whole number, 1 or more.")
    every = [*stages[0].iterates, *(i for s in stages[1:] for i in s.iterates[1:])]
    last = len(every) - 1
    gaps = every[0].gap * SHORTER ** np.arange(iterates - 1)
    first = [next((i for i, at in enumerate(every) if at.gap <= gap), last) for gap in gaps]
    chosen = sorted({*first, last})
    drawn = _grid(problem, [f"iteration {i}, gap {every[i].gap:.1e}" for i in chosen], axes)
    for k, row in enumerate(drawn):
        nodes, ivp = every[0].nodes[k], compiled(problem).initial_value_problem(k)
        ends = nodes[1:] - END * np.diff(nodes)
        times = np.linspace(nodes[:-1], ends, INSIDE, axis=1)
        prepared = Automatic(1e-6, 1e-8).prepare(ivp, nodes, times.ravel())
        for ax, at in zip(row, (every[i] for i in chosen), strict=True):
            values = np.array([at.parameters[n] for n in ivp.unknowns])
            run = prepared.run(at.starts[k], values, derivatives=False)
            curves = run.measured.reshape(*times.shape, -1)
            _draw(ax, problem, k, list(zip(times, curves, strict=True)), -np.inf)
    return _with_legend(drawn, axes)


def plot_gaps(estimate: Estimate, axes: Any = None) -> Any:
    """The largest gap and the objective after every iteration, one line for each stage.

    Gaps are relative to the size of their state, the objective is in standard deviations; stages
    may count it differently (level errors first, a robust loss last).

    estimate  of `MultipleShooting(record=True)`
    axes      two matplotlib axes; None makes a figure
    returns   array of axes
    raises    ProblemError if the estimate has no iterates
    """
    stages = _recorded(estimate)
    drawn = axes_for(2, axes)
    fields = (("gap", "largest gap / size of its state"), ("objective", "objective"))
    for ax, (field, words) in zip(drawn, fields, strict=True):
        first = 0
        for k, stage in enumerate(stages):
            values = np.maximum([getattr(i, field) for i in stage.iterates], SMALLEST_GAP)
            number = np.arange(first, first + len(values))
            look = {"color": colour(k), "marker": MARKERS[k % len(MARKERS)], "markersize": 4}
            ax.plot(number, values, label=stage.method, linewidth=1, **look)
            first += len(values) - 1  # a stage begins where the one before ended
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set(yscale="log", xlabel="iteration", ylabel=words)
    drawn[0].legend(fontsize="small")
    return drawn


def _recorded(estimate: Estimate) -> list[Horizon]:
    """The stages of multiple shooting with recorded iterates; raises ProblemError without any."""
    stages = [h for h in estimate.trail if isinstance(h, Horizon) and h.iterates]
    if not stages:
        raise ProblemError(
            f"The estimate ({estimate.method}, {estimate.status.name}) has no iterates to draw. "
            "Give one of igpe.MultipleShooting(record=True)."
        )
    return stages


def _until(horizon: Horizon) -> str:
    """The time of the last measurement that a horizon fits, of each experiment if they differ."""
    return ", ".join(f"{end:g}" for end in dict.fromkeys(horizon.until.values()))


def _grid(problem: Problem, titles: Sequence[str], axes: Any) -> Any:
    """(n_experiments, n_titles) axes."""
    names = [e.name for e in problem.experiments]
    count = len(names) * len(titles)
    given = axes_for(count, axes, PANEL, columns=len(titles), sharey="row")
    drawn = given.reshape(len(names), len(titles))
    for ax, title in zip(drawn[0], titles, strict=True):
        ax.set_title(title, fontsize="medium")
    for ax, name in zip(drawn[:, 0], names, strict=True):
        if len(names) > 1:
            ax.set_ylabel(label(f"experiment {name}"))
    return drawn


def _draw(
    ax: Any,
    problem: Problem,
    index: int,
    intervals: Sequence[tuple[FloatArray, FloatArray]],
    until: float,
) -> None:
    """Measurements and trajectories of one experiment at one stage.

    intervals  times (k,) and values (k, n_measured): each is drawn on its own
    until      measurements up to this time are filled, later ones are hollow
    """
    experiment = problem.experiments[index]
    every = [experiment.measurements.of(name)[:2] for name in experiment.measured]
    for k, (name, (times, values)) in enumerate(zip(experiment.measured, every, strict=True)):
        look: dict[str, Any] = {"color": colour(k)}
        words: str | None = labelled(name, problem.unit(name))
        for rows, fill in ((times <= until, "full"), (times > until, "none")):
            if rows.any():
                mark = {"markersize": 3, "fillstyle": fill, "label": words}
                ax.plot(times[rows], values[rows], "o", **mark, **look)
                words = None
        for t, curve in intervals:
            ax.plot(t, curve[:, k], linewidth=1.2, **look)
        if len(intervals) > 1:
            starts = [(t[0], curve[0, k]) for t, curve in intervals]
            ax.plot(*np.transpose(starts), "s", markersize=2, **look)
    if np.isfinite(until) and any((times <= until).any() for times, _ in every):
        ax.axvline(until, color="gray", linewidth=0.8, linestyle=":")
    shown = np.concatenate([values for _, values in every])
    extra = MARGIN * (float(np.ptp(shown)) or 1.0)
    ax.set(xlabel="time", ylim=(shown.min() - extra, shown.max() + extra))


def _with_legend(drawn: Any, axes: Any) -> Any:
    """Above all panels of a figure made here, where it hides nothing; else inside the last ones."""
    if axes is not None:
        for ax in drawn[:, -1]:
            ax.legend(fontsize="small")
        return drawn
    entries = [ax.get_legend_handles_labels() for ax in drawn[:, 0]]
    marks = {words: mark for some in entries for mark, words in zip(*some, strict=True)}
    look = {"loc": "outside upper center", "ncols": len(marks), "frameon": False}
    drawn[0, 0].figure.legend(marks.values(), marks.keys(), **look)
    return drawn
