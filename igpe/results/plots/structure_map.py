"""The picture of a structure map. It takes axes or makes them, and returns them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.markup import label as escaped
from igpe.results.plots.axes import axes_for
from igpe.results.structure_map import (
    ALGEBRAIC,
    DYNAMIC,
    OVER,
    SQUARE,
    UNDER,
    MapPart,
    StructureMap,
)

CELL, MOST = 0.2, 16.0  # inches: of a row or column, and of the whole picture at most
GAP = 1.0  # rows or columns between sections
HEAD = 1.6  # rows above the first equation's middle, for what kind the columns are
FONT, SMALLEST = 8.0, 4.0  # points; names that would be smaller are left out
DOTS = 1.2, 5.0  # points: least and largest marks
LETTER = 0.6  # width of one, of its height
LONGEST = 26  # letters of a name
LEAST, LEGEND = 4.5, 1.3  # inches: width and height that the legend needs
FILLED = {
    OVER: ("tab:gray", 0.3, "///"),
    SQUARE: ("tab:blue", 0.25, ""),
    UNDER: ("tab:orange", 0.25, "\\\\\\"),
    DYNAMIC: ("tab:gray", 0.12, ""),
}
"""Colour, strength and hatch: told apart without colour too."""
MARKS = {
    "estimated without the dynamics": ("o", "tab:blue", "tab:blue"),
    "estimated on the dynamics": ("o", "tab:orange", "none"),
    "cannot be estimated": ("x", "black", "black"),
}


def plot_maps(maps: Sequence[StructureMap], axes: Any = None) -> Any:
    """Each map in axes of its own.

    axes     matplotlib axes, one per map; None makes a figure
    returns  array of axes
    """
    drawn = _stacked([size(one) for one in maps]) if axes is None else axes_for(len(maps), axes)
    for one, ax in zip(maps, drawn, strict=True):
        draw_map(one, ax)
        ax.set_title(escaped(one.title), fontsize="medium")
    return drawn


def _stacked(sizes: Sequence[tuple[float, float]]) -> Any:
    """Axes of these sizes below each other."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import, not needed without pictures

    widths, heights = zip(*sizes, strict=True)
    whole = max(widths), sum(heights)
    _, grid = plt.subplots(
        len(sizes), 1, figsize=whole, height_ratios=heights, squeeze=False, layout="constrained"
    )
    return grid.ravel()


def size(one: StructureMap) -> tuple[float, float]:
    """Width and height of a picture in inches that leaves every name readable, if any can."""
    places = _Places(one)
    names = (*one.equations, *(s.name for s in one.sources)), places.columns
    beside, above = (_inches(some) for some in names)
    width = max(beside + CELL * places.width, LEAST)
    return min(width, MOST), min(above + CELL * places.height + LEGEND, MOST)


def draw_map(one: StructureMap, ax: Any) -> None:
    """The map in matplotlib axes."""
    places = _Places(one)
    cell = _cell(ax, places)
    dot = float(np.clip(0.5 * cell, *DOTS))
    shades = {part.sentence: _shade(ax, part, places) for part in one.parts}
    for row, column, n in one.blocks:
        edge = {"facecolor": "none", "edgecolor": "black", "linewidth": min(0.8, 0.1 * cell)}
        ax.add_patch(_rectangle((column - 0.5, places.y[row] - 0.5), n, n, **edge))
    mark = {"linestyle": "none", "markersize": dot, "markeredgewidth": 0.9}
    _dots(ax, one.entries, lambda j: j, places, marker="s", color="black", **mark)
    known = {"marker": "s", "color": "tab:gray", "markerfacecolor": "none"}
    _dots(ax, one.known, lambda j: places.measured[j], places, **known, **mark)
    for label, pairs in _uses(one, places).items():
        marker, color, face = MARKS[label]
        found = {"marker": marker, "color": color, "markerfacecolor": face}
        ax.plot(*np.array(pairs).T, label=label, **found, **mark)
    _names(ax, one, places, min(FONT, 0.75 * cell))
    for x in (places.measured, places.parameters):
        if len(x):
            ax.axvline(x[0] - 0.5 - GAP / 2, color="tab:gray", linewidth=0.6)
    ax.set_xlim(-0.7, places.width - 0.3)
    ax.set_ylim(places.height - 0.5, -HEAD)
    marks, labels = ax.get_legend_handles_labels()
    ax.legend(
        [*shades.values(), *marks], [*shades, *labels], loc="upper left", fontsize="small",
        bbox_to_anchor=(0.0, -0.01), borderaxespad=0.2, frameon=False, markerscale=DOTS[1] / dot,
    )  # fmt: skip


class _Places:
    """Where rows and columns stand.

    y                     (rows,) of the equations;  sources: of what is estimated without dynamics
    measured, parameters  x of their columns
    columns               names of all columns, from the left
    width, height         of all, in cells
    """

    def __init__(self, one: StructureMap) -> None:
        rows = np.arange(float(len(one.equations)))
        for part in one.parts:
            if part.kind == DYNAMIC and part.rows[0] > 0:
                rows[part.rows[0] :] += GAP
        self.y: FloatArray = rows
        below = rows[-1] + 1 + GAP if len(rows) else 0.0
        self.sources = below + np.arange(float(len(one.sources)))
        self.measured = _behind(len(one.unknowns), len(one.measured))
        end = self.measured[-1] + 1 if len(self.measured) else float(len(one.unknowns))
        self.parameters = _behind(end, len(one.parameters))
        self.x = np.concatenate([np.arange(len(one.unknowns)), self.measured, self.parameters])
        self.columns = (*one.unknowns, *one.measured, *one.parameters)
        self.width = float(self.x[-1] + 1) if len(self.x) else 1.0
        last = [*rows, *self.sources]
        self.height = float(last[-1] + 1) if last else 1.0


def _behind(end: float, count: int) -> FloatArray:
    return end + (GAP if end else 0.0) + np.arange(float(count))


def _inches(names: Sequence[str]) -> float:
    letters = max((len(_shown(n)) for n in names), default=0)
    return LETTER * FONT * letters / 72 + 0.3


def _cell(ax: Any, places: _Places) -> float:
    """Points of the smaller side of a cell, roughly: names take their share of the axes."""
    width, height = ax.figure.get_size_inches() * ax.get_position().size
    return 72 * float(min(0.8 * width / places.width, 0.8 * height / places.height))


def _rectangle(corner: tuple[float, float], width: float, height: float, **look: Any) -> Any:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - slow to import

    return Rectangle(corner, width, height, **look)


def _shade(ax: Any, part: MapPart, places: _Places) -> tuple[Any, ...]:
    """Shade its rows and columns, and return the patches.

    What is left to the dynamics has no columns, and all are shaded. A hatch is a patch of its own:
    in SVG the strength of a patch is that of its colour and hatch together.
    """
    (top, bottom), (left, right) = part.rows, part.columns
    if part.kind == DYNAMIC:
        left, right = 0, int(places.width)
    color, alpha, hatch = FILLED[part.kind]
    first = places.y[top] if top < bottom else float(top)
    where = (left - 0.5, first - 0.5), right - left, bottom - top
    shade = _rectangle(*where, color=color, alpha=alpha, linewidth=0.0)
    lines = _rectangle(
        *where, facecolor="none", edgecolor=color, alpha=0.5, linewidth=0.0, hatch=hatch
    )
    return tuple(ax.add_patch(one) for one in ((shade, lines) if hatch else (shade,)))


def _dots(
    ax: Any,
    pairs: Sequence[tuple[int, int]],
    x: Callable[[int], float],
    places: _Places,
    **look: Any,
) -> None:
    if pairs:
        ax.plot([x(j) for _, j in pairs], [places.y[i] for i, _ in pairs], **look)


def _uses(one: StructureMap, places: _Places) -> dict[str, list[tuple[float, float]]]:
    """Label of a mark -> (x, y) of where it stands."""
    pairs = [(places.parameters[j], places.y[i], j) for i, j in one.uses]
    for source, y in zip(one.sources, places.sources, strict=True):
        pairs += [(places.parameters[j], y, j) for j in source.parameters]
    found: dict[str, list[tuple[float, float]]] = {}
    for x, y, j in pairs:
        found.setdefault(_label(one.reach[j]), []).append((x, y))
    return {label: found[label] for label in MARKS if label in found}


def _label(reach: str) -> str:
    without, on, cannot = MARKS
    if reach in ALGEBRAIC:
        return without
    return cannot if reach == "unreachable" else on


def _names(ax: Any, one: StructureMap, places: _Places, font: float) -> None:
    """Of rows and columns; counts, where names would be too small to be read."""
    ax.tick_params(length=0)
    ax.xaxis.tick_top()
    ax.spines[:].set_visible(False)
    if font < SMALLEST:
        ax.set_xticks([])
        ax.set_yticks([])
        rows, columns = len(one.equations), len(places.columns)
        ax.set_ylabel(f"{rows} equations: names left out", fontsize="small")
        ax.set_xlabel(f"{columns} columns: names left out", fontsize="small")
        ax.xaxis.set_label_position("top")
        return
    ax.set_xticks(places.x, [_shown(n) for n in places.columns], rotation=90, fontsize=font)
    names = (*one.equations, *(s.name for s in one.sources))
    ax.set_yticks([*places.y, *places.sources], [_shown(n) for n in names], fontsize=font)
    groups = (
        (one.unknowns, places.x[:1], "unknown"),
        (one.measured, places.measured, "measured"),
        (one.parameters, places.parameters, "parameters"),
    )
    for some, x, word in groups:
        if some:
            ax.text(x[0] - 0.5, -HEAD, word, fontsize=font, va="top", color="tab:gray")


def _shown(name: str) -> str:
    """A long name without its middle."""
    if len(name) <= LONGEST:
        return escaped(name)
    head = LONGEST // 2
    return escaped(f"{name[:head]}…{name[head + 1 - LONGEST :]}")
