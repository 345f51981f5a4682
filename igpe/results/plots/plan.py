"""A plan as a picture."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.markup import label as escaped
from igpe.problem.inputs import Table
from igpe.results.plots.axes import axes_for, colour

PANEL = (4.2, 3.0)  # inches
WIDEST = 1e3  # percent: larger errors are drawn as large


class Planned(NamedTuple):
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
    experiments: Sequence[Planned],
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
    drawn = axes_for(len(profiles) + len(names) + 1, axes, PANEL)
    for ax, name in zip(drawn, profiles, strict=False):
        for k, e in enumerate(experiments):
            _profile(ax, e, name, float(courses["time"].max()), colour(k))
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


def _profile(ax: Any, e: Planned, name: str, end: float, color: str) -> None:
    table = e.inputs[name]
    times = np.unique(np.concatenate([[e.start_time, end], table.times]))
    times = times[(times >= e.start_time) & (times <= end)]
    ax.plot(
        times, [table.at(t) for t in times], drawstyle="steps-post" if table.hold else "default",
        color=color, label=escaped(e.name),
    )  # fmt: skip


def _course(ax: Any, e: Planned, name: str, courses: pd.DataFrame, color: str) -> None:
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
