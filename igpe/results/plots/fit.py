"""Plots of a fit and its statistics. Every function takes axes or makes them."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.markup import label, listed
from igpe.numerics.lack_of_fit import exact_probability
from igpe.results.plots.axes import (
    BLUE,
    COLOURS,
    GREY,
    ORANGE,
    Plot,
    axes_for,
    labelled,
    legend_above,
    looks,
    panels,
)
from igpe.results.residual_table import SpectralFit, standard_residuals
from igpe.results.result_data import ResultData


def plot_spectra(fits: tuple[SpectralFit, ...], axes: Any = None, time_unit: str = "") -> Plot:
    """Panels of each block of spectra: pure spectra with 95 % bands, and each run's residuals.

    axes    matplotlib axes, one for each block and one for each of its experiments; None: draw in a
            new figure
    raises  ProblemError for a result without spectra
    """
    if not fits:
        raise ProblemError(
            "The result has no spectra. Pass spectra to the experiment: "
            "igpe.Experiment(..., spectra=igpe.Spectra(frame))."
        )
    drawn = axes_for(sum(1 + len(one.experiments) for one in fits), axes)
    panels = iter(drawn)
    for one in fits:
        _pure(next(panels), one)
        for name in one.experiments:
            _residuals(next(panels), one, name, time_unit)
    return Plot(drawn)


def _pure(ax: Any, one: SpectralFit) -> None:
    for i, name in enumerate(one.species):
        colour = COLOURS[i % len(COLOURS)]
        is_lost = name in one.lost
        label, line = f"{name} (not determined)" if is_lost else name, ":" if is_lost else "-"
        ax.plot(one.wavelengths, one.values[i], line, color=colour, label=label)
        half = BAND * np.where(np.isfinite(one.errors[i]), one.errors[i], 0.0)
        low, high = one.values[i] - half, one.values[i] + half
        ax.fill_between(one.wavelengths, low, high, color=colour, alpha=0.25, linewidth=0)
    ax.set_xlabel("wavelength")
    where = f" ({listed(one.experiments)})" if len(one.experiments) > 1 else ""
    ax.set_ylabel(f"pure spectrum{where}")
    columns = 2 if one.lost else 4
    ax.legend(frameon=False, ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _residuals(ax: Any, one: SpectralFit, experiment: str, time_unit: str) -> None:
    frame = one.residual_frame(experiment)
    most = float(np.abs(frame.to_numpy()).max()) or 1.0
    mesh = ax.pcolormesh(
        frame.columns, frame.index, frame.to_numpy(),
        cmap="RdBu_r", vmin=-most, vmax=most, shading="nearest", rasterized=True,
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label="measured - fitted")
    ax.set_xlabel("wavelength")
    where = f" ({experiment})" if len(one.experiments) > 1 else ""
    ax.set_ylabel((f"time [{time_unit}]" if time_unit else "time") + where)


BAND = 1.96  # standard deviations on either side: 95 %
LARGE = 0.3  # of the range of a panel: longer bars and wider bands are cut
MOST = 12  # unknowns whose correlations are written as numbers


def plot_fit(
    points: pd.DataFrame,
    curves: pd.DataFrame,
    axes: Any = None,
    *,
    residuals: Any = None,
    smoothed: bool = False,
    time_unit: str = "",
    confidence: float = 0.95,
) -> Plot:
    """Measurements and the fitted model: one panel per quantity, one colour per experiment.

    points      columns experiment, name, time, measured, sigma, unit (see `Result.points`)
    curves      columns experiment, name, time, fitted, smoothed, smoothed_error, and lower and
                upper of the model's band (see `Result.curves`)
    axes        matplotlib axes, one per measured quantity; None: draw in a new figure
    residuals   of the points: drawn in a strip below each panel (as many axes again, after those)
    smoothed    whether the smoothed measurements are drawn too, with their 95 % band
    time_unit   of the times;  confidence: of the model's band
    """
    drawn, shown = panels(points, axes, strips=residuals is not None, time_unit=time_unit)
    every = looks(points["experiment"])
    for place, panel in enumerate(shown):
        draw_fit(panel.axes, panel.rows, panel.of(curves), smoothed=smoothed, every=every)
        if residuals is not None:
            strip, values = drawn[len(shown) + place], pd.Series(residuals, points.index)
            draw_residuals(strip, panel.rows, values[panel.rows.index], every=every)
            strip.set(xlabel=panel.axes.get_xlabel(), ylabel="residual")
            panel.axes.set_xlabel("")
            panel.axes.tick_params(labelbottom=False)
    legend_above(drawn, axes, _handles(every, curves, smoothed=smoothed, confidence=confidence))
    return Plot(drawn)


def draw_fit(
    ax: Any,
    points: pd.DataFrame,
    curves: pd.DataFrame,
    *,
    smoothed: bool = False,
    fitted: bool = True,
    every: Mapping[str, Any] | None = None,
) -> None:
    """One quantity of `plot_fit` in all its experiments; wide bands do not flatten the data.

    every   experiment -> its look
    """
    every = looks(points["experiment"]) if every is None else every
    values: list[Any] = [points["measured"]]
    bands: list[Any] = []
    for name, rows in points.groupby("experiment", sort=False):
        look, course = every[str(name)], curves[curves["experiment"] == name]
        t, alone = course["time"], len(every) == 1
        if smoothed and course["smoothed"].notna().any():
            color, half = ORANGE if alone else look.color, BAND * course["smoothed_error"]
            ends = course["smoothed"] - half, course["smoothed"] + half
            ax.fill_between(t, *ends, color=color, alpha=0.2, linewidth=0)
            ax.plot(t, course["smoothed"], color=color, linestyle=":", zorder=2.2)
            values.append(course["smoothed"])
        if fitted:
            if "lower" in course and np.isfinite(course["lower"]).any():
                ends = course["lower"], course["upper"]
                ax.fill_between(t, *ends, color=look.color, alpha=0.2, linewidth=0)
                bands += ends
            ax.plot(t, course["fitted"], color=look.color, linestyle=look.line)
            values.append(course["fitted"])
        error = rows["sigma"].to_numpy() if rows["sigma"].notna().all() else None
        ax.errorbar(
            rows["time"], rows["measured"], yerr=error, fmt=look.marker, elinewidth=0.8,
            color="black" if alone else look.color, markersize=4, markerfacecolor="none",
        )  # fmt: skip
    low, high = _limits(np.concatenate(values))
    more = LARGE * (high - low)
    if bands:
        bottom, top = _limits(np.concatenate(bands))
        low, high = max(min(low, bottom), low - more), min(max(high, top), high + more)
    bars = np.nanmax(points["sigma"].to_numpy(dtype=float), initial=0.0)
    margin = 0.08 * ((high - low) or 1.0) + min(bars, more)
    ax.set_ylim(low - margin, high + margin)


def _limits(values: FloatArray) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    return float(known.min()), float(known.max())


def _handles(
    every: Mapping[str, Any], curves: pd.DataFrame, *, smoothed: bool, confidence: float
) -> dict[str, Any]:
    """What the legend says -> mark, line or band."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - slow to import
    from matplotlib.patches import Patch  # noqa: PLC0415

    alone = len(every) == 1
    model = BLUE if alone else GREY
    handles: dict[str, Any] = {} if alone else experiment_handles(every)
    mark: dict[str, Any] = {
        "linestyle": "",
        "markerfacecolor": "none",
        "color": "black" if alone else GREY,
    }
    handles["measured"] = Line2D([], [], marker="o", markersize=4, **mark)
    handles["fitted model"] = Line2D([], [], color=model)
    if "lower" in curves and np.isfinite(curves["lower"]).any():
        handles[f"{100 * confidence:g} % band of the model"] = Patch(color=model, alpha=0.25)
    if smoothed and curves["smoothed"].notna().any():
        line = Line2D([], [], color=ORANGE if alone else GREY, linestyle=":")
        handles["smoothed, 95 % band"] = line
    return handles


def experiment_handles(every: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Experiment -> its mark and line in a legend; a single one needs none."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - slow to import

    marks = {}
    for name, look in every.items() if len(every) > 1 else ():
        mark: dict[str, Any] = {"color": look.color, "marker": look.marker}
        mark |= {"linestyle": look.line, "markersize": 4, "markerfacecolor": "none"}
        marks[label(name)] = Line2D([], [], **mark | changes)
    return marks


def draw_residuals(
    ax: Any,
    points: pd.DataFrame,
    values: Any,
    *,
    standard: bool = True,
    every: Mapping[str, Any] | None = None,
) -> None:
    """Residuals over time around zero; a line joins each run of residuals of one sign.

    points    columns experiment and time;  values: (n,) their residuals
    standard  whether they are in standard deviations: 95 % of these lie in the band that is drawn
    every     experiment -> its look
    """
    every = looks(points["experiment"]) if every is None else every
    if standard:
        ax.axhspan(-BAND, BAND, color=GREY, alpha=0.15, linewidth=0)
    ax.axhline(0.0, color="black", linewidth=0.8)
    shown = points.assign(shown=np.asarray(values, dtype=float)).sort_values("time", kind="stable")
    for name, rows in shown.groupby("experiment", sort=False):
        t, r, look = rows["time"].to_numpy(), rows["shown"].to_numpy(), every[str(name)]
        mark = {"marker": look.marker, "markersize": 4, "markerfacecolor": "none"}
        ax.plot(t, r, color=look.color, linestyle="", **mark)
        turns = np.flatnonzero(np.diff(np.sign(r)) != 0) + 1
        run = np.insert(r, turns, np.nan)  # a gap between runs
        ax.plot(np.insert(t, turns, np.nan), run, color=look.color, linewidth=0.8)


def plot_residuals(result: ResultData, axes: Any = None) -> Plot:
    """Plot the standardised residuals over time, and a normal quantile plot of all residuals.

    A line joins consecutive residuals of the same sign: long lines show a trend that the model
    misses. The title of each panel shows the smallest p-value of the runs tests, which igpe applies
    to each experiment separately.

    result   a result of `igpe.estimate`
    axes     matplotlib axes, one per quantity and one for the quantile plot; None: draw in a new
             figure
    returns  the plot; the last axes show the normal quantile plot
    """
    values, standard = standard_residuals(result.points, result.variance)
    points = result.points.assign(shown=values)
    drawn, shown = panels(points, axes, more=1, time_unit=result.time_unit)
    every, tests = looks(points["experiment"]), result.residual_tests()
    for panel in shown:
        draw_residuals(panel.axes, panel.rows, panel.rows["shown"], standard=standard, every=every)
        unit = "" if standard else panel.rows["unit"].iloc[0]
        name = labelled(f"residual of {panel.name}", unit)
        panel.axes.set_ylabel(name + "\n/ standard deviation" * standard)
        p = tests.loc[(tests["name"] == panel.name) & (tests["test"] == "runs"), "p"].min()
        if np.isfinite(p):
            panel.axes.set_title(f"runs test: {exact_probability(p)}", fontsize="medium")
    values = np.sort(values[np.isfinite(values)])
    normal = special.ndtri((np.arange(len(values)) + 0.5) / len(values))
    spread = 1.0 if standard else float(np.sqrt(np.sum(values**2) / max(len(values), 1)))
    ax = drawn[-1]
    ax.plot(normal, values, "o", markersize=3, color=BLUE)
    ax.plot(normal, spread * normal, color="black", linewidth=1)
    words = "all residuals" + "\n/ standard deviation" * standard
    ax.set(xlabel="normal quantile", ylabel=words)
    legend_above(drawn, axes, experiment_handles(every, linestyle="-"))
    return Plot(drawn)


def plot_parity(result: ResultData, axes: Any = None) -> Plot:
    """Plot measured against fitted values; the points of a good fit lie near the line.

    result  a result of `igpe.estimate`
    axes    matplotlib axes, one per quantity; None: draw in a new figure
    """
    drawn, shown = panels(result.points, axes)
    every = looks(result.points["experiment"])
    for panel in shown:
        ax, unit = panel.axes, panel.rows["unit"].iloc[0]
        for name, rows in panel.rows.groupby("experiment", sort=False):
            look = every[str(name)]
            error = rows["sigma"].to_numpy() if rows["sigma"].notna().all() else None
            ax.errorbar(
                rows["fitted"], rows["measured"], yerr=error, fmt=look.marker, color=look.color,
                elinewidth=0.8, markersize=4, markerfacecolor="none",
            )  # fmt: skip
        ends = panel.rows[["fitted", "measured"]].to_numpy()
        low, high = np.nanmin(ends), np.nanmax(ends)
        margin = 0.05 * (high - low or 1.0)
        line = (low - margin, high + margin)
        ax.plot(line, line, color="black", linewidth=0.8, zorder=1)
        words = {"xlabel": f"{panel.name}, fitted", "ylabel": f"{panel.name}, measured"}
        ax.set(xlim=line, ylim=line, **{k: labelled(v, unit) for k, v in words.items()})
    legend_above(drawn, axes, experiment_handles(every, linestyle=""))
    return Plot(drawn)


def plot_contributions(result: ResultData, axes: Any = None) -> Plot:
    """Plot the share of each quantity in the sum of squares and in the information.

    For each quantity of each experiment, the plot shows one bar for each of these two shares. The
    share of the information is the sum of this quantity's leverages, divided by the sum of all
    leverages. This share shows how much the measurements of the quantity contribute to determining
    the unknowns. The plot omits this share if the leverages are unknown.

    result  a result of `igpe.estimate`
    axes    matplotlib axes; None: draw in a new figure
    """
    values, _ = standard_residuals(result.points, result.variance)
    table = result.points.assign(square=values**2)
    if "leverage" not in table or not np.isfinite(table["leverage"]).any():
        table = table.assign(leverage=np.nan)
    several = table["experiment"].nunique() > 1
    keys = ["name", "experiment"] if several else ["name"]
    counted = {"square": "sum", "leverage": "sum", "measured": "size"}
    sums = table.groupby(keys, sort=False).agg(counted)
    names = [", ".join(map(str, np.atleast_1d(np.asarray(k, dtype=object)))) for k in sums.index]
    ax = axes_for(1, axes, (5.5, max(0.32 * len(sums) + 1.2, 2.4)))[0]
    at, columns = np.arange(len(sums)), ("square", "leverage", "measured")
    words = ("sum of squares", "information (leverage)", "number of measurements")
    for place, (column, word, color) in enumerate(
        zip(columns, words, (BLUE, ORANGE, GREY), strict=True)
    ):
        whole = sums[column].sum()
        if whole > 0:
            ax.barh(
                at + 0.27 * (place - 1), 100 * sums[column] / whole, 0.27, color=color, label=word
            )
    ax.set_yticks(at, [labelled(n) for n in names])
    ax.set(xlabel="share [%]", ylim=(len(sums) - 0.5, -0.5))
    legend_above([ax], axes)
    return Plot([ax])


def plot_simulation(table: pd.DataFrame, axes: Any = None) -> Plot:
    """Plot a result of `igpe.simulate`: one panel per quantity, one line per experiment."""
    names = [c for c in table.columns if c not in ("experiment", "time")]
    drawn = axes_for(len(names), axes)
    units, every = table.attrs.get("units", {}), looks(table["experiment"])
    for ax, name in zip(drawn, names, strict=True):
        for experiment, run in table.groupby("experiment", sort=False):
            look = every[str(experiment)]
            ax.plot(run["time"], run[name], color=look.color, linestyle=look.line)
        ax.set(xlabel=labelled("time", units.get("time", "")))
        ax.set_ylabel(labelled(name, units.get(name, "")))
    legend_above(drawn, axes, experiment_handles(every, marker=""), title="experiment")
    return Plot(drawn)


def plot_correlation(result: ResultData, axes: Any = None) -> Plot:
    """Plot the correlation matrix of the estimates as a heat map.

    result  a result of `igpe.estimate`
    axes    matplotlib axes; None: draw in a new figure
    """
    table = result.correlation
    side = float(np.clip(0.45 * len(table) + 1.6, 3.4, 12.0))
    ax = axes_for(1, axes, (side + 0.8, side))[0]
    image = ax.imshow(table.to_numpy(), vmin=-1, vmax=1, cmap="RdBu_r")
    ticks = np.arange(len(table))
    ax.set_xticks(ticks, list(map(label, table.columns)), rotation=90)
    ax.set_yticks(ticks, list(map(label, table.index)))
    ax.figure.colorbar(image, ax=ax, label="correlation")
    for (i, j), value in np.ndenumerate(table.to_numpy()):
        if np.isfinite(value) and len(table) <= MOST:
            color = "white" if abs(value) > 0.6 else "black"  # noqa: PLR2004
            ax.text(j, i, f"{value:z.2f}", ha="center", va="center", color=color, fontsize=8)
    return Plot([ax])


def plot_ellipses(
    result: ResultData, pairs: Sequence[tuple[str, str]] | None = None, axes: Any = None
) -> Plot:
    """Plot the joint linearised confidence regions of pairs of unknowns.

    result  a result of `igpe.estimate`
    pairs   pairs of names of unknowns; None: the six most strongly correlated pairs
    axes    matplotlib axes, one per pair; None: draw in a new figure
    raises  ProblemError if fewer than two unknowns have a standard error
    """
    table = result.correlation
    if pairs is None:
        known = [n for n in table.index if np.isfinite(table.loc[n, n])]
        pairs = sorted(combinations(known, 2), key=lambda p: -abs(float(table.loc[p[0], p[1]])))[:6]
    if not pairs:
        raise ProblemError(
            "Fewer than two unknowns of this result have standard errors. Print the result to "
            "see the reason."
        )
    drawn = axes_for(len(pairs), axes)
    units, values = {p.name: p.unit for p in result.estimates}, result.parameters
    for ax, (one, other) in zip(drawn, pairs, strict=True):
        edge = result.ellipse(one, other)
        ax.fill(edge[one], edge[other], color=BLUE, alpha=0.25, linewidth=0)
        ax.plot(edge[one], edge[other], color=BLUE)
        ax.plot(values[one], values[other], "k*")
        ax.set(xlabel=labelled(one, units[one]), ylabel=labelled(other, units[other]))
        ax.set_title(f"correlation {float(table.loc[one, other]):.3f}", fontsize="medium")
    return Plot(drawn)
