"""What a page is made of: sections, and the parts that several of them use."""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import pandas as pd

from igpe.core.markup import folded, table
from igpe.results.result_text import number

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
