"""Tables and lists as HTML: for notebooks and for reports. Every text is escaped here.

Names and texts of others, made safe for where they are shown: one function for each target.

HTML is escaped in `igpe.core.markup`. A target that is not listed here gets no text of others.
"""

import json
from collections.abc import Iterable, Sequence
from html import escape
from unicodedata import category

LONG = 40  # characters; what is longer may be broken into lines


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table whose first column names the rows.

    heads  of the columns; an empty one stands above what needs no name
    rows   as many texts each
    """
    head = "".join(_head(h) for h in heads)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bullets(texts: Iterable[str]) -> str:
    """A list; nothing if there are no texts."""
    items = "".join(f"<li>{escape(t)}</li>" for t in texts)
    return f"<ul>{items}</ul>" if items else ""


def folded(summary: str, inside: str) -> str:
    """Markup that opens on demand."""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def preformatted(text: str) -> str:
    """Text as it is, in lines."""
    return f"<pre>{escape(text)}</pre>"


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"


def _head(text: str) -> str:
    return f'<th scope="col"{_kind(text)}>{escape(text)}</th>' if text else "<td></td>"


def _row(row: Sequence[str]) -> str:
    name, *cells = row
    head = f'<th scope="row"{_kind(name)}>{escape(name)}</th>'
    return head + "".join(f"<td{_kind(cell)}>{escape(cell)}</td>" for cell in cells)


def _kind(text: str) -> str:
    return ' class="long"' if len(text) > LONG else ""


UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, marks that turn text around, line separators
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with what a spreadsheet's formula begins


def printable(text: str, keep: str = "\n\t") -> str:
    """The text for a terminal: control characters, but for those to keep, as Python writes them."""
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or category(c) not in UNSEEN else c.encode("unicode_escape").decode()
        for c in text
    )


def one_line(text: str) -> str:
    """The text for a comment of a Python file: line breaks too as Python writes them."""
    return printable(text, keep="")


def docstring(text: str) -> str:
    """The text for a line of a docstring, which it cannot end."""
    return one_line(text).replace("\\", "/").replace('"', "'")


def quoted(text: str) -> str:
    """The text as Python writes it in double quotes."""
    return one_line(json.dumps(text, ensure_ascii=False))


def label(text: str) -> str:
    """The text for a picture: a name with $ is a name, no formula."""
    return printable(text).replace("$", r"\$")


def cell(text: str) -> str:
    """The text for a cell of a spreadsheet: an apostrophe before what would be a formula."""
    if text.startswith(FORMULA):
        try:
            float(text)
        except ValueError:
            return f"'{printable(text)}"
    return printable(text)
