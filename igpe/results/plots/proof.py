"""The boxes of a proof as a picture: what was ruled out, how, and what is left."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from igpe.core.errors import ProblemError
from igpe.core.escaping import label as escaped
from igpe.results.plots.axes import axes_for, colour

if TYPE_CHECKING:  # the certificate draws itself with this file
    from igpe.results.dynamic_certificate import DynamicCertificate, TreeBox

PAIR = 2
LOOKS: Mapping[str, tuple[str, str, str]] = {
    "bound": (colour(5), "", "ruled out by its bound"),
    "contracted": (colour(1), "", "cut off: only the box within may be better"),
    "open": ("white", "///", "not decided"),
}
"""Reason -> colour, hatching, words."""


def plot_boxes(proof: "DynamicCertificate", axes: Any = None) -> Any:
    """Every box of the tree over the plane of the two unknowns, and the best parameters.

    proof    of a problem with two unknowns
    axes     matplotlib axes; None makes a figure
    returns  the axes
    raises   ProblemError for another number of unknowns
    """
    if len(proof.unknowns) != PAIR:
        raise ProblemError(
            f"The proof is of {len(proof.unknowns)} unknowns ({', '.join(proof.unknowns)}); boxes "
            "are drawn for two. See .remaining for a table, or hold others with problem.fixing."
        )
    ax = axes_for(1, axes, (6.0, 4.5))[0]
    seen: set[str] = set()
    for box in proof.tree:  # children come after what they lie in
        if box.reason in LOOKS:
            _draw(ax, box, first=box.reason not in seen)
            seen.add(box.reason)
    ax.plot(*proof.parameters, "*", color=colour(3), markersize=14, label="best parameters")
    ax.set_xlim(proof.lower[0], proof.upper[0])
    ax.set_ylim(proof.lower[1], proof.upper[1])
    ax.set_xlabel(escaped(proof.unknowns[0]))
    ax.set_ylabel(escaped(proof.unknowns[1]))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2, fontsize="small")
    return ax


def _draw(ax: Any, box: "TreeBox", *, first: bool) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - slow to import

    face, hatch, words = LOOKS[box.reason]
    (left, below), (right, above) = box.lower, box.upper
    ax.add_patch(
        Rectangle(
            (left, below), right - left, above - below, facecolor=face, hatch=hatch,
            edgecolor="black", linewidth=0.3, label=words if first else None,
        )
    )  # fmt: skip
