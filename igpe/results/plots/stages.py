"""How searches went: horizons, iterates of multiple shooting, objectives of many starts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate, Horizon, equivalent_iterations
from igpe.core.markup import label
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.simulation import fine_grid, simulate_all
from igpe.equations.compiled import compiled
from igpe.numerics.optima import is_same_objective
from igpe.problem.problem import Problem
from igpe.results.plots.axes import (
    BLUE,
    LINES,
    MARKERS,
    Plot,
    axes_for,
    colour,
    labelled,
    legend_above,
)

MOST = 4  # steps of a single series whose lengths are written
FLAT, ROOM = 1.1, 3.0  # ratio of objectives below which all look alike, and of room around them
ABOVE = "objective - best objective + 1"


class Series(NamedTuple):
    """The starts of one method.

    objectives  (n,) where they ended; infinite where nothing usable did
    arrived     (n,) whether at an optimum
    """

    objectives: FloatArray
    arrived: BoolArray


def series(objectives: npt.ArrayLike, arrived: npt.ArrayLike | None = None) -> Series:
    """Ends in any order, sorted; all arrived if nothing else is said."""
    values = np.asarray(objectives, dtype=float)
    there = np.ones(len(values), dtype=bool) if arrived is None else np.asarray(arrived, dtype=bool)
    order = np.argsort(values, kind="stable")
    return Series(values[order], there[order])


def plot_waterfall(estimate: Estimate, axes: Any = None) -> Plot:
    """Plot the objectives that the starts of a search reached, in ascending order.

    estimate  an estimate from `igpe.search.MultiStart`, or from another method that made several
              starts
    axes      matplotlib axes; None: draw in a new figure
    raises    ProblemError if there was only one start
    """
    _require_estimate(estimate, "igpe.search.MultiStart(...)")
    if len(estimate.reached) < 2:  # noqa: PLR2004 - one start is no waterfall
        raise ProblemError(
            f"The estimate ({estimate.method}) comes from one start. Pass what "
            "igpe.search.MultiStart(...).estimate(...) returns, or use "
            "igpe.estimation.compare(...).plot()."
        )
    ax = axes_for(1, axes)[0]
    draw_waterfall(ax, {"": series(estimate.reached)})
    return Plot([ax])


def draw_waterfall(ax: Any, searches: Mapping[str, Series], *, rounding: float = 0.0) -> None:
    """One line for each series.

    Objectives on a logarithmic scale, or how far they are above the best where some are not
    positive. Where an end is no optimum its mark is hollow; what failed is counted in the legend.
    searches  name -> series
    rounding  sums of squares below it are as good as zero, and drawn there
    """
    from matplotlib.ticker import LogFormatter  # noqa: PLC0415 - slow to import

    known = np.concatenate([s.objectives[np.isfinite(s.objectives)] for s in searches.values()])
    least = rounding if (known >= 0).all() else -np.inf
    known = np.maximum(known, least)
    shift = 0.0 if (known > 0).all() else 1.0 - float(known.min(initial=0.0))
    for k, (name, one) in enumerate(searches.items()):
        good = np.isfinite(one.objectives)
        failed = f"{np.sum(~good)} of {len(good)} failed" * bool(np.sum(~good))
        ends = Series(np.maximum(one.objectives[good], least) + shift, one.arrived[good])
        _line(ax, ends, ": ".join(filter(None, (name, failed))), k)
        steps = sorted(_steps(ends.objectives), key=lambda s: s.start - s.stop)[:MOST]
        for step in steps if len(searches) == 1 else ():
            if len(step) > 2:  # noqa: PLR2004 - shorter than the words
                middle = (step.start + 1 + step.stop) / 2
                ax.annotate(
                    f"{len(step)} starts", (middle, ends.objectives[step.start]),
                    xytext=(0, 6), textcoords="offset points", ha="center", fontsize="small",
                )  # fmt: skip
    ax.set_yscale("log")  # with numbers at the ticks, not powers: the decades are few
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.0, 0.4)))
    ax.margins(x=0.05, y=0.12)
    low, high = known.min(initial=np.inf) + shift, known.max(initial=0.0) + shift
    if low < high < FLAT * low or low == high > 0:
        ax.set_ylim(low / ROOM, high * ROOM)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="starts, the best first", ylabel=ABOVE if shift else "objective")
    if ax.get_legend_handles_labels()[1]:
        ax.legend(fontsize="small")


def words(one: Series) -> str:
    """Describe a series in words, for readers who cannot see the plot."""
    good = one.objectives[np.isfinite(one.objectives)]
    if not len(good):
        return f"None of the {len(one.objectives)} starts returned an objective."
    first, *others = _steps(good)
    return (
        f"Objectives of {len(one.objectives)} starts in ascending order, from {good[0]:.5g} to "
        f"{good[-1]:.5g}. {len(first)} of them reached the best objective. Number of different "
        f"objectives: {1 + len(others)}."
    )


def _line(ax: Any, ends: Series, label: str, number: int) -> None:
    places = np.arange(1, len(ends.objectives) + 1)
    size = max(7.0 - 1.5 * number, 3.0)  # what lies below shows
    look = {"color": colour(number), "marker": MARKERS[number % len(MARKERS)], "markersize": size}
    ax.plot(
        places, ends.objectives, drawstyle="steps-mid", linewidth=0.8, markevery=ends.arrived,
        label=label or None, **look,
    )  # fmt: skip
    if not ends.arrived.all():
        far = ~ends.arrived
        ax.plot(places[far], ends.objectives[far], linestyle="", markerfacecolor="none", **look)


def _steps(values: Sequence[float] | FloatArray) -> Iterator[range]:
    """Places of ascending values that are the same."""
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or not is_same_objective(values[start], values[i]):
            yield range(start, i)
            start = i


PANEL = (2.7, 1.9)  # inches
MARGIN = 0.15  # around the data of what a panel shows, in their range
INSIDE = 20  # times at which an interval is drawn
END = 1e-9  # share of an interval by which its last time lies before the next one begins
SHORTER = 0.3  # how much the largest gap is from one drawn iterate to the next, of the one before
SMALLEST_GAP = 1e-16  # a gap that is drawn


def horizon_table(estimate: Estimate) -> str:
    """Return a table with one column for each horizon, as in Table 3 of Michalik et al. 2009, ISS.

    estimate  an estimate from `IncrementalShooting`
    """
    horizons = [h for h in estimate.trail if isinstance(h, Horizon)]
    if not horizons:
        return "The estimate contains no horizons."
    rows = {"until": [_until(h) for h in horizons]}
    for name in ("iterations", "integrations", "relaxations"):
        rows[name] = [str(getattr(h, name)) for h in horizons]
    rows["sum of squares"] = [f"{h.objective:.4g}" for h in horizons]
    rows |= {n: [f"{h.parameters[n]:.5g}" for h in horizons] for n in estimate.parameters}
    lines = pd.DataFrame.from_dict(rows, orient="index").to_string(header=False)
    return (
        f"{lines}\nequivalent iterations on the full horizon: "
        f"{equivalent_iterations(horizons):.3g} for the best start, "
        f"{estimate.equivalent_iterations:.3g} for all starts "
        f"({estimate.equivalent_integrations:.3g} equivalent integrations)"
    )


def plot_film_strip(problem: Problem, estimate: Estimate, axes: Any = None) -> Plot:
    """Plot the fit of each horizon, with fitted (filled) and later (hollow) measurements.

    Curves extend to the last measurement if the model can be integrated that far. There is one row
    of axes for each quantity of each experiment, and one column for each horizon.

    problem   the problem whose parameters were estimated
    estimate  an estimate from `IncrementalShooting`
    axes      matplotlib axes, one for each row and column; None: draw in a new figure
    raises    ProblemError if the estimate has no horizons
    """
    horizons = [h for h in estimate.trail if isinstance(h, Horizon)]
    if not horizons:
        raise ProblemError(
            f"The estimate ({estimate.method}, {estimate.status.name}) contains no horizons. Pass "
            "an estimate from igpe.IncrementalShooting for a problem with free unknowns."
        )
    drawn = _grid(problem, [f"t ≤ {_until(h)}" for h in horizons], axes)
    grids = tuple(fine_grid(problem, k) for k in range(len(problem.experiments)))
    for column, horizon in zip(drawn.T, horizons, strict=True):
        runs = simulate_all(problem, Sundials(), horizon.parameters, grids)
        for ax, (k, place) in zip(column, _rows(problem), strict=True):
            run, last = runs[k][1], horizon.until[problem.experiments[k].name]
            _draw(ax, problem, (k, place), [(run.times, run.measured[:, place])], last)
    legend_above(drawn, axes)
    return Plot(drawn)


def plot_pieces(
    problem: Problem, estimate: Estimate, axes: Any = None, *, iterates: int = 4
) -> Plot:
    """Plot the trajectory on each interval at several iterates, to show how the gaps close.

    There is one row of axes for each quantity of each experiment, and one column for each iterate.

    problem   the problem whose parameters were estimated
    estimate  an estimate from `MultipleShooting(record=True)`
    axes      matplotlib axes, one for each row and column; None: draw in a new figure
    iterates  maximum number of iterates to draw: the first, the last, and others between them
    raises    ProblemError if the estimate has no iterates, or `iterates` is below 1
    """
    stages = _recorded(estimate)
    if not isinstance(iterates, int) or iterates < 1:
        raise ProblemError(f"`iterates` is {iterates!r}; expected a whole number of at least 1.")
    every = [*stages[0].iterates, *(i for s in stages[1:] for i in s.iterates[1:])]
    last = len(every) - 1
    gaps = every[0].gap * SHORTER ** np.arange(iterates - 1)
    first = [next((i for i, at in enumerate(every) if at.gap <= gap), last) for gap in gaps]
    chosen = sorted({*first, last})
    drawn = _grid(problem, [f"iteration {i}, gap {every[i].gap:.1e}" for i in chosen], axes)
    rows = _rows(problem)
    for k in range(len(problem.experiments)):
        nodes, ivp = every[0].nodes[k], compiled(problem).initial_value_problem(k, switching=True)
        ends = nodes[1:] - END * np.diff(nodes)
        times = np.linspace(nodes[:-1], ends, INSIDE, axis=1)
        prepared = Automatic(1e-6, 1e-8).prepare(ivp, nodes, times.ravel())
        for column, at in enumerate(every[i] for i in chosen):
            values = np.array([at.parameters[n] for n in ivp.unknowns])
            run = prepared.run(at.starts[k], values, derivatives=False)
            curves = run.measured.reshape(*times.shape, -1)
            for ax, (experiment, place) in zip(drawn[:, column], rows, strict=True):
                if experiment == k:
                    intervals = list(zip(times, curves[:, :, place], strict=True))
                    _draw(ax, problem, (k, place), intervals, np.inf)
    legend_above(drawn, axes)
    return Plot(drawn)


def plot_gaps(estimate: Estimate, axes: Any = None) -> Plot:
    """Plot the largest gap and the objective after each iteration, one line for each stage.

    Each gap is divided by the size of its state. The objective is computed from the
    residuals divided by their standard deviations. The definition of the objective can differ
    between stages, for example if only the last stage uses a robust loss.

    estimate  an estimate from `MultipleShooting(record=True)`
    axes      two matplotlib axes; None: draw in a new figure
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
    legend_above(drawn, axes)
    return Plot(drawn)


def plot_estimates(
    problem: Problem, estimates: Mapping[str, Estimate | Mapping[str, float]], axes: Any = None
) -> Plot:
    """Plot measurements and the predictions of several estimates, one colour for each estimate.

    problem    problem with the experiments to plot
    estimates  a dict {name: estimate}; an estimate is a Result, an Estimate, or a dict {unknown:
               value}
    axes       matplotlib axes, one for each quantity of each experiment; None: draw in a new figure
    """
    rows, several = _rows(problem), len(problem.experiments) > 1
    drawn = axes_for(len(rows), axes)
    grids = tuple(fine_grid(problem, k) for k in range(len(problem.experiments)))
    for number, (name, one) in enumerate(estimates.items()):
        values: Any = getattr(one, "parameters", one)
        runs = simulate_all(problem, Sundials(), values, grids)
        for ax, (k, place) in zip(drawn, rows, strict=True):
            run, line = runs[k][1], LINES[number % len(LINES)]
            look = {"color": colour(number), "linestyle": line, "label": label(name)}
            ax.plot(run.times, run.measured[:, place], **look)
    for ax, (k, place) in zip(drawn, rows, strict=True):
        experiment = problem.experiments[k]
        quantity = experiment.measured[place]
        times, measured, _ = experiment.measurements.of(quantity)
        ax.plot(times, measured, "ko", markersize=4, markerfacecolor="none", label="measured")
        extra = MARGIN * (float(np.ptp(measured)) or 1.0)
        run_name = f"experiment {experiment.name}: " * several
        ax.set_ylabel(labelled(f"{run_name}{quantity}", problem.unit(quantity)))
        ax.set_xlabel(labelled("time", problem.unit("time")))
        low, high = ax.get_ylim()  # estimates that run away do not flatten the measurements
        far = 2 * np.ptp(measured) + extra
        ax.set_ylim(max(low, measured.min() - far), min(high, measured.max() + far))
    legend_above(drawn, axes)
    return Plot(drawn)


def _require_estimate(estimate: Any, method: str) -> None:
    """Raise ProblemError for anything else, such as a Result; method: whose estimate is needed."""
    if not isinstance(estimate, Estimate):
        raise ProblemError(
            f"This plot shows how a search went, which a {type(estimate).__name__} does not "
            f"contain. Pass what {method}.estimate(...) returns."
        )


def _recorded(estimate: Estimate) -> list[Horizon]:
    """The stages of multiple shooting with recorded iterates; raises ProblemError without any."""
    _require_estimate(estimate, "igpe.MultipleShooting(record=True)")
    stages = [h for h in estimate.trail if isinstance(h, Horizon) and h.iterates]
    if not stages:
        raise ProblemError(
            f"The estimate ({estimate.method}, {estimate.status.name}) contains no iterates. Pass "
            "an estimate from igpe.MultipleShooting(record=True)."
        )
    return stages


def _until(horizon: Horizon) -> str:
    """The time of the last measurement that a horizon fits, of each experiment if they differ."""
    return ", ".join(f"{end:g}" for end in dict.fromkeys(horizon.until.values()))


def _rows(problem: Problem) -> list[tuple[int, int]]:
    """The experiment and the place of each measured quantity of all experiments."""
    return [(k, i) for k, e in enumerate(problem.experiments) for i in range(len(e.measured))]


def _grid(problem: Problem, titles: Sequence[str], axes: Any) -> Any:
    """(n_quantities of all experiments, n_titles) axes."""
    rows, several = _rows(problem), len(problem.experiments) > 1
    count = len(rows) * len(titles)
    given = axes_for(count, axes, PANEL, columns=len(titles), sharey="row", sharex="row")
    drawn = given.reshape(len(rows), len(titles))
    for ax, title in zip(drawn[0], titles, strict=True):
        ax.set_title(title, fontsize=9)
    for ax, (k, place) in zip(drawn[:, 0], rows, strict=True):
        name = problem.experiments[k].measured[place]
        run = f"experiment {problem.experiments[k].name}: " * several
        ax.set_ylabel(labelled(f"{run}{name}", problem.unit(name)))
    for ax in drawn[-1]:
        ax.set_xlabel(labelled("time", problem.unit("time")))
    return drawn


def _draw(
    ax: Any,
    problem: Problem,
    place: tuple[int, int],
    intervals: Sequence[tuple[FloatArray, FloatArray]],
    until: float,
) -> None:
    """Measurements and trajectories of one quantity at one stage.

    place      of the experiment, and of the quantity in it
    intervals  times and values (k,): each is drawn on its own
    until      measurements up to this time are filled, later ones are hollow
    """
    experiment = problem.experiments[place[0]]
    times, values, _ = experiment.measurements.of(experiment.measured[place[1]])
    for k, (t, curve) in enumerate(intervals):
        ax.plot(t, curve, linewidth=1.2, color=BLUE, label="model" if k == 0 else None)
    if len(intervals) > 1:
        starts = [(t[0], curve[0]) for t, curve in intervals]
        ax.plot(*np.transpose(starts), "s", markersize=3, color=BLUE, label="start of an interval")
    late = times > until
    for rows, fill, words in (
        (~late, "full", "measured"),
        (late, "none", "measured, not yet fitted"),
    ):
        if rows.any():
            mark = {"markersize": 3.5, "fillstyle": fill, "color": "black", "label": words}
            ax.plot(times[rows], values[rows], "o", **mark)
    if np.isfinite(until) and not late.all():
        ax.axvline(until, color="gray", linewidth=0.8, linestyle=":")
    extra = MARGIN * (float(np.ptp(values)) or 1.0)
    ax.set_ylim(values.min() - extra, values.max() + extra)
