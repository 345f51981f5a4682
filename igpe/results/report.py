"""The report: one HTML page that holds all it shows and loads nothing from the network.

A section is a function of the result. It uses plain data only, so that a page can be made from a
stored result as well.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.markup import bullets, folded, paragraph, preformatted, table
from igpe.results.dynamic_certificate import Certificate
from igpe.results.plots.page_figures import (
    figure,
    fits,
    gallery,
    panels,
    residuals,
    smoothed,
    variables,
)
from igpe.results.plots.search import draw_waterfall, series, words
from igpe.results.plots.structure_map import draw_map, size
from igpe.results.residual_table import standard_residuals
from igpe.results.result_data import (
    ResultData,
    estimates,
    fitness,
    number,
    other_tables,
    quality,
    verdict,
)

LONG = 15  # rows; a longer table is folded
MARKS = {
    "measured": '<circle cx="14" cy="6" r="4" fill="none" stroke="var(--ink)" stroke-width="1.5"/>',
    "fitted model": '<path d="M0 6h28" stroke="var(--blue)" stroke-width="2"/>',
    "smoothed, with its 95 % band": (
        '<path d="M0 1h28v10h-28z" fill="var(--orange)" opacity="0.25"/>'
        '<path d="M0 6h28" stroke="var(--orange)" stroke-width="2" stroke-dasharray="6 3"/>'
    ),
}


class Section(NamedTuple):
    """A chapter of the page.

    title  unique on the page
    html   what stands below it, already escaped; a chapter without is left out
    """

    title: str
    html: str


def wide_table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table that scrolls where the screen is narrow, folded if it is long.

    Columns without a text are left out, but for the first, which names the rows.
    """
    if not rows:
        return ""
    kept = [i for i in range(len(heads)) if i == 0 or any(row[i] for row in rows)]
    shown = [[row[i] for i in kept] for row in rows]
    written = wide(table([heads[i] for i in kept], shown, caption), caption)
    return folded(f"{caption} ({len(rows)} rows)", written) if len(rows) > LONG else written


def wide(inside: str, label: str) -> str:
    """Room to scroll sideways, with the keyboard too."""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">{inside}</div>'
    )


def frame_table(frame: pd.DataFrame, caption: str) -> str:
    """A DataFrame as such a table; its first column names the rows."""
    texts = [[_text(v) for v in row] for row in frame.itertuples(index=False)]
    return wide_table([str(c).replace("_", " ") for c in frame.columns], texts, caption)


def legend(*names: str) -> str:
    """What the marks of the pictures mean."""
    items = "".join(
        f'<li><svg width="28" height="12" viewBox="0 0 28 12" aria-hidden="true">{MARKS[n]}</svg>'
        f"{escape(n)}</li>"
        for n in names
    )
    return f'<ul class="legend">{items}</ul>'


def _text(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


UNPROVED = "Step 3 proved nothing: no unknown was estimated algebraically."


def answer(result: ResultData) -> Section:
    """All that a reader in a hurry needs."""
    heads, *rows = estimates(result)
    caption = f"Estimated unknowns, with {100 * result.confidence:g} % intervals"
    parts = (
        *(f'<p class="verdict">{escape(sentence)}</p>' for sentence in fitness(result)),
        f'<p class="verdict">{escape(verdict(result))}</p>',
        wide(table(heads, rows, caption), caption),
        *(wide(table(other[0], other[1:], title), title) for title, other in other_tables(result)),
        bullets(quality(result)),
        "<h3>What is proved</h3>",
        bullets(_proved(result)),
        "<h3>Worth knowing</h3>" if result.notes else "",
        bullets(result.notes),
    )
    return Section("The answer", "".join(parts))


def _proved(result: ResultData) -> list[str]:
    whole = [] if result.proof is None else [result.proof.sentence]
    return [*(c.sentence for c in result.certificates), *whole] or [UNPROVED]


def fit(result: ResultData) -> Section:
    """Each measured quantity of each experiment beside the fitted model."""
    told = frame_table(_without_single_experiment(result.fit().reset_index()), "Fit by quantity")
    drawn = fits(panels(result.points, result.curves))
    return Section("Fit", legend("measured", "fitted model") + drawn + told)


def residual(result: ResultData) -> Section:
    """What the model leaves unexplained, over time, and every measurement."""
    words = "Residuals of a right model scatter around zero without a pattern"
    values, standard = standard_residuals(result.points, result.variance)
    band = "; 95 % of them lie in the band" if standard else ""
    points = result.points.assign(residual=values)
    drawn = residuals(panels(points, result.curves), standard=standard)
    tests = frame_table(_without_single_experiment(result.residual_tests()), "Tests of residuals")
    every = frame_table(_without_single_experiment(result.points), "All measurements")
    return Section("Residuals", paragraph(f"{words}{band}.") + drawn + tests + every)


def _without_single_experiment(table: pd.DataFrame) -> pd.DataFrame:
    one = table["experiment"].nunique() == 1
    return table.drop(columns="experiment") if one else table


MAP = "Which equations give what"


def identifiability(result: ResultData) -> Section:
    """How each unknown is reached, and which estimates move together."""
    told = _structure(result) + _maps(result)
    told += _correlation(result.correlation) + _combinations(result)
    return Section("Identifiability", told)


def _structure(result: ResultData) -> str:
    """Lines that begin with an unknown are rows; the others are remarks on all of them."""
    lines = [line.partition("  ") for line in result.structure.splitlines()]
    rows = [(name, said.strip()) for name, _, said in lines if name in result.parameters and said]
    told = ["".join(line) for line in lines if line[0] not in result.parameters or not line[2]]
    caption = "How the measurements reach each unknown"
    return wide_table(("unknown", "how"), rows, caption) + "".join(map(paragraph, told))


def _maps(result: ResultData) -> str:
    """One picture for each structure, as large as its names need."""
    if not result.maps:
        return ""
    words = (
        "Rows are equations, columns what is unknown in them, what is measured, and the "
        "parameters. Framed blocks are solved one after the other, from the top; the last rows "
        "say which slopes and starts tell of which parameters."
    )
    drawn = [
        wide(figure(f"Equations of {one.title}", one.words, partial(draw_map, one), size(one)), MAP)
        for one in result.maps
    ]
    return f"<h3>{MAP}</h3>{paragraph(words)}{gallery(drawn, in_grid=False)}"


def _correlation(table: pd.DataFrame) -> str:
    known = [str(n) for n in table.index[np.isfinite(np.diag(table))]]
    values = table.loc[known, known].to_numpy(dtype=float)
    pairs = [(known[i], known[j], values[i, j]) for i, j in combinations(range(len(known)), 2)]
    if not pairs:
        return ""
    one, other, value = max(pairs, key=lambda pair: abs(pair[2]))
    words = f"The strongest correlation of two estimates is that of {one} and {other}: {value:.3f}."
    texts = table.loc[known, known].map(lambda r: f"{r:z.2f}").rename_axis("").reset_index()
    return paragraph(words) + frame_table(texts, "Correlation of the estimates")


def _combinations(result: ResultData) -> str:
    table = result.combinations()
    if len(table) < 2:  # noqa: PLR2004 - one unknown combines with nothing
        return ""
    texts = table.map(lambda v: f"{v:.3g}").drop(columns="standard_error")
    texts.insert(0, "relative standard error", [f"{v:.3g}" for v in table["standard_error"]])
    caption = "Relative changes of the unknowns, the poorest determined together first"
    return frame_table(texts, caption)


def reproduction(result: ResultData) -> Section:
    """Bounds, seed, settings and versions."""
    words = (
        "The model, the measurements and what stands here give these numbers again, but for what a "
        f"time limit cut short. Seed of the search: {result.seed}."
    )
    bounds = [(p.name, *map(number, p.bounds), p.unit) for p in result.estimates]
    settings = folded("Settings", preformatted(result.settings)) if result.settings else ""
    return Section(
        "To reproduce this",
        paragraph(words)
        + wide_table(("unknown", "from", "to", "unit"), bounds, "Sought within")
        + settings
        + wide_table(("package", "version"), list(result.versions.items()), "Versions"),
    )


POSED = ("unknowns", "fitted to", "by", "sum of squares", "proven bound", "gap", "how it ended")


def candidates(result: ResultData) -> Section:
    """All ways that were tried, best first, and where each of them led."""
    ways = result.candidates
    ended = [
        (str(rank), c.origin, number(c.objective), c.status.value) for rank, c in enumerate(ways, 1)
    ]
    heads = ("", "from", "sum of squares", "how it ended")
    names = list(dict.fromkeys(n for c in ways for n in c.corrected))
    led = [(n, *(number(c.corrected.get(n, math.nan)) for c in ways)) for n in names]
    ranks = ("unknown", *(str(rank) for rank in range(1, len(ways) + 1)))
    return Section(
        "Candidates",
        wide_table(heads, ended, "Ways through the steps, best first")
        + _waterfall(result)
        + wide_table(ranks, led, "Where each way led"),
    )


def _waterfall(result: ResultData) -> str:
    """Where the ways ended, if there are several."""
    ways = result.candidates
    ends = series([c.objective for c in ways], [c.status.usable for c in ways])
    if np.isfinite(ends.objectives).sum() < 2:  # noqa: PLR2004 - one is no waterfall
        return ""
    drawn = figure("Where the ways ended", words(ends), lambda ax: draw_waterfall(ax, {"": ends}))
    return gallery([drawn])


def steps(result: ResultData) -> Section:
    """What each step did, with its wall time."""
    return Section(
        "Step by step",
        _smoothing(result) + _algebraic(result) + _dynamic(result) + _seconds(result),
    )


def _smoothing(result: ResultData) -> str:
    drawn = smoothed(panels(result.points, result.curves))
    words = "Curves through the measurements, which give states and slopes to steps 2 and 3."
    key = legend("measured", "smoothed, with its 95 % band")
    return f"<h3>Step 1: smoothing</h3>{paragraph(words)}{key}{drawn}" if drawn else ""


def _algebraic(result: ResultData) -> str:
    words = (
        "Equations whose states are all smoothed predict slopes without integration (step 2, see "
        "Identifiability). Their unknowns are fitted to these slopes, with a proof where one is "
        "possible. Sums and bounds are of slopes, not of the fit to the measurements."
    )
    rows = [_certificate(c) for c in result.certificates]
    told = wide_table(POSED, rows, "Algebraic problems") or paragraph("There were none.")
    return f"<h3>Steps 2 and 3: structure, algebraic problems</h3>{paragraph(words)}{told}"


def _certificate(one: Certificate) -> tuple[str, ...]:
    of = f"{one.origin} of {', '.join(one.slopes)}"
    where = f", experiments {', '.join(one.experiments)}" if len(one.experiments) > 1 else ""
    proved = math.isfinite(one.lower_bound)
    return (
        ", ".join(one.unknowns),
        of + where,
        one.method,
        number(one.objective),
        number(one.lower_bound) if proved else "none",
        f"{100 * one.gap:.2g} %" if proved else "",
        one.status.value,
    )


def _dynamic(result: ResultData) -> str:
    words = (
        "On the model integrated over time, step 4 finds what algebra cannot reach, and step 5 "
        "corrects all unknowns at once. This is the best candidate on its way."
    )
    best = result.candidates[0] if result.candidates else None
    found = {} if best is None else best.incremental
    rows = [
        (p.name, p.found_by, number(found.get(p.name, math.nan)), number(p.value), p.unit)
        for p in result.estimates
    ]
    heads = ("unknown", "first found by", "after step 4", "after step 5", "unit")
    told = wide_table(heads, rows, "From step to step")
    proof = paragraph(result.proof.sentence) if result.proof else ""
    return f"<h3>Steps 4 and 5: dynamics, correction</h3>{paragraph(words)}{told}{proof}"


def _seconds(result: ResultData) -> str:
    rows = [(step, f"{seconds:.2f}") for step, seconds in result.seconds.items()]
    return wide_table(("step", "seconds"), rows, "Wall time")


Write = Callable[[ResultData], Section]

SECTIONS: tuple[Write, ...] = (
    answer,
    fit,
    residual,
    identifiability,
    candidates,
    steps,
    reproduction,
)

TITLE = "Estimated parameters"

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Whatever a page's names hold, no script of theirs runs and nothing is loaded."""

CSS = Path(__file__).with_name("report.css")


def page(
    result: ResultData,
    title: str = TITLE,
    date: str = "",
    sections: Sequence[Write] = SECTIONS,
) -> str:
    """The whole page; the same result gives the same text.

    title  its heading
    date   written below it, as it is; nothing if empty
    """
    written = [s for s in (write(result) for write in sections) if s.html]
    below = f"<p>{escape(date)}</p>" if date else ""
    return (
        f"{_head(title)}<body>\n"
        '<a class="skip" href="#main">Skip to the answer</a>\n'
        f"<header><h1>{escape(title)}</h1>{below}{_contents(written)}</header>\n"
        f'<main id="main" tabindex="-1">\n{"".join(map(_section, written))}</main>\n'
        f"<footer><p>{escape(_author(result))}</p></footer>\n"
        "</body>\n</html>\n"
    )


def _head(title: str) -> str:
    style = variables() + CSS.read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="generator" content="igpe">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
    )


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(
        f'<li><a href="#{_anchor(s.title)}">{escape(s.title)}</a></li>' for s in sections
    )
    return f'<nav aria-label="Sections"><ul>{items}</ul></nav>'


def _section(one: Section) -> str:
    anchor = _anchor(one.title)
    return (
        f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{escape(one.title)}</h2>\n'
        f"{one.html}\n</section>\n"
    )


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def _author(result: ResultData) -> str:
    version = result.versions.get("igpe", "")
    known = f" {version}" if version[:1].isdigit() else ""
    return f"Written by igpe{known}, which finds globally right parameters of dynamic models."
