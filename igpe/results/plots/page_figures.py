"""Figures of a report: SVG of fixed content in the page's colours, light or dark."""

import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import partial
from html import escape
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.markup import folded
from igpe.results.plots.axes import PANEL, labelled
from igpe.results.plots.fit import BAND, draw_fit, residual_panel

PAGE = {
    "paper": ("#ffffff", "#14171a"),
    "ink": ("#1b1f23", "#e8e6e3"),
    "muted": ("#57606a", "#a9b1ba"),
    "line": ("#d0d7de", "#3a4148"),
    "shade": ("#f3f5f7", "#1e2328"),
    "link": ("#0b5cad", "#8ab8ff"),
    "blue": ("#1f6fb4", "#6cb6ff"),
    "orange": ("#b65a00", "#ffab5e"),
}
"""Name -> its colour in light and in dark."""
LIGHT, DARK = ({name: pair[k] for name, pair in PAGE.items()} for k in (0, 1))
DRAWN = {"#ffffff": "paper", "#000000": "ink", "#7f7f7f": "muted", "#1f77b4": "blue"}
DRAWN |= {"#ff7f0e": "orange", "#0072b2": "blue", "#e69f00": "orange"}
"""What matplotlib draws -> its name here."""


def variables() -> str:
    """CSS that gives the names their colours; what is printed is light."""
    light, dark = (
        ":root { " + " ".join(f"--{name}: {colour};" for name, colour in some.items()) + " }"
        for some in (LIGHT, DARK)
    )
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n"


SHOWN = 12  # pictures of one kind; the others are folded
STYLE = {
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "igpe",  # the same names in every run
    "axes.spines.top": False,
    "axes.spines.right": False,
}
Draw = Callable[[Any], None]
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


class Panel(NamedTuple):
    """A measured quantity of one experiment: its rows of `Result.points` and `Result.curves`."""

    title: str
    points: pd.DataFrame
    curves: pd.DataFrame


def panels(points: pd.DataFrame, curves: pd.DataFrame) -> list[Panel]:
    """All of them, in their order."""
    several = points["experiment"].nunique() > 1
    return [
        Panel(f"{name}, experiment {experiment}" if several else str(name), rows, line)
        for (experiment, name), rows in points.groupby(["experiment", "name"], sort=False)
        for line in [curves[(curves["experiment"] == experiment) & (curves["name"] == name)]]
    ]


def fits(shown: Iterable[Panel]) -> str:
    """Measurements and the fitted model."""
    return gallery(
        figure(one.title, _fit_words(one), partial(_fit, one, "smoothed")) for one in shown
    )


def smoothed(shown: Iterable[Panel]) -> str:
    """Measurements and the smoothed curve with its band, where there is one."""
    return gallery(
        figure(
            one.title,
            f"{_measured(one)} and the smoothed curve from {_span(one.curves['smoothed'])} with "
            f"its band; standard error {_span(one.curves['smoothed_error'])}.",
            partial(_fit, one, "fitted"),
        )
        for one in shown
        if one.curves["smoothed"].notna().any()
    )


def residuals(shown: Iterable[Panel], *, standard: bool) -> str:
    """Residuals over time; `standard` whether they are in standard deviations."""
    drawn = []
    for title, points, _ in shown:
        values, times = points["residual"], points["time"]
        words = f"{len(values)} residuals of {title} over time, from {_span(values)}"
        beyond = int(np.sum(np.abs(values) > BAND))
        words += f" standard deviations; {beyond} of them beyond {BAND}" * standard
        draw = partial(residual_panel, times=times, values=values, standard=standard)
        if np.isfinite(values).any():
            drawn.append(figure(title, f"{words}.", draw))
    return gallery(drawn)


def figure(title: str, words: str, draw: Draw, size: tuple[float, float] = PANEL) -> str:
    """One picture under its title.

    words  say what it shows to those who do not see it
    draw   draws on matplotlib axes
    size   width and height in inches
    """
    encoded = b64encode(svg(draw, size).encode()).decode("ascii")
    width, height = (round(100 * inches) for inches in size)
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<img src="data:image/svg+xml;base64,{encoded}" alt="{escape(words)}" '
        f'width="{width}" height="{height}"></figure>'
    )


def gallery(figures: Iterable[str], *, in_grid: bool = True) -> str:
    """Pictures side by side, or below each other; those beyond the first dozen are folded."""
    drawn = list(figures)
    frame = '<div class="pictures">{}</div>' if in_grid else "{}"
    first, rest = (frame.format("".join(some)) for some in (drawn[:SHOWN], drawn[SHOWN:]))
    more = folded(f"{len(drawn) - SHOWN} more pictures", rest) if len(drawn) > SHOWN else ""
    return first + more if drawn else ""


def svg(draw: Draw, size: tuple[float, float] = PANEL) -> str:
    """What `draw` draws, as SVG that knows light and dark and has a ground of its own."""
    import matplotlib.style  # noqa: PLC0415 - slow to import, not needed without pictures
    from matplotlib.figure import Figure  # noqa: PLC0415

    written = StringIO()
    with matplotlib.style.context(["default", STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # browsers have other fonts
        drawn = Figure(figsize=size, layout="constrained")
        draw(drawn.subplots())
        drawn.savefig(written, format="svg", metadata=NO_METADATA)
    text = written.getvalue()
    for colour, name in DRAWN.items():
        text = text.replace(f": {colour}", f": var(--{name}, {colour})")
    # The root's fill is that of texts and of all that names none.
    style = f'<style type="text/css">{variables()}svg {{ fill: var(--ink); }} '
    return text[text.index("<svg") :].replace('<style type="text/css">', style, 1)


def _fit(one: Panel, without: str, ax: Any) -> None:
    draw_fit(ax, one.points, one.curves.assign(**{without: np.nan}))
    ax.set_ylabel(labelled(one.points["name"].iloc[0], one.points["unit"].iloc[0]))


def _span(values: Any) -> str:
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    return f"{known.min():.4g} to {known.max():.4g}" if len(known) else "no number"


def _measured(one: Panel) -> str:
    return f"Over time {_span(one.points['time'])}: {len(one.points)} measurements of {one.title}"


def _fit_words(one: Panel) -> str:
    off = np.sqrt(np.mean(np.square(one.points["residual"].to_numpy(dtype=float))))
    miss = f"{off:.3g}" if np.isfinite(off) else "unknown"
    return (
        f"{_measured(one)} from {_span(one.points['measured'])}, and the fitted model from "
        f"{_span(one.curves['fitted'])}; root mean square residual {miss}."
    )
