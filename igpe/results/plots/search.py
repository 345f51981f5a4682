"""Waterfalls: the objectives that the starts of a search reached."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate
from igpe.numerics.optima import is_same_objective
from igpe.results.plots.axes import MARKERS, Plot, axes_for, colour

MOST = 4  # steps of a single series whose lengths are written
FLAT, ROOM = 1.1, 3.0  # ratio of objectives below which all look alike, and of room around them
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


def plot_waterfall(estimate: Estimate, axes: Any = None) -> Plot:
    """The objectives that the starts of a search reached, in ascending order.

    estimate  of `igpe.search.MultiStart`, or of a method whose restarts were needed
    axes      matplotlib axes; None makes a figure
    raises    ProblemError if there was one start only
    """
    if len(estimate.reached) < 2:  # noqa: PLR2004 - one start is no waterfall
        raise ProblemError(
            f"The estimate ({estimate.method}) comes from one start; give one of several, as "
            "igpe.search.MultiStart(...).estimate makes, or use igpe.compare(...).plot()."
        )
    ax = axes_for(1, axes)[0]
    draw_waterfall(ax, {"": series(estimate.reached)})
    return Plot([ax])


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
