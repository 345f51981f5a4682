"""How the answer came about: the candidates, and what each of the five steps did."""

import math

import numpy as np

from igpe.core.markup import paragraph
from igpe.results.certificate import Certificate
from igpe.results.plots.waterfall import draw, series, words
from igpe.results.report.pictures import figure, gallery, panels, smoothed
from igpe.results.report.section import Section, legend, wide_table
from igpe.results.result_data import ResultData
from igpe.results.result_text import number

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
    drawn = figure("Where the ways ended", words(ends), lambda ax: draw(ax, {"": ends}))
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
