"""The report: one page of HTML that holds all it shows and asks the network for nothing.

A section is a function of the result. What it needs of it is plain data, so that a page can be
made from a stored result as well.
"""

import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from igpe.results.report.answer import answer
from igpe.results.report.fit import fit, residual
from igpe.results.report.identifiability import identifiability
from igpe.results.report.pictures import variables
from igpe.results.report.reproduction import reproduction
from igpe.results.report.section import Section
from igpe.results.report.steps import candidates, steps
from igpe.results.result_data import ResultData

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

CSS = Path(__file__).with_name("page.css")


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
