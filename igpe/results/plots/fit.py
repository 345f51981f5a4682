"""Plots of a fit and its statistics. Every function takes axes or makes them, and returns them."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.markup import label as escaped
from igpe.results.plots.axes import PANEL, axes_for, colour, labelled
from igpe.results.residual_table import standard_residuals
from igpe.results.result_data import ResultData

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


MOST = 12  # unknowns whose correlations are written as numbers


def plot_correlation(result: ResultData, axes: Any = None) -> Any:
    """The correlation of the estimates as a heat map; returns the axes.

    result  of `igpe.estimate`
    axes    matplotlib axes; None makes a figure
    """
    table = result.correlation
    ax = axes_for(1, axes)[0]
    image = ax.imshow(table.to_numpy(), vmin=-1, vmax=1, cmap="RdBu_r")
    ticks = np.arange(len(table))
    ax.set_xticks(ticks, list(map(escaped, table.columns)), rotation=45, ha="right")
    ax.set_yticks(ticks, list(map(escaped, table.index)))
    ax.figure.colorbar(image, ax=ax, label="correlation")
    if len(table) <= MOST:
        for (i, j), value in np.ndenumerate(table.to_numpy()):
            if np.isfinite(value):
                color = "white" if abs(value) > 0.6 else "black"  # noqa: PLR2004
                ax.text(j, i, f"{value:z.2f}", ha="center", va="center", color=color, fontsize=8)
    return ax


def plot_ellipses(
    result: ResultData, pairs: Sequence[tuple[str, str]] | None = None, axes: Any = None
) -> Any:
    """Joint linearised confidence regions of pairs of unknowns; returns array of axes.

    result  of `igpe.estimate`
    pairs   None: the six most strongly correlated
    axes    matplotlib axes, one per pair; None makes a figure
    raises  ProblemError if no two unknowns have an error
    """
    chosen = _strongest(result) if pairs is None else list(pairs)
    if not chosen:
        raise ProblemError("No two unknowns of this result have standard errors; see its remarks.")
    drawn = axes_for(len(chosen), axes)
    units, values = {p.name: p.unit for p in result.estimates}, result.parameters
    for ax, (one, other) in zip(drawn, chosen, strict=True):
        edge = result.ellipse(one, other)
        ax.fill(edge[one], edge[other], color="tab:blue", alpha=0.25, linewidth=0)
        ax.plot(edge[one], edge[other], color="tab:blue")
        ax.plot(values[one], values[other], "k*")
        for name, put in ((one, ax.set_xlabel), (other, ax.set_ylabel)):
            put(labelled(name, units[name]))
        related = float(result.correlation.to_numpy(dtype=float)[_place(result, one, other)])
        ax.set_title(f"correlation {related:.3f}", fontsize="medium")
    return drawn


def _place(result: ResultData, one: str, other: str) -> tuple[int, int]:
    names = list(result.correlation.index)
    return names.index(one), names.index(other)


def _strongest(result: ResultData) -> list[tuple[str, str]]:
    table = result.correlation.abs()
    known = [n for n in table.index if np.isfinite(table.loc[n, n])]
    pairs = sorted(combinations(known, 2), key=lambda p: -float(table.loc[p[0], p[1]]))
    return pairs[:6]


def plot_residuals(result: ResultData, axes: Any = None) -> Any:
    """Standardised residuals of each quantity over time, and all of them against the normal.

    result   of `igpe.estimate`
    axes     matplotlib axes, one per quantity of each experiment and one more; None makes a figure
    returns  array of axes; the last has the quantile-quantile plot
    """
    points, several = result.points, result.points["experiment"].nunique() > 1
    values, standard = standard_residuals(points, result.variance)
    groups = list(points.assign(shown=values).groupby(["experiment", "name"], sort=False))
    drawn = axes_for(len(groups) + 1, axes)
    for ax, ((experiment, name), rows) in zip(drawn[:-1], groups, strict=True):
        residual_panel(ax, rows["time"], rows["shown"], str(name), standard=standard)
        if several:
            ax.set_title(escaped(f"experiment {experiment}"), fontsize="medium")
    _quantiles(drawn[-1], values[np.isfinite(values)], standard=standard)
    return drawn


def _quantiles(ax: Any, values: FloatArray, *, standard: bool) -> None:
    """Against the normal distribution with the line on which its quantiles lie."""
    n = len(values)
    normal = special.ndtri((np.arange(n) + 0.5) / n)
    spread = 1.0 if standard else float(np.sqrt(np.sum(values**2) / max(n, 1)))
    ax.plot(normal, np.sort(values), "o", markersize=3, color="tab:blue")
    ax.plot(normal, spread * normal, color="black", linewidth=1)
    ax.set_xlabel("normal quantile")
    ax.set_ylabel("residual / standard deviation" if standard else "residual")
