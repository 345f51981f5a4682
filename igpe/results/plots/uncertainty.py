"""Pictures of uncertainty. Every function takes axes or makes them, and returns them."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from igpe.core.escaping import label as escaped
from igpe.results.plots.axes import axes_for, labelled

if TYPE_CHECKING:
    from igpe.uncertainty.bootstrapped import Bootstrapped
    from igpe.uncertainty.prediction import Prediction
    from igpe.uncertainty.profiles import ParameterProfile, Profiles
    from igpe.uncertainty.region import Region


def plot_profiles(found: "Profiles", axes: Any = None) -> Any:
    """Rise of the least sum of squares over each unknown, in units of the level.

    Solid: the profile, dashed: what linearised errors assume, dotted: the level of confidence.
    axes     matplotlib axes, one per profile; None makes a figure
    returns  array of axes
    """
    drawn = axes_for(len(found.profiles), axes)
    for ax, one in zip(drawn, found.profiles, strict=True):
        _profile(ax, one, found)
        ax.set_xlabel(labelled(one.name, one.unit))
    if len(drawn):
        drawn[0].set_ylabel("rise of squares / allowed")
        drawn[0].legend(fontsize="small", loc="upper center")
    return drawn


def _profile(ax: Any, one: "ParameterProfile", found: "Profiles") -> None:
    rise = (one.costs - found.objective) / found.rise
    grid = np.linspace(one.values[0], one.values[-1], 200)
    ax.plot(grid, _smooth(one.values, rise, one.estimate, grid), color="tab:blue", label="profile")
    ax.plot(one.values, rise, "o", markersize=3, color="tab:blue")
    half = (found.linearised[one.name][1] - found.linearised[one.name][0]) / 2
    if np.isfinite(half) and half > 0:
        parabola = ((grid - one.estimate) / half) ** 2
        ax.plot(grid, parabola, "--", color="tab:gray", label="linearised")
    percent = f"{100 * found.confidence:g} %"
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


def plot_bootstrap(found: "Bootstrapped", axes: Any = None) -> Any:
    """A histogram of the refits of each unknown, with its estimate and interval.

    axes     matplotlib axes, one per unknown; None makes a figure
    returns  array of axes
    """
    table, told = found.parameters, found.to_frame()
    drawn = axes_for(len(found.estimate), axes)
    for ax, (name, value) in zip(drawn, found.estimate.items(), strict=True):
        ax.hist(table[name], bins="auto", color="tab:blue", alpha=0.6)
        ax.axvline(value, color="black", label="estimate")
        for end in ("lower", "upper"):
            label = f"{100 * found.confidence:g} %" if end == "lower" else None
            ax.axvline(told.loc[name, end], color="black", linestyle=":", label=label)
        ax.set_xlabel(labelled(name, found.units[name]))
    if len(drawn):
        drawn[0].set_ylabel("refits")
        drawn[0].legend(fontsize="small")
    return drawn


def plot_prediction(found: "Prediction", axes: Any = None) -> Any:
    """The mean with its band and that of a measurement, and the measurements themselves.

    axes     matplotlib axes, one per quantity of each experiment; None makes a figure
    returns  array of axes
    """
    groups = list(found.table.groupby(["experiment", "name"], sort=False))
    several = found.table["experiment"].nunique() > 1
    drawn = axes_for(len(groups), axes)
    percent = f"{100 * found.confidence:g} %"
    for ax, ((experiment, name), t) in zip(drawn, groups, strict=True):
        wide = {"color": "tab:gray", "alpha": 0.25, "linewidth": 0}
        ax.fill_between(
            t["time"], t["band_lower"], t["band_upper"], label=f"measurement, {percent}", **wide
        )
        narrow = {"color": "tab:blue", "alpha": 0.35, "linewidth": 0}
        ax.fill_between(t["time"], t["lower"], t["upper"], label=f"mean, {percent}", **narrow)
        ax.plot(t["time"], t["value"], color="tab:blue", label="fitted model")
        here = (found.measured["experiment"] == experiment) & (found.measured["name"] == name)
        ax.plot(
            *found.measured.loc[here, ["time", "measured"]].to_numpy().T,
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


def plot_region(found: "Region", axes: Any = None) -> Any:
    """The region by the likelihood ratio, the linearised ellipse and the estimate.

    axes     matplotlib axes; None makes a figure
    returns  the axes
    """
    ax = axes_for(1, axes)[0]
    one, other = found.names
    ax.fill(found.edge[one], found.edge[other], color="tab:blue", alpha=0.25, linewidth=0)
    label = f"likelihood ratio, {100 * found.confidence:g} %"
    ax.plot(found.edge[one], found.edge[other], color="tab:blue", label=label)
    ax.plot(
        found.linearised[one], found.linearised[other], "--", color="tab:gray", label="linearised"
    )
    ax.plot(*found.estimate, "k*")
    ax.set_xlabel(labelled(one, found.units[0]))
    ax.set_ylabel(labelled(other, found.units[1]))
    ax.legend(fontsize="small")
    return ax
