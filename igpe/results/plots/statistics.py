"""Pictures of a result's statistics for a report. They take axes or make them, and return them."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy import special

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.markup import label as escaped
from igpe.results.plots.axes import axes_for, labelled
from igpe.results.plots.fit import residual_panel
from igpe.results.residual_table import standard_residuals
from igpe.results.result import Result

MOST = 12  # unknowns whose correlations are written as numbers


def plot_correlation(result: Result, axes: Any = None) -> Any:
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
    result: Result, pairs: Sequence[tuple[str, str]] | None = None, axes: Any = None
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
    units, values = result.to_frame()["unit"], result.parameters
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


def _place(result: Result, one: str, other: str) -> tuple[int, int]:
    names = list(result.correlation.index)
    return names.index(one), names.index(other)


def _strongest(result: Result) -> list[tuple[str, str]]:
    table = result.correlation.abs()
    known = [n for n in table.index if np.isfinite(table.loc[n, n])]
    pairs = sorted(combinations(known, 2), key=lambda p: -float(table.loc[p[0], p[1]]))
    return pairs[:6]


def plot_residuals(result: Result, axes: Any = None) -> Any:
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
