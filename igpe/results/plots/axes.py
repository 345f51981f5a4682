"""Figures, axes, labels and colours of all plots; plots of certified regions.

These are intervals of all unknowns, and the paved plane of two.
"""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.errors import DataError, ProblemError
from igpe.core.files import write
from igpe.core.markup import counted, label

MARKERS = "os^Dv"
LINES = ("-", "--", "-.", ":")
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Told apart by the colour-blind too (Okabe & Ito, Color Universal Design, 2008)."""
BLUE, ORANGE = COLOURS[:2]
GREY = "#7F7F7F"
PANEL = (4.2, 3.2)  # inches
LAYOUTS = ((12, 3, PANEL), (24, 4, (3.5, 2.7)), (10**9, 5, (3.1, 2.5)))
"""Up to how many panels -> how many side by side, and their size in inches."""
LETTERS, LINES_OF_LABEL = 24, 2  # that stand beside a panel
LETTER, LINE = 0.075, 0.18  # inches: width of a letter and height of a line in a legend
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-3, 5),  # larger powers stand once above the axis
    "font.size": 9.0,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "lines.markersize": 4.0,
}
AUTHORS = {"png": "Software", "pdf": "Creator", "svg": "Creator", "eps": "Creator", "ps": "Creator"}
DOTS = 200  # per inch
FEW = 20  # boxes that are counted on a linear scale


class Plot:
    """A figure with its axes. Notebooks show the figure; `save` writes it to a file.

    axes    array of matplotlib axes; `plot[0]` is the first of them
    figure  matplotlib figure that contains all axes
    """

    def __init__(self, axes: Any) -> None:
        self.axes = np.atleast_1d(np.asarray(axes, dtype=object))
        self.figure = self.axes.flat[0].figure

    def __getitem__(self, place: Any) -> Any:
        return self.axes[place]

    def __len__(self) -> int:
        return len(self.axes)

    def save(self, path: str | Path) -> None:
        """Write the figure to a file; the file extension selects the format: .png, .pdf or .svg.

        raises  DataError if `path` is an existing file that igpe did not write, or if matplotlib
                does not support its file extension
        """
        kind = Path(path).suffix.lower()[1:] or "png"
        if kind not in (known := self.figure.canvas.get_supported_filetypes()):
            raise DataError(
                f"'{path}' ends in .{kind}, which is not an image format. Give a path that "
                f"ends in one of {', '.join(f'.{k}' for k in sorted(known))}."
            )
        write(path, self._drawn(kind))

    def _drawn(self, kind: str) -> bytes:
        import matplotlib as mpl  # noqa: PLC0415 - slow to import, not needed without pictures

        content = BytesIO()
        author = {AUTHORS[kind]: "igpe"} if kind in AUTHORS else None
        with mpl.rc_context({"text.usetex": False}):  # names may hold what TeX takes for commands
            self.figure.savefig(content, format=kind, dpi=DOTS, metadata=author)
        return content.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        import matplotlib.pyplot as plt  # noqa: PLC0415

        drawn = self._drawn("png")
        width, height = (round(DOTS / 2 * inches) for inches in self.figure.get_size_inches())
        if "inline" in plt.get_backend():  # it would show the figure once more
            plt.close(self.figure)
        return drawn, {"width": width, "height": height}

    def __repr__(self) -> str:
        names = [ax.get_ylabel() or ax.get_xlabel() or ax.get_title() for ax in self.axes.flat]
        named = ", ".join(dict.fromkeys(" ".join(n.split()) for n in names if n))
        count = counted(self.axes.size, "panel") + f": {named}" * bool(named)
        return f"Plot of {count}. Write it with .save('plot.png')."


class Panel(NamedTuple):
    """Axes for one quantity, with its rows of the table."""

    axes: Any
    name: str
    rows: pd.DataFrame

    def of(self, other: pd.DataFrame) -> pd.DataFrame:
        """The rows of another table about the same quantity."""
        return other[other["name"] == self.name]


class Look(NamedTuple):
    """How an experiment is drawn: its own colour, mark and line."""

    color: str
    marker: str
    line: str


def axes_for(
    count: int,
    axes: Any,
    size: tuple[float, float] | None = None,
    *,
    columns: int = 0,
    sharex: Any = False,
    sharey: Any = False,
    strips: bool = False,
) -> Any:
    """Return the requested number of axes: the given axes, or those of a new figure.

    size     of one panel of a new figure, in inches;  columns: panels side by side at most; both
             follow from the number of panels if they are left out
    sharex, sharey  as matplotlib has them
    strips   a strip below each panel: as many axes again, after all panels
    raises   ProblemError for another number of axes
    """
    if axes is not None:
        given = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
        if len(given) != (needed := count * (1 + strips)):
            raise ProblemError(
                f"This plot needs {needed} axes; got {len(given)}. Pass this number of axes, "
                "or axes=None for a new figure."
            )
        return given
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, not needed without pictures
    import matplotlib.pyplot as plt  # noqa: PLC0415

    _, most, usual = next(layout for layout in LAYOUTS if count <= layout[0])
    width, height = size or usual
    columns = min(columns or (2 if count == 4 else most), max(count, 1))  # noqa: PLR2004 - square
    rows = max(-(-count // columns), 1)
    with mpl.rc_context(STYLE):
        shape = (width * columns, height * rows * (1.35 if strips else 1.0))
        figure = plt.figure(figsize=shape, layout="constrained")
        if strips:
            cells = figure.add_gridspec(rows, columns)
            pairs = [
                cells[divmod(k, columns)]
                .subgridspec(2, 1, height_ratios=(3, 1))
                .subplots(sharex=True)
                for k in range(count)
            ]
            drawn = np.array(pairs, dtype=object).T.ravel()
        else:
            drawn = figure.subplots(
                rows, columns, squeeze=False, sharex=sharex, sharey=sharey
            ).ravel()
        for ax in drawn:
            number_ticks(ax, max(int(1.2 * width), 3))
        interactive = mpl.is_interactive()
    mpl.interactive(interactive)  # a notebook's first figure switches it on
    for spare in drawn[count:] if not strips else ():
        spare.set_visible(False)
    return drawn if strips else drawn[:count]


def panels(
    table: pd.DataFrame, axes: Any, *, more: int = 0, strips: bool = False, time_unit: str = ""
) -> tuple[Any, list[Panel]]:
    """Axes over time for each quantity, and `more`, or a strip for each; and what they show."""
    groups = list(table.groupby("name", sort=False))
    drawn = axes_for(len(groups) + more, axes, strips=strips)
    shown = []
    own = drawn[: len(groups)] if strips else drawn[: len(drawn) - more]
    for ax, (name, rows) in zip(own, groups, strict=True):
        unit = rows["unit"].iloc[0] if "unit" in rows else ""
        ax.set(xlabel=labelled("time", time_unit), ylabel=labelled(str(name), unit))
        shown.append(Panel(ax, str(name), rows))
    return drawn, shown


def labelled(name: str, unit: str = "") -> str:
    """Return the label of an axis, with the unit in brackets, if any; $ starts no formula."""
    lines = wrap(f"{name} [{unit}]" if unit else name, LETTERS, break_on_hyphens=False)
    if len(lines) > LINES_OF_LABEL:
        last = f"[{unit}]" if len(unit) < LETTERS // 2 and unit else ""
        lines[LINES_OF_LABEL - 1 :] = [
            f"{lines[LINES_OF_LABEL - 1][: LETTERS - 2 - len(last)]}… {last}"
        ]
    return label("\n".join(lines).strip())


def colour(number: int) -> str:
    """Return the colour of a line by its number, from 0 on; colours repeat."""
    return COLOURS[number % len(COLOURS)]


def looks(names: Iterable[Any]) -> dict[str, Look]:
    """Experiment, or whatever shares a panel -> its look; 140 of them differ."""
    return {
        str(name): Look(colour(k), MARKERS[k % len(MARKERS)], LINES[k // len(COLOURS) % len(LINES)])
        for k, name in enumerate(dict.fromkeys(names))
    }


def legend_above(
    drawn: Any, axes: Any, handles: Mapping[str, Any] | None = None, *, title: str = ""
) -> None:
    """A legend over all panels of a new figure, where it hides nothing; else in the first axes.

    handles  words -> what is drawn; None: all that has a label
    """
    first = np.ravel(drawn)[0]
    if handles is None:
        labelled_ones = (ax.get_legend_handles_labels() for ax in np.ravel(drawn))
        handles = {words: h for pair in labelled_ones for h, words in zip(*pair, strict=True)}
    if not handles:
        return
    if axes is not None:
        first.legend(handles.values(), handles.keys(), fontsize="small", title=title or None)
        return
    widths = [LETTER * len(words) + 0.6 for words in handles]
    width, height = first.figure.get_size_inches()
    splits = (np.array_split(widths, n) for n in range(len(widths), 1, -1))  # as matplotlib does
    columns = next((len(s) for s in splits if sum(map(np.max, s)) < width), 1)
    first.figure.set_figheight(height + LINE * (-(-len(widths) // columns) - 1))
    look = {"loc": "outside upper center", "ncols": columns, "frameon": False, "fontsize": 9}
    first.figure.legend(handles.values(), handles.keys(), title=title or None, **look)


LOOKS: Mapping[str, tuple[str, str, str]] = {
    "bound": ("#BBDFF4", "", "ruled out by its bound"),
    "contracted": ("#FBE5B5", "", "contracted: only the inner box can contain better values"),
    "open": ("white", "///", "not decided"),
}
"""Reason -> colour (tints of `COLOURS`), hatching, words."""


def plot_bounds(certificate: Any, axes: Any = None) -> Plot:
    """Draw the proven lower bound over the number of boxes, and the least sum of squares.

    The boxes count in the order of their bounds, the least first, as a search would take them.

    axes  matplotlib axes; None: draw in a new figure
    """
    tree = certificate.tree
    waiting, decided, lower = [(tree[0].bound, 0)], np.inf, []
    while waiting:
        bound, place = heappop(waiting)
        lower.append(min(bound, decided))
        box = tree[place]
        for child in box.children:
            heappush(waiting, (max(bound, tree[child].bound), child))
        if box.reason == "contracted":
            decided = min(decided, max(bound, certificate.cut))
        elif not box.children:
            decided = min(decided, bound)
    ax = axes_for(1, axes, (5.5, 3.5))[0]
    places = np.arange(1, len(lower) + 1)
    ax.axhline(
        certificate.objective, color="black", linestyle="--", label="smallest sum of squares"
    )
    ax.plot(places, lower, color=BLUE, drawstyle="steps-post", label="proven lower bound")
    ax.fill_between(places, lower, certificate.objective, step="post", color=GREY, alpha=0.15)
    ax.set(xlabel="boxes", ylabel="sum of squares", xlim=(1, max(len(lower), 2)))
    if len(lower) > FEW:
        ax.set_xscale("log")
    legend_above([ax], axes)
    return Plot([ax])


def plot_boxes(certificate: Any, axes: Any = None) -> Plot:
    """Draw every box of a certificate over the plane of its two unknowns, and the best parameters.

    axes  matplotlib axes; None: draw in a new figure
    """
    unknowns = certificate.unknowns
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
    legend_above([ax], axes)
    return Plot([ax])


OUT, IN, EDGE = "#FBE5B5", "#BBDFF4", "white"
"""Tints of `COLOURS`: proved out, proved in, neither."""
ROOM = 0.25  # of an interval, beside it


def plot_certified_intervals(region: Any, axes: Any = None) -> Plot:
    """Outer and inner endpoints of each unknown's intervals, one line for each separate region.

    region  of `igpe.certify_region`
    axes    matplotlib axes, one for each unknown; None: draw in a new figure
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
    axes      matplotlib axes; None: draw in a new figure
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


def number_ticks(ax: Any, most: int) -> None:
    """Format the numbers of both axes as plain text; at most so many intervals on the horizontal.

    Mathematical text takes a hundred times longer to lay out: more than half of a report's time.
    """
    from matplotlib.ticker import ScalarFormatter  # noqa: PLC0415 - slow to import

    class PlainNumbers(ScalarFormatter):
        """Only the power of ten above the axis is mathematical text."""

        def __init__(self) -> None:
            super().__init__(useMathText=False)

        def get_offset(self) -> str:
            """Return the power of ten above the axis."""
            self.set_useMathText(True)
            try:
                return str(super().get_offset())
            finally:
                self.set_useMathText(False)

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PlainNumbers())
    ax.locator_params(axis="x", nbins=most)
