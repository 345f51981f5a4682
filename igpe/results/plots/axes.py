"""Axes, labels and colours of all plots, and the boxes of a proof."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.errors import ProblemError
from igpe.core.markup import label

MARKERS = "os^Dv"
COLUMNS = 3  # panels side by side
PANEL = (4.2, 3.2)  # inches
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Told apart by the colour-blind too (Okabe & Ito, Color Universal Design, 2008)."""


class Panel(NamedTuple):
    """Axes for one quantity of one experiment, with its rows of the table."""

    axes: Any
    experiment: str
    name: str
    rows: pd.DataFrame

    def of(self, other: pd.DataFrame) -> pd.DataFrame:
        """The rows of another table about the same."""
        return other[(other["experiment"] == self.experiment) & (other["name"] == self.name)]


def axes_for(
    count: int,
    axes: Any,
    size: tuple[float, float] = PANEL,
    *,
    columns: int = COLUMNS,
    sharey: Any = False,
) -> Any:
    """As many axes as requested: those given, or of a new figure.

    size     of one panel of a new figure, in inches
    columns  panels side by side at most;  sharey: as matplotlib's
    """
    if axes is not None:
        return np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import, not needed without pictures

    columns = min(columns, max(count, 1))
    rows = max(-(-count // columns), 1)
    figure = plt.figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for spare in grid[count:]:
        spare.set_visible(False)
    return grid[:count]


def panels(table: pd.DataFrame, axes: Any, more: int = 0) -> tuple[Any, list[Panel]]:
    """Axes over time for each quantity of each experiment, and `more`; and what they show."""
    groups = list(table.groupby(["experiment", "name"], sort=False))
    several = table["experiment"].nunique() > 1
    drawn = axes_for(len(groups) + more, axes)
    shown = []
    for ax, (key, rows) in zip(drawn[: len(drawn) - more], groups, strict=True):
        experiment, name = map(str, key)
        ax.set(xlabel="time", ylabel=labelled(name, rows["unit"].iloc[0]))
        if several:
            ax.set_title(label(f"experiment {experiment}"), fontsize="medium")
        shown.append(Panel(ax, experiment, name, rows))
    return drawn, shown


def labelled(name: str, unit: str) -> str:
    """What an axis is labelled with: the unit in brackets, if there is one; $ is no formula."""
    return label(f"{name} [{unit}]" if unit else name)


def colour(number: int) -> str:
    """That of a line of that number, from 0 on; they come again."""
    return COLOURS[number % len(COLOURS)]


LOOKS: Mapping[str, tuple[str, str, str]] = {
    "bound": (colour(5), "", "ruled out by its bound"),
    "contracted": (colour(1), "", "cut off: only the box within may be better"),
    "open": ("white", "///", "not decided"),
}
"""Reason -> colour, hatching, words."""


def plot_boxes(certificate: Any, axes: Any = None) -> Any:
    """Draw every box of a certificate over the plane of its two unknowns, and the best parameters.

    axes    matplotlib axes; None makes a figure
    raises  ProblemError for another number of unknowns
    """
    unknowns = certificate.unknowns
    if len(unknowns) != 2:  # noqa: PLR2004 - a plane
        raise ProblemError(
            f"The proof is of {len(unknowns)} unknowns ({', '.join(unknowns)}); boxes are drawn "
            "for two. See .remaining for a table, or hold others with problem.fixing."
        )
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - slow to import

    ax = axes_for(1, axes, (6.0, 4.5))[0]
    labels = {reason: words for reason, (_, _, words) in LOOKS.items()}
    for box in (b for b in certificate.tree if b.reason in LOOKS):  # children come after theirs
        face, hatch, _ = LOOKS[box.reason]
        (left, below), (right, above) = box.lower, box.upper
        ax.add_patch(
            Rectangle(
                (left, below), right - left, above - below, facecolor=face, hatch=hatch,
                edgecolor="black", linewidth=0.3, label=labels.pop(box.reason, None),
            )
        )  # fmt: skip
    best = certificate.parameters
    ax.plot(*best, "*", color=colour(3), markersize=14, label="best parameters")
    for axis, name, low, high in zip(
        "xy", unknowns, certificate.lower, certificate.upper, strict=True
    ):
        ax.set(**{f"{axis}lim": (low, high), f"{axis}label": label(name)})
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2, fontsize="small")
    return ax
