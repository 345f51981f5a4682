"""Axes, labels and colours of all plots, and the boxes of a proof."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from igpe.core.errors import ProblemError
from igpe.core.markup import label
from igpe.core.markup import label as escaped

COLUMNS = 3  # panels side by side
PANEL = (4.2, 3.2)  # inches
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Told apart by the colour-blind too (Okabe & Ito, Color Universal Design, 2008)."""


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
    _, grid = plt.subplots(
        rows, columns, figsize=(size[0] * columns, size[1] * rows), squeeze=False,
        layout="constrained", sharey=sharey,
    )  # fmt: skip
    for spare in grid.ravel()[count:]:
        spare.set_visible(False)
    return np.asarray(grid.ravel()[:count])


def labelled(name: str, unit: str) -> str:
    """What an axis is labelled with: the unit in brackets, if there is one; $ is no formula."""
    return label(f"{name} [{unit}]" if unit else name)


def colour(number: int) -> str:
    """That of a line of that number, from 0 on; they come again."""
    return COLOURS[number % len(COLOURS)]


PAIR = 2
LOOKS: Mapping[str, tuple[str, str, str]] = {
    "bound": (colour(5), "", "ruled out by its bound"),
    "contracted": (colour(1), "", "cut off: only the box within may be better"),
    "open": ("white", "///", "not decided"),
}
"""Reason -> colour, hatching, words."""


class DrawnBox(NamedTuple):
    """One box of the tree: its bounds (n,), and what became of it, as in `LOOKS`."""

    lower: Sequence[float]
    upper: Sequence[float]
    reason: str


def plot_boxes(
    boxes: Sequence[DrawnBox],
    parameters: Sequence[float],
    axes: Any = None,
    *,
    unknowns: Sequence[str],
    lower: Sequence[float],
    upper: Sequence[float],
) -> Any:
    """Draw every box of the tree over the plane of the two unknowns, and the best parameters.

    boxes       of the proof's tree; children come after the box they lie in
    parameters  (n,) the best
    axes        matplotlib axes; None makes a figure
    unknowns    names (n,) of the two, within lower, upper (n,)
    returns     the axes
    raises      ProblemError for another number of unknowns
    """
    if len(unknowns) != PAIR:
        raise ProblemError(
            f"The proof is of {len(unknowns)} unknowns ({', '.join(unknowns)}); boxes are drawn "
            "for two. See .remaining for a table, or hold others with problem.fixing."
        )
    ax = axes_for(1, axes, (6.0, 4.5))[0]
    seen: set[str] = set()
    for box in boxes:
        if box.reason in LOOKS:
            _draw(ax, box, first=box.reason not in seen)
            seen.add(box.reason)
    ax.plot(*parameters, "*", color=colour(3), markersize=14, label="best parameters")
    ax.set_xlim(lower[0], upper[0])
    ax.set_ylim(lower[1], upper[1])
    ax.set_xlabel(escaped(unknowns[0]))
    ax.set_ylabel(escaped(unknowns[1]))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2, fontsize="small")
    return ax


def _draw(ax: Any, box: DrawnBox, *, first: bool) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - slow to import

    face, hatch, words = LOOKS[box.reason]
    (left, below), (right, above) = box.lower, box.upper
    ax.add_patch(
        Rectangle(
            (left, below), right - left, above - below, facecolor=face, hatch=hatch,
            edgecolor="black", linewidth=0.3, label=words if first else None,
        )
    )  # fmt: skip
