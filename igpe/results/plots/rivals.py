"""Plots of rival models: their fits, and the experiment that tells them apart."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.markup import label
from igpe.results.plots.axes import Plot, axes_for, colour, labelled, legend_above

BAND = 1.96  # standard errors


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
    axes         matplotlib axes, one for each experiment and quantity; None makes a figure
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
    axes     matplotlib axes, one for each panel; None makes a figure
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
