"""The boxes of a proof as a picture: what was ruled out, how, and what is left."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from igpe.core.errors import ProblemError
from igpe.core.markup import label as escaped
from igpe.results.plots.axes import axes_for, colour

PAIR = 2
LOOKS: Mapping[str, tuple[str, str, str]] = {
    "bound": (colour(5), "", "ruled out by its bound"),
    "contracted": (colour(1), "", "cut off: only the box within may be better"),
    "open": ("white", "///", "not decided"),
}
"""Reason -> colour, hatching, words."""


class Box(NamedTuple):
    """One box of the tree: its bounds (n,), and what became of it, as in `LOOKS`."""

    lower: Sequence[float]
    upper: Sequence[float]
    reason: str


def plot_boxes(
    boxes: Sequence[Box],
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


def _draw(ax: Any, box: Box, *, first: bool) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - slow to import

    face, hatch, words = LOOKS[box.reason]
    (left, below), (right, above) = box.lower, box.upper
    ax.add_patch(
        Rectangle(
            (left, below), right - left, above - below, facecolor=face, hatch=hatch,
            edgecolor="black", linewidth=0.3, label=words if first else None,
        )
    )  # fmt: skip
