"""Figures of a report: SVG of fixed content in the page's colours, light or dark."""

import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.markup import folded
from igpe.results.plots.axes import COLOURS, GREY, PANEL, STYLE, Look, labelled, looks
from igpe.results.plots.fit import BAND, draw_fit, draw_residuals

PAGE = {
    "paper": ("#ffffff", "#14171a"),
    "ink": ("#1b1f23", "#e8e6e3"),
    "muted": ("#57606a", "#a9b1ba"),
    "line": ("#d0d7de", "#3a4148"),
    "shade": ("#f3f5f7", "#1e2328"),
    "link": ("#0b5cad", "#8ab8ff"),
    "blue": ("#0072b2", "#56b4ff"),
    "orange": ("#a07000", "#ffb84d"),
    "green": ("#00805d", "#3ecf9e"),
    "red": ("#d04f00", "#ff8a4c"),
    "purple": ("#b55a8e", "#e6a3cb"),
    "sky": ("#2e8bc0", "#a8dcf7"),
}
"""Name -> its colour in light and in dark; `COLOURS`, with the contrast that pages need."""
LIGHT, DARK = ({name: pair[k] for name, pair in PAGE.items()} for k in (0, 1))
NAMES = ("blue", "orange", "green", "red", "purple", "sky", "ink")  # of `COLOURS`
DRAWN = {"#ffffff": "paper", GREY.lower(): "muted"}
DRAWN |= {drawn.lower(): name for drawn, name in zip(COLOURS, NAMES, strict=True)}
"""What matplotlib draws -> its name here."""


def variables() -> str:
    """CSS that gives the names their colours; what is printed is light."""
    light, dark = (
        ":root { " + " ".join(f"--{name}: {colour};" for name, colour in some.items()) + " }"
        for some in (LIGHT, DARK)
    )
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n"


SHOWN = 12  # pictures of one kind; the others are folded
SVG: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "igpe",  # the same names in every run
}
Draw = Callable[[Any], None]
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


class Panel(NamedTuple):
    """A measured quantity: its rows of `Result.points` and `Result.curves`.

    every      experiment -> its look;  time_unit: of the times
    """

    title: str
    points: pd.DataFrame
    curves: pd.DataFrame
    every: Mapping[str, Look]
    time_unit: str


def panels(points: pd.DataFrame, curves: pd.DataFrame, time_unit: str = "") -> list[Panel]:
    """One of each quantity, in their order."""
    every = looks(points["experiment"])
    return [
        Panel(str(name), rows, curves[curves["name"] == name], every, time_unit)
        for name, rows in points.groupby("name", sort=False)
    ]


def fits(shown: Iterable[Panel]) -> str:
    """Measurements and the fitted model."""
    return gallery(figure(one.title, _fit_words(one), partial(_fit, one)) for one in shown)


def smoothed(shown: Iterable[Panel]) -> str:
    """Measurements and the smoothed curve with its band, where there is one."""
    return gallery(
        figure(
            one.title,
            f"{_measured(one)} and the smoothed curve from {_span(one.curves['smoothed'])} with "
            f"its band; standard error {_span(one.curves['smoothed_error'])}.",
            partial(_fit, one, smoothed=True, fitted=False),
        )
        for one in shown
        if one.curves["smoothed"].notna().any()
    )


def residuals(shown: Iterable[Panel], *, standard: bool) -> str:
    """Residuals over time; `standard` whether they are in standard deviations."""
    drawn = []
    for one in shown:
        values = one.points["residual"]
        words = f"{len(values)} residuals of {one.title} over time, from {_span(values)}"
        beyond = int(np.sum(np.abs(values) > BAND))
        words += f" standard deviations; number outside ±{BAND}: {beyond}" * standard
        if np.isfinite(values).any():
            drawn.append(figure(one.title, f"{words}.", partial(_residuals, one, standard)))
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
    more = folded(f"{len(drawn) - SHOWN} more plots", rest) if len(drawn) > SHOWN else ""
    return first + more if drawn else ""


def svg(draw: Draw, size: tuple[float, float] = PANEL) -> str:
    """Return the drawing as SVG with its own background, for light and dark pages."""
    import matplotlib.style  # noqa: PLC0415 - slow to import, not needed without pictures
    from matplotlib.figure import Figure  # noqa: PLC0415

    from igpe.results.plots.ticks import number_ticks  # noqa: PLC0415

    written = StringIO()
    with matplotlib.style.context(["default", STYLE, SVG]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # browsers have other fonts
        drawn = Figure(figsize=size, layout="constrained")
        ax = drawn.subplots()
        number_ticks(ax, 5)
        draw(ax)
        drawn.savefig(written, format="svg", metadata=NO_METADATA)
    text = written.getvalue()
    for colour, name in DRAWN.items():
        text = text.replace(f": {colour}", f": var(--{name}, {colour})")
    # The root's fill is that of texts and of all that names none.
    style = f'<style type="text/css">{variables()}svg {{ fill: var(--ink); }} '
    return text[text.index("<svg") :].replace('<style type="text/css">', style, 1)


def _fit(one: Panel, ax: Any, **parts: bool) -> None:
    draw_fit(ax, one.points, one.curves, every=one.every, **parts)
    ax.set_xlabel(labelled("time", one.time_unit))
    ax.set_ylabel(labelled(one.title, one.points["unit"].iloc[0]))


def _residuals(one: Panel, standard: bool, ax: Any) -> None:
    draw_residuals(ax, one.points, one.points["residual"], standard=standard, every=one.every)
    words = "residual" + " / standard deviation" * standard
    ax.set(xlabel=labelled("time", one.time_unit), ylabel=words)


def _span(values: Any) -> str:
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    return f"{known.min():.4g} to {known.max():.4g}" if len(known) else "no number"


def _measured(one: Panel) -> str:
    runs = f" in {len(one.every)} experiments" if len(one.every) > 1 else ""
    many = f"{len(one.points)} measurements of {one.title}{runs}"
    return f"Over time {_span(one.points['time'])}: {many}"


def _fit_words(one: Panel) -> str:
    off = np.sqrt(np.mean(np.square(one.points["residual"].to_numpy(dtype=float))))
    miss = f"{off:.3g}" if np.isfinite(off) else "unknown"
    return (
        f"{_measured(one)} from {_span(one.points['measured'])}, and the fitted model from "
        f"{_span(one.curves['fitted'])}; root mean square residual {miss}."
    )
