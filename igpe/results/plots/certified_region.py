"""Plots of certified regions: intervals of all unknowns, and the paved plane of two."""

from typing import Any

import numpy as np

from igpe.results.plots.axes import BLUE, GREY, ORANGE, Plot, axes_for, labelled, legend_above

OUT, IN, EDGE = "#FBE5B5", "#BBDFF4", "white"
"""Tints of `COLOURS`: proved out, proved in, neither."""
ROOM = 0.25  # of an interval, beside it


def plot_certified_intervals(region: Any, axes: Any = None) -> Plot:
    """Outer and inner ends of each unknown's intervals, one line for each separate region.

    region  of `igpe.certify_region`
    axes    matplotlib axes, one for each unknown; None makes a figure
    """
    frame, names = region.to_frame(), region.unknowns
    drawn = axes_for(len(names), axes, (4.2, 1.3 + 0.25 * len(region.regions)))
    for j, (ax, name) in enumerate(zip(drawn, names, strict=True)):
        own = frame[frame["name"] == name]
        for row in own.itertuples():
            y, at = -row.region, region.regions[row.region - 1].parameters[j]
            outer = {"color": ORANGE, "linewidth": 3, "solid_capstyle": "butt"}
            inner = {"color": BLUE, "linewidth": 7, "solid_capstyle": "butt"}
            ax.plot((row.outer_lower, row.outer_upper), (y, y), **outer, label="may belong to it")
            ax.plot((row.inner_lower, row.inner_upper), (y, y), **inner, label="proved ends within")
            ax.plot(at, y, "k*", label="best parameters")
        low, high = own["outer_lower"].min(), own["outer_upper"].max()
        room = ROOM * (high - low or abs(high) or 1.0)
        ax.set(xlabel=labelled(name), xlim=(low - room, high + room), yticks=[])
        ax.set_ylim(-len(region.regions) - 0.7, -0.3)
        for end in (region.lower[j], region.upper[j]):
            ax.axvline(end, color=GREY, linestyle=":", label="bound")
    legend_above(drawn, axes)
    return Plot(drawn)


def plot_paving(paving: Any, axes: Any = None, profiles: Any = None) -> Plot:
    """The plane of two unknowns: proved in, proved out, linearised ellipse, best parameters.

    paving    of `igpe.proofs.pave`
    axes      matplotlib axes; None makes a figure
    profiles  of `igpe.profile`: their paths are drawn as well
    """
    from matplotlib.collections import PatchCollection  # noqa: PLC0415 - slow to import
    from matplotlib.patches import Patch, Rectangle  # noqa: PLC0415

    ax = axes_for(1, axes, (6.0, 4.5))[0]
    handles: dict[str, Any] = {}
    looks = (("out", OUT, "proved out"), ("in", IN, "proved in"), ("edge", EDGE, "not decided"))
    for kind, face, words in looks:
        ends = zip(paving.lower, paving.upper, paving.kinds, strict=True)
        mine = [Rectangle(tuple(a), *(b - a)) for a, b, k in ends if k == kind]
        drawn = PatchCollection(mine, facecolor=face, edgecolor=GREY, linewidth=0.2)
        ax.add_collection(drawn)
        handles[words] = Patch(facecolor=face, edgecolor=GREY)
    for ellipse in paving.ellipses:
        (handles["linearised"],) = ax.plot(*ellipse.T, "--", color="black", linewidth=1)
    for point in paving.best:
        (handles["best parameters"],) = ax.plot(*point, "k*", markersize=9)
    for one in profiles.profiles if profiles is not None else ():
        at = [profiles.names.index(n) for n in paving.names]
        (handles["profile"],) = ax.plot(*one.others[:, at].T, color=BLUE, linewidth=1.2)
    low, high = np.min(paving.lower, axis=0), np.max(paving.upper, axis=0)
    for axis, name, a, b in zip("xy", paving.names, low, high, strict=True):
        ax.set(**{f"{axis}lim": (a, b), f"{axis}label": labelled(name)})
    legend_above([ax], axes, handles)
    return Plot([ax])
