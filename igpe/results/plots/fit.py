"""Pictures of a fit. Every function takes axes or makes them, and returns them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.markup import label as escaped
from igpe.results.plots.axes import PANEL, axes_for, colour, labelled

BAND = 1.96  # standard deviations on either side: 95 %


def plot_fit(points: pd.DataFrame, curves: pd.DataFrame, axes: Any = None) -> Any:
    """Data, smoothed measurements with their 95 % band, and the fitted model.

    points   columns experiment, name, time, measured, sigma, unit (see `Result.points`)
    curves   columns experiment, name, time, fitted, smoothed, smoothed_error (see `Result.curves`)
    axes     matplotlib axes, one per measured quantity of each experiment; None makes a figure
    returns  array of axes, one panel per measured quantity of each experiment
    """
    panels = list(points[["experiment", "name"]].drop_duplicates().itertuples(index=False))
    drawn = axes_for(len(panels), axes)
    several = points["experiment"].nunique() > 1
    for ax, (experiment, name) in zip(drawn, panels, strict=True):
        here = (points["experiment"] == experiment) & (points["name"] == name)
        there = (curves["experiment"] == experiment) & (curves["name"] == name)
        _panel(ax, points[here], curves[there])
        unit = points.loc[here, "unit"].iloc[0]
        ax.set_ylabel(labelled(name, unit))
        if several:
            ax.set_title(escaped(f"experiment {experiment}"), fontsize="medium")
    if len(drawn):
        _legend(drawn[0], above=axes is None)
    return drawn


def _legend(ax: Any, *, above: bool) -> None:
    """Above all panels of a figure made here, where it hides nothing; else inside the first."""
    handles, labels = ax.get_legend_handles_labels()
    if above:
        columns = len(labels) if ax.figure.get_figwidth() > PANEL[0] else 1
        ax.figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    else:
        ax.legend(handles, labels, fontsize="small")


def _panel(ax: Any, points: pd.DataFrame, curves: pd.DataFrame) -> None:
    t = curves["time"]
    if curves["smoothed"].notna().any():
        half = BAND * curves["smoothed_error"]
        low, high = curves["smoothed"] - half, curves["smoothed"] + half
        ax.fill_between(t, low, high, color="tab:orange", alpha=0.2, linewidth=0)
        ax.plot(
            t, curves["smoothed"], color="tab:orange", linestyle="--", label="smoothed, 95 % band"
        )
    ax.plot(t, curves["fitted"], color="tab:blue", label="fitted model")
    error = points["sigma"].to_numpy() if points["sigma"].notna().all() else None
    ax.errorbar(
        points["time"], points["measured"], yerr=error, fmt="o", color="black", label="measured",
        markersize=4, markerfacecolor="none",
    )  # fmt: skip
    ax.set_xlabel("time")
    _keep_in_view(ax, points, curves)


def _keep_in_view(ax: Any, points: pd.DataFrame, curves: pd.DataFrame) -> None:
    """A wide error band must not flatten data and model."""
    shown = np.concatenate([points["measured"], curves["fitted"], curves["smoothed"]])
    shown = shown[np.isfinite(shown)]
    margin = 0.08 * (np.ptp(shown) or 1.0)
    ax.set_ylim(shown.min() - margin, shown.max() + margin)


def residual_panel(
    ax: Any, times: npt.ArrayLike, values: npt.ArrayLike, of: str = "", *, standard: bool
) -> None:
    """Residuals over time around zero, with the band in which 95 % of standardised ones lie.

    times, values  (n,)
    of             what they are the residuals of
    standard       whether they are in standard deviations; there is no band if they are not
    """
    if standard:
        ax.axhspan(-BAND, BAND, color="tab:gray", alpha=0.15, linewidth=0)
    ax.axhline(0.0, color="black", linewidth=1)
    ax.plot(times, values, "o", markersize=4, color="tab:blue")
    ax.set_xlabel("time")
    name = f"residual of {of}" if of else "residual"
    ax.set_ylabel(escaped(f"{name} / standard deviation" if standard else name))


def plot_simulation(table: pd.DataFrame, axes: Any = None) -> Any:
    """Simulated trajectories, one panel per quantity, one line per experiment.

    table  as `igpe.simulate` returns it: columns experiment, time and the quantities
    """
    names = [c for c in table.columns if c not in ("experiment", "time")]
    drawn = axes_for(len(names), axes)
    for ax, name in zip(drawn, names, strict=True):
        for k, (experiment, run) in enumerate(table.groupby("experiment", sort=False)):
            ax.plot(run["time"], run[name], color=colour(k), label=escaped(str(experiment)))
        ax.set_xlabel("time")
        ax.set_ylabel(escaped(name))
    if table["experiment"].nunique() > 1:
        drawn[0].legend(title="experiment", fontsize="small")
    return drawn
