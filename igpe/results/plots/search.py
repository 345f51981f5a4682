"""How a search went: waterfalls of starts, horizons of incremental, gaps of multiple shooting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate, Horizon, Iterate, equivalent_iterations
from igpe.core.markup import label as escaped
from igpe.numerics.optima import is_same_objective
from igpe.results.plots.axes import axes_for, colour, labelled

MOST = 4  # steps of a single series whose lengths are written
FLAT, ROOM = 1.1, 3.0  # ratio of objectives below which all look alike, and of room around them
MARKERS = "os^Dv"
ABOVE = "objective above the best, + 1"


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


def plot_waterfall(estimate: Estimate, axes: Any = None) -> Any:
    """The objectives that the starts of a search reached, in ascending order.

    estimate  of `igpe.search.MultiStart`, or of a method whose restarts were needed
    axes      matplotlib axes; None makes a figure
    returns   the axes
    raises    ProblemError if there was one start only
    """
    if len(estimate.reached) < 2:  # noqa: PLR2004 - one start is no waterfall
        raise ProblemError(
            f"The estimate ({estimate.method}) comes from one start; give one of several, as "
            "igpe.search.MultiStart(...).estimate makes, or use igpe.compare(...).plot()."
        )
    ax = axes_for(1, axes)[0]
    draw_waterfall(ax, {"": series(estimate.reached)})
    return ax


def draw_waterfall(ax: Any, found: Mapping[str, Series], *, rounding: float = 0.0) -> None:
    """One line for each series.

    Objectives on a logarithmic scale, or how far they are above the best where some are not
    positive. Where an end is no optimum its mark is hollow; what failed is counted in the legend.
    found     name -> series
    rounding  sums of squares below it are as good as zero, and drawn there
    """
    from matplotlib.ticker import LogFormatter  # noqa: PLC0415 - slow to import

    known = np.concatenate([s.objectives[np.isfinite(s.objectives)] for s in found.values()])
    least = rounding if (known >= 0).all() else -np.inf
    known = np.maximum(known, least)
    shift = 0.0 if (known > 0).all() else 1.0 - float(known.min(initial=0.0))
    for k, (name, one) in enumerate(found.items()):
        good = np.isfinite(one.objectives)
        failed = f"{np.sum(~good)} of {len(good)} failed" * bool(np.sum(~good))
        ends = Series(np.maximum(one.objectives[good], least) + shift, one.arrived[good])
        _line(ax, ends, ": ".join(filter(None, (name, failed))), k)
        steps = sorted(_steps(ends.objectives), key=lambda s: s.start - s.stop)[:MOST]
        for step in steps if len(found) == 1 else ():
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
    """A series for those who do not see it."""
    good = one.objectives[np.isfinite(one.objectives)]
    if not len(good):
        return f"None of {len(one.objectives)} starts ended at an objective."
    first, *others = _steps(good)
    return (
        f"Objectives of {len(one.objectives)} starts in ascending order, from {good[0]:.5g} to "
        f"{good[-1]:.5g}; {len(first)} of them at the best one, in {1 + len(others)} steps."
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


MARGIN = 0.15  # around the data of what a panel shows, in their range


def horizon_table(estimate: Estimate) -> str:
    """As Table 3 of Michalik et al. (2009), ISS: a column for each horizon.

    estimate  of `IncrementalShooting`
    """
    horizons = [h for h in estimate.trail if isinstance(h, Horizon)]
    if not horizons:
        return "The estimate has no horizons."
    rows = {"until": [until(h) for h in horizons]}
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


def plot_horizons(estimate: Estimate, axes: Any = None) -> Any:
    """Each unknown's estimate and bounds from horizon to horizon, one panel for each unknown.

    estimate  of `IncrementalShooting`
    axes      matplotlib axes, one for each unknown; None makes a figure
    returns   array of axes
    raises    ProblemError if the estimate has no horizons, or nothing was estimated
    """
    horizons = require_horizons(estimate)
    drawn = axes_for(len(estimate.parameters), axes)
    number = np.arange(1, len(horizons) + 1)
    for ax, name in zip(drawn, estimate.parameters, strict=True):
        value, low, high = (
            np.array([getattr(h, field)[name] for h in horizons])
            for field in ("parameters", "lower", "upper")
        )
        ax.plot(number, value, "o-", color="tab:blue", label="estimate")
        seen = np.isfinite(low) & np.isfinite(high)
        shown = _around(value, 0.2)  # bounds may be far wider
        ax.vlines(number[seen], low[seen], high[seen], color="tab:orange", label="bounds")
        ax.set(ylim=shown, xticks=number, xlabel="horizon", ylabel=escaped(name))
    return drawn


def require_horizons(estimate: Estimate, *, recorded: bool = False) -> list[Horizon]:
    """The horizons or stages of an estimate; raises ProblemError if it has none.

    recorded  only those with iterates
    """
    horizons = [
        h for h in estimate.trail if isinstance(h, Horizon) and (h.iterates or not recorded)
    ]
    if not horizons:
        lacks, remedy = (
            ("iterates", "MultipleShooting(record=True)")
            if recorded
            else (
                "horizons",
                "IncrementalShooting, of a problem that leaves something to estimate",
            )
        )
        raise ProblemError(
            f"The estimate ({estimate.method}, {estimate.status.name}) has no {lacks} to draw. "
            f"Give one of igpe.{remedy}."
        )
    return horizons


def _around(values: FloatArray, margin: float) -> tuple[float, float]:
    """Limits that show all values, with a margin relative to their range."""
    extra = margin * (float(np.ptp(values)) or 1.0)
    return float(values.min()) - extra, float(values.max()) + extra


def until(horizon: Horizon) -> str:
    """The time of the last measurement that a horizon fits, of each experiment if they differ."""
    return ", ".join(f"{end:g}" for end in dict.fromkeys(horizon.until.values()))


SHORTER = 0.3  # how much the largest gap is from one drawn iterate to the next, of the one before
SMALLEST_GAP = 1e-16  # a gap that is drawn


def plot_gaps(estimate: Estimate, axes: Any = None) -> Any:
    """The largest gap and the objective after every iteration, one line for each stage.

    Gaps are relative to the size of their state, the objective is in standard deviations; stages
    may count it differently (level errors first, a robust loss last).

    estimate  of `MultipleShooting(record=True)`
    axes      two matplotlib axes; None makes a figure
    returns   array of axes
    raises    ProblemError if the estimate has no iterates
    """
    stages = require_horizons(estimate, recorded=True)
    drawn = axes_for(2, axes)
    fields = (("gap", "largest gap / size of its state"), ("objective", "objective"))
    for ax, (field, label) in zip(drawn, fields, strict=True):
        first = 0
        for k, stage in enumerate(stages):
            values = np.maximum([getattr(i, field) for i in stage.iterates], SMALLEST_GAP)
            number = np.arange(first, first + len(values))
            look = {"color": colour(k), "marker": MARKERS[k % len(MARKERS)], "markersize": 4}
            ax.plot(number, values, label=stage.method, linewidth=1, **look)
            first += len(values) - 1  # a stage begins where the one before ended
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set(yscale="log", xlabel="iteration", ylabel=label)
    drawn[0].legend(fontsize="small")
    return drawn


def selected_iterates(stages: Sequence[Horizon], count: int) -> list[tuple[int, Iterate]]:
    """At most `count` iterates as gaps become shorter, with their numbers as in `plot_gaps`."""
    iterates = [*stages[0].iterates, *(i for s in stages[1:] for i in s.iterates[1:])]
    last = len(iterates) - 1
    gaps = iterates[0].gap * SHORTER ** np.arange(count - 1)
    first = [next((i for i, at in enumerate(iterates) if at.gap <= gap), last) for gap in gaps]
    return [(i, iterates[i]) for i in sorted({*first, last})]


STAGE = (3.4, 2.6)  # inches of a panel


class ShootingStage(NamedTuple):
    """One experiment at one stage of a search.

    measured  columns name, time, measured, unit
    curves    columns name, interval, time, fitted: each interval is drawn on its own
    until     measurements up to this time are filled, later ones are hollow
    """

    measured: pd.DataFrame
    curves: pd.DataFrame
    until: float


def plot_stages(
    stages: Sequence[tuple[str, Sequence[ShootingStage]]],
    experiments: Sequence[str],
    axes: Any = None,
) -> Any:
    """Measurements and trajectories, a column for each stage and a row for each experiment.

    stages   title, and a `ShootingStage` for each of the experiments
    axes     matplotlib axes, one for each stage of each experiment; None makes a figure
    returns  (n_experiments, n_stages) axes
    """
    shape = len(experiments), len(stages)
    given = axes_for(shape[0] * shape[1], axes, STAGE, columns=shape[1], sharey="row")
    drawn = given.reshape(shape)
    for column, (title, row) in zip(drawn.T, stages, strict=True):
        for ax, stage in zip(column, row, strict=True):
            _stage(ax, stage)
        column[0].set_title(title, fontsize="medium")
    if len(experiments) > 1:
        for ax, name in zip(drawn[:, 0], experiments, strict=True):
            ax.set_ylabel(escaped(f"experiment {name}"))
    if axes is None:  # above all panels, where it hides nothing
        entries = [ax.get_legend_handles_labels() for ax in drawn[:, 0]]
        marks = {label: mark for some in entries for mark, label in zip(*some, strict=True)}
        look = {"loc": "outside upper center", "ncols": len(marks), "frameon": False}
        drawn[0, 0].figure.legend(marks.values(), marks.keys(), **look)
    else:
        for ax in drawn[:, -1]:
            ax.legend(fontsize="small")
    return drawn


def _stage(ax: Any, stage: ShootingStage) -> None:
    for number, (name, data) in enumerate(stage.measured.groupby("name", sort=False)):
        look: dict[str, Any] = {"color": colour(number)}
        label: str | None = labelled(str(name), data["unit"].iloc[0])
        fitted = data["time"] <= stage.until
        for rows, fill in ((data[fitted], "full"), (data[~fitted], "none")):
            if len(rows):
                mark = {"markersize": 3, "fillstyle": fill, "label": label}
                ax.plot(rows["time"], rows["measured"], "o", **mark, **look)
                label = None
        curves = stage.curves[stage.curves["name"] == name]
        intervals = list(curves.groupby("interval"))
        for _, line in intervals:
            ax.plot(line["time"], line["fitted"], linewidth=1.2, **look)
        if len(intervals) > 1:
            first = curves.groupby("interval").first()
            ax.plot(first["time"], first["fitted"], "s", markersize=2, **look)
    if np.isfinite(stage.until) and (stage.measured["time"] <= stage.until).any():
        ax.axvline(stage.until, color="gray", linewidth=0.8, linestyle=":")
    ax.set(xlabel="time", ylim=_around(stage.measured["measured"].to_numpy(), MARGIN))
