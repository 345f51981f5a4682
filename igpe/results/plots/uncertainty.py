"""Plots of uncertainty, plans and rival models. Every function takes axes or makes them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from igpe.core.markup import label
from igpe.problem.inputs import Table
from igpe.results.plots.axes import (
    BLUE,
    GREY,
    Plot,
    axes_for,
    colour,
    labelled,
    legend_above,
    looks,
    panels,
)
from igpe.results.plots.fit import experiment_handles

BAND = 1.96  # standard errors
ROUNDING = 1e-6  # relative: the ends of an interval of a logarithm have the estimate as mean


def plot_rival_plan(
    experiments: Sequence[Any],
    courses: pd.DataFrame,
    axes: Any = None,
    *,
    units: Mapping[str, str] = MappingProxyType({}),
) -> Plot:
    """Each rival's prediction with its 95 % band; samples with the error of a measurement.

    experiments  `PlannedExperiment`s
    courses      rival, experiment, name, time, predicted, error, sigma
    axes         matplotlib axes, one for each experiment and quantity; None: draw in a new figure
    """
    rivals, names = (list(dict.fromkeys(courses[c])) for c in ("rival", "name"))
    drawn = axes_for(len(experiments) * len(names), axes)
    panels = [(e, n) for e in experiments for n in names]
    for ax, (e, name) in zip(drawn, panels, strict=True):
        here = courses[(courses["experiment"] == e.name) & (courses["name"] == name)]
        for k, rival in enumerate(rivals):
            own, look = here[here["rival"] == rival], {"color": colour(k)}
            t, y = own["time"].to_numpy(), own["predicted"].to_numpy()
            half = BAND * own["error"].to_numpy()
            if np.isfinite(half).all():
                ax.fill_between(t, y - half, y + half, alpha=0.2, linewidth=0, **look)
            ax.plot(t, y, label=label(rival), **look)
            if name in e.measured:
                value, sigma = (np.interp(e.times, t, own[c]) for c in ("predicted", "sigma"))
                mark = {"markersize": 4, "markerfacecolor": "none", "capsize": 2}
                ax.errorbar(e.times, value, yerr=BAND * sigma, fmt="o", **mark, **look)
        if len(experiments) > 1:
            ax.set_title(label(e.name), fontsize="small")
        ax.set_xlabel(labelled("time", units.get("time", "")))
        ax.set_ylabel(labelled(name, units.get(name, "")))
    legend_above(drawn, axes)
    return Plot(drawn)


def plot_rivals(results: Mapping[str, Any], axes: Any = None) -> Plot:
    """Measurements with each rival's fit: one panel for each experiment and quantity.

    results  rival -> `Result`
    axes     matplotlib axes, one for each panel; None: draw in a new figure
    """
    first, best = next(iter(results.items()))
    marks = f"unmixed by {first}" if best.spectral else "measured"
    points = best.points
    panels = list(points.groupby(["experiment", "name"], sort=False))
    drawn = axes_for(len(panels), axes)
    several = points["experiment"].nunique() > 1
    for ax, ((experiment, name), rows) in zip(drawn, panels, strict=True):
        ax.plot(rows["time"], rows["measured"], "o", color="black", markersize=4, label=marks)
        for k, (rival, result) in enumerate(results.items()):
            c = result.curves
            own = c[(c["experiment"] == experiment) & (c["name"] == name)]
            ax.plot(own["time"], own["fitted"], color=colour(k), label=label(rival))
        if several:
            ax.set_title(label(str(experiment)), fontsize="small")
        ax.set_xlabel(labelled("time", best.time_unit))
        ax.set_ylabel(labelled(str(name), str(rows["unit"].iloc[0])))
    legend_above(drawn, axes)
    return Plot(drawn)


def plot_profiles(profiles: Any, axes: Any = None) -> Plot:
    """Rise of the least sum of squares over each unknown, in units of the level.

    Solid: the profile, dashed: what linearised errors assume, dotted: the level of confidence.
    profiles    of `igpe.profile`
    axes        matplotlib axes, one per profile; None: draw in a new figure
    """
    drawn = axes_for(len(profiles.profiles), axes)
    for ax, one in zip(drawn, profiles.profiles, strict=True):
        rise = (one.costs - profiles.objective) / profiles.rises[one.name]
        grid = np.linspace(one.values[0], one.values[-1], 200)
        smooth = _smooth(one.values, rise, one.estimate, grid)
        ax.plot(grid, smooth, color=BLUE, label="profile")
        ax.plot(one.values, rise, "o", markersize=3, color=BLUE)
        lower, upper = profiles.linearised[one.name]
        x = one.estimate
        is_log = lower > 0 and abs(lower * upper - x**2) <= ROUNDING * x**2
        along, *ends = (np.log(v / x) if is_log else v - x for v in (grid, upper, lower))
        half = np.max(np.abs(ends))  # the other end may be a bound
        if np.isfinite(half) and half > 0:
            parabola = (along / half) ** 2
            ax.plot(grid, parabola, "--", color=GREY, label="linearised")
        level = f"{100 * profiles.confidence:g} %"
        ax.axhline(1.0, color="black", linestyle=":", linewidth=1, label=level)
        ax.plot(one.estimate, 0.0, "k*")
        ax.set(xlabel=labelled(one.name, one.unit), ylim=(min(-0.05, 1.1 * rise.min()), 1.3))
    drawn[0].set_ylabel("rise in sum of squares / allowed rise")
    legend_above(drawn, axes)
    return Plot(drawn)


def _smooth(values: Any, rise: Any, estimate: float, grid: Any) -> Any:
    """The signed root of the rise is nearly a line, and so is easily interpolated."""
    if len(values) < 2:  # noqa: PLR2004
        return np.full(len(grid), rise[0] if len(rise) else np.nan)
    if values[0] < estimate < values[-1]:
        root = np.sign(values - estimate) * np.sqrt(np.maximum(rise, 0.0))
        return PchipInterpolator(values, root)(grid) ** 2
    return PchipInterpolator(values, rise)(grid)


def plot_draws(
    draws: pd.DataFrame,
    intervals: pd.DataFrame,
    confidence: float,
    axes: Any = None,
    *,
    pairs: bool = False,
) -> Plot:
    """A histogram of the draws of each unknown, with its estimate and interval.

    draws       one row each, one column for each unknown: refits, or draws from a posterior
    intervals   indexed by unknown: estimate, lower, upper, and unit if known
    confidence  confidence level of the intervals
    axes        matplotlib axes, one per unknown, with pairs n x n; None: draw in a new figure
    pairs       below the histograms, the draws of each pair of unknowns
    """
    names, n = list(intervals.index), len(intervals)
    drawn = axes_for(n * n if pairs else n, axes, columns=n if pairs else 0)
    units = intervals["unit"] if "unit" in intervals else pd.Series("", index=names)
    labels = {name: labelled(str(name), units[name]) for name in names}
    diagonal = drawn[:: n + 1] if pairs else drawn
    for ax, (name, one) in zip(diagonal, intervals.iterrows(), strict=True):
        ax.hist(draws[name], bins="auto", color=BLUE, alpha=0.6)
        ax.axvline(one["estimate"], color="black", label="estimate")
        for end, words in (("lower", f"{100 * confidence:g} %"), ("upper", None)):
            ax.axvline(one[end], color="black", linestyle=":", label=words)
        ax.set_xlabel(labels[name])
    for k, ax in enumerate(drawn) if pairs else ():
        row, column = (names[i] for i in divmod(k, n))
        ax.set_visible(k // n >= k % n)
        if k // n > k % n:
            ax.plot(draws[column], draws[row], ".", color=BLUE, alpha=0.15, rasterized=True)
            ax.plot(intervals["estimate"][column], intervals["estimate"][row], "k*")
            ax.set(xlabel=labels[column], ylabel=labels[row])
    drawn[0].set_ylabel("draws")
    legend_above(drawn[:1], axes)
    return Plot(drawn)


def plot_prediction(
    table: pd.DataFrame,
    measured: pd.DataFrame,
    axes: Any = None,
    *,
    confidence: float,
    time_unit: str = "",
) -> Plot:
    """The mean with its band, that of a measurement, and the measurements themselves.

    One panel per quantity, one colour per experiment; the band of a measurement is drawn where
    there is one experiment.

    table       experiment, name, time, value, standard_error, lower, upper, band_lower,
                band_upper, unit
    measured    experiment, name, time, measured
    axes        matplotlib axes, one per quantity; None: draw in a new figure
    confidence  confidence level of the bands;  time_unit: of the times
    """
    drawn, shown = panels(table, axes, time_unit=time_unit)
    every, handles = looks(table["experiment"]), {}
    alone, level = len(every) == 1, f"{100 * confidence:g} %"
    for panel in shown:
        ax, points = panel.axes, panel.of(measured)
        for name, t in panel.rows.groupby("experiment", sort=False):
            look = every[str(name)]
            if alone and np.isfinite(t["band_lower"]).any():
                grey = {"color": GREY, "alpha": 0.25, "linewidth": 0}
                band = ax.fill_between(t["time"], t["band_lower"], t["band_upper"], **grey)
                handles[f"measurement, {level}"] = band
            soft = {"color": look.color, "alpha": 0.3, "linewidth": 0}
            mean = ax.fill_between(t["time"], t["lower"], t["upper"], **soft)
            handles.setdefault(f"mean, {level}", mean)
            is_lost = np.isinf(t["standard_error"])
            known, lost = t["value"].mask(is_lost), t["value"].where(is_lost)
            (line,) = ax.plot(t["time"], known, color=look.color, linestyle=look.line)
            if is_lost.any():
                (dotted,) = ax.plot(t["time"], lost, color=look.color, linestyle=":")
                handles["not determined by the data"] = dotted
            own = points[points["experiment"] == name]
            mark = {"color": "black" if alone else look.color, "markerfacecolor": "none"}
            (dots,) = ax.plot(own["time"], own["measured"], look.marker, markersize=4, **mark)
            words = "prediction" if measured.empty else "fitted model"
            handles |= {words: line} if alone else {}
            handles |= {"measured": dots} if alone and len(own) else {}
    legend_above(drawn, axes, experiment_handles(every) | handles)
    return Plot(drawn)


def plot_region(region: Any, axes: Any = None) -> Plot:
    """The region by the likelihood ratio, the linearised ellipse and the estimate.

    region      of `igpe.uncertainty.region`
    axes        matplotlib axes; None: draw in a new figure
    """
    ax, (one, other) = axes_for(1, axes)[0], region.names
    ax.fill(region.edge[one], region.edge[other], color=BLUE, alpha=0.25, linewidth=0)
    words = f"likelihood ratio, {100 * region.confidence:g} %"
    ax.plot(region.edge[one], region.edge[other], color=BLUE, label=words)
    ellipse = region.linearised
    ax.plot(ellipse[one], ellipse[other], "--", color=GREY, label="linearised")
    ax.plot(*region.estimate, "k*")
    ax.set(xlabel=labelled(one, region.units[0]), ylabel=labelled(other, region.units[1]))
    legend_above([ax], axes)
    return Plot([ax])


WIDEST = 1e3  # percent: larger errors have no bar
COLUMNS = ("before", "after")
DECADES = 100.0  # times the smallest error: from where bars need a logarithmic axis


def plot_plan(
    experiments: Sequence[Any],
    courses: pd.DataFrame,
    errors: pd.DataFrame,
    axes: Any = None,
    *,
    units: Mapping[str, str] = MappingProxyType({}),
) -> Plot:
    """Inputs over time, predicted courses with the samples, errors before and after.

    experiments  `PlannedExperiment`s
    axes         matplotlib axes: one for each input over time, one for each measured quantity, one
                 for the errors; None: draw in a new figure
    units        of inputs, quantities and "time"
    """
    varied = (n for e in experiments for n, v in e.inputs.items() if isinstance(v, Table))
    profiles, names = list(dict.fromkeys(varied)), list(dict.fromkeys(courses["name"]))
    drawn = axes_for(len(profiles) + len(names) + 1, axes)
    several = len(experiments) > 1
    for place, (ax, name) in enumerate(zip(drawn[:-1], [*profiles, *names], strict=True)):
        for k, e in enumerate(experiments):
            look = {"color": colour(k), "label": label(e.name) if several else None}
            if place < len(profiles):
                _input_profile(ax, e, e.inputs[name], float(courses["time"].max()), look)
            else:
                own = courses[(courses["experiment"] == e.name) & (courses["name"] == name)]
                _course(ax, e, name, own, look)
        ax.set_xlabel(labelled("time", units.get("time", "")))
        ax.set_ylabel(labelled(name, units.get(name, "")))
    ax, places = drawn[-1], np.arange(len(errors))
    size = errors["value"].abs().where(errors["value"] != 0, 1.0)
    percent = pd.DataFrame({c: 100 * errors[c] / size for c in COLUMNS})
    both = percent.where(percent <= WIDEST)
    for column, shift, color in zip(COLUMNS, (-0.2, 0.2), (GREY, BLUE), strict=True):
        ax.bar(places + shift, both[column], 0.4, color=color, label=column)
        foot = {"transform": ax.get_xaxis_transform(), "ha": "center"}
        for place, value in zip(places + shift, percent[column], strict=True):
            if value > WIDEST:
                is_known = bool(np.isfinite(value))
                text = f"> {WIDEST:g}" if is_known else "∞"
                ax.text(place, 0.02, text, rotation=90 * is_known, **foot)
    ax.set_xlim(-0.5, len(errors) - 0.5)
    heights = both.to_numpy(dtype=float)
    heights = heights[np.isfinite(heights)]
    is_wide = heights.size > 0 and heights.max() > DECADES * heights.min()
    ax.set(yscale="log" if is_wide else "linear", ylabel="standard error [%]")
    ax.set_xticks(places, list(map(label, errors.index)), rotation=90, fontsize="small")
    legend_above(drawn, axes)
    return Plot(drawn)


def _input_profile(ax: Any, e: Any, table: Table, end: float, look: dict[str, Any]) -> None:
    times = np.unique(np.concatenate([[e.start_time, end], table.times]))
    times = times[(times >= e.start_time) & (times <= end)]
    style = "steps-post" if table.hold else "default"
    ax.plot(times, [table.at(t) for t in times], drawstyle=style, **look)


def _course(ax: Any, e: Any, name: str, course: pd.DataFrame, look: dict[str, Any]) -> None:
    ax.plot(course["time"], course["predicted"], **look)
    if name in e.measured:
        value, sigma = (
            np.interp(e.times, course["time"], course[c]) for c in ("predicted", "sigma")
        )
        mark = {"color": look["color"], "markersize": 4, "markerfacecolor": "none"}
        ax.errorbar(e.times, value, yerr=sigma, fmt="o", **mark)
