"""Plots of a fit and its statistics. Every function takes axes or makes them, and returns them."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from igpe.core.errors import ProblemError
from igpe.core.markup import label
from igpe.results.plots.axes import PANEL, axes_for, colour, labelled, panels
from igpe.results.residual_table import standard_residuals
from igpe.results.result_data import ResultData

BAND = 1.96  # standard deviations on either side: 95 %
MOST = 12  # unknowns whose correlations are written as numbers


def plot_fit(points: pd.DataFrame, curves: pd.DataFrame, axes: Any = None) -> Any:
    """Data, smoothed measurements with their 95 % band, and the fitted model.

    points   columns experiment, name, time, measured, sigma, unit (see `Result.points`)
    curves   columns experiment, name, time, fitted, smoothed, smoothed_error (see `Result.curves`)
    axes     matplotlib axes, one per measured quantity of each experiment; None makes a figure
    returns  array of axes, one panel per measured quantity of each experiment
    """
    drawn, shown = panels(points, axes)
    for panel in shown:
        draw_fit(panel.axes, panel.rows, panel.of(curves))
    if not shown:
        return drawn
    handles, labels = drawn[0].get_legend_handles_labels()
    if axes is None:  # above all panels, where it hides nothing
        figure = drawn[0].figure
        columns = len(labels) if figure.get_figwidth() > PANEL[0] else 1
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    else:
        drawn[0].legend(handles, labels, fontsize="small")
    return drawn


def draw_fit(ax: Any, points: pd.DataFrame, curves: pd.DataFrame) -> None:
    """One panel of `plot_fit`; a wide band does not flatten data and model."""
    t, smoothed = curves["time"], curves["smoothed"]
    if smoothed.notna().any():
        half = BAND * curves["smoothed_error"]
        look = {"color": "tab:orange", "alpha": 0.2, "linewidth": 0}
        ax.fill_between(t, smoothed - half, smoothed + half, **look)
        ax.plot(t, smoothed, color="tab:orange", linestyle="--", label="smoothed, 95 % band")
    ax.plot(t, curves["fitted"], color="tab:blue", label="fitted model")
    error = points["sigma"].to_numpy() if points["sigma"].notna().all() else None
    ax.errorbar(
        points["time"], points["measured"], yerr=error, fmt="o", color="black", label="measured",
        markersize=4, markerfacecolor="none",
    )  # fmt: skip
    values = np.concatenate([points["measured"], curves["fitted"], smoothed])
    values = values[np.isfinite(values)]
    margin = 0.08 * (np.ptp(values) or 1.0)
    ax.set(xlabel="time", ylim=(values.min() - margin, values.max() + margin))


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
    name = f"residual of {of}" if of else "residual"
    ax.set(xlabel="time", ylabel=label(name + " / standard deviation" * standard))


def plot_simulation(table: pd.DataFrame, axes: Any = None) -> Any:
    """What `igpe.simulate` returns: one panel per quantity, one line per experiment."""
    names = [c for c in table.columns if c not in ("experiment", "time")]
    drawn = axes_for(len(names), axes)
    for ax, name in zip(drawn, names, strict=True):
        for k, (experiment, run) in enumerate(table.groupby("experiment", sort=False)):
            ax.plot(run["time"], run[name], color=colour(k), label=label(str(experiment)))
        ax.set(xlabel="time", ylabel=label(name))
    if table["experiment"].nunique() > 1:
        drawn[0].legend(title="experiment", fontsize="small")
    return drawn


def plot_correlation(result: ResultData, axes: Any = None) -> Any:
    """The correlation of the estimates as a heat map; returns the axes.

    result  of `igpe.estimate`
    axes    matplotlib axes; None makes a figure
    """
    table = result.correlation
    ax = axes_for(1, axes)[0]
    image = ax.imshow(table.to_numpy(), vmin=-1, vmax=1, cmap="RdBu_r")
    ticks = np.arange(len(table))
    ax.set_xticks(ticks, list(map(label, table.columns)), rotation=45, ha="right")
    ax.set_yticks(ticks, list(map(label, table.index)))
    ax.figure.colorbar(image, ax=ax, label="correlation")
    for (i, j), value in np.ndenumerate(table.to_numpy()):
        if np.isfinite(value) and len(table) <= MOST:
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
    table = result.correlation
    if pairs is None:
        known = [n for n in table.index if np.isfinite(table.loc[n, n])]
        pairs = sorted(combinations(known, 2), key=lambda p: -abs(float(table.loc[p[0], p[1]])))[:6]
    if not pairs:
        raise ProblemError("No two unknowns of this result have standard errors; see its remarks.")
    drawn = axes_for(len(pairs), axes)
    units, values = {p.name: p.unit for p in result.estimates}, result.parameters
    for ax, (one, other) in zip(drawn, pairs, strict=True):
        edge = result.ellipse(one, other)
        ax.fill(edge[one], edge[other], color="tab:blue", alpha=0.25, linewidth=0)
        ax.plot(edge[one], edge[other], color="tab:blue")
        ax.plot(values[one], values[other], "k*")
        ax.set(xlabel=labelled(one, units[one]), ylabel=labelled(other, units[other]))
        ax.set_title(f"correlation {float(table.loc[one, other]):.3f}", fontsize="medium")
    return drawn


def plot_residuals(result: ResultData, axes: Any = None) -> Any:
    """Standardised residuals of each quantity over time, and all of them against the normal.

    result   of `igpe.estimate`
    axes     matplotlib axes, one per quantity of each experiment and one more; None makes a figure
    returns  array of axes; the last has the quantile-quantile plot
    """
    values, standard = standard_residuals(result.points, result.variance)
    drawn, shown = panels(result.points.assign(shown=values), axes, more=1)
    for panel in shown:
        times, residuals = panel.rows["time"], panel.rows["shown"]
        residual_panel(panel.axes, times, residuals, panel.name, standard=standard)
    values = np.sort(values[np.isfinite(values)])
    normal = special.ndtri((np.arange(len(values)) + 0.5) / len(values))
    spread = 1.0 if standard else float(np.sqrt(np.sum(values**2) / max(len(values), 1)))
    ax = drawn[-1]
    ax.plot(normal, values, "o", markersize=3, color="tab:blue")
    ax.plot(normal, spread * normal, color="black", linewidth=1)
    ax.set(xlabel="normal quantile", ylabel="residual" + " / standard deviation" * standard)
    return drawn
