"""Pictures of a fit. Every function takes axes or makes them, and returns them."""

from typing import Any

import numpy as np
import pandas as pd

COLUMNS = 3  # panels side by side
PANEL = (4.2, 3.2)  # inches
BAND = 1.96  # standard errors on either side of a smoothed curve: 95 %


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
        ax.set_ylabel(f"{name} [{unit}]" if unit else name)
        if several:
            ax.set_title(f"experiment {experiment}", fontsize="medium")
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


def axes_for(count: int, axes: Any) -> Any:
    """So many axes: those given, or of a new figure, at most three side by side."""
    if axes is not None:
        return np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import, not needed without pictures

    columns = min(COLUMNS, max(count, 1))
    rows = -(-count // columns)
    _, grid = plt.subplots(
        max(rows, 1), columns, figsize=(PANEL[0] * columns, PANEL[1] * max(rows, 1)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for spare in grid.ravel()[count:]:
        spare.set_visible(False)
    return np.asarray(grid.ravel()[:count])


def plot_simulation(table: pd.DataFrame, axes: Any = None) -> Any:
    """Simulated trajectories, one panel per quantity, one line per experiment.

    table  as `igpe.simulate` returns it: columns experiment, time and the quantities
    """
    names = [c for c in table.columns if c not in ("experiment", "time")]
    drawn = axes_for(len(names), axes)
    for ax, name in zip(drawn, names, strict=True):
        for experiment, run in table.groupby("experiment", sort=False):
            ax.plot(run["time"], run[name], label=str(experiment))
        ax.set_xlabel("time")
        ax.set_ylabel(name)
    if table["experiment"].nunique() > 1:
        drawn[0].legend(title="experiment", fontsize="small")
    return drawn
