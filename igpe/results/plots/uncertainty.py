"""Plots of uncertainty and plans. Every function takes axes or makes them, and returns them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from igpe.core.arrays import FloatArray
from igpe.core.markup import label as escaped
from igpe.problem.inputs import Table
from igpe.results.plots.axes import axes_for, colour, labelled


class Curve(NamedTuple):
    """The profile of one unknown.

    estimate    of the unknown `name`, in its unit
    values      (k,) of the unknown, increasing
    rises       (k,) of the least sum of squares there, in units of the level
    linearised  lower and upper end of the linearised interval
    """

    name: str
    unit: str
    estimate: float
    values: FloatArray
    rises: FloatArray
    linearised: tuple[float, float]


def plot_profiles(curves: Sequence[Curve], confidence: float, axes: Any = None) -> Any:
    """Rise of the least sum of squares over each unknown, in units of the level.

    Solid: the profile, dashed: what linearised errors assume, dotted: the level of confidence.
    curves      one for each unknown;  confidence: of the level
    axes        matplotlib axes, one per profile; None makes a figure
    returns     array of axes
    """
    drawn = axes_for(len(curves), axes)
    for ax, one in zip(drawn, curves, strict=True):
        _profile(ax, one, confidence)
        ax.set_xlabel(labelled(one.name, one.unit))
    if len(drawn):
        drawn[0].set_ylabel("rise of squares / allowed")
        drawn[0].legend(fontsize="small", loc="upper center")
    return drawn


def _profile(ax: Any, one: Curve, confidence: float) -> None:
    rise = one.rises
    grid = np.linspace(one.values[0], one.values[-1], 200)
    ax.plot(grid, _smooth(one.values, rise, one.estimate, grid), color="tab:blue", label="profile")
    ax.plot(one.values, rise, "o", markersize=3, color="tab:blue")
    half = (one.linearised[1] - one.linearised[0]) / 2
    if np.isfinite(half) and half > 0:
        parabola = ((grid - one.estimate) / half) ** 2
        ax.plot(grid, parabola, "--", color="tab:gray", label="linearised")
    percent = f"{100 * confidence:g} %"
    ax.axhline(1.0, color="black", linestyle=":", linewidth=1, label=percent)
    ax.plot(one.estimate, 0.0, "k*")
    ax.set_ylim(min(-0.05, 1.1 * rise.min()), 1.3)


def _smooth(values: Any, rise: Any, estimate: float, grid: Any) -> Any:
    """The signed root of the rise is nearly a line, and so is easily interpolated."""
    if len(values) < 2:  # noqa: PLR2004
        return np.full(len(grid), rise[0] if len(rise) else np.nan)
    if values[0] < estimate < values[-1]:
        root = np.sign(values - estimate) * np.sqrt(np.maximum(rise, 0.0))
        return PchipInterpolator(values, root)(grid) ** 2
    return PchipInterpolator(values, rise)(grid)


def plot_bootstrap(
    refits: pd.DataFrame, intervals: pd.DataFrame, confidence: float, axes: Any = None
) -> Any:
    """A histogram of the refits of each unknown, with its estimate and interval.

    refits      one row each, one column for each unknown
    intervals   indexed by unknown: estimate, lower, upper, unit;  confidence: of the intervals
    axes        matplotlib axes, one per unknown; None makes a figure
    returns     array of axes
    """
    drawn = axes_for(len(intervals), axes)
    for ax, (name, one) in zip(drawn, intervals.iterrows(), strict=True):
        ax.hist(refits[name], bins="auto", color="tab:blue", alpha=0.6)
        ax.axvline(one["estimate"], color="black", label="estimate")
        for end in ("lower", "upper"):
            label = f"{100 * confidence:g} %" if end == "lower" else None
            ax.axvline(one[end], color="black", linestyle=":", label=label)
        ax.set_xlabel(labelled(str(name), one["unit"]))
    if len(drawn):
        drawn[0].set_ylabel("refits")
        drawn[0].legend(fontsize="small")
    return drawn


def plot_prediction(
    table: pd.DataFrame, measured: pd.DataFrame, confidence: float, axes: Any = None
) -> Any:
    """The mean with its band and that of a measurement, and the measurements themselves.

    table       experiment, name, time, value, lower, upper, band_lower, band_upper, unit
    measured    experiment, name, time, measured;  confidence: of the bands
    axes        matplotlib axes, one per quantity of each experiment; None makes a figure
    returns     array of axes
    """
    groups = list(table.groupby(["experiment", "name"], sort=False))
    several = table["experiment"].nunique() > 1
    drawn = axes_for(len(groups), axes)
    percent = f"{100 * confidence:g} %"
    for ax, ((experiment, name), t) in zip(drawn, groups, strict=True):
        wide = {"color": "tab:gray", "alpha": 0.25, "linewidth": 0}
        ax.fill_between(
            t["time"], t["band_lower"], t["band_upper"], label=f"measurement, {percent}", **wide
        )
        narrow = {"color": "tab:blue", "alpha": 0.35, "linewidth": 0}
        ax.fill_between(t["time"], t["lower"], t["upper"], label=f"mean, {percent}", **narrow)
        ax.plot(t["time"], t["value"], color="tab:blue", label="fitted model")
        here = (measured["experiment"] == experiment) & (measured["name"] == name)
        ax.plot(
            *measured.loc[here, ["time", "measured"]].to_numpy().T,
            "ko",
            markersize=3,
            label="measured",
        )
        ax.set_ylabel(labelled(str(name), t["unit"].iloc[0]))
        ax.set_xlabel("time")
        if several:
            ax.set_title(escaped(f"experiment {experiment}"), fontsize="medium")
    if len(drawn):
        drawn[0].legend(fontsize="small")
    return drawn


def plot_region(
    edge: pd.DataFrame,
    linearised: pd.DataFrame,
    axes: Any = None,
    *,
    names: tuple[str, str],
    units: tuple[str, str],
    estimate: tuple[float, float],
    confidence: float,
) -> Any:
    """The region by the likelihood ratio, the linearised ellipse and the estimate.

    edge        of the region;  linearised: the ellipse; both with a column for each unknown
    axes        matplotlib axes; None makes a figure
    names       of the two unknowns, with their units and their estimate
    confidence  of the region
    returns     the axes
    """
    ax = axes_for(1, axes)[0]
    one, other = names
    ax.fill(edge[one], edge[other], color="tab:blue", alpha=0.25, linewidth=0)
    label = f"likelihood ratio, {100 * confidence:g} %"
    ax.plot(edge[one], edge[other], color="tab:blue", label=label)
    ax.plot(linearised[one], linearised[other], "--", color="tab:gray", label="linearised")
    ax.plot(*estimate, "k*")
    ax.set_xlabel(labelled(one, units[0]))
    ax.set_ylabel(labelled(other, units[1]))
    ax.legend(fontsize="small")
    return ax


PLAN_PANEL = (4.2, 3.0)  # inches
WIDEST = 1e3  # percent: larger errors are drawn as large


class PlannedCurve(NamedTuple):
    """One planned experiment.

    inputs      name -> number, `Table` or function of time, from start_time on
    times       (n,) when to sample;  measured: what to measure in each sample
    """

    name: str
    inputs: Mapping[str, Any]
    start_time: float
    times: FloatArray
    measured: Sequence[str]


def plot_plan(
    experiments: Sequence[PlannedCurve],
    courses: pd.DataFrame,
    errors: pd.DataFrame,
    axes: Any = None,
) -> Any:
    """Inputs over time, predicted courses with the samples, errors before and after.

    axes     matplotlib axes: one for each input over time, one for each measured quantity, one for
             the errors; None makes a figure
    returns  array of the axes
    """
    profiles = list(
        dict.fromkeys(n for e in experiments for n, v in e.inputs.items() if isinstance(v, Table))
    )
    names = list(dict.fromkeys(courses["name"]))
    drawn = axes_for(len(profiles) + len(names) + 1, axes, PLAN_PANEL)
    for ax, name in zip(drawn, profiles, strict=False):
        for k, e in enumerate(experiments):
            _input_profile(ax, e, name, float(courses["time"].max()), colour(k))
        ax.set_ylabel(escaped(name))
    for ax, name in zip(drawn[len(profiles) :], names, strict=False):
        for k, e in enumerate(experiments):
            _course(ax, e, name, courses, colour(k))
        ax.set_ylabel(escaped(name))
    for ax in drawn[:-1]:
        ax.set_xlabel("time")
    if len(experiments) > 1:
        drawn[len(profiles)].legend(fontsize="small")
    _errors(drawn[-1], errors)
    return drawn


def _input_profile(ax: Any, e: PlannedCurve, name: str, end: float, color: str) -> None:
    table = e.inputs[name]
    times = np.unique(np.concatenate([[e.start_time, end], table.times]))
    times = times[(times >= e.start_time) & (times <= end)]
    ax.plot(
        times, [table.at(t) for t in times], drawstyle="steps-post" if table.hold else "default",
        color=color, label=escaped(e.name),
    )  # fmt: skip


def _course(ax: Any, e: PlannedCurve, name: str, courses: pd.DataFrame, color: str) -> None:
    here = courses[(courses["experiment"] == e.name) & (courses["name"] == name)]
    ax.plot(here["time"], here["predicted"], color=color, label=escaped(e.name))
    if name in e.measured:
        at = (np.interp(e.times, here["time"], here[c]) for c in ("predicted", "sigma"))
        value, sigma = at
        ax.errorbar(
            e.times, value, yerr=sigma, fmt="o", color=color, markersize=4, markerfacecolor="none"
        )


def _errors(ax: Any, errors: pd.DataFrame) -> None:
    """Relative standard errors on a logarithmic scale."""
    places = np.arange(len(errors))
    for column, shift, color in (("before", -0.2, "tab:gray"), ("after", 0.2, "tab:blue")):
        size = errors["value"].abs().where(errors["value"] != 0, 1.0)
        percent = (100 * errors[column] / size).clip(upper=WIDEST)
        ax.bar(places + shift, percent, 0.4, color=color, label=column)
    ax.set_yscale("log")
    ax.set_ylabel("standard error [%]")
    ax.set_xticks(places, list(map(escaped, errors.index)), rotation=60, fontsize="small")
    ax.legend(fontsize="small")
