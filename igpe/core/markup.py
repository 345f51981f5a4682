"""Names, numbers, tables and lists as text and as HTML: every text is escaped here.

Lists of names, and the valid name nearest to a wrong one. Names and texts of others are made safe
for where they are shown: one function for each target. A target that is not listed here gets no
text of others.
"""

import json
import math
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from difflib import get_close_matches
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

MOST, FIRST = 30, 8  # names that a message lists; of more


def closest(name: str, known: Iterable[str]) -> str:
    """A sentence, after a space, with the known name that was probably meant; empty if none was."""
    lower = {k.lower(): k for k in known}
    matches = get_close_matches(name.lower(), lower, n=1)
    return f" Did you mean '{lower[matches[0]]}'?" if matches else ""


def bracketed(names: Iterable[str]) -> str:
    """Names as a message lists them: the first of many, and how many there are."""
    every = list(names)
    if len(every) <= MOST:
        return str(every)
    return f"[{', '.join(map(repr, every[:FIRST]))}, ... {len(every)} in all]"


def in_words(names: Sequence[str], most: int = FIRST) -> str:
    """The first names as a sentence lists them: a, b and 3 more."""
    more = len(names) - most
    return ", ".join(names[:most]) + f" and {more} more" * (more > 0)


def closest_file(path: Path) -> str:
    """Suggest the nearest file in the folder of a missing file."""
    try:
        beside = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        return ""
    return closest(path.name, beside)


class Suggesting:
    """Base of public classes: the error for a wrong attribute suggests the nearest valid name."""

    if not TYPE_CHECKING:  # a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if name.startswith("_") or hasattr(kind, name):  # of a property: its own error
                return object.__getattribute__(self, name)
            known = [n for n in dir(self) if not n.startswith("_")]
            hint = closest(name, known) or f" It has {', '.join(known)}."
            # With an object, Python would add a suggestion of its own.
            raise AttributeError(f"{kind.__name__} has no attribute '{name}'.{hint}", name=name)


LONG = 40  # characters; what is longer may be broken into lines
WIDTH = 80  # characters of a line of text
LEFT = ' style="text-align:left"'  # of texts: notebooks put all cells to the right
NUMERIC = re.compile(r"(± |-)?(\d.*|∞|)", re.DOTALL)
Rows = Sequence[Sequence[str]]  # of a table: the heads, then as many texts in each row


PLAIN = 1e4  # below which no number has the form 9.4e+02
LARGE = 1e7  # below which a row that has other numbers has none of the form 1.0e+05


def number(value: float, error: float = math.nan) -> str:
    """A value with as many digits as its error allows (six significant ones without an error)."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == 0 or not math.isfinite(error) or error <= 0:
        return f"{value:.6g}"
    digits = math.ceil(math.log10(max(abs(value) / error, 1e-9))) + 2
    digits = min(max(digits, 2), 10)
    if 10**digits <= abs(value) < PLAIN:
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".rstrip(".")  # "#" keeps zeros that are known


def numbers(values: Sequence[float], error: float = math.nan) -> list[str]:
    """Numbers of one row, as `number` shows them, in one notation."""
    shown = [number(v, error) for v in values]
    are_mixed = 0 < sum("e+" in text for text in shown) < sum(map(math.isfinite, values))
    if not are_mixed or max(abs(v) for v in values if math.isfinite(v)) >= LARGE:
        return shown
    return [f"{v:.0f}" if "e+" in text else text for v, text in zip(values, shown, strict=True)]


def on_side(shown: str, value: float, sign: int) -> str:
    """A number as shown, or one more in its last digit if rounding moved it to the other side.

    shown  with all digits that it is rounded to, zeros included
    sign   1: it must be at least the value; -1: at most
    """
    if (float(shown) - value) * sign >= 0:
        return shown
    digits, e, exponent = shown.partition("e")
    unit = Decimal(1).scaleb(int(Decimal(digits).as_tuple().exponent))
    return f"{Decimal(digits) + sign * unit}{e}{exponent}"


def at_side(value: float, digits: int, sign: int) -> str:
    """A number with so many significant digits that lies on the side of `on_side`."""
    return f"{float(on_side(f'{value:#.{digits}g}', value, sign)):.{digits}g}"


def ratio_in_words(sizes: Collection[float]) -> str:
    """Sizes as a ratio to the least, which may be 0: "1 : 2.5"."""
    least = min(sizes) or 1.0
    return " : ".join(f"{size / least:.4g}" for size in sizes)


def counted(number: int, noun: str) -> str:
    """A number of things: "1 box", "2 boxes"."""
    ending = "es" if noun.endswith("x") else "s"
    return f"{number} {noun}{ending * (number != 1)}"


def listed(names: Sequence[str]) -> str:
    """The names as in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


class Shown(Suggesting):
    """Base of results: they print tables and sentences, and show the same as HTML in notebooks.

    Dataclasses need `repr=False`; otherwise `repr` would list the fields.
    """

    def _shown(self) -> tuple[Sequence[Rows], Sequence[str]]:
        """The tables and the sentences."""
        raise NotImplementedError

    def __str__(self) -> str:
        tables, sentences = self._shown()
        blocks = ["\n".join(aligned(rows)) for rows in tables]
        return "\n\n".join(filter(None, [*blocks, "\n".join(sentences)]))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        tables, sentences = self._shown()
        return "".join(table(heads, rows) for heads, *rows in tables) + bullets(sentences)


def aligned(rows: Rows) -> list[str]:
    """Lines of a table with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def with_texts(rows: Rows) -> list[list[str]]:
    """The columns of a table that have a text below their head; the first column always."""
    return [list(c) for i, c in enumerate(zip(*rows, strict=True)) if i == 0 or any(c[1:])]


def frame_rows(frame: Any, digits: int = 5, most: int = 20) -> list[list[str]]:
    """A DataFrame as heads and rows of texts, its index first; of a long one the first rows."""
    rows = [["", *map(str, frame.columns)]]
    for name, *values in frame.head(most).itertuples():
        rows.append([str(name), *(_text(v, digits) for v in values)])
    return rows + [["...", *[""] * len(frame.columns)]] * (len(frame) > most)


def _text(value: Any, digits: int) -> str:
    if not isinstance(value, float):
        return str(value)
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def filled(text: str, label: str = "", indent: str = "", width: int = WIDTH) -> str:
    """The text in lines of at most `width` characters, behind a label; no word is broken.

    indent  of the lines after the first

    "p = 1" and "5 %" stay together.
    """
    held = re.sub(r" ([=<>≥±]) ", "\u00a0\\1\u00a0", text).replace(" %", "\u00a0%")
    return textwrap.fill(
        held,
        width,
        initial_indent=label,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\u00a0", " ")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table whose first column names the rows, without columns that are empty.

    heads  of the columns; an empty one stands above what needs no name
    rows   as many texts each
    """
    rows = list(rows)
    columns = with_texts([heads, *rows]) if rows else [[head] for head in heads]
    left = [i == 0 or not all(map(NUMERIC.fullmatch, c[1:])) for i, c in enumerate(columns)]
    heads, *rows = zip(*columns, strict=True)
    head = "".join(map(_head, heads, left))
    body = "".join(f"<tr>{_row(row, left)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def wide(inside: str, label: str) -> str:
    """Wrap HTML so that it scrolls sideways, also with the keyboard."""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">{inside}</div>'
    )


def bullets(texts: Iterable[str]) -> str:
    """A list; nothing if there are no texts."""
    items = "".join(f"<li>{escape(t)}</li>" for t in texts)
    return f"<ul>{items}</ul>" if items else ""


def folded(summary: str, inside: str) -> str:
    """HTML that opens on demand."""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def heading(text: str) -> str:
    """A small heading."""
    return f"<h4>{escape(text)}</h4>"


def preformatted(text: str) -> str:
    """Text as it is, in lines."""
    return f"<pre>{escape(text)}</pre>"


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"


def _head(text: str, left: bool) -> str:
    return f'<th scope="col"{_kind(text, left)}>{escape(text)}</th>' if text else "<td></td>"


def _row(row: Sequence[str], left: Sequence[bool]) -> str:
    name, *cells = row
    head = f'<th scope="row"{_kind(name, True)}>{escape(name)}</th>'
    pairs = zip(cells, left[1:], strict=True)
    return head + "".join(f"<td{_kind(cell, side)}>{escape(cell)}</td>" for cell, side in pairs)


def _kind(text: str, left: bool) -> str:
    return ' class="long"' * (len(text) > LONG) + LEFT * left


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
    """Escape text for a line of a docstring, so that it cannot end the docstring."""
    return one_line(text).replace("\\", "/").replace('"', "'")


def quoted(text: str) -> str:
    """The text as Python writes it in double quotes."""
    return one_line(json.dumps(text, ensure_ascii=False))


def label(text: str) -> str:
    """Escape text for a picture: a name with $ is not a formula."""
    return printable(text).replace("$", r"\$")


TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
TEX |= {"^": r"\textasciicircum{}", "±": r"$\pm$", "∞": r"$\infty$", "…": r"\dots{}"}


def tex(text: str) -> str:
    """The text for LaTeX."""
    return one_line(text).translate({ord(c): t for c, t in TEX.items()})


def cell(text: str) -> str:
    """The text for a cell of a spreadsheet: an apostrophe before what would be a formula."""
    if text.startswith(FORMULA):
        try:
            float(text)
        except ValueError:
            return f"'{printable(text)}"
    return printable(text)
