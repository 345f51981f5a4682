"""The picture of a structure map. It takes axes or makes them."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.markup import label as escaped
from igpe.results.plots.axes import BLUE, GREY, ORANGE, Plot, axes_for
from igpe.results.result_data import ALGEBRAIC, DYNAMIC, OVER, SQUARE, UNDER, MapPart, StructureMap

CELL, MOST = 0.2, 16.0  # inches: of a row or column, and of the whole picture at most
GAP = 1.0  # rows or columns between sections
HEAD = 1.6  # rows above the first equation's middle, for what kind the columns are
FONT, SMALLEST = 8.0, 4.0  # points; names that would be smaller are left out
DOTS = 1.2, 5.0  # points: least and largest marks
TITLE = 10.0  # points
LETTER = 0.6  # width of one, of its height
LONGEST = 26  # letters of a name
LEAST, LEGEND = 4.5, 1.3  # inches: width and height that the legend needs
FILLED = {
    OVER: (GREY, 0.3, "///"),
    SQUARE: (BLUE, 0.25, ""),
    UNDER: (ORANGE, 0.25, "\\\\\\"),
    DYNAMIC: (GREY, 0.12, ""),
}
"""Colour, strength and hatch: told apart without colour too."""
MARKS = {
    "estimated without the dynamics": (ALGEBRAIC, "o", BLUE, BLUE),
    "estimated from the dynamics": (("dynamic",), "o", ORANGE, "none"),
    "cannot be estimated": (("unreachable",), "x", "black", "black"),
}
"""How parameters are reached, and how they are marked."""


def plot_maps(maps: Sequence[StructureMap], axes: Any = None) -> Plot:
    """Each map in axes of its own, below each other in a new figure.

    axes     matplotlib axes, one per map; None: draw in a new figure
    """
    if axes is None:
        import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import

        widths, heights = zip(*map(size, maps), strict=True)
        figure = plt.figure(figsize=(max(widths), sum(heights)), layout="constrained")
        axes = figure.subplots(len(maps), 1, height_ratios=heights, squeeze=False)
    drawn = axes_for(len(maps), axes)
    for one, ax in zip(maps, drawn, strict=True):
        draw_map(one, ax)
        letters = int(72 * size(one)[0] / (LETTER * TITLE))
        ax.set_title(escaped(fill(one.title, letters)), fontsize=TITLE)
    return Plot(drawn)


def size(one: StructureMap) -> tuple[float, float]:
    """Width and height of a picture in inches that leaves every name readable, if any can."""
    places = _Places(one)
    beside, above = (
        LETTER * FONT * max((len(_shown(n)) for n in names), default=0) / 72 + 0.3
        for names in (places.rows, places.columns)
    )
    width = max(beside + CELL * places.width, LEAST)
    return min(width, MOST), min(above + CELL * places.height + LEGEND, MOST)


def draw_map(one: StructureMap, ax: Any) -> None:
    """The map in matplotlib axes."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - slow to import

    places = _Places(one)
    # Points of the smaller side of a cell, roughly: names take their share of the axes.
    width, height = ax.figure.get_size_inches() * ax.get_position().size
    cell = 72 * float(min(0.8 * width / places.width, 0.8 * height / places.height))
    dot = float(np.clip(0.5 * cell, *DOTS))
    shades = {part.sentence: _shade(ax, part, places) for part in one.parts}
    for row, column, n in one.blocks:
        corner, line = (column - 0.5, places.y[row] - 0.5), min(0.8, 0.1 * cell)
        ax.add_patch(Rectangle(corner, n, n, facecolor="none", edgecolor="black", linewidth=line))
    mark = {"linestyle": "none", "markersize": dot, "markeredgewidth": 0.9}
    for pairs, x, face in (
        (one.entries, np.arange(len(one.unknowns)), "black"),
        (one.known, places.measured, "none"),
    ):
        look = {"color": GREY if face == "none" else face, "markerfacecolor": face}
        if pairs:
            ax.plot([x[j] for _, j in pairs], [places.y[i] for i, _ in pairs], "s", **look | mark)
    uses = [(i, j) for i, j in one.uses]
    uses += [(len(one.equations) + k, j) for k, s in enumerate(one.sources) for j in s.parameters]
    for label, (kinds, marker, color, face) in MARKS.items():
        shown = [(i, j) for i, j in uses if one.reach[j] in kinds]
        if shown:
            at = [(places.parameters[j], places.y[i]) for i, j in shown]
            look = {"marker": marker, "color": color, "markerfacecolor": face}
            ax.plot(*np.array(at).T, label=label, **look, **mark)
    _names(ax, one, places, min(FONT, 0.75 * cell))
    for x in (places.measured, places.parameters):
        if len(x):
            ax.axvline(x[0] - 0.5 - GAP / 2, color=GREY, linewidth=0.6)
    ax.set(xlim=(-0.7, places.width - 0.3), ylim=(places.height - 0.5, -HEAD))
    marks, labels = ax.get_legend_handles_labels()
    ax.legend(
        [*shades.values(), *marks], [*shades, *labels], loc="upper left", fontsize="small",
        bbox_to_anchor=(0.0, -0.01), borderaxespad=0.2, frameon=False, markerscale=DOTS[1] / dot,
    )  # fmt: skip


class _Places:
    """Where rows and columns stand.

    y                     of the equations, then of the sources; rows: their names
    measured, parameters  x of their columns
    columns               names of all columns, from the left;  x: of all
    width, height         of all, in cells
    """

    def __init__(self, one: StructureMap) -> None:
        self.rows = (*one.equations, *(s.name for s in one.sources))
        self.y: FloatArray = np.arange(float(len(self.rows)))
        starts = [p.rows[0] for p in one.parts if p.kind == DYNAMIC and p.rows[0] > 0]
        for start in (*starts, *([len(one.equations)] if one.equations else [])):
            self.y[start:] += GAP
        end, self.x = float(len(one.unknowns)), np.arange(float(len(one.unknowns)))
        self.measured, self.parameters = np.empty(0), np.empty(0)
        for name in ("measured", "parameters"):
            x = end + (GAP if end else 0.0) + np.arange(float(len(getattr(one, name))))
            setattr(self, name, x)
            self.x, end = np.concatenate([self.x, x]), x[-1] + 1 if len(x) else end
        self.columns = (*one.unknowns, *one.measured, *one.parameters)
        self.width = float(self.x[-1] + 1) if len(self.x) else 1.0
        self.height = float(self.y[-1] + 1) if len(self.y) else 1.0


def _shade(ax: Any, part: MapPart, places: _Places) -> tuple[Any, ...]:
    """Shade its rows and columns, and return the patches.

    What is left to the dynamics has no columns, and all are shaded. A hatch is a patch of its own:
    in SVG the strength of a patch is that of its colour and hatch together.
    """
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - slow to import

    (top, bottom), (left, right) = part.rows, part.columns
    if part.kind == DYNAMIC:
        left, right = 0, int(places.width)
    color, alpha, hatch = FILLED[part.kind]
    first = places.y[top] if top < bottom else float(top)
    where = (left - 0.5, first - 0.5), right - left, bottom - top
    looks: list[dict[str, Any]] = [{"color": color, "alpha": alpha}]
    if hatch:
        looks.append({"facecolor": "none", "edgecolor": color, "alpha": 0.5, "hatch": hatch})
    return tuple(ax.add_patch(Rectangle(*where, linewidth=0.0, **look)) for look in looks)


def _names(ax: Any, one: StructureMap, places: _Places, font: float) -> None:
    """Of rows and columns; counts, where names would be too small to be read."""
    ax.tick_params(length=0)
    ax.xaxis.tick_top()
    ax.spines[:].set_visible(False)
    if font < SMALLEST:
        ax.set(xticks=[], yticks=[])
        rows, columns = len(one.equations), len(places.columns)
        ax.set_ylabel(f"{rows} equations: names omitted", fontsize="small")
        ax.set_xlabel(f"{columns} columns: names omitted", fontsize="small")
        ax.xaxis.set_label_position("top")
        return
    ax.set_xticks(places.x, [_shown(n) for n in places.columns], rotation=90, fontsize=font)
    ax.set_yticks(places.y, [_shown(n) for n in places.rows], fontsize=font)
    starts = {"unknown": places.x[: len(one.unknowns)], "measured": places.measured}
    for word, x in (starts | {"parameters": places.parameters}).items():
        if len(x):
            ax.text(x[0] - 0.5, -HEAD, word, fontsize=font, va="top", color=GREY)


def _shown(name: str) -> str:
    """A long name without its middle."""
    if len(name) <= LONGEST:
        return escaped(name)
    head = LONGEST // 2
    return escaped(f"{name[:head]}…{name[head + 1 - LONGEST :]}")
