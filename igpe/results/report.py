"""The report: one self-contained HTML page, which loads nothing from the network.

A section is a function of the result. It uses plain data only, so that a page can be made from a
stored result as well. Figures are SVG of fixed content in the page's colours, light or dark.
"""

import math
import re
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.markup import folded, number, paragraph, preformatted, table, wide
from igpe.problem.card import CONDITIONS, mathml
from igpe.results.answer import html
from igpe.results.certificates import Certificate
from igpe.results.details import word
from igpe.results.plots.axes import (
    COLOURS,
    GREY,
    LINES,
    PANEL,
    STYLE,
    Look,
    labelled,
    looks,
    number_ticks,
)
from igpe.results.plots.fit import BAND, draw_fit, draw_residuals
from igpe.results.plots.stages import draw_waterfall, series, words
from igpe.results.plots.structure_map import draw_map, size
from igpe.results.residual_table import standard_residuals
from igpe.results.result_data import ResultData

SHADES = {
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
LIGHT, DARK = ({name: pair[k] for name, pair in SHADES.items()} for k in (0, 1))
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


MOST_COLUMNS = 10  # side by side, so that paper is wide enough
LONG = 15  # rows; a longer table is folded
MOST = 30  # equations that are not folded
MARKS = {
    "measured": '<circle cx="14" cy="6" r="4" fill="none" stroke="var(--ink)" stroke-width="1.5"/>',
    "fitted model": '<path d="M0 6h28" stroke="var(--blue)" stroke-width="2"/>',
    "smoothed, with its 95 % band": (
        '<path d="M0 1h28v10h-28z" fill="var(--orange)" opacity="0.25"/>'
        '<path d="M0 6h28" stroke="var(--orange)" stroke-width="2" stroke-dasharray="2 3"/>'
    ),
}
DASHES = {
    line: f' stroke-dasharray="{lengths}"' if lengths else ""
    for line, lengths in zip(LINES, ("", "7 4", "8 3 2 3", "2 3"), strict=True)
}


class Section(NamedTuple):
    """A chapter of the page.

    title  unique on the page
    html   what stands below it, already escaped; a chapter without is left out
    """

    title: str
    html: str


def wide_table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table in a frame that scrolls, folded if it is long."""
    if not rows:
        return ""
    blocks = [
        range(i, min(i + MOST_COLUMNS, len(heads))) for i in range(1, len(heads), MOST_COLUMNS)
    ]
    written = "".join(
        table([heads[i] for i in (0, *b)], [[row[i] for i in (0, *b)] for row in rows], caption)
        for b in blocks
    )
    written = wide(written, caption)
    return folded(f"{caption} ({len(rows)} rows)", written) if len(rows) > LONG else written


def frame_table(frame: pd.DataFrame, caption: str) -> str:
    """A DataFrame as such a table; its first column names the rows, one experiment is not named."""
    if "experiment" in frame and frame["experiment"].nunique() == 1:
        frame = frame.drop(columns="experiment")
    texts = [
        [number(v) if isinstance(v, float) else str(v) for v in row]
        for row in frame.itertuples(index=False)
    ]
    return wide_table([str(c) for c in frame.columns], texts, caption)


def in_words(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with names of columns as words."""
    return frame.rename(columns=lambda name: str(name).replace("_", " "))


def legend(shown: Sequence[Panel], *names: str) -> str:
    """Explain the marks of the plots and, with several experiments, their colours."""
    every = shown[0].every if shown else {}
    marks = [(MARKS[n], n) for n in names]
    if len(every) > 1:  # colours are those of experiments
        marks = [(re.sub(r"--(blue|orange)", "--muted", mark), n) for mark, n in marks]
    for name, look in every.items() if len(every) > 1 else ():
        color = NAMES[COLOURS.index(look.color)]
        stroke = f'stroke="var(--{color})" stroke-width="3"{DASHES[look.line]}'
        marks.append((f'<path d="M0 6h28" {stroke}/>', f"experiment {name}"))
    items = "".join(
        f'<li><svg width="28" height="12" viewBox="0 0 28 12" aria-hidden="true">{mark}</svg>'
        f"{escape(words)}</li>"
        for mark, words in marks
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


def answer(result: ResultData) -> Section:
    """The verdict, the estimates, what needs action; the rest is folded."""
    return Section("The answer", html(result))


def model(result: ResultData) -> Section:
    """The typeset equations, the conditions of the experiments, and the sources of the data."""
    written = [_typeset(tree) for tree in result.equations]
    first, rest = "".join(written[:MOST]), "".join(written[MOST:])
    more = folded(f"{len(written) - MOST} more equations", rest) if rest else ""
    data = wide_table(("experiment", "data"), list(result.sources.items()), "Data and checksums")
    every = [row for row in result.conditions if len(row) == len(CONDITIONS)]  # stored by anyone
    given = wide_table(CONDITIONS, every, "Conditions")
    return Section("Model and data", f"{first}{more}{given}{data}")


def _typeset(tree: Any) -> str:
    """One equation; what a stored result holds instead is named."""
    try:
        return f"<p>{mathml(tree)}</p>"
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        return paragraph("(An equation in the stored result could not be read.)")


def fit(result: ResultData) -> Section:
    """Each measured quantity of each experiment beside the fitted model."""
    table = frame_table(in_words(result.fit().reset_index()), "Fit by quantity")
    shown = panels(result.points, result.curves, result.time_unit)
    return Section("Fit", legend(shown, "measured", "fitted model") + fits(shown) + table)


TOGETHER = "Each row of the table is one test. All residuals together, and slow trends in them:"


def residual(result: ResultData) -> Section:
    """What the model leaves unexplained, over time, and every measurement."""
    words = "Residuals of a correct model scatter around zero without a pattern"
    values, standard = standard_residuals(result.points, result.variance)
    band = "; 95 % of them lie in the band" if standard else ""
    points = result.points.assign(residual=values)
    shown = panels(points, result.curves, result.time_unit)
    drawn = legend(shown) + residuals(shown, standard=standard)
    tests = frame_table(result.residual_tests(), "Tests of residuals")
    if result.adequacy is not None and result.adequacy.lacks:
        tests = paragraph(f"{TOGETHER} {result.adequacy.sentence}") + tests
    every = frame_table(in_words(result.points), "All measurements")
    return Section("Residuals", paragraph(f"{words}{band}.") + drawn + tests + every)


PERFECT = (
    "The intervals show how well these measurements determine each unknown. igpe.check(problem) "
    "reports which unknowns perfect measurements would determine."
)
MAP = "Which equations determine which unknowns"
READING = (
    "Rows represent equations. Columns represent the unknown quantities in the equations, the "
    "measured quantities and the parameters. igpe solves the framed blocks one after the other, "
    "from the top. The last rows show which slopes and start values depend on which parameters."
)


def identifiability(result: ResultData) -> Section:
    """How each unknown is estimated, and which estimates correlate."""
    # Lines that begin with an unknown are rows; the others are remarks on all of them.
    lines = [line.partition("  ") for line in result.structure.splitlines()]
    rows = [(name, how.strip()) for name, _, how in lines if name in result.parameters and how]
    remarks = ["".join(line) for line in lines if line[0] not in result.parameters or not line[2]]
    written = wide_table(("unknown", "how"), rows, "How igpe estimates each unknown")
    written += "".join(map(paragraph, [*remarks, PERFECT]))
    drawn = [
        wide(figure(f"Equations of {one.title}", one.words, partial(draw_map, one), size(one)), MAP)
        for one in result.maps
    ]
    if drawn:
        written += f"<h3>{MAP}</h3>{paragraph(READING)}{gallery(drawn, in_grid=False)}"
    written += _correlation(result.correlation)
    combined = result.combinations()
    if len(combined) > 1:  # one unknown combines with nothing
        texts = combined.map(lambda v: f"{v:.3g}")
        texts.insert(0, "relative standard error", texts.pop("standard_error"))
        caption = (
            "Combinations of unknowns, starting with the least certain. Each row contains the "
            "relative changes of the unknowns"
        )
        written += frame_table(texts, caption)
    return Section("Identifiability", written)


def _correlation(table: pd.DataFrame) -> str:
    known = [str(n) for n in table.index[np.isfinite(np.diag(table))]]
    values = table.loc[known, known].to_numpy(dtype=float)
    pairs = [(known[i], known[j], values[i, j]) for i, j in combinations(range(len(known)), 2)]
    if not pairs:
        return ""
    one, other, value = max(pairs, key=lambda pair: abs(pair[2]))
    words = f"The most strongly correlated estimates are {one} and {other}: {value:.3f}."
    texts = table.loc[known, known].map(lambda r: f"{r:z.2f}").rename_axis("").reset_index()
    return paragraph(words) + frame_table(texts, "Correlation of the estimates")


def reproduction(result: ResultData) -> Section:
    """Bounds, seed, settings and versions."""
    words = (
        "The same model, measurements and settings reproduce these numbers, unless a time limit "
        f"ended the search. Seed of the search: {result.seed}."
    )
    bounds = [(p.name, *map(number, p.bounds), p.unit) for p in result.estimates]
    settings = (
        folded("Settings", preformatted(" ".join(result.settings.split())))
        if result.settings
        else ""
    )
    return Section(
        "To reproduce this",
        paragraph(words)
        + wide_table(("unknown", "from", "to", "unit"), bounds, "Sought within")
        + settings
        + wide_table(("package", "version"), list(result.versions.items()), "Versions"),
    )


def candidates(result: ResultData) -> Section:
    """All candidates of step 3, best first, where each of them led, and their waterfall."""
    every = result.candidates
    ended = [
        (str(rank), c.origin, number(c.objective), c.status.value)
        for rank, c in enumerate(every, 1)
    ]
    names = list(dict.fromkeys(n for c in every for n in c.corrected))
    led = [(n, *(number(c.corrected.get(n, math.nan)) for c in every)) for n in names]
    ranks = ("unknown", *(str(rank) for rank in range(1, len(every) + 1)))
    ends = series([c.objective for c in every], [c.status.usable for c in every])
    drawn = []
    if np.isfinite(ends.objectives).sum() > 1:  # one is no waterfall
        draw = partial(draw_waterfall, searches={"": ends})
        drawn.append(figure("Where the candidates ended", words(ends), draw))
    heads = ("", "from", word(result), "how it ended")
    return Section(
        "Candidates",
        wide_table(heads, ended, "Candidates, best first")
        + gallery(drawn)
        + wide_table(ranks, led, "Result of each candidate"),
    )


CURVES = (
    "igpe smooths the measurements. Steps 2 and 3 take states and slopes from the smoothed curves."
)
SLOPES = (
    "If all states in an equation are smoothed, the equation predicts a slope without integration "
    "(step 2, see Identifiability). Step 3 fits the unknowns of these equations to the slopes "
    "and, if possible, proves that this fit is globally optimal. The sums of squares and bounds "
    "below refer to the slopes, not to the fit to the measurements."
)
DYNAMICS = (
    "Step 4 integrates the model over time and estimates the remaining unknowns. Step 5 corrects "
    "all unknowns at once. The table shows the best candidate after these steps."
)
POSED = ("unknowns", "fitted to", "by", "sum of squares", "proven bound", "gap", "how it ended")


def steps(result: ResultData) -> Section:
    """What each step did, with its wall time."""
    shown = panels(result.points, result.curves, result.time_unit)
    drawn, key = smoothed(shown), legend(shown, "measured", "smoothed, with its 95 % band")
    curves = f"<h3>Step 1: smoothing</h3>{paragraph(CURVES)}{key}{drawn}" if drawn else ""
    posed = wide_table(POSED, list(map(_certificate, result.certificates)), "Algebraic problems")
    before = result.candidates[0].incremental if result.candidates else {}
    estimated = [
        (p.name, p.found_by, number(before.get(p.name, math.nan)), number(p.value), p.unit)
        for p in result.estimates
    ]
    heads = ("unknown", "first found by", "after step 4", "after step 5", "unit")
    seconds = [(step, f"{seconds:.2f}") for step, seconds in result.seconds.items()]
    return Section(
        "Step by step",
        f"{curves}<h3>Steps 2 and 3: structure, algebraic problems</h3>{paragraph(SLOPES)}"
        f"{posed or paragraph('None.')}"
        f"<h3>Steps 4 and 5: dynamics, correction</h3>{paragraph(DYNAMICS)}"
        f"{wide_table(heads, estimated, 'From step to step')}"
        f"{paragraph(result.proof.sentence) if result.proof else ''}"
        f"{wide_table(('step', 'seconds'), seconds, 'Wall time')}",
    )


def _certificate(one: Certificate) -> tuple[str, ...]:
    where = f", experiments {', '.join(one.experiments)}" if len(one.experiments) > 1 else ""
    proved = math.isfinite(one.lower_bound)
    return (
        ", ".join(one.unknowns),
        f"{one.origin} of {', '.join(one.slopes)}{where}",
        one.method,
        number(one.objective),
        number(one.lower_bound) if proved else "none",
        f"{100 * one.gap:.2g} %" if proved else "",
        one.status.value,
    )


Write = Callable[[ResultData], Section]

SECTIONS: tuple[Write, ...] = (answer, model, fit, residual, identifiability, candidates, steps)
SECTIONS += (reproduction,)

TITLE = "Estimated parameters"
IGPE = "which finds globally optimal parameters of dynamic models"

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Whatever a page's names hold, no script of theirs runs and nothing is loaded."""

CSS = Path(__file__).with_name("report.css")
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="igpe">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the answer</a>
<header><h1>{title}</h1>{date}<nav aria-label="Sections"><ul>{contents}</ul></nav></header>
<main id="main" tabindex="-1">
{sections}</main>
<footer><p>{author}</p></footer>
</body>
</html>
"""


def page(
    result: ResultData, title: str = TITLE, date: str = "", sections: Sequence[Write] = SECTIONS
) -> str:
    """The whole page; the same result gives the same text.

    title  its heading
    date   written below it, as it is; nothing if empty
    """
    written = [s for s in (write(result) for write in sections) if s.html]
    anchors = [re.sub(r"\W+", "-", s.title.lower()).strip("-") for s in written]
    pairs = list(zip(anchors, written, strict=True))
    version = result.versions.get("igpe", "")
    known = f" {version}" if version[:1].isdigit() else ""
    return PAGE.format(
        policy=POLICY,
        title=escape(title),
        style=variables() + CSS.read_text(encoding="utf-8"),
        date=f"<p>{escape(date)}</p>" if date else "",
        contents="".join(f'<li><a href="#{a}">{escape(s.title)}</a></li>' for a, s in pairs),
        sections="".join(
            f'<section aria-labelledby="{a}">\n<h2 id="{a}">{escape(s.title)}</h2>\n{s.html}\n'
            "</section>\n"
            for a, s in pairs
        ),
        author=escape(f"Written by igpe{known}, {IGPE}."),
    )
